//! From the tree to metrics: which of its names are labels, and what its figures are.

use super::families::{with, Families, Kind, Labels, Sample};
use std::borrow::Cow;
use std::rc::Rc;
use weir_core::figures::{Figure, Figures};

/// What stands at a path: how its metrics begin, and under which label its names are, if it has many.
struct Rule {
    path: &'static str,
    prefix: &'static str,
    label: Option<&'static str>,
}

const fn rule(path: &'static str, prefix: &'static str, label: Option<&'static str>) -> Rule {
    Rule { path, prefix, label }
}

const RULES: &[Rule] = &[
    rule("http/requests", "weir_requests", None),
    rule("http/analytics_zones", "weir_http_analytics_zone", Some("zone")),
    rule("http/server_zones", "weir_http", Some("server")),
    rule("http/location_zones", "weir_http_location", Some("location")),
    rule("http/caches", "weir_http_cache", Some("cache")),
    rule("http/limit_conns", "weir_http_limit_conn", Some("zone")),
    rule("http/limit_reqs", "weir_http_limit_req", Some("zone")),
    rule("http/upstreams", "weir_http_upstream", Some("upstream")),
    rule("stream/server_zones", "weir_stream", Some("server")),
    rule("stream/limit_conns", "weir_stream_limit_conn", Some("zone")),
    rule("stream/upstreams", "weir_stream_upstream", Some("upstream")),
    rule("resolvers", "weir_resolver", Some("resolver")),
    rule("slabs", "weir_slab", Some("zone")),
    rule("workers", "weir_worker", Some("worker")),
    rule("ship", "weir_ship", Some("receiver")),
];

/// What is counted over the end of a process (`weir_core::counts`); the other figures begin at 0 with each.
const KEPT: &[&str] = &[
    "connections",
    "ssl",
    "http/requests",
    "http/server_zones",
    "http/location_zones",
    "http/caches",
    "http/limit_conns",
    "http/limit_reqs",
    "http/upstreams",
    "stream/server_zones",
    "stream/limit_conns",
    "stream/upstreams",
];

/// Whether what stands at a path is counted over the end of a process.
pub(super) fn is_kept(path: &str) -> bool {
    KEPT.contains(&path)
}

/// What tells how it is now; all other numbers only grow.
const GAUGES: &[&str] = &[
    "active",
    "idle",
    "reading",
    "writing",
    "waiting",
    "current",
    "processing",
    "size",
    "max_size",
    "weight",
    "effective_weight",
    "max_conns",
    "keepalive",
    "zombies",
    "generation",
    "used",
    "free",
    "down",
    "backup",
    "unhealthy",
    "entries",
    "entries_max",
    "size_bytes",
    "used_bytes",
    "file_bytes",
    "file_bytes_max",
    "is_loading",
    "memory_bytes",
    "memory_bytes_max",
    "queued_bytes",
    "queued_events",
    "held_bytes",
    "max_bytes",
];

/// Figures that name things, or that others add up to: they are no metrics.
const NOT_SHOWN: &[&str] =
    &["id", "pid", "ppid", "response_time_hist", "max_fails", "fail_timeout"];

/// Bytes, whose names do not say it.
const BYTES: &[&str] = &["received", "sent", "size", "max_size"];

/// Milliseconds, and whether they only grow.
const MILLIS: &[(&str, bool)] = &[
    ("turn", false),
    ("request_time", false),
    ("header_time", false),
    ("response_time", false),
    ("connect_time", false),
    ("first_byte_time", false),
    ("downtime", true),
    ("busy_time", true),
    ("queued_time", true),
    ("oldest_age", false),
    ("failing_for", false),
];

/// Groups whose names are a label, and not a part of the metric's name.
const LABELLED: &[(&str, &str)] = &[
    ("codes", "code"),
    ("verify_failures", "reason"),
    ("slots", "slot"),
    ("protocols", "protocol"),
    ("ciphers", "cipher"),
    ("evictions", "reason"),
    ("cached", "status"),
];

/// Where the walk is.
#[derive(Clone)]
struct At<'p> {
    prefix: Cow<'p, str>,
    labels: Labels,
    path: &'p str,
}

impl<'p> At<'p> {
    fn below(&self, name: &str) -> At<'p> {
        self.below_with_unit(name, "")
    }

    fn below_with_unit(&self, name: &str, unit: &str) -> At<'p> {
        let mut prefix = String::with_capacity(self.prefix.len() + 1 + name.len() + unit.len());
        prefix.push_str(&self.prefix);
        prefix.push('_');
        push_word(&mut prefix, name);
        prefix.push_str(unit);
        At { prefix: prefix.into(), labels: Rc::clone(&self.labels), path: self.path }
    }

    fn labelled(&self, label: &str, value: &str) -> At<'p> {
        let labels = with(&self.labels, label, value);
        At { prefix: self.prefix.clone(), labels, path: self.path }
    }
}

