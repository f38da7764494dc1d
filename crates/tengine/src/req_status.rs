//! `req_status` (Tengine's `ngx_http_reqstat_module`): requests added up by a value, in zones of a fixed size, shown as
//! lines with commas.
//!
//! Differences from Tengine: bytes are counted when a request is over, and not as they pass; a line is shown from its first
//! request on, where Tengine waits for one that is the first of its connection; figures are kept over an upgrade, and over a
//! reload of another value they begin anew where Tengine refuses it; `$reqstat_enable` is 1 or 0 and nothing behind it.

mod rows;
mod show;
mod zone;

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::{Arc, OnceLock};
use weir_core::counts;
use weir_core::eval::{is_true, with_value};
use weir_core::figures::{Figures, Report, Served};
use weir_core::logger::LogLevel;
use weir_core::session::Part as _;
use weir_core::variables::Variable;
use weir_core::{zones, Session as _};
use weir_http::build::Build;
use weir_http::core_vars::shown_status;
use weir_http::generation::HttpConf;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::Request;
use weir_module::{
    distinct, merge_values, slot, ConfResult, ConfType, Level, SlotVtable, Slots, Val,
};
use weir_runtime::clock;
use weir_script::template::Template;
use zone::{Limits, Zone, FIELDS};

const KIND: &str = "req_status";

pub const MODULE: HttpModule = HttpModule {
    rows: rows::ROWS,
    slots: &[SlotVtable::of::<StatusMain>(), SlotVtable::of::<StatusLoc>()],
    variables: &[Variable::new("reqstat_enable", |r: &mut Request, _, out| {
        let counts = r.kept::<Begun>().is_some_and(|begun| begun.watched.is_some());
        out.push(if counts { b'1' } else { b'0' });
        true
    })
    .weak()],
    phases: &[
        PhaseHandler { phase: Phase::Rewrite, handler: begins, active },
        PhaseHandler { phase: Phase::Log, handler: ends, active },
    ],
    build: Some(build),
    start: Some(|_, http| start(http)),
    reports: &[Report { path: "/slabs", put: report }],
    ..HttpModule::EMPTY
};

/// A `req_status_zone` with what further directives say of it.
struct ZoneConf {
    value: Vec<u8>,
    key: Arc<Template>,
    size: u64,
    limits: Limits,
    indicators: Vec<(Vec<u8>, Template)>,
    zone: Option<Arc<Zone>>,
}

impl ZoneConf {
    fn indicator(&self, name: &[u8]) -> Option<usize> {
        self.indicators.iter().position(|(own, _)| own == name)
    }
}

#[derive(Default)]
struct StatusMain {
    zones: BTreeMap<Vec<u8>, ZoneConf>,
    /// Those that some `req_status` names, in their order.
    used: Vec<Vec<u8>>,
}

impl ConfType for StatusMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// Zones that a directive names.
struct Watched {
    names: Vec<Vec<u8>>,
}

impl Watched {
    fn new(names: Vec<Vec<u8>>) -> Watched {
        Watched { names }
    }
}

/// A number that is shown.
enum Field {
    Own(usize),
    Indicator(Vec<u8>),
}

#[derive(Default)]
struct StatusLoc {
    watched: Val<Option<Arc<Watched>>>,
    lazy: Val<bool>,
    bypass: Val<Arc<Vec<Template>>>,
    fields: Val<Option<Arc<Vec<Field>>>>,
    shown: Option<Arc<Watched>>,
    /// Some location counts: what the first one says holds for a request, also that it counts nothing.
    is_used: OnceLock<()>,
}

impl ConfType for StatusLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &StatusLoc) -> ConfResult {
        merge_values!(self, parent; watched = None, lazy = false, bypass = Arc::default(), fields = None);
        if self.shown.is_none() {
            self.shown.clone_from(&parent.shown);
        }
        Ok(())
    }
}

fn active(slots: &Slots) -> bool {
    slots.get::<StatusLoc>().is_used.get().is_some()
}

fn build(b: &mut Build) -> ConfResult {
    let main = b.main.get_mut::<StatusMain>();
    for (name, conf) in &mut main.zones {
        // Another value is another zone.
        let known = [name, &b" "[..], &conf.value].concat();
        let make = || Zone::new(&conf.value, conf.size, conf.limits);
        conf.zone = Some(zones::attach(KIND, &known, conf.size, |_: &Zone| Ok(()), make)?);
    }
    // The block's own too: there may be no server that inherits it.
    let outer = distinct::<StatusLoc>(std::slice::from_ref(b.outer));
    for conf in outer.into_iter().chain(distinct::<StatusLoc>(b.locations)) {
        let watched = conf
            .watched
            .as_option()
            .and_then(Option::as_ref)
            .map(|w| &w.names[..])
            .unwrap_or_default();
        let shown = conf.shown.as_ref().map(|w| &w.names[..]).unwrap_or_default();
        if let Some(name) = watched.iter().chain(shown).find(|n| !main.zones.contains_key(*n)) {
            return Err(zones::undeclared(name));
        }
        if !main.used.is_empty() {
            conf.is_used.get_or_init(|| ());
        }
    }
    Ok(())
}

