//! `limit_conn` (nginx's `ngx_http_limit_conn_module` and `ngx_stream_limit_conn_module`): how many
//! requests, or sessions, of one key may be in progress at once.
//!
//! As there, a reload that gives a zone another key and not another name or size is refused.

use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use weir_core::Session;

use crate::limits::{
    already_bound, dry_run_row, log_level_row, same_key, status_row, too_long, Outcomes, Refusal,
    Refuses,
};
use weir_base::units;
use weir_core::counts::Near;
use weir_core::eval::with_value;
use weir_core::figures::{Figures, Report, Served};
use weir_core::registry::template;
use weir_core::variables::{VarArg, Variable};
use weir_core::zones;
use weir_http::build::Build;
use weir_http::marks::Mark;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::Request;
use weir_module::{
    distinct, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Directive, Level, Row, SlotVtable,
    Slots,
};
use weir_script::template::Template;
use weir_stream::{self as stream, StreamModule};

const KEY_MAX_BYTES: usize = 255;
/// nginx's tree node without the key.
const NODE_BYTES: usize = 36;
const SHARDS: usize = 16;

/// What the workers share.
struct Zone {
    key: Vec<u8>,
    size: u64,
    used: AtomicU64,
    outcomes: Near<Outcomes>,
    hasher: RandomState,
    shards: [Mutex<HashMap<Box<[u8]>, u32>>; SHARDS],
}

enum Entered {
    Yes,
    TooMany,
    Full,
}

impl Zone {
    fn new(kind: &'static str, name: &[u8], key: &[u8], size: u64) -> Zone {
        Zone {
            key: key.to_vec(),
            size: zones::usable_bytes(size),
            used: AtomicU64::new(0),
            outcomes: Near::named(kind, name),
            hasher: RandomState::new(),
            shards: Default::default(),
        }
    }

    fn shard(&self, key: &[u8]) -> &Mutex<HashMap<Box<[u8]>, u32>> {
        &self.shards[self.hasher.hash_one(key) as usize % SHARDS]
    }

    fn enter(&self, key: &[u8], max: u32) -> Entered {
        let mut shard = self.shard(key).lock().unwrap_or_else(|e| e.into_inner());
        if let Some(count) = shard.get_mut(key) {
            if *count >= max {
                return Entered::TooMany;
            }
            *count += 1;
            return Entered::Yes;
        }
        let bytes = zones::chunk_bytes(NODE_BYTES + key.len());
        if self.used.fetch_add(bytes, Ordering::Relaxed) + bytes > self.size {
            self.used.fetch_sub(bytes, Ordering::Relaxed);
            return Entered::Full;
        }
        shard.insert(key.into(), 1);
        Entered::Yes
    }

    fn leave(&self, key: &[u8]) {
        let mut shard = self.shard(key).lock().unwrap_or_else(|e| e.into_inner());
        let Some(count) = shard.get_mut(key) else { return };
        *count -= 1;
        if *count == 0 {
            shard.remove(key);
            self.used.fetch_sub(zones::chunk_bytes(NODE_BYTES + key.len()), Ordering::Relaxed);
        }
    }
}

/// One session's place in one zone, given back when the session is over.
struct Held {
    zone: Arc<Zone>,
    key: Box<[u8]>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.zone.leave(&self.key);
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Passed,
    Rejected,
    RejectedDryRun,
}

/// Kept with the session until it is over, of a request through internal redirects.
struct Kept {
    status: Status,
    _held: Vec<Held>,
}

/// `limit_conn_zone`
struct ZoneConf {
    name: Vec<u8>,
    size: u64,
    key: Arc<Template>,
    zone: Option<Arc<Zone>>,
}

#[derive(Default)]
struct LimitConnMain {
    zones: Vec<ZoneConf>,
    by_name: HashMap<Vec<u8>, usize>,
}

impl LimitConnMain {
    fn zone(&self, name: &[u8]) -> Option<&ZoneConf> {
        self.by_name.get(name).map(|at| &self.zones[*at])
    }
}

impl ConfType for LimitConnMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

#[derive(Clone)]
struct Limit {
    name: Vec<u8>,
    max: u32,
    /// Both are there after the build.
    bound: OnceLock<(Arc<Zone>, Arc<Template>)>,
}

