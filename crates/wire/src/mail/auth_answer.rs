//! What `auth_http` answers: no, later, or yes and where to.
//!
//! The status of the answer says nothing, its fields do. As in nginx an answer without `Auth-Status`
//! is a yes if it names a server. Unlike there an empty one is none in SMTP either.

use super::sasl::Credentials;
use super::session::Session;
use super::Protocol;
use crate::http1::field::{FieldEvent, FieldRules, Fields};
use crate::scan::{CR, LF};
use std::fmt;
use std::net::{IpAddr, SocketAddr};
use weir_base::addr::{parse_ipv4, parse_ipv6};
use weir_base::units::parse_int;

/// What is next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Answer {
    Refused {
        /// Of the answer, for the log: `client login failed: "…"`.
        reason: Vec<u8>,
        /// For the client.
        words: Vec<u8>,
        /// After so many seconds they are sent, and the client may try again; 0 sends them at once
        /// and ends the session.
        wait_secs: u64,
    },
    /// Ask the same again after so many seconds.
    Wait { secs: u64 },
    /// To this server, as this user.
    Pass { server: SocketAddr, credentials: Credentials },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerError {
    StatusLine,
    Field,
    NoServer,
    NoPassword,
    Address(Vec<u8>),
    Port(Vec<u8>),
    /// The head is longer than it may be.
    TooLong,
}

impl AnswerError {
    /// What the log is told, in nginx's words, level `error`; `name` is that of the server.
    pub fn log<'a>(&'a self, name: &'a str) -> impl fmt::Display + 'a {
        LogLine { name, error: self }
    }
}

struct LogLine<'a> {
    name: &'a str,
    error: &'a AnswerError,
}

impl fmt::Display for LogLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "auth http server {} ", self.name)?;
        let lossy = String::from_utf8_lossy;
        match self.error {
            AnswerError::StatusLine => f.write_str("sent invalid response"),
            AnswerError::Field => f.write_str("sent invalid header in response"),
            AnswerError::NoServer => f.write_str("did not send server or port"),
            AnswerError::NoPassword => f.write_str("did not send password"),
            AnswerError::Address(text) => {
                write!(f, "sent invalid server address:\"{}\"", lossy(text))
            }
            AnswerError::Port(text) => write!(f, "sent invalid server port:\"{}\"", lossy(text)),
            AnswerError::TooLong => f.write_str("sent too long header"),
        }
    }
}

const RULES: FieldRules = FieldRules { underscores: false, upstream: false };
/// To SMTP's clients, where the answer has no code of its own.
const SMTP_ERROR_CODE: &[u8] = b"535 5.7.0";

/// Reads one answer.
#[derive(Clone, Debug)]
pub struct Reader {
    protocol: Protocol,
    tag: Vec<u8>,
    /// The client's, and then what the answer makes of them.
    credentials: Credentials,
    max_bytes: usize,
    /// `None` in the status line.
    fields: Option<Fields>,
    refusal: Option<Vec<u8>>,
    error_code: Vec<u8>,
    is_later: bool,
    wait_secs: u64,
    address: Vec<u8>,
    port: Vec<u8>,
}

impl Reader {
    /// For what `session` has asked. The head may have `max_bytes`; nginx lets it have 1,024.
    pub fn new(session: &Session, max_bytes: usize) -> Reader {
        let mut credentials = session.credentials.clone();
        if credentials.method.is_salted() {
            credentials.password = None;
        }
        Reader {
            protocol: session.protocol(),
            tag: session.tag().to_vec(),
            credentials,
            max_bytes,
            fields: None,
            refusal: None,
            error_code: Vec::new(),
            is_later: false,
            wait_secs: 0,
            address: Vec::new(),
            port: Vec::new(),
        }
    }

