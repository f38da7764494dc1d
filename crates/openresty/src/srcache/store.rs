//! Collecting an answer on its way out, and storing it behind that.

use super::room::{Held, Ledger};
use super::{note, says, skips, SrcacheLoc, State};
use std::any::Any;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::module::{FilterResult, Next};
use weir_http::names::status_line;
use weir_http::subrequest::{self, Sent};
use weir_http::{Buf, Chain, Request};
use weir_modules::text_of;
use weir_wire::http1::request::Method;
use weir_wire::http1::uri::unsafe_uri;

const STATUSES: [u16; 5] = [200, 301, 302, 307, 308];

/// Fields that are about a connection, or for one client alone.
const HIDDEN: [&[u8]; 9] = [
    b"Connection",
    b"Keep-Alive",
    b"Proxy-Authenticate",
    b"Proxy-Authorization",
    b"TE",
    b"Trailers",
    b"Transfer-Encoding",
    b"Upgrade",
    b"Set-Cookie",
];

/// An answer that is being collected.
struct Collected {
    text: Vec<u8>,
    head_len: usize,
    /// What its server has said that the body has.
    announced: Option<u64>,
    /// Counts the memory of `text`, until that is let go of.
    held: Held,
}

/// Why a piece of the body was not taken.
enum Full {
    /// The body is larger than `srcache_store_max_size`, or cannot be read.
    Body,
    /// There is no more room for all that are under way.
    Worker,
}

impl Collected {
    /// Takes a piece of the body, if there is room for it.
    fn take(&mut self, buf: &Buf, most_bytes: u64) -> Result<(), Full> {
        let so_far = (self.text.len() - self.head_len) as u64;
        if so_far + buf.len() > most_bytes {
            return Err(Full::Body);
        }
        let piece = text_of(&buf.data).map_err(|_| Full::Body)?;
        self.make_room(piece.len()).ok_or(Full::Worker)?;
        self.text.extend_from_slice(&piece);
        Ok(())
    }

    /// Makes room for so many bytes more, counted before it is taken: for all that was announced at most, or
    /// else for twice what there is.
    fn make_room(&mut self, more: usize) -> Option<()> {
        let need = self.text.len() + more;
        if need <= self.text.capacity() {
            return Some(());
        }
        let announced = self.announced.and_then(|n| usize::try_from(n).ok());
        let whole = announced.map_or(usize::MAX, |n| n.saturating_add(self.head_len));
        let wanted = whole.min(self.text.capacity() * 2).max(need);
        if !self.held.grow_to(wanted) {
            return None;
        }
        self.text.reserve_exact(wanted - self.text.len());
        Some(())
    }
}

pub(super) fn header(r: &mut Request, next: Next) -> FilterResult {
    if is_kept(r) {
        let loc = Rc::clone(r.loc());
        if let Some(text) = head(r, loc.conf::<SrcacheLoc>()) {
            collect(r, text);
        }
    }
    next.header(r)
}

/// Begins to, unless there is no room for what is announced.
fn collect(r: &mut Request, text: Vec<u8>) {
    let most_bytes = r.loc().conf::<SrcacheLoc>().body_max_bytes();
    let ledger = Ledger::of(r);
    let (announced, head_len) = (r.out.content_length, text.len());
    let mut held = Held::new(&ledger, most_bytes);
    if !held.has_room(announced.unwrap_or(0)) || !held.grow_to(text.capacity()) {
        return ledger.tell(r);
    }
    r.set_ctx(Collected { text, head_len, announced, held });
    r.flags.filter_needs_memory = true;
    r.whole = None;
    note(r, |state| state.stores = true);
}

/// Whether the answer that begins is to be kept.
fn is_kept(r: &mut Request) -> bool {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<SrcacheLoc>();
    let (fetched, no_store) =
        r.kept::<State>().map_or((false, false), |s| (s.fetched == Some("HIT"), s.no_store));
    if r.is_part() || fetched || no_store || r.method == Method::Head {
        return false;
    }
    let status = r.out.status;
    let has_status = match &*conf.statuses {
        Some(list) => list.contains(&status),
        None => STATUSES.contains(&status),
    };
    let is_range = status == 206;
    if r.method.bit() & *conf.methods == 0
        || is_range && !*conf.ranges
        || !is_range && !has_status
        || skips(r, conf.store_skip.as_deref())
    {
        return false;
    }
    let encoding = r.out.get(b"Content-Encoding").filter(|e| !e.is_empty());
    if let Some(encoding) = encoding.filter(|_| !*conf.ignore_content_encoding) {
        let shown = String::from_utf8_lossy(encoding);
        let text = format!(
            "srcache_store skipped due to response header \"Content-Encoding: {shown}\" \
             (compression on the backend is best turned off)"
        );
        r.log(LogLevel::Warn, &text);
        return false;
    }
    let too_large = r.out.content_length.is_some_and(|n| n > conf.body_max_bytes());
    let forbidden = *conf.response_cache_control && says::forbids(r, conf);
    !(too_large || forbidden)
}

