//! A client's side of a session, until it has a server.
//!
//! The machine knows no sockets and no time: it is given the buffer and says what is next. It may be
//! given the same buffer again, longer; what it has read is the caller's to drop.

use super::sasl::{self, Credentials, Salt, Turn, Wait};
use super::{imap, lines, pop3, smtp};
use super::{AuthMethods, Lists, Notice, Progress, Protocol, StartTls, Verdict};
use std::sync::Arc;

/// What `mail` and its `server` say, once for all sessions.
#[derive(Clone, Debug)]
pub struct Settings {
    pub protocol: Protocol,
    pub server_name: Vec<u8>,
    pub methods: AuthMethods,
    pub starttls: StartTls,
    /// So many commands that are none end a session.
    pub max_errors: u32,
    /// `imap_client_buffer`, `smtp_client_buffer`; POP3's is [`pop3::COMMAND_MAX_BYTES`].
    pub command_max_bytes: usize,
    pub lists: Lists,
}

impl Settings {
    /// With the protocol's own methods and capabilities where none are given.
    pub fn new(
        protocol: Protocol,
        server_name: &[u8],
        methods: Option<AuthMethods>,
        capabilities: Option<&[&[u8]]>,
    ) -> Settings {
        let (defaults, usual): (&[&str], _) = match protocol {
            Protocol::Pop3 => (pop3::DEFAULT_CAPABILITIES, AuthMethods::PLAIN),
            Protocol::Imap => (imap::DEFAULT_CAPABILITIES, AuthMethods::PLAIN),
            Protocol::Smtp => (&[], AuthMethods::PLAIN.with(AuthMethods::LOGIN)),
        };
        let defaults: Vec<&[u8]> = defaults.iter().map(|name| name.as_bytes()).collect();
        let capabilities = capabilities.unwrap_or(&defaults);
        let mut methods = methods.unwrap_or(usual);
        let mut command_max_bytes = 4096;
        let lists = match protocol {
            Protocol::Pop3 => {
                methods = pop3::offered(methods);
                command_max_bytes = pop3::COMMAND_MAX_BYTES;
                pop3::lists(capabilities, methods)
            }
            Protocol::Imap => imap::lists(capabilities, methods),
            Protocol::Smtp => smtp::lists(server_name, capabilities, methods),
        };
        Settings {
            protocol,
            server_name: server_name.to_vec(),
            methods,
            starttls: StartTls::Off,
            max_errors: 5,
            command_max_bytes,
            lists,
        }
    }
}

/// What is next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    NeedMore,
    /// Send `out`, and go on with what the buffer has left.
    Reply,
    /// Send `out` and end.
    Bye,
    /// Send `out`, drop what the buffer has left, which anybody may have put there (RFC 3207,
    /// section 4.2; RFC 2595, section 3.1), and begin TLS; then [`Session::tls_begun`].
    StartTls,
    /// Ask whether these are the client's credentials, and for a server.
    Ask,
}

/// What SMTP's client has said of itself and its mail.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Envelope {
    pub helo: Vec<u8>,
    /// It has said EHLO.
    pub esmtp: bool,
    /// The whole command, `MAIL FROM:<…>`; empty without.
    pub from: Vec<u8>,
    pub to: Vec<u8>,
}

#[derive(Clone, Debug)]
pub(super) enum Reader {
    Lines(lines::Reader),
    Imap(imap::Reader),
}

#[derive(Clone, Debug)]
enum Phase {
    Command,
    /// POP3: a name was given, the password is next.
    Named(Vec<u8>),
    Sasl(Wait),
}

/// What a command leads to.
enum Outcome {
    /// `out` has the answer.
    Said,
    Bye,
    StartTls,
    Auth(Turn),
    Invalid,
}

#[derive(Clone, Debug)]
pub struct Session {
    settings: Arc<Settings>,
    /// What the client is sent; the caller takes it.
    pub out: Vec<u8>,
    /// What the last step has for the log; the caller takes it.
    pub notice: Option<Notice>,
    pub credentials: Credentials,
    pub envelope: Envelope,
    /// How often who asks has been asked, from 1.
    pub attempts: u32,
    salt: Option<Salt>,
    tls: bool,
    errors: u32,
    phase: Phase,
    reader: Reader,
}

