//! `ship` blocks: what is said in them, by rows of all kinds of receivers and of some.

use crate::kinds::{self, KindOf, KINDS};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::PathBuf;
use weir_conf::suggest;
use weir_http::module::HttpModule;
use weir_module::{
    joined_rows, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    Val,
};

const SHIP: Context = Context::SHIP;
/// Letters, digits, `_`, `-` and `.`: a name is part of figures' names.
const NAME_MAX_BYTES: usize = 64;
const EVENTS: std::ops::RangeInclusive<u64> = 1..=100_000;
const BATCH_BYTES: std::ops::RangeInclusive<u64> = 1024..=64 * 1024 * 1024;

/// What every block may say.
const COMMON: &[&str] = &["to", "queue", "batch", "retry"];

/// A `ship` block.
pub struct Draft {
    pub name: String,
    /// The block as it stands, for messages.
    pub directive: Directive,
    /// `to`, once it is there.
    to: Option<(&'static KindOf, Directive)>,
    pub queue: Val<Queue>,
    pub batch: Val<Batching>,
    pub retry: Val<Retry>,
    settings: HashMap<TypeId, Box<dyn Any + Send + Sync>>,
}

/// `queue`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Queue {
    pub dir: PathBuf,
    pub bytes: u64,
}

/// `batch`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batching {
    pub events: usize,
    pub bytes: usize,
    pub linger_ms: u64,
}

impl Default for Batching {
    fn default() -> Batching {
        Batching { events: 5000, bytes: 4 * 1024 * 1024, linger_ms: 1000 }
    }
}

/// `retry`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Retry {
    pub first_ms: u64,
    pub most_ms: u64,
}

impl Default for Retry {
    fn default() -> Retry {
        Retry { first_ms: 500, most_ms: 30_000 }
    }
}

impl Draft {
    fn new(name: String, d: &Directive) -> Draft {
        Draft {
            name,
            directive: d.clone(),
            to: None,
            queue: Val::UNSET,
            batch: Val::UNSET,
            retry: Val::UNSET,
            settings: HashMap::new(),
        }
    }

    /// What rows of a kind of receivers have said, in a type of its own.
    pub fn settings<T: Any + Send + Sync + Default>(&mut self) -> &mut T {
        let kept = self.settings.entry(TypeId::of::<T>()).or_insert_with(|| Box::new(T::default()));
        kept.downcast_mut().expect("settings are kept by their type")
    }

    /// The same, if any has.
    pub fn said<T: Any>(&self) -> Option<&T> {
        self.settings.get(&TypeId::of::<T>())?.downcast_ref()
    }

    pub fn kind(&self) -> Option<&'static KindOf> {
        self.to.as_ref().map(|(kind, _)| *kind)
    }

    /// The directive `to`: its addresses are the arguments from 1. A block that has been checked has it.
    pub fn to(&self) -> &Directive {
        self.to.as_ref().map_or(&self.directive, |(_, d)| d)
    }
}

/// All blocks of a configuration.
#[derive(Default)]
pub struct Ships {
    pub all: Vec<Draft>,
    current: Option<Draft>,
}

impl ConfType for Ships {
    const LEVEL: Level = Level::Global;
    slot!();
}

/// The block that is being read; for setters of rows whose context is `ship`.
pub fn draft(cf: &mut Cf) -> &mut Draft {
    cf.get::<Ships>().current.as_mut().expect("rows of this context are met in a block alone")
}

