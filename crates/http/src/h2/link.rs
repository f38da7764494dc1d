//! What a connection's task and its streams share: the windows, the list of streams that have
//! something to send, and the order in which they may.

use super::block::{write_block, Ready};
use super::stream::{Sending, Stream};
use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::collections::VecDeque;
use std::rc::Rc;
use std::task::{Context, Waker};
use weir_core::Connection;
use weir_wire::http2::flow::SendWindow;
use weir_wire::http2::frame::{self, END_STREAM, HEAD_BYTES};
use weir_wire::http2::hpack;
use weir_wire::http2::{ErrorCode, FRAME_DEFAULT_BYTES, WINDOW_DEFAULT_BYTES};

/// No more is put into frames while this much waits to be written: what is in a frame can no
/// longer give way to something more urgent.
pub(super) const FRAMED_MAX_BYTES: u64 = 128 * 1024;

/// A DATA frame counts as so many bytes at least: two windows are opened for it by some clients, and a PING asks how long it
/// took.
const ACKNOWLEDGED_BYTES: u64 = 2048;

/// Sent on one connection before others have their turn.
const TURN_BYTES: u64 = 1024 * 1024;

/// Streams this side has reset that it remembers.
const RESETS_KEPT_MAX: usize = 32;

struct Framed {
    end: u64,
    stream: u32,
    bytes: u64,
}

pub(super) struct Link {
    pub conn: Rc<Connection>,
    pub(super) ready: Rc<Ready>,
    pub(super) window: Cell<SendWindow>,
    pub(super) initial_window: Cell<u32>,
    pub(super) frame_max: Cell<usize>,
    /// The next header block must say that this side's table stays empty.
    pub(super) table_update: Cell<bool>,
    /// Open streams by rising number.
    pub(super) streams: RefCell<Vec<Rc<Stream>>>,
    /// Streams with something to send.
    list: RefCell<Vec<Rc<Stream>>>,
    /// The streams this side has reset last: the client may not know yet.
    resets: RefCell<VecDeque<u32>>,
    /// Streams that are answered and whose request's rest is not wanted, which is not said yet.
    unwanted: RefCell<Vec<u32>>,
    /// The frames that may not have left: where in the connection's output each ends, whose it is,
    /// and its body bytes.
    framed: RefCell<VecDeque<Framed>>,
    /// Streams that ended well and body bytes sent, as they count, since last looked at.
    pub(super) completed: Cell<u32>,
    pub(super) data_sent: Cell<u64>,
    /// The connection's task itself runs a request now.
    pub(super) inline: Cell<bool>,
    waker: RefCell<Option<Waker>>,
    /// How many bytes will have been sent when others are to have their turn.
    turn_end: Cell<u64>,
}

impl Link {
    pub(super) fn new(conn: Rc<Connection>) -> Link {
        Link {
            ready: conn.worker.local(),
            conn,
            window: Cell::new(SendWindow::new(WINDOW_DEFAULT_BYTES)),
            initial_window: Cell::new(WINDOW_DEFAULT_BYTES),
            frame_max: Cell::new(FRAME_DEFAULT_BYTES as usize),
            table_update: Cell::new(false),
            streams: RefCell::default(),
            list: RefCell::default(),
            resets: RefCell::default(),
            unwanted: RefCell::default(),
            framed: RefCell::default(),
            completed: Cell::new(0),
            data_sent: Cell::new(0),
            inline: Cell::new(false),
            waker: RefCell::new(None),
            turn_end: Cell::new(TURN_BYTES),
        }
    }

    /// Others are to have theirs.
    pub(super) fn turn_is_over(&self) -> bool {
        self.conn.bytes_out.get() >= self.turn_end.get()
    }

    /// They have had it.
    pub(super) fn begin_turn(&self) {
        self.turn_end.set(self.conn.bytes_out.get() + TURN_BYTES);
    }

    /// Has the connection's task look at its output, unless it is at it.
    pub(super) fn wake(&self) {
        if !self.inline.get() {
            if let Some(w) = &*self.waker.borrow() {
                w.wake_by_ref();
            }
        }
    }

    pub(super) fn wait(&self, cx: &Context<'_>) {
        let mut waker = self.waker.borrow_mut();
        match &mut *waker {
            Some(w) => w.clone_from(cx.waker()),
            None => *waker = Some(cx.waker().clone()),
        }
    }

    pub(super) fn find(&self, id: u32) -> Option<Rc<Stream>> {
        let streams = self.streams.borrow();
        let at = streams.binary_search_by_key(&id, |s| s.id).ok()?;
        streams.get(at).cloned()
    }