#[derive(Default)]
struct LimitConnLoc {
    limits: Option<Vec<Limit>>,
    refusal: Refusal,
}

impl ConfType for LimitConnLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &LimitConnLoc) -> ConfResult {
        if self.limits.is_none() {
            self.limits.clone_from(&parent.limits);
        }
        self.refusal.merge(&parent.refusal);
        Ok(())
    }
}

impl Refuses for LimitConnLoc {
    fn refusal(&mut self) -> &mut Refusal {
        &mut self.refusal
    }
}

/// What is limited.
trait Limited: Session {
    /// nginx's zones are one protocol's alone.
    const KIND: &'static str;

    /// It is a part of a request, or has been sent elsewhere since it was counted.
    fn is_counted(&mut self) -> bool;
    fn set_counted(&mut self) {}
}

/// It holds for a request and its parts, and has been applied.
static APPLIED: Mark = Mark::for_parts();

impl Limited for Request {
    const KIND: &'static str = "limit_conn";

    fn is_counted(&mut self) -> bool {
        self.kept::<Kept>().is_some() || self.has_mark(&APPLIED)
    }

    fn set_counted(&mut self) {
        self.mark(&APPLIED);
    }
}

impl Limited for weir_stream::Session {
    const KIND: &'static str = "limit_conn of stream";

    fn is_counted(&mut self) -> bool {
        false
    }
}

/// The directives in the block of sessions `S`.
struct Rows<S>(PhantomData<S>);

impl<S: Limited> Rows<S> {
    const ZONE: Row = Row::new(
        "limit_conn_zone",
        S::BLOCK,
        Arity::TWO,
        "",
        "A zone that counts the requests, or sessions, in progress by a key.",
        set_zone::<S>,
    );
    const LIMIT: Row = Row::new(
        "limit_conn",
        S::LEVELS,
        Arity::TWO,
        "",
        "How many requests, or sessions, of one key may be in progress.",
        set_limit::<S>,
    );
    const LOG_LEVEL: Row = log_level_row::<S, LimitConnLoc>(
        "limit_conn_log_level",
        "The level at which refusals are logged.",
    );
    const DRY_RUN: Row = dry_run_row::<S, LimitConnLoc>(
        "limit_conn_dry_run",
        "Counts and logs, and refuses nothing.",
    );
    const VARIABLES: &'static [Variable<S>] = &[Variable::new("limit_conn_status", status::<S>)];
}

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<LimitConnMain>(), SlotVtable::of::<LimitConnLoc>()];

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Rows::<Request>::ZONE,
        Rows::<Request>::LIMIT,
        Rows::<Request>::LOG_LEVEL,
        status_row::<Request, LimitConnLoc>("limit_conn_status"),
        Rows::<Request>::DRY_RUN,
    ],
    slots: SLOTS,
    variables: Rows::<Request>::VARIABLES,
    phases: &[PhaseHandler { phase: Phase::Preaccess, handler, active }],
    build: Some(|b: &mut Build| bind::<Request>(b.main, b.locations)),
    reports: REPORTS,
    ..HttpModule::EMPTY
};

type InStream = Rows<weir_stream::Session>;

pub const STREAM: StreamModule = StreamModule {
    rows: &[InStream::ZONE, InStream::LIMIT, InStream::LOG_LEVEL, InStream::DRY_RUN],
    slots: SLOTS,
    variables: InStream::VARIABLES,
    phases: &[stream::PhaseHandler {
        phase: stream::Phase::Preaccess,
        handler: stream_handler,
        active,
    }],
    build: Some(|b| bind::<weir_stream::Session>(b.main, b.servers)),
    reports: REPORTS,
    ..StreamModule::EMPTY
};

