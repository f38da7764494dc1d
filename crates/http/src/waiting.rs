//! Filters that wait. A header filter or a body filter may go on later, once a future is ready. What comes to its
//! body meanwhile is kept for it; the header, whatever stands before it in the queue and the parts of a page go on.
//!
//! Who puts out more waits in [`Request::drain`] first, which polls the future: so no more than a piece is kept, and
//! a client that goes takes the future with it. A request in which nothing waits does not come by here.

use crate::buf::Chain;
use crate::client_watch::ClientWatch;
use crate::flow::{FilterError, FilterResult, GoOn, Held, Next, Waiting, Why};
use crate::request::Request;
use crate::subrequest;
use std::future::{poll_fn, Future};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use weir_core::ConnError;
use weir_wire::http1::request::Method;

/// That the header waits, which makes every body one that a filter looks at.
struct HeaderWaits;

/// With which status a filter that had waited wants the request answered instead.
struct Refused(u16);

impl Request {
    /// From a header filter, which then returns: `go_on` is called with what has come. The module's body filter is
    /// to ask [`Request::keep_while_waiting`] of all it is given.
    ///
    /// # Errors
    ///
    /// The module has no body filter, where the body would be kept.
    pub fn wait_in_header<T: 'static>(
        &mut self,
        next: Next,
        wait: impl Future<Output = T> + 'static,
        go_on: fn(&mut Request, T, Next) -> FilterResult,
    ) -> FilterResult {
        let plan = &self.loc().plan;
        let places = match self.is_part() {
            false => &plan.header_places,
            true => &plan.of_part(subrequest::is_captured(self)).header_places,
        };
        let place = next.0.checked_sub(1).and_then(|at| *places.get(at)?);
        let body = Next(place.ok_or(FilterError::Broken)? + 1);
        self.flags.filter_needs_memory = true;
        // As it will be when the header leaves: who makes the answer looks at it before.
        self.flags.header_only |= self.method == Method::Head;
        self.set_ctx(HeaderWaits);
        self.wait(body, wait, move |r, done| go_on(r, done, next));
        Ok(())
    }

    /// From a body filter, which then returns: `go_on` is called with what has come. The future may have taken what
    /// the filter was given; what it is given further is for [`Request::keep_while_waiting`].
    pub fn wait_in_body<T: 'static>(
        &mut self,
        next: Next,
        wait: impl Future<Output = T> + 'static,
        go_on: fn(&mut Request, T, Next) -> FilterResult,
    ) {
        self.wait(next, wait, move |r, done| go_on(r, done, next));
    }

    fn wait<T: 'static>(
        &mut self,
        next: Next,
        wait: impl Future<Output = T> + 'static,
        go_on: impl FnOnce(&mut Request, T) -> FilterResult + 'static,
    ) {
        let future = Box::pin(async move {
            let done = wait.await;
            Box::new(move |r: &mut Request| go_on(r, done)) as GoOn
        });
        let waiting = Rc::new(Waiting::new(future));
        self.keep_input(Held { next, why: Why::Wait { waiting, kept: Chain::new() } });
    }

    /// What a body filter is given, unless its module waits: then it is kept, and comes again.
    pub fn keep_while_waiting(&mut self, chain: Chain, next: Next) -> Option<Chain> {
        match self.kept_at(next) {
            None => Some(chain),
            Some(kept) => {
                chain.into_iter().for_each(|buf| kept.push(buf));
                None
            }
        }
    }

    fn kept_at(&mut self, next: Next) -> Option<&mut Chain> {
        self.held.iter_mut().filter(|h| h.next.0 == next.0).find_map(|h| match &mut h.why {
            Why::Room { .. } => None,
            Why::Wait { kept, .. } => Some(kept),
        })
    }

    /// Waits for what the filter nearest to the client waits for; what is queued leaves meanwhile.
    pub(crate) async fn wait_for(&mut self, waiting: &Waiting) -> Result<(), ConnError> {
        if self.parts.is_some() {
            return subrequest::wait_for_filter(self).await;
        }
        let mut watch = ClientWatch::new(self, false);
        let mut sending = pin!(self.drain_own(0));
        let mut is_sent = false;
        poll_fn(|cx| {
            if waiting.poll(cx).is_ready() {
                return Poll::Ready(Ok(()));
            }
            if !is_sent {
                match sending.as_mut().poll(cx) {
                    Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                    sent => is_sent = sent.is_ready(),
                }
            }
            match watch.is_gone(cx) {
                true => Poll::Ready(Err(ConnError::Io(io::ErrorKind::BrokenPipe.into()))),
                false => Poll::Pending,
            }
        })
        .await
    }
}

/// Lets a filter go on, and gives it what has come to its body meanwhile.
pub(crate) fn go_on(r: &mut Request, waiting: &Waiting, kept: Chain, next: Next) -> FilterResult {
    if let Some(go_on) = waiting.take() {
        go_on(r)?;
    }
    if kept.is_empty() {
        return Ok(());
    }
    // It may wait for something else now.
    if let Some(later) = r.kept_at(next) {
        let behind = std::mem::replace(later, kept);
        behind.into_iter().for_each(|buf| later.push(buf));
        return Ok(());
    }
    let itself = Next(next.0 - 1);
    match r.is_part() {
        true => itself.body(r, kept),
        // Where parts and body are put in order, this has been already.
        false => itself.body_now(r, kept),
    }
}

/// Notes the status that a filter wants instead, while there is no header.
pub(crate) fn refuse(r: &mut Request, status: u16) {
    if !r.flags.header_sent {
        r.held.clear();
        r.keep_state(Refused(status));
    }
}

/// The status to answer with, of a request that is to be broken off because a filter wants another answer.
#[cold]
pub(crate) fn refusal(r: &mut Request) -> Option<u16> {
    let Refused(status) = *r.take_kept::<Refused>()?;
    (r.flags.unsent, r.flags.aborted) = (false, false);
    Some(status)
}
