//! The JSON of nginx-module-vts, for who scrapes it: `vhost_traffic_status_display`. What is counted is what the API shows;
//! the names, and what stands where, are those of the module's version 0.2.
//!
//! Differences: everything is counted in any case, so that `vhost_traffic_status_zone` has nothing to switch on, and its size
//! bounds nothing; there are no filters, no limits and no page: the other directives of the module are refused with what to
//! write. Series of the last times (`requestMsecs`) are empty, and counters have 64 bits (`overCounts` are 0).

use crate::tree::gather;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use weir_base::units;
use weir_core::figures::{Figure, Figures};
use weir_core::{LocalFuture, SERVER_VERSION};
use weir_http::body;
use weir_http::conf::CoreLoc;
use weir_http::module::{Flow, HttpModule};
use weir_http::{long_text, special, Request};
use weir_module::{
    merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Val,
};
use weir_runtime::{clock, process};
use weir_wire::http1::request::Method;

const ROWS: &[Row] = &[
    Row::new(
        "vhost_traffic_status_zone",
        Context::HTTP,
        Arity::NONE_ONE,
        "",
        "Takes nginx-module-vts's zone: servers, upstreams and caches are counted in any case.",
        set_zone,
    )
    .note("Figures need no zone: its size bounds nothing. status_zone names what is counted, and \"status_zone off\" counts nothing."),
    Row::new(
        "vhost_traffic_status_display",
        Context::SERVER.or(Context::LOCATION),
        Arity::NONE,
        "",
        "Answers with what is counted, in nginx-module-vts's JSON.",
        |cf, _| {
            cf.get::<CoreLoc>().handler = Some(handler);
            Ok(())
        },
    )
    .note(
        "For who scrapes it. There is no page, no filter, no control and no Prometheus format: dashboard, api and metrics \
         are these. Requests for /format/json get the same. Servers without a name, or called _, are one, \"_\". requestMsec and \
         responseMsec are moving averages of each worker, put together by their requests: each time is one part in 32 (of \
         upstreams' servers 16) where the module has the mean of the last 64. requestMsecs and responseMsecs are empty.",
    ),
    Row::new(
        "vhost_traffic_status_histogram_buckets",
        Context::HS.or(Context::LOCATION),
        Arity::ONE_MORE,
        "",
        "Up to which times, in seconds, vhost_traffic_status_display counts requests (requestBuckets, responseBuckets).",
        set_buckets,
    )
    .note("That of the location that shows them counts. A count is exact at 0.0005, 0.001, 0.0025, and so on to 10, elsewhere to a part in 32 of the time."),
    Row::new(
        "vhost_traffic_status_display_format",
        Context::HS.or(Context::LOCATION),
        Arity::ONE,
        "json",
        "The format of vhost_traffic_status_display: json.",
        set_format,
    )
    .note("Others are refused with the directive to write."),
];

/// The directives.
pub const MODULE: HttpModule =
    HttpModule { rows: ROWS, slots: &[SlotVtable::of::<VtsLoc>()], ..HttpModule::EMPTY };

/// Bounds of buckets, in milliseconds.
#[derive(Default)]
struct VtsLoc {
    buckets: Val<Arc<[u64]>>,
}

impl ConfType for VtsLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, outer: &VtsLoc) -> ConfResult {
        merge_values!(self, outer; buckets = Arc::from([]));
        Ok(())
    }
}

/// The module's own bound.
const BUCKETS_MAX: usize = 32;
/// A thousand years.
const BUCKET_MAX_MS: u64 = 31_557_600_000_000;

fn set_buckets(cf: &mut Cf, d: &Directive) -> ConfResult {
    if d.args.len() > BUCKETS_MAX {
        return Err(d.fail(format!("more than {BUCKETS_MAX} buckets")));
    }
    let mut bounds = Vec::new();
    for i in 0..d.args.len() {
        let ms = units::parse_fixed(d.arg(i), 3).filter(|ms| *ms > 0);
        let ms = ms.ok_or_else(|| d.invalid(i).hint("write seconds, as 0.005".to_string()))?;
        if ms > BUCKET_MAX_MS {
            return Err(d.bad(i, "a request never takes that long").hint(format!(
                "leave it out: the last bucket may be up to {} seconds",
                BUCKET_MAX_MS / 1000
            )));
        }
        if bounds.last().is_some_and(|last| *last >= ms) {
            return Err(d.bad(i, "each is to be more than the one before"));
        }
        bounds.push(ms);
    }
    cf.get::<VtsLoc>().buckets.once(d, Arc::from(bounds))
}

