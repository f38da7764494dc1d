//! `…/keyvals/ZONE`: the pairs of a zone are shown, put, changed and taken away.

use super::input::{self, Input};
use super::refusal::{Outcome, Refusal};
use super::servers::Block;
use crate::keyval::{Entry, Fault, KeyvalMain, Note, Zone, TEXT_MAX_BYTES};
use std::borrow::Cow;
use std::sync::Arc;
use weir_core::figures::{write_text, Figure, Figures};
use weir_core::generation::Generation;
use weir_runtime::clock;

/// Since which version a pair may be told when it goes.
const EXPIRES_SINCE: u8 = 5;

fn main(gen: &Generation, block: Block) -> Option<&KeyvalMain> {
    let (_, main) = match block {
        Block::Http => weir_http::module::reports(gen),
        Block::Stream => weir_stream::reports(gen),
    };
    main.map(|slots| slots.get::<KeyvalMain>())
}

/// The names of all zones.
pub(super) fn names(gen: &Generation, block: Block) -> Figure {
    let zones = main(gen, block).into_iter().flat_map(KeyvalMain::zones);
    Figure::List(zones.map(|(name, _)| name.into()).collect())
}

/// Zones whose pairs are to be shown: there may be any number of them, and of zones.
pub(super) enum Shown {
    All(Vec<(Vec<u8>, Arc<Zone>)>),
    One(Arc<Zone>),
}

impl Shown {
    pub(super) fn all(gen: &Generation, block: Block) -> Shown {
        let zones = main(gen, block).into_iter().flat_map(KeyvalMain::zones);
        Shown::All(zones.map(|(name, zone)| (name.to_vec(), Arc::clone(zone))).collect())
    }

    /// As JSON. It may take long.
    pub(super) fn json(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match self {
            Shown::One(zone) => write_pairs(zone, &mut out),
            Shown::All(zones) => {
                out.push(b'{');
                for (n, (name, zone)) in zones.iter().enumerate() {
                    if n > 0 {
                        out.push(b',');
                    }
                    write_text(&String::from_utf8_lossy(name), &mut out);
                    out.push(b':');
                    write_pairs(zone, &mut out);
                }
                out.push(b'}');
            }
        }
        out
    }
}

/// The zone is free in between: who looks something up in it or changes it waits for some of them at most. What is
/// there all the while is shown once.
fn write_pairs(zone: &Zone, out: &mut Vec<u8>) {
    let now_ms = clock::mono_ms();
    let (mut behind, mut is_first) = (None, true);
    out.push(b'{');
    loop {
        let put = |key: &[u8], entry: &Entry| {
            if !std::mem::replace(&mut is_first, false) {
                out.push(b',');
            }
            write_text(&String::from_utf8_lossy(key), out);
            out.push(b':');
            write_text(&String::from_utf8_lossy(&entry.value), out);
        };
        behind = zone.read().page(behind.as_deref(), now_ms, put);
        if behind.is_none() {
            break;
        }
    }
    out.push(b'}');
}

pub(super) fn find(gen: &Generation, block: Block, name: &str) -> Outcome<Arc<Zone>> {
    let name = name.strip_suffix('/').unwrap_or(name);
    let found = main(gen, block).and_then(|main| main.zone(name.as_bytes())).cloned();
    found.ok_or_else(|| Refusal::new(404, "KeyvalNotFound", "keyval not found"))
}

fn missing() -> Refusal {
    Refusal::new(404, "KeyvalKeyNotFound", "keyval key not found")
}

fn format(text: impl Into<Cow<'static, str>>) -> Refusal {
    Refusal::format("KeyvalFormatError", text)
}

/// The pair of a key.
pub(super) fn show(zone: &Zone, key: &[u8]) -> Outcome<Figure> {
    let store = zone.read();
    let value = store.get(key, clock::mono_ms()).ok_or_else(missing)?;
    let mut figures = Figures::default();
    figures.put(String::from_utf8_lossy(key).into_owned(), value);
    Ok(figures.into())
}

/// What is said of a key: its value, and for how long.
struct Said {
    value: Option<Vec<u8>>,
    expire_ms: Option<u64>,
    /// It is to go.
    is_null: bool,
}