/// As names of metrics are.
fn push_word(out: &mut String, name: &str) {
    match name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_') {
        true => out.push_str(name),
        false => out.extend(name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' })),
    }
}

fn no_labels() -> Labels {
    Rc::from("")
}

/// Makes metrics of the whole tree.
pub(super) fn walk<'a>(tree: &'a Figures, out: &mut Families<'a>) {
    for (name, figure) in tree.iter() {
        match (name, figure) {
            ("nginx", Figure::Group(program)) => about(program, out),
            ("http" | "stream", Figure::Group(block)) => {
                block
                    .iter()
                    .for_each(|(inner, figure)| place(&format!("{name}/{inner}"), figure, out));
            }
            _ => place(name, figure, out),
        }
    }
}

fn about(program: &Figures, out: &mut Families<'_>) {
    if let Some(Figure::Text(version)) = program.get("version") {
        let labels = with("", "version", version);
        out.add("weir_build", Kind::Info, "the program", &labels, Sample::Number(1));
    }
    let number = Sample::Number(program.number("generation"));
    out.add("weir_generation", Kind::Gauge, "loaded configurations", &no_labels(), number);
}

fn place<'a>(path: &str, figure: &'a Figure, out: &mut Families<'a>) {
    let Some(rule) = RULES.iter().find(|rule| rule.path == path) else {
        let mut prefix = "weir_".to_string();
        push_word(&mut prefix, path);
        let at = At { prefix: prefix.into(), labels: no_labels(), path };
        return one(&at, figure, out);
    };
    let at = At { prefix: rule.prefix.into(), labels: no_labels(), path };
    match (rule.label, figure) {
        (Some(label), Figure::Group(all)) => {
            all.iter().for_each(|(name, inner)| one(&at.labelled(label, name), inner, out));
        }
        (Some(label), Figure::List(all)) => list(&at, label, all, out),
        _ => one(&at, figure, out),
    }
}

/// Things that are told apart by their numbers.
fn list<'a>(at: &At<'_>, label: &str, all: &'a [Figure], out: &mut Families<'a>) {
    for (n, figure) in all.iter().enumerate() {
        let Figure::Group(group) = figure else { continue };
        let id = group.get("id").map_or(n as u64, |_| group.number("id")).to_string();
        let mut at = at.clone();
        // A server's address says more than its number, but two may have the same.
        if let Some(Figure::Text(server)) = group.get("server") {
            at = at.labelled("server", server);
        }
        inside(&at.labelled(label, &id), group, out);
    }
}

fn one<'a>(at: &At<'_>, figure: &'a Figure, out: &mut Families<'a>) {
    match figure {
        Figure::Group(group) => inside(at, group, out),
        Figure::Times(times) => {
            let name = format!("{}_seconds", at.prefix);
            out.add(&name, Kind::Histogram, at.path, &at.labels, Sample::Times(times));
        }
        Figure::Number(n) => {
            out.add(&at.prefix, Kind::Counter, at.path, &at.labels, Sample::Number(*n));
        }
        _ => {}
    }
}

fn inside<'a>(at: &At<'_>, group: &'a Figures, out: &mut Families<'a>) {
    for (name, figure) in group.iter().filter(|(name, _)| !NOT_SHOWN.contains(name)) {
        match figure {
            Figure::Number(n) => number(at, name, *n, out),
            Figure::Real(x) if x.is_finite() => {
                let at = at.below(name);
                out.add(&at.prefix, Kind::Gauge, at.path, &at.labels, Sample::Real(*x));
            }
            Figure::Flag(yes) => {
                let (at, n) = (at.below(name), u64::from(*yes));
                out.add(&at.prefix, Kind::Gauge, at.path, &at.labels, Sample::Number(n));
            }
            Figure::Text(text) if name == "state" => {
                let at = at.below(name).labelled("state", text);
                out.add(&at.prefix, Kind::Gauge, at.path, &at.labels, Sample::Number(1));
            }
            Figure::Times(_) => one(&at.below(name), figure, out),
            Figure::Group(inner) => below(at, name, inner, out),
            Figure::List(all) => {
                list(&at.below(name.strip_suffix('s').unwrap_or(name)), "id", all, out)
            }
            Figure::Real(_) | Figure::Text(_) => {}
        }
    }
}

fn below<'a>(at: &At<'_>, name: &str, inner: &'a Figures, out: &mut Families<'a>) {
    match name {
        // Statuses one by one, each from the first answer with it on; classes, which are their sums, from the start:
        // the first 502 is seen by who looks at how fast they grow.
        "responses" => match inner.get("codes") {
            Some(Figure::Group(codes)) => {
                labelled(&at.below(name), "code", codes, out);
                classes(&at.below("responses_by_class"), inner, out);
            }
            _ => classes(&at.below(name), inner, out),
        },
        "sessions" => classes(&at.below(name), inner, out),
        _ => match LABELLED.iter().find(|(group, _)| *group == name) {
            Some((_, label)) => labelled(&at.below(name), label, inner, out),
            None => inside(&at.below(name), inner, out),
        },
    }
}

