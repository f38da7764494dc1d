//! `limit_req` (nginx's `ngx_http_limit_req_module`): how many requests of one key may come in a
//! time, by the leaky bucket.
//!
//! Tengine's words are taken, too: keys of several variables, rates that a variable says, `forbid_action` and
//! `limit_req_whitelist`.
//!
//! As in nginx a reload that gives a zone another key and not another name or size is refused.

mod whitelist;
mod zone;

use std::collections::HashMap;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use weir_core::Session;

use crate::limits::{
    already_bound, dry_run_row, log_level_row, same_key, status_row, too_long, Outcomes, Refusal,
    Refuses,
};
use weir_base::units;
use weir_core::eval::with_value;
use weir_core::figures::{Figures, Report, Served};
use weir_core::logger::LogLevel;
use weir_core::zones;
use weir_core::LocalFuture;
use weir_http::build::Build;
use weir_http::marks::Mark;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler, VarArg, Variable};
use weir_http::redirect::{internal_redirect, named_location};
use weir_http::vars::template_of;
use weir_http::Request;
use weir_module::{
    distinct, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Slots,
};
use weir_runtime::clock;
use weir_script::template::Template;
use whitelist::Whitelist;
use zone::{Reserved, Verdict, Zone};

const KIND: &str = "limit_req";
const KEY_MAX_BYTES: usize = 65_535;
/// `nodelay`: no excess is large enough to wait for.
const NEVER: u64 = i64::MAX as u64;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Status {
    Passed,
    Delayed,
    Rejected,
    DelayedDryRun,
    RejectedDryRun,
}

/// Kept with the request, so that a redirected one is counted once.
struct Kept {
    status: Status,
    delay_ms: u64,
}

/// `limit_req_zone`
struct ZoneConf {
    name: Vec<u8>,
    size: u64,
    key: Arc<Template>,
    rate: Rate,
    zone: Option<Arc<Zone>>,
}

/// How many requests a zone lets through.
#[derive(Clone)]
enum Rate {
    /// Thousandths of a request per second.
    Fixed(u64),
    /// As a variable says, in the same words.
    Said(Arc<Template>),
}

impl Rate {
    /// In thousandths; `None`: the variable says no rate.
    fn value(&self, r: &mut Request) -> Option<u64> {
        let said = match self {
            Rate::Fixed(rate) => return Some(*rate),
            Rate::Said(said) => said,
        };
        let rate = with_value(r, said, |_, text| parse_rate(text));
        if rate.is_none() {
            let name = String::from_utf8_lossy(said.source());
            let text = format!("the value of the \"{name}\" variable for limit rate is wrong");
            r.log(LogLevel::Error, &text);
        }
        rate
    }
}

#[derive(Default)]
struct LimitReqMain {
    zones: Vec<ZoneConf>,
    by_name: HashMap<Vec<u8>, usize>,
}

impl LimitReqMain {
    fn zone(&self, name: &[u8]) -> Option<&ZoneConf> {
        self.by_name.get(name).map(|at| &self.zones[*at])
    }
}

impl ConfType for LimitReqMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

#[derive(Clone)]
struct Limit {
    name: Vec<u8>,
    /// Thousandths of requests that may be in excess before refusal.
    burst: u64,
    /// And before waiting.
    delay: u64,
    /// Where refused requests go instead.
    action: Option<Arc<[u8]>>,
    bound: OnceLock<Bound>,
}

/// What a limit's zone is, known after the build.
#[derive(Clone)]
struct Bound {
    zone: Arc<Zone>,
    key: Arc<Template>,
    rate: Rate,
}

#[derive(Default)]
struct LimitReqLoc {
    /// Empty: none, whatever the outer level has.
    limits: Option<Vec<Limit>>,
    whitelist: Whitelist,
    refusal: Refusal,
}

impl ConfType for LimitReqLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &LimitReqLoc) -> ConfResult {
        if self.limits.is_none() {
            self.limits.clone_from(&parent.limits);
        }
        self.whitelist.merge(&parent.whitelist);
        self.refusal.merge(&parent.refusal);
        Ok(())
    }
}

impl Refuses for LimitReqLoc {
    fn refusal(&mut self) -> &mut Refusal {
        &mut self.refusal
    }
}

