//! `status_zone` and what is counted of servers and locations (NGINX Plus's directive and figures).
//!
//! Every server is counted, under its name where it says nothing: nobody writes `status_zone` on the day on
//! which it is needed. A location is counted where it has the directive, as the one that answers. Each
//! worker counts into its own part ([`weir_core::counts`]), which its handle on the server keeps at hand.
//!
//! How long a request takes is from the turn of the event loop that brought its first bytes to the clock
//! when it is logged: what it waits for others in the same turn is a part of it.
//!
//! Difference from NGINX Plus: servers without a `status_zone` are there as well; `off`; latencies.

use crate::core_vars::shown_status;
use crate::counted::{cached, version_place, Requests, Zones, VERSIONS};
pub use crate::counted::{count_cached, CachedOf, CACHED};
use crate::generation::{LocationConf, Server, ServerConf};
use crate::module::HttpModule;
use crate::request::Request;
use crate::trace;
use crate::watched;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::counters::Counters;
use weir_core::counts::{Count, Counted, Exemplar, Handshakes, Near, OfTls, Statuses, Times, Took};
use weir_core::figures::{Figures, Report, Served};
use weir_core::listen::Reached;
use weir_module::{
    merged, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Slots,
};
use weir_runtime::clock;

const ROWS: &[Row] = &[Row::new(
    "status_zone",
    Context::SERVER.or(Context::LOCATION).or(Context::LIF),
    Arity::ONE,
    "",
    "Under which name the server or the location is counted for the status pages.",
    set_zone,
)
.note(
    "NGINX Plus's. A server without it is counted too, under its first name, or its first address where it has no \
     name; \"off\" (our own) counts nothing. Several with one name are counted together. A location without it is \
     not counted by itself.",
)];

/// The directive, what it counts in, and its figures.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[
        SlotVtable::of::<ZonesMain>(),
        SlotVtable::of::<ZoneSrv>(),
        // An `if` or `limit_except` block is its location; what has a name is counted by itself.
        SlotVtable {
            merge: |own, outer, unnamed| {
                merged(own, outer, |own: &mut ZoneLoc, outer: &ZoneLoc| {
                    if own.0.is_none() && unnamed {
                        own.0.clone_from(&outer.0);
                    }
                    Ok(())
                })
            },
            ..SlotVtable::of::<ZoneLoc>()
        },
    ],
    reports: &[
        Report { path: "requests", put: report_requests },
        Report { path: "server_zones", put: report_servers },
        Report { path: "location_zones", put: report_locations },
    ],
    ..HttpModule::EMPTY
};

/// What a `status_zone` says.
#[derive(Clone, Debug)]
enum Zone {
    Off,
    Named(Vec<u8>),
}

#[derive(Default)]
struct ZoneSrv(Option<Zone>);

impl ConfType for ZoneSrv {
    const LEVEL: Level = Level::Server;
    slot!();
}

#[derive(Default)]
struct ZoneLoc(Option<Zone>);

impl ConfType for ZoneLoc {
    const LEVEL: Level = Level::Location;
    slot!();
}

/// All that is counted, by names.
#[derive(Default)]
pub(crate) struct ZonesMain {
    servers: BTreeMap<Vec<u8>, Zones>,
    locations: BTreeMap<Vec<u8>, Zones>,
    tls: BTreeMap<Vec<u8>, Arc<Near<OfTls>>>,
}

impl ConfType for ZonesMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

fn set_zone(cf: &mut Cf, d: &Directive) -> ConfResult {
    let said = match d.arg(0) {
        b"" => return Err(d.bad(0, "a zone needs a name".to_string())),
        b"off" => Zone::Off,
        name => Zone::Named(name.to_vec()),
    };
    let zone = match cf.context == Context::SERVER {
        true => &mut cf.get::<ZoneSrv>().0,
        false => &mut cf.get::<ZoneLoc>().0,
    };
    match zone {
        Some(_) => Err(d.error("is duplicate")),
        None => {
            *zone = Some(said);
            Ok(())
        }
    }
}

