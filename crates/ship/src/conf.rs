//! `ship` blocks: what is said in them, by rows of all kinds of receivers and of some.

use crate::kinds::{self, KindOf, KINDS};
use std::any::{Any, TypeId};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use weir_conf::suggest;
use weir_core::figures::Report;
use weir_core::logger::LogLevel;
use weir_http::module::{HttpModule, Phase, PhaseHandler};
use weir_module::{
    joined_rows, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Mode,
    Row, SlotVtable, Val,
};
use weir_runtime::trusted;
use weir_shipping::ecs::Tail;

use crate::places::{self, ShipLoc};
use crate::running::Plan;
use crate::secrets::Secrets;

const SHIP: Context = Context::SHIP;
/// Letters, digits, `_`, `-` and `.`: a name is part of figures' names.
const NAME_MAX_BYTES: usize = 64;
const EVENTS: std::ops::RangeInclusive<u64> = 1..=100_000;
const BATCH_BYTES: std::ops::RangeInclusive<u64> = 1024..=64 * 1024 * 1024;

/// What every block may say.
const COMMON: &[&str] = &["to", "queue", "batch", "retry", "namespace"];
const NAMESPACE_MAX_BYTES: usize = 100;
/// How often figures may be shipped.
const EVERY_MS: std::ops::RangeInclusive<u64> = 100..=86_400_000;

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
    namespace: Val<String>,
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
            namespace: Val::UNSET,
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

    /// `data_stream.namespace` of all events.
    pub fn namespace(&self) -> &str {
        self.namespace.as_option().map_or("default", String::as_str)
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
    /// `ship_errors` and `ship_metrics`: names as they stand, a level each, a time each.
    pub errors: Vec<(Directive, LogLevel)>,
    pub metrics: Vec<(Directive, u64)>,
    /// What was made of all that.
    pub built: Built,
}

/// What a configuration's receivers are, when it is built.
#[derive(Default)]
pub struct Built {
    pub plans: Vec<Arc<Plan>>,
    pub errors: Vec<(Arc<Plan>, LogLevel)>,
    pub metrics: Vec<(Arc<Plan>, u64)>,
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
    )
    .note(
        "elasticsearch, opensearch and loki have http://HOST:PORT or https://HOST:PORT, with a path where the receiver stands behind \
         one; otlp the same (/v1/logs and /v1/metrics follow) or grpc://HOST (port 4317) or grpcs://HOST; kafka has brokers, HOST, \
         tcp://HOST (port 9092) or tls://HOST; syslog has HOST, udp://HOST or tcp://HOST (port 514) or tls://HOST (port 6514); file \
         has a path, to which lines of JSON are appended. One kind in a block, several addresses of it (but of file): the next is \
         taken when one fails. What events have is in docs/events.md.",
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
    Row::new(
        "namespace",
        SHIP,
        Arity::ONE,
        "default",
        "The last part of the names of data streams, and a field of all events.",
        set_namespace,
    ),
];

