//! What has gone wrong or was slow, the newest of it: requests, and lines of the error log.
//!
//! It is in memory only, so much of it and no more, and of a flood no more than a few in a second: how many more
//! there were is told. Nothing is noted unless a configuration has a dashboard, or somebody has asked for all figures in the
//! last seconds (`weir top`). What clients have sent may hold secrets:
//! of addresses (URIs) there are only paths, in log lines too, and clients' addresses and headers are not kept.

use super::SLOW_MS;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, OnceLock};
use weir_base::bytes::fmt_u64;
use weir_core::figures::write_text;
use weir_core::logger::{self, LogLevel};
use weir_http::core_vars::shown_status;
use weir_http::{watched, Request};
use weir_runtime::clock;

/// So many are kept.
const KEPT_MAX: usize = 200;
/// Of one kind, in one second.
const A_SECOND: u64 = 10;
/// Longer paths, and lines, are cut.
const PATH_MAX_BYTES: usize = 256;
const LINE_MAX_BYTES: usize = 400;

/// A kind, and how many of it there were in which second.
struct Pace(AtomicU64);

/// What a request was noted for, and a line.
static REQUESTS: Pace = Pace(AtomicU64::new(0));
static LINES: Pace = Pace(AtomicU64::new(0));
/// Left out since one was noted.
static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
/// A configuration has a dashboard.
static IS_ON: AtomicBool = AtomicBool::new(false);
/// Until this second somebody looks on who has asked for all figures.
static ASKED_UNTIL: AtomicU64 = AtomicU64::new(0);
/// Who has asked is taken to ask again within so many seconds.
const ASKED_SECS: u64 = 15;

const SECOND_SHIFT: u32 = 16;

impl Pace {
    /// Whether there is room for one more in this second.
    fn has_room(&self, secs: u64) -> bool {
        let begins = secs << SECOND_SHIFT;
        let seen = self.0.load(Ordering::Relaxed);
        let next = if seen >> SECOND_SHIFT == secs { seen + 1 } else { begins + 1 };
        // In a flood nobody writes here any more, so that no worker waits for another's cache line.
        if next - begins > A_SECOND {
            return false;
        }
        self.0.store(next, Ordering::Relaxed);
        true
    }
}

#[derive(Default)]
struct Ring {
    /// JSON, each.
    kept: VecDeque<Vec<u8>>,
    /// How many there have ever been.
    ever: u64,
}

fn ring() -> MutexGuard<'static, Ring> {
    static RING: OnceLock<Mutex<Ring>> = OnceLock::new();
    RING.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner())
}

/// From now on it is noted; requests that take so long, too.
pub(super) fn begin(slow_ms: u64) {
    IS_ON.store(true, Ordering::Relaxed);
    logger::overhear(line);
    watched::begin(slow_ms, request);
}

/// No dashboard any more.
pub(super) fn end() {
    IS_ON.store(false, Ordering::Relaxed);
    if !is_wanted() {
        watched::end();
        *ring() = Ring::default();
    }
}

/// Somebody has asked for all figures: for some seconds it is noted, wherever there is a dashboard.
pub(crate) fn asked() {
    let was_wanted = is_wanted();
    let until = clock::wall().0.unsigned_abs() + ASKED_SECS;
    ASKED_UNTIL.store(until, Ordering::Relaxed);
    if !was_wanted {
        logger::overhear(line);
        watched::begin(SLOW_MS, request);
    }
}

fn is_wanted() -> bool {
    IS_ON.load(Ordering::Relaxed)
        || clock::wall().0.unsigned_abs() < ASKED_UNTIL.load(Ordering::Relaxed)
}

