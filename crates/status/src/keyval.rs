//! `keyval` and `keyval_zone` (NGINX Plus's `ngx_http_keyval_module` and `ngx_stream_keyval_module`): variables whose
//! values are looked up in pairs that the API puts and changes while the server runs.
//!
//! Workers share a zone, it lives on over a reload that does not change it, and over a serving process that is killed
//! (`left`), and with `state=` over restarts. It takes no more memory than its size, and what is noted for the next process
//! four times that.
//!
//! Differences from NGINX Plus: `sync` is refused; of several subnets or beginnings that fit, the longest counts.

mod file;
pub mod left;
mod store;

pub use file::file_goes_round;

pub(crate) use left::Note;

pub(crate) use store::{Entry, Fault, Store, TEXT_MAX_BYTES};

use std::collections::BTreeMap;
use std::io;
use std::marker::PhantomData;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::{Arc, PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};
use store::Kind;
use weir_core::eval::{guarded, with_value};
use weir_core::figures::{Figures, Report, Served};
use weir_core::generation::Generation;
use weir_core::registry::{define, template};
use weir_core::session::Part as _;
use weir_core::shared_file::{self, Kept, SharedFile};
use weir_core::variables::VarArg;
use weir_core::{state_places, zones, Session};
use weir_http::{HttpModule, Request};
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Directive, Level, Row, SlotVtable, Slots,
};
use weir_runtime::clock;
use weir_script::template::Template;
use weir_stream::StreamModule;

/// The directives in the block of sessions `S`.
struct Rows<S>(PhantomData<S>);

impl<S: Session> Rows<S> {
    const ROWS: &'static [Row] = &[
        Row::new(
            "keyval",
            S::BLOCK,
            Arity::THREE,
            "",
            "A variable whose value is looked up by a key, in pairs that the API changes.",
            set_keyval::<S>,
        )
        .note("NGINX Plus's."),
        Row::new(
            "keyval_zone",
            S::BLOCK,
            Arity::ONE_MORE,
            "",
            "Memory for pairs of keys and values: zone=NAME:SIZE state=FILE timeout=TIME type=string|ip|prefix.",
            set_zone::<S>,
        )
        .note(
            "NGINX Plus's. The api changes it. state= names a file that it is kept in, as JSON (a new one is its owner's alone to read): its directory is to be the \
             workers' user's; what another process writes there while one takes the other's place counts within 0.1 s, and what cannot be written (a full disk) is tried again until it can be. Of several subnets (type=ip) or beginnings (type=prefix) that fit, the longest counts. sync \
             is refused: machines are told of changes one by one.",
        ),
    ];
}

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<KeyvalMain>()];
const REPORTS: &[Report] = &[Report { path: "/slabs", put: report }];

/// Of `http`.
pub const MODULE: HttpModule = HttpModule {
    rows: Rows::<Request>::ROWS,
    slots: SLOTS,
    build: Some(|b| bind(b.main)),
    start: Some(|gen, http| begin(gen, &http.main)),
    reports: REPORTS,
    ..HttpModule::EMPTY
};

/// Of `stream`.
pub const STREAM: StreamModule = StreamModule {
    rows: Rows::<weir_stream::Session>::ROWS,
    slots: SLOTS,
    build: Some(|b| bind(b.main)),
    start: Some(|gen, stream| begin(gen, &stream.main)),
    reports: REPORTS,
    ..StreamModule::EMPTY
};

#[derive(Default)]
pub(crate) struct KeyvalMain {
    variables: Vec<Keyval>,
    zones: BTreeMap<Vec<u8>, Arc<Zone>>,
}

impl ConfType for KeyvalMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

impl KeyvalMain {
    pub(crate) fn zones(&self) -> impl Iterator<Item = (&[u8], &Arc<Zone>)> {
        self.zones.iter().map(|(name, zone)| (&name[..], zone))
    }

    pub(crate) fn zone(&self, name: &[u8]) -> Option<&Arc<Zone>> {
        self.zones.get(name)
    }
}

