//! One stream: what a request and its connection's task know in common.
//!
//! The request's side puts body bytes into the stream's queue and waits; the connection's side
//! brings windows, body bytes and bad news. Only one task waits for a stream, so it has one waker.

use super::guard;
use super::link::Link;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};
use weir_core::ConnError;
use weir_core::OutQueue;
use weir_runtime::clock;
use weir_runtime::timer::LazyTimer;
use weir_wire::http2::flow::{ReceiveWindow, SendWindow};
use weir_wire::http2::frame;
use weir_wire::http2::priority::{Priority, DEFAULT_SHARE};

/// A stream of a client's: what has come of its body, and what is to be sent.
pub struct Stream {
    /// Odd (RFC 9113, section 5.1.1).
    pub id: u32,
    pub(super) link: Rc<Link>,
    pub(super) send: RefCell<Sending>,
    pub(super) receive: RefCell<Receiving>,
    /// Reset, or its connection is gone: nothing more is to be sent, nothing will come.
    pub(super) dead: Cell<bool>,
    /// A RST_STREAM has been sent.
    pub(super) reset_sent: Cell<bool>,
    /// The client has sent one.
    pub(super) reset_received: Cell<bool>,
    /// The client was too slow: its stream ends with PROTOCOL_ERROR.
    pub(crate) timed_out: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    timer: RefCell<LazyTimer>,
}

/// This side of the stream.
pub(super) struct Sending {
    /// Body bytes that are in no frame yet.
    pub out: OutQueue,
    pub window: SendWindow,
    /// Most bytes in one frame.
    pub chunk: u64,
    /// How much of the queue may go now (`limit_rate`).
    pub allowed: u64,
    /// The queue holds the body's end.
    pub last: bool,
    /// END_STREAM has been sent.
    pub ended: bool,
    /// Bytes of the heads of DATA frames, and of trailers.
    pub(crate) overhead: u64,
    /// Body bytes that were to be sent and never will be.
    pub dropped: u64,
    /// An encoded header block that follows the body.
    pub trailers: Option<Vec<u8>>,
    /// It stands in the link's list.
    pub(crate) listed: bool,
    pub priority: Priority,
    /// Depth and share in RFC 7540's tree, for clients that still tell them.
    pub(crate) rank: (u32, f32),
}

/// The client's side.
#[derive(Default)]
pub(super) struct Receiving {
    /// Body bytes that no one has taken yet.
    pub bytes: Vec<u8>,
    pub window: ReceiveWindow,
    /// END_STREAM has come.
    pub ended: bool,
    /// Nobody wants the body: what comes is dropped.
    pub skip: bool,
}

impl Stream {
    pub(super) fn new(
        id: u32,
        link: Rc<Link>,
        window: SendWindow,
        ended: bool,
        preread: u32,
    ) -> Stream {
        Stream {
            id,
            link,
            send: RefCell::new(Sending {
                out: OutQueue::default(),
                window,
                chunk: 8192,
                allowed: u64::MAX,
                last: false,
                ended: false,
                overhead: 0,
                dropped: 0,
                trailers: None,
                listed: false,
                priority: Priority::default(),
                rank: (1, DEFAULT_SHARE),
            }),
            receive: RefCell::new(Receiving {
                window: ReceiveWindow::new(preread),
                ended,
                ..Receiving::default()
            }),
            dead: Cell::new(false),
            reset_sent: Cell::new(false),
            reset_received: Cell::new(false),
            timed_out: Cell::new(false),
            waker: RefCell::new(None),
            timer: RefCell::new(LazyTimer::new()),
        }
    }

    pub(super) fn wake(&self) {
        if let Some(w) = self.waker.borrow_mut().take() {
            w.wake();
        }
    }

    fn wait(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(w) => w.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
    }

    pub(super) fn kill(&self) {
        self.dead.set(true);
        self.take_back();
        let mut s = self.send.borrow_mut();
        s.dropped += s.out.queued();
        s.out.clear();
        drop(s);
        self.wake();
    }

    /// Throws away what is in no frame yet, but for its first bytes.
    pub(crate) fn drop_output_behind(&self, bytes: u64) {
        let mut s = self.send.borrow_mut();
        s.dropped += s.out.cut(bytes);
    }

    /// No longer counts as sent what stands in frames that the socket has not taken.
    fn take_back(&self) {
        let (bytes, frames) = self.link.take_back(self.id);
        let mut s = self.send.borrow_mut();
        s.dropped += bytes;
        s.overhead = s.overhead.saturating_sub(frames * frame::HEAD_BYTES as u64);
    }

    /// Body bytes that were to be sent and are not on their way.
    pub fn unsent(&self) -> u64 {
        let s = self.send.borrow();
        s.out.queued() + s.dropped
    }

    /// Bytes sent that are neither header nor body.
    pub(crate) fn overhead(&self) -> u64 {
        self.send.borrow().overhead
    }

    /// Body bytes that are in no frame yet.
    pub fn queued(&self) -> u64 {
        self.send.borrow().out.queued()
    }

    /// The connection is given up because the client takes nothing.
    pub(super) fn link_timed_out(&self) -> bool {
        self.link.conn.timed_out.get()
    }

    pub(crate) fn is_dead(&self) -> bool {
        self.dead.get()
    }

    /// Whether the client has reset the stream or is gone; otherwise wakes the task when it does.
    pub(crate) fn poll_gone(&self, cx: &Context<'_>) -> bool {
        self.wait(cx);
        self.dead.get()
    }

    /// Whether all that is to be sent has been put into frames.
    fn is_sent(&self, leave: u64) -> bool {
        let s = self.send.borrow();
        s.out.queued() <= leave && (leave > 0 || !s.last || s.ended)
    }

