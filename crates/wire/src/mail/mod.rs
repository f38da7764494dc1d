//! Mail: a client's session until it has a server, whoever says which, and the server's side of it.
//!
//! A session goes through here so:
//!
//! 1. [`session::Session`] is made with the server's [`session::Settings`]; its `greet` is sent first
//!    (SMTP: once the client's name is known, see [`smtp::is_host_name`]).
//! 2. What the client sends is kept in one buffer of at most `Settings::command_max_bytes`. `advance`
//!    reads one command of it and says what is next: read more, send `out`, send it and end, send it
//!    and begin TLS (with nothing kept of what the buffer has left), or ask.
//! 3. To ask, [`auth_http::write_request`] makes a request of the session, and
//!    [`auth_answer::Reader`] judges what comes back: refused (`Session::refused`: the words are sent,
//!    after a wait, or before an end), ask again, or this server.
//! 4. [`backend::Conversation`] is made of the session's `Credentials` and envelope. After a PROXY protocol
//!    header, if there is one, it is given what the server says, reply by reply, and says what is sent
//!    next, until it says `Join`.
//! 5. From then on bytes are copied both ways: first what both buffers still hold.
//!
//! Whatever is wrong comes with the words for the log, [`Notice`] of a client and
//! [`backend::Failure`] of a server, and `internal_error` is what a client is told.

pub mod auth_answer;
pub mod auth_http;
pub mod backend;
mod backend_imap;
mod backend_pop3;
mod backend_smtp;
pub mod imap;
pub mod lines;
pub mod pop3;
pub mod sasl;
pub mod session;
pub mod smtp;

use std::fmt;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    Pop3,
    Imap,
    Smtp,
}

impl Protocol {
    /// As `protocol` and `Auth-Protocol` say it; by ALPN too.
    pub fn name(self) -> &'static str {
        match self {
            Protocol::Pop3 => "pop3",
            Protocol::Imap => "imap",
            Protocol::Smtp => "smtp",
        }
    }

    /// To the client when something of ours fails; the session ends with it.
    pub fn internal_error(self) -> &'static [u8] {
        match self {
            Protocol::Pop3 => pop3::INTERNAL_ERROR,
            Protocol::Imap => imap::INTERNAL_ERROR,
            Protocol::Smtp => smtp::INTERNAL_ERROR,
        }
    }

    /// To a client whose certificate is not good; the session ends with it.
    pub fn certificate_error(self) -> &'static [u8] {
        match self {
            Protocol::Pop3 => pop3::CERTIFICATE_ERROR,
            Protocol::Imap => imap::CERTIFICATE_ERROR,
            Protocol::Smtp => smtp::CERTIFICATE_ERROR,
        }
    }

    /// To a client that has none; the session ends with it.
    pub fn no_certificate(self) -> &'static [u8] {
        match self {
            Protocol::Pop3 => pop3::NO_CERTIFICATE,
            Protocol::Imap => imap::NO_CERTIFICATE,
            Protocol::Smtp => smtp::NO_CERTIFICATE,
        }
    }

    fn invalid_command(self) -> &'static [u8] {
        match self {
            Protocol::Pop3 => pop3::INVALID_COMMAND,
            Protocol::Imap => imap::INVALID_COMMAND,
            Protocol::Smtp => smtp::INVALID_COMMAND,
        }
    }
}

/// `pop3_auth`, `imap_auth`, `smtp_auth`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct AuthMethods(u8);

impl AuthMethods {
    pub const PLAIN: AuthMethods = AuthMethods(1);
    pub const LOGIN: AuthMethods = AuthMethods(2);
    pub const APOP: AuthMethods = AuthMethods(4);
    pub const CRAM_MD5: AuthMethods = AuthMethods(8);
    pub const EXTERNAL: AuthMethods = AuthMethods(16);
    pub const NONE: AuthMethods = AuthMethods(32);

