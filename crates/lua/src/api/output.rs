//! The answer's body, and sending its header.

use crate::conf::LuaLoc;
use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::{context, WaitFor};
use std::rc::Rc;
use weir_core::Session;
use weir_http::module::{FilterError, Flow};
use weir_http::{special, Buf, Chain, Request};
use weir_wire::http1::request::Version;

use context::{HANDLERS, REQUEST};

/// What is put out goes no further ahead of the client than this without waiting.
const AHEAD_BYTES: u64 = 256 * 1024;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("print", HANDLERS, print),
    OpRow::any("flush", HANDLERS, flush),
    OpRow::any("eof", HANDLERS, eof),
    OpRow::any("send_headers", HANDLERS, send_headers),
    OpRow::either("status", REQUEST, status, |s, _, answer| answer.number(f64::from(s.status))),
    OpRow::any("set_status", REQUEST, set_status),
    OpRow::any("set_status_line", REQUEST, set_status_line),
    OpRow::any("headers_sent", REQUEST, headers_sent),
    OpRow::request(
        "is_subrequest",
        REQUEST,
        |r, _, _| if r.is_part() { code::TRUE } else { code::FALSE },
    ),
];

/// What Lua has put out so far, where it is kept until its length is known, and whether it has ended it.
#[derive(Default)]
struct Put {
    kept: Option<Vec<u8>>,
    ended: bool,
    /// A filter could not go on: nothing follows.
    failed: bool,
}

/// Code has taken the type away: the location's is not sent instead.
pub(super) struct NoType;

/// Whether anything of an answer has been put out.
pub(crate) fn has_begun(r: &Request) -> bool {
    r.flags.header_sent || r.has_ctx::<Put>()
}

/// Readies the header: status and type.
fn ready(r: &mut Request) {
    if r.out.status == 0 {
        r.out.status = 200;
    }
    let loc = Rc::clone(r.loc());
    let has_none = r.out.status == 101 || r.has_ctx::<NoType>() || r.out.content_type().is_some();
    if *loc.conf::<LuaLoc>().use_default_type && !has_none {
        special::set_content_type(r);
    }
}

fn send_header(r: &mut Request) -> Result<(), FilterError> {
    if r.flags.header_sent || r.has_ctx::<Put>() {
        return Ok(());
    }
    r.set_ctx(Put::default());
    ready(r);
    r.send_header()
}

fn wants_buffering(r: &Request) -> bool {
    r.version() < Version::HTTP_11
        && r.out.content_length.is_none()
        && *r.loc().conf::<LuaLoc>().http10_buffering
}

/// Ends the answer.
pub(crate) fn end(r: &mut Request) -> Flow {
    if is_failed(r) {
        return Flow::Close;
    }
    let kept = r.ctx::<Put>().and_then(|put| put.kept.take());
    if r.ctx::<Put>().is_some_and(|put| std::mem::replace(&mut put.ended, true)) {
        return Flow::Ok;
    }
    if let Some(text) = kept {
        ready(r);
        if r.method != weir_wire::http1::request::Method::Head {
            r.out.content_length = Some(text.len() as u64);
        }
        return special::finish(
            r,
            if text.is_empty() { Buf::last() } else { Buf::mem(text).and_last() },
        );
    }
    let sent = send_header(r);
    if let Some(put) = r.ctx::<Put>() {
        put.ended = true;
    }
    match sent {
        Err(FilterError::Status(status)) if !r.flags.header_sent => return Flow::Status(status),
        Err(_) => return Flow::Close,
        Ok(()) => {}
    }
    if r.flags.header_only {
        return Flow::Ok;
    }
    match r.output(Chain::one(Buf::last())) {
        Ok(()) => Flow::Ok,
        Err(_) => Flow::Close,
    }
}

/// Whether the answer is kept until its length is known.
pub(super) fn is_kept(r: &Request) -> bool {
    r.ctx_ref::<Put>().is_some_and(|put| put.kept.is_some())
}

/// Whether the answer cannot take more, and why.
fn refusal(r: &mut Request) -> Option<&'static str> {
    if let Some(why) = super::raw::refusal(r) {
        return Some(why);
    }
    if r.flags.header_only && r.flags.header_sent {
        return Some("header only");
    }
    let is_ended = r.ctx::<Put>().is_some_and(|put| put.ended);
    is_ended.then_some("seen eof")
}