impl LimitReqLoc {
    /// Delays are logged one level lower than refusals.
    fn delay_level(&self) -> LogLevel {
        match *self.refusal.log_level {
            LogLevel::Error => LogLevel::Warn,
            LogLevel::Warn => LogLevel::Notice,
            _ => LogLevel::Info,
        }
    }
}

const ROWS: &[Row] = &[
    Row::new(
        "limit_req_zone",
        Context::HTTP,
        Arity::TWO_MORE,
        "",
        "A zone that remembers how fast requests come, by a key; rate= may be a variable.",
        set_zone,
    )
    .note("As in Tengine a key may have several variables, and the rate may be one."),
    Row::new(
        "limit_req",
        Context::HSL,
        Arity::ONE_TO_FOUR,
        "",
        "How much faster than the zone's rate requests may come; off: no limit here.",
        set_limit,
    )
    .note("Tengine's off and forbid_action= with a URI or a named location are taken; a request that is sent there is not limited again."),
    Row::new(
        "limit_req_whitelist",
        Context::HSL,
        Arity::TWO,
        "",
        "Requests for which a variable (geo_var_name=) has a value (geo_var_value=) are not limited.",
        whitelist::set,
    ),
    log_level_row::<Request, LimitReqLoc>(
        "limit_req_log_level",
        "The level at which refusals are logged; delays are one level lower.",
    ),
    status_row::<Request, LimitReqLoc>("limit_req_status"),
    dry_run_row::<Request, LimitReqLoc>(
        "limit_req_dry_run",
        "Counts and logs, and neither delays nor refuses.",
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<LimitReqMain>(), SlotVtable::of::<LimitReqLoc>()],
    variables: &[Variable::new("limit_req_status", status)],
    phases: &[PhaseHandler { phase: Phase::Preaccess, handler, active }],
    build: Some(build),
    reports: &[
        Report { path: "limit_reqs", put: report },
        Report { path: "/slabs", put: report_pages },
    ],
    ..HttpModule::EMPTY
};

fn report(_: &Served, main: &Slots, figures: &mut Figures) {
    for z in &main.get::<LimitReqMain>().zones {
        let used = z.zone.as_ref().map_or(0, |zone| zone.used_bytes());
        let figures = figures.entry(&z.name);
        if let Some(zone) = &z.zone {
            Outcomes::put(&zone.outcomes, OUTCOMES, figures);
        }
        figures.put_all(&[("size_bytes", z.size), ("used_bytes", used)]);
    }
}

fn report_pages(_: &Served, main: &Slots, figures: &mut Figures) {
    for z in &main.get::<LimitReqMain>().zones {
        let used = z.zone.as_ref().map_or(0, |zone| zone.used_bytes());
        zones::put_pages(&z.name, z.size, used, figures);
    }
}

/// In the order of [`Status`].
const OUTCOMES: &[&str] = &[
    "passed",
    "delayed",
    "rejected",
    "delayed_dry_run",
    "rejected_dry_run",
    // Behind them: what has no key, or one that is too long, and what is refused for want of room (which is rejected too).
    "skipped",
    "exhausted",
];
const SKIPPED: usize = 5;
const EXHAUSTED: usize = 6;

/// What the zone of a limit has said. All that it has let through are counted as passed by then.
fn count(r: &Request, limit: &Limit, status: Status) {
    let Some(bound) = limit.bound.get() else { return };
    let (outcomes, worker) = (&bound.zone.outcomes, &r.conn().worker);
    if matches!(status, Status::Delayed | Status::DelayedDryRun) {
        Outcomes::take_back(outcomes, worker, Status::Passed as usize);
    }
    Outcomes::count(outcomes, worker, status as usize);
}

fn shown(d: &Directive, i: usize) -> String {
    String::from_utf8_lossy(d.arg(i)).into_owned()
}

