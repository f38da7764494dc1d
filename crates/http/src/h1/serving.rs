//! A connection's life with HTTP/1: small while nothing is asked. What a request needs is taken from the
//! worker when it is its turn.

use super::HEAD_ROOM_BYTES;
use super::{
    after_tunnel, as_ended, begin, end, log_idle_end, over, wait, wait_for_handler, After, Came,
    Stage,
};
use crate::flow::Flow;
use crate::phases::{Stop, Way};
use crate::request::Request;
use crate::tunnel::Tunnel;
use crate::{pool, server};
use std::rc::Rc;
use std::task::{ready, Context, Poll};
use weir_core::counters::Counters;
use weir_core::{ConnError, Connection, LocalFuture};
use weir_runtime::clock;

/// What is done for the client now.
pub(crate) enum Serving {
    Waiting(Wait),
    /// The first bytes of a request are there.
    Begun(Option<Box<Request>>),
    /// A handler of its waits.
    Handler(LocalFuture<'static, (Box<Request>, Flow)>, Way),
    /// Something else of it is waited for.
    Besides(LocalFuture<'static, Came>),
    Tunnel(Box<Tunnel>),
    /// Nothing: it is to be decided.
    Between,
}

impl Serving {
    /// Waits for a request.
    pub(crate) fn wait(conn: &Rc<Connection>) -> Serving {
        Serving::Waiting(Wait::new(conn))
    }

    /// Begins with the first request; `leftover` has been read of it.
    pub(crate) fn first(conn: &Rc<Connection>, leftover: Vec<u8>) -> Serving {
        if !leftover.is_empty() || !conn.worker.try_early() {
            return Serving::next(conn, leftover);
        }
        // A client mostly has sent its request by the time its connection is accepted.
        let mut r = pool::take();
        let hit = conn.try_read(&mut r.buf, HEAD_ROOM_BYTES);
        conn.worker.early_result(hit);
        match hit {
            true => Serving::Begun(Some(r)),
            false => {
                pool::give(r);
                Serving::wait(conn)
            }
        }
    }

    /// Goes on with what was read behind the last request.
    fn next(conn: &Rc<Connection>, rest: Vec<u8>) -> Serving {
        if rest.is_empty() {
            return Serving::wait(conn);
        }
        let mut r = pool::take();
        r.buf = rest;
        r.flags.pipelined = conn.requests.get() > 0;
        Serving::Begun(Some(r))
    }

    /// Ready at the connection's end, or with the bytes that begin HTTP/2 on it.
    pub(crate) fn poll(
        &mut self,
        conn: &Rc<Connection>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Vec<u8>>> {
        loop {
            let (r, way, stop) = match self {
                Serving::Waiting(_) | Serving::Begun(_) => {
                    let Some(mut r) = ready!(self.poll_begun(conn, cx)) else {
                        return Poll::Ready(None);
                    };
                    match begin(conn, &mut r) {
                        Ok((way, stop)) => (r, way, stop),
                        Err(stage) => {
                            self.wait_besides(conn, r, stage);
                            continue;
                        }
                    }
                }
                Serving::Handler(f, way) => {
                    let (mut r, flow) = ready!(f.as_mut().poll(cx));
                    let mut way = *way;
                    *self = Serving::Between;
                    let stop = way.waited(&mut r, flow);
                    (r, way, stop)
                }
                _ => match ready!(self.poll_besides(conn, cx)) {
                    Came::Phases(r, way, stop) => (r, way, stop),
                    Came::To(after) => match self.follow(conn, after) {
                        None => continue,
                        Some(read) => return Poll::Ready(read),
                    },
                },
            };
            if let Some(after) = self.go_on(conn, r, way, stop) {
                if let Some(read) = self.follow(conn, after) {
                    return Poll::Ready(read);
                }
            }
        }
    }

    /// Ready with the first bytes of a request, or with nothing when there will be none.
    #[inline(always)]
    fn poll_begun(
        &mut self,
        conn: &Rc<Connection>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Box<Request>>> {
        match self {
            Serving::Waiting(wait) => wait.poll(conn, cx),
            Serving::Begun(r) => Poll::Ready(r.take()),
            _ => Poll::Ready(None),
        }
    }

    /// Ends a request, or waits for what it has to wait for.
    #[inline(always)]
    fn go_on(
        &mut self,
        conn: &Rc<Connection>,
        mut r: Box<Request>,
        way: Way,
        stop: Stop,
    ) -> Option<After> {
        let finished = match stop {
            Stop::Ended(finished) => finished,
            Stop::Wait(f) => {
                self.turn_to(Serving::Handler(Box::pin(wait_for_handler(r, f)), way));
                return None;
            }
        };
        match end(conn, &mut r, finished) {
            Ok(after) => {
                over(conn, r);
                Some(after)
            }
            Err(stage) => {
                self.wait_besides(conn, r, stage);
                None
            }
        }
    }

    /// Apart, so that what every request goes through stays small.
    #[inline(never)]
    fn wait_besides(&mut self, conn: &Rc<Connection>, r: Box<Request>, stage: Stage) {
        self.turn_to(Serving::Besides(Box::pin(wait(Rc::clone(conn), r, stage))));
    }

    /// What follows a request; `Some` at the connection's end, as in [`Serving::poll`].
    #[inline(always)]
    fn follow(&mut self, conn: &Rc<Connection>, after: After) -> Option<Option<Vec<u8>>> {
        match after {
            After::Keep(rest) => self.turn_to(Serving::next(conn, rest)),
            After::Close => return Some(None),
            After::Http2(read) => return Some(Some(read)),
            After::Tunnel(r) => {
                self.turn_to(Tunnel::new(r).map_or(Serving::Between, Serving::Tunnel));
            }
        }
        None
    }

    /// From a state that keeps nothing: there is nothing to be dropped, which the compiler would look for on
    /// the way of every request.
    #[inline]
    fn turn_to(&mut self, next: Serving) {
        debug_assert!(matches!(
            self,
            Serving::Waiting(_) | Serving::Begun(None) | Serving::Between
        ));
        std::mem::forget(std::mem::replace(self, next));
    }

    /// Ready when what is waited for besides has come, or the connection ends.
    #[inline(never)]
    fn poll_besides(&mut self, conn: &Rc<Connection>, cx: &mut Context<'_>) -> Poll<Came> {
        if let Serving::Tunnel(tunnel) = self {
            let how = ready!(tunnel.poll(conn, cx));
            if let Serving::Tunnel(tunnel) = std::mem::replace(self, Serving::Between) {
                let r = tunnel.end(conn, &how);
                *self = Serving::Besides(Box::pin(after_tunnel(Rc::clone(conn), r)));
            }
        }
        let Serving::Besides(f) = self else { return Poll::Ready(Came::To(After::Close)) };
        let came = ready!(f.as_mut().poll(cx));
        *self = Serving::Between;
        Poll::Ready(came)
    }
}

/// Waits for the beginning of a request.
pub(crate) struct Wait {
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
        if worker.has_successor.get() && !first && !conn.is_passed() {
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
