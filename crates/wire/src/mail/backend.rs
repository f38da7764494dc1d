//! The server's side of a session: what it is told of the client, until the two are joined.
//!
//! The server is read reply by reply, as it speaks: a reply is a line that ends with CR LF, or, in
//! SMTP, its lines; in IMAP what stands before the tagged line belongs to it. What has come with a
//! reply behind it was said before the next command and answers nothing: as in nginx it belongs to the
//! reply, up to the end of a line, and goes where the reply goes.

use super::sasl::{Credentials, Method};
use super::session::{Envelope, Session};
use super::{backend_imap, backend_pop3, backend_smtp, smtp, Protocol};
use crate::scan::{CR, LF};
use std::fmt;

/// What the configuration says of servers.
#[derive(Clone, Debug)]
pub struct Options {
    /// `proxy_pass_error_message`
    pub pass_error_message: bool,
    /// `xclient`
    pub xclient: bool,
    /// `proxy_smtp_auth`
    pub smtp_auth: bool,
    /// `proxy_buffer`: the longest reply there may be.
    pub reply_max_bytes: usize,
    pub server_name: Vec<u8>,
}

/// What a server is told of the client that it has not said itself.
#[derive(Clone, Debug, Default)]
pub struct Client {
    /// As in logs, without a port.
    pub address: Vec<u8>,
    pub is_ipv6: bool,
    /// SMTP: its name, or one of the words for none.
    pub host: Vec<u8>,
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    NeedMore,
    /// Send `out` to the server.
    Send,
    /// Send `out` to the client, then what the client's buffer has left, then all that comes.
    Join,
    /// Send `out` to the client and end.
    Failed,
}

/// Why, in nginx's words. Level `error`, and `info` for an invalid reply that the client is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    TooLong(Vec<u8>),
    Invalid(Vec<u8>),
    /// `proxy_smtp_auth`, and the client has not given one, or only a digest.
    NoPassword,
    /// It would become a command of its own.
    LineEndInCredentials,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lossy = String::from_utf8_lossy;
        match self {
            Failure::TooLong(text) => {
                write!(f, "upstream sent too long response line: \"{}\"", lossy(text))
            }
            Failure::Invalid(text) => {
                write!(f, "upstream sent invalid response: \"{}\"", lossy(text))
            }
            Failure::NoPassword => f.write_str("no password available"),
            Failure::LineEndInCredentials => {
                f.write_str("user name or password with a line end cannot be sent to upstream")
            }
        }
    }
}

/// What a protocol makes of the line that was read last.
pub(super) enum Heard {
    /// The reply goes on.
    More,
    Good,
    Bad,
}

/// What a protocol says to a good reply.
pub(super) enum Next {
    Send(Vec<u8>),
    Join,
    Failed(Failure),
}

/// What is known of a reply before all that came with it has been read.
#[derive(Clone, Copy, Debug)]
enum Verdict {
    Good,
    /// The line that is to blame begins here.
    Bad(usize),
}

/// All that a conversation knows.
pub(super) struct Known<'a> {
    pub options: &'a Options,
    pub client: &'a Client,
    pub credentials: &'a Credentials,
    pub envelope: &'a Envelope,
    pub tag: &'a [u8],
}

#[derive(Clone, Copy, Debug)]
enum State {
    Pop3(backend_pop3::State),
    Imap(backend_imap::State),
    Smtp(backend_smtp::State),
}

#[derive(Clone, Debug)]
pub struct Conversation {
    options: Options,
    client: Client,
    credentials: Credentials,
    envelope: Envelope,
    tag: Vec<u8>,
    state: State,
    /// Of the reply, whole lines that were looked at.
    line_start: usize,
    scanned: usize,
    verdict: Option<Verdict>,
    /// What is sent; the caller takes it.
    pub out: Vec<u8>,
    pub failure: Option<Failure>,
}

impl Conversation {
    /// For the session that was let through with `credentials`. The server speaks first.
    pub fn new(
        session: &Session,
        credentials: Credentials,
        options: Options,
        client: Client,
    ) -> Conversation {
        let state = match session.protocol() {
            Protocol::Pop3 => State::Pop3(backend_pop3::State::default()),
            Protocol::Imap => State::Imap(backend_imap::State::default()),
            Protocol::Smtp => State::Smtp(backend_smtp::State::default()),
        };
        Conversation {
            options,
            client,
            credentials,
            envelope: session.envelope.clone(),
            tag: session.tag().to_vec(),
            state,
            line_start: 0,
            scanned: 0,
            verdict: None,
            out: Vec::new(),
            failure: None,
        }
    }

