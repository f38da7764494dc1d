//! `map` (nginx's `ngx_http_map_module` and `ngx_stream_map_module`): a variable whose value is looked up by another's.
//!
//! Difference from nginx: the table sizes itself, so `map_hash_max_size` and
//! `map_hash_bucket_size` have nothing to do.

use crate::util::set_size;
use std::marker::PhantomData;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::eval::{guarded, with_value};
use weir_core::registry::{define, named_regex, template, template_of, NamedRegex};
use weir_core::session::Part;
use weir_core::unknown::regex_match_or_guess;
use weir_core::variables::VarArg;
use weir_core::Session;
use weir_http::{HttpModule, Request};
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Directive, Level, Row, SlotVtable,
};
use weir_script::lookup::{HostMap, InsertError};
use weir_script::template::Template;
use weir_stream::StreamModule;

#[derive(Default)]
struct MapMain {
    maps: Vec<Arc<Map>>,
}

impl ConfType for MapMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// One `map` block.
struct Map {
    source: Template,
    hostnames: bool,
    names: HostMap<Template>,
    /// In the order they were written; asked when no name matches.
    regexes: Vec<(NamedRegex, Template)>,
    default: Option<Template>,
}

const SIZES: &str = "The table sizes itself: the number is checked and not needed.";

/// The directives in the block of sessions `S`.
struct Rows<S>(PhantomData<S>);

impl<S: Session> Rows<S> {
    const ROWS: &'static [Row] = &[
        Row::block(
            "map",
            S::BLOCK,
            Arity::TWO,
            "A variable whose value depends on other variables.",
            set_map::<S>,
        )
        .note(
            "A match that is given up at a limit ends the request with 500; nginx takes the default. So \
             does Weir where the header has left (bodies, trailers, logs, post_action), except that an \
             SSI command then fails (an \"if\" takes no branch) and access_log's if= writes the line.",
        ),
        Row::new("map_hash_max_size", S::BLOCK, Arity::ONE, "2048", "The table's size.", set_size).once()
            .note(SIZES),
        Row::new("map_hash_bucket_size", S::BLOCK, Arity::ONE, "64", "A bucket's size.", set_size).once()
            .note(SIZES),
    ];
}

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<MapMain>()];

pub const MODULE: HttpModule =
    HttpModule { rows: Rows::<Request>::ROWS, slots: SLOTS, ..HttpModule::EMPTY };

pub const STREAM: StreamModule =
    StreamModule { rows: Rows::<weir_stream::Session>::ROWS, slots: SLOTS, ..StreamModule::EMPTY };

fn set_map<S: Session>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let source = template::<S>(cf, d, 0)?;
    let mut map =
        Map { source, hostnames: false, names: HostMap::new(), regexes: Vec::new(), default: None };
    let mut volatile = false;
    for entry in d.children() {
        read_entry::<S>(cf, &mut map, &mut volatile, entry)?;
    }
    let maps = &mut cf.get::<MapMain>().maps;
    let number = maps.len();
    maps.push(Arc::new(map));
    define::<S>(cf, d, 1, value, number, !volatile).map(|_| ())
}

fn read_entry<S: Session>(
    cf: &mut Cf,
    map: &mut Map,
    volatile: &mut bool,
    entry: &Directive,
) -> ConfResult {
    let key = entry.name.as_bytes();
    if entry.is_block() {
        return Err(entry.fail("unexpected \"{\""));
    }
    match (key, entry.args.len()) {
        (b"hostnames", 0) => {
            map.hostnames = true;
            return Ok(());
        }
        (b"volatile", 0) => {
            *volatile = true;
            return Ok(());
        }
        (_, 1) => {}
        _ => return Err(entry.fail("invalid number of the map parameters")),
    }
    let value = template_of::<S>(cf, entry, 0, entry.arg(0))?;
    if key == b"default" {
        if map.default.replace(value).is_some() {
            return Err(entry.fail("duplicate default map parameter"));
        }
        return Ok(());
    }
    if let Some(pattern) = key.strip_prefix(b"~") {
        let (pattern, caseless) = match pattern.strip_prefix(b"*") {
            Some(rest) => (rest, true),
            None => (pattern, false),
        };
        // The pattern is the directive's name, so an error points there.
        let regex = named_regex::<S>(cf, entry, usize::MAX, pattern, caseless)?;
        map.regexes.push((regex, value));
        return Ok(());
    }
    let key = key.strip_prefix(b"\\").unwrap_or(key);
    let inserted = match map.hostnames {
        true => map.names.insert(key, value),
        false => map.names.insert_exact(key, value),
    };
    let shown = String::from_utf8_lossy(key);
    inserted.map_err(|e| match e {
        InsertError::Invalid => entry.fail(format!("invalid hostname or wildcard \"{shown}\"")),
        InsertError::Conflict(_) => entry.fail(format!("conflicting parameter \"{shown}\"")),
    })
}

fn value<S: Session>(s: &mut S, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let part = Rc::clone(s.part());
    let map = &part.main().get::<MapMain>().maps[arg.data];
    guarded(s, &arg.name, |s| {
        let found = with_value(s, &map.source, |s, text| find(s, map, text));
        if let Some(value) = found {
            s.eval_into(value, out);
        }
        true
    })
}

fn find<'m, S: Session>(s: &mut S, map: &'m Map, text: &[u8]) -> Option<&'m Template> {
    let text = match text.strip_suffix(b".") {
        Some(host) if map.hostnames => host,
        _ => text,
    };
    if let Some(value) = map.names.get(text) {
        return Some(value);
    }
    if !text.is_empty() {
        for ((regex, vars), value) in &map.regexes {
            match regex_match_or_guess(s, regex, vars, text) {
                Ok(true) => return Some(value),
                Ok(false) => {}
                Err(_) if s.is_answered() => break,
                Err(_) => return None,
            }
        }
    }
    map.default.as_ref()
}
