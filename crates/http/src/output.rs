//! The end of the filter chains for HTTP/1: the header as text, the body as it is or chunked,
//! both into the connection's output queue.

use crate::buf::{Buf, Chain, Data};
use crate::module::FilterResult;
use crate::names;
use crate::request::Request;
use weir_base::bytes::fmt_u64;
use weir_base::date;
use weir_wire::http1::chunked;
use weir_wire::http1::request::{Method, Version};

/// Sent in `Server`, `$nginx_version` and built-in pages.
pub const SERVER_VERSION: &str = concat!("weir/", env!("CARGO_PKG_VERSION"));
pub const SERVER_NAME: &str = "weir";

/// Serialises the response header into the output queue.
pub fn send_header(r: &mut Request) -> FilterResult {
    if r.header_sent {
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
    if r.conn().worker.closing.get() {
        r.keepalive = false;
    }
    adjust(r);
    let conn = std::rc::Rc::clone(r.conn());
    if r.discard_body && r.body.awaits_continue() {
        // The body is thrown away, but the client may only send it when told to.
        r.body.expect_continue = false;
        conn.out.borrow_mut().write(|t| t.extend_from_slice(b"HTTP/1.1 100 Continue\r\n\r\n"));
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
        r.out.clear_content_type();
        r.out.last_modified = None;
    }
    let bodiless = matches!(status, 204 | 304) || status < 200;
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

fn write_header(r: &Request, text: &mut Vec<u8>) {
    let out = &r.out;
    let core = &r.loc().core;
    text.extend_from_slice(b"HTTP/1.1 ");
    write_status(r, text);
    if !out.has_server {
        crate::special::write_server_header(*core.server_tokens, text);
    }
    if !out.has_date {
        text.extend_from_slice(b"Date: ");
        text.extend_from_slice(&r.conn().worker.http_date());
        text.extend_from_slice(b"\r\n");
    }
    if let Some(kind) = out.content_type() {
        text.extend_from_slice(b"Content-Type: ");
        text.extend_from_slice(kind);
        if let Some(charset) = out.charset() {
            text.extend_from_slice(b"; charset=");
            text.extend_from_slice(charset);
        }
        text.extend_from_slice(b"\r\n");
    }
    if let Some(n) = out.content_length {
        text.extend_from_slice(b"Content-Length: ");
        fmt_u64(text, n);
        text.extend_from_slice(b"\r\n");
    }
    if let Some(secs) = out.last_modified.filter(|_| !out.has_last_modified) {
        text.extend_from_slice(b"Last-Modified: ");
        text.extend_from_slice(&date::http_time(secs));
        text.extend_from_slice(b"\r\n");
    }
    if r.chunked {
        text.extend_from_slice(b"Transfer-Encoding: chunked\r\n");
    }
    write_connection(r, text);
    if r.gzip_vary && *core.gzip_vary {
        text.extend_from_slice(b"Vary: Accept-Encoding\r\n");
    }
    for (name, value) in out.iter() {
        text.extend_from_slice(name);
        text.extend_from_slice(b": ");
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    }
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
    r.complete |= last;
    r.sent += out.queued() - before;
    Ok(())
}

/// Queues body bytes that no filter wants to see, without making a buffer of their own.
pub fn send_slice(r: &mut Request, bytes: &[u8], last: bool) {
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
    r.complete |= last;
}

fn push(out: &mut crate::conn::OutQueue, buf: Buf) {
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
        text.extend_from_slice(value);
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
}
