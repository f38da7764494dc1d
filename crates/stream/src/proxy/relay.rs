//! A session's bytes both ways, and what is told of them.

use crate::Session;
use std::task::{ready, Context, Poll};
use weir_core::logger::LogLevel;
use weir_core::relay::{How, CLIENT, SERVER};
use weir_core::talk::{self, End};
use weir_core::Session as _;
use weir_tls::Channel;

/// A server that is connected to, and what goes both ways.
pub(super) struct Talk(talk::Talk);

impl Talk {
    /// `first` goes to the server before anything else.
    pub(super) fn new(s: &mut Session, server: Channel, how: How, first: Vec<u8>) -> Talk {
        let talk = talk::Talk::new(server, how, [first, Vec::new()], s.received);
        s.shrink();
        Talk(talk)
    }

    /// Lets them talk until it is over.
    pub(super) fn poll(&mut self, s: &mut Session, cx: &mut Context<'_>) -> Poll<()> {
        let end = ready!(self.0.poll(s, cx));
        self.log_end(s, end);
        Poll::Ready(())
    }

    fn log_end(&self, s: &Session, end: End) {
        let who = match end {
            End::Done(CLIENT) => "client disconnected",
            End::Done(_) => "upstream disconnected",
            End::Late => {
                let text = "connection timed out (110: Connection timed out)";
                return s.log(LogLevel::Info, text);
            }
            End::Cut => return s.log(LogLevel::Info, "shutdown timeout"),
            End::Broken => return,
        };
        let relay = self.0.relay();
        let [(received, sent), (from_server, to_client)] =
            [CLIENT, SERVER].map(|from| (relay.received(from), relay.sent(from)));
        let text = format!(
            "{who}, bytes from/to client:{received}/{to_client}, bytes from/to upstream:{from_server}/{sent}"
        );
        s.error_log().log(LogLevel::Info, Some(s.conn().serial), text.as_bytes());
    }
}
