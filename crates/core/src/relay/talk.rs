//! A session's bytes both ways, and what is told of them.

use super::{Event, How, Relay, CLIENT, SERVER};
use crate::logger::LogLevel;
use crate::{socket_errors, Session};
use std::io;
use std::task::{ready, Context, Poll};
use weir_runtime::clock;
use weir_tls::Channel;

const READING: [&str; 2] =
    ["proxying and reading from client", "proxying and reading from upstream"];
const SENDING: [&str; 2] = ["proxying and sending to upstream", "proxying and sending to client"];

/// A session whose bytes are moved.
pub trait Relayed: Session {
    /// What it is doing, for the error log's lines.
    fn doing(&mut self) -> &mut &'static str;

    /// The server has sent something; it was that time (monotonic microseconds) when the two were joined.
    fn heard(&mut self, _begun_us: u64) {}

    /// What has passed, before anything is said of it.
    fn passed(&mut self, _passed: &Passed) {}
}

/// What has passed, by who has sent it: [`CLIENT`] or [`SERVER`].
pub struct Passed {
    /// Bytes that were read.
    pub received: [u64; 2],
    /// Bytes that the other side has taken.
    pub sent: [u64; 2],
    /// For how long, in microseconds.
    pub took_us: u64,
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By whom: [`CLIENT`] or [`SERVER`].
    Done(usize),
    /// Both were quiet for too long.
    Timeout,
    /// A write to the other side failed, which has been logged.
    Broken,
    /// By `worker_shutdown_timeout`.
    Cut,
}

/// A server that is connected to, and what goes both ways.
pub struct Talk {
    server: Channel,
    relay: Relay,
    begun_us: u64,
}

impl Talk {
    /// Nothing has passed yet but what is already there of both sides' bytes; so many are known to have been
    /// received.
    pub fn new(server: Channel, how: How, first: [Vec<u8>; 2], received: [u64; 2]) -> Talk {
        let mut relay = Relay::new(how);
        for (from, (bytes, received)) in first.into_iter().zip(received).enumerate() {
            relay.begin_with(from, bytes, received);
        }
        Talk { server, relay, begun_us: clock::mono_us() }
    }

    /// Lets them talk until it is over.
    pub fn poll<S: Relayed>(&mut self, s: &mut S, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let event = self.relay.poll(cx, s.conn(), &self.server);
            // As in nginx the end is heard too.
            if self.relay.received(SERVER) > 0 || self.relay.has_ended(SERVER) {
                s.heard(self.begun_us);
            }
            let event = ready!(event);
            s.passed(&self.passed());
            return Poll::Ready(match event {
                Event::Unread(from, e) => {
                    log_failed(s, "recv()", &e, from, READING[from]);
                    continue;
                }
                Event::Unsent(from, e) => {
                    log_failed(s, "send()", &e, 1 - from, SENDING[from]);
                    End::Broken
                }
                Event::Late(_) => End::Timeout,
                Event::Done(_) if s.conn().is_cut.get() => End::Cut,
                Event::Done(who) => End::Done(who),
            });
        }
    }

    /// What has passed so far.
    pub fn passed(&self) -> Passed {
        Passed {
            received: [CLIENT, SERVER].map(|from| self.relay.received(from)),
            sent: [CLIENT, SERVER].map(|from| self.relay.sent(from)),
            took_us: clock::mono_us().saturating_sub(self.begun_us),
        }
    }
}

/// A call on the socket of a side has failed: what clients do is their business, what servers do is looked into.
#[cold]
fn log_failed<S: Relayed>(s: &mut S, call: &str, e: &io::Error, side: usize, doing: &'static str) {
    let usual = if side == SERVER { LogLevel::Error } else { LogLevel::Info };
    let before = std::mem::replace(s.doing(), doing);
    let text = format!("{call} failed ({})", crate::os_text(e));
    s.log(socket_errors::level(e, usual), &text);
    *s.doing() = before;
}
