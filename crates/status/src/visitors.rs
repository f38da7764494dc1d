//! `analytics_zone` and `analytics`: who comes and what for, counted while it happens; what `weir analyze` tells of
//! logs (crate `analytics`), shown by the API and the dashboard.

mod facts;
mod zone;

use ring::rand::{generate, Random, SystemRandom};
use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use weir_analytics::places::Databases;
use weir_analytics::privacy::{Privacy, Secret};
use weir_analytics::report::{Limits, Options};
use weir_analytics::sketch::Seed;
use weir_core::figures::{Figures, Report, Served};
use weir_core::generation::Generation;
use weir_core::logger::LogLevel;
use weir_core::registry::template_of;
use weir_core::{zones, Session};
use weir_http::generation::HttpConf;
use weir_http::module::{Build, Flow, HttpModule, Phase, PhaseHandler};
use weir_http::Request;
use weir_module::{
    merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Diagnostic, Directive,
    Level, Row, SlotVtable, Slots, Val,
};
use weir_script::mmdb::Mmdb;
use weir_script::template::Template;
pub(crate) use zone::Zone;

const KIND: &str = "analytics";
/// Of one zone.
const DAYS: i32 = 7;
const DAYS_MAX: u64 = 31;
const RATE: u64 = 5000;

const ROWS: &[Row] = &[
    Row::new(
        "analytics_zone",
        Context::HTTP,
        Arity::ONE_MORE,
        "",
        "Counts visitors and what they come for: NAME privacy=plain|shortened|hashed geoip=FILE days=N rate=N.",
        set_zone,
    )
    .note(
        "Weir's own. What weir analyze tells of logs (visitors, URLs, referrers, countries, browsers, bots, ...), told by \
         the api at /http/analytics_zones and by the dashboard. A zone takes about 6 MB, twice that once its days are \
         over, and half a MB (2 MB at most) for each worker, whatever clients send: it shows the last days=N days (7) at least, and not more than twice as many. \
         privacy=shortened shows addresses by their networks (24 bits of IPv4's, 48 of IPv6's), hashed by a name that \
         changes each day. geoip= names an .mmdb with countries or networks, and may be given several times. Of more \
         than rate=N requests a second (5000) a worker looks at every second, fourth, eighth one: how many were left out \
         is told. It lives on over a reload that does not change it.",
    ),
    Row::new(
        "analytics",
        Context::HSL,
        Arity::ONE_TWO,
        "off",
        "The zone that requests are counted in, or off; with if=VALUE, those for which it is not empty and not 0.",
        set_analytics,
    )
    .note("Weir's own."),
];

/// The directives.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<VisitorsMain>(), SlotVtable::of::<VisitorsLoc>()],
    phases: &[PhaseHandler {
        phase: Phase::Log,
        handler,
        active: |slots| slots.get::<VisitorsLoc>().said.is_some(),
    }],
    build: Some(bind),
    start: Some(start),
    reports: &[Report { path: "/http/analytics_zones", put: report }],
    ..HttpModule::EMPTY
};

#[derive(Default)]
struct VisitorsMain {
    zones: BTreeMap<Vec<u8>, Arc<Zone>>,
}

impl ConfType for VisitorsMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

#[derive(Default)]
struct VisitorsLoc {
    said: Val<Option<Arc<Said>>>,
}

impl ConfType for VisitorsLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &VisitorsLoc) -> ConfResult {
        merge_values!(self, parent; said = None);
        Ok(())
    }
}

/// An `analytics` as read.
struct Said {
    name: Vec<u8>,
    filter: Option<Template>,
    zone: OnceLock<Arc<Zone>>,
}

fn invalid(d: &Directive, i: usize) -> Diagnostic {
    d.bad(i, format!("invalid parameter \"{}\"", String::from_utf8_lossy(d.arg(i))))
}

fn random<const N: usize>(d: &Directive) -> ConfResult<[u8; N]> {
    let found = generate::<[u8; N]>(&SystemRandom::new()).map(Random::expose);
    found.map_err(|_| d.fail("the system has no random numbers"))
}

