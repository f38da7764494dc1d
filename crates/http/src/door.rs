//! The doorman: what comes before the first request of a connection (the PROXY protocol's header, TLS), and
//! which protocol is spoken behind it. A connection's task keeps no more than that one's state; a handshake
//! and HTTP/2 are in boxes of their own.

use crate::{h1, h2, pool, server};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{ready, Context, Poll};
use weir_core::logger::LogLevel;
use weir_core::proxy_header::{self, Bad};
use weir_core::tls;
use weir_core::{Connection, LocalFuture};
use weir_runtime::clock;

/// Lets go of what is kept for requests: the worker is about to rest.
pub fn free() {
    pool::free();
}

/// Lets go of most of what is kept: nothing is done for a while.
pub fn shrink() {
    pool::shrink();
}

/// Serves one connection to its end.
pub struct Serving {
    conn: Rc<Connection>,
    state: State,
}

enum State {
    New,
    /// The PROXY protocol's header and the handshake.
    Preparing(LocalFuture<'static, Option<Vec<u8>>>),
    Http1(h1::Serving),
    Http2(LocalFuture<'static, ()>),
}

impl Serving {
    /// Of a connection that was accepted, or taken on from another process.
    pub fn new(conn: Rc<Connection>) -> Serving {
        Serving { conn, state: State::New }
    }

    fn start(&self) -> State {
        let conn = &self.conn;
        if conn.requests.get() > 0 {
            // It comes from another process, between two requests.
            return State::Http1(h1::Serving::wait(conn));
        }
        let gen = conn.generation();
        let addr = conn.addr(&gen.shared);
        if addr.proxy_protocol || addr.ssl {
            return State::Preparing(Box::pin(prepare(Rc::clone(conn))));
        }
        conn.may_speak_h2.set(addr.preface);
        State::Http1(h1::Serving::first(conn, Vec::new()))
    }

    fn prepared(&self, leftover: Vec<u8>) -> State {
        let conn = &self.conn;
        if conn.stream.protocol().as_deref() == Some(b"h2") {
            return self.http2(leftover);
        }
        expect_preface(conn);
        State::Http1(h1::Serving::first(conn, leftover))
    }

    fn http2(&self, read: Vec<u8>) -> State {
        State::Http2(Box::pin(h2::serve(Rc::clone(&self.conn), read)))
    }
}

impl Future for Serving {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        loop {
            let next = match &mut this.state {
                State::New => Some(this.start()),
                State::Preparing(f) => ready!(f.as_mut().poll(cx)).map(|rest| this.prepared(rest)),
                State::Http1(h1) => ready!(h1.poll(&this.conn, cx)).map(|read| this.http2(read)),
                State::Http2(f) => return f.as_mut().poll(cx),
            };
            match next {
                Some(next) => this.state = next,
                None => return Poll::Ready(()),
            }
        }
    }
}

/// Makes a connection ready for requests, where more is to be done for that than to read them; answers
/// what was read beyond, `None` when there is nothing to serve.
async fn prepare(conn: Rc<Connection>) -> Option<Vec<u8>> {
    let mut leftover = Vec::new();
    if expects_proxy_header(&conn) && !read_proxy_header(&conn, &mut leftover).await {
        return None;
    }
    tls::accept(&conn, leftover).await
}

/// Whether the address it came to is told of clients by the PROXY protocol.
fn expects_proxy_header(conn: &Connection) -> bool {
    conn.addr(&conn.generation().shared).proxy_protocol
}

/// Finds out whether the first bytes may be HTTP/2's preface.
fn expect_preface(conn: &Connection) {
    let gen = conn.generation();
    let listen = conn.addr(&gen.shared);
    conn.may_speak_h2.set(listen.preface && !listen.ssl);
}

/// The PROXY protocol header in front of the first request.
async fn read_proxy_header(conn: &Connection, buf: &mut Vec<u8>) -> bool {
    let deadline = clock::mono_ms() + *server::default(conn).core.client_header_timeout;
    match proxy_header::read(conn, buf, deadline).await {
        Ok(()) => true,
        Err(Bad::Broken(mut text)) => {
            text.extend_from_slice(b" while reading PROXY protocol");
            conn.log(LogLevel::Error, &text);
            false
        }
        Err(Bad::Ended(_)) => false,
    }
}