    /// Puts into frames what may be sent now; answers how many bytes that was.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if self.dead.get() {
            return Poll::Ready(Err(io::ErrorKind::BrokenPipe.into()));
        }
        let before = self.queued();
        self.link.schedule(cx);
        match before - self.queued() {
            0 => {
                self.wait(cx);
                Poll::Pending
            }
            n => Poll::Ready(Ok(n)),
        }
    }

    /// Frames wait for the connection's task, and the socket may have room for them.
    pub fn awaits_turn(&self) -> bool {
        self.link.conn.out.borrow().queued() > 0
    }

    /// Fails once the deadline for sending has passed.
    pub(crate) fn poll_timeout(&self, cx: &mut Context<'_>, deadline: u64) -> Poll<()> {
        self.timer.borrow_mut().poll_until(cx, deadline)
    }

    /// Until [`Stream::unlimit`].
    pub(crate) fn send_nothing(&self) {
        self.send.borrow_mut().allowed = 0;
    }

    /// No `limit_rate` holds after all.
    pub(crate) fn unlimit(&self) {
        if std::mem::replace(&mut self.send.borrow_mut().allowed, u64::MAX) != u64::MAX {
            self.link.list(self);
        }
    }

    /// Waits until at most `leave` bytes are in no frame; `timeout_ms` is the longest time
    /// without progress.
    pub(crate) async fn drain(&self, leave: u64, timeout_ms: u64) -> Result<(), ConnError> {
        let mut deadline = 0;
        let mut seen = u64::MAX;
        poll_fn(|cx| {
            if self.dead.get() {
                return Poll::Ready(Err(gone()));
            }
            self.link.schedule(cx);
            if self.is_sent(leave) {
                return Poll::Ready(Ok(()));
            }
            self.wait(cx);
            let queued = self.queued();
            if queued < seen {
                seen = queued;
                deadline = clock::mono_ms() + timeout_ms;
            }
            self.poll_timeout(cx, deadline).map(|()| Err(self.time_out()))
        })
        .await
    }

    /// Lets at least one and at most `max` bytes go, as many as the windows allow.
    pub(crate) async fn drain_some(&self, max: u64, timeout_ms: u64) -> Result<(), ConnError> {
        self.send.borrow_mut().allowed = max;
        let before = self.queued();
        self.link.list(self);
        let (mut deadline, mut seen) = (0, u64::MAX);
        let done = poll_fn(|cx| {
            if self.dead.get() {
                return Poll::Ready(Err(gone()));
            }
            self.link.schedule(cx);
            let queued = self.queued();
            if queued < before && !self.goes_on() {
                return Poll::Ready(Ok(()));
            }
            self.wait(cx);
            if queued < seen {
                seen = queued;
                deadline = clock::mono_ms() + timeout_ms;
            }
            self.poll_timeout(cx, deadline).map(|()| Err(self.time_out()))
        })
        .await;
        self.send.borrow_mut().allowed = 0;
        done
    }

    /// More leaves as soon as the socket has room.
    fn goes_on(&self) -> bool {
        let s = self.send.borrow();
        let open = s.window.available() > 0 && self.link.window.get().available() > 0;
        open && s.allowed > 0 && s.out.queued() > 0
    }

    fn time_out(&self) -> ConnError {
        self.timed_out.set(true);
        self.take_back();
        ConnError::Timeout
    }

    /// Waits, but no longer than the client wants the stream.
    pub(crate) async fn sleep_while_open(&self, ms: u64) -> Result<(), ConnError> {
        // The turn's clock may be behind, and says whole milliseconds.
        clock::renew();
        let deadline = clock::mono_ms().saturating_add(ms).saturating_add(1);
        poll_fn(|cx| {
            if self.poll_gone(cx) {
                return Poll::Ready(Err(gone()));
            }
            self.poll_timeout(cx, deadline).map(Ok)
        })
        .await
    }

    /// Whether there is something to be taken of the body, or none will come.
    pub(crate) fn has_body(&self, cx: &Context<'_>) -> bool {
        let r = self.receive.borrow();
        if !r.bytes.is_empty() || r.ended {
            return true;
        }
        drop(r);
        self.poll_gone(cx)
    }

    /// Takes what has come of the body, or waits for it; opens the window to `window` bytes
    /// first. `true`: that was the end.
    pub(super) fn poll_body(
        &self,
        cx: &mut Context<'_>,
        to: &mut Vec<u8>,
        window: u32,
        deadline: u64,
    ) -> Poll<Result<bool, ConnError>> {
        let mut r = self.receive.borrow_mut();
        if !r.bytes.is_empty() || r.ended {
            guard::unread_shrank(r.bytes.len() as u64);
            match to.is_empty() {
                true => std::mem::swap(to, &mut r.bytes),
                false => to.append(&mut r.bytes),
            }
            return Poll::Ready(Ok(r.ended));
        }
        if self.dead.get() {
            return Poll::Ready(Err(gone()));
        }
        let more = r.window.open_to(window);
        drop(r);
        if more > 0 {
            self.link.conn.out.borrow_mut().write(|t| frame::window_update(self.id, more, t));
            self.link.wake();
        }
        self.wait(cx);
        self.poll_timeout(cx, deadline).map(|()| Err(self.time_out()))
    }

    /// Nobody will read the body.
    pub(crate) fn skip_body(&self) {
        let mut r = self.receive.borrow_mut();
        r.skip = true;
        guard::unread_shrank(r.bytes.len() as u64);
        r.bytes = Vec::new();
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        guard::unread_shrank(self.receive.get_mut().bytes.len() as u64);
    }
}

fn gone() -> ConnError {
    ConnError::Io(io::ErrorKind::BrokenPipe.into())
}
