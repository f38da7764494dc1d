//! What is left of an HTTP/1 request, or one in records, when its answer begins.

use crate::framing::Framing;
use std::io::IoSlice;
use std::task::{Context, Poll};
use weir_runtime::clock;
use weir_runtime::timer::LazyTimer;
use weir_upstream::Link as Base;

/// What the client still uploads goes to the server while its answer is passed on.
pub(crate) struct Unsent {
    framing: Framing,
    /// Put into its framing; sent up to `at`.
    bytes: Vec<u8>,
    at: usize,
    /// The client's body has not ended with these bytes.
    more: bool,
    /// The server takes nothing more. What it says can still be read.
    mute: bool,
    /// Until when it must have taken more; 0 while it need not.
    deadline: u64,
    timeout_ms: u64,
    timer: LazyTimer,
}

impl Unsent {
    /// `more`: what follows these bytes has yet to come from the client.
    pub(crate) fn new(framing: Framing, bytes: Vec<u8>, more: bool, timeout_ms: u64) -> Unsent {
        let timer = LazyTimer::new();
        Unsent { framing, bytes, at: 0, more, mute: false, deadline: 0, timeout_ms, timer }
    }

    /// A rest that is not sent.
    pub(crate) fn given_up() -> Unsent {
        Unsent { mute: true, ..Unsent::new(Framing::Plain, Vec::new(), false, 0) }
    }

    pub(crate) fn is_mute(&self) -> bool {
        self.mute
    }

    /// More of the body can be taken over.
    pub(crate) fn wants_more(&self) -> bool {
        self.more && !self.mute && self.at == self.bytes.len()
    }

    /// Takes over the next piece of the body.
    pub(crate) fn put(&mut self, piece: &[u8], ended: bool) {
        self.bytes.clear();
        self.at = 0;
        self.more = !ended;
        self.framing.put(piece, ended, &mut self.bytes);
    }

    /// Sends what the server takes now; whether that was all there will be. A server that takes nothing
    /// is left alone: its answer may stand before that.
    pub(crate) fn send(&mut self, cx: &mut Context<'_>, base: &mut Base) -> bool {
        while !self.mute && self.at < self.bytes.len() {
            let parts = [IoSlice::new(&self.bytes[self.at..])];
            match base.stream.poll_write(cx, &parts, false) {
                Poll::Ready(Ok(n)) => {
                    self.at += n;
                    self.deadline = 0;
                    base.sent += n as u64;
                }
                Poll::Ready(Err(_)) => self.mute = true,
                Poll::Pending => {
                    if self.deadline == 0 {
                        self.deadline = clock::mono_ms() + self.timeout_ms;
                    }
                    self.mute = self.timer.poll_until(cx, self.deadline).is_ready();
                    break;
                }
            }
        }
        !self.mute && !self.more && self.at == self.bytes.len()
    }
}
