//! Watching whether the client hangs up while something else is waited for.

use crate::client::Client;
use crate::request::Request;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::task::{Context, Poll};

/// Watches whether the client hangs up. A subrequest watches nobody: the main request does, and
/// ends it. What is done behind an answer is nobody's either.
pub struct ClientWatch {
    client: Client,
    on: bool,
    /// It has ended its side before, and may wait for the answer.
    half_closed: bool,
}

impl ClientWatch {
    /// `ignore`: `…_ignore_client_abort`.
    pub fn new(r: &Request, ignore: bool) -> ClientWatch {
        let (client, on) = (r.to_client().clone(), r.watches_client(ignore));
        ClientWatch { client, on, half_closed: false }
    }

    /// Of a client that has ended its side together with its request, if `half_closed`: that is no reason to think that
    /// it is gone.
    pub fn beside(r: &Request, half_closed: bool) -> ClientWatch {
        ClientWatch { half_closed, ..ClientWatch::new(r, false) }
    }

    /// Whether the client has hung up; otherwise the task is woken when that may be.
    #[inline]
    pub fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        match self.half_closed {
            true => self.on && self.client.conn().poll_broken(cx),
            false => self.client.poll_gone(cx, &mut self.on),
        }
    }

    /// Whether more of the request's body has come, or its end, or the client's; otherwise the task is
    /// woken when that may be.
    pub fn has_body(&self, cx: &mut Context<'_>) -> bool {
        self.client.poll_body(cx)
    }
}

impl Request {
    /// Whether its client has ended its side behind all that was read of it.
    pub fn is_half_closed(&self) -> bool {
        !self.is_part() && self.to_client().is_half_closed()
    }

    /// Whether its client's going may end it: see [`ClientWatch`].
    #[inline]
    pub fn watches_client(&self, ignore: bool) -> bool {
        !ignore && !self.is_part() && !self.flags.post_action
    }

    /// As [`ClientWatch::is_gone`]; `watching` is turned off once that cannot be seen.
    #[inline]
    pub fn is_client_gone(&self, cx: &mut Context<'_>, watching: &mut bool) -> bool {
        self.to_client().poll_gone(cx, watching)
    }
}

/// Waits for something unless the client goes first.
pub async fn unless_client_goes<T>(
    r: &Request,
    ignore: bool,
    work: impl Future<Output = T>,
) -> Option<T> {
    let mut watch = ClientWatch::new(r, ignore);
    let mut work = pin!(work);
    poll_fn(|cx| {
        if let Poll::Ready(done) = work.as_mut().poll(cx) {
            return Poll::Ready(Some(done));
        }
        match watch.is_gone(cx) {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    })
    .await
}
