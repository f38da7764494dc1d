//! Looking for an answer before its content is made.

use super::room::{Held, Ledger};
use super::{note, says, skips, SrcacheLoc, HEAD_MAX_BYTES};
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session};
use weir_http::client_watch::unless_client_goes;
use weir_http::module::Flow;
use weir_http::subrequest::{self, Output};
use weir_http::{body, special, Buf, Request};
use weir_wire::http1::response::{ResponseHead, ResponseParser, ResponseProgress};
use weir_wire::http1::uri::unsafe_uri;

pub(super) fn handler(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<SrcacheLoc>();
    // Parts are no requests of clients, but ours.
    if r.is_part() || r.method.bit() & *conf.methods == 0 {
        return Flow::Declined;
    }
    if *conf.request_cache_control {
        let (no_cache, no_store) = says::request(r);
        note(r, |state| state.no_store = no_store);
        if no_cache {
            return Flow::Declined;
        }
    }
    if conf.fetch.is_none() || skips(r, conf.fetch_skip.as_deref()) {
        return Flow::Declined;
    }
    Flow::Wait(wait)
}

fn wait(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let Some(text) = (match ask(r).await {
            Ok(text) => text,
            Err(flow) => return flow,
        }) else {
            note(r, |state| state.fetched = Some("MISS"));
            return Flow::Declined;
        };
        if !has_room(r, &text) {
            note(r, |state| state.fetched = Some("BYPASS"));
            return Flow::Declined;
        }
        note(r, |state| state.fetched = Some("HIT"));
        answer(r, text)
    })
}

/// The memory of an answer that was found, until the request ends.
struct InHand {
    _held: Held,
}

/// An answer is here as a whole, however slowly its client reads: with too many of them it is made anew.
fn has_room(r: &mut Request, kept: &Kept) -> bool {
    let loc = Rc::clone(r.loc());
    let ledger = Ledger::of_hits(r);
    let mut held = Held::new(&ledger, loc.conf::<SrcacheLoc>().body_max_bytes());
    if !held.grow_to(kept.text.capacity()) {
        ledger.tell_hit(r);
        return false;
    }
    r.keep_state(InHand { _held: held });
    true
}

/// A whole answer that was kept.
struct Kept {
    head: ResponseHead,
    text: Vec<u8>,
}

/// What the subrequest has, if that is an answer.
async fn ask(r: &mut Request) -> Result<Option<Kept>, Flow> {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<SrcacheLoc>();
    let Some(ask) = conf.fetch.as_deref() else { return Ok(None) };
    let target = r.eval(&ask.uri);
    let given = r.eval(&ask.args);
    let mut path = Vec::new();
    let Ok(own) = unsafe_uri(&target, &mut path) else {
        let shown = String::from_utf8_lossy(&target);
        r.log(LogLevel::Error, &format!("srcache_fetch: unsafe URI \"{shown}\" is not asked"));
        return Ok(None);
    };
    let args = if given.is_empty() { own.unwrap_or_default() } else { &given };
    let Some(mut part) = subrequest::new(r, &path, args, Output::Keep) else { return Ok(None) };
    // The body is for the content.
    part.body.nothing();
    part.method = ask.method;
    subrequest::keep_up_to(&mut part, conf.body_max_bytes() + HEAD_MAX_BYTES as u64);
    let Some(whole) = unless_client_goes(r, false, subrequest::run(&mut part)).await else {
        return Err(Flow::Status(499));
    };
    if !whole || part.out.status != 200 {
        return Ok(None);
    }
    let kept = read(part.kept_body());
    subrequest::give_back(part);
    if kept.is_none() {
        r.log(LogLevel::Error, "srcache_fetch: what the cache has is no whole answer");
    }
    Ok(kept)
}

fn read(text: Vec<u8>) -> Option<Kept> {
    let mut head = ResponseHead::default();
    let parsed = ResponseParser::new().parse(&text, HEAD_MAX_BYTES, &mut head);
    if !text.starts_with(b"HTTP/") || !matches!(parsed, Ok(ResponseProgress::Complete)) {
        return None;
    }
    let length = (text.len() - head.head_len) as u64;
    let is_whole = head.content_length.is_none_or(|n| n == length) && !head.chunked;
    (is_whole && head.status >= 200).then_some(Kept { head, text })
}

/// Fields that are about the way here.
const OF_THE_WAY: [&[u8]; 6] =
    [b"Content-Length", b"Transfer-Encoding", b"Connection", b"Keep-Alive", b"Date", b"Server"];

fn answer(r: &mut Request, kept: Kept) -> Flow {
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    let Kept { head, text } = kept;
    r.out.status = head.status;
    if !head.status_line.is_empty() {
        r.out.set_status_line(head.status_line.of(&text));
    }
    for field in &head.headers {
        let (name, value) = (field.name.of(&text), field.value.of(&text));
        let is = |other: &[u8]| name.eq_ignore_ascii_case(other);
        match () {
            () if OF_THE_WAY.iter().any(|other| is(other)) => {}
            () if is(b"Content-Type") => r.out.set_content_type(value),
            () if is(b"Last-Modified") => {
                r.out.has_last_modified = true;
                r.out.add(name, value);
            }
            () => r.out.add(name, value),
        }
    }
    let body = bytes::Bytes::from(text).slice(head.head_len..);
    r.out.content_length = Some(body.len() as u64);
    r.flags.allow_ranges = head.status == 200;
    special::finish(r, Buf::mem(body).and_last())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_answers_are_taken() {
        let is = |text: &str| read(text.as_bytes().to_vec()).is_some();
        assert!(is("HTTP/1.1 200 OK\r\nA: b\r\n\r\nbody"));
        assert!(is("HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nbody"));
        for text in [
            "",
            "body",
            "HTTP/1.1 200 OK\r\nA: b\r\n",
            "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nbody",
            "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nbody",
            "HTTP/1.1 100 Continue\r\n\r\n",
            "HTTP/1.1 x\r\n\r\n",
        ] {
            assert!(!is(text), "{text}");
        }
    }
}
