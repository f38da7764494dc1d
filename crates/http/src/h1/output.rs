//! The end of the filter chains for HTTP/1: the header as text, the body as it is or chunked, both into
//! the connection's output queue.

use super::ready;
use crate::buf::{Buf, Chain, Data};
use crate::conf::ServerTokens;
use crate::headers_out::HeadersOut;
use crate::one_line;
use crate::output::{self, HeadSink, Name};
use crate::request::Request;
use std::rc::Rc;
use weir_base::bytes::fmt_u64;
use weir_wire::http1::chunked;
use weir_wire::http1::request::{Method, Version};

/// Writes the header as text, framed as the body will be.
pub(crate) fn send_header(r: &mut Request) {
    choose_framing(r);
    // Not before: while it is waited for an answer, others have the memory.
    r.conn().take_queue();
    if r.body.expect_continue {
        with_body_to_come(r);
    }
    let added = r.conn().out.borrow_mut().write(|text| write_header(r, text));
    r.header_size = added;
    r.sent += added;
}

/// The client has a body that it has not sent.
#[cold]
fn with_body_to_come(r: &mut Request) {
    if !r.body.awaits_continue() {
        return;
    }
    if r.flags.discard_body {
        // It is thrown away, but may only be sent when the client is told to.
        r.body.expect_continue = false;
        send_continue(r);
    } else {
        // Whether it comes behind the answer nobody knows, nor where the next request begins.
        r.flags.keepalive = false;
    }
}

/// Counts as sent, and as part of the body, as in nginx.
pub(crate) fn send_continue(r: &mut Request) {
    let text = b"HTTP/1.1 100 Continue\r\n\r\n";
    let sent = r.conn().out.borrow_mut().write(|t| t.extend_from_slice(text));
    r.sent += sent;
}

/// A 103 answer ahead of the final one; `fields` are its lines.
pub(crate) fn send_hints(r: &Request, fields: &[u8]) {
    r.conn().out.borrow_mut().write(|text| {
        text.extend_from_slice(b"HTTP/1.1 103 Early Hints\r\n");
        text.extend_from_slice(fields);
        text.extend_from_slice(b"\r\n");
    });
}

/// How the body's end is told: by its length, by chunks, or by the connection's end.
fn choose_framing(r: &mut Request) {
    let status = r.out.status;
    // For HEAD nginx says nothing of how the body would come.
    let bodiless = matches!(status, 204 | 304) || status < 200 || r.method == Method::Head;
    if r.out.content_length.is_none() && !bodiless {
        let core = &r.loc().core;
        if r.version() >= Version::HTTP_11 && *core.chunked_transfer_encoding {
            r.flags.chunked = true;
        } else {
            r.flags.keepalive = false;
        }
    }
    if r.flags.upgraded {
        r.flags.chunked = false;
    }
}

struct Text<'a>(&'a mut Vec<u8>);

impl HeadSink for Text<'_> {
    fn server(&mut self, tokens: ServerTokens) {
        ready::write_server(tokens, self.0);
    }

    fn date(&mut self) {
        ready::write_date(self.0);
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

    #[inline]
    fn fields(&mut self, out: &HeadersOut) {
        out.write_lines(self.0);
    }

    fn connection(&mut self, r: &Request) {
        if r.flags.chunked {
            self.0.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
        }
        write_connection(r, self.0);
    }
}

fn write_header(r: &Request, text: &mut Vec<u8>) {
    let own = r.out.status_line();
    let tokens = *r.loc().core.server_tokens;
    let is_usual = !r.out.has_server && !r.out.has_date;
    if !is_usual || !ready::write_start(r.out.status, own, tokens, text) {
        write_said_start(r, own, text);
    }
    output::write_rest(r, &mut Text(text));
    text.extend_from_slice(b"\r\n");
}

/// As an upstream has said some of it.
#[inline(never)]
fn write_said_start(r: &Request, line: Option<&[u8]>, text: &mut Vec<u8>) {
    text.extend_from_slice(b"HTTP/1.1 ");
    match line {
        Some(line) => {
            text.extend_from_slice(line);
            text.extend_from_slice(b"\r\n");
        }
        None => ready::write_status(r.out.status, text),
    }
    output::write_start(r, &mut Text(text));
}

fn write_connection(r: &Request, text: &mut Vec<u8>) {
    if r.out.status == 101 {
        text.extend_from_slice(b"Connection: upgrade\r\n");
    } else if r.flags.keepalive {
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
pub(crate) fn send_body(r: &mut Request, chain: Chain) {
    let conn = Rc::clone(r.conn());
    let mut out = conn.out.borrow_mut();
    let before = out.queued();
    let last = chain.has_last();
    if !r.flags.header_only {
        if r.flags.chunked {
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
}

/// As [`send_body`], of one buffer.
pub(crate) fn send_buf(r: &mut Request, buf: Buf) {
    if r.flags.chunked {
        return send_body(r, Chain::one(buf));
    }
    if !r.flags.header_only {
        let mut out = r.conn().out.borrow_mut();
        let before = out.queued();
        push(&mut out, buf);
        let added = out.queued() - before;
        drop(out);
        r.sent += added;
    }
}

/// Queues body bytes that no filter wants to see, without making a buffer of their own.
fn send_slice(r: &mut Request, bytes: &[u8], last: bool) {
    let conn = Rc::clone(r.conn());
    let mut out = conn.out.borrow_mut();
    let chunked = r.flags.chunked;
    if !r.flags.header_only {
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
pub(crate) fn send_read(r: &mut Request, buf: &mut Vec<u8>, from: usize, last: bool) {
    let len = buf.len() - from;
    let small = len < LEAVE_MIN_BYTES || len * LEAVE_MIN_PART < buf.capacity();
    if small || r.flags.header_only {
        return send_slice(r, &buf[from..], last);
    }
    let conn = Rc::clone(r.conn());
    let mut out = conn.out.borrow_mut();
    let before = out.queued();
    if r.flags.chunked {
        out.write(|t| chunked::write_chunk_header(len as u64, t));
    }
    out.push_read(buf, from);
    if r.flags.chunked {
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