    pub const fn with(self, other: AuthMethods) -> AuthMethods {
        AuthMethods(self.0 | other.0)
    }

    pub fn has(self, any: AuthMethods) -> bool {
        self.0 & any.0 != 0
    }

    /// SASL's names of those that it has, in the order in which they are offered.
    pub fn sasl_names(self) -> impl Iterator<Item = &'static str> {
        const NAMES: [(AuthMethods, &str); 4] = [
            (AuthMethods::PLAIN, "PLAIN"),
            (AuthMethods::LOGIN, "LOGIN"),
            (AuthMethods::CRAM_MD5, "CRAM-MD5"),
            (AuthMethods::EXTERNAL, "EXTERNAL"),
        ];
        NAMES.into_iter().filter(move |(method, _)| self.has(*method)).map(|(_, name)| name)
    }
}

/// `starttls`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum StartTls {
    #[default]
    Off,
    On,
    /// Nobody says who it is without TLS.
    Only,
}

/// What a client is told that asks what it may do, composed once for a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Lists {
    pub plain: Vec<u8>,
    pub starttls: Vec<u8>,
    pub starttls_only: Vec<u8>,
    /// POP3's, to AUTH without a method.
    pub auth: Vec<u8>,
}

impl Lists {
    /// The one for a session; `tls` if it cannot begin TLS any more.
    pub fn of(&self, starttls: StartTls, tls: bool) -> &[u8] {
        match starttls {
            StartTls::On if !tls => &self.starttls,
            StartTls::Only if !tls => &self.starttls_only,
            _ => &self.plain,
        }
    }
}

/// How far a reader has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progress<T> {
    NeedMore,
    /// IMAP: a literal follows once the client has been told to go on. The buffer stays as it is.
    Continue,
    /// The first `len` bytes of the buffer have been judged.
    Done {
        len: usize,
        verdict: Verdict<T>,
    },
}

impl<T> Progress<T> {
    fn done(len: usize, verdict: Verdict<T>) -> Progress<T> {
        Progress::Done { len, verdict }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict<T> {
    Good(T),
    Invalid {
        /// The client sends on without waiting, and that is no command: the session ends.
        hides_literal: bool,
    },
    /// It has not ended within what it may be long. The session ends.
    TooLong,
}

/// What a log should know of a client, in nginx's words, level `info`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// What there is of the command.
    TooLong(Vec<u8>),
    TooManyErrors,
    /// The mechanism.
    InvalidBase64(&'static str),
    InvalidLogin,
    InvalidPassword,
    InvalidDigest,
    /// MAIL without a name; the command, line end and all.
    Rejected(Vec<u8>),
    /// The client did not wait for SMTP's greeting; what it sent.
    RejectedBeforeGreeting(Vec<u8>),
}

impl fmt::Display for Notice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let one_line = |text: &[u8]| String::from_utf8_lossy(text).replace(['\r', '\n'], "_");
        match self {
            Notice::TooLong(text) => {
                write!(f, "client sent too long command \"{}\"", String::from_utf8_lossy(text))
            }
            Notice::TooManyErrors => f.write_str("client sent too many invalid commands"),
            Notice::InvalidBase64(mechanism) => {
                write!(f, "client sent invalid base64 encoding in AUTH {mechanism} command")
            }
            Notice::InvalidLogin => f.write_str("client sent invalid login in AUTH PLAIN command"),
            Notice::InvalidPassword => {
                f.write_str("client sent invalid password in AUTH PLAIN command")
            }
            Notice::InvalidDigest => {
                f.write_str("client sent invalid CRAM-MD5 hash in AUTH CRAM-MD5 command")
            }
            Notice::Rejected(text) => write!(f, "client was rejected: \"{}\"", one_line(text)),
            Notice::RejectedBeforeGreeting(text) => {
                write!(f, "client was rejected before greeting: \"{}\"", one_line(text))
            }
        }
    }
}

#[cfg(test)]
mod tests;