    pub(super) fn active(&self) -> usize {
        self.streams.borrow().len()
    }

    /// Has a stream looked at by [`Link::schedule`].
    pub(super) fn list(&self, stream: &Stream) {
        let mut s = stream.send.borrow_mut();
        if s.listed || s.ended || stream.dead.get() {
            return;
        }
        if let Some(stream) = self.find(stream.id) {
            s.listed = true;
            self.list.borrow_mut().push(stream);
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.list.borrow().is_empty() && self.conn.out.borrow().queued() < FRAMED_MAX_BYTES
    }

    /// Puts into frames what the streams may send now, the most urgent first.
    pub(super) fn schedule(&self, cx: &mut Context<'_>) {
        if self.list.borrow().is_empty() {
            return;
        }
        loop {
            if self.conn.out.borrow().queued() >= FRAMED_MAX_BYTES && !self.make_room(cx) {
                break;
            }
            let Some(stream) = self.pick() else { break };
            self.send_one(&stream);
        }
        self.wake();
    }

    /// Only the connection's task may wait for its socket.
    fn make_room(&self, cx: &mut Context<'_>) -> bool {
        self.inline.get()
            && !self.turn_is_over()
            && self.conn.poll_flush(cx, u64::MAX).is_ready()
            && self.conn.out.borrow().queued() < FRAMED_MAX_BYTES
    }

    /// Takes the stream whose turn it is off the list; those that cannot go on leave it.
    fn pick(&self) -> Option<Rc<Stream>> {
        let mut list = self.list.borrow_mut();
        let window = self.window.get().available();
        list.retain(|stream| {
            let mut s = stream.send.borrow_mut();
            s.listed = !stream.dead.get() && s.may_go_on();
            s.listed
        });
        let mut best: Option<(usize, &Rc<Stream>)> = None;
        for (i, stream) in list.iter().enumerate() {
            if window == 0 && stream.queued() > 0 {
                continue;
            }
            if best.is_none_or(|(_, b)| goes_before(stream, b)) {
                best = Some((i, stream));
            }
        }
        let at = best?.0;
        let stream = list.remove(at);
        stream.send.borrow_mut().listed = false;
        Some(stream)
    }

    /// One frame of a stream; behind its equals on the list when it has more.
    fn send_one(&self, stream: &Rc<Stream>) {
        let mut s = stream.send.borrow_mut();
        let queued = s.out.queued();
        let n = queued.min(self.room_for(&s)).min(s.allowed);
        if queued > 0 && n == 0 {
            return;
        }
        let mut out = self.conn.out.borrow_mut();
        let whole = n == queued && s.last;
        if n > 0 || s.trailers.is_none() {
            let end = if whole && s.trailers.is_none() { END_STREAM } else { 0 };
            out.write(|t| {
                t.extend_from_slice(&frame::head(n as usize, frame::DATA, end, stream.id))
            });
            out.take_from(&mut s.out, n);
            self.took(&mut s, n);
            s.overhead += HEAD_BYTES as u64;
            self.note(stream.id, n, out.queued());
            s.ended = end != 0;
        }
        if whole && !s.ended {
            if let Some(mut block) = s.trailers.take() {
                if self.table_update.replace(false) {
                    block.insert(0, hpack::EMPTY_TABLE);
                }
                let max = self.frame_max.get();
                s.overhead += out.write(|t| write_block(&block, stream.id, END_STREAM, max, t));
                s.ended = true;
            }
        }
        let more = s.may_go_on();
        s.listed = more;
        let waits = s.out.queued();
        drop((s, out));
        if more {
            self.list.borrow_mut().push(Rc::clone(stream));
        }
        if !more || waits < FRAMED_MAX_BYTES {
            stream.wake();
        }
    }

    /// Remembers a frame until the socket has taken it; `queued` bytes wait, with the frame.
    fn note(&self, stream: u32, bytes: u64, queued: u64) {
        let left = self.conn.bytes_out.get();
        let mut framed = self.framed.borrow_mut();
        while framed.front().is_some_and(|f| f.end <= left) {
            framed.pop_front();
        }
        framed.push_back(Framed { end: left + queued, stream, bytes });
    }

    /// Forgets the frames of a stream that have not left: how many body bytes and frames that are.
    pub(super) fn take_back(&self, stream: u32) -> (u64, u64) {
        let left = self.conn.bytes_out.get();
        let (mut bytes, mut frames) = (0, 0);
        self.framed.borrow_mut().retain(|f| {
            let mine = f.stream == stream && f.end > left;
            bytes += if mine { f.bytes } else { 0 };
            frames += u64::from(mine);
            !mine
        });
        (bytes, frames)
    }

    /// Most bytes for the next frame of a stream.
    pub(super) fn room_for(&self, s: &Sending) -> u64 {
        let windows = s.window.available().min(self.window.get().available());
        windows.min(s.chunk).min(self.frame_max.get() as u64)
    }

    /// Notes that body bytes have gone into a frame.
    pub(super) fn took(&self, s: &mut Sending, n: u64) {
        s.window.take(n);
        if s.allowed != u64::MAX {
            s.allowed -= n;
        }
        let mut window = self.window.get();
        window.take(n);
        self.window.set(window);
        // What is small by itself is acknowledged like what is large.
        let shut = window.available() == 0 || s.window.available() == 0;
        let counted = if shut { n } else { n.max(ACKNOWLEDGED_BYTES) };
        self.data_sent.set(self.data_sent.get() + counted);
    }

    pub(super) fn has_reset(&self, id: u32) -> bool {
        self.resets.borrow().contains(&id)
    }

    /// The client has reset the stream as well, so it sends nothing more for it.
    pub(super) fn forget_reset(&self, id: u32) {
        self.resets.borrow_mut().retain(|r| *r != id);
    }

    pub(super) fn reset(&self, id: u32, code: ErrorCode) {
        let mut resets = self.resets.borrow_mut();
        if resets.len() == RESETS_KEPT_MAX {
            resets.pop_front();
        }
        resets.push_back(id);
        drop(resets);
        if code == ErrorCode::NO_ERROR {
            self.unwanted.borrow_mut().push(id);
        } else {
            self.conn.out.borrow_mut().write(|t| frame::rst_stream(id, code, t));
        }
        self.wake();
    }

    /// Says of streams that were answered early that the rest is not wanted, once the answers have left: in
    /// one record with its answer a client may see the stream's end first, and takes it for a failure (curl does).
    /// Whether there was something to say.
    pub(super) fn refuse_rest(&self) -> bool {
        let unwanted = std::mem::take(&mut *self.unwanted.borrow_mut());
        for id in &unwanted {
            self.conn.out.borrow_mut().write(|t| frame::rst_stream(*id, ErrorCode::NO_ERROR, t));
        }
        !unwanted.is_empty()
    }

    /// A stream's request is over: what is missing of the stream is cut off.
    pub(super) fn close(&self, stream: &Stream) {
        let sent = stream.send.borrow().ended;
        let received = stream.receive.borrow().ended;
        if !stream.dead.get() && !stream.reset_sent.get() {
            let code = match (sent, stream.timed_out.get()) {
                (true, _) => ErrorCode::NO_ERROR,
                (false, true) => ErrorCode::PROTOCOL_ERROR,
                (false, false) => ErrorCode::INTERNAL_ERROR,
            };
            if !sent || !received {
                self.reset(stream.id, code);
            }
        }
        if sent {
            self.completed.set(self.completed.get() + 1);
        }
        stream.dead.set(true);
        let mut streams = self.streams.borrow_mut();
        if let Ok(at) = streams.binary_search_by_key(&stream.id, |s| s.id) {
            streams.remove(at);
        }
        drop(streams);
        self.wake();
    }

    pub(super) fn kill_all(&self) {
        self.list.borrow_mut().clear();
        let streams = self.streams.borrow().clone();
        streams.iter().for_each(|s| s.kill());
    }
}

impl Sending {
    /// Whether a frame could be made now, the connection's own window aside.
    fn may_go_on(&self) -> bool {
        if self.ended {
            return false;
        }
        match self.out.queued() {
            0 => self.last,
            _ => self.window.available() > 0 && self.allowed > 0,
        }
    }
}

/// RFC 9218: by urgency; of equals, whole responses in the order of their numbers before parts of
/// several. RFC 7540's rank and weight decide where a client has told them.
fn goes_before(a: &Rc<Stream>, b: &Rc<Stream>) -> bool {
    let (x, y) = (a.send.borrow(), b.send.borrow());
    let order = x
        .priority
        .urgency
        .cmp(&y.priority.urgency)
        .then(x.rank.0.cmp(&y.rank.0))
        .then(y.rank.1.partial_cmp(&x.rank.1).unwrap_or(Ordering::Equal))
        .then(x.priority.incremental.cmp(&y.priority.incremental));
    match order {
        Ordering::Less => true,
        Ordering::Greater => false,
        // Those that come in parts take turns: the list's order.
        Ordering::Equal => !x.priority.incremental && a.id < b.id,
    }
}