impl ZonesMain {
    /// What a server is counted in.
    pub(crate) fn of_server(&mut self, slots: &Slots, reached: &Reached) -> Option<Zones> {
        let name = match &slots.get::<ZoneSrv>().0 {
            Some(Zone::Off) => return None,
            Some(Zone::Named(name)) => name.clone(),
            None => reached.shown_name(),
        };
        Some(named(&mut self.servers, "http server zone", name))
    }

    /// What the handshakes of a server that is counted there are counted in.
    pub(crate) fn handshakes(&mut self, zones: &Zones) -> Arc<Near<OfTls>> {
        let make = |name: &Vec<u8>| Arc::new(Near::named("http server zone tls", name));
        Arc::clone(self.tls.entry(zones.name().to_vec()).or_insert_with_key(make))
    }

    /// The same of a location.
    pub(crate) fn of_location(&mut self, slots: &Slots) -> Option<Zones> {
        match &slots.get::<ZoneLoc>().0 {
            Some(Zone::Named(name)) => {
                Some(named(&mut self.locations, "http location zone", name.clone()))
            }
            _ => None,
        }
    }
}

fn named(all: &mut BTreeMap<Vec<u8>, Zones>, kind: &'static str, name: Vec<u8>) -> Zones {
    let zones = all.entry(name).or_insert_with_key(|name| Counted::named(kind, name));
    Arc::clone(zones)
}

#[inline]
fn of_server(r: &Request) -> Option<&Requests> {
    let server: &Rc<Server> = r.server();
    let conf: &ServerConf = server;
    server.part.get(&conf.zones, &r.conn().worker)
}

/// Those that are not counted look for no part.
#[inline]
fn of_location(r: &Request) -> Option<&Requests> {
    let location = r.loc();
    let conf: &LocationConf = location;
    conf.zones.as_ref()?;
    location.part.get(&conf.zones, &r.conn().worker)
}

/// A request whose head has been read is about to be answered.
#[inline]
pub(crate) fn begins(r: &mut Request) {
    r.flags.counted = true;
    if trace::is_wanted() {
        trace::begins(r);
    }
    if let Some(server) = of_server(r) {
        server.begun.add(1);
    }
}

/// Its server is another one than it began with.
#[cold]
pub(crate) fn moves(r: &mut Request, to: &Rc<Server>) {
    if !r.flags.counted {
        return;
    }
    if let Some(server) = of_server(r) {
        server.begun.sub(1);
    }
    let conf: &ServerConf = to;
    if let Some(server) = to.part.get(&conf.zones, &r.conn().worker) {
        server.begun.add(1);
    }
}

/// It is over. Parts of a page and what runs behind answers are no client's requests.
#[inline]
pub(crate) fn ends(r: &mut Request) {
    if r.is_part() {
        return;
    }
    let had_begun = std::mem::take(&mut r.flags.counted);
    let cached = cached(r);
    let (location, server) = (of_location(r), of_server(r));
    if location.is_none() && server.is_none() && !watched::is_wanted() {
        return;
    }
    let ended = Ended::of(r, cached);
    watched::ended(r, ended.status, ended.took_us);
    let took = ended.took_us.map(Took::new);
    if let Some(zone) = location {
        zone.begun.add(1);
        ended.count(zone, &took);
    }
    if let Some(zone) = server {
        if !had_begun {
            zone.begun.add(1);
        }
        ended.count(zone, &took);
    }
    r.took_us = ended.took_us.unwrap_or(0);
}

/// Notes whose trace shows how long a request took that is over. For who has sent its span.
pub fn note(r: &Request, trace: [u8; 16], span: [u8; 8], wall_ms: u64) {
    if !r.is_timed() || r.is_part() {
        return;
    }
    let exemplar = Exemplar { trace, span, us: r.took_us, wall_ms };
    if let Some(zone) = of_location(r) {
        zone.latency.note(&exemplar);
    }
    if let Some(zone) = of_server(r) {
        zone.latency.note(&exemplar);
    }
}

/// What is counted of a request at its end.
struct Ended {
    version: usize,
    cached: Option<usize>,
    /// As logs show it; 0 where they have none.
    status: u16,
    is_answered: bool,
    received: u64,
    sent: u64,
    took_us: Option<u64>,
}