fn set_zone(cf: &mut Cf, d: &Directive) -> ConfResult {
    // Further variables belong to the key.
    let more = (1..d.args.len()).take_while(|i| d.arg(*i).starts_with(b"$")).count();
    let key: Vec<u8> = (0..=more).flat_map(|i| d.arg(i).to_vec()).collect();
    let key = Arc::new(template_of(cf, d, 0, &key)?);
    let (mut named, mut rate) = (None, Rate::Fixed(1000));
    for i in more + 1..d.args.len() {
        if let Some((name, size)) = zones::name_and_size(d, i)? {
            named = Some((i, name, size));
        } else if let Some(text) = d.keyed(i, "rate").filter(|text| text.starts_with(b"$")) {
            rate = Rate::Said(Arc::new(template_of(cf, d, i, text)?));
        } else if let Some(text) = d.keyed(i, "rate") {
            let invalid = || d.bad(i, format!("invalid rate \"{}\"", shown(d, i)));
            rate = Rate::Fixed(parse_rate(text).ok_or_else(invalid)?);
        } else {
            return Err(d.bad(i, format!("invalid parameter \"{}\"", shown(d, i))));
        }
    }
    let Some((i, name, size)) = named.filter(|(_, name, _)| !name.is_empty()) else {
        return Err(d.fail("\"limit_req_zone\" must have \"zone\" parameter"));
    };
    zones::declare(cf, d, i, &name, KIND, size)?;
    let main = cf.get::<LimitReqMain>();
    if let Some(known) = main.zone(&name) {
        return Err(already_bound(d, &name, &known.key));
    }
    main.by_name.insert(name.clone(), main.zones.len());
    main.zones.push(ZoneConf { name, size, key, rate, zone: None });
    Ok(())
}

/// `10r/s`, `30r/m`, or requests per second without a unit; in thousandths per second.
fn parse_rate(text: &[u8]) -> Option<u64> {
    let (number, scale) = match (text.strip_suffix(b"r/s"), text.strip_suffix(b"r/m")) {
        (Some(number), _) => (number, 1),
        (_, Some(number)) => (number, 60),
        _ => (text, 1),
    };
    let rate = units::parse_int(number).filter(|n| *n > 0)?;
    Some(rate.checked_mul(1000)? / scale)
}

fn set_limit(cf: &mut Cf, d: &Directive) -> ConfResult {
    if d.args.len() == 1 && d.arg(0) == b"off" {
        return match cf.get::<LimitReqLoc>().limits.replace(Vec::new()) {
            None => Ok(()),
            Some(_) => Err(d.error("is duplicate")),
        };
    }
    let (mut name, mut burst, mut delay, mut action) = (None, 0, 0, None);
    for i in 0..d.args.len() {
        let positive = |text: &[u8], what: &str| {
            units::parse_int(text)
                .filter(|n| *n > 0)
                .and_then(|n| n.checked_mul(1000))
                .ok_or_else(|| d.bad(i, format!("invalid {what} value \"{}\"", shown(d, i))))
        };
        if let Some(text) = d.keyed(i, "zone") {
            zones::declare(cf, d, i, text, KIND, 0)?;
            name = Some(text.to_vec());
        } else if let Some(text) = d.keyed(i, "burst") {
            burst = positive(text, "burst")?;
        } else if let Some(text) = d.keyed(i, "delay") {
            delay = positive(text, "delay")?;
        } else if d.arg(i) == b"nodelay" {
            delay = NEVER;
        } else if let Some(text) = d.keyed(i, "forbid_action") {
            action = Some(text).filter(|text| matches!(text.first(), Some(b'/' | b'@')));
            if action.is_none() {
                return Err(d.bad(i, format!("invalid forbid_action \"{}\"", shown(d, i))));
            }
        } else {
            return Err(d.bad(i, format!("invalid parameter \"{}\"", shown(d, i))));
        }
    }
    let Some(name) = name else {
        return Err(d.fail("\"limit_req\" must have \"zone\" parameter"));
    };
    let limits = cf.get::<LimitReqLoc>().limits.get_or_insert_with(Vec::new);
    if limits.iter().any(|l| l.name == name) {
        return Err(d.error("is duplicate"));
    }
    limits.push(Limit {
        name,
        burst,
        delay,
        action: action.map(Into::into),
        bound: OnceLock::new(),
    });
    Ok(())
}