impl Session {
    /// `random` and `now_secs` make the salt; `tls` if the session began with it.
    pub fn new(settings: Arc<Settings>, random: u32, now_secs: u64, tls: bool) -> Session {
        let salted = AuthMethods::APOP.with(AuthMethods::CRAM_MD5);
        let salt = settings.methods.has(salted);
        let salt = salt.then(|| Salt::new(random, now_secs, &settings.server_name));
        let reader = match settings.protocol {
            Protocol::Imap => Reader::Imap(imap::Reader::new(settings.command_max_bytes)),
            _ => Reader::Lines(lines::Reader::new(settings.command_max_bytes)),
        };
        Session {
            settings,
            out: Vec::new(),
            notice: None,
            credentials: Credentials::default(),
            envelope: Envelope::default(),
            attempts: 0,
            salt,
            tls,
            errors: 0,
            phase: Phase::Command,
            reader,
        }
    }

    pub fn protocol(&self) -> Protocol {
        self.settings.protocol
    }

    /// The name that the client has given last, for the log; empty while there is none.
    pub fn login(&self) -> &[u8] {
        match &self.phase {
            Phase::Named(login) | Phase::Sasl(Wait::LoginPassword { login }) => login,
            _ => &self.credentials.login,
        }
    }

    pub fn salt(&self) -> Option<&Salt> {
        self.salt.as_ref()
    }

    /// Of IMAP's last command, with the space behind it; empty in other protocols.
    pub fn tag(&self) -> &[u8] {
        match &self.reader {
            Reader::Imap(reader) => reader.tag(),
            Reader::Lines(_) => b"",
        }
    }

    /// What a client is sent first.
    pub fn greet(&mut self) {
        self.out = match self.settings.protocol {
            Protocol::Pop3 => pop3::greeting(self.salt.as_ref()),
            Protocol::Imap => imap::GREETING.to_vec(),
            Protocol::Smtp => smtp::greeting(&self.settings.server_name),
        };
    }

    /// SMTP: the client has not waited for the greeting (`smtp_greeting_delay`); send `out` and end.
    pub fn spoke_too_early(&mut self, buf: &[u8]) {
        self.notice = Some(Notice::RejectedBeforeGreeting(buf.to_vec()));
        self.out = smtp::INVALID_PIPELINING.to_vec();
    }

    /// The handshake is over: nothing that was said before it counts, and no greeting is sent.
    pub fn tls_begun(&mut self) {
        self.tls = true;
        self.phase = Phase::Command;
    }

    /// Who was asked has said no: `out` has the words. The client may try again after a wait.
    pub fn refused(&mut self, words: &[u8]) {
        self.out = words.to_vec();
        self.credentials = Credentials::default();
    }

    /// Something of ours has failed: send `out` and end.
    pub fn internal_error(&mut self) {
        self.out = self.settings.protocol.internal_error().to_vec();
    }

    /// Reads one command, which `buf` begins with; `usize` is what of it has been read.
    pub fn advance(&mut self, buf: &[u8]) -> (usize, Step) {
        self.out.clear();
        let progress = match (self.settings.protocol, &mut self.phase) {
            (_, Phase::Sasl(_)) => self.on_response(buf),
            (Protocol::Pop3, _) => self.on_pop3(buf),
            (Protocol::Imap, _) => self.on_imap(buf),
            (Protocol::Smtp, _) => self.on_smtp(buf),
        };
        let (len, verdict) = match progress {
            Progress::NeedMore => return (0, Step::NeedMore),
            Progress::Continue => {
                self.out = imap::CONTINUE.to_vec();
                return (0, Step::Reply);
            }
            Progress::Done { len, verdict } => (len, verdict),
        };
        let step = match verdict {
            Verdict::Good(outcome) => self.act(outcome),
            Verdict::Invalid { hides_literal } => {
                self.errors += 1;
                let too_many = self.errors >= self.settings.max_errors;
                if too_many {
                    self.notice = Some(Notice::TooManyErrors);
                }
                self.invalid();
                if too_many || hides_literal {
                    Step::Bye
                } else {
                    Step::Reply
                }
            }
            Verdict::TooLong => {
                let text = buf.get(..len).unwrap_or(buf);
                self.notice = Some(Notice::TooLong(text.to_vec()));
                self.invalid();
                Step::Bye
            }
        };
        (len, step)
    }

