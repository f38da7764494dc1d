//! Filters that make more of their input than it was: decompression, long replacements. Such a
//! filter makes no more than the client takes. It asks for room before each piece; where there is
//! none it keeps its input and is called again once the client has taken what is queued.
//!
//! Invariants: input that is kept is resumed before anything else is asked of the response, for
//! whoever puts out more waits in [`Request::drain`] first, as every sender of long bodies does; of
//! several filters that keep input the last of the chain goes on first, so that order is kept.

use crate::flow::{Held, Next, Resume};
use crate::request::Request;
use crate::subrequest;
use std::io;
use weir_core::ConnError;

impl Request {
    /// Whether less than so many bytes of the response wait for the client (or for their turn), and
    /// no filter behind the one that asks keeps what it is given.
    pub fn has_room(&self, next: Next, room_bytes: u64) -> bool {
        self.queued() + subrequest::held(self) < room_bytes && !self.holds_behind(next)
    }

    /// As `has_room`, of what this request itself has put out: what its parts have made is bounded
    /// by itself, and keeps no further part from being started.
    pub fn has_own_room(&self, next: Next, room_bytes: u64) -> bool {
        let room_bytes = if subrequest::must_be_empty(self) { 1 } else { room_bytes };
        self.queued() + subrequest::own_waiting(self) < room_bytes && !self.holds_behind(next)
    }

    fn holds_behind(&self, next: Next) -> bool {
        self.held.last().is_some_and(|h| h.next.0 > next.0)
    }

    /// Has a filter called again once there is room.
    pub fn hold(&mut self, next: Next, room_bytes: u64, resume: Resume) {
        if self.held.iter().any(|h| h.next.0 == next.0) {
            return;
        }
        let at = self.held.iter().position(|h| h.next.0 > next.0).unwrap_or(self.held.len());
        self.held.insert(at, Held { next, room_bytes, resume });
    }

    /// Whether a filter keeps input.
    #[inline]
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// How much may be left in the queue for the next filter to go on.
    pub(crate) fn held_leave(&self, leave: u64) -> u64 {
        self.held.last().map_or(leave, |h| leave.min(h.room_bytes / 2))
    }

    /// Whether the filter that is nearest to the client can go on.
    pub(crate) fn can_resume(&self) -> bool {
        self.held.last().is_some_and(|h| {
            self.has_room(h.next, h.room_bytes)
                && self.has_own_room(h.next, (h.room_bytes / 2).max(1))
        })
    }

    /// Lets the filter that is nearest to the client go on.
    pub(crate) fn resume_held(&mut self) -> Result<(), ConnError> {
        let Some(held) = self.held.pop() else { return Ok(()) };
        let broken = |_| ConnError::Io(io::ErrorKind::BrokenPipe.into());
        (held.resume)(self, held.next).map_err(broken)
    }
}
