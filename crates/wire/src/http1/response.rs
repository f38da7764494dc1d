//! The head of an upstream's response.
//!
//! A response that does not begin with a status line is taken for HTTP/0.9, all of it body, as
//! nginx's proxy takes it. Names are not dropped for odd characters here, only lines that
//! cannot be read at all are refused. What CGI programs answer with (RFC 3875 section 6) has its
//! status in a field.

use super::field::{BadField, Field, FieldEvent, FieldRules, Fields};
use super::names::ResponseHeaderId;
use crate::scan::{self, Range32, CR, LF};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ResponseField {
    pub name: Range32,
    pub value: Range32,
    pub id: ResponseHeaderId,
    /// A repetition of a header of which only the first counts: warn, and do not pass it on.
    pub repeated: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ResponseHead {
    /// Major times 1000 plus minor.
    pub version: u32,
    pub status: u16,
    /// From the status code to the end of the line: `404 Not Found`.
    pub status_line: Range32,
    pub headers: Vec<ResponseField>,
    /// The [`ResponseHeaderId::bit`]s of the headers that came.
    pub seen: u64,
    pub content_length: Option<u64>,
    pub chunked: bool,
    /// The origin will close: it says so, or speaks HTTP/1.0 or less.
    pub connection_close: bool,
    /// Where the body begins in the buffer.
    pub head_len: usize,
}

impl ResponseHead {
    /// Forgets the response and keeps the memory.
    pub fn clear(&mut self) {
        self.headers.clear();
        self.set_all_but_headers(&ResponseHead::default());
    }

    /// Becomes the same as another, in the memory that it has.
    pub fn copy_from(&mut self, other: &ResponseHead) {
        self.headers.clone_from(&other.headers);
        self.set_all_but_headers(other);
    }

    /// Field by field: a head that is moved as a whole is a head more to be dropped.
    #[inline]
    fn set_all_but_headers(&mut self, other: &ResponseHead) {
        let ResponseHead {
            version,
            status,
            status_line,
            headers: _,
            seen,
            content_length,
            chunked,
            connection_close,
            head_len,
        } = other;
        self.version = *version;
        self.status = *status;
        self.status_line = *status_line;
        self.seen = *seen;
        self.content_length = *content_length;
        self.chunked = *chunked;
        self.connection_close = *connection_close;
        self.head_len = *head_len;
    }

    pub fn has(&self, id: ResponseHeaderId) -> bool {
        self.seen & id.bit() != 0
    }

    pub fn get(&self, id: ResponseHeaderId) -> Option<&ResponseField> {
        if !self.has(id) {
            return None;
        }
        self.headers.iter().find(|h| h.id == id)
    }

    pub fn value<'b>(&self, id: ResponseHeaderId, buf: &'b [u8]) -> Option<&'b [u8]> {
        self.get(id).map(|h| h.value.of(buf))
    }
}

/// What is wrong with a response; `u32` is an index into `ResponseHead::headers`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseError {
    InvalidHeader(BadField),
    DuplicateHeader(u32),
    InvalidContentLength(u32),
    /// A CGI program's, which does not begin with three digits.
    InvalidStatus(u32),
    LengthAndTransferEncoding,
    UnknownTransferEncoding(u32),
    EarlyHintsInHttp10,
    /// The head does not fit the buffer it may have.
    TooBig,
}

