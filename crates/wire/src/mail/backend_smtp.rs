//! Bringing a client to an SMTP server: by XCLIENT, by AUTH for it, or with the mail it has begun.

use super::backend::{Failure, Heard, Known, Next};
use super::sasl::Method;
use weir_base::base64;
use weir_base::escape::{escape_uri, EscapeKind};

/// What the server has been told.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum State {
    #[default]
    Nothing,
    /// Our name, before XCLIENT.
    OurHelo,
    Xclient,
    /// Our name or, after XCLIENT, the client's.
    Helo,
    Auth,
    Mail,
    Rcpt,
}

impl State {
    /// RFC 5321, section 4.2.1: the code of the first line decides, the last has no hyphen.
    pub(super) fn hear(&self, reply: &[u8], line: &[u8]) -> Heard {
        if line.get(3) == Some(&b'-') {
            return Heard::More;
        }
        let code = reply.get(..3).unwrap_or_default();
        let is_good = match self {
            State::Nothing => code == b"220",
            State::OurHelo | State::Helo | State::Mail => code == b"250",
            // A new greeting, as Postfix sends it, or a word for it.
            State::Xclient => matches!(code, b"220" | b"250"),
            State::Auth => code == b"235",
            // A recipient that is not wanted is the client's to know of.
            State::Rcpt => true,
        };
        if is_good {
            Heard::Good
        } else {
            Heard::Bad
        }
    }

    pub(super) fn next(&mut self, known: &Known<'_>) -> Next {
        let (options, envelope) = (known.options, known.envelope);
        match self {
            State::Nothing => {
                *self = if options.xclient { State::OurHelo } else { State::Helo };
                let is_esmtp = envelope.esmtp || options.xclient;
                Next::Send(helo(is_esmtp, &options.server_name))
            }
            State::OurHelo => {
                *self = State::Xclient;
                Next::Send(xclient(known))
            }
            State::Xclient if !envelope.helo.is_empty() => {
                *self = State::Helo;
                Next::Send(helo(envelope.esmtp, &envelope.helo))
            }
            State::Xclient | State::Helo if known.credentials.method == Method::None => {
                *self = State::Mail;
                Next::Send([&envelope.from, &b"\r\n"[..]].concat())
            }
            State::Xclient | State::Helo if options.smtp_auth => {
                *self = State::Auth;
                auth(known)
            }
            State::Mail => {
                *self = State::Rcpt;
                Next::Send([&envelope.to, &b"\r\n"[..]].concat())
            }
            State::Xclient | State::Helo | State::Auth | State::Rcpt => Next::Join,
        }
    }
}

fn helo(is_esmtp: bool, name: &[u8]) -> Vec<u8> {
    let command = if is_esmtp { b"EHLO " } else { b"HELO " };
    [command, name, b"\r\n"].concat()
}

/// Postfix' XCLIENT_README; the name as xtext (RFC 3461, section 4).
fn xclient(known: &Known<'_>) -> Vec<u8> {
    let (client, login) = (known.client, known.credentials.login.as_slice());
    let mut out = b"XCLIENT ADDR=".to_vec();
    if client.is_ipv6 {
        out.extend_from_slice(b"IPV6:");
    }
    out.extend_from_slice(&client.address);
    if !login.is_empty() && !known.options.smtp_auth {
        out.extend_from_slice(b" LOGIN=");
        escape_uri(&mut out, login, EscapeKind::MailXtext);
    }
    out.extend_from_slice(b" NAME=");
    out.extend_from_slice(&client.host);
    out.extend_from_slice(b"\r\n");
    out
}

/// RFC 4616, whatever the client has used.
fn auth(known: &Known<'_>) -> Next {
    let Some(password) = &known.credentials.password else {
        return Next::Failed(Failure::NoPassword);
    };
    let mut out = b"AUTH PLAIN ".to_vec();
    base64::encode(&mut out, &[b"\0", &known.credentials.login[..], b"\0", password].concat());
    out.extend_from_slice(b"\r\n");
    Next::Send(out)
}