struct Keyval {
    key: Template,
    name: Vec<u8>,
    zone: Option<Arc<Zone>>,
}

/// The pairs of a zone, and how they are kept.
pub(crate) struct Zone {
    store: RwLock<Store>,
    /// What makes it the same as another.
    key: Vec<u8>,
    size: u64,
    pub timeout_ms: Option<u64>,
    file: Option<Arc<SharedFile>>,
}

impl Zone {
    pub(crate) fn read(&self) -> RwLockReadGuard<'_, Store> {
        self.store.read().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn change(&self) -> Changing<'_> {
        Changing { zone: self, store: Some(self.write()), then: left::Then::Nothing }
    }

    fn write(&self) -> RwLockWriteGuard<'_, Store> {
        self.store.write().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pairs of a zone that are changed.
pub(crate) struct Changing<'a> {
    zone: &'a Zone,
    store: Option<RwLockWriteGuard<'a, Store>>,
    then: left::Then,
}

impl Changing<'_> {
    pub(crate) fn store(&mut self) -> &mut Store {
        self.store.as_mut().expect("it is there until this is dropped")
    }

    /// What has been changed, before anybody is told.
    pub(crate) fn note(&mut self, notes: &[Note]) {
        if self.zone.file.is_none() {
            self.then = self.then.max(left::note(self.zone, notes));
        }
    }
}

impl Drop for Changing<'_> {
    fn drop(&mut self) {
        self.store = None;
        left::follow(self.then);
    }
}

impl Kept for Zone {
    fn file(&self) -> Option<Arc<SharedFile>> {
        self.file.clone()
    }

    fn take(&self, text: &[u8]) -> Result<(), String> {
        let mut fresh = self.read().empty();
        file::fill(&mut fresh, text, self.timeout_ms)?;
        *self.write() = fresh;
        Ok(())
    }

    fn text(&self) -> Vec<u8> {
        file::text(&self.read())
    }
}

/// What a `keyval_zone` says.
struct Said {
    name: Vec<u8>,
    size: u64,
    kind: Kind,
    timeout_ms: Option<u64>,
    state: Option<PathBuf>,
}

fn read_zone(cf: &Cf, d: &Directive) -> ConfResult<Said> {
    let Some((name, size)) = zones::name_and_size(d, 0)? else {
        let e = d.bad(0, format!("invalid parameter \"{}\"", String::from_utf8_lossy(d.arg(0))));
        return Err(e.hint("write zone=NAME:SIZE first".to_string()));
    };
    if name.is_empty() {
        return Err(d.bad(0, "a zone needs a name"));
    }
    let mut said = Said { name, size, kind: Kind::Text, timeout_ms: None, state: None };
    for i in 1..d.args.len() {
        let bad =
            || d.bad(i, format!("invalid parameter \"{}\"", String::from_utf8_lossy(d.arg(i))));
        if let Some(path) = d.keyed(i, "state").filter(|path| !path.is_empty()) {
            said.state = Some(cf.full_path(path));
        } else if let Some(time) = d.keyed(i, "timeout") {
            let ms = weir_base::units::parse_msec(time).filter(|ms| *ms > 0);
            said.timeout_ms = Some(ms.ok_or_else(bad)?);
        } else if let Some(kind) = d.keyed(i, "type") {
            said.kind = match kind {
                b"string" => Kind::Text,
                b"ip" => Kind::Ip,
                b"prefix" => Kind::Prefix,
                _ => {
                    let hint = "write type=string, type=ip or type=prefix";
                    return Err(bad().hint(hint.to_string()));
                }
            };
        } else if d.arg(i) == b"sync" {
            let hint = "remove it, and tell each machine of changes by its own api";
            return Err(d
                .bad(i, "zones of several machines are not synchronized")
                .hint(hint.to_string()));
        } else {
            return Err(bad());
        }
    }
    Ok(said)
}

