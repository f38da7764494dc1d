//! The request line, token by token (RFC 9112 section 3, with nginx's leniencies).
//!
//! Accepted beyond the RFC: blank lines before it, several spaces between its parts and after
//! it, a bare LF at its end, bytes above 0x7f in the target, no version at all (HTTP/0.9).

use super::request::{Method, ParseError, RequestHead, Version};
use crate::scan::{self, Range32, CR, IP_LITERAL, LF, LINE_HOST, METHOD, URI_MARK};
use crate::target::{self, Path};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LineEvent {
    NeedMore,
    /// `next` is the first byte after the line.
    End {
        next: usize,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Blank,
    Method,
    BeforeTarget,
    Scheme,
    SchemeSlashes,
    BeforeHost,
    HostStart,
    Host,
    HostEnd,
    IpLiteral,
    PortStart,
    Port,
    Target,
    BeforeVersion,
    Protocol,
    Major,
    MinorStart,
    Minor,
    AfterVersion,
    AfterCr,
}

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Line {
    state: State,
    at: usize,
    start: usize,
    /// Where the current token, or the scheme and then the host, began.
    token: usize,
    target: usize,
    protocol: usize,
    /// The line's text ends here, once its CR has been seen.
    end: usize,
    major_digits: u8,
}

const PROTOCOL: &[u8] = b"HTTP/";

impl Line {
    /// Back to the start; the rest is written before it is read.
    #[inline]
    pub(super) fn reset(&mut self) {
        self.state = State::Blank;
        self.at = 0;
        self.major_digits = 0;
    }

    pub(super) fn is_blank(&self) -> bool {
        self.state == State::Blank
    }

    /// Everything before this has been judged.
    pub(super) fn read_to(&self) -> usize {
        self.at
    }

    pub(super) fn start(&self) -> usize {
        self.start
    }

    #[inline]
    pub(super) fn read(
        &mut self,
        buf: &[u8],
        head: &mut RequestHead,
    ) -> Result<LineEvent, ParseError> {
        if self.at == 0 {
            if let Some(next) = plain_line(buf, head) {
                self.state = State::AfterCr;
                return Ok(LineEvent::End { next });
            }
        }
        self.read_by_state(buf, head)
    }

    #[inline(never)]
    fn read_by_state(
        &mut self,
        buf: &[u8],
        head: &mut RequestHead,
    ) -> Result<LineEvent, ParseError> {
        loop {
            match self.state {
                State::Blank => self.blank(buf)?,
                State::Method => self.method(buf, head)?,
                State::BeforeTarget => self.before_target(buf, head)?,
                State::Target => self.target(buf, head)?,
                State::BeforeVersion => self.before_version(buf, head)?,
                State::Protocol
                | State::Major
                | State::MinorStart
                | State::Minor
                | State::AfterVersion => self.version(buf, head)?,
                State::AfterCr => {
                    return match buf.get(self.at) {
                        None => Ok(LineEvent::NeedMore),
                        Some(&LF) => self.finish(buf, head),
                        Some(_) => Err(ParseError::InvalidRequest),
                    }
                }
                _ => match buf.get(self.at) {
                    None => return Ok(LineEvent::NeedMore),
                    Some(&b) => self.authority(b, head)?,
                },
            }
            if self.at >= buf.len() && self.state != State::AfterCr {
                return Ok(LineEvent::NeedMore);
            }
        }
    }

    #[inline(always)]
    fn blank(&mut self, buf: &[u8]) -> Result<(), ParseError> {
        while let Some(&b) = buf.get(self.at) {
            if b == CR || b == LF {
                self.at += 1;
            } else if scan::is(b, METHOD) {
                self.start = self.at;
                self.state = State::Method;
                break;
            } else {
                return Err(ParseError::InvalidMethod);
            }
        }
        Ok(())
    }

    #[inline(always)]
    fn method(&mut self, buf: &[u8], head: &mut RequestHead) -> Result<(), ParseError> {
        self.at = scan::skip(buf, self.at, METHOD);
        match buf.get(self.at) {
            None => Ok(()),
            Some(b' ') => {
                head.method_span = Range32::new(self.start, self.at);
                head.method = Method::from_bytes(head.method_span.of(buf));
                self.at += 1;
                self.state = match head.method {
                    Method::Connect => State::BeforeHost,
                    _ => State::BeforeTarget,
                };
                Ok(())
            }
            Some(_) => Err(ParseError::InvalidMethod),
        }
    }

    #[inline(always)]
    fn before_target(&mut self, buf: &[u8], head: &mut RequestHead) -> Result<(), ParseError> {
        while buf.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
        match buf.get(self.at) {
            None => {}
            Some(b'/') => self.begin_target(self.at),
            Some(b) if b.is_ascii_alphabetic() => {
                self.token = self.at;
                self.state = State::Scheme;
                head.scheme = None;
            }
            Some(_) => return Err(ParseError::InvalidRequest),
        }
        Ok(())
    }

    fn begin_target(&mut self, at: usize) {
        self.target = at;
        self.state = State::Target;
    }

    /// One byte of the scheme, host or port of a target in absolute or authority form.
    fn authority(&mut self, b: u8, head: &mut RequestHead) -> Result<(), ParseError> {
        match self.state {
            State::Scheme => match b {
                b':' => {
                    head.scheme = Some(Range32::new(self.token, self.at));
                    self.token = self.at;
                    self.state = State::SchemeSlashes;
                }
                _ if b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.') => {}
                _ => return Err(ParseError::InvalidRequest),
            },
            State::SchemeSlashes => {
                if b != b'/' {
                    return Err(ParseError::InvalidRequest);
                }
                if self.at == self.token + 2 {
                    self.state = State::HostStart;
                }
            }
            State::BeforeHost if b == b' ' => {}
            State::BeforeHost | State::HostStart => {
                self.token = self.at;
                if b == b'[' {
                    self.state = State::IpLiteral;
                } else {
                    self.state = State::Host;
                    return self.authority(b, head);
                }
            }
            State::Host if scan::is(b, LINE_HOST) => {}
            State::Host | State::HostEnd if b == b':' => self.state = State::PortStart,
            State::Host | State::HostEnd if head.method == Method::Connect => {
                return Err(ParseError::InvalidRequest)
            }
            State::IpLiteral if b == b']' => self.state = State::HostEnd,
            State::IpLiteral if b == b':' || scan::is(b, IP_LITERAL) => {}
            State::IpLiteral => return Err(ParseError::InvalidRequest),
            State::PortStart | State::Port if b.is_ascii_digit() => self.state = State::Port,
            State::PortStart if head.method == Method::Connect => {
                return Err(ParseError::InvalidRequest)
            }
            _ => return self.authority_end(b, head),
        }
        self.at += 1;
        Ok(())
    }

    fn authority_end(&mut self, b: u8, head: &mut RequestHead) -> Result<(), ParseError> {
        head.authority = Some(Range32::new(self.token, self.at));
        match b {
            b' ' => {
                // nginx's "/" is the first slash after the scheme; for CONNECT, the one in
                // "HTTP/", which `version` fills in.
                let slash = head.scheme.map_or(0, |s| s.end as usize + 1);
                head.target = Range32::new(slash, slash + 1);
                head.path = head.target;
                self.state = State::BeforeVersion;
                self.at += 1;
            }
            _ if head.method == Method::Connect => return Err(ParseError::InvalidRequest),
            b'/' => self.begin_target(self.at),
            b'?' => {
                head.empty_path_in_uri = true;
                self.begin_target(self.at);
            }
            _ => return Err(ParseError::InvalidRequest),
        }
        Ok(())
    }

    #[inline(always)]
    fn target(&mut self, buf: &[u8], head: &mut RequestHead) -> Result<(), ParseError> {
        self.at = scan::target_end(buf, self.at);
        match buf.get(self.at) {
            None => return Ok(()),
            Some(b' ' | &CR | &LF) => {}
            Some(_) => return Err(ParseError::InvalidRequest),
        }
        head.target = Range32::new(self.target, self.at);
        look_at_target(head, buf);
        self.state = State::BeforeVersion;
        Ok(())
    }

    #[inline(always)]
    fn before_version(&mut self, buf: &[u8], head: &mut RequestHead) -> Result<(), ParseError> {
        while buf.get(self.at) == Some(&b' ') {
            self.at += 1;
        }
        match buf.get(self.at) {
            None => {}
            Some(b'H') => {
                self.protocol = self.at;
                head.protocol = Range32::new(self.at, self.at);
                self.state = State::Protocol;
            }
            Some(&CR | &LF) => {
                head.version = Version::HTTP_09;
                self.state = State::AfterVersion;
            }
            Some(_) => return Err(ParseError::InvalidRequest),
        }
        Ok(())
    }

    fn connect_target(&self, head: &mut RequestHead) {
        let slash = self.protocol + PROTOCOL.len() - 1;
        head.target = Range32::new(slash, slash + 1);
        head.path = head.target;
    }

    fn version(&mut self, buf: &[u8], head: &mut RequestHead) -> Result<(), ParseError> {
        while let Some(&b) = buf.get(self.at) {
            match self.state {
                State::Protocol => {
                    let seen = self.at - self.protocol;
                    if PROTOCOL.get(seen) != Some(&b) {
                        return Err(ParseError::InvalidRequest);
                    }
                    if seen + 1 == PROTOCOL.len() {
                        self.state = State::Major;
                        if head.method == Method::Connect {
                            self.connect_target(head);
                        }
                    }
                }
                State::Major => self.major(b)?,
                State::MinorStart if b.is_ascii_digit() => {
                    head.version = Version(1000 + u16::from(b - b'0'));
                    self.state = State::Minor;
                }
                State::Minor if b.is_ascii_digit() => {
                    let minor = head.version.0 - 1000;
                    if minor > 99 {
                        return Err(ParseError::InvalidRequest);
                    }
                    head.version = Version(1000 + minor * 10 + u16::from(b - b'0'));
                }
                State::Minor | State::AfterVersion => return self.after_version(b),
                _ => return Err(ParseError::InvalidRequest),
            }
            self.at += 1;
        }
        Ok(())
    }

    /// Any version whose major part is not 1 is known but not spoken.
    fn major(&mut self, b: u8) -> Result<(), ParseError> {
        match (self.major_digits, b) {
            (0, b'1') => self.major_digits = 1,
            (0, b'2'..=b'9') => return Err(ParseError::InvalidVersion),
            (1, b'.') => self.state = State::MinorStart,
            (1, b'0'..=b'9') => return Err(ParseError::InvalidVersion),
            _ => return Err(ParseError::InvalidRequest),
        }
        Ok(())
    }

    fn after_version(&mut self, b: u8) -> Result<(), ParseError> {
        match b {
            b' ' => {
                self.state = State::AfterVersion;
                self.at += 1;
            }
            CR => {
                self.end = self.at;
                self.state = State::AfterCr;
                self.at += 1;
            }
            LF => {
                self.end = self.at;
                self.state = State::AfterCr;
            }
            _ => return Err(ParseError::InvalidRequest),
        }
        Ok(())
    }

    #[inline(always)]
    fn finish(&mut self, buf: &[u8], head: &mut RequestHead) -> Result<LineEvent, ParseError> {
        head.request_line = Range32::new(self.start, self.end);
        if head.version == Version::HTTP_09 {
            if head.method != Method::Get {
                return Err(ParseError::InvalidMethodInHttp09);
            }
        } else {
            head.protocol = Range32::new(self.protocol, self.end);
        }
        if let Some(authority) = head.authority {
            let host = super::framing::host_in(authority, buf);
            head.host = Some(host.ok_or(ParseError::InvalidHostInRequestLine)?);
        }
        Ok(LineEvent::End { next: self.at + 1 })
    }
}

/// A whole `METHOD /target HTTP/1.x` line with nothing odd about it, at the very start of the
/// buffer; whatever this does not know, the states judge.
#[inline(always)]
fn plain_line(buf: &[u8], head: &mut RequestHead) -> Option<usize> {
    let method_end = if buf.starts_with(b"GET ") { 3 } else { scan::skip(buf, 0, METHOD) };
    if method_end == 0 || buf.get(method_end..method_end + 2) != Some(b" /") {
        return None;
    }
    let start = method_end + 1;
    let target = target::look(buf, start, usize::MAX);
    let version = match buf.get(target.end..)?.first_chunk()? {
        b" HTTP/1.1\r\n" => Version::HTTP_11,
        b" HTTP/1.0\r\n" => Version::HTTP_10,
        _ => return None,
    };
    let method = match method_end {
        3 if buf.starts_with(b"GET") => Method::Get,
        _ => Method::from_bytes(buf.get(..method_end)?),
    };
    if method == Method::Connect {
        return None;
    }
    let line_end = target.end + " HTTP/1.1".len();
    head.method = method;
    head.method_span = Range32::new(0, method_end);
    head.version = version;
    head.protocol = Range32::new(target.end + 1, line_end);
    head.request_line = Range32::new(0, line_end);
    head.target = Range32::new(start, target.end);
    split_target(head, buf, &target.path);
    Some(line_end + 2)
}

/// A target in origin form that stands alone.
pub(super) fn take_target(head: &mut RequestHead, buf: &[u8], target: Range32) -> bool {
    let text = target.of(buf);
    if text.first() != Some(&b'/') || scan::target_end(text, 0) != text.len() {
        return false;
    }
    head.target = target;
    look_at_target(head, buf);
    true
}

fn look_at_target(head: &mut RequestHead, buf: &[u8]) {
    let Range32 { start, end } = head.target;
    let target = target::look(buf, start as usize, end as usize);
    split_target(head, buf, &target.path);
}

/// Splits the target into path and arguments and notes what the path holds.
#[inline(always)]
fn split_target(head: &mut RequestHead, buf: &[u8], path: &Path) {
    let start = head.target.start as usize;
    let path_end = match *path {
        Path::Plain { end, complex } => {
            head.complex_uri = complex;
            if end < head.target.end as usize {
                head.args = Some(args_from(buf, end + 1, head.target.end as usize));
            }
            end
        }
        Path::Other => split_byte_by_byte(head, buf),
    };
    head.path = Range32::new(start, path_end);
    if head.empty_path_in_uri {
        let slash = head.scheme.map_or(0, |s| s.end as usize + 1);
        head.path = Range32::new(slash, slash + 1);
    }
}

/// Where the path ends.
#[inline(never)]
fn split_byte_by_byte(head: &mut RequestHead, buf: &[u8]) -> usize {
    let (start, end) = (head.target.start as usize, head.target.end as usize);
    let mut path_end = end;
    let mut previous = 0;
    for (i, &b) in head.target.of(buf).iter().enumerate() {
        if scan::is(b, URI_MARK) {
            match b {
                b'%' => head.quoted_uri = true,
                b'+' => head.plus_in_uri = true,
                b'?' => {
                    head.args = Some(args_from(buf, start + i + 1, end));
                    path_end = start + i;
                    break;
                }
                b'#' => {
                    head.complex_uri = true;
                    path_end = start + i;
                    break;
                }
                _ => head.complex_uri |= previous == b'/',
            }
        }
        previous = b;
    }
    head.complex_uri |= head.quoted_uri;
    path_end
}

/// The arguments of a target that ends at `end`.
fn args_from(buf: &[u8], from: usize, end: usize) -> Range32 {
    let args = buf.get(from..end).unwrap_or_default();
    let len = memchr::memchr(b'#', args).unwrap_or(args.len());
    Range32::new(from, from + len)
}