fn set_zone(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.arg(0).to_vec();
    if name.is_empty() || name.contains(&b'=') {
        return Err(invalid(d, 0).hint("write the zone's name first".to_string()));
    }
    let (mut privacy, mut files, mut days, mut rate) = (&b"plain"[..], Vec::new(), DAYS, RATE);
    let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<u64>().ok();
    for i in 1..d.args.len() {
        if let Some(kind @ (b"plain" | b"shortened" | b"hashed")) = d.keyed(i, "privacy") {
            privacy = kind;
        } else if d.keyed(i, "privacy").is_some() {
            let hint = "write privacy=plain, privacy=shortened or privacy=hashed";
            return Err(invalid(d, i).hint(hint.to_string()));
        } else if let Some(path) = d.keyed(i, "geoip").filter(|path| !path.is_empty()) {
            files.push(cf.full_path(path));
        } else if let Some(n) = d.keyed(i, "days") {
            let n = number(n).filter(|n| (1..=DAYS_MAX).contains(n));
            days =
                n.ok_or_else(|| invalid(d, i).hint(format!("write 1 to {DAYS_MAX} days")))? as i32;
        } else if let Some(n) = d.keyed(i, "rate") {
            rate = number(n).filter(|n| *n > 0).ok_or_else(|| invalid(d, i))?;
        } else {
            return Err(invalid(d, i));
        }
    }
    if cf.get::<VisitorsMain>().zones.contains_key(&name) {
        return Err(d.bad(0, "the zone is declared already"));
    }
    let mut options = Options::new(Limits::live(), Seed::new(u64::from_le_bytes(random(d)?)));
    options.privacy = match privacy {
        b"shortened" => Privacy::Shortened,
        b"hashed" => Privacy::Hashed(Secret::new(&random::<32>(d)?)),
        _ => Privacy::Plain,
    };
    let mut databases = Vec::new();
    let mut known = format!("{} {days} {rate}", String::from_utf8_lossy(privacy)).into_bytes();
    for path in files {
        let failed = |e: String| d.fail(format!("database \"{}\": {e}", path.display()));
        let text = cf.read_file(&path).map_err(|e| failed(weir_core::os_text(&e)))?;
        // Another database makes another zone.
        known.extend_from_slice(&weir_base::crc32c::crc32c(&text).to_le_bytes());
        databases.push(Mmdb::new(text.to_vec()).map_err(|e| failed(e.to_string()))?);
    }
    options.databases = Databases::new(databases);
    let known = [&name, &b" "[..], &known].concat();
    let make = || Zone::new(options, days, rate);
    let zone = zones::attach(KIND, &known, 0, |_: &Zone| Ok(()), make)?;
    cf.get::<VisitorsMain>().zones.insert(name, zone);
    Ok(())
}

fn set_analytics(cf: &mut Cf, d: &Directive) -> ConfResult {
    let said = match (d.arg(0), d.args.len()) {
        (b"off", 1) => None,
        (b"off", _) => return Err(invalid(d, 1)),
        (name, n) => {
            let mut filter = None;
            if n == 2 {
                let text = d.keyed(1, "if").ok_or_else(|| invalid(d, 1))?;
                filter = Some(template_of::<Request>(cf, d, 1, text)?);
            }
            Some(Arc::new(Said { name: name.to_vec(), filter, zone: OnceLock::new() }))
        }
    };
    cf.get::<VisitorsLoc>().said.once(d, said)
}

fn bind(b: &mut Build) -> ConfResult {
    let zones = &b.main.get::<VisitorsMain>().zones;
    // The block's own too: there may be no server that inherits it.
    for location in std::iter::once(b.outer).chain(b.locations.iter()) {
        let Some(Some(said)) = location.get::<VisitorsLoc>().said.as_option() else { continue };
        let Some(zone) = zones.get(&said.name) else {
            let name = String::from_utf8_lossy(&said.name);
            return Err(Diagnostic::emerg(format!("unknown analytics zone \"{name}\""))
                .hint(format!("declare it with \"analytics_zone {name};\" in http")));
        };
        // Locations share what is the same.
        let _ = said.zone.set(Arc::clone(zone));
    }
    Ok(())
}

fn start(gen: &Arc<Generation>, http: &HttpConf) {
    for zone in http.main.get::<VisitorsMain>().zones.values() {
        if let Err(e) = zone.start() {
            let text = format!("starting analytics failed: {e}");
            gen.error_log.log(LogLevel::Alert, None, text.as_bytes());
        }
    }
}

fn handler(r: &mut Request) -> Flow {
    if r.is_part() {
        return Flow::Declined;
    }
    let Some(said) = &*r.loc().conf::<VisitorsLoc>().said else { return Flow::Declined };
    if said.filter.is_some() {
        let said = Arc::clone(said);
        let counts = said.filter.as_ref().is_none_or(|filter| r.is_true(filter));
        if let Some(zone) = said.zone.get().filter(|_| counts) {
            zone.add(r);
        }
    } else if let Some(zone) = said.zone.get() {
        zone.add(r);
    }
    Flow::Declined
}

fn report(_: &Served, main: &Slots, figures: &mut Figures) {
    for (name, zone) in &main.get::<VisitorsMain>().zones {
        let (requests, left_out) = zone.figures();
        figures.entry(name).put_all(&[("requests", requests), ("left_out", left_out)]);
    }
}

/// The zones of a generation, by their names.
pub(crate) fn zones(gen: &Generation) -> Vec<(Vec<u8>, Arc<Zone>)> {
    let Some(http) = gen.part::<HttpConf>() else { return Vec::new() };
    let zones = &http.main.get::<VisitorsMain>().zones;
    zones.iter().map(|(name, zone)| (name.clone(), Arc::clone(zone))).collect()
}

/// All of them as one object of JSON. It may take some milliseconds each.
pub(crate) fn json(zones: &[(Vec<u8>, Arc<Zone>)]) -> Vec<u8> {
    let mut out = b"{".to_vec();
    for (n, (name, zone)) in zones.iter().enumerate() {
        if n > 0 {
            out.push(b',');
        }
        weir_core::figures::write_text(&String::from_utf8_lossy(name), &mut out);
        out.push(b':');
        out.extend_from_slice(zone.shown().as_bytes());
    }
    out.push(b'}');
    out
}