fn set_zone<S: Limited>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let key = Arc::new(template::<S>(cf, d, 0)?);
    let Some((name, size)) = zones::name_and_size(d, 1)? else {
        let shown = String::from_utf8_lossy(d.arg(1)).into_owned();
        return Err(d.bad(1, format!("invalid parameter \"{shown}\"")));
    };
    if name.is_empty() {
        return Err(d.fail("\"limit_conn_zone\" must have \"zone\" parameter"));
    }
    zones::declare(cf, d, 1, &name, S::KIND, size)?;
    let main = cf.get::<LimitConnMain>();
    if let Some(known) = main.zone(&name) {
        return Err(already_bound(d, &name, &known.key));
    }
    main.by_name.insert(name.clone(), main.zones.len());
    main.zones.push(ZoneConf { name, size, key, zone: None });
    Ok(())
}

fn set_limit<S: Limited>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.arg(0).to_vec();
    zones::declare(cf, d, 0, &name, S::KIND, 0)?;
    let limits = cf.get::<LimitConnLoc>().limits.get_or_insert_with(Vec::new);
    if limits.iter().any(|l| l.name == name) {
        return Err(d.error("is duplicate"));
    }
    let shown = String::from_utf8_lossy(d.arg(1));
    let max = match units::parse_int(d.arg(1)) {
        None | Some(0) => {
            return Err(d.bad(1, format!("invalid number of connections \"{shown}\"")));
        }
        Some(n) if n > 65_535 => {
            return Err(d.bad(1, "connection limit must be less 65536"));
        }
        Some(n) => n as u32,
    };
    limits.push(Limit { name, max, bound: OnceLock::new() });
    Ok(())
}

/// Makes the zones and gives each place those that it names.
const REPORTS: &[Report] =
    &[Report { path: "limit_conns", put: report }, Report { path: "/slabs", put: report_pages }];

/// In the order of [`Status`].
const OUTCOMES: &[&str] = &["passed", "rejected", "rejected_dry_run", "skipped", "exhausted"];
/// What has no key, or one that is too long.
const SKIPPED: usize = 3;
/// What is refused for want of room, and is rejected too.
const EXHAUSTED: usize = 4;

fn report(_: &Served, main: &Slots, figures: &mut Figures) {
    for z in &main.get::<LimitConnMain>().zones {
        let used = z.zone.as_ref().map_or(0, |zone| zone.used.load(Ordering::Relaxed));
        let figures = figures.entry(&z.name);
        if let Some(zone) = &z.zone {
            Outcomes::put(&zone.outcomes, OUTCOMES, figures);
        }
        figures.put_all(&[("size_bytes", z.size), ("used_bytes", used)]);
    }
}

fn report_pages(_: &Served, main: &Slots, figures: &mut Figures) {
    for z in &main.get::<LimitConnMain>().zones {
        let used = z.zone.as_ref().map_or(0, |zone| zone.used.load(Ordering::Relaxed));
        zones::put_pages(&z.name, z.size, used, figures);
    }
}

fn bind<S: Limited>(main: &mut Slots, places: &[Slots]) -> ConfResult {
    let main = main.get_mut::<LimitConnMain>();
    for z in &mut main.zones {
        let (name, key) = (&z.name, z.key.source());
        let check = |zone: &Zone| same_key("limit_conn_zone", name, key, &zone.key);
        z.zone = Some(zones::attach(S::KIND, name, z.size, check, || {
            Zone::new(S::KIND, name, key, z.size)
        })?);
    }
    for conf in distinct::<LimitConnLoc>(places) {
        for limit in conf.limits.iter().flatten() {
            let found = main.zone(&limit.name);
            let zone = found.and_then(|z| Some((z.zone.clone()?, Arc::clone(&z.key))));
            let bound = zone.ok_or_else(|| zones::undeclared(&limit.name))?;
            // Only this function sets it.
            let _ = limit.bound.set(bound);
        }
    }
    Ok(())
}

fn active(slots: &Slots) -> bool {
    slots.get::<LimitConnLoc>().limits.is_some()
}

fn handler(r: &mut Request) -> Flow {
    if r.is_counted() {
        return Flow::Declined;
    }
    r.with_conf::<LimitConnLoc, _>(|r, conf| match is_refused(r, conf) {
        true => Flow::Status(*conf.refusal.status),
        false => Flow::Declined,
    })
}

fn stream_handler(s: &mut weir_stream::Session) -> stream::Flow {
    s.with_conf::<LimitConnLoc, _>(|s, conf| match is_refused(s, conf) {
        true => stream::Flow::Status(weir_stream::UNAVAILABLE),
        false => stream::Flow::Declined,
    })
}

