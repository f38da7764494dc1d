//! A connection's life, as its task keeps it: small while nothing is asked. What a request, a handshake
//! or HTTP/2 needs is made, or taken from the worker, when it is its turn, and is in a box of its own.

use super::runner::Runner;
use super::HEAD_ROOM_BYTES;
use super::{as_ended, expect_preface, log_idle_end, prepare, After};
use crate::request::Request;
use crate::{h2, pool, server};
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{ready, Context, Poll};
use weir_core::counters::Counters;
use weir_core::{ConnError, Connection, LocalFuture};
use weir_runtime::clock;

/// Serves one connection to its end.
pub struct Serving {
    conn: Rc<Connection>,
    state: State,
}

enum State {
    New,
    /// The PROXY protocol's header and the handshake.
    Preparing(LocalFuture<'static, Option<Vec<u8>>>),
    Waiting(Wait),
    Busy(Runner),
    Http2(LocalFuture<'static, ()>),
}

impl Serving {
    pub fn new(conn: Rc<Connection>) -> Serving {
        Serving { conn, state: State::New }
    }

    fn start(&self) -> State {
        let conn = &self.conn;
        if conn.requests.get() > 0 {
            // It comes from another process, between two requests.
            return State::Waiting(Wait::new(conn));
        }
        let gen = conn.generation();
        let listen = &gen.shared.listens[conn.listen.get()];
        let addr = listen.choose(|| conn.local_addr());
        if listen.addrs[0].proxy_protocol || addr.ssl {
            return State::Preparing(Box::pin(prepare(Rc::clone(conn))));
        }
        conn.may_speak_h2.set(addr.preface);
        self.first(Vec::new())
    }

    fn prepared(&self, leftover: Vec<u8>) -> State {
        let conn = &self.conn;
        if conn.stream.protocol().as_deref() == Some(b"h2") {
            return State::Http2(Box::pin(h2::serve(Rc::clone(conn), leftover)));
        }
        expect_preface(conn);
        self.first(leftover)
    }

    fn first(&self, leftover: Vec<u8>) -> State {
        let (conn, worker) = (&self.conn, &self.conn.worker);
        if !leftover.is_empty() || !worker.try_early() {
            return self.next(leftover);
        }
        // A client mostly has sent its request by the time its connection is accepted.
        let mut r = pool::take();
        let hit = conn.try_read(&mut r.buf, HEAD_ROOM_BYTES);
        worker.early_result(hit);
        match hit {
            true => State::Busy(self.busy(r)),
            false => {
                pool::give(r);
                State::Waiting(Wait::new(conn))
            }
        }
    }

    /// Goes on with what was read behind the last request.
    fn next(&self, rest: Vec<u8>) -> State {
        if rest.is_empty() {
            return State::Waiting(Wait::new(&self.conn));
        }
        let mut r = pool::take();
        r.buf = rest;
        r.pipelined = self.conn.requests.get() > 0;
        State::Busy(self.busy(r))
    }

    fn busy(&self, r: Box<Request>) -> Runner {
        let runner = Runner::take();
        runner.begin(&self.conn, r);
        runner
    }

    /// A request is over; `None` at the connection's end.
    fn after(&mut self, after: After) -> Option<State> {
        if let State::Busy(runner) = std::mem::replace(&mut self.state, State::New) {
            runner.give();
        }
        match after {
            After::Keep(rest) => Some(self.next(rest)),
            After::Close => None,
            After::Http2(read) => {
                Some(State::Http2(Box::pin(h2::serve(Rc::clone(&self.conn), read))))
            }
        }
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
                State::Waiting(wait) => {
                    ready!(wait.poll(&this.conn, cx)).map(|r| State::Busy(this.busy(r)))
                }
                State::Busy(runner) => {
                    let after = ready!(runner.poll(cx));
                    this.after(after)
                }
                State::Http2(f) => return f.as_mut().poll(cx),
            };
            match next {
                Some(next) => this.state = next,
                None => return Poll::Ready(()),
            }
        }
    }
}

/// Waits for the beginning of a request.
struct Wait {
    /// Monotonic ms.
    deadline: u64,
    /// Nothing was there at first.
    idle: bool,
}

impl Wait {
    fn new(conn: &Rc<Connection>) -> Wait {
        let deadline = match conn.requests.get() {
            0 => conn.start_ms + *server::default(conn).core.client_header_timeout,
            _ => conn.keepalive_deadline.get(),
        };
        Wait { deadline, idle: false }
    }

    /// A request with its first bytes; `None` when there will be none.
    fn poll(&mut self, conn: &Rc<Connection>, cx: &mut Context<'_>) -> Poll<Option<Box<Request>>> {
        let done = ready!(self.poll_first(conn, cx));
        conn.idle.set(false);
        conn.waiting.set(false);
        if self.idle {
            Counters::add(&conn.worker.counters.waiting, -1);
        }
        Poll::Ready(done)
    }

    fn poll_first(
        &mut self,
        conn: &Rc<Connection>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Box<Request>>> {
        if conn.carried_away.get() {
            return Poll::Ready(None);
        }
        let mut slot = None;
        let read = conn.poll_read_lazy(cx, HEAD_ROOM_BYTES, &mut slot, |slot| {
            &mut slot.get_or_insert_with(pool::take).buf
        });
        if let Poll::Ready(Ok(1..)) = read {
            return Poll::Ready(slot);
        }
        slot.into_iter().for_each(pool::give);
        if let Poll::Ready(read) = read {
            log_idle_end(conn, &as_ended(conn, read.map_err(ConnError::Io)));
            return Poll::Ready(None);
        }
        if !self.idle && !self.rest(conn) {
            return Poll::Ready(None);
        }
        ready!(conn.poll_timeout(cx, self.deadline));
        if conn.requests.get() == 0 {
            log_idle_end(conn, &Err(ConnError::Timeout));
        }
        Poll::Ready(None)
    }

    /// Nothing is asked: the connection lets go of what it need not have; `false` when it is to end.
    fn rest(&mut self, conn: &Rc<Connection>) -> bool {
        let (worker, first) = (&conn.worker, conn.requests.get() == 0);
        self.idle = true;
        conn.rest();
        conn.idle.set(!first);
        conn.waiting.set(true);
        Counters::add(&worker.counters.waiting, 1);
        // A first request is waited for: its connection was accepted to be answered.
        if worker.has_successor.get() && !first {
            // It may go to the other process, or else be answered once more.
            worker.one_ended.notify_one();
        } else if !first && (worker.closing.get() || !conn.keep_up()) {
            let least = conn.keepalive_least.get();
            if least <= clock::mono_ms() {
                return false;
            }
            self.deadline = self.deadline.min(least);
        }
        true
    }
}
