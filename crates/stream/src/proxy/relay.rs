//! A session's bytes both ways, and what is told of them.

use crate::Session;
use std::io;
use std::task::{ready, Context, Poll};
use weir_core::logger::LogLevel;
use weir_core::relay::{Event, How, Relay, CLIENT, SERVER};
use weir_core::{socket_errors, Session as _};
use weir_runtime::clock;
use weir_tls::Channel;

const READING: [&str; 2] =
    ["proxying and reading from client", "proxying and reading from upstream"];
const SENDING: [&str; 2] = ["proxying and sending to upstream", "proxying and sending to client"];

/// A server that is connected to, and what goes both ways.
pub(super) struct Talk {
    server: Channel,
    relay: Relay,
    begun_ms: u64,
}

impl Talk {
    /// `first` goes to the server before anything else.
    pub(super) fn new(s: &mut Session, server: Channel, how: How, first: Vec<u8>) -> Talk {
        let mut relay = Relay::new(how);
        relay.begin_with(CLIENT, first, s.received);
        s.shrink();
        Talk { server, relay, begun_ms: clock::mono_ms() }
    }

    /// Lets them talk until it is over.
    pub(super) fn poll(&mut self, s: &mut Session, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            let event = self.relay.poll(cx, s.conn(), &self.server);
            if self.relay.received(SERVER) > 0 {
                s.first_byte(self.begun_ms);
            }
            let event = ready!(event);
            tell(s, &self.relay, self.begun_ms);
            match event {
                Event::Unread(from, e) => log_failed(s, "recv()", &e, READING[from]),
                last => {
                    log_end(s, &self.relay, last);
                    return Poll::Ready(());
                }
            }
        }
    }
}

/// Puts what has passed where variables and logs find it.
fn tell(s: &mut Session, relay: &Relay, begun_ms: u64) {
    s.received = relay.received(CLIENT);
    s.sent = relay.sent(SERVER);
    let took_ms = clock::mono_ms().saturating_sub(begun_ms);
    if let Some(state) = s.upstream.last_mut() {
        state.bytes_received = relay.received(SERVER);
        state.bytes_sent = relay.sent(CLIENT);
        state.response_ms = Some(state.connect_ms.unwrap_or_default() + took_ms);
    }
}

fn log_end(s: &mut Session, relay: &Relay, last: Event) {
    let who = match last {
        Event::Done(CLIENT) => "client disconnected",
        Event::Done(_) => "upstream disconnected",
        Event::Late(_) => {
            let text = "connection timed out (110: Connection timed out)";
            return s.log(LogLevel::Info, text);
        }
        Event::Unsent(from, e) => return log_failed(s, "send()", &e, SENDING[from]),
        Event::Unread(..) => return,
    };
    let [(received, sent), (from_server, to_client)] =
        [CLIENT, SERVER].map(|from| (relay.received(from), relay.sent(from)));
    let text = format!(
        "{who}, bytes from/to client:{received}/{to_client}, bytes from/to upstream:{from_server}/{sent}"
    );
    s.error_log().log(LogLevel::Info, Some(s.conn().serial), text.as_bytes());
}

#[cold]
fn log_failed(s: &mut Session, call: &str, e: &io::Error, doing: &'static str) {
    let before = std::mem::replace(&mut s.doing, doing);
    let text = format!("{call} failed ({})", weir_core::os_text(e));
    s.log(socket_errors::level(e, LogLevel::Info), &text);
    s.doing = before;
}
