//! A session whose client and server talk: its relay, and what the log is told of it.

use crate::logger::LogLevel;
use crate::relay::{Event, How, Relay, CLIENT, SERVER};
use crate::{os_text, socket_errors, Session};
use std::io;
use std::task::{ready, Context, Poll};
use weir_runtime::clock;
use weir_tls::Channel;

const READING: [&str; 2] =
    ["proxying and reading from client", "proxying and reading from upstream"];
const SENDING: [&str; 2] = ["proxying and sending to upstream", "proxying and sending to client"];

/// A session that may talk.
pub trait Talks: Session {
    /// What it is doing, for the error log's lines.
    fn doing(&mut self) -> &mut &'static str;

    /// The server has said something, for the first time perhaps; so many milliseconds of the monotonic clock
    /// it was when the two were joined.
    fn heard(&mut self, _begun_ms: u64) {}

    /// So much has passed; it is over, or will be soon.
    fn told(&mut self, _relay: &Relay, _begun_ms: u64) {}
}

/// How it ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum End {
    /// By that side.
    Done(usize),
    /// It took too long.
    Late,
    /// By `worker_shutdown_timeout`.
    Cut,
    /// What one side said could not be sent to the other, which has been logged.
    Broken,
}

/// A server that is connected to, and what goes both ways.
pub struct Talk {
    server: Channel,
    relay: Relay,
    begun_ms: u64,
}

impl Talk {
    /// Of each side what goes to the other before anything else; `read` is what counts as received of the
    /// client.
    pub fn new(server: Channel, how: How, first: [Vec<u8>; 2], read: u64) -> Talk {
        let mut relay = Relay::new(how);
        let [from_client, from_server] = first;
        let said = from_server.len() as u64;
        relay.begin_with(CLIENT, from_client, read);
        if said > 0 {
            relay.begin_with(SERVER, from_server, said);
        }
        Talk { server, relay, begun_ms: clock::mono_ms() }
    }

    /// Lets them talk until it is over.
    pub fn poll<S: Talks>(&mut self, s: &mut S, cx: &mut Context<'_>) -> Poll<End> {
        loop {
            let event = self.relay.poll(cx, s.conn(), &self.server);
            if self.relay.received(SERVER) > 0 {
                s.heard(self.begun_ms);
            }
            let event = ready!(event);
            s.told(&self.relay, self.begun_ms);
            return Poll::Ready(match event {
                Event::Unread(from, e) => {
                    log_failed(s, "recv()", &e, READING[from]);
                    continue;
                }
                Event::Unsent(from, e) => {
                    log_failed(s, "send()", &e, SENDING[from]);
                    End::Broken
                }
                Event::Late(_) => End::Late,
                Event::Done(_) if s.conn().is_cut.get() => End::Cut,
                Event::Done(from) => End::Done(from),
            });
        }
    }

    /// What has passed.
    pub fn relay(&self) -> &Relay {
        &self.relay
    }
}

#[cold]
fn log_failed<S: Talks>(s: &mut S, call: &str, e: &io::Error, doing: &'static str) {
    let before = std::mem::replace(s.doing(), doing);
    let text = format!("{call} failed ({})", os_text(e));
    s.log(socket_errors::level(e, LogLevel::Info), &text);
    *s.doing() = before;
}
