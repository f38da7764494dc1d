//! What of a response has left, and waiting for its client to take the rest, no faster than `limit_rate`.

use crate::request::Request;
use crate::subrequest::{self, desk::Parts};
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use weir_core::ConnError;
use weir_core::Session;
use weir_runtime::clock;
use weir_script::template::Template;

/// What leaves at once of an answer that has a rate, without sendfile: nginx's `output_buffers`, but at
/// high rates as much as keeps the pauses longer than the event loop is late.
const TURN_BYTES: u64 = 64 * 1024;
const TURNS_PER_SEC: u64 = 16;
/// So much of being late is made up for.
const LATE_MAX_MS: u64 = 50;

impl Request {
    /// Bytes of the response that are not on their way yet.
    pub fn queued(&self) -> u64 {
        if self.is_part() {
            return subrequest::queued(self);
        }
        self.to_client().queued()
    }

    /// Bytes of the response that the client's socket has taken; over HTTP/2, its stream.
    pub fn bytes_sent(&self) -> u64 {
        self.left() + self.to_client().overhead()
    }

    /// As [`Request::bytes_sent`], of the body alone.
    pub fn body_bytes_sent(&self) -> u64 {
        self.left().saturating_sub(self.header_size)
    }

    /// An answer is sent to its end before the next one is queued, so what has not left is this one's.
    fn left(&self) -> u64 {
        self.sent.saturating_sub(match self.is_part() {
            true => 0,
            false => self.to_client().unsent(),
        })
    }

    /// Breaks the request off. The status is what it is logged with, unless an answer is on its way: of one that
    /// waits here nothing leaves any more, so that the log does not show both.
    pub fn abort(&mut self, status: u16) {
        self.flags.aborted = true;
        if status == 444 {
            self.to_client().time_out();
        }
        if self.err_status == 0 && (self.out.status == 0 || self.bytes_sent() == 0) {
            self.err_status = status;
            if self.out.status != 0 && !self.is_part() {
                self.to_client().drop_output_behind(0);
            }
        }
    }

    /// Code has put out something; `at_once`: and wants it to leave.
    pub fn put_out(&mut self, at_once: bool) {
        if self.is_part() {
            return;
        }
        // With HTTP/2 the header leaves by itself.
        let is_h2 = self.to_client().speaks_h2();
        let header = if is_h2 { self.header_size } else { 0 };
        let waiting = self.sent.saturating_sub(self.left.max(header));
        let leaves = at_once || waiting >= *self.loc().core.postpone_output;
        if leaves {
            self.left = self.sent;
        }
        if is_h2 && !self.is_limited() {
            self.to_client().hold_back(!leaves);
        }
    }

    /// The answer breaks off: less than `postpone_output`, as nginx keeps back until more comes, is not sent. Of an
    /// answer that has hardly begun the client gets nothing.
    #[cold]
    pub(crate) fn drop_postponed(&self) {
        let client = self.to_client();
        let (queued, postponed) = (client.queued(), *self.loc().core.postpone_output);
        let keep = self.left.saturating_sub(self.sent.saturating_sub(queued));
        if !self.flags.header_only && queued.saturating_sub(keep) < postponed {
            client.drop_output_behind(keep);
        }
    }