    /// Reads one reply, which `buf` begins with; `usize` is what of it has been read.
    pub fn advance(&mut self, buf: &[u8]) -> (usize, Step) {
        self.out.clear();
        let view = buf.get(..self.options.reply_max_bytes).unwrap_or(buf);
        self.hear_lines(view);
        let is_whole = self.line_start == view.len();
        match self.verdict {
            Some(Verdict::Good) if is_whole => (view.len(), self.on_good(view)),
            Some(Verdict::Bad(from)) if is_whole => {
                let told = view.get(from..).unwrap_or_default();
                self.fail(Failure::Invalid(told.strip_suffix(b"\r\n").unwrap_or(told).to_vec()));
                if self.options.pass_error_message {
                    self.out = view.to_vec();
                }
                (view.len(), Step::Failed)
            }
            _ if view.len() < self.options.reply_max_bytes => (0, Step::NeedMore),
            _ => {
                self.fail(Failure::TooLong(view.to_vec()));
                (view.len(), Step::Failed)
            }
        }
    }

    /// Judges the reply that `view` begins with. Of several lines of SMTP the last decides whether
    /// there is more to come.
    fn hear_lines(&mut self, view: &[u8]) {
        let is_smtp = matches!(self.state, State::Smtp(_));
        let has_lines = is_smtp && view.get(3) == Some(&b'-');
        while let Some(end) = self.line_end(view) {
            let start = std::mem::replace(&mut self.line_start, end);
            if self.verdict.is_some() && !has_lines {
                continue;
            }
            let line = view.get(start..end).unwrap_or_default();
            let heard = match &self.state {
                State::Pop3(_) => backend_pop3::hear(line),
                State::Imap(state) => state.hear(line, &self.tag),
                State::Smtp(state) => state.hear(view, line),
            };
            self.verdict = match heard {
                Heard::More => None,
                Heard::Good => Some(Verdict::Good),
                Heard::Bad => Some(Verdict::Bad(if is_smtp { 0 } else { start })),
            };
        }
    }

    /// Behind the line's CR LF.
    fn line_end(&mut self, view: &[u8]) -> Option<usize> {
        loop {
            let from = self.scanned;
            let Some(at) = memchr::memchr(LF, view.get(from..).unwrap_or_default()) else {
                self.scanned = view.len();
                return None;
            };
            self.scanned = from + at + 1;
            let has_cr = self.scanned - self.line_start > 1 && view.get(from + at - 1) == Some(&CR);
            if has_cr {
                return Some(self.scanned);
            }
        }
    }

    fn on_good(&mut self, reply: &[u8]) -> Step {
        (self.line_start, self.scanned, self.verdict) = (0, 0, None);
        let known = Known {
            options: &self.options,
            client: &self.client,
            credentials: &self.credentials,
            envelope: &self.envelope,
            tag: &self.tag,
        };
        let next = match &mut self.state {
            State::Pop3(state) => state.next(&known),
            State::Imap(state) => state.next(&known),
            State::Smtp(state) => state.next(&known),
        };
        match next {
            Next::Send(text) => {
                self.out = text;
                Step::Send
            }
            Next::Join => {
                let is_named = self.credentials.method != Method::None;
                let is_smtp = matches!(self.state, State::Smtp(_));
                self.out = if is_smtp && is_named { smtp::AUTH_OK } else { reply }.to_vec();
                Step::Join
            }
            Next::Failed(failure) => {
                self.fail(failure);
                Step::Failed
            }
        }
    }

    fn fail(&mut self, failure: Failure) {
        let protocol = match self.state {
            State::Pop3(_) => Protocol::Pop3,
            State::Imap(_) => Protocol::Imap,
            State::Smtp(_) => Protocol::Smtp,
        };
        self.out = protocol.internal_error().to_vec();
        self.failure = Some(failure);
    }
}

#[cfg(test)]
mod tests;
