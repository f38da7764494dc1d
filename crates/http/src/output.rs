//! The end of the filter chains: which fields a header has and in what order, whatever the
//! protocol; and for HTTP/1 the header as text, the body as it is or chunked, both into the
//! connection's output queue.

use crate::buf::{Buf, Chain, Data};
use crate::conf::ServerTokens;
use crate::h2;
use crate::matching;
use crate::module::FilterResult;
use crate::names;
use crate::one_line;
use crate::request::Request;
use crate::subrequest;
use weir_base::bytes::fmt_u64;
use weir_base::date;
use weir_wire::http1::chunked;
use weir_wire::http1::request::{Method, Version};
use weir_wire::http2::hpack::Known;

pub use weir_core::{SERVER_NAME, SERVER_VERSION};

/// Counts as sent, and as part of the body, as in nginx.
pub(crate) const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// Serialises the response header into the output queue.
pub fn send_header(r: &mut Request) -> FilterResult {
    if r.header_sent {
        return Ok(());
    }
    // Once the header has left, a rate that cannot be told could only be none.
    if r.is_limited() {
        r.settle_rate();
    }
    matching::check_header(r)?;
    if r.is_part() {
        subrequest::header(r);
        return Ok(());
    }
    r.header_sent = true;
    if r.version() < Version::HTTP_10 {
        return Ok(());
    }
    if r.method == Method::Head {
        r.header_only = true;
    }
    crate::special::complete_location(r);
    if r.conn().ends_with_worker() {
        r.keepalive = false;
    }
    adjust(r);
    one_line::check(r);
    if let Some(stream) = r.stream().cloned() {
        h2::send_header(r, &stream);
        return Ok(());
    }
    let conn = std::rc::Rc::clone(r.conn());
    if r.discard_body && r.body.awaits_continue() {
        // The body is thrown away, but the client may only send it when told to.
        r.body.expect_continue = false;
        r.sent += conn.out.borrow_mut().write(|t| t.extend_from_slice(CONTINUE));
    }
    let added = conn.out.borrow_mut().write(|text| write_header(r, text));
    r.header_size = added;
    r.sent += added;
    Ok(())
}

/// Statuses without a body, and whether the body is to be chunked.
fn adjust(r: &mut Request) {
    let status = r.out.status;
    if r.out.last_modified.is_some() && !matches!(status, 200 | 206 | 304) {
        r.out.last_modified = None;
    }
    if status == 204 || status == 304 {
        r.header_only = true;
    }
    if status == 204 {
        r.out.content_length = None;
        r.out.last_modified = None;
        // As nginx, which looks at the status of an upstream's answer over HTTP/2 only.
        if r.out.status_line().is_none() || r.stream().is_some() {
            r.out.clear_content_type();
        }
    }
    if r.stream().is_some() {
        return;
    }
    // For HEAD nginx says nothing of how the body would come.
    let bodiless = matches!(status, 204 | 304) || status < 200 || r.method == Method::Head;
    let trailers = r.expect_trailers && r.version() >= Version::HTTP_11;
    if (r.out.content_length.is_none() || trailers) && !bodiless {
        let core = &r.loc().core;
        if r.version() >= Version::HTTP_11 && *core.chunked_transfer_encoding {
            r.chunked = true;
            r.out.content_length = None;
        } else {
            r.keepalive = false;
        }
    }
    if r.upgraded {
        r.chunked = false;
    }
}

/// A name that the server itself sends: as HTTP/1 writes it, and its number for HTTP/2.
#[derive(Clone, Copy)]
pub(crate) struct Name {
    text: &'static [u8],
    pub known: Known,
}

const CONTENT_TYPE: Name = Name { text: b"Content-Type: ", known: Known::CONTENT_TYPE };
const CONTENT_LENGTH: Name = Name { text: b"Content-Length: ", known: Known::CONTENT_LENGTH };
const LAST_MODIFIED: Name = Name { text: b"Last-Modified: ", known: Known::LAST_MODIFIED };
const LOCATION: Name = Name { text: b"Location: ", known: Known::LOCATION };
const VARY: Name = Name { text: b"Vary: ", known: Known::VARY };