const MAIN: &[Row] = &[
    Row::new(
        "ship_errors",
        Context::MAIN,
        Arity::ONE_TWO,
        "",
        "A receiver of error log lines, and the least grave level that goes there (error).",
        set_errors,
    )
    .note("Lines of all error logs of the serving process, also where a place's own error_log has a graver level."),
    Row::new(
        "ship_metrics",
        Context::MAIN,
        Arity::ONE_TWO,
        "",
        "A receiver of the figures that api shows, and how often it gets them (every=10s).",
        set_metrics,
    )
    .note(
        "every= is 100ms to 1d. Sent are the figures themselves, as they stand then: what is counted, since it began to be, and not what has \
         come since the last time. Receivers but those of OTLP get them in the words and units of the api (bytes, milliseconds): a document for each \
         thing that has a name (a server, an upstream, a cache, ...), 10,000 at most, and one for the rest. Those of OTLP get metrics in the \
         names of \"metrics\" without \"_total\", in bytes and seconds: cumulative sums and histograms, and gauges.",
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(
        crate::places::HTTP,
        MAIN,
        ROWS,
        crate::common::ROWS,
        crate::line::tls::ROWS,
        crate::http::ROWS,
        crate::elastic::ROWS,
        crate::kafka::ROWS,
        crate::syslog::ROWS,
        crate::otlp::ROWS,
        crate::loki::ROWS
    ),
    slots: &[SlotVtable::of::<ShipLoc>()],
    phases: &[PhaseHandler {
        phase: Phase::Log,
        handler: crate::access::handler,
        active: places::active,
    }],
    build: Some(|b| {
        let cf = &mut *b.cf;
        places::build(cf, [std::slice::from_ref(b.outer), b.locations])
    }),
    reports: &[Report { path: "/ship", put: crate::counts::put_all }],
    ..HttpModule::EMPTY
};

fn set_errors(cf: &mut Cf, d: &Directive) -> ConfResult {
    let level = match d.args.len() {
        1 => LogLevel::Error,
        _ => d.choice(1, &LogLevel::NAMES)?,
    };
    cf.get::<Ships>().errors.push((d.clone(), level));
    Ok(())
}

fn set_metrics(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut every_ms = 10_000;
    if d.args.len() > 1 {
        let ms = d.keyed(1, "every").and_then(weir_base::units::parse_msec);
        every_ms = ms.filter(|ms| EVERY_MS.contains(ms)).ok_or_else(|| d.invalid(1))?;
    }
    cf.get::<Ships>().metrics.push((d.clone(), every_ms));
    Ok(())
}

/// After the configuration is read: files, names, folders. To be called before the protocols' blocks are built.
///
/// # Errors
///
/// A file cannot be read, a folder not be made, or a name is nobody's.
pub fn build(cf: &mut Cf) -> ConfResult {
    let ships = std::mem::take(cf.get::<Ships>());
    let host = weir_runtime::process::hostname();
    let mut built = Built::default();
    for draft in &ships.all {
        built.plans.push(Arc::new(plan(cf, draft, &host)?));
    }
    for (d, level) in &ships.errors {
        built.errors.push((find(&built.plans, d)?, *level));
    }
    for (d, every_ms) in &ships.metrics {
        built.metrics.push((find(&built.plans, d)?, *every_ms));
    }
    *cf.get::<Ships>() = Ships { built, ..ships };
    Ok(())
}

fn plan(cf: &mut Cf, draft: &Draft, host: &str) -> ConfResult<Plan> {
    let d = &draft.directive;
    let kind = draft.kind().ok_or_else(|| d.fail("no \"to\" in this block"))?;
    let target = (kind.build)(cf, draft)?;
    // Kinds that are not reached by HTTP have a password at most.
    let secrets = Secrets::of_fields(&crate::http::fields(cf, draft, "Bearer ")?);
    let queue = (*draft.queue).clone();
    if cf.mode == Mode::Serve {
        trusted::make_dir(&queue.dir, true).map_err(|e| {
            let why = weir_core::os_text(&e);
            d.fail(format!("mkdir() \"{}\" failed ({why})", queue.dir.display()))
        })?;
    }
    let tail = |stream, dataset| Tail::new(stream, dataset, draft.namespace(), host);
    Ok(Plan {
        name: draft.name.as_str().into(),
        kind: kind.name,
        queue,
        batch: draft.batch.as_option().cloned().unwrap_or_default(),
        retry: draft.retry.as_option().cloned().unwrap_or_default(),
        target,
        secrets,
        access_tail: tail("logs", "nginx.access"),
        session_tail: tail("logs", "nginx.session"),
        error_tail: tail("logs", "nginx.error"),
        metric_tail: tail("metrics", "nginx.metrics"),
        running: OnceLock::new(),
    })
}

pub fn find(plans: &[Arc<Plan>], d: &Directive) -> ConfResult<Arc<Plan>> {
    let name = String::from_utf8_lossy(d.arg(0)).into_owned();
    let found = plans.iter().find(|plan| *plan.name == *name);
    found.cloned().ok_or_else(|| {
        let mut e = d.bad(0, format!("there is no receiver \"{name}\""));
        let names = plans.iter().map(|plan| &*plan.name);
        e.hint = Some(match suggest(&name, names) {
            Some(near) => format!("did you mean \"{near}\"?"),
            None => format!("write a block \"ship {name} {{ … }}\" in the main context"),
        });
        e
    })
}

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

fn set_namespace(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.text(0)?.to_owned();
    let is_good = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b"_.".contains(&b);
    if name.is_empty() || name.len() > NAMESPACE_MAX_BYTES || !name.bytes().all(is_good) {
        let text = format!(
            "a namespace has small letters, digits, \"_\" and \".\", at most {NAMESPACE_MAX_BYTES}"
        );
        return Err(d.bad(0, text));
    }
    draft(cf).namespace.once(d, name)
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
    if bytes < crate::queue::MIN_BYTES {
        return Err(d.bad(1, "a queue has 1m at least"));
    }
    if cf.get::<Ships>().all.iter().any(|s| s.queue.as_option().is_some_and(|q| q.dir == dir)) {
        return Err(d.bad(0, "another receiver's queue is in this folder"));
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