const ROWS: &[Row] = &[
    Row::block(
        "ship",
        Context::MAIN,
        Arity::ONE,
        "A receiver of events, with a queue on disk.",
        set_ship,
    ),
    Row::new(
        "to",
        SHIP,
        Arity::TWO_MORE,
        "",
        "What kind of receiver it is, and its addresses.",
        set_to,
    ),
    Row::new(
        "queue",
        SHIP,
        Arity::ONE_TWO,
        "",
        "Folder of the queue, and its bound in bytes.",
        set_queue,
    ),
    Row::new(
        "batch",
        SHIP,
        Arity::ONE_TO_THREE,
        "events=5000 size=4m linger=1s",
        "How much is sent at once, and how long is waited for that much.",
        set_batch,
    ),
    Row::new(
        "retry",
        SHIP,
        Arity::ONE_TWO,
        "first=500ms most=30s",
        "How long is waited before another try, at first and at most.",
        set_retry,
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(
        ROWS,
        crate::common::ROWS,
        crate::line::tls::ROWS,
        crate::kafka::ROWS,
        crate::syslog::ROWS,
        crate::http::ROWS,
        crate::otlp::ROWS,
        crate::loki::ROWS
    ),
    ..HttpModule::EMPTY
};

fn set_ship(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.text(0)?.to_string();
    let is_good = |b: u8| b.is_ascii_alphanumeric() || b"_-.".contains(&b);
    if name.is_empty() || name.len() > NAME_MAX_BYTES || !name.bytes().all(is_good) {
        let text = format!("the name of a receiver has letters, digits, \"_\", \"-\" and \".\", at most {NAME_MAX_BYTES}");
        return Err(d.bad(0, text));
    }
    if cf.get::<Ships>().all.iter().any(|s| s.name == name) {
        return Err(d.bad(0, format!("duplicate receiver \"{name}\"")));
    }
    cf.get::<Ships>().current = Some(Draft::new(name, d));
    let walked = cf.walk(SHIP, d.children());
    let current = cf.get::<Ships>().current.take();
    walked?;
    let Some(mut draft) = current else { return Ok(()) };
    check(&mut draft)?;
    cf.get::<Ships>().all.push(draft);
    Ok(())
}

/// Whether the block is whole, and says nothing that its kind of receivers does not have.
fn check(draft: &mut Draft) -> ConfResult {
    let d = draft.directive.clone();
    let Some(kind) = draft.kind() else {
        return Err(d.fail("no \"to\" in this block: where do the events go?"));
    };
    for child in d.children() {
        let name = child.name();
        if !COMMON.contains(&name.as_str()) && !kind.takes.contains(&name.as_str()) {
            let mut e =
                child.fail(format!("\"{name}\" is not for receivers of kind \"{}\"", kind.name));
            let takers: Vec<&str> =
                KINDS.iter().filter(|k| k.takes.contains(&name.as_str())).map(|k| k.name).collect();
            e.hint = Some(format!("it is for {}", takers.join(", ")));
            return Err(e);
        }
    }
    if !draft.queue.is_set() {
        let mut e = d.fail("no \"queue\" in this block");
        e.hint = Some(format!("write \"queue /var/lib/weir/ship/{} size=1g;\"", draft.name));
        return Err(e);
    }
    (kind.check)(draft)
}

fn set_to(cf: &mut Cf, d: &Directive) -> ConfResult {
    let Some(kind) = kinds::find(d.arg(0)) else {
        let names: Vec<&str> = KINDS.iter().map(|k| k.name).collect();
        let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
        let mut e = d.bad(0, format!("there is no kind of receiver \"{shown}\""));
        e.hint = Some(match suggest(&shown, names.iter().copied()) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("it must be one of {}", names.join(", ")),
        });
        return Err(e);
    };
    let draft = draft(cf);
    if draft.to.is_some() {
        return Err(d.error("is duplicate"));
    }
    draft.to = Some((kind, d.clone()));
    Ok(())
}

fn set_queue(cf: &mut Cf, d: &Directive) -> ConfResult {
    let dir = cf.full_path(d.arg(0));
    let mut bytes = 1024 * 1024 * 1024;
    if d.args.len() > 1 {
        let value = d.keyed(1, "size").and_then(weir_base::units::parse_offset);
        bytes = value.ok_or_else(|| d.invalid(1))?;
    }
    draft(cf).queue.once(d, Queue { dir, bytes })
}

fn set_batch(cf: &mut Cf, d: &Directive) -> ConfResult {
    use weir_base::units::{parse_int, parse_msec, parse_size};
    let mut batch = Batching::default();
    for i in 0..d.args.len() {
        let within = |value: Option<u64>, range: std::ops::RangeInclusive<u64>| {
            value.filter(|v| range.contains(v)).ok_or_else(|| d.invalid(i))
        };
        if let Some(text) = d.keyed(i, "events") {
            batch.events = within(parse_int(text), EVENTS)? as usize;
        } else if let Some(text) = d.keyed(i, "size") {
            batch.bytes = within(parse_size(text), BATCH_BYTES)? as usize;
        } else if let Some(text) = d.keyed(i, "linger") {
            batch.linger_ms = within(parse_msec(text), 0..=60_000)?;
        } else {
            return Err(d.invalid(i));
        }
    }
    draft(cf).batch.once(d, batch)
}

fn set_retry(cf: &mut Cf, d: &Directive) -> ConfResult {
    use weir_base::units::parse_msec;
    let mut retry = Retry::default();
    for i in 0..d.args.len() {
        let value = |text| parse_msec(text).filter(|ms| *ms > 0).ok_or_else(|| d.invalid(i));
        if let Some(text) = d.keyed(i, "first") {
            retry.first_ms = value(text)?;
        } else if let Some(text) = d.keyed(i, "most") {
            retry.most_ms = value(text)?;
        } else {
            return Err(d.invalid(i));
        }
    }
    if retry.first_ms > retry.most_ms {
        return Err(d.fail("\"first\" is more than \"most\""));
    }
    draft(cf).retry.once(d, retry)
}