/// A request that has failed or was slow.
fn request(r: &Request) {
    if !is_wanted() {
        return watched::end();
    }
    let (status, took_ms) = (shown_status(r), r.elapsed_ms());
    let Some(mut out) = head(&REQUESTS) else { return };
    out.extend_from_slice(b",\"status\":");
    fmt_u64(&mut out, u64::from(status));
    out.extend_from_slice(b",\"ms\":");
    fmt_u64(&mut out, took_ms);
    let path = r.unparsed_uri().split(|b| *b == b'?').next().unwrap_or_default();
    put(&mut out, "method", r.method_name());
    put(&mut out, "path", cut(path, PATH_MAX_BYTES));
    put(&mut out, "server", r.server_name());
    if let Some(up) = r.upstream.last() {
        put(&mut out, "upstream", &up.peer);
    }
    note(out);
}

fn line(level: LogLevel, text: &[u8]) {
    if level > LogLevel::Error || !is_wanted() {
        return;
    }
    let Some(mut out) = head(&LINES) else { return };
    put(&mut out, "level", level.name().as_bytes());
    put(&mut out, "text", &without_secrets(text));
    note(out);
}

/// What happened, and of the request what the server makes of it: no client, no headers, no arguments; the beginning of it.
///
/// A log's line quotes what has come as it has come, quotes and commas too. So what is shown of it ends at the first that
/// might end it.
fn without_secrets(text: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(text);
    let client = client_at(&text).unwrap_or(text.len());
    let (message, context) = text.split_at(client);
    let mut out = String::with_capacity(message.len());
    let quotes_client =
        ["client sent", "broken header"].iter().find_map(|words| message.find(words));
    let said = quotes_client.and_then(|at| Some(at + message[at..].find(['"', ':'])?));
    let message = said.map_or(message, |at| message[..at].trim_end());
    for (n, part) in message.split('?').enumerate() {
        // What is behind a question mark ends with the word.
        let rest = part.find(' ').map_or("", |at| &part[at..]);
        out.push_str(if n == 0 { part } else { "?…" });
        out.push_str(if n == 0 { "" } else { rest });
    }
    // Behind it are headers. An address has no space in it, so that this is none of an address.
    let context = &context[..context.find(", host: \"").unwrap_or(context.len())];
    let context = &context[..context.find(", referrer: \"").unwrap_or(context.len())];
    if let Some(at) = context.find(", server: ") {
        let server = &context[at..];
        let end = server[2..].find(',').map_or(server.len(), |end| end + 2);
        out.push_str(&server[..end]);
    }
    let mut context = context;
    for name in [", request: \"", ", subrequest: \"", ", upstream: \""] {
        let Some(at) = context.find(name) else { continue };
        let value = &context[at + name.len()..];
        if name.contains(" request") {
            // What looks like the next field may be of the address up to here, which ends with the version.
            let end = value.find(" HTTP/").map_or(value.len(), |end| end + " HTTP/".len());
            context = &value[end..];
        }
        let end = value.find(['"', '?']).unwrap_or(value.len());
        out.push_str(name);
        out.push_str(&value[..end]);
        out.push_str(if value[end..].starts_with('?') { "?…\"" } else { "\"" });
    }
    let mut out = out.into_bytes();
    out.truncate(LINE_MAX_BYTES);
    out
}

/// Where the line begins to tell of its client: `, client: `, `, udp client: `.
fn client_at(text: &str) -> Option<usize> {
    let at = text.find("client: ")?;
    let before = text[..at].rfind(", ")?;
    let between = &text[before + 2..at];
    between.bytes().all(|b| b.is_ascii_lowercase() || b == b' ').then_some(before)
}

/// The beginning of an entry, if there is room for one.
fn head(pace: &Pace) -> Option<Vec<u8>> {
    let (secs, ms) = clock::wall();
    let secs = secs.unsigned_abs();
    if !pace.has_room(secs) {
        LEFT_OUT.fetch_add(1, Ordering::Relaxed);
        return None;
    }
    let mut out = b"{\"t\":".to_vec();
    fmt_u64(&mut out, secs * 1000 + u64::from(ms));
    Some(out)
}

fn put(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.push(b',');
    write_text(name, out);
    out.push(b':');
    write_text(&String::from_utf8_lossy(value), out);
}

fn cut(text: &[u8], max: usize) -> &[u8] {
    text.get(..max).unwrap_or(text)
}

