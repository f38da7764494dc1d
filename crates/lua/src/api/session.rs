//! What code of `stream` asks of its session: output, the client's connection, datagrams.

use super::line::Line;
use super::socket::{words_of, Busy, Sock};
use crate::conf::LuaLoc;
use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::{CONTENT, PREREAD};
use crate::run::{Reply, WaitFor};
use crate::stream::Ended;
use std::rc::Rc;
use weir_core::{ConnError, Connection, Session as _};
use weir_runtime::clock;
use weir_stream::Session;

/// Where there is a client to talk to.
const TALKS: u32 = CONTENT | PREREAD;

/// What is put out goes no further ahead of the client than this without waiting.
const AHEAD_BYTES: u64 = 256 * 1024;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("session_print", TALKS, print),
    OpRow::any("session_flush", TALKS, flush),
    OpRow::session("session_eof", TALKS, eof),
    OpRow::any("session_socket", TALKS, socket),
    OpRow::any("session_peek", PREREAD, peek),
    OpRow::any("session_secure", TALKS, secure),
    OpRow::session("session_shutdown", CONTENT, shutdown),
    OpRow::session("session_take", TALKS, take),
    OpRow::any("session_give", TALKS, give),
    OpRow::session("session_answer", TALKS, send_datagram),
];

/// Why the session can be sent nothing that is a stream.
fn refusal(s: &Session, answer: &mut Answer) -> Option<i32> {
    if s.conn().is_udp() {
        return Some(code::FORBIDDEN_NOW);
    }
    if s.ctx_ref::<Ended>().is_some() {
        return Some(answer.fail("seen eof"));
    }
    // Nothing leaves without TLS once that was begun.
    let is_bare = s.conn().tls_port.get() && !s.conn().stream.is_tls();
    is_bare.then(|| answer.fail("nginx output filter error"))
}

fn send_timeout(s: &Session) -> u64 {
    *s.base().conf::<LuaLoc>().send_timeout
}

fn print(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(s) = state.s.as_deref_mut() else { return code::NO_REQUEST };
    if let Some(refused) = refusal(s, answer) {
        return refused;
    }
    let conn = Rc::clone(s.conn());
    if !args.a.is_empty() {
        conn.out.borrow_mut().write(|out| out.extend_from_slice(args.a));
        conn.flush_at_once();
    }
    if conn.broken.get() {
        return answer.fail("nginx output filter error");
    }
    if conn.out.borrow().queued() <= AHEAD_BYTES {
        return answer.number(1.0);
    }
    let timeout = send_timeout(s);
    state.wait(drained(conn, AHEAD_BYTES, timeout), answer)
}

/// Done once the client has taken all but so many bytes.
fn drained(conn: Rc<Connection>, leave: u64, timeout_ms: u64) -> WaitFor {
    WaitFor::Future(Box::pin(async move {
        match conn.drain(leave, timeout_ms).await {
            Ok(()) => Reply { code: code::NUMBER, x: 1.0, text: Vec::new() },
            Err(ConnError::Timeout) => Reply::fail("timeout"),
            Err(ConnError::Io(_)) => Reply::fail("client aborted"),
        }
    }))
}

/// `i`: whether it is waited for.
fn flush(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(s) = state.s.as_deref_mut() else { return code::NO_REQUEST };
    if let Some(refused) = refusal(s, answer) {
        return refused;
    }
    let conn = Rc::clone(s.conn());
    if conn.flush_at_once() {
        return answer.number(1.0);
    }
    if conn.broken.get() {
        return answer.fail("nginx output filter error");
    }
    match args.i {
        1 => {
            let timeout = send_timeout(s);
            state.wait(drained(conn, 0, timeout), answer)
        }
        _ => answer.number(1.0),
    }
}

fn eof(s: &mut Session, _: &Args<'_>, answer: &mut Answer) -> i32 {
    if let Some(refused) = refusal(s, answer) {
        return refused;
    }
    s.set_ctx(Ended);
    s.conn().flush_at_once();
    answer.number(1.0)
}

/// The client's connection is the code's.
struct Taken;

