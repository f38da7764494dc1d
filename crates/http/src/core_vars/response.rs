//! What is sent back.

use super::fields;
use crate::flow::VarArg;
use crate::request::Request;
use weir_base::bytes::fmt_u64;
use weir_base::date;
use weir_core::common::{number, some};
use weir_wire::http1::request::Version;

/// The status that logs and `$status` show: what an error page hides counts.
pub fn shown_status(r: &Request) -> u16 {
    match (r.err_status, r.out.status) {
        (0, 0) if r.version() == Version::HTTP_09 => 9,
        (0, status) => status,
        (status, _) => status,
    }
}

pub(super) fn status(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let status = shown_status(r);
    let digit = |n: u16| b'0' + (n % 10) as u8;
    out.extend_from_slice(&[digit(status / 100), digit(status / 10), digit(status)]);
    true
}

pub(super) fn bytes_sent(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    number(out, r.bytes_sent())
}

pub(super) fn body_bytes_sent(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    number(out, r.body_bytes_sent())
}

pub(crate) fn request_completion(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, if r.flags.complete { b"OK" } else { b"" })
}

pub(super) fn content_type(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let Some(parts) = r.out.content_type_parts() else { return false };
    let used = if r.flags.header_sent { 3 } else { 1 };
    parts[..used].iter().for_each(|part| out.extend_from_slice(part));
    true
}

pub(super) fn content_length(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    if let Some(value) = r.out.get(b"Content-Length") {
        return some(out, value);
    }
    match r.out.content_length {
        Some(n) => number(out, n),
        None => false,
    }
}

pub(super) fn last_modified(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    if let Some(value) = r.out.get(b"Last-Modified") {
        return some(out, value);
    }
    match r.out.last_modified {
        Some(secs) => some(out, &date::http_time(secs)),
        None => false,
    }
}

pub(super) fn connection(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let value: &[u8] = match (r.out.status, r.flags.keepalive) {
        (101, _) => b"upgrade",
        (_, true) => b"keep-alive",
        (_, false) => b"close",
    };
    some(out, value)
}

pub(crate) fn keep_alive(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    match *r.loc().core.keepalive_header {
        Some(secs) if r.flags.keepalive => {
            out.extend_from_slice(b"timeout=");
            fmt_u64(out, secs);
            true
        }
        _ => false,
    }
}

pub(crate) fn transfer_encoding(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    r.flags.chunked && some(out, b"chunked")
}

pub(crate) fn any_field(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    fields::join(r.out.iter(), &arg.name, out)
}

pub(crate) fn any_trailer(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let trailers = r.out.trailers.iter().map(|(n, v)| (n.as_slice(), v.as_slice()));
    fields::join(trailers, &arg.name, out)
}
