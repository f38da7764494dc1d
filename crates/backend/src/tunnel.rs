//! After `101 Switching Protocols`: bytes both ways until one side is done.

use crate::conf::BackendLoc;
use crate::link::Link;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::task::{Context, Poll};
use weir_core::logger::LogLevel;
use weir_core::socket_errors;
use weir_core::{Connection, Session};
use weir_http::module::FilterResult;
use weir_http::Request;
use weir_runtime::clock;
use weir_upstream::error_text;

/// How a tunnel ended.
enum End {
    Done,
    ClientTimeout,
    ServerTimeout,
    /// A call that failed on the client's connection, or the server's.
    ClientFailed(&'static str, io::Error),
    ServerFailed(&'static str, io::Error),
}

/// Logs it, at nginx's levels: an idle connection that is let run out is no error.
fn log_end(r: &Request, end: &End) {
    const DOING: &str = "while proxying upgraded connection";
    const LATE: &str = "timed out (110: Connection timed out)";
    let (level, what) = match end {
        End::Done => return,
        End::ClientTimeout => (LogLevel::Info, format!("client {LATE}")),
        End::ServerTimeout => (LogLevel::Info, format!("upstream {LATE}")),
        End::ClientFailed(call, e) => {
            (socket_errors::level(e, LogLevel::Info), format!("{call} failed {}", error_text(e)))
        }
        End::ServerFailed(call, e) => {
            (socket_errors::level(e, LogLevel::Error), format!("{call} failed {}", error_text(e)))
        }
    };
    r.log(level, &format!("{what} {DOING}"));
}

/// What flows one way.
#[derive(Default)]
struct Pipe {
    buf: Vec<u8>,
    at: usize,
    eof: bool,
}

impl Pipe {
    fn is_empty(&self) -> bool {
        self.at == self.buf.len()
    }

    fn consume(&mut self, n: usize) {
        self.at += n;
        if self.is_empty() {
            self.buf.clear();
            self.at = 0;
        }
    }
}

/// Sends the head and passes bytes on until it is over. An error: the head could not be sent.
pub(crate) async fn run(r: &mut Request, conf: &BackendLoc, link: &mut Link) -> FilterResult {
    r.upgraded = true;
    r.keepalive = false;
    r.out.content_length = None;
    r.send_header()?;
    let conn = Rc::clone(r.conn());
    conn.set_nodelay();
    link.stream.set_nodelay(true);
    let from = r.exchange.head_at + r.exchange.head.head_len;
    let early = r.exchange.reply.split_off(from.min(r.exchange.reply.len()));
    let mut tunnel = Tunnel {
        conn,
        room: *conf.buffer_size as usize,
        read_ms: *conf.read_timeout,
        send_ms: *conf.send_timeout,
        client_send_ms: *r.loc().core.send_timeout,
        up: Pipe { buf: r.body.take_pending(), ..Pipe::default() },
        failed: None,
        received: early.len() as u64,
        deadline: 0,
    };
    r.shrink();
    tunnel.conn.out.borrow_mut().write(|t| t.extend_from_slice(&early));
    let mut down_eof = false;
    let end = poll_fn(|cx| tunnel.poll(cx, link, &mut down_eof)).await;
    if let Some(state) = r.upstream.last_mut() {
        state.bytes_received += tunnel.received - early.len() as u64;
        state.response_length = tunnel.received;
    }
    if matches!(end, End::ClientTimeout) {
        tunnel.conn.give_up_sending();
    }
    log_end(r, &end);
    r.sent += tunnel.received;
    Ok(())
}

struct Tunnel {
    conn: Rc<Connection>,
    room: usize,
    read_ms: u64,
    send_ms: u64,
    client_send_ms: u64,
    /// From the client to the server; the other way goes through the connection's own queue.
    up: Pipe,
    received: u64,
    failed: Option<End>,
    /// Moved by every byte that passes.
    deadline: u64,
}

impl Tunnel {
    fn poll(&mut self, cx: &mut Context<'_>, link: &mut Link, down_eof: &mut bool) -> Poll<End> {
        loop {
            let moved = self.upwards(cx, link) | self.downwards(cx, link, down_eof);
            let queued = self.conn.out.borrow().queued();
            if self.conn.broken.get()
                || (*down_eof && queued == 0)
                || (self.up.eof && self.up.is_empty())
            {
                return Poll::Ready(self.failed.take().unwrap_or(End::Done));
            }
            if moved {
                self.deadline = 0;
                continue;
            }
            let (wait, end) = match () {
                () if queued > 0 => (self.client_send_ms, End::ClientTimeout),
                () if !self.up.is_empty() => (self.send_ms, End::ServerTimeout),
                () => (self.read_ms, End::ServerTimeout),
            };
            if self.deadline == 0 {
                self.deadline = clock::mono_ms() + wait;
            }
            if queued == 0 && self.up.is_empty() {
                // While both sides are quiet there is no buffer.
                self.up.buf = Vec::new();
                self.conn.rest();
            }
            return self.conn.poll_timeout(cx, self.deadline).map(|()| end);
        }
    }

    /// Client to server; whether anything moved.
    fn upwards(&mut self, cx: &mut Context<'_>, link: &mut Link) -> bool {
        let mut moved = false;
        if !self.up.is_empty() {
            let part = IoSlice::new(&self.up.buf[self.up.at..]);
            match link.stream.poll_write(cx, &[part], false) {
                Poll::Ready(Ok(n)) => {
                    link.sent += n as u64;
                    self.up.consume(n);
                    moved = true;
                }
                Poll::Ready(Err(e)) => {
                    self.failed = Some(End::ServerFailed("send()", e));
                    self.up = Pipe { eof: true, ..Pipe::default() };
                    return false;
                }
                Poll::Pending => {}
            }
        }
        let room = self.room.saturating_sub(self.up.buf.len());
        if room > 0 && !self.up.eof {
            match self.conn.stream.poll_read_lazy(cx, room, &mut self.up, |up| &mut up.buf) {
                Poll::Ready(Ok(n)) if n > 0 => moved = true,
                Poll::Ready(ended) => {
                    self.up.eof = true;
                    // Over TLS nginx takes a reset for an end.
                    let failed = ended.err().filter(|_| !self.conn.stream.is_tls());
                    let end = failed.map(|e| End::ClientFailed("recv()", e));
                    self.failed = self.failed.take().or(end);
                }
                Poll::Pending => {}
            }
        }
        moved
    }

    /// Server to client; whether anything moved.
    fn downwards(&mut self, cx: &mut Context<'_>, link: &mut Link, eof: &mut bool) -> bool {
        let mut moved = false;
        if self.conn.out.borrow().queued() > 0 {
            match self.conn.poll_flush(cx, u64::MAX) {
                Poll::Ready(Ok(n)) => moved |= n > 0,
                Poll::Ready(Err(e)) => self.failed = Some(End::ClientFailed("send()", e)),
                Poll::Pending => {}
            }
        }
        let queued = self.conn.out.borrow().queued() as usize;
        let room = self.room.saturating_sub(queued);
        if room > 0 && !*eof && link.stream.poll_readable(cx).is_ready() {
            let mut out = self.conn.out.borrow_mut();
            let mut read = Poll::Pending;
            out.write(|text| read = link.stream.poll_read(cx, text, room));
            match read {
                Poll::Ready(Ok(n)) if n > 0 => {
                    self.received += n as u64;
                    moved = true;
                }
                Poll::Ready(ended) => {
                    *eof = true;
                    let failed = ended.err().filter(|_| !link.stream.is_tls());
                    let end = failed.map(|e| End::ServerFailed("recv()", e));
                    self.failed = self.failed.take().or(end);
                }
                Poll::Pending => {}
            }
        }
        moved
    }
}
