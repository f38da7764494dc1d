//! What follows from a complete request head: which host it is for and how its body ends.

use super::names::HeaderId;
use super::request::{Method, ParseError, RequestHead, Version};
use crate::scan::{self, Range32};
use crate::target::is_plain_host;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyFraming {
    None,
    Length(u64),
    Chunked,
}

/// How the body is delimited, or why the request is refused.
pub fn framing(
    head: &RequestHead,
    buf: &[u8],
    allow_connect: bool,
) -> Result<BodyFraming, ParseError> {
    let mut framing = BodyFraming::None;
    if let Some(length) = head.value(HeaderId::ContentLength, buf) {
        let length = scan::decimal(length).ok_or(ParseError::InvalidContentLength)?;
        framing = BodyFraming::Length(length);
    }
    if let Some(coding) = head.get(HeaderId::TransferEncoding) {
        if head.version < Version::HTTP_11 {
            return Err(ParseError::TransferEncodingInHttp10);
        }
        if !coding.value.of(buf).eq_ignore_ascii_case(b"chunked") {
            return Err(ParseError::UnknownTransferEncoding(coding.value));
        }
        if framing != BodyFraming::None {
            return Err(ParseError::LengthAndTransferEncoding);
        }
        framing = BodyFraming::Chunked;
    }
    match head.method {
        Method::Connect if head.version != Version::HTTP_11 || !allow_connect => {
            Err(ParseError::ConnectRefused)
        }
        Method::Connect if !matches!(framing, BodyFraming::None | BodyFraming::Length(0)) => {
            Err(ParseError::ConnectWithBody)
        }
        Method::Trace => Err(ParseError::TraceRefused),
        _ => Ok(framing),
    }
}

/// The server name and port a request is for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Host {
    /// Without port and trailing dot, in the letter case it was sent in.
    pub name: Range32,
    /// 0 if none was given.
    pub port: u16,
    /// The name holds capitals: lower-case it before looking it up or showing it.
    pub has_upper_case: bool,
}

/// The host from the request line or else from `Host`; only HTTP/1.0 and before may lack one.
pub fn host(head: &RequestHead, _buf: &[u8]) -> Result<Option<Host>, ParseError> {
    if head.version > Version::HTTP_10 && !head.has(HeaderId::Host) {
        return Err(ParseError::MissingHost);
    }
    Ok(head.host)
}

/// The host in an authority or a `Host` field, when it is a valid one.
#[inline]
pub fn host_in(span: Range32, buf: &[u8]) -> Option<Host> {
    if is_plain_host(buf, span.start as usize, span.end as usize) {
        return Some(Host { name: span, port: 0, has_upper_case: false });
    }
    let valid = validate_host(span.of(buf)).ok()?;
    Some(Host {
        name: Range32 { start: span.start, end: span.start + valid.name_len as u32 },
        port: valid.port,
        has_upper_case: valid.has_upper_case,
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidHost {
    /// The name is the first so many bytes.
    pub name_len: usize,
    pub port: u16,
    pub has_upper_case: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidHost;

/// `name`, `name:port`, `[literal]` or `[literal]:port`; nginx's character set.
pub fn validate_host(host: &[u8]) -> Result<ValidHost, InvalidHost> {
    let literal = host.first() == Some(&b'[');
    let mut name_len = host.len();
    let mut has_upper_case = false;
    let mut port_at = None;
    let mut last_dot = usize::MAX;
    for (i, &b) in host.iter().enumerate() {
        if scan::is(b, scan::HOST_PLAIN) {
            continue;
        }
        match b {
            b'[' if i == 0 => {}
            b']' if literal => {
                name_len = i + 1;
                port_at = Some(name_len).filter(|&n| n < host.len());
                break;
            }
            b':' if !literal => {
                name_len = i;
                port_at = Some(i);
                break;
            }
            b'.' if i > 0 && last_dot == i - 1 => return Err(InvalidHost),
            b'.' => last_dot = i,
            b':' => {}
            b'%' if !literal => {}
            _ if scan::is(b, scan::IP_LITERAL) => has_upper_case |= b.is_ascii_uppercase(),
            _ => return Err(InvalidHost),
        }
    }
    if literal && host.get(name_len - 1) != Some(&b']') {
        return Err(InvalidHost);
    }
    let port = match port_at {
        Some(at) => port(host.get(at..).unwrap_or_default())?,
        None => 0,
    };
    if name_len > 0 && last_dot == name_len - 1 {
        name_len -= 1;
    }
    if name_len == 0 {
        return Err(InvalidHost);
    }
    Ok(ValidHost { name_len, port, has_upper_case })
}

/// A colon and digits, possibly none.
fn port(text: &[u8]) -> Result<u16, InvalidHost> {
    let Some((b':', digits)) = text.split_first() else { return Err(InvalidHost) };
    let mut port: u16 = 0;
    for &b in digits {
        if !b.is_ascii_digit() {
            return Err(InvalidHost);
        }
        port = port
            .checked_mul(10)
            .and_then(|p| p.checked_add(u16::from(b - b'0')))
            .ok_or(InvalidHost)?;
    }
    Ok(port)
}