/// Where a header's fields go: the part that a protocol brings of its own.
pub(crate) trait HeadSink {
    fn server(&mut self, tokens: ServerTokens);
    fn date(&mut self);
    fn number(&mut self, name: Name, n: u64);
    /// A value in parts.
    fn known(&mut self, name: Name, value: &[&[u8]]);
    fn field(&mut self, name: &[u8], value: &[u8]);
    /// Fields that are about the connection.
    fn connection(&mut self, _: &Request) {}
}

/// The fields of a response's header in nginx's order.
#[inline]
pub(crate) fn write_fields(r: &Request, head: &mut impl HeadSink) {
    let out = &r.out;
    let core = &r.loc().core;
    if !out.has_server {
        head.server(*core.server_tokens);
    }
    if !out.has_date {
        head.date();
    }
    match out.content_type_parts() {
        Some([kind, b"", b""]) => head.known(CONTENT_TYPE, &[kind]),
        Some(parts) => head.known(CONTENT_TYPE, &parts),
        None => {}
    }
    if let Some(n) = out.content_length {
        head.number(CONTENT_LENGTH, n);
    }
    if let Some(secs) = out.last_modified.filter(|_| !out.has_last_modified) {
        head.known(LAST_MODIFIED, &[&date::http_time(secs)]);
    }
    let location = out.leading_location();
    if let Some(location) = location {
        head.known(LOCATION, &[location]);
    }
    head.connection(r);
    if r.gzip_vary && *core.gzip_vary {
        head.known(VARY, &[b"Accept-Encoding"]);
    }
    match location {
        None => out.iter().for_each(|(name, value)| head.field(name, value)),
        Some(_) => out.others().for_each(|(name, value)| head.field(name, value)),
    }
}

struct Text<'a>(&'a mut Vec<u8>);