    /// Sends what can be sent now; answers how much that was.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if self.is_part() {
            return subrequest::poll_flush(self, cx);
        }
        self.to_client().poll_flush(cx)
    }

    /// Whether more leaves as soon as the connection's own task has its turn: over HTTP/2 only that
    /// may wait for the socket.
    pub fn awaits_turn(&self) -> bool {
        !self.is_part() && self.to_client().awaits_turn()
    }

    /// Ready once the deadline for sending has passed.
    pub fn poll_send_timeout(&self, cx: &mut Context<'_>, deadline: u64) -> Poll<()> {
        if self.is_part() {
            return Poll::Pending;
        }
        self.to_client().poll_send_timeout(cx, deadline)
    }

    /// Sends all that is queued, if that can be done without waiting: most answers need no future for it.
    pub(crate) fn flush_at_once(&mut self) -> bool {
        let has_no_parts = self.parts.as_deref().is_none_or(Parts::is_idle);
        let is_plain = has_no_parts && !self.holds() && !self.is_limited();
        is_plain && self.to_client().flush_at_once()
    }

    /// Sends what can leave at once. The rest goes when the request next waits for its client.
    pub fn flush_now(&mut self) {
        self.flush_at_once();
    }

    /// Sends what is queued until at most `leave` bytes are left, no faster than `limit_rate`.
    pub async fn drain(&mut self, leave: u64) -> Result<(), ConnError> {
        if self.holds() {
            Box::pin(self.let_go(leave)).await?;
        }
        if self.parts.is_some() && Box::pin(self.make_room(leave)).await? {
            return Ok(());
        }
        self.drain_own(leave).await
    }

    /// Waits until no filter keeps input.
    async fn let_go(&mut self, leave: u64) -> Result<(), ConnError> {
        while self.holds() {
            let leave = self.held_leave(leave);
            if let Some(waiting) = self.waits_for() {
                self.wait_for(&waiting).await?;
            } else if self.parts.is_none() || !self.make_room(leave).await? {
                self.drain_own(leave).await?;
            }
            // Parts that went on meanwhile may have come to a filter that waits.
            if self.waits_for().is_none_or(|w| w.is_over()) {
                self.resume_held()?;
            }
        }
        Ok(())
    }

    /// Waits for the parts of a page; whether that is all there is to do, as in a part.
    async fn make_room(&mut self, leave: u64) -> Result<bool, ConnError> {
        subrequest::make_room(self, leave).await?;
        Ok(self.is_part())
    }

    /// As `drain`; where there are parts and nothing is to be left, it goes on with them until it is
    /// dropped.
    pub async fn drain_on(&mut self, leave: u64) -> Result<(), ConnError> {
        match leave == 0 && self.parts.is_some() && !self.holds() {
            true => Box::pin(subrequest::go_on(self)).await,
            false => self.drain(leave).await,
        }
    }

    /// Whether sending may have to be held to a rate.
    pub fn is_limited(&self) -> bool {
        self.limit_rate.is_some() || self.loc().core.limit_rate.is_some()
    }

    /// As `drain`, of what is queued already.
    pub(crate) async fn drain_own(&mut self, leave: u64) -> Result<(), ConnError> {
        let core = &self.loc().core;
        let (timeout, turn) = (*core.send_timeout, *core.sendfile_max_chunk);
        let rate = if self.is_limited() { self.rate() } else { 0 };
        match rate {
            0 => self.to_client().drain(leave, turn, timeout).await,
            _ => self.drain_slowly(leave, rate, timeout).await,
        }
    }

    async fn drain_slowly(&mut self, leave: u64, rate: u64, timeout: u64) -> Result<(), ConnError> {
        let after = self.rate_after();
        while self.queued() > leave {
            let pause = self.paced_until_ms.saturating_sub(clock::mono_ms());
            if pause > 0 {
                self.sleep_while_reached(pause).await?;
                continue;
            }
            let done = self.sent - self.queued();
            let seconds = self.elapsed_ms() / 1000 + 1;
            let allowed = (rate * seconds + after).saturating_sub(done);
            if allowed == 0 {
                let over = done.saturating_sub(rate * seconds + after) + 1;
                let wait = (over * 1000).div_ceil(rate) + 1;
                self.sleep_while_reached(wait.min(1000)).await?;
                continue;
            }
            let turn = self.turn(allowed, rate);
            let begun = self.to_client().drain_some(turn, timeout).await?;
            let counts = |bytes: u64| bytes.saturating_sub(after);
            let paid = counts(self.sent - self.queued()) - counts(done);
            let late = clock::mono_ms().saturating_sub(LATE_MAX_MS).min(begun);
            let from = self.paced_until_ms.max(late);
            self.paced_until_ms = from + paid * 1000 / rate;
        }
        match leave {
            0 => self.to_client().drain_end(timeout).await,
            _ => Ok(()),
        }
    }

    /// How much of what the rate allows is sent at once. As in nginx the kernel is given a second's
    /// worth, to the end of a page of the file; what goes through buffers leaves in their size.
    fn turn(&self, allowed: u64, rate: u64) -> u64 {
        if !*self.loc().core.sendfile || self.conn().is_tls() {
            return allowed.min(TURN_BYTES.max(rate / TURNS_PER_SEC));
        }
        self.to_client().to_page_end(allowed)
    }

    /// Waits before more is sent, which tells whether a client that has ended its side is there, as in nginx.
    async fn sleep_while_reached(&self, ms: u64) -> Result<(), ConnError> {
        self.sleep_while_open(ms, true).await
    }

    /// Waits, but no longer than the client is there. `half_closed`: it had ended its side before
    /// ([`Request::is_half_closed`]), and may wait for the answer.
    pub async fn sleep_while_open(&self, ms: u64, half_closed: bool) -> Result<(), ConnError> {
        if self.is_part() {
            weir_runtime::timer::sleep_ms(ms).await;
            return Ok(());
        }
        self.to_client().sleep_while_open(ms, half_closed).await
    }

    /// Bytes a second this response may take; 0 for no limit.
    fn rate(&mut self) -> u64 {
        if let Some(rate) = self.limit_rate {
            return rate;
        }
        let loc = Rc::clone(self.loc());
        let rate = loc.core.limit_rate.as_ref().map_or(0, |t| self.eval_size(t));
        self.limit_rate = Some(rate);
        rate
    }

    fn rate_after(&mut self) -> u64 {
        if let Some(after) = self.limit_rate_after {
            return after;
        }
        let loc = Rc::clone(self.loc());
        let after = loc.core.limit_rate_after.as_ref().map_or(0, |t| self.eval_size(t));
        self.limit_rate_after = Some(after);
        after
    }

    /// Evaluates the limits of `limit_rate` that have variables, while a match that is given up in them
    /// can still end the request.
    #[cold]
    pub(crate) fn settle_rate(&mut self) {
        let core = &self.loc().core;
        let is_fixed = |t: &Option<_>| {
            t.as_ref().is_none_or(|t: &std::sync::Arc<Template>| t.as_constant().is_some())
        };
        if self.is_part() || is_fixed(&core.limit_rate) && is_fixed(&core.limit_rate_after) {
            return;
        }
        let before = (self.limit_rate, self.limit_rate_after);
        if self.rate() > 0 {
            self.rate_after();
        }
        if self.match_failed() {
            (self.limit_rate, self.limit_rate_after) = before;
        }
    }
}