    fn act(&mut self, outcome: Outcome) -> Step {
        match outcome {
            Outcome::Said => Step::Reply,
            Outcome::Bye => Step::Bye,
            Outcome::StartTls => Step::StartTls,
            Outcome::Auth(turn) => self.turn(turn),
            Outcome::Invalid => {
                self.invalid();
                Step::Reply
            }
        }
    }

    fn invalid(&mut self) {
        self.phase = Phase::Command;
        self.out = [self.tag(), self.settings.protocol.invalid_command()].concat();
    }

    /// What a mechanism says.
    fn turn(&mut self, turn: Turn) -> Step {
        match turn {
            Turn::Ask(wait) => {
                self.out = self.question(&wait);
                self.phase = Phase::Sasl(wait);
                Step::Reply
            }
            Turn::Done(credentials) => {
                self.credentials = credentials;
                self.phase = Phase::Command;
                self.attempts += 1;
                Step::Ask
            }
            Turn::Invalid(notice) => {
                self.notice = notice;
                self.invalid();
                Step::Reply
            }
        }
    }

    /// RFC 4954, section 4; RFC 3501, section 6.2.2; RFC 5034, section 4.
    fn question(&self, wait: &Wait) -> Vec<u8> {
        let prefix: &[u8] = if self.settings.protocol == Protocol::Smtp { b"334 " } else { b"+ " };
        let text: &[u8] = match (wait, &self.salt) {
            (Wait::CramMd5, Some(salt)) => return salt.challenge(prefix),
            // "Username:" and "Password:".
            (Wait::LoginName | Wait::External, _) => b"VXNlcm5hbWU6",
            (Wait::LoginPassword { .. }, _) => b"UGFzc3dvcmQ6",
            (Wait::Plain | Wait::CramMd5, _) => b"",
        };
        [prefix, text, b"\r\n"].concat()
    }

    /// The next line of a mechanism; only its first word counts.
    fn on_response(&mut self, buf: &[u8]) -> Progress<Outcome> {
        let wait = match &self.phase {
            Phase::Sasl(wait) => wait.clone(),
            _ => return Progress::NeedMore,
        };
        let first = |range: Option<crate::Range32>| range.unwrap_or_default().of(buf);
        match &mut self.reader {
            Reader::Imap(reader) => {
                let progress = reader.response(buf);
                let args = reader.args();
                let text = args.first().map(|arg| arg.value(buf)).unwrap_or_default();
                good(progress, |_| Outcome::Auth(sasl::go_on(wait, &text)))
            }
            Reader::Lines(reader) => {
                let progress = match self.settings.protocol {
                    Protocol::Pop3 => reader.response::<pop3::Command>(buf),
                    _ => reader.response::<smtp::Command>(buf),
                };
                let text = first(reader.args().first().copied());
                good(progress, |()| Outcome::Auth(sasl::go_on(wait, text)))
            }
        }
    }

    /// Whether names and passwords are not taken yet.
    fn needs_tls(&self) -> bool {
        self.settings.starttls == StartTls::Only && !self.tls
    }

    fn start_tls(&mut self, words: &[u8]) -> Outcome {
        if self.tls || self.settings.starttls == StartTls::Off {
            return Outcome::Invalid;
        }
        self.out = [self.tag(), words].concat();
        Outcome::StartTls
    }

    fn say(&mut self, words: &[u8]) -> Outcome {
        self.out = words.to_vec();
        Outcome::Said
    }
}

fn good<T>(progress: Progress<T>, then: impl FnOnce(T) -> Outcome) -> Progress<Outcome> {
    match progress {
        Progress::NeedMore => Progress::NeedMore,
        Progress::Continue => Progress::Continue,
        Progress::Done { len, verdict } => {
            let verdict = match verdict {
                Verdict::Good(found) => Verdict::Good(then(found)),
                Verdict::Invalid { hides_literal } => Verdict::Invalid { hides_literal },
                Verdict::TooLong => Verdict::TooLong,
            };
            Progress::Done { len, verdict }
        }
    }
}

mod commands;
#[cfg(test)]
mod tests;