fn build(b: &mut Build) -> ConfResult {
    let main = b.main.get_mut::<LimitReqMain>();
    for z in &mut main.zones {
        let (name, key) = (&z.name, z.key.source());
        let check = |zone: &Zone| same_key("limit_req", name, key, &zone.key);
        z.zone =
            Some(zones::attach(KIND, name, z.size, check, || Zone::new(KIND, name, key, z.size))?);
    }
    for conf in distinct::<LimitReqLoc>(b.locations) {
        for limit in conf.limits.iter().flatten() {
            let found = main.zone(&limit.name);
            let bound = found.and_then(|z| {
                Some(Bound { zone: z.zone.clone()?, key: Arc::clone(&z.key), rate: z.rate.clone() })
            });
            let bound = bound.ok_or_else(|| zones::undeclared(&limit.name))?;
            // Only this function sets it.
            let _ = limit.bound.set(bound);
        }
    }
    Ok(())
}

fn active(slots: &Slots) -> bool {
    slots.get::<LimitReqLoc>().limits.as_ref().is_some_and(|limits| !limits.is_empty())
}

/// What the zones said together.
enum Decision {
    /// No zone applied.
    None,
    /// Wait so many milliseconds, for that excess in that limit.
    Wait {
        ms: u64,
        excess: u64,
        limit: usize,
    },
    Refuse {
        excess: Option<u64>,
        limit: usize,
    },
    /// A variable says no rate.
    Fail,
}

/// It holds for a request and its parts, and has been applied.
static APPLIED: Mark = Mark::for_parts();

fn handler(r: &mut Request) -> Flow {
    if r.kept::<Kept>().is_some() || r.has_mark(&APPLIED) {
        return Flow::Declined;
    }
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<LimitReqLoc>();
    let limits = conf.limits.as_deref().unwrap_or_default();
    if conf.whitelist.has(r) {
        return Flow::Declined;
    }
    let dry = *conf.refusal.dry_run;
    let keep = |r: &mut Request, status, delay_ms| {
        r.mark(&APPLIED);
        r.keep_state(Kept { status, delay_ms });
    };
    match decide(r, limits) {
        Decision::None => Flow::Declined,
        Decision::Fail => Flow::Status(500),
        Decision::Wait { ms: 0, .. } => {
            keep(r, Status::Passed, 0);
            Flow::Declined
        }
        Decision::Wait { ms, excess, limit } => {
            let what = if dry { "delaying request, dry run" } else { "delaying request" };
            let name = &limits[limit].name;
            log(r, conf.delay_level(), what, excess, ", by zone", name);
            count(r, &limits[limit], if dry { Status::DelayedDryRun } else { Status::Delayed });
            if dry {
                keep(r, Status::DelayedDryRun, 0);
                return Flow::Declined;
            }
            keep(r, Status::Delayed, ms);
            Flow::Wait(wait)
        }
        Decision::Refuse { excess, limit } => {
            count(r, &limits[limit], if dry { Status::RejectedDryRun } else { Status::Rejected });
            if let Some(excess) = excess {
                let what = if dry { "limiting requests, dry run" } else { "limiting requests" };
                log(r, *conf.refusal.log_level, what, excess, " by zone", &limits[limit].name);
            }
            if dry {
                keep(r, Status::RejectedDryRun, 0);
                return Flow::Declined;
            }
            keep(r, Status::Rejected, 0);
            match &limits[limit].action {
                None => Flow::Status(*conf.refusal.status),
                Some(action) => go_to(r, *conf.refusal.log_level, action),
            }
        }
    }
}

/// Instead of a refusal.
fn go_to(r: &mut Request, level: LogLevel, action: &[u8]) -> Flow {
    let shown = String::from_utf8_lossy(action);
    r.log(level, &format!("limiting requests, forbid_action is {shown}"));
    if action.starts_with(b"@") {
        return named_location(r, action);
    }
    let args = r.args.clone();
    internal_redirect(r, action, &args)
}

fn log(r: &Request, level: LogLevel, what: &str, excess: u64, by: &str, zone: &[u8]) {
    if r.log_enabled(level) {
        let (whole, part) = (excess / 1000, excess % 1000);
        let name = String::from_utf8_lossy(zone);
        r.log(level, &format!("{what}, excess: {whole}.{part:03}{by} \"{name}\""));
    }
}