fn set_zone(_: &mut Cf, d: &Directive) -> ConfResult {
    let is_zone = |text: &[u8]| {
        let mut parts = text.splitn(3, |b| *b == b':');
        let has_name =
            parts.next() == Some(b"shared") && parts.next().is_some_and(|n| !n.is_empty());
        has_name && parts.next().is_some_and(|size| weir_base::units::parse_size(size).is_some())
    };
    match d.args.first() {
        Some(arg) if !is_zone(&arg.text) => {
            let e = d.invalid(0);
            Err(e.hint("write \"vhost_traffic_status_zone;\"".to_string()))
        }
        _ => Ok(()),
    }
}

fn set_format(_: &mut Cf, d: &Directive) -> ConfResult {
    let instead = match d.arg(0) {
        b"json" => return Ok(()),
        b"html" => "write \"dashboard;\" in a location, or the format json",
        b"prometheus" => "write \"metrics;\" in a location, or the format json",
        _ => "write the format json",
    };
    Err(d.invalid(0).hint(instead.to_string()))
}

fn handler(r: &mut Request) -> Flow {
    if !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    let behind = r.uri.iter().rposition(|b| *b == b'/').map(|at| &r.uri[at + 1..]);
    if r.uri.windows(8).any(|part| part == b"/format/") && behind != Some(b"json") {
        return Flow::Status(404);
    }
    Flow::Wait(show)
}

fn show(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let (gen, all) = (Arc::clone(&r.gen().core), Arc::clone(&r.conn().worker.all));
        let buckets = Arc::clone(&r.loc().conf::<VtsLoc>().buckets);
        let making = long_text::made(r, move || {
            let mut text = Vec::new();
            shown(&gather(&gen, &all, ""), gen.loaded, &buckets).write_json(&mut text);
            Ok::<_, Infallible>(text)
        });
        match making.await {
            Err(status) => Flow::Status(status),
            Ok(Ok(text)) => {
                r.out.status = 200;
                r.out.set(b"Cache-Control", b"no-store");
                r.out.set_content_type(b"application/json");
                let body = long_text::whole(r, text);
                special::finish(r, body)
            }
        }
    })
}

fn msec((secs, ms): (i64, u32)) -> u64 {
    u64::try_from(secs).unwrap_or(0) * 1000 + u64::from(ms)
}

fn shown(tree: &Figures, loaded: (i64, u32), bounds_ms: &[u64]) -> Figures {
    let mut all = Figures::default();
    all.put("hostName", process::hostname());
    all.put("moduleVersion", "v0.2.4");
    all.put("nginxVersion", SERVER_VERSION.split('/').next_back().unwrap_or_default());
    all.put("loadMsec", msec(loaded));
    all.put("nowMsec", msec(clock::wall()));
    let none = Figures::default();
    let group = |of: &'_ Figures, name: &str| match of.get(name) {
        Some(Figure::Group(group)) => group.clone(),
        _ => Figures::default(),
    };
    let counted = group(tree, "connections");
    let connections = all.group("connections");
    let active = counted.number("active") + counted.number("idle");
    connections.put_all(&[
        ("active", active),
        ("reading", counted.number("reading")),
        ("writing", counted.number("writing")),
        ("waiting", counted.number("idle")),
        ("accepted", counted.number("accepted")),
        ("handled", counted.number("handled")),
        ("requests", counted.number("requests")),
    ]);
    let zones = all.group("sharedZones");
    zones.put("name", "ngx_http_vhost_traffic_status");
    zones.put_all(&[("maxSize", 0), ("usedSize", 0), ("usedNode", 0)]);
    let http = group(tree, "http");
    let mut sum = Figures::default();
    let mut named = BTreeMap::<String, Figures>::new();
    for (name, figure) in group(&http, "server_zones").iter() {
        let Figure::Group(zone) = figure else { continue };
        let one = server(zone, bounds_ms);
        add(&mut sum, &one);
        add(named.entry(shown_name(name).to_string()).or_default(), &one);
    }
    let servers = all.group("serverZones");
    named.into_iter().for_each(|(name, one)| servers.put(name, one));
    servers.put("*", if sum.is_empty() { server(&none, bounds_ms) } else { sum });
    let upstreams = all.group("upstreamZones");
    for (name, figure) in group(&http, "upstreams").iter() {
        let Figure::Group(upstream) = figure else { continue };
        let Some(Figure::List(peers)) = upstream.get("peers") else { continue };
        let peers = peers.iter().filter_map(|one| match one {
            Figure::Group(one) => Some(Figure::Group(peer(one, bounds_ms))),
            _ => None,
        });
        upstreams.put(name.to_string(), Figure::List(peers.collect()));
    }
    let caches = all.group("cacheZones");
    for (name, figure) in group(&http, "caches").iter() {
        let Figure::Group(one) = figure else { continue };
        caches.put(name.to_string(), cache(one));
    }
    all
}

