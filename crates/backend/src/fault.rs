//! Why an exchange with a server failed: what is asked next, and what the log says.

use crate::bits::next;
use std::io;
use std::net::IpAddr;
use weir_core::logger::LogLevel;
use weir_core::{socket_errors, Session};
use weir_http::body::BodyError;
use weir_http::Request;
use weir_upstream::error_text;

pub(crate) const SENDING: &str = "sending request to upstream";
pub(crate) const READING: &str = "reading response header from upstream";

/// What was being read of an answer.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Reading {
    Head,
    Body,
    /// The same, into buffers.
    Ahead,
}

/// Why an exchange failed.
#[derive(Debug)]
pub(crate) enum Fault {
    Connect(io::Error),
    /// The address that connections are to come from is none of this machine's.
    Bind(IpAddr, io::Error),
    /// In words for the log.
    Tls(String),
    /// There is none to be shown, whichever server is asked; in words for the log.
    Certificate(String),
    Send(io::Error),
    Read(io::Error, Reading),
    Eof(&'static str),
    /// While doing what.
    Timeout(&'static str),
    /// What the server sent is no answer; already logged.
    Invalid,
    /// The server's HTTP/2 is wrong; in words for the log.
    Protocol(String),
    /// The body is cut off or framed wrongly.
    BadBody(&'static str),
    ClientGone,
    Client(BodyError),
    /// A temporary file could not be read or written.
    File(io::Error),
    /// A filter could not go on.
    Filter,
}

impl Fault {
    /// The bit of `…_next_upstream`, or the status that ends the request.
    pub(crate) fn next_bit(&self) -> Result<u32, u16> {
        match self {
            Fault::Connect(_)
            | Fault::Tls(_)
            | Fault::Send(_)
            | Fault::Read(..)
            | Fault::Eof(_) => Ok(next::ERROR),
            Fault::Timeout(_) => Ok(next::TIMEOUT),
            Fault::Invalid | Fault::Protocol(_) => Ok(next::INVALID_HEADER),
            Fault::ClientGone | Fault::Client(BodyError::Closed) => Err(499),
            Fault::Client(BodyError::Status(s)) => Err(*s),
            Fault::BadBody(_) => Err(502),
            Fault::Bind(..) | Fault::Certificate(_) | Fault::File(_) | Fault::Filter => Err(500),
        }
    }

    /// Logs it in nginx's words.
    pub(crate) fn log(&self, r: &Request, peer: &[u8]) {
        match self {
            Fault::Connect(e) => log_connect(r, e, peer),
            Fault::Bind(ip, e) => {
                let text =
                    format!("bind({ip}) failed {} while connecting to upstream", error_text(e));
                r.log(LogLevel::Crit, &text);
            }
            Fault::Tls(text) | Fault::Certificate(text) | Fault::Protocol(text) => {
                r.log(LogLevel::Error, text)
            }
            Fault::Send(e) => {
                let text = format!("writev() failed {} while {SENDING}", error_text(e));
                r.log(socket_errors::level(e, LogLevel::Error), &text);
            }
            Fault::Read(e, what) => {
                let (call, doing) = match what {
                    Reading::Head => ("recv()", READING),
                    Reading::Body => ("recv()", "reading upstream"),
                    Reading::Ahead => ("readv()", "reading upstream"),
                };
                let text = format!("{call} failed {} while {doing}", error_text(e));
                r.log(socket_errors::level(e, LogLevel::Error), &text);
            }
            Fault::Eof(doing) => {
                let text = format!("upstream prematurely closed connection while {doing}");
                r.log(LogLevel::Error, &text);
            }
            Fault::Timeout(doing) => {
                let text = format!("upstream timed out (110: Connection timed out) while {doing}");
                r.log(LogLevel::Error, &text);
            }
            Fault::BadBody(text) => r.log(LogLevel::Error, text),
            Fault::ClientGone => {
                let doing = if r.flags.header_sent { "reading upstream" } else { SENDING };
                let text = format!(
                    "client prematurely closed connection, so upstream connection is closed too \
                     while {doing}"
                );
                r.log(LogLevel::Info, &text);
            }
            Fault::File(e) => {
                r.log(LogLevel::Crit, &format!("a temporary file failed {}", error_text(e)));
            }
            Fault::Invalid | Fault::Client(_) | Fault::Filter => {}
        }
    }
}

fn log_connect(r: &Request, e: &io::Error, peer: &[u8]) {
    use io::ErrorKind as K;
    // A listening Unix socket whose queue is full says EAGAIN.
    let usual = socket_errors::is_usual(e) || matches!(e.kind(), K::WouldBlock);
    // nginx names the address when the call itself fails, not when the answer does.
    let at_once = peer.starts_with(b"unix:") || !matches!(e.kind(), K::ConnectionRefused);
    let to = match at_once {
        true => format!(" to {}", String::from_utf8_lossy(peer)),
        false => String::new(),
    };
    let text = format!("connect(){to} failed {} while connecting to upstream", error_text(e));
    r.log(if usual { LogLevel::Error } else { LogLevel::Crit }, &text);
}