fn note(mut entry: Vec<u8>) {
    let left_out = LEFT_OUT.swap(0, Ordering::Relaxed);
    if left_out > 0 {
        entry.extend_from_slice(b",\"more\":");
        fmt_u64(&mut entry, left_out);
    }
    let mut ring = ring();
    ring.ever += 1;
    entry.extend_from_slice(b",\"n\":");
    fmt_u64(&mut entry, ring.ever);
    entry.push(b'}');
    if ring.kept.len() == KEPT_MAX {
        ring.kept.pop_front();
    }
    ring.kept.push_back(entry);
}

/// What there was since there had been so many, as a list of JSON; how many there have been by now.
pub(crate) fn since(before: u64) -> (Vec<u8>, u64) {
    let ring = ring();
    let fresh = usize::try_from(ring.ever.saturating_sub(before)).unwrap_or(usize::MAX);
    let skipped = ring.kept.len().saturating_sub(fresh);
    let mut out = vec![b'['];
    for (n, entry) in ring.kept.iter().skip(skipped).enumerate() {
        if n > 0 {
            out.push(b',');
        }
        out.extend_from_slice(entry);
    }
    out.push(b']');
    (out, ring.ever)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_tells_nothing_of_clients() {
        let line = b"connect() failed (111: Connection refused) while connecting to upstream, client: 10.0.0.7, \
                     server: a, request: \"GET /x?token=1 HTTP/1.1\", upstream: \"http://127.0.0.1:1/x?token=1\", \
                     host: \"a\", referrer: \"http://b/?token=2\"";
        let told = String::from_utf8(without_secrets(line)).unwrap();
        assert_eq!(
            told,
            "connect() failed (111: Connection refused) while connecting to upstream, server: a, \
             request: \"GET /x?\u{2026}\", upstream: \"http://127.0.0.1:1/x?\u{2026}\""
        );
        assert!(without_secrets(&[b'x'; 4096]).len() <= LINE_MAX_BYTES);
        for secret in [
            "recv() failed (111: Connection refused), udp client: SECRET, server: a, upstream: \"x:1\"",
            "broken header: \"PROXY TCP4 SECRET x\" while reading PROXY protocol, client: SECRET, server: a",
            "a failed, client: 1, server: a, request: \"GET /b HTTP/1.1\", upstream: \"http://x/b\", referrer: \"q, upstream: \"SECRET\"",
            "a failed, client: 1, server: a, request: \"GET /b?a=\"SECRET HTTP/1.1\", upstream: \"http://x/b?a=\"SECRET\"",
            "a failed, client: 1, server: a, request: \"GET /b?a=, upstream: \"SECRET HTTP/1.1\"",
            "client sent invalid header line: \"X: SECRET\" while reading headers, client: 1, server: a",
            "open() \"/srv/b?a=\"SECRET\" failed, client: 1, server: a",
        ] {
            let told = String::from_utf8(without_secrets(secret.as_bytes())).unwrap();
            assert!(!told.contains("SECRET") && told.len() > 10, "{told}");
        }
        assert_eq!(cut(&[b'x'; 4096], PATH_MAX_BYTES).len(), PATH_MAX_BYTES);
    }

    #[test]
    fn a_flood_is_a_few() {
        let pace = Pace(AtomicU64::new(0));
        assert_eq!((0..100).filter(|_| pace.has_room(5)).count() as u64, A_SECOND);
        assert!(pace.has_room(6));
    }

    #[test]
    fn the_newest_are_kept() {
        let (_, before) = since(0);
        (0..KEPT_MAX + 5).for_each(|_| note(b"{\"t\":1".to_vec()));
        let (all, ever) = since(0);
        assert_eq!(ever, before + KEPT_MAX as u64 + 5);
        let all = String::from_utf8(all).unwrap();
        assert_eq!(all.matches("\"t\":1").count(), KEPT_MAX);
        assert!(all.ends_with(&format!("\"n\":{ever}}}]")), "{all}");
        assert_eq!(since(ever - 2).0.iter().filter(|b| **b == b'{').count(), 2);
        assert_eq!(since(ever).0, b"[]");
    }
}