/// Servers without a name are called by their addresses where they are counted; the module has all of them as one.
fn shown_name(name: &str) -> &str {
    let is_address = name.parse::<SocketAddr>().is_ok()
        || name.strip_prefix("*:").is_some_and(|port| port.parse::<u16>().is_ok())
        || name.starts_with("unix:");
    if is_address {
        "_"
    } else {
        name
    }
}

const CLASSES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
const CACHED: [&str; 8] =
    ["miss", "bypass", "expired", "stale", "updating", "revalidated", "hit", "scarce"];

/// How long in all, in milliseconds.
fn sum_ms(of: Option<&Figure>) -> u64 {
    match of {
        Some(Figure::Times(times)) => times.sum_us() / 1000,
        _ => 0,
    }
}

/// The last times, which are not kept, and how many were up to each of the bounds.
fn series(to: &mut Figures, names: [&'static str; 2], took: Option<&Figure>, bounds_ms: &[u64]) {
    let empty = || Figure::List(Vec::new());
    let group = to.group(names[0]);
    group.put("times", empty());
    group.put("msecs", empty());
    let group = to.group(names[1]);
    let up_to = |ms: &u64| match took {
        Some(Figure::Times(took)) => took.up_to_us(ms * 1000),
        _ => 0,
    };
    let list = |all: Vec<u64>| Figure::List(all.into_iter().map(Figure::Number).collect());
    group.put("msecs", list(bounds_ms.to_vec()));
    group.put("counters", list(bounds_ms.iter().map(up_to).collect()));
}

fn classes(zone: &Figures, to: &mut Figures) {
    let Some(Figure::Group(responses)) = zone.get("responses") else {
        return CLASSES.into_iter().for_each(|class| to.put(class, 0));
    };
    CLASSES.into_iter().for_each(|class| to.put(class, responses.number(class)));
}

fn server(zone: &Figures, bounds_ms: &[u64]) -> Figures {
    let mut one = Figures::default();
    let answered = zone.number("requests").saturating_sub(zone.number("processing"));
    one.put("requestCounter", answered);
    one.put("inBytes", zone.number("received"));
    one.put("outBytes", zone.number("sent"));
    let responses = one.group("responses");
    classes(zone, responses);
    let cached = |status: &str| match zone.get("cached") {
        Some(Figure::Group(cached)) => cached.number(status),
        _ => 0,
    };
    CACHED.into_iter().for_each(|status| responses.put(status, cached(status)));
    one.put("requestMsecCounter", sum_ms(zone.get("latency")));
    one.put("requestMsec", zone.number("request_time"));
    series(&mut one, ["requestMsecs", "requestBuckets"], zone.get("latency"), bounds_ms);
    let over = one.group("overCounts");
    over.put_all(&[
        ("maxIntegerSize", u64::MAX),
        ("requestCounter", 0),
        ("inBytes", 0),
        ("outBytes", 0),
    ]);
    CLASSES.into_iter().chain(CACHED).for_each(|name| over.put(name, 0));
    over.put("requestMsecCounter", 0);
    one
}

/// Adds numbers of the same names; averages by how many requests they are of.
fn add(sum: &mut Figures, one: &Figures) {
    if sum.is_empty() {
        *sum = one.clone();
        return;
    }
    let weighed = |of: &Figures| {
        let (ms, n) = (of.number("requestMsec"), of.number("requestCounter"));
        u128::from(ms) * u128::from(n)
    };
    let all = weighed(sum) + weighed(one);
    sum_up(sum, one);
    let average = all / u128::from(sum.number("requestCounter").max(1));
    let average = u64::try_from(average).unwrap_or(u64::MAX);
    for (name, figure) in sum.iter_mut() {
        match (name, figure) {
            ("requestMsec", Figure::Number(n)) => *n = average,
            ("overCounts", Figure::Group(over)) => {
                let most = over.iter_mut().find(|(name, _)| *name == "maxIntegerSize");
                most.into_iter().for_each(|(_, figure)| *figure = Figure::Number(u64::MAX));
            }
            _ => {}
        }
    }
}

fn sum_up(sum: &mut Figures, one: &Figures) {
    for (name, figure) in sum.iter_mut() {
        match (figure, one.get(name)) {
            (Figure::Number(sum), Some(Figure::Number(n))) => *sum = sum.saturating_add(*n),
            (Figure::Group(sum), Some(Figure::Group(one))) => sum_up(sum, one),
            (Figure::List(sum), Some(Figure::List(one))) if name == "counters" => {
                for (sum, one) in sum.iter_mut().zip(one) {
                    if let (Figure::Number(sum), Figure::Number(n)) = (sum, one) {
                        *sum += n;
                    }
                }
            }
            _ => {}
        }
    }
}

fn peer(of: &Figures, bounds_ms: &[u64]) -> Figures {
    let mut one = Figures::default();
    let text = |name: &str| match of.get(name) {
        Some(Figure::Text(text)) => text.clone(),
        _ => String::new(),
    };
    one.put("server", text("server"));
    one.put("requestCounter", of.number("requests").saturating_sub(of.number("active")));
    // The module counts what clients sent and got, which is what goes to the server and what comes from it.
    one.put("inBytes", of.number("sent"));
    one.put("outBytes", of.number("received"));
    classes(of, one.group("responses"));
    let latency = match of.get("latency") {
        Some(Figure::Group(latency)) => latency.clone(),
        _ => Figures::default(),
    };
    // Its module has the whole try for both.
    let (sum_ms, average_ms) = (sum_ms(latency.get("response")), of.number("response_time"));
    for (counter, average, names) in [
        ("requestMsecCounter", "requestMsec", ["requestMsecs", "requestBuckets"]),
        ("responseMsecCounter", "responseMsec", ["responseMsecs", "responseBuckets"]),
    ] {
        one.put(counter, sum_ms);
        one.put(average, average_ms);
        series(&mut one, names, latency.get("response"), bounds_ms);
    }
    one.put("weight", of.number("weight"));
    one.put("maxFails", of.number("max_fails"));
    one.put("failTimeout", of.number("fail_timeout"));
    one.put("backup", of.get("backup") == Some(&Figure::Flag(true)));
    one.put("down", matches!(text("state").as_str(), "down" | "unhealthy" | "unavail"));
    let over = one.group("overCounts");
    over.put_all(&[
        ("maxIntegerSize", u64::MAX),
        ("requestCounter", 0),
        ("inBytes", 0),
        ("outBytes", 0),
    ]);
    CLASSES.into_iter().for_each(|name| over.put(name, 0));
    over.put_all(&[("requestMsecCounter", 0), ("responseMsecCounter", 0)]);
    one
}

fn cache(of: &Figures) -> Figures {
    let mut one = Figures::default();
    one.put("maxSize", of.number("max_size"));
    one.put("usedSize", of.number("size"));
    let group = |name: &str, what: &str| match of.get(name) {
        Some(Figure::Group(group)) => group.number(what),
        _ => 0,
    };
    let asked = ["miss", "bypass", "expired"];
    one.put("inBytes", asked.iter().map(|name| group(name, "bytes")).sum::<u64>());
    one.put("outBytes", CACHED.iter().map(|name| group(name, "bytes")).sum::<u64>());
    let responses = one.group("responses");
    CACHED.into_iter().for_each(|name| responses.put(name, group(name, "responses")));
    let over = one.group("overCounts");
    over.put_all(&[("maxIntegerSize", u64::MAX), ("inBytes", 0), ("outBytes", 0)]);
    CACHED.into_iter().for_each(|name| over.put(name, 0));
    one
}
