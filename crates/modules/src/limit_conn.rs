//! `limit_conn` (nginx's `ngx_http_limit_conn_module`): how many requests of one key may be in
//! progress at once.
//!
//! As there, a reload that gives a zone another key and not another name or size is refused.

use std::collections::hash_map::RandomState;
use std::collections::HashMap;
use std::hash::BuildHasher;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use weir_core::Session;

use crate::limits::{
    already_bound, dry_run_row, log_level_row, same_key, status_row, too_long, Refusal, Refuses,
};
use weir_base::units;
use weir_core::eval::with_value;
use weir_core::zones::{self, ZoneNames};
use weir_http::build::Build;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler, VarArg, Variable};
use weir_http::vars::template;
use weir_http::Request;
use weir_module::{
    distinct, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Slots,
};
use weir_script::template::Template;

const KIND: &str = "limit_conn";
const KEY_MAX_BYTES: usize = 255;
/// nginx's tree node without the key.
const NODE_BYTES: usize = 36;
const SHARDS: usize = 16;

/// What the workers share.
struct Zone {
    key: Vec<u8>,
    size: u64,
    used: AtomicU64,
    hasher: RandomState,
    shards: [Mutex<HashMap<Box<[u8]>, u32>>; SHARDS],
}

enum Entered {
    Yes,
    TooMany,
    Full,
}

impl Zone {
    fn new(key: &[u8], size: u64) -> Zone {
        Zone {
            key: key.to_vec(),
            size: zones::usable_bytes(size),
            used: AtomicU64::new(0),
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

/// One request's place in one zone, given back when the request is over.
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

/// Kept with the request until it is over, through internal redirects.
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

const ROWS: &[Row] = &[
    Row::new(
        "limit_conn_zone",
        Context::HTTP,
        Arity::TWO,
        "",
        "A zone that counts the requests in progress by a key.",
        set_zone,
    ),
    Row::new(
        "limit_conn",
        Context::HSL,
        Arity::TWO,
        "",
        "How many requests of one key may be in progress.",
        set_limit,
    ),
    log_level_row::<LimitConnLoc>(
        "limit_conn_log_level",
        "The level at which refusals are logged.",
    ),
    status_row::<LimitConnLoc>("limit_conn_status"),
    dry_run_row::<LimitConnLoc>("limit_conn_dry_run", "Counts and logs, and refuses nothing."),
];

pub const MODULE: HttpModule = HttpModule {
    name: "ngx_http_limit_conn_module",
    rows: ROWS,
    slots: &[
        SlotVtable::of::<ZoneNames>(),
        SlotVtable::of::<LimitConnMain>(),
        SlotVtable::of::<LimitConnLoc>(),
    ],
    variables: &[Variable::new("limit_conn_status", status)],
    phases: &[PhaseHandler { phase: Phase::Preaccess, handler, active }],
    build: Some(build),
    ..HttpModule::EMPTY
};

fn set_zone(cf: &mut Cf, d: &Directive) -> ConfResult {
    let key = Arc::new(template(cf, d, 0)?);
    let Some((name, size)) = zones::name_and_size(d, 1)? else {
        let shown = String::from_utf8_lossy(d.arg(1)).into_owned();
        return Err(d.bad(1, format!("invalid parameter \"{shown}\"")));
    };
    if name.is_empty() {
        return Err(d.fail("\"limit_conn_zone\" must have \"zone\" parameter"));
    }
    zones::declare(cf, d, 1, &name, KIND, size)?;
    let main = cf.get::<LimitConnMain>();
    if let Some(known) = main.zone(&name) {
        return Err(already_bound(d, &name, &known.key));
    }
    main.by_name.insert(name.clone(), main.zones.len());
    main.zones.push(ZoneConf { name, size, key, zone: None });
    Ok(())
}

fn set_limit(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.arg(0).to_vec();
    zones::declare(cf, d, 0, &name, KIND, 0)?;
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

fn build(b: &mut Build) -> ConfResult {
    let main = b.main.get_mut::<LimitConnMain>();
    for z in &mut main.zones {
        let (name, key) = (&z.name, z.key.source());
        let check = |zone: &Zone| same_key("limit_conn_zone", name, key, &zone.key);
        z.zone = Some(zones::attach(KIND, name, z.size, check, || Zone::new(key, z.size))?);
    }
    for conf in distinct::<LimitConnLoc>(b.locations) {
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

/// In `Request::limits_applied`.
const APPLIED_BIT: u8 = 2;

fn handler(r: &mut Request) -> Flow {
    if r.kept::<Kept>().is_some() || r.limits_applied & APPLIED_BIT != 0 {
        return Flow::Declined;
    }
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<LimitConnLoc>();
    let mut held = Vec::new();
    for limit in conf.limits.iter().flatten() {
        let Some((zone, key)) = limit.bound.get() else { continue };
        let entered = with_value(r, key, |r, value| {
            if value.is_empty() {
                return None;
            }
            if value.len() > KEY_MAX_BYTES {
                too_long(r, key, value, KEY_MAX_BYTES);
                return None;
            }
            let entered = zone.enter(value, limit.max);
            if matches!(entered, Entered::Yes) {
                held.push(Held { zone: Arc::clone(zone), key: value.into() });
            }
            Some(entered)
        });
        match entered {
            None | Some(Entered::Yes) => {}
            Some(refused) => {
                if matches!(refused, Entered::TooMany) {
                    log_refusal(r, conf, limit);
                }
                drop(held);
                return refuse(r, conf);
            }
        }
    }
    if !held.is_empty() {
        keep(r, Status::Passed, held);
    }
    Flow::Declined
}

fn keep(r: &mut Request, status: Status, held: Vec<Held>) {
    r.limits_applied |= APPLIED_BIT;
    r.keep_state(Kept { status, _held: held });
}

fn log_refusal(r: &Request, conf: &LimitConnLoc, limit: &Limit) {
    let dry = if *conf.refusal.dry_run { ", dry run," } else { "" };
    let name = String::from_utf8_lossy(&limit.name);
    r.log(*conf.refusal.log_level, &format!("limiting connections{dry} by zone \"{name}\""));
}

fn refuse(r: &mut Request, conf: &LimitConnLoc) -> Flow {
    if *conf.refusal.dry_run {
        keep(r, Status::RejectedDryRun, Vec::new());
        return Flow::Declined;
    }
    keep(r, Status::Rejected, Vec::new());
    Flow::Status(*conf.refusal.status)
}

fn status(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let Some(kept) = r.kept::<Kept>() else { return false };
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
        let zone = Arc::new(Zone::new(b"$k", 32 * 1024));
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
        let zone = Zone::new(b"$k", 32 * 1024);
        let entries = (zone.size / 64) as u32;
        for i in 0..entries {
            assert!(matches!(zone.enter(&i.to_be_bytes(), 1), Entered::Yes));
        }
        assert!(matches!(zone.enter(b"more", 1), Entered::Full));
        zone.leave(&7u32.to_be_bytes());
        assert!(matches!(zone.enter(b"more", 1), Entered::Yes));
    }
}