fn print(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    if let Some(why) = refusal(r) {
        return answer.fail(why);
    }
    let begins = r.ctx_ref::<Put>().is_none() && !r.flags.header_sent;
    // Nothing is not worth being kept.
    if begins && !args.a.is_empty() && wants_buffering(r) {
        r.set_ctx(Put { kept: Some(Vec::new()), ..Put::default() });
        if r.out.status == 0 {
            // Whatever becomes of it, this was its status.
            r.out.status = 200;
        }
    }
    if let Some(kept) = r.ctx::<Put>().and_then(|put| put.kept.as_mut()) {
        kept.extend_from_slice(args.a);
        return answer.number(1.0);
    }
    if send_header(r).is_err() {
        return fail(r, answer);
    }
    if r.method == weir_wire::http1::request::Method::Head || r.flags.header_only {
        return answer.number(1.0);
    }
    if args.a.is_empty() {
        return answer.number(1.0);
    }
    if is_failed(r) || r.output(Chain::one(Buf::mem(args.a.to_vec()))).is_err() {
        return fail(r, answer);
    }
    r.put_out(false);
    match r.queued() > AHEAD_BYTES || r.holds() {
        true => state.wait(WaitFor::Drain(AHEAD_BYTES), answer),
        false => answer.number(1.0),
    }
}

fn flush(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    if let Some(why) = refusal(r) {
        return answer.fail(why);
    }
    if r.ctx::<Put>().is_some_and(|put| put.kept.is_some()) {
        return answer.fail("buffering");
    }
    if !has_begun(r) {
        return answer.fail("nothing to flush");
    }
    if r.flags.header_only {
        return answer.number(1.0);
    }
    if is_failed(r) || r.output(Chain::one(Buf::flush())).is_err() {
        return fail(r, answer);
    }
    r.put_out(true);
    match args.i == 1 {
        true => {
            // Who has gone already is told at once.
            r.flush_now();
            match r.conn().broken.get() {
                true => answer.fail("nginx output filter error"),
                false => state.wait(WaitFor::Drain(0), answer),
            }
        }
        // What can leave leaves now; the rest when the run next waits.
        false => {
            r.flush_now();
            answer.number(1.0)
        }
    }
}

fn eof(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    match refusal(r) {
        // There is nothing behind the header.
        Some("header only") => return answer.fail("seen eof"),
        Some(why) => return answer.fail(why),
        None => {}
    }
    match end(r) {
        Flow::Ok => {
            r.put_out(true);
            r.flush_now();
            answer.number(1.0)
        }
        _ => fail(r, answer),
    }
}

fn send_headers(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    match send_header(r) {
        Ok(()) => answer.number(1.0),
        Err(_) => fail(r, answer),
    }
}

/// A filter could not go on.
fn fail(r: &mut Request, answer: &mut Answer) -> i32 {
    if let Some(put) = r.ctx::<Put>() {
        put.failed = true;
    }
    answer.fail("nginx output filter error")
}

fn is_failed(r: &Request) -> bool {
    r.ctx_ref::<Put>().is_some_and(|put| put.failed)
}

fn status(r: &mut Request, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let status = match r.error_status() {
        0 => r.out.status,
        status => status,
    };
    answer.number(f64::from(status))
}

/// The line of the status has three digits (RFC 9112, section 4).
fn is_bad_status(r: &Request, status: i32) -> bool {
    let is_bad = !(100..=999).contains(&status);
    if is_bad {
        r.log(weir_core::logger::LogLevel::Error, &format!("invalid HTTP status code {status}"));
    }
    is_bad
}

fn set_status(state: &mut State<'_>, args: &Args<'_>, _: &mut Answer) -> i32 {
    let (is_body, is_header) =
        (state.run.context == context::BODY, state.run.context == context::HEADER);
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    let is_out = !is_header && has_begun(r) && r.ctx::<Put>().is_none_or(|put| put.kept.is_none());
    if is_out || is_body {
        let text = "attempt to set ngx.status after sending out response headers";
        r.log(weir_core::logger::LogLevel::Error, text);
        return code::TRUE;
    }
    if is_bad_status(r, args.i) {
        return code::TRUE;
    }
    r.set_status(args.i as u16);
    if args.i == 101 {
        // Clients of WebSockets look for it.
        r.out.set_status_line(b"101 Switching Protocols");
    }
    code::TRUE
}

fn set_status_line(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let is_header = state.run.context == context::HEADER;
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    if !is_header && has_begun(r) {
        return answer.fail("attempt to set status after sending out response headers");
    }
    if is_bad_status(r, args.i) {
        return code::TRUE;
    }
    r.set_status(args.i as u16);
    if !args.b.is_empty() || !args.a.is_empty() {
        let line = [args.i.to_string().as_bytes(), b" ", args.a].concat();
        r.out.set_status_line(&line);
    }
    code::TRUE
}

fn headers_sent(state: &mut State<'_>, _: &Args<'_>, _: &mut Answer) -> i32 {
    let is_header = state.run.context == context::HEADER;
    let Some(r) = state.r.as_deref() else { return code::NO_REQUEST };
    if !is_header && has_begun(r) {
        code::TRUE
    } else {
        code::FALSE
    }
}