/// Takes its place in every zone; without one in each the session is refused, and has none.
fn is_refused<S: Limited>(s: &mut S, conf: &LimitConnLoc) -> bool {
    let mut held = Vec::new();
    for limit in conf.limits.iter().flatten() {
        let Some((zone, key)) = limit.bound.get() else { continue };
        let entered = with_value(s, key, |s, value| {
            if value.is_empty() {
                return None;
            }
            if value.len() > KEY_MAX_BYTES {
                too_long(s, key, value, KEY_MAX_BYTES);
                return None;
            }
            let entered = zone.enter(value, limit.max);
            if matches!(entered, Entered::Yes) {
                held.push(Held { zone: Arc::clone(zone), key: value.into() });
            }
            Some(entered)
        });
        match entered {
            None => Outcomes::count(&zone.outcomes, &s.conn().worker, SKIPPED),
            Some(Entered::Yes) => {}
            Some(refused) => {
                match refused {
                    Entered::TooMany => log_refusal(s, conf, limit),
                    _ => Outcomes::count(&zone.outcomes, &s.conn().worker, EXHAUSTED),
                }
                drop(held);
                let status = match *conf.refusal.dry_run {
                    true => Status::RejectedDryRun,
                    false => Status::Rejected,
                };
                Outcomes::count(&zone.outcomes, &s.conn().worker, status as usize);
                return refuse(s, conf);
            }
        }
    }
    if !held.is_empty() {
        for h in &held {
            Outcomes::count(&h.zone.outcomes, &s.conn().worker, Status::Passed as usize);
        }
        keep(s, Status::Passed, held);
    }
    false
}

fn keep<S: Limited>(s: &mut S, status: Status, held: Vec<Held>) {
    s.set_counted();
    s.keep_state(Kept { status, _held: held });
}

fn log_refusal<S: Session>(s: &S, conf: &LimitConnLoc, limit: &Limit) {
    let dry = if *conf.refusal.dry_run { ", dry run," } else { "" };
    let name = String::from_utf8_lossy(&limit.name);
    s.log(*conf.refusal.log_level, &format!("limiting connections{dry} by zone \"{name}\""));
}

/// Whether the session ends for it.
fn refuse<S: Limited>(s: &mut S, conf: &LimitConnLoc) -> bool {
    let dry_run = *conf.refusal.dry_run;
    let status = if dry_run { Status::RejectedDryRun } else { Status::Rejected };
    keep(s, status, Vec::new());
    !dry_run
}

fn status<S: Session>(s: &mut S, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let Some(kept) = s.kept::<Kept>() else { return false };
    out.extend_from_slice(match kept.status {
        Status::Passed => b"PASSED",
        Status::Rejected => b"REJECTED",
        Status::RejectedDryRun => b"REJECTED_DRY_RUN",
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counting() {
        let zone = Arc::new(Zone::new("test", b"", b"$k", 32 * 1024));
        let hold = |key: &[u8]| Held { zone: Arc::clone(&zone), key: key.into() };
        assert!(matches!(zone.enter(b"a", 2), Entered::Yes));
        assert!(matches!(zone.enter(b"a", 2), Entered::Yes));
        assert!(matches!(zone.enter(b"a", 2), Entered::TooMany));
        assert!(matches!(zone.enter(b"b", 2), Entered::Yes));
        drop(hold(b"a"));
        assert!(matches!(zone.enter(b"a", 2), Entered::Yes));
        for key in [b"a", b"a", b"b"] {
            drop(hold(key));
        }
        assert_eq!(zone.used.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn a_full_zone_refuses() {
        let zone = Zone::new("test", b"", b"$k", 32 * 1024);
        let entries = (zone.size / 64) as u32;
        for i in 0..entries {
            assert!(matches!(zone.enter(&i.to_be_bytes(), 1), Entered::Yes));
        }
        assert!(matches!(zone.enter(b"more", 1), Entered::Full));
        zone.leave(&7u32.to_be_bytes());
        assert!(matches!(zone.enter(b"more", 1), Entered::Yes));
    }
}
