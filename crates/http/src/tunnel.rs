//! What becomes of a connection behind `101`: bytes both ways until one side is done, and of the request
//! no more than it takes to log it then.

use crate::request::packed::Packed;
use crate::Request;
use std::io;
use std::task::{ready, Context, Poll};
use weir_core::relay::{Event, Late, Relay, SERVER};
use weir_core::Connection;
use weir_tls::Channel;

/// The server's side, as the one keeps it who has asked that server.
pub trait Far {
    /// The connection to it.
    fn channel(&self) -> &Channel;

    /// The server has sent something, for the first time.
    fn heard(&mut self) {}

    /// It is over: what has passed is to be counted, and how it ended is to be told.
    fn ended(self: Box<Self>, r: &mut Request, relay: &Relay, how: &Event);
}

/// What a handler leaves with its request.
struct Begun {
    far: Box<dyn Far>,
    relay: Relay,
    is_heard: bool,
}

/// The header has left, and so begins what the relay does: the handler has nothing more to do.
pub fn begin(r: &mut Request, far: Box<dyn Far>, relay: Relay) {
    r.keep_state(Begun { far, relay, is_heard: false });
}

/// Whether a handler has begun one.
#[cold]
pub(crate) fn has_begun(r: &mut Request) -> bool {
    r.kept::<Begun>().is_some()
}

/// A tunnel, while it lasts.
pub(crate) struct Tunnel {
    begun: Box<Begun>,
    request: Packed,
    /// Reading from that side has failed, which is told at the end.
    failed: Option<Box<(usize, io::Error)>>,
}

impl Tunnel {
    /// The one that was begun on the request's connection.
    pub(crate) fn new(mut r: Box<Request>) -> Option<Box<Tunnel>> {
        let begun = r.take_kept::<Begun>()?;
        r.conn().rest();
        Some(Box::new(Tunnel { begun, request: Packed::new(r), failed: None }))
    }

    /// Lets both sides talk; ready with how it ended.
    pub(crate) fn poll(&mut self, conn: &Connection, cx: &mut Context<'_>) -> Poll<Event> {
        let Begun { far, relay, is_heard } = &mut *self.begun;
        loop {
            let polled = relay.poll(cx, conn, far.channel());
            if !*is_heard && relay.received(SERVER) > 0 {
                *is_heard = true;
                far.heard();
            }
            let (from, e) = match ready!(polled) {
                Event::Unread(from, e) => (from, e),
                last => {
                    let first = self.failed.take().map(|failed| Event::Unread(failed.0, failed.1));
                    return Poll::Ready(first.unwrap_or(last));
                }
            };
            // Over TLS nginx takes a reset for an end.
            if ![&conn.stream, far.channel()][from].is_tls() {
                self.failed.get_or_insert_with(|| Box::new((from, e)));
            }
        }
    }

    /// The request, which is to be logged now.
    pub(crate) fn end(self, conn: &Connection, how: &Event) -> Box<Request> {
        let Begun { far, relay, .. } = *self.begun;
        let mut r = self.request.unpack();
        match how {
            Event::Late(Late::Client) => conn.give_up_sending(),
            Event::Unsent(SERVER, _) => conn.broken.set(true),
            _ => {}
        }
        r.sent += relay.sent(SERVER);
        far.ended(&mut r, &relay, how);
        r
    }
}