/// The number of a socket, or that there are datagrams.
fn socket(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let defaults = super::socket::settings_of(state);
    let id = state.vm.next();
    let Some(s) = state.s.as_deref_mut() else { return code::NO_REQUEST };
    let conn = Rc::clone(s.conn());
    if conn.out.borrow().queued() > 0 {
        return answer.fail("pending data to write");
    }
    if s.ctx_ref::<Taken>().is_some() {
        return answer.fail("duplicate call");
    }
    s.set_ctx(Taken);
    if conn.is_udp() {
        return code::TRUE;
    }
    if s.base().tcp_nodelay {
        conn.set_nodelay();
    }
    // What was read or looked at is the session's until something is read.
    let checks = *s.base().conf::<LuaLoc>().check_client_abort;
    let sock = Sock::on(Line::Session(conn, checks), Vec::new(), defaults);
    state.run.keep_sock(id, sock);
    answer.number(id as f64)
}

/// `x`: how many of the first bytes.
fn peek(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(s) = state.s.as_deref_mut() else { return code::NO_REQUEST };
    let bytes = args.x as usize;
    match s.buf.get(..bytes) {
        Some(text) => answer.text(text),
        None => state.wait(WaitFor::Peek(bytes), answer),
    }
}

/// What was read before the socket was there is what it reads first.
fn give(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = super::socket::sock(state, args) else { return answer.fail("closed") };
    let Some(s) = state.s.as_deref_mut() else { return code::NO_REQUEST };
    sock.borrow_mut().put_first(s.take_first());
    code::TRUE
}

/// At most `x` bytes of the datagram that is there.
fn take(s: &mut Session, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if s.buf.is_empty() {
        return answer.fail("no more data");
    }
    let most = s.buf.len().min(args.x as usize);
    answer.text.extend(s.buf.drain(..most));
    code::TEXT
}

fn send_datagram(s: &mut Session, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(to) = s.conn().datagrams.get().cloned() else { return answer.fail("closed") };
    match to.send(args.a) {
        Ok(n) => {
            s.sent += n as u64;
            code::TRUE
        }
        Err(e) => answer.fail(words_of(&e)),
    }
}

/// TLS on the connection of socket `i`, from where it has been read to.
fn secure(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = super::socket::sock(state, args) else { return answer.fail("closed") };
    let Some(s) = state.s.as_deref_mut() else { return code::NO_REQUEST };
    let conn = Rc::clone(s.conn());
    if conn.stream.is_tls() {
        return code::TRUE;
    }
    if let Some(busy) = sock.borrow().busy() {
        return answer.fail(busy);
    }
    if s.base().tls.is_none() {
        return answer.fail("ssl not configured for this server");
    }
    if conn.out.borrow().queued() > 0 {
        return answer.fail("socket busy writing");
    }
    conn.tls_port.set(true);
    // Nothing of what was read without TLS is ever taken for what came with it.
    let mut read = s.take_first();
    let mut sock = sock.borrow_mut();
    read.extend(sock.rest_of_session().unwrap_or_default());
    let deadline = clock::mono_ms() + sock.timeouts().1;
    state.wait(WaitFor::Secure(read.into(), deadline), answer)
}

/// Nothing more is sent to the client.
fn shutdown(s: &mut Session, _: &Args<'_>, answer: &mut Answer) -> i32 {
    if let Some(refused) = refusal(s, answer) {
        return refused;
    }
    s.set_ctx(Ended);
    if s.conn().out.borrow().queued() > 0 {
        return answer.fail("socket busy writing");
    }
    s.conn().stream.shutdown_write();
    answer.number(1.0)
}

/// Sends by the session's own queue, so that what is put out otherwise keeps its place.
pub(super) fn send(
    state: &mut State<'_>,
    conn: &Rc<Connection>,
    busy: Busy,
    (text, timeout_ms): (&[u8], u64),
    answer: &mut Answer,
) -> i32 {
    if conn.out.borrow().queued() > 0 {
        return answer.fail("socket busy writing");
    }
    conn.out.borrow_mut().write(|out| out.extend_from_slice(text));
    if conn.flush_at_once() {
        return answer.number(text.len() as f64);
    }
    let (conn, length) = (Rc::clone(conn), text.len() as f64);
    state.wait(
        WaitFor::Future(Box::pin(async move {
            let reply = match conn.drain(0, timeout_ms).await {
                Ok(()) => Reply { code: code::NUMBER, x: length, text: Vec::new() },
                Err(ConnError::Timeout) => Reply::fail("timeout"),
                Err(ConnError::Io(e)) => {
                    busy.sock.borrow_mut().drop_line();
                    Reply::fail(words_of(&e))
                }
            };
            busy.done();
            reply
        })),
        answer,
    )
}
