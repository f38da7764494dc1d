//! Filters that keep their input, for one of two reasons: there is no room for what they make of it, or they
//! wait for something ([`waiting`](crate::waiting)).
//!
//! Some make more of their input than it was: decompression, long replacements. Such a filter makes no more than
//! the client takes. It asks for room before each piece; where there is none it keeps its input and is called
//! again once the client has taken what is queued.
//!
//! Invariants: input that is kept is resumed before anything else is asked of the response, for
//! whoever puts out more waits in [`Request::drain`] first, as every sender of long bodies does; of
//! several filters that keep input the last of the chain goes on first, so that order is kept.

use crate::flow::{FilterError, Held, Next, Resume, Waiting, Why};
use crate::request::Request;
use crate::subrequest;
use crate::waiting;
use std::io;
use std::rc::Rc;
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

    pub(crate) fn holds_behind(&self, next: Next) -> bool {
        self.held.last().is_some_and(|h| h.next.0 > next.0)
    }

    /// Has a filter called again once there is room.
    pub fn hold(&mut self, next: Next, room_bytes: u64, resume: Resume) {
        if self.held.iter().any(|h| h.next.0 == next.0) {
            return;
        }
        self.keep_input(Held { next, why: Why::Room { bytes: room_bytes, resume } });
    }

    pub(crate) fn keep_input(&mut self, held: Held) {
        let behind = self.held.iter().position(|h| h.next.0 > held.next.0);
        self.held.insert(behind.unwrap_or(self.held.len()), held);
    }

    /// Whether a filter keeps input.
    #[inline]
    pub fn holds(&self) -> bool {
        !self.held.is_empty()
    }

    /// How much may be left in the queue for the next filter to go on.
    pub(crate) fn held_leave(&self, leave: u64) -> u64 {
        match self.held.last() {
            Some(Held { why: Why::Room { bytes, .. }, .. }) => leave.min(bytes / 2),
            _ => leave,
        }
    }

    /// What the filter that is nearest to the client waits for, if that is not room.
    pub(crate) fn waits_for(&self) -> Option<Rc<Waiting>> {
        match &self.held.last()?.why {
            Why::Room { .. } => None,
            Why::Wait { waiting, .. } => Some(Rc::clone(waiting)),
        }
    }

    /// Whether the filter that is nearest to the client can go on.
    pub(crate) fn can_resume(&self) -> bool {
        self.held.last().is_some_and(|h| match &h.why {
            Why::Room { bytes, .. } => {
                self.has_room(h.next, *bytes) && self.has_own_room(h.next, (bytes / 2).max(1))
            }
            Why::Wait { waiting, .. } => waiting.is_over(),
        })
    }

    /// Lets the filter that is nearest to the client go on.
    pub(crate) fn resume_held(&mut self) -> Result<(), ConnError> {
        let Some(held) = self.held.pop() else { return Ok(()) };
        let gone_on = match held.why {
            Why::Room { resume, .. } => resume(self, held.next),
            Why::Wait { waiting, kept } => waiting::go_on(self, &waiting, kept, held.next),
        };
        gone_on.map_err(|e| {
            if let FilterError::Status(status) = e {
                waiting::refuse(self, status);
            }
            ConnError::Io(io::ErrorKind::BrokenPipe.into())
        })
    }
}