fn labelled<'a>(at: &At<'_>, label: &str, group: &'a Figures, out: &mut Families<'a>) {
    group.iter().for_each(|(name, figure)| one(&at.labelled(label, name), figure, out));
}

fn classes<'a>(at: &At<'_>, group: &'a Figures, out: &mut Families<'a>) {
    let all = group.iter().filter(|(name, _)| name.ends_with("xx"));
    all.for_each(|(name, figure)| one(&at.labelled("class", name), figure, out));
}

/// Units stand at the end of names: as other systems write them where the tree does not.
const OTHERWISE: &[(&str, &str)] = &[
    ("busy_ms", "turn"),
    ("bytes_sent", "sent_bytes"),
    ("file_bytes_max", "file_max_bytes"),
    ("memory_bytes_max", "memory_max_bytes"),
];

fn number(at: &At<'_>, name: &str, n: u64, out: &mut Families<'_>) {
    let is_gauge = GAUGES.contains(&name);
    let name = OTHERWISE.iter().find(|(own, _)| *own == name).map_or(name, |(_, said)| said);
    if let Some((_, grows)) = MILLIS.iter().find(|(millis, _)| *millis == name) {
        let kind = if *grows { Kind::Counter } else { Kind::Gauge };
        let at = at.below_with_unit(name, "_seconds");
        return out.add(&at.prefix, kind, at.path, &at.labels, Sample::Millis(n));
    }
    let kind = if is_gauge { Kind::Gauge } else { Kind::Counter };
    let at = match name {
        // `_total` is behind it anyway.
        "total" => at.clone(),
        // A queue's places are requests.
        _ if BYTES.contains(&name) && !at.prefix.ends_with("_queue") => {
            at.below_with_unit(name, "_bytes")
        }
        _ => at.below(name),
    };
    out.add(&at.prefix, kind, at.path, &at.labels, Sample::Number(n));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_become_labels_and_figures_their_kinds() {
        let mut tree = Figures::default();
        let zone = tree.group("http").group("server_zones").entry(b"a\"b");
        zone.put_all(&[("processing", 1), ("requests", 2), ("sent", 3)]);
        zone.group("responses").put_all(&[("2xx", 2), ("total", 2)]);
        zone.group("responses").group("codes").put_all(&[("200", 2)]);
        let mut peer = Figures::default();
        peer.put_all(&[("id", 4), ("requests", 5), ("downtime", 1500), ("header_time", 7)]);
        peer.put("server", "127.0.0.1:1");
        peer.put("state", "up");
        peer.put("backup", false);
        let upstream = tree.group("http").group("upstreams").entry(b"u");
        upstream.put("peers", Figure::List(vec![peer.into()]));
        upstream.put("keepalive", 6);
        tree.group("http").group("requests").put_all(&[("total", 8), ("current", 1)]);
        tree.group("own").put("things", 9);
        let mut out = Families::default();
        walk(&tree, &mut out);
        let text = String::from_utf8(out.text(false)).unwrap();
        for expected in [
            "weir_http_processing{server=\"a\\\"b\"} 1",
            "weir_http_requests_total{server=\"a\\\"b\"} 2",
            "weir_http_sent_bytes_total{server=\"a\\\"b\"} 3",
            "weir_http_responses_total{server=\"a\\\"b\",code=\"200\"} 2",
            "weir_http_responses_by_class_total{server=\"a\\\"b\",class=\"2xx\"} 2",
            "weir_http_upstream_peer_requests_total{upstream=\"u\",server=\"127.0.0.1:1\",id=\"4\"} 5",
            "weir_http_upstream_peer_downtime_seconds_total{upstream=\"u\",server=\"127.0.0.1:1\",id=\"4\"} 1.5",
            "weir_http_upstream_peer_header_time_seconds{upstream=\"u\",server=\"127.0.0.1:1\",id=\"4\"} 0.007",
            "weir_http_upstream_peer_state{upstream=\"u\",server=\"127.0.0.1:1\",id=\"4\",state=\"up\"} 1",
            "weir_http_upstream_peer_backup{upstream=\"u\",server=\"127.0.0.1:1\",id=\"4\"} 0",
            "weir_http_upstream_keepalive{upstream=\"u\"} 6",
            "weir_requests_total 8",
            "weir_requests_current 1",
            "weir_own_things_total 9",
        ] {
            assert!(text.lines().any(|line| line == expected), "{expected}\n{text}");
        }
        // A sum over a metric counts nothing twice.
        let twice = |l: &str| l.starts_with("weir_http_responses_total") && l.contains("2xx");
        assert!(!text.lines().any(twice), "{text}");
    }
}
