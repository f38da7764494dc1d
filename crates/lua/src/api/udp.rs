//! Sockets for datagrams, and the request's body as a socket.

use super::socket::{self, sock};
use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::{HANDLERS, WAITING};
use crate::run::{Reply, WaitFor};
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::rc::Rc;
use std::task::Poll;
use weir_http::Request;
use weir_runtime::net::{SocketOptions, Stream};
use weir_runtime::timer::LazyTimer;
use weir_runtime::{clock, paths};
use weir_tls::Channel;
use weir_upstream::error_text;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("udp_connect", WAITING, connect),
    OpRow::any("udp_send", WAITING, send),
    OpRow::any("udp_read", WAITING, read),
    OpRow::any("body_begin", HANDLERS, body_begin),
    OpRow::any("body_piece", HANDLERS, body_piece),
];

/// `a`: the host, `x`: the port.
fn connect(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    let host = args.a.to_vec();
    let port = args.x as u16;
    let resolver = socket::resolver_of(state);
    let bind = sock.borrow().local().map(|ip| SocketAddr::new(ip, 0));
    state.wait(
        WaitFor::Future(Box::pin(async move {
            let opening = async {
                let system = |e: io::Error| socket::words_of(&e);
                if let Some(path) = host.strip_prefix(b"unix:") {
                    return Stream::connect_datagram_path(&paths::path(path)).map_err(system);
                }
                let text = String::from_utf8_lossy(&host).into_owned();
                let bare = text.strip_prefix('[').and_then(|t| t.strip_suffix(']'));
                let ip = match bare.unwrap_or(&text).parse::<IpAddr>() {
                    Ok(ip) => ip,
                    Err(_) => socket::resolved(&text, resolver).await?,
                };
                let addr = SocketAddr::new(ip, port);
                let options = SocketOptions { bind, ..SocketOptions::default() };
                Stream::connect_udp(addr, &options).map_err(system)
            };
            // Only the resolver takes time, and has its own.
            match opening.await {
                Err(why) => Reply::fail(why),
                Ok(stream) => {
                    sock.borrow_mut().put(Rc::new(Channel::from(stream)));
                    Reply::ok()
                }
            }
        })),
        answer,
    )
}

/// A datagram leaves at once or not at all.
fn send(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    let Some(channel) = sock.borrow().channel() else { return answer.fail("closed") };
    match channel.socket().try_write(&[IoSlice::new(args.a)], false) {
        Ok(n) if n == args.a.len() => code::TRUE,
        Ok(_) => answer.fail("partial write"),
        Err(e) => answer.fail(socket::words_of(&e)),
    }
}

/// One datagram, of `x` bytes at most.
fn read(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(sock) = sock(state, args) else { return answer.fail("closed") };
    let Some(channel) = sock.borrow().channel() else { return answer.fail("closed") };
    let room = (args.x as usize).clamp(1, 65536);
    let timeout = sock.borrow().timeouts().1;
    state.wait(
        WaitFor::Future(Box::pin(async move {
            let mut limit = LazyTimer::new();
            let deadline = clock::mono_ms() + timeout;
            let mut text = Vec::new();
            let failure = |e: io::Error| {
                // And the line of the log.
                format!("{}\nrecv() failed {}", socket::words_of(&e), error_text(&e))
            };
            let done = poll_fn(|cx| match channel.socket().poll_datagram(cx, &mut text, room) {
                Poll::Ready(done) => Poll::Ready(done.map_err(failure)),
                Poll::Pending => limit.poll_until(cx, deadline).map(|()| Err("timeout".to_owned())),
            })
            .await;
            match done {
                Ok(_) => Reply { code: code::TEXT, x: 0.0, text },
                Err(why) => Reply::fail(why),
            }
        })),
        answer,
    )
}

/// Code has the request's body as a socket.
struct Socket;

pub(super) fn is_socket(r: &Request) -> bool {
    r.has_ctx::<Socket>()
}

/// Whether there is a body that nobody has read.
fn body_begin(state: &mut State<'_>, _: &Args<'_>, answer: &mut Answer) -> i32 {
    let Some(r) = state.r.as_deref_mut() else { return code::NO_REQUEST };
    if r.body.is_none() && !r.body.complete
        || r.body.announced() == Some(0)
        || !r.body.was_announced()
    {
        return answer.fail("no body");
    }
    if r.body.complete || r.body.started {
        return answer.fail("request body already exists");
    }
    if r.discards_body() {
        return answer.fail("request body discarded");
    }
    if r.body.is_chunked() {
        return answer.fail("chunked request bodies not supported yet");
    }
    r.set_ctx(Socket);
    answer.number(f64::from(r.conn().stream.fd()))
}

/// The next piece of the body, within `x` milliseconds.
fn body_piece(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    state.wait(WaitFor::Piece(args.x.max(0.0) as u64), answer)
}
