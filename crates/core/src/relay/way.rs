//! What flows one way.

use std::cell::{Cell, RefCell};
use std::io::{self, IoSlice};
use std::task::{Context, Poll};
use weir_runtime::clock;
use weir_runtime::net::Pipe;
use weir_tls::Channel;

thread_local! {
    static SHARED: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
    /// For those that have much to send, each in its turn; empty between them.
    static PIPE: Cell<Option<Pipe>> = const { Cell::new(None) };
    /// When it is tried again to make one (monotonic ms).
    static PIPE_AT_MS: Cell<u64> = const { Cell::new(0) };
    /// Bytes that the worker's relays keep for those that do not take them.
    static KEPT_BYTES: Cell<usize> = const { Cell::new(0) };
}

/// Reads in a row that fill the buffer, and are taken by the other side, before a sender is spliced.
const FULL_READS: u8 = 4;
/// Spliced at once. Each call has its price; but what the other side does not take is to be kept, and all
/// relays of a worker keep so much that they could have read less of. Where little of that is left it is
/// copied, in the size that was configured.
const SPLICE_MAX_BYTES: usize = 1024 * 1024;
const SPLICE_MIN_BYTES: usize = 64 * 1024;
const KEPT_MAX_BYTES: usize = 4 * 1024 * 1024;
/// So many bytes are spliced in the time that one is copied in.
const SPLICED_PER_COPIED: usize = 4;
/// Where there was no pipe to be had.
const PIPE_RETRY_MS: u64 = 1000;

/// What may be moved before others have their turn.
pub(super) struct Turn {
    left_bytes: usize,
}

impl Turn {
    /// Bytes that are copied.
    pub(super) fn of(bytes: usize) -> Turn {
        Turn { left_bytes: bytes }
    }

    pub(super) fn is_over(&self) -> bool {
        self.left_bytes == 0
    }

    fn left_to_splice(&self) -> usize {
        self.left_bytes.saturating_mul(SPLICED_PER_COPIED)
    }

    fn copied(&mut self, bytes: usize) {
        self.left_bytes = self.left_bytes.saturating_sub(bytes);
    }

    fn spliced(&mut self, bytes: usize) {
        self.copied(bytes.div_ceil(SPLICED_PER_COPIED));
    }
}

#[derive(Default)]
pub(super) struct Way {
    pub(super) received: u64,
    pub(super) sent: u64,
    /// What the other side has not taken yet.
    rest: Option<Box<Rest>>,
    pub(super) eof: bool,
    /// The other side has been told of the end.
    pub(super) closed: bool,
    /// Reads in a row that have filled the buffer.
    full_reads: u8,
    /// Its bytes go on within the kernel.
    splices: bool,
}

/// Bytes, from there on.
struct Rest(Vec<u8>, usize);

impl Rest {
    fn new(bytes: Vec<u8>) -> Rest {
        KEPT_BYTES.set(KEPT_BYTES.get() + bytes.len());
        Rest(bytes, 0)
    }
}

impl Drop for Rest {
    fn drop(&mut self) {
        KEPT_BYTES.set(KEPT_BYTES.get() - self.0.len());
    }
}

pub(super) enum Failed {
    Reading(io::Error),
    Writing(io::Error),
}