impl HeadSink for Text<'_> {
    #[inline]
    fn server(&mut self, tokens: ServerTokens) {
        crate::special::write_server_header(tokens, self.0);
    }

    #[inline]
    fn date(&mut self) {
        self.0.extend_from_slice(b"Date: ");
        self.0.extend_from_slice(&crate::pool::date());
        self.0.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn number(&mut self, name: Name, n: u64) {
        self.0.extend_from_slice(name.text);
        fmt_u64(self.0, n);
        self.0.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn known(&mut self, name: Name, value: &[&[u8]]) {
        self.0.extend_from_slice(name.text);
        value.iter().for_each(|part| self.0.extend_from_slice(part));
        self.0.extend_from_slice(b"\r\n");
    }

    #[inline]
    fn field(&mut self, name: &[u8], value: &[u8]) {
        self.0.extend_from_slice(name);
        self.0.extend_from_slice(b": ");
        self.0.extend_from_slice(value);
        self.0.extend_from_slice(b"\r\n");
    }

    fn connection(&mut self, r: &Request) {
        if r.chunked {
            self.0.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        write_connection(r, self.0);
    }
}

fn write_header(r: &Request, text: &mut Vec<u8>) {
    text.extend_from_slice(b"HTTP/1.1 ");
    write_status(r, text);
    write_fields(r, &mut Text(text));
    text.extend_from_slice(b"\r\n");
}

fn write_status(r: &Request, text: &mut Vec<u8>) {
    let status = r.out.status;
    if let Some(line) = r.out.status_line() {
        text.extend_from_slice(line);
    } else if let Some(line) = names::status_line(status) {
        text.extend_from_slice(line.as_bytes());
    } else {
        text.extend_from_slice(format!("{status:03} ").as_bytes());
    }
    text.extend_from_slice(b"\r\n");
}

fn write_connection(r: &Request, text: &mut Vec<u8>) {
    if r.upgraded {
        text.extend_from_slice(b"Connection: upgrade\r\n");
    } else if r.keepalive {
        text.extend_from_slice(b"Connection: keep-alive\r\n");
        if let Some(secs) = *r.loc().core.keepalive_header {
            text.extend_from_slice(b"Keep-Alive: timeout=");
            fmt_u64(text, secs);
            text.extend_from_slice(b"\r\n");
        }
    } else {
        text.extend_from_slice(b"Connection: close\r\n");
    }
}

/// Queues body data, framed as the header announced it.
pub fn send_body(r: &mut Request, chain: Chain) -> FilterResult {
    if let Some(stream) = r.stream().cloned() {
        return h2::send_body(r, &stream, chain);
    }
    let conn = std::rc::Rc::clone(r.conn());
    let mut out = conn.out.borrow_mut();
    let before = out.queued();
    let last = chain.has_last();
    if !r.header_only {
        if r.chunked {
            let size = chain.len();
            if size > 0 {
                out.write(|t| chunked::write_chunk_header(size, t));
                chain.into_iter().for_each(|b| push(&mut out, b));
                out.write(|t| t.extend_from_slice(b"\r\n"));
            }
            if last {
                out.write(|t| write_end(r, t));
            }
        } else {
            chain.into_iter().for_each(|b| push(&mut out, b));
        }
    }
    r.sent += out.queued() - before;
    Ok(())
}

/// Queues body bytes that no filter wants to see, without making a buffer of their own.
pub fn send_slice(r: &mut Request, bytes: &[u8], last: bool) {
    if let Some(stream) = r.stream().cloned() {
        return h2::send_slice(r, &stream, bytes, last);
    }
    let conn = std::rc::Rc::clone(r.conn());
    let mut out = conn.out.borrow_mut();
    let chunked = r.chunked;
    if !r.header_only {
        r.sent += out.write(|text| {
            if chunked && !bytes.is_empty() {
                chunked::write_chunk_header(bytes.len() as u64, text);
            }
            text.extend_from_slice(bytes);
            if chunked && !bytes.is_empty() {
                text.extend_from_slice(b"\r\n");
            }
            if chunked && last {
                write_end(r, text);
            }
        });
    }
}

/// Less than this is copied into the queue, as is what fills but a small part of its buffer.
const LEAVE_MIN_BYTES: usize = 2048;
const LEAVE_MIN_PART: usize = 4;

/// As [`send_slice`], of what a buffer holds from `from` on. Much of it stays where it is: the buffer
/// goes into the queue, and another with what stands before `from` takes its place.
pub fn send_read(r: &mut Request, buf: &mut Vec<u8>, from: usize, last: bool) {
    let len = buf.len() - from;
    let small = len < LEAVE_MIN_BYTES || len * LEAVE_MIN_PART < buf.capacity();
    if small || r.header_only || r.stream().is_some() {
        return send_slice(r, &buf[from..], last);
    }
    let conn = std::rc::Rc::clone(r.conn());
    let mut out = conn.out.borrow_mut();
    let before = out.queued();
    if r.chunked {
        out.write(|t| chunked::write_chunk_header(len as u64, t));
    }
    out.push_read(buf, from);
    if r.chunked {
        out.write(|t| {
            t.extend_from_slice(b"\r\n");
            if last {
                write_end(r, t);
            }
        });
    }
    r.sent += out.queued() - before;
}

fn push(out: &mut weir_core::OutQueue, buf: Buf) {
    match buf.data {
        Data::None => {}
        Data::Mem(bytes) => out.push_bytes(bytes),
        Data::File { file, offset, len } => out.push_file(file, offset, len),
    }
}

fn write_end(r: &Request, text: &mut Vec<u8>) {
    if r.out.trailers.is_empty() {
        chunked::write_last_chunk(text);
        return;
    }
    text.extend_from_slice(b"0\r\n");
    for (name, value) in &r.out.trailers {
        text.extend_from_slice(name);
        text.extend_from_slice(b": ");
        text.extend_from_slice(&one_line::trailer(r, name, value));
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
}