impl Ended {
    #[inline]
    fn of(r: &Request, cached: Option<usize>) -> Ended {
        let timed = r.is_timed();
        Ended {
            version: version_place(r.version()),
            cached,
            status: shown_status(r),
            is_answered: r.flags.header_sent,
            received: r.received,
            sent: r.bytes_sent(),
            took_us: timed.then(|| clock::now_us().saturating_sub(r.start_us)),
        }
    }

    #[inline]
    fn count(&self, zone: &Requests, took: &Option<Took>) {
        zone.received.add(self.received);
        zone.sent.add(self.sent);
        match self.status {
            0 => zone.nameless.add(1),
            status => {
                zone.statuses.add(status);
                zone.versions[self.version].add(1);
            }
        }
        if let Some(count) = self.cached.and_then(|at| zone.cached.get(at)) {
            count.add(1);
        }
        if !self.is_answered {
            zone.discarded.add(1);
        }
        if let Some(took) = took {
            zone.latency.add_one(took);
        }
        if let Some(us) = self.took_us {
            zone.average.add(us);
        }
    }
}

/// Those of all servers, as they are counted where they begin.
fn report_requests(served: &Served, _: &Slots, figures: &mut Figures) {
    let sum = |pick: fn(&Counters) -> &std::sync::atomic::AtomicU64| served.all.sum(pick);
    figures.put("total", sum(|c| &c.requests));
    figures.put("current", sum(|c| &c.writing) + sum(|c| &c.reading));
}

fn report_servers(_: &Served, main: &Slots, figures: &mut Figures) {
    let all = main.get::<ZonesMain>();
    for (name, zones) in &all.servers {
        let figures = figures.entry(name);
        let ended = |z: &Requests| z.statuses.total() + z.nameless.get();
        figures.put("processing", zones.now(|z| z.begun.get(), ended));
        report_zone(zones, figures);
        if let Some(tls) = all.tls.get(name) {
            Handshakes::put_if_any(tls.all(), |t| &t.0, figures, "ssl");
        }
    }
}

fn report_locations(_: &Served, main: &Slots, figures: &mut Figures) {
    for (name, zones) in &main.get::<ZonesMain>().locations {
        report_zone(zones, figures.entry(name));
    }
}

/// How long requests took lately, as each worker has seen it by the number of its requests; a process that has served
/// none yet has only the mean of all.
fn lately_ms(parts: &[(usize, Arc<Requests>)], all: &Times) -> u64 {
    let (mut sum_us, mut count) = (0u128, 0u128);
    for (_, part) in parts {
        let (us, n) = (part.average.us(), u128::from(part.statuses.total().max(1)));
        if us > 0 {
            sum_us += u128::from(us) * n;
            count += n;
        }
    }
    let us = match count {
        0 => all.sum_us() / all.count().max(1),
        _ => u64::try_from(sum_us / count).unwrap_or(u64::MAX),
    };
    (us + 500) / 1000
}

fn report_zone(zones: &Counted<Requests>, figures: &mut Figures) {
    // There may be thousands of zones: each is locked once.
    let parts = zones.parts();
    let sum = |pick: fn(&Requests) -> &Count| {
        parts.iter().map(|(_, z)| pick(z).get()).fold(0, u64::wrapping_add)
    };
    figures.put("requests", sum(|z| &z.begun));
    Statuses::put(&parts, |z| &z.statuses, figures.group("responses"));
    figures.put("discarded", sum(|z| &z.discarded));
    figures.put("received", sum(|z| &z.received));
    figures.put("sent", sum(|z| &z.sent));
    let cached = CACHED.into_iter().enumerate();
    let cached: Vec<_> = cached
        .map(|(n, name)| (name, parts.iter().map(|(_, z)| z.cached[n].get()).sum::<u64>()))
        .collect();
    if cached.iter().any(|(_, n)| *n > 0) {
        figures.group("cached").put_all(&cached);
    }
    let versions = figures.group("protocols");
    for (n, name) in VERSIONS.into_iter().enumerate() {
        versions.put(name, parts.iter().map(|(_, z)| z.versions[n].get()).sum::<u64>());
    }
    let mut latency = Times::default();
    parts.iter().for_each(|(_, part)| latency.add(&part.latency));
    if latency.count() > 0 {
        figures.put("request_time", lately_ms(&parts, &latency));
    }
    figures.put("latency", latency);
}