fn set_zone<S: Session>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let said = read_zone(cf, d)?;
    let kind = match (S::BLOCK == Request::BLOCK, said.kind) {
        (true, Kind::Text) => "keyval",
        (true, Kind::Ip) => "keyval ip",
        (true, Kind::Prefix) => "keyval prefix",
        (false, Kind::Text) => "stream keyval",
        (false, Kind::Ip) => "stream keyval ip",
        (false, Kind::Prefix) => "stream keyval prefix",
    };
    zones::declare(cf, d, 0, &said.name, kind, said.size)?;
    if cf.get::<KeyvalMain>().zones.contains_key(&said.name) {
        return Err(d.bad(0, "the zone is declared already"));
    }
    let mut store = Store::new(said.kind, said.size);
    if let Some(path) = &said.state {
        state_places::declare(cf, d.position(), path)?;
        let wrong = |text: String| d.fail(format!("state file \"{}\": {text}", path.display()));
        match cf.read_state(path) {
            Ok(text) => file::fill(&mut store, &text, said.timeout_ms).map_err(wrong)?,
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(wrong(weir_core::os_text(&e))),
        }
    }
    // Another file, or another time, is another zone.
    let mut name = said.name.clone();
    name.extend_from_slice(format!(" {:?} {:?}", said.state, said.timeout_ms).as_bytes());
    let make = || Zone {
        store: RwLock::new(store),
        key: [kind.as_bytes(), b" ", &name, format!(" {}", said.size).as_bytes()].concat(),
        size: said.size,
        timeout_ms: said.timeout_ms,
        file: said.state.clone().map(|path| SharedFile::new(path, file::MAX_BYTES)),
    };
    let zone = zones::attach(kind, &name, said.size, |_: &Zone| Ok(()), make)?;
    cf.get::<KeyvalMain>().zones.insert(said.name, zone);
    Ok(())
}

fn set_keyval<S: Session>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let key = template::<S>(cf, d, 0)?;
    let Some(name) = d.keyed(2, "zone").filter(|name| !name.is_empty()).map(<[u8]>::to_vec) else {
        let e = d.bad(2, format!("invalid parameter \"{}\"", String::from_utf8_lossy(d.arg(2))));
        return Err(e.hint("write zone=NAME".to_string()));
    };
    let variables = &mut cf.get::<KeyvalMain>().variables;
    let number = variables.len();
    variables.push(Keyval { key, name, zone: None });
    define::<S>(cf, d, 1, value, number, false).map(|_| ())
}

/// Zones may stand behind the variables that are looked up in them.
fn bind(main: &mut Slots) -> ConfResult {
    let main = main.get_mut::<KeyvalMain>();
    for keyval in &mut main.variables {
        let zone = main.zones.get(&keyval.name);
        keyval.zone = Some(Arc::clone(zone.ok_or_else(|| zones::undeclared(&keyval.name))?));
    }
    Ok(())
}

/// A process that serves reads the file itself: what the configuration was read with may be older than that.
fn begin(gen: &Arc<Generation>, main: &Slots) {
    let (kept, left): (Vec<_>, Vec<_>) =
        main.get::<KeyvalMain>().zones.values().partition(|zone| zone.file.is_some());
    left.into_iter().for_each(left::begin);
    for zone in kept {
        let zone: Arc<dyn Kept> = Arc::clone(zone) as _;
        shared_file::follow(&zone, &gen.error_log);
    }
}

fn value<S: Session>(s: &mut S, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let conf = Rc::clone(s.part());
    let keyval = &conf.main().get::<KeyvalMain>().variables[arg.data];
    let Some(zone) = &keyval.zone else { return false };
    guarded(s, &arg.name, |s| {
        with_value(s, &keyval.key, |_, key| {
            let store = zone.read();
            let found = store.find(key, clock::mono_ms());
            found.inspect(|value| out.extend_from_slice(value)).is_some()
        })
    })
}

/// In pages, as NGINX Plus shows zones.
fn report(_: &Served, main: &Slots, figures: &mut Figures) {
    for (name, zone) in &main.get::<KeyvalMain>().zones {
        zone.read().chunks().put(zone.size, figures.entry(name));
    }
}