impl ResponseError {
    /// The words nginx logs, without level and context.
    pub fn write_log(&self, head: &ResponseHead, buf: &[u8], out: &mut Vec<u8>) {
        match *self {
            ResponseError::InvalidHeader(bad) => {
                out.extend_from_slice(b"upstream sent invalid header: \"");
                bad.show(buf, out);
                out.push(b'"');
            }
            ResponseError::DuplicateHeader(index) => {
                out.extend_from_slice(b"upstream sent duplicate header line: \"");
                write_field(head.headers.get(index as usize), buf, out);
                out.extend_from_slice(b"\", previous value: \"");
                let id = head.headers.get(index as usize).map(|h| h.id).unwrap_or_default();
                write_field(head.get(id), buf, out);
                out.push(b'"');
            }
            ResponseError::InvalidContentLength(index) => {
                out.extend_from_slice(b"upstream sent invalid \"Content-Length\" header: \"");
                write_field(head.headers.get(index as usize), buf, out);
                out.push(b'"');
            }
            ResponseError::InvalidStatus(index) => {
                out.extend_from_slice(b"upstream sent invalid status \"");
                if let Some(field) = head.headers.get(index as usize) {
                    out.extend_from_slice(field.value.of(buf));
                }
                out.push(b'"');
            }
            ResponseError::UnknownTransferEncoding(index) => {
                out.extend_from_slice(b"upstream sent unknown \"Transfer-Encoding\": \"");
                if let Some(field) = head.headers.get(index as usize) {
                    out.extend_from_slice(field.value.of(buf));
                }
                out.push(b'"');
            }
            ResponseError::LengthAndTransferEncoding => out.extend_from_slice(
                b"upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers \
                  at the same time",
            ),
            ResponseError::EarlyHintsInHttp10 => {
                out.extend_from_slice(b"upstream sent HTTP/1.0 response with early hints");
            }
            ResponseError::TooBig => out.extend_from_slice(b"upstream sent too big header"),
        }
    }
}