/// The head in text; `None`: one of its fields is too long.
fn head(r: &Request, conf: &SrcacheLoc) -> Option<Vec<u8>> {
    let mut text = b"HTTP/1.1 ".to_vec();
    match (r.out.status_line(), status_line(r.out.status)) {
        (Some(line), _) => text.extend_from_slice(line),
        (None, Some(line)) => text.extend_from_slice(line.as_bytes()),
        (None, None) => text.extend_from_slice(format!("{} ", r.out.status).as_bytes()),
    }
    text.extend_from_slice(b"\r\n");
    let is_in = |list: &[Vec<u8>], name: &[u8]| list.iter().any(|n| n.eq_ignore_ascii_case(name));
    let mut add = |name: &[u8], value: &[u8]| {
        let hidden = HIDDEN.iter().any(|n| n.eq_ignore_ascii_case(name));
        let is_hidden = hidden && !is_in(&conf.pass, name) || is_in(&conf.hide, name);
        let len = (name.len() + value.len() + 4) as u64;
        if !is_hidden && len <= *conf.header_buffer_size {
            text.extend_from_slice(&[name, b": ", value, b"\r\n"].concat());
        }
        is_hidden || len <= *conf.header_buffer_size
    };
    let mut fits = true;
    if let Some(kind) = r.out.content_type_parts() {
        fits &= add(b"Content-Type", &kind.concat());
    }
    if let Some(secs) = r.out.changed().filter(|_| !r.out.has_last_modified) {
        fits &= add(b"Last-Modified", &weir_base::date::http_time(secs));
    }
    let is_ours = |name: &[u8]| {
        [&b"Content-Length"[..], b"Date", b"Server"].iter().any(|n| n.eq_ignore_ascii_case(name))
    };
    for (name, value) in r.out.iter().filter(|(name, _)| !is_ours(name)) {
        fits &= add(name, value);
    }
    if !fits {
        r.log(LogLevel::Error, "srcache_store: a field is longer than srcache_header_buffer_size");
        return None;
    }
    text.extend_from_slice(b"\r\n");
    Some(text)
}

pub(super) fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let Some(mut collected) = r.take_ctx::<Collected>() else { return next.body(r, chain) };
    let most = r.loc().conf::<SrcacheLoc>().body_max_bytes();
    let taken = chain.iter().try_for_each(|buf| collected.take(buf, most));
    if let Err(full) = taken {
        // It is passed on all the same.
        if matches!(full, Full::Worker) {
            Ledger::of(r).tell(r);
        }
        note(r, |state| state.stores = false);
        return next.body(r, chain);
    }
    match chain.has_last() {
        true => {
            let stored = finish(r, *collected);
            note(r, |state| state.stores = stored);
        }
        false => r.put_ctx(collected),
    }
    next.body(r, chain)
}

/// The answer has come whole: it is given away. Whether it was.
fn finish(r: &mut Request, collected: Collected) -> bool {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<SrcacheLoc>();
    let length = (collected.text.len() - collected.head_len) as u64;
    if collected.announced.is_some_and(|n| n != length) || skips(r, conf.store_skip.as_deref()) {
        return false;
    }
    let Some(ask) = conf.store.as_deref() else { return false };
    let target = r.eval(&ask.uri);
    let given = r.eval(&ask.args);
    let mut path = Vec::new();
    let Ok(own) = unsafe_uri(&target, &mut path) else {
        let shown = String::from_utf8_lossy(&target);
        r.log(LogLevel::Error, &format!("srcache_store: unsafe URI \"{shown}\" is not asked"));
        return false;
    };
    let args = if given.is_empty() { own.unwrap_or_default() } else { &given };
    // What was not announced may have more room than it needs.
    let Collected { mut text, mut held, .. } = collected;
    text.shrink_to_fit();
    held.shrink_to(text.capacity());
    let body = Some((text, Box::new(held) as Box<dyn Any>));
    let sent = Sent { path: &path, args, method: ask.method, body };
    subrequest::send(r, sent)
}
