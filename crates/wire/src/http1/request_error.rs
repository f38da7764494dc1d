//! Why a request head was refused: its status, and the words nginx logs at level `info`.

use super::field::BadField;
use super::request::RequestHead;
use crate::scan::Range32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ParseError {
    InvalidMethod,
    InvalidRequest,
    InvalidVersion,
    /// A request line without a version, whose method is not GET.
    InvalidMethodInHttp09,
    UriTooLong,
    InvalidHostInRequestLine,
    InvalidHeaderLine(BadField),
    /// `start` is where the line that did not fit begins, `end` where nginx's buffer does.
    HeaderTooLarge {
        start: u32,
        end: u32,
    },
    TooManyHeaders,
    /// The index into `RequestHead::headers` of the second one of its name.
    DuplicateHeader(u32),
    InvalidHost,
    MissingHost,
    InvalidContentLength,
    TransferEncodingInHttp10,
    LengthAndTransferEncoding,
    UnknownTransferEncoding(Range32),
    ConnectRefused,
    ConnectWithBody,
    TraceRefused,
}

impl ParseError {
    /// nginx's status; 494 is its own, answered as 400 with a page of its own.
    pub fn status(&self) -> u16 {
        match self {
            ParseError::InvalidVersion => 505,
            ParseError::UriTooLong => 414,
            ParseError::HeaderTooLarge { .. } | ParseError::TooManyHeaders => 494,
            ParseError::UnknownTransferEncoding(_) => 501,
            ParseError::ConnectRefused | ParseError::TraceRefused => 405,
            _ => 400,
        }
    }

    /// Whether more of the request is surely on its way, so that closing at once would make
    /// the client's kernel throw the answer away.
    pub fn wants_lingering_close(&self) -> bool {
        matches!(self, ParseError::HeaderTooLarge { .. } | ParseError::TooManyHeaders)
    }

    /// The log line, without level, connection and request.
    pub fn write_log(&self, head: &RequestHead, buf: &[u8], out: &mut Vec<u8>) {
        match *self {
            ParseError::InvalidHeaderLine(bad) => {
                out.extend_from_slice(b"client sent invalid header line: \"");
                bad.show(buf, out);
                out.push(b'"');
            }
            ParseError::HeaderTooLarge { start, end } => {
                const SHOWN_MAX: usize = 2048 - 300;
                let end = buf.len().min(end as usize);
                let line = buf.get(start as usize..end).unwrap_or_default();
                out.extend_from_slice(b"client sent too long header line: \"");
                out.extend_from_slice(line.get(..SHOWN_MAX).unwrap_or(line));
                out.extend_from_slice(b"...\"");
            }
            ParseError::DuplicateHeader(index) => write_duplicate(head, index, buf, out),
            ParseError::UnknownTransferEncoding(value) => {
                out.extend_from_slice(b"client sent unknown \"Transfer-Encoding\": \"");
                out.extend_from_slice(value.of(buf));
                out.push(b'"');
            }
            _ => out.extend_from_slice(self.fixed_text().as_bytes()),
        }
    }

    fn fixed_text(&self) -> &'static str {
        match self {
            ParseError::InvalidMethod => "client sent invalid method",
            ParseError::InvalidRequest => "client sent invalid request",
            ParseError::InvalidVersion => "client sent invalid version",
            ParseError::InvalidMethodInHttp09 => "client sent invalid method in HTTP/0.9 request",
            ParseError::UriTooLong => "client sent too long URI",
            ParseError::InvalidHostInRequestLine => "client sent invalid host in request line",
            ParseError::TooManyHeaders => "client sent too many header lines",
            ParseError::InvalidHost => "client sent invalid host header",
            ParseError::MissingHost => "client sent HTTP/1.1 request without \"Host\" header",
            ParseError::InvalidContentLength => "client sent invalid \"Content-Length\" header",
            ParseError::TransferEncodingInHttp10 => {
                "client sent HTTP/1.0 request with \"Transfer-Encoding\" header"
            }
            ParseError::LengthAndTransferEncoding => {
                "client sent \"Content-Length\" and \"Transfer-Encoding\" headers at the same time"
            }
            ParseError::ConnectRefused => "client sent CONNECT method",
            ParseError::ConnectWithBody => "client sent CONNECT request with body",
            ParseError::TraceRefused => "client sent TRACE method",
            ParseError::InvalidHeaderLine(_)
            | ParseError::HeaderTooLarge { .. }
            | ParseError::DuplicateHeader(_)
            | ParseError::UnknownTransferEncoding(_) => "",
        }
    }
}

fn write_duplicate(head: &RequestHead, index: u32, buf: &[u8], out: &mut Vec<u8>) {
    let Some(second) = head.headers.get(index as usize) else { return };
    let kind: &[u8] = match second.id {
        super::names::HeaderId::Host => b"client sent duplicate host header: \"",
        _ => b"client sent duplicate header line: \"",
    };
    out.extend_from_slice(kind);
    out.extend_from_slice(second.name.of(buf));
    out.extend_from_slice(b": ");
    out.extend_from_slice(second.value.of(buf));
    if let Some(first) = head.get(second.id) {
        out.extend_from_slice(b"\", previous value: \"");
        out.extend_from_slice(first.name.of(buf));
        out.extend_from_slice(b": ");
        out.extend_from_slice(first.value.of(buf));
    }
    out.push(b'"');
}
