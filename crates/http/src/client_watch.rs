//! Watching whether the client hangs up while something else is waited for.

use crate::h2::Stream;
use crate::request::Request;
use std::future::{poll_fn, Future};
use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll};
use weir_core::Connection;

/// Watches whether the client hangs up. A subrequest watches nobody: the main request does, and
/// ends it. What is done behind an answer is nobody's either.
pub struct ClientWatch {
    conn: Rc<Connection>,
    stream: Option<Rc<Stream>>,
    on: bool,
}

impl ClientWatch {
    pub fn new(r: &Request, ignore: bool) -> ClientWatch {
        let on = !ignore && !r.is_part() && !r.post_action;
        ClientWatch { conn: Rc::clone(r.conn()), stream: r.stream().cloned(), on }
    }

    pub fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        if let Some(stream) = &self.stream {
            return self.on && stream.poll_gone(cx);
        }
        while self.on {
            if self.conn.stream.poll_readable(cx).is_pending() {
                return false;
            }
            match self.conn.stream.peek() {
                Ok(0) => return true,
                // A further request waits; its sender is there.
                Ok(_) => self.on = false,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => return true,
            }
        }
        false
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