    /// Reads on; `buf` is all that has come of the answer. `None` needs more. What stands behind the
    /// head is not looked at.
    pub fn read(&mut self, buf: &[u8]) -> Result<Option<Answer>, AnswerError> {
        let view = buf.get(..self.max_bytes).unwrap_or(buf);
        let more = match view.len() >= self.max_bytes {
            true => Err(AnswerError::TooLong),
            false => Ok(None),
        };
        let mut fields = match self.fields.take() {
            Some(fields) => fields,
            None => match behind_status_line(view)? {
                Some(at) => Fields::at(at),
                None => return more,
            },
        };
        loop {
            match fields.next(view, RULES).map_err(|_| AnswerError::Field)? {
                FieldEvent::NeedMore => {
                    self.fields = Some(fields);
                    return more;
                }
                FieldEvent::End => return self.answer().map(Some),
                FieldEvent::Field(field) => {
                    let name = field.name.of(view);
                    if field.invalid || name.first() == Some(&b'-') {
                        return Err(AnswerError::Field);
                    }
                    self.on_field(name, field.value.of(view));
                }
            }
        }
    }

    fn on_field(&mut self, name: &[u8], value: &[u8]) {
        let is = |known: &str| name.eq_ignore_ascii_case(known.as_bytes());
        if is("Auth-Status") {
            match value {
                b"OK" => {}
                b"WAIT" => self.is_later = true,
                reason => self.refusal = Some(reason.to_vec()),
            }
        } else if is("Auth-Server") {
            self.address = value.to_vec();
        } else if is("Auth-Port") {
            self.port = value.to_vec();
        } else if is("Auth-User") {
            self.credentials.login = value.to_vec();
        } else if is("Auth-Pass") {
            self.credentials.password = Some(value.to_vec());
        } else if is("Auth-Wait") {
            self.wait_secs = parse_int(value).unwrap_or(self.wait_secs);
        } else if is("Auth-Error-Code") {
            self.error_code = value.to_vec();
        }
    }

    /// The answer as a whole.
    fn answer(&mut self) -> Result<Answer, AnswerError> {
        let wait_secs = self.wait_secs;
        if let Some(reason) = self.refusal.take() {
            let words = self.words(&reason);
            return Ok(Answer::Refused { reason, words, wait_secs });
        }
        if self.is_later {
            return Ok(Answer::Wait { secs: wait_secs });
        }
        if self.address.is_empty() || self.port.is_empty() {
            return Err(AnswerError::NoServer);
        }
        if self.credentials.password.is_none() && self.protocol != Protocol::Smtp {
            return Err(AnswerError::NoPassword);
        }
        let v6 = || parse_ipv6(&self.address).map(IpAddr::V6);
        let ip = parse_ipv4(&self.address).map(IpAddr::V4).or_else(v6);
        let ip = ip.ok_or_else(|| AnswerError::Address(self.address.clone()))?;
        let port = parse_int(&self.port).and_then(|port| u16::try_from(port).ok());
        let port = port.filter(|port| *port > 0);
        let port = port.ok_or_else(|| AnswerError::Port(self.port.clone()))?;
        let credentials = std::mem::take(&mut self.credentials);
        Ok(Answer::Pass { server: SocketAddr::new(ip, port), credentials })
    }

    fn words(&self, reason: &[u8]) -> Vec<u8> {
        let code = match self.error_code.as_slice() {
            [] => SMTP_ERROR_CODE,
            code => code,
        };
        match self.protocol {
            Protocol::Pop3 => [b"-ERR ", reason, b"\r\n"].concat(),
            Protocol::Imap => [&self.tag, &b"NO "[..], reason, b"\r\n"].concat(),
            Protocol::Smtp => [code, b" ", reason, b"\r\n"].concat(),
        }
    }
}

/// Where the fields begin: at once, if there is no status line. `None` needs more.
fn behind_status_line(buf: &[u8]) -> Result<Option<usize>, AnswerError> {
    let prefix = b"HTTP/";
    let n = buf.len().min(prefix.len());
    if buf.get(..n) != prefix.get(..n) {
        return Ok(Some(0));
    }
    let Some(at) = memchr::memchr2(CR, LF, buf) else { return Ok(None) };
    match (buf.get(at), buf.get(at + 1)) {
        (Some(&CR), None) => Ok(None),
        (Some(&CR), Some(&LF)) => Ok(Some(at + 2)),
        (Some(&CR), Some(_)) => Err(AnswerError::StatusLine),
        _ => Ok(Some(at + 1)),
    }
}

#[cfg(test)]
mod tests;