fn said(zone: &Zone, version: u8, key: &str, input: Input) -> Outcome<Said> {
    let mut said = Said { value: None, expire_ms: None, is_null: input.is_null() };
    if said.is_null {
        return Ok(said);
    }
    if let Some(text) = input.text() {
        said.value = Some(text.into_bytes());
        return Ok(said);
    }
    let wanted = || {
        let more = match version >= EXPIRES_SINCE {
            true => ", or an object with \"value\", a string, and \"expire\", milliseconds",
            false => "",
        };
        format(std::format!("the value of \"{key}\" is to be a string{more}"))
    };
    let members = input.members().filter(|_| version >= EXPIRES_SINCE);
    for (name, input) in members.ok_or_else(wanted)? {
        match &*name {
            "value" => {
                let text = input.text().ok_or_else(wanted)?;
                said.value = Some(text.into_bytes());
            }
            "expire" if zone.timeout_ms.is_none() => {
                return Err(format("keyval timeout is not enabled"));
            }
            "expire" => said.expire_ms = Some(input.number().ok_or_else(wanted)?),
            _ => return Err(wanted()),
        }
    }
    Ok(said)
}

fn refused(fault: Fault) -> Refusal {
    match fault {
        Fault::Key => Refusal::format(
            "KeyvalFormatError",
            format!("invalid key format, or more than {TEXT_MAX_BYTES} bytes"),
        ),
        Fault::Exists => Refusal::new(409, "KeyvalKeyExists", "key already exists"),
        Fault::Missing => missing(),
        Fault::Full => Refusal::new(507, "KeyvalOutOfMemory", "the zone is full"),
    }
}

/// `POST`: one pair; several where there are none yet.
pub(super) fn add(zone: &Zone, version: u8, body: &[u8]) -> Outcome<()> {
    let members = input::object(body, |_| refused(Fault::Exists))?;
    let now_ms = clock::mono_ms();
    let mut entries = Vec::with_capacity(members.len());
    for (key, input) in members {
        let said = said(zone, version, &key, input)?;
        let none = || format(std::format!("the value of \"{key}\" is missing"));
        let value = said.value.ok_or_else(none)?;
        let until_ms = said.expire_ms.or(zone.timeout_ms).map(|ms| now_ms.saturating_add(ms));
        entries.push((key, Entry { value, until_ms }));
    }
    if entries.is_empty() {
        return Err(format("key required"));
    }
    let mut changing = zone.change();
    let store = changing.store();
    store.sweep(now_ms);
    if entries.len() > 1 && store.iter(now_ms).next().is_some() {
        return Err(format("only one key can be added"));
    }
    for (n, (key, entry)) in entries.iter().enumerate() {
        if let Err(fault) = store.add(key.as_bytes(), entry.clone(), now_ms) {
            // All of them or none.
            for (key, _) in &entries[..n] {
                let _ = store.change(key.as_bytes(), None, now_ms);
            }
            return Err(refused(fault));
        }
    }
    let notes = entries.iter().map(|(key, entry)| Note::Pair(key.as_bytes(), Some(entry)));
    changing.note(&notes.collect::<Vec<_>>());
    Ok(())
}

/// `PATCH`: another value for a key, another time, or (null) none any more.
pub(super) fn change(zone: &Zone, version: u8, body: &[u8]) -> Outcome<()> {
    let mut members = input::object(body, |_| refused(Fault::Exists))?;
    let (Some((key, input)), true) = (members.pop(), members.is_empty()) else {
        let text = if members.is_empty() { "key required" } else { "only one key can be updated" };
        return Err(format(text));
    };
    let said = said(zone, version, &key, input)?;
    let now_ms = clock::mono_ms();
    let mut changing = zone.change();
    let store = changing.store();
    let old = store.get(key.as_bytes(), now_ms).map(<[u8]>::to_vec).ok_or_else(missing)?;
    let entry = (!said.is_null).then(|| {
        let until_ms = said.expire_ms.or(zone.timeout_ms).map(|ms| now_ms.saturating_add(ms));
        Entry { value: said.value.unwrap_or(old), until_ms }
    });
    store.change(key.as_bytes(), entry.clone(), now_ms).map_err(refused)?;
    changing.note(&[Note::Pair(key.as_bytes(), entry.as_ref())]);
    Ok(())
}

/// `DELETE`: all of them go.
pub(super) fn clear(zone: &Zone) {
    let mut changing = zone.change();
    changing.store().clear();
    changing.note(&[Note::Clear]);
}
