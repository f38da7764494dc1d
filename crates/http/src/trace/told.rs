//! A trace as it is shown.

use crate::request::Request;
use weir_core::figures::{Figure, Figures};
use weir_core::timing::UpstreamState;

/// What took its time.
#[derive(Clone, Debug, PartialEq)]
pub enum Name {
    /// As it is shown.
    Text(String),
    /// The function at that address.
    Handler(usize),
}

/// From when to when something went on.
#[derive(Clone, Debug)]
pub struct Span {
    /// A phase, `subrequest`, `upstream`, `cache` or `tls`.
    pub kind: &'static str,
    /// What it was.
    pub name: Name,
    /// In how many parts of parts.
    pub depth: u8,
    /// Microseconds of the monotonic clock.
    pub begin_us: u64,
    /// The same.
    pub end_us: u64,
    /// Of that, what it has waited.
    pub waited_us: u64,
    /// Further times within it, in microseconds from its beginning, and numbers, by their names.
    pub notes: Vec<(&'static str, u64)>,
}

impl Span {
    /// Without waits and notes.
    pub(super) fn new(
        kind: &'static str,
        name: Name,
        depth: u8,
        begin_us: u64,
        end_us: u64,
    ) -> Span {
        Span { kind, name, depth, begin_us, end_us, waited_us: 0, notes: Vec::new() }
    }
}

/// A request that was traced to its end.
#[derive(Clone, Debug)]
pub struct Told {
    /// What it was, by the names of variables.
    pub about: Vec<(&'static str, String)>,
    /// In the order in which they began.
    pub spans: Vec<Span>,
    /// When its head had been read, in microseconds of the monotonic clock.
    pub begun_us: u64,
    /// When it was over.
    pub end_us: u64,
    /// Spans that there was no room for.
    pub left_out: usize,
}

/// What is said of a request.
const ABOUT: &[&str] = &[
    "request_method",
    "scheme",
    "host",
    "http_host",
    "request_uri",
    "server_protocol",
    "server_name",
    "status",
    "bytes_sent",
    "body_bytes_sent",
    "request_time",
    "connection",
    "connection_requests",
    "ssl_protocol",
    "ssl_cipher",
    "ssl_session_reused",
    "upstream_addr",
    "upstream_status",
    "upstream_cache_status",
];

pub(super) fn about(
    r: &mut Request,
    value: fn(&mut Request, &[u8]) -> Option<String>,
) -> Vec<(&'static str, String)> {
    let mut about: Vec<_> =
        ABOUT.iter().filter_map(|name| Some((*name, value(r, name.as_bytes())?))).collect();
    let location = String::from_utf8_lossy(&r.loc().name).into_owned();
    about.push(("location", location));
    about.push(("worker", r.conn().worker.id.to_string()));
    about.push(("generation", r.gen().core.number.to_string()));
    about
}

/// How long the connection's handshake took, if this is its first request.
pub(super) fn handshake_us(r: &Request) -> u64 {
    let secure = r.conn().secure.get().filter(|_| r.conn().requests.get() == 1);
    secure.map_or(0, |secure| (u64::from(secure.handshake_ms.get()) * 1000).max(1))
}

/// Of a server, from the beginning of its span on.
const FROM_ITS_BEGIN: [&str; 4] = ["sent_us", "connect_us", "header_us", "response_us"];

impl Span {
    /// It has begun at that time at the earliest, and what is counted from there with it.
    pub(super) fn begin_later(&mut self, us: u64) {
        let late = us.saturating_sub(self.begin_us);
        self.begin_us += late;
        for (name, n) in &mut self.notes {
            if FROM_ITS_BEGIN.contains(name) {
                *n = n.saturating_sub(late);
            }
        }
    }
}

/// A server that was asked.
pub(super) fn of_try(state: &UpstreamState) -> Span {
    let name = Name::Text(String::from_utf8_lossy(&state.peer).into_owned());
    let end_us = state.begun_us + state.response_us.or(state.header_us).unwrap_or(0);
    let mut span = Span::new("upstream", name, 0, state.begun_us, end_us);
    let times = [
        ("sent_us", state.sent_us),
        ("connect_us", state.connect_us),
        ("header_us", state.header_us),
        ("response_us", state.response_us),
        ("queue_us", (state.queue_ms > 0).then_some(u64::from(state.queue_ms) * 1000)),
        ("status", (state.status > 0).then_some(state.status.into())),
        ("bytes_sent", Some(state.bytes_sent)),
        ("bytes_received", Some(state.bytes_received)),
    ];
    span.notes = times.into_iter().filter_map(|(name, n)| Some((name, n?))).collect();
    span
}

impl Told {
    /// For JSON; times are microseconds from the request's beginning, before which a handshake may have been.
    pub fn figures(&self, mut name_of: impl FnMut(usize) -> String) -> Figures {
        let mut figures = Figures::default();
        let about = figures.group("request");
        self.about.iter().for_each(|(name, value)| about.put(*name, value.as_str()));
        figures.put("duration_us", self.end_us.saturating_sub(self.begun_us));
        let spans = self.spans.iter().map(|span| {
            let mut one = Figures::default();
            one.put("kind", span.kind);
            let name = match &span.name {
                Name::Text(text) => text.clone(),
                Name::Handler(at) => name_of(*at),
            };
            one.put("name", name);
            one.put("depth", u64::from(span.depth));
            let from = |us: u64| us as f64 - self.begun_us as f64;
            one.put("begin_us", Figure::Real(from(span.begin_us)));
            one.put("end_us", Figure::Real(from(span.end_us)));
            one.put("waited_us", span.waited_us);
            span.notes.iter().for_each(|(name, n)| one.put(*name, *n));
            Figure::Group(one)
        });
        figures.put("spans", Figure::List(spans.collect()));
        figures.put("left_out", self.left_out as u64);
        figures
    }
}