fn write_field(field: Option<&ResponseField>, buf: &[u8], out: &mut Vec<u8>) {
    if let Some(field) = field {
        out.extend_from_slice(field.name.of(buf));
        out.extend_from_slice(b": ");
        out.extend_from_slice(field.value.of(buf));
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResponseProgress {
    Complete,
    /// Not HTTP: everything in the buffer is body, and more follows until the end.
    Http09,
    NeedMore,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Stage {
    #[default]
    Status,
    Fields,
    Http09,
    Done,
}

/// How a head begins.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Start {
    #[default]
    Http,
    /// With its fields.
    Cgi,
    /// With a status line, or else with its fields.
    Either,
}

/// Reads one response head; `reset` before the next, as after a 103.
#[derive(Clone, Debug, Default)]
pub struct ResponseParser {
    stage: Stage,
    fields: Fields,
    start: Start,
}

const EARLY_HINTS: u16 = 103;
const RULES: FieldRules = FieldRules { underscores: true, upstream: true };

impl ResponseParser {
    pub fn new() -> Self {
        ResponseParser::default()
    }

    /// Reads heads that begin so: what CGI programs answer with has no status line, or may have none.
    pub fn starting(start: Start) -> Self {
        ResponseParser { start, ..ResponseParser::default() }
    }

    pub fn reset(&mut self) {
        *self = ResponseParser { start: self.start, ..ResponseParser::default() };
    }

    /// Reads on. `max` is `proxy_buffer_size`: the longest head there may be.
    pub fn parse(
        &mut self,
        buf: &[u8],
        max: usize,
        head: &mut ResponseHead,
    ) -> Result<ResponseProgress, ResponseError> {
        let view = buf.get(..max).unwrap_or(buf);
        let progress = self.run(view, head)?;
        if progress == ResponseProgress::NeedMore && view.len() >= max {
            return Err(ResponseError::TooBig);
        }
        Ok(progress)
    }

    fn run(
        &mut self,
        buf: &[u8],
        head: &mut ResponseHead,
    ) -> Result<ResponseProgress, ResponseError> {
        match self.stage {
            Stage::Status if self.start == Start::Cgi => {
                head.clear();
                self.stage = Stage::Fields;
            }
            Stage::Status => {
                head.clear();
                match status_line(buf, head) {
                    StatusLine::NeedMore => return Ok(ResponseProgress::NeedMore),
                    StatusLine::NotHttp if self.start == Start::Either => {
                        head.clear();
                        self.stage = Stage::Fields;
                    }
                    StatusLine::NotHttp => {
                        self.stage = Stage::Http09;
                        head.clear();
                        head.connection_close = true;
                        return Ok(ResponseProgress::Http09);
                    }
                    StatusLine::End(next) => {
                        self.fields = Fields::at(next);
                        self.stage = Stage::Fields;
                    }
                }
                if head.version < 1001 && self.start == Start::Http {
                    if head.status == EARLY_HINTS {
                        return Err(ResponseError::EarlyHintsInHttp10);
                    }
                    head.connection_close = true;
                }
            }
            Stage::Http09 => return Ok(ResponseProgress::Http09),
            Stage::Done => return Ok(ResponseProgress::Complete),
            Stage::Fields => {}
        }
        loop {
            let add = |field, id| add_field(buf, field, id, head);
            self.fields.plain_lines(buf, ResponseHeaderId::of, add)?;
            if self.fields.end_of_block(buf) {
                return self.end(buf, head);
            }
            match self.fields.next(buf, RULES).map_err(ResponseError::InvalidHeader)? {
                FieldEvent::Field(field) => {
                    let id = ResponseHeaderId::of(field.name.of(buf));
                    add_field(buf, field, id, head)?;
                }
                FieldEvent::NeedMore => return Ok(ResponseProgress::NeedMore),
                FieldEvent::End => return self.end(buf, head),
            }
        }
    }

    #[inline]
    fn end(
        &mut self,
        buf: &[u8],
        head: &mut ResponseHead,
    ) -> Result<ResponseProgress, ResponseError> {
        self.stage = Stage::Done;
        head.head_len = self.fields.position();
        if self.start != Start::Http {
            cgi_status(buf, head)?;
        }
        Ok(ResponseProgress::Complete)
    }
}

/// Fields that say how the body and the connection end.
const FRAMING: u64 = ResponseHeaderId::ContentLength.bit()
    | ResponseHeaderId::TransferEncoding.bit()
    | ResponseHeaderId::Connection.bit();

#[inline]
fn add_field(
    buf: &[u8],
    field: Field,
    id: ResponseHeaderId,
    head: &mut ResponseHead,
) -> Result<(), ResponseError> {
    let Field { name, value, .. } = field;
    let before = head.has(id);
    let repeated = before && id.first_only() && head.status != EARLY_HINTS;
    head.headers.push(ResponseField { name, value, id, repeated });
    if head.status == EARLY_HINTS || id == ResponseHeaderId::Other {
        return Ok(());
    }
    if id.bit() & FRAMING != 0 {
        note_framing(value.of(buf), id, before, head)?;
    }
    head.seen |= id.bit();
    Ok(())
}

/// The last of the fields says how the body or the connection ends; `before`: it came before.
fn note_framing(
    value: &[u8],
    id: ResponseHeaderId,
    before: bool,
    head: &mut ResponseHead,
) -> Result<(), ResponseError> {
    let index = head.headers.len() as u32 - 1;
    match id {
        ResponseHeaderId::ContentLength | ResponseHeaderId::TransferEncoding if before => {
            return Err(ResponseError::DuplicateHeader(index));
        }
        ResponseHeaderId::ContentLength => {
            if head.has(ResponseHeaderId::TransferEncoding) {
                return Err(ResponseError::LengthAndTransferEncoding);
            }
            let length = scan::decimal(value).ok_or(ResponseError::InvalidContentLength(index))?;
            head.content_length = Some(length);
        }
        ResponseHeaderId::TransferEncoding => {
            if head.has(ResponseHeaderId::ContentLength) {
                return Err(ResponseError::LengthAndTransferEncoding);
            }
            if !value.eq_ignore_ascii_case(b"chunked") {
                return Err(ResponseError::UnknownTransferEncoding(index));
            }
            head.chunked = true;
        }
        _ => head.connection_close |= scan::contains_ignoring_case(value, b"close"),
    }
    Ok(())
}

/// What a CGI program's fields say of the status. A body is never chunked there.
fn cgi_status(buf: &[u8], head: &mut ResponseHead) -> Result<(), ResponseError> {
    head.chunked = false;
    if head.status != 0 {
        return Ok(());
    }
    let index = head.headers.iter().position(|h| h.id == ResponseHeaderId::Status);
    let Some(index) = index else {
        head.status = if head.has(ResponseHeaderId::Location) { 302 } else { 200 };
        return Ok(());
    };
    let value = head.headers[index].value;
    let text = value.of(buf);
    let digits = text.get(..3).and_then(scan::decimal);
    head.status = digits.ok_or(ResponseError::InvalidStatus(index as u32))? as u16;
    if text.len() > 3 {
        head.status_line = value;
    }
    Ok(())
}

enum StatusLine {
    NeedMore,
    NotHttp,
    /// Where the headers begin.
    End(usize),
}

/// Read from its start each time: it is short, and its origin is one we chose.
fn status_line(buf: &[u8], head: &mut ResponseHead) -> StatusLine {
    if let Some(next) = plain_status(buf, head) {
        return StatusLine::End(next);
    }
    let prefix = b"HTTP/";
    let n = buf.len().min(prefix.len());
    if buf.get(..n) != prefix.get(..n) {
        return StatusLine::NotHttp;
    }
    match read_status(buf, n, head) {
        Ok(next) => StatusLine::End(next),
        Err(Stop::NeedMore) => StatusLine::NeedMore,
        Err(Stop::NotHttp) => StatusLine::NotHttp,
    }
}

enum Stop {
    NeedMore,
    NotHttp,
}

/// A status line that is written as most are: `HTTP/1.1 404 Not Found`, with CR and LF.
#[inline(always)]
fn plain_status(buf: &[u8], head: &mut ResponseHead) -> Option<usize> {
    const START: usize = "HTTP/1.1 ".len();
    const REASON: usize = START + "200 ".len();
    const LINE: u64 = u64::from_le_bytes(*b"HTTP/1.0");
    // The last of the version's digits, which may be 1 as well.
    const MINOR: u64 = 1 << 56;
    let version = u64::from_le_bytes(*buf.first_chunk()?);
    let &[b' ', a, b, c, b' '] = buf.get(START - 1..)?.first_chunk()? else { return None };
    let [a, b, c] = [a, b, c].map(|digit| u16::from(digit.wrapping_sub(b'0')));
    if version & !MINOR != LINE || a.max(b).max(c) > 9 {
        return None;
    }
    let end = scan::value_end(buf, REASON);
    if !buf.get(end..)?.starts_with(b"\r\n") {
        return None;
    }
    head.version = if version == LINE { 1000 } else { 1001 };
    head.status = a * 100 + b * 10 + c;
    head.status_line = Range32::new(START, end);
    Some(end + 2)
}

fn read_status(buf: &[u8], from: usize, head: &mut ResponseHead) -> Result<usize, Stop> {
    let byte = |at: usize| buf.get(at).copied().ok_or(Stop::NeedMore);
    let mut at = from;
    if byte(at)? == b'0' {
        return Err(Stop::NotHttp);
    }
    let major = number(buf, &mut at, b'.')?;
    let minor = number(buf, &mut at, b' ')?;
    head.version = major * 1000 + minor;
    while byte(at)? == b' ' {
        at += 1;
    }
    let start = at;
    let mut status = 0;
    // Spaces are skipped between the digits as well.
    let mut digits = 0;
    while digits < 3 {
        match byte(at)? {
            b' ' => {}
            b if b.is_ascii_digit() => {
                status = status * 10 + u16::from(b - b'0');
                digits += 1;
            }
            _ => return Err(Stop::NotHttp),
        }
        at += 1;
    }
    head.status = status;
    let start = if at - start == 3 { start } else { at - 3 };
    if !matches!(byte(at)?, b' ' | b'.' | CR | LF) {
        return Err(Stop::NotHttp);
    }
    let rest = buf.get(at..).unwrap_or_default();
    let len = memchr::memchr2(CR, LF, rest).ok_or(Stop::NeedMore)?;
    head.status_line = Range32::new(start, at + len);
    at += len;
    if byte(at)? == CR {
        at += 1;
        if byte(at)? != LF {
            return Err(Stop::NotHttp);
        }
    }
    Ok(at + 1)
}

/// At most four digits, then `end`.
fn number(buf: &[u8], at: &mut usize, end: u8) -> Result<u32, Stop> {
    let mut value: u32 = 0;
    let mut digits = 0;
    loop {
        let b = *buf.get(*at).ok_or(Stop::NeedMore)?;
        *at += 1;
        if b == end && digits > 0 {
            return Ok(value);
        }
        if !b.is_ascii_digit() || value > 99 {
            return Err(Stop::NotHttp);
        }
        value = value * 10 + u32::from(b - b'0');
        digits += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX: usize = 4096;

    fn parse(buf: &[u8]) -> (Result<ResponseProgress, ResponseError>, ResponseHead) {
        let mut head = ResponseHead::default();
        let result = ResponseParser::new().parse(buf, MAX, &mut head);
        (result, head)
    }

    #[test]
    fn good_heads() {
        let buf = b"HTTP/1.1 404 Not Found\r\nServer: x\r\nserver: y\r\nX_y:  z \r\n\
                    Content-Length: 3\nConnection: Foo, Close\r\n\r\nabc";
        let (result, head) = parse(buf);
        assert_eq!(result, Ok(ResponseProgress::Complete));
        assert_eq!((head.version, head.status), (1001, 404));
        assert_eq!(head.status_line.of(buf), b"404 Not Found");
        assert_eq!(head.value(ResponseHeaderId::Server, buf), Some(&b"x"[..]));
        assert!(head.headers[1].repeated && !head.headers[0].repeated);
        assert_eq!(head.headers[2].value.of(buf), b"z");
        assert_eq!(head.content_length, Some(3));
        assert!(head.connection_close);
        assert_eq!(&buf[head.head_len..], b"abc");

        let (result, head) = parse(b"HTTP/1.0 200\r\n\r\n");
        assert_eq!(result, Ok(ResponseProgress::Complete));
        assert!(head.connection_close && head.status == 200);
        let (result, head) = parse(b"HTTP/1.1   403.1 No\nHTTP/1.1 200 OK\r\nA\r\n\n");
        assert_eq!((result, head.status), (Ok(ResponseProgress::Complete), 403));
        assert_eq!(head.headers.len(), 1);
    }

    #[test]
    fn what_is_not_http_is_body() {
        for buf in [&b"<html>"[..], b"HTTX", b"HTTP/x", b"HTTP/0.9 200 OK\r\n", b"HTTP/1.1 2x0 "] {
            assert_eq!(parse(buf).0, Ok(ResponseProgress::Http09), "{buf:?}");
        }
        for buf in [&b""[..], b"HTT", b"HTTP/1", b"HTTP/1.1 200 OK\r", b"HTTP/1.1 200 OK\r\nA: b"] {
            assert_eq!(parse(buf).0, Ok(ResponseProgress::NeedMore), "{buf:?}");
        }
    }

    #[test]
    fn heads_of_cgi_programs() {
        let parse = |buf: &[u8], mut parser: ResponseParser| {
            let mut head = ResponseHead::default();
            let result = parser.parse(buf, MAX, &mut head);
            (result, head)
        };
        let buf = b"Status: 404 None\r\nX-A: b\nContent-Length: 3\n\nabc";
        let (result, head) = parse(buf, ResponseParser::starting(Start::Cgi));
        assert_eq!((result, head.status), (Ok(ResponseProgress::Complete), 404));
        assert_eq!(head.status_line.of(buf), b"404 None");
        assert_eq!((head.content_length, &buf[head.head_len..]), (Some(3), &b"abc"[..]));
        let (_, head) = parse(b"Status: 200\r\n\r\n", ResponseParser::starting(Start::Cgi));
        assert_eq!((head.status, head.status_line), (200, Range32::default()));
        let (_, head) = parse(b"Location: /\r\n\r\n", ResponseParser::starting(Start::Cgi));
        assert_eq!(head.status, 302);
        let (_, head) = parse(b"X: y\r\n\r\n", ResponseParser::starting(Start::Either));
        assert_eq!(head.status, 200);
        let chunked = b"HTTP/1.0 403 No\r\nTransfer-Encoding: chunked\r\n\r\n";
        let (_, head) = parse(chunked, ResponseParser::starting(Start::Either));
        assert_eq!((head.status, head.chunked, head.connection_close), (403, false, false));
        let bad = parse(b"Status: abc\r\n\r\n", ResponseParser::starting(Start::Cgi)).0;
        assert_eq!(bad, Err(ResponseError::InvalidStatus(0)));
        let more = parse(b"HTTP/1.1 20", ResponseParser::starting(Start::Either)).0;
        assert_eq!(more, Ok(ResponseProgress::NeedMore));
    }

    #[test]
    fn refused_heads() {
        for (fields, error) in [
            ("Content-Length: 1\r\nContent-Length: 1\r\n", ResponseError::DuplicateHeader(1)),
            ("Content-Length: 1,1\r\n", ResponseError::InvalidContentLength(0)),
            ("Content-Length: -1\r\n", ResponseError::InvalidContentLength(0)),
            (
                "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n",
                ResponseError::LengthAndTransferEncoding,
            ),
            ("A: b\r\nTransfer-Encoding: gzip\r\n", ResponseError::UnknownTransferEncoding(1)),
        ] {
            let buf = format!("HTTP/1.1 200 OK\r\n{fields}\r\n");
            assert_eq!(parse(buf.as_bytes()).0, Err(error), "{fields}");
        }
        let folded = parse(b"HTTP/1.1 200 OK\r\nA: b\r\n c\r\n\r\n").0;
        assert!(matches!(folded, Err(ResponseError::InvalidHeader(_))));
        let hints = parse(b"HTTP/1.0 103 Early Hints\r\n\r\n").0;
        assert_eq!(hints, Err(ResponseError::EarlyHintsInHttp10));
        let mut long = b"HTTP/1.1 200 OK\r\nA: ".to_vec();
        long.resize(MAX, b'x');
        assert_eq!(parse(&long).0, Err(ResponseError::TooBig));
    }

    #[test]
    fn a_log_line_names_both_values() {
        let buf = b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\ncontent-length: 2\r\n\r\n";
        let (result, head) = parse(buf);
        let mut out = Vec::new();
        if let Err(error) = result {
            error.write_log(&head, buf, &mut out);
        }
        assert_eq!(
            out,
            b"upstream sent duplicate header line: \"content-length: 2\", \
              previous value: \"Content-Length: 1\""
        );
    }

    #[test]
    fn a_status_line_at_one_look_is_the_same_as_byte_by_byte() {
        for line in [
            "HTTP/1.1 200 OK\r\n",
            "HTTP/1.0 404 Not Found\r\n",
            "HTTP/1.1 500 \r\nA: b\r\n",
            "HTTP/1.1 099 x\r\n",
            "HTTP/1.1 200 a\r\r\n",
            "HTTP/1.1 200 OK\n",
            "HTTP/1.1 200 OK\r",
            "HTTP/1.1 200\r\n",
            "HTTP/1.1 2 00 OK\r\n",
            "HTTP/1.2 200 OK\r\n",
            "HTTP/1.1  200 OK\r\n",
        ] {
            let (mut plain, mut slow) = (ResponseHead::default(), ResponseHead::default());
            let end = read_status(line.as_bytes(), "HTTP/".len(), &mut slow).ok();
            match plain_status(line.as_bytes(), &mut plain) {
                Some(next) => assert_eq!((Some(next), &plain), (end, &slow), "{line:?}"),
                None => assert_eq!(plain, ResponseHead::default(), "{line:?}"),
            }
        }
        let usual = plain_status(b"HTTP/1.1 404 Not Found\r\n", &mut ResponseHead::default());
        assert_eq!(usual, Some(24));
    }
}
