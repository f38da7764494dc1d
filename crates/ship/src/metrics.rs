//! `ship_metrics`: the figures that `api` shows become events, one for each thing that has a name and one for the rest.

use crate::access::stamp;
use crate::keeper;
use crate::running::{lock, Plan, Ship};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use weir_core::figures::{Figure, Figures};
use weir_shipping::ecs::push_text;
use weir_shipping::event::{Kind, Severity};

/// What stands below these paths has names of the configuration: each is an event.
const NAMED: &[&str] = &[
    "http/server_zones",
    "http/location_zones",
    "http/upstreams",
    "http/caches",
    "http/limit_reqs",
    "http/limit_conns",
    "http/keyvals",
    "stream/server_zones",
    "stream/upstreams",
    "stream/limit_conns",
    "slabs",
    "resolvers",
    "ship",
];
/// Events of one look; with more names the rest is left out, and said so.
const EVENTS_MAX: usize = 10_000;

/// Gathers all figures.
pub type Gather = Arc<dyn Fn() -> Figures + Send + Sync>;

/// Who is to have figures, and when next.
struct Rhythm<T> {
    to: T,
    name: Arc<str>,
    every: Duration,
    next: Instant,
}

impl<T> Rhythm<T> {
    fn new(to: T, name: Arc<str>, every: Duration, before: &[Rhythm<T>], now: Instant) -> Self {
        // A reload does not begin the time anew: many in a row would leave nobody anything.
        let same = before.iter().find(|old| old.name == name && old.every == every);
        Rhythm { next: same.map_or(now + every, |old| old.next), to, name, every }
    }

    /// Whether it is time; then the next time is set, which does not drift.
    fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.next <= now;
        if is_due {
            self.next = (self.next + self.every).max(now + self.every / 2);
        }
        is_due
    }
}

static GATHER: Mutex<Option<Gather>> = Mutex::new(None);
static WANTED: Mutex<Vec<Rhythm<Arc<Plan>>>> = Mutex::new(Vec::new());

/// Where figures come from.
pub fn gather_by(gather: Gather) {
    *lock(&GATHER) = Some(gather);
}

/// From now on figures go to these, each so often.
pub fn follow(to: Vec<(Arc<Plan>, u64)>) {
    let now = Instant::now();
    let mut wanted = lock(&WANTED);
    let fresh = to.into_iter().map(|(plan, ms)| {
        let name = Arc::clone(&plan.name);
        Rhythm::new(plan, name, Duration::from_millis(ms), &wanted, now)
    });
    *wanted = fresh.collect();
    drop(wanted);
    keeper::wake();
}

/// How long nothing is due.
pub fn idle() -> Option<Duration> {
    let next = lock(&WANTED).iter().map(|w| w.next).min()?;
    Some(next.saturating_duration_since(Instant::now()))
}

/// Ships what is due. By the keeper.
pub fn ship(_: &[Arc<Ship>]) {
    let now = Instant::now();
    let mut due = Vec::new();
    for wanted in lock(&WANTED).iter_mut() {
        if wanted.is_due(now) {
            due.push((Arc::clone(&wanted.to), wanted.every));
        }
    }
    let gather = lock(&GATHER).clone().filter(|_| !due.is_empty());
    let Some(gather) = gather else { return };
    let figures = gather();
    for (plan, every) in due {
        let Some(queue) = plan.queue() else { continue };
        let (stamp, time_ms) = stamp();
        for document in documents(&figures, &stamp, every.as_millis() as u64) {
            let mut out = document;
            plan.metric_tail.push(&mut out);
            queue.push_shared(&out, time_ms, Kind::Metric, Severity::Info);
        }
    }
}

/// All figures as documents without their ends.
fn documents(figures: &Figures, stamp: &[u8], period_ms: u64) -> Vec<Vec<u8>> {
    let mut all = Vec::new();
    let mut rest = figures.clone();
    for path in NAMED {
        let Some(group) = take(&mut rest, path) else { continue };
        for (name, figure) in group.iter() {
            if all.len() < EVENTS_MAX {
                all.push(document(stamp, period_ms, path, name, figure));
            }
        }
    }
    let whole = Figure::Group(rest);
    all.push(document(stamp, period_ms, "server", "", &whole));
    all
}

fn take(figures: &mut Figures, path: &str) -> Option<Figures> {
    let Some((group, name)) = path.split_once('/') else {
        return match figures.take(path)? {
            Figure::Group(group) => Some(group),
            _ => None,
        };
    };
    let (_, inner) = figures.iter_mut().find(|(n, _)| *n == group)?;
    match inner {
        Figure::Group(inner) => take(inner, name),
        _ => None,
    }
}

fn document(stamp: &[u8], period_ms: u64, path: &str, name: &str, figure: &Figure) -> Vec<u8> {
    let set = path.replace('/', ".");
    let mut out = Vec::with_capacity(1024);
    out.extend_from_slice(b"{\"@timestamp\":\"");
    out.extend_from_slice(stamp);
    out.extend_from_slice(b"\",\"event\":{\"kind\":\"metric\",\"module\":\"nginx\",\"dataset\":\"nginx.metrics\"},\"metricset\":{\"name\":");
    push_text(&mut out, set.as_bytes());
    out.extend_from_slice(
        format!(",\"period\":{period_ms}}},\"nginx\":{{\"metrics\":{{").as_bytes(),
    );
    if !name.is_empty() {
        out.extend_from_slice(b"\"name\":");
        push_text(&mut out, name.as_bytes());
        out.push(b',');
    }
    // Below the set's own name, so that a field has one type in all documents.
    push_text(&mut out, set.replace('.', "_").as_bytes());
    out.push(b':');
    figure.write_json(&mut out);
    out.extend_from_slice(b"}}");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reload_does_not_begin_the_time_anew() {
        let (start, secs) = (Instant::now(), Duration::from_secs);
        let named = |every, before: &[Rhythm<()>], now| {
            Rhythm::new((), "a".into(), secs(every), before, start + secs(now))
        };
        let first = named(10, &[], 0);
        let mut again = named(10, &[first], 6);
        assert!(!again.is_due(start + secs(9)) && again.is_due(start + secs(10)));
        assert_eq!(again.next, start + secs(20));
        // What it is late by is not made up for.
        assert!(again.is_due(start + secs(45)) && again.next == start + secs(50));
        assert_eq!(named(5, &[again], 46).next, start + secs(51), "another rhythm");
    }

    #[test]
    fn each_name_is_a_document_and_the_rest_is_one() {
        let mut figures = Figures::default();
        figures.group("connections").put("active", 3);
        figures.group("http").group("server_zones").entry(b"a.test").put("requests", 7);
        figures.group("http").group("requests").put("total", 9);
        let all = documents(&figures, b"2026-11-23T05:30:00.123Z", 10_000);
        let texts: Vec<String> =
            all.into_iter().map(|d| String::from_utf8(d).unwrap() + "}").collect();
        assert_eq!(texts.len(), 2);
        let zone =
            "\"nginx\":{\"metrics\":{\"name\":\"a.test\",\"http_server_zones\":{\"requests\":7}}}}";
        assert!(texts[0].ends_with(zone), "{}", texts[0]);
        assert!(
            texts[0].contains("\"metricset\":{\"name\":\"http.server_zones\",\"period\":10000}")
        );
        let rest =
            "{\"server\":{\"connections\":{\"active\":3},\"http\":{\"requests\":{\"total\":9}}}}}}";
        assert!(texts[1].ends_with(rest), "{}", texts[1]);
    }
}