impl Way {
    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_none()
    }

    /// Keeps what cannot be sent now; nothing is kept yet.
    pub(super) fn keep(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            self.rest = Some(Box::new(Rest::new(bytes)));
        }
    }

    /// Sends of what was kept; whether anything was taken.
    pub(super) fn send_rest(&mut self, cx: &mut Context<'_>, to: &Channel) -> Result<bool, Failed> {
        let Some(Rest(rest, at)) = self.rest.as_deref_mut() else { return Ok(false) };
        match to.poll_write(cx, &[IoSlice::new(&rest[*at..])], false) {
            Poll::Ready(Ok(n)) => {
                *at += n;
                self.sent += n as u64;
                if *at == rest.len() {
                    // A quiet way holds no buffer.
                    self.rest = None;
                }
                Ok(true)
            }
            Poll::Ready(Err(e)) => Err(Failed::Writing(e)),
            Poll::Pending => Ok(false),
        }
    }

    /// Reads into the shared buffer and writes from there; what is not taken is kept. Answers how much
    /// was read, 0 at the end.
    pub(super) fn pass_on(
        &mut self,
        cx: &mut Context<'_>,
        [source, to]: [&Channel; 2],
        room: usize,
        turn: &mut Turn,
    ) -> Result<Poll<usize>, Failed> {
        SHARED.with_borrow_mut(|buf| {
            buf.clear();
            let n = match source.poll_read_lazy(cx, room, buf, |buf| buf) {
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(e)) => {
                    self.eof = true;
                    return Err(Failed::Reading(e));
                }
                Poll::Pending => return Ok(Poll::Pending),
            };
            self.eof = n == 0;
            self.received += n as u64;
            turn.copied(n);
            let mut taken = 0;
            while taken < n {
                match to.poll_write(cx, &[IoSlice::new(&buf[taken..])], false) {
                    Poll::Ready(Ok(sent)) => {
                        taken += sent;
                        self.sent += sent as u64;
                    }
                    Poll::Ready(Err(e)) => return Err(Failed::Writing(e)),
                    Poll::Pending => {
                        self.keep(buf[taken..].to_vec());
                        break;
                    }
                }
            }
            Ok(Poll::Ready(n))
        })
    }

    /// A plain sender with much to send, which the other side takes, is spliced.
    pub(super) fn note_full(&mut self, is_full: bool, [source, to]: [&Channel; 2]) {
        let flows = is_full && self.is_empty();
        self.full_reads = if flows { self.full_reads.saturating_add(1) } else { 0 };
        if self.full_reads >= FULL_READS && !source.is_tls() && !to.is_tls() {
            self.full_reads = 0;
            self.splices = true;
        }
    }

    /// Moves bytes through the worker's pipe, if the way is such a one; whether any were moved. It is no
    /// longer one when the sender has nothing more.
    pub(super) fn splice(
        &mut self,
        cx: &mut Context<'_>,
        ends: [&Channel; 2],
        turn: &mut Turn,
    ) -> Option<Result<bool, Failed>> {
        if !self.splices || !self.is_empty() {
            return None;
        }
        let room = KEPT_MAX_BYTES.saturating_sub(KEPT_BYTES.get()).min(SPLICE_MAX_BYTES);
        let pipe = if room < SPLICE_MIN_BYTES { None } else { take_pipe() };
        let Some(mut pipe) = pipe else {
            self.splices = false;
            return None;
        };
        let done = self.splice_through(&mut pipe, cx, ends, room, turn);
        // What an error has left in it is nobody's.
        if pipe.held() == 0 {
            PIPE.set(Some(pipe));
        }
        Some(done)
    }

    fn splice_through(
        &mut self,
        pipe: &mut Pipe,
        cx: &mut Context<'_>,
        [source, to]: [&Channel; 2],
        room: usize,
        turn: &mut Turn,
    ) -> Result<bool, Failed> {
        let mut moved = false;
        while !turn.is_over() {
            match pipe.poll_fill(cx, source.socket(), room.min(turn.left_to_splice())) {
                Poll::Ready(Ok(n)) if n > 0 => {
                    self.received += n as u64;
                    turn.spliced(n);
                    moved = true;
                }
                ended => {
                    self.splices = false;
                    self.eof = ended.is_ready();
                    return match ended {
                        Poll::Ready(Ok(_)) => Ok(true),
                        Poll::Ready(Err(e)) => Err(Failed::Reading(e)),
                        Poll::Pending => Ok(moved),
                    };
                }
            }
            while pipe.held() > 0 {
                match pipe.poll_drain(cx, to.socket()) {
                    Poll::Ready(Ok(n)) => self.sent += n as u64,
                    Poll::Ready(Err(e)) => return Err(Failed::Writing(e)),
                    Poll::Pending => {
                        self.keep(pipe.take_out().map_err(Failed::Reading)?);
                        return Ok(moved);
                    }
                }
            }
        }
        Ok(moved)
    }
}

/// The worker's, or a new one.
fn take_pipe() -> Option<Pipe> {
    let kept = PIPE.take();
    if kept.is_some() || PIPE_AT_MS.get() > clock::mono_ms() {
        return kept;
    }
    let made = Pipe::new().ok();
    if made.is_none() {
        PIPE_AT_MS.set(clock::mono_ms() + PIPE_RETRY_MS);
    }
    made
}

/// Whether the worker's is there, for whoever is next.
#[cfg(test)]
pub(super) fn has_pipe() -> bool {
    let pipe = PIPE.take();
    let is_empty = pipe.as_ref().is_some_and(|pipe| pipe.held() == 0);
    PIPE.set(pipe);
    is_empty
}