/// Asks the zones in turn. All but the last only reserve, and are charged when none refuses.
fn decide(r: &mut Request, limits: &[Limit]) -> Decision {
    let now = clock::mono_ms();
    let mut reserved: Vec<(usize, &Bound, u64, Reserved)> = Vec::new();
    let mut waits: Option<(u64, u64, usize)> = None;
    for (i, limit) in limits.iter().enumerate() {
        let Some(bound) = limit.bound.get() else { continue };
        let is_last = i + 1 == limits.len();
        let Some(rate) = bound.rate.value(r) else {
            release(&reserved);
            return Decision::Fail;
        };
        let asked = with_value(r, &bound.key, |r, value| {
            if value.is_empty() {
                return None;
            }
            if value.len() > KEY_MAX_BYTES {
                too_long(r, &bound.key, value, KEY_MAX_BYTES);
                return None;
            }
            Some(bound.zone.ask(value, rate, limit.burst, now, is_last))
        });
        match asked {
            None => Outcomes::count(&bound.zone.outcomes, &r.conn().worker, SKIPPED),
            Some(Verdict::Charged { excess }) => {
                waits = Some((delay_ms(limit, rate, excess), excess, i));
                count(r, limit, Status::Passed);
            }
            Some(Verdict::Reserved(held)) => {
                // Noted even when it asks for no delay: the request has passed a zone.
                waits = waits.or(Some((0, 0, i)));
                reserved.push((i, bound, rate, held));
            }
            Some(Verdict::Refused { excess }) => {
                release(&reserved);
                if excess.is_none() {
                    Outcomes::count(&bound.zone.outcomes, &r.conn().worker, EXHAUSTED);
                }
                return Decision::Refuse { excess, limit: i };
            }
        }
    }
    for (i, bound, rate, held) in reserved.into_iter().rev() {
        let excess = bound.zone.charge(held, rate, now);
        count(r, &limits[i], Status::Passed);
        let ms = delay_ms(&limits[i], rate, excess);
        if waits.is_none_or(|(most, ..)| ms > most) {
            waits = Some((ms, excess, i));
        }
    }
    match waits {
        None => Decision::None,
        Some((ms, excess, limit)) => Decision::Wait { ms, excess, limit },
    }
}

fn release(reserved: &[(usize, &Bound, u64, Reserved)]) {
    reserved.iter().for_each(|(_, bound, _, held)| bound.zone.release(*held));
}

fn delay_ms(limit: &Limit, rate: u64, excess: u64) -> u64 {
    match excess.checked_sub(limit.delay) {
        // A rate of less than a thousandth cannot be written, but must not divide.
        Some(over) if over > 0 => over.saturating_mul(1000) / rate.max(1),
        _ => 0,
    }
}

/// Waits, unless the client goes away first.
fn wait(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let ms = r.kept::<Kept>().map_or(0, |k| k.delay_ms);
        if r.sleep_while_open(ms, r.is_half_closed()).await.is_ok() {
            return Flow::Declined;
        }
        r.log(LogLevel::Info, "client prematurely closed connection");
        Flow::Status(499)
    })
}

fn status(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let Some(kept) = r.kept::<Kept>() else { return false };
    out.extend_from_slice(match kept.status {
        Status::Passed => b"PASSED",
        Status::Delayed => b"DELAYED",
        Status::Rejected => b"REJECTED",
        Status::DelayedDryRun => b"DELAYED_DRY_RUN",
        Status::RejectedDryRun => b"REJECTED_DRY_RUN",
    });
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates() {
        assert_eq!(parse_rate(b"10r/s"), Some(10_000));
        assert_eq!(parse_rate(b"30r/m"), Some(500));
        assert_eq!(parse_rate(b"2"), Some(2000));
        for bad in ["0r/s", "r/s", "-1r/s", "1r/h", ""] {
            assert_eq!(parse_rate(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn delays() {
        let limit = |delay| Limit {
            name: Vec::new(),
            burst: 9000,
            delay,
            action: None,
            bound: OnceLock::new(),
        };
        assert_eq!(delay_ms(&limit(0), 2000, 1000), 500);
        assert_eq!(delay_ms(&limit(1000), 2000, 1000), 0);
        assert_eq!(delay_ms(&limit(1000), 2000, 3000), 1000);
        assert_eq!(delay_ms(&limit(NEVER), 2000, 3000), 0);
    }
}