fn start(http: &HttpConf) {
    for (name, conf) in &http.main.get::<StatusMain>().zones {
        if let Some(zone) = &conf.zone {
            zone.set_limits(conf.limits);
            counts::keep_named(KIND, &[name, &b" "[..], &zone.value].concat(), zone);
        }
    }
}

/// What a request is counted by: keys in the order of its location's zones; none if it is not.
struct Begun {
    watched: Option<Arc<Watched>>,
    /// `None` until the request is over.
    keys: Option<Vec<Vec<u8>>>,
}

/// A request comes to its first location.
fn begins(r: &mut Request) -> Flow {
    if !r.is_part() && r.kept::<Begun>().is_none() {
        let begun = Begun::of(r);
        r.keep_state(begun);
    }
    Flow::Declined
}

impl Begun {
    fn of(r: &mut Request) -> Begun {
        let loc = Rc::clone(r.loc());
        let conf = loc.conf::<StatusLoc>();
        let is_true = |r: &mut Request, t: &Template| with_value(r, t, |_, value| is_true(value));
        let bypassed = conf.watched.is_some() && conf.bypass.iter().any(|t| is_true(r, t));
        let watched = conf.watched.as_ref().filter(|_| !bypassed).map(Arc::clone);
        let keys = watched.as_ref().filter(|_| !*conf.lazy).map(|watched| keys(r, watched));
        Begun { watched, keys }
    }
}

fn keys(r: &mut Request, watched: &Watched) -> Vec<Vec<u8>> {
    let gen = Rc::clone(r.gen());
    let zones = watched.names.iter().filter_map(|n| gen.main().get::<StatusMain>().zones.get(n));
    zones.map(|zone| with_value(r, &zone.key, |_, value| value.to_vec())).collect()
}

/// A request is over.
fn ends(r: &mut Request) -> Flow {
    if r.is_part() {
        return Flow::Declined;
    }
    let begun = match r.kept::<Begun>() {
        Some(begun) => Begun { watched: begun.watched.clone(), keys: begun.keys.take() },
        None => Begun::of(r),
    };
    let Some(watched) = begun.watched else { return Flow::Declined };
    let keys = begun.keys.unwrap_or_else(|| keys(r, &watched));
    let mut numbers = counted(r);
    let (fixed, gen) = (numbers.len(), Rc::clone(r.gen()));
    for (name, key) in watched.names.iter().zip(keys) {
        let Some(conf) = gen.main().get::<StatusMain>().zones.get(name) else { continue };
        numbers.truncate(fixed);
        for (at, (_, value)) in conf.indicators.iter().enumerate() {
            let said = with_value(r, value, |_, value| zone::indicated(value));
            numbers.extend(said.map(|n| (FIELDS.len() + at, n)));
        }
        let Some(zone) = &conf.zone else { continue };
        if !zone.add(&key, &numbers, clock::mono_ms()) {
            let name = String::from_utf8_lossy(name);
            let text = format!("failed to alloc node in zone \"{name}\", enlarge it please");
            r.log(LogLevel::Warn, &text);
        }
    }
    Flow::Declined
}

/// What a request adds to a line.
fn counted(r: &Request) -> Vec<(usize, u64)> {
    use zone::{BYTES_IN, BYTES_OUT, CONN_TOTAL, REQ_TOTAL, RT};
    let mut numbers = vec![(REQ_TOTAL, 1), (BYTES_IN, r.received), (BYTES_OUT, r.bytes_sent())];
    numbers.push((CONN_TOTAL, u64::from(r.serial_number() == 1)));
    numbers.push((RT, r.elapsed_ms()));
    numbers.extend(zone::places(shown_status(r)).map(|place| (place, 1)));
    if let Some(last) = r.upstream.last() {
        let ms = |us: Option<u64>| us.unwrap_or(0) / 1000;
        numbers.push((zone::UPS_REQ, 1));
        numbers.push((zone::UPS_RT, r.upstream.iter().map(|s| ms(s.response_us)).sum()));
        numbers.push((zone::UPS_TRIES, r.upstream.len() as u64));
        match last.status {
            400..=499 => numbers.push((zone::UPS_4XX, 1)),
            500..=599 => numbers.push((zone::UPS_5XX, 1)),
            _ => {}
        }
    }
    numbers
}

fn report(_: &Served, main: &Slots, figures: &mut Figures) {
    for (name, conf) in &main.get::<StatusMain>().zones {
        if let Some(zone) = &conf.zone {
            zones::put_pages(name, conf.size, zone.used_bytes(), figures);
        }
    }
}
