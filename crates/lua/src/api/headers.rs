//! Fields of the request and of the answer.

use crate::conf::LuaLoc;
use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow};
use crate::run::context::{BODY, LOG, REQUEST};
use std::borrow::Cow;
use weir_base::bytes::ByteSet;
use weir_base::date::{http_time, parse_http_time};
use weir_base::escape::{escape_uri, EscapeKind};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::Request;

pub(super) const OPS: &[OpRow] = &[
    OpRow::request("get_header_out", REQUEST, get_out),
    OpRow::request("set_header_out", REQUEST, set_out),
    OpRow::request("headers_out", REQUEST, all_out),
    OpRow::request("headers_in", REQUEST, all_in),
    OpRow::request("set_header_in", REQUEST & !(LOG | BODY), set_in),
    OpRow::request("raw_header", REQUEST, raw_header),
    OpRow::request("bypass_if_checks", REQUEST, |r, _, _| {
        r.flags.ignore_conditions = true;
        code::TRUE
    }),
];

/// Fields whose further values take the place of the one before.
const SINGLE: &[&[u8]] = &[
    b"Server",
    b"Date",
    b"Location",
    b"Refresh",
    b"Last-Modified",
    b"Content-Range",
    b"Accept-Ranges",
    b"Expires",
    b"ETag",
    b"Content-Encoding",
    b"WWW-Authenticate",
];

fn is(name: &[u8], other: &[u8]) -> bool {
    name.eq_ignore_ascii_case(other)
}

/// `content_type` for `Content-Type`, where the location says so.
fn hyphened(r: &Request, name: &[u8]) -> Vec<u8> {
    let mut name = name.to_vec();
    if *r.loc().conf::<LuaLoc>().transform_underscores {
        name.iter_mut().filter(|b| **b == b'_').for_each(|b| *b = b'-');
    }
    name
}

fn get_out(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let name = hyphened(r, args.a);
    if is(&name, b"Content-Type") {
        let Some(parts) = r.out.content_type_parts() else { return code::NIL };
        let text = parts.concat();
        return answer.text(&text);
    }
    if is(&name, b"Content-Length") {
        return match r.out.content_length {
            Some(length) => answer.text(length.to_string().as_bytes()),
            None => code::NIL,
        };
    }
    let values: Vec<&[u8]> = r.out.iter().filter(|(n, _)| is(n, &name)).map(|(_, v)| v).collect();
    match values.as_slice() {
        [] if is(&name, b"Last-Modified") => match r.out.last_modified {
            Some(secs) => answer.text(&http_time(secs)),
            None => code::NIL,
        },
        [] => code::NIL,
        [one] => answer.text(one),
        several => {
            let mut list = answer.list();
            several.iter().for_each(|v| {
                list.text(v);
            });
            code::LIST
        }
    }
}

/// What a name may have (RFC 9110, 5.6.2).
const NAME: ByteSet = ByteSet::ALNUM.with(b"!#$%&'*+-.^_`|~");

/// What would end a name, or the line, is escaped.
fn safe_name(name: &[u8]) -> Cow<'_, [u8]> {
    if name.iter().all(|b| NAME.contains(*b)) {
        return Cow::Borrowed(name);
    }
    let mut out = Vec::with_capacity(name.len() + 8);
    for byte in name {
        match NAME.contains(*byte) {
            true => out.push(*byte),
            false => out.extend_from_slice(format!("%{byte:02X}").as_bytes()),
        }
    }
    Cow::Owned(out)
}

/// What would end the line is escaped.
fn safe_value(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    escape_uri(&mut out, text, EscapeKind::Controls);
    out
}

/// `args.i`: 0 takes it away, 1 sets it, 2 adds a value.
fn set_out(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if super::output::has_begun(r) && r.flags.header_sent {
        r.log(
            LogLevel::Error,
            "attempt to set ngx.header.HEADER after sending out response headers",
        );
        return code::TRUE;
    }
    let name = hyphened(r, args.a);
    let name = safe_name(&name);
    if name.is_empty() {
        return code::TRUE;
    }
    let value = safe_value(args.b);
    let is_gone = args.i == 0;
    if is(&name, b"Content-Type") {
        match is_gone || value.is_empty() {
            true => {
                r.out.clear_content_type();
                r.set_ctx(super::output::NoType);
            }
            false => r.out.set_content_type_with(&value),
        }
        return code::TRUE;
    }
    if is(&name, b"Content-Length") {
        let length = weir_base::units::parse_int(&value);
        if !is_gone && length.is_none() {
            let shown = String::from_utf8_lossy(args.a);
            return answer.raise(format!("failed to set header {shown} (error: -1)"));
        }
        r.out.clear_content_length();
        r.out.content_length = length.filter(|_| !is_gone);
        return code::TRUE;
    }
    if is(&name, b"Last-Modified") {
        r.out.clear_last_modified();
        if !is_gone {
            r.out.has_last_modified = true;
            r.out.last_modified = parse_http_time(&value);
            r.out.add(&name, &value);
        }
        return code::TRUE;
    }
    // What is taken away is not sent by itself either.
    r.out.has_server |= is(&name, b"Server");
    r.out.has_date |= is(&name, b"Date");
    if is(&name, b"Location") {
        // It is sent as it stands, also where it is a path.
        r.flags.own_location = false;
    } else if is(&name, b"Accept-Ranges") {
        r.flags.allow_ranges &= !is_gone;
    }
    match args.i {
        0 => r.out.remove(&name),
        2 if !SINGLE.iter().any(|n| is(&name, n)) => r.out.add(&name, &value),
        _ if value.is_empty() && SINGLE.iter().any(|n| is(&name, n)) => r.out.remove(&name),
        _ => r.out.put(&name, &value),
    }
    code::TRUE
}

fn all_out(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let max = if args.i <= 0 { usize::MAX } else { args.i as usize };
    let keep_case = !args.a.is_empty();
    let mut all: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
    if let Some(parts) = r.out.content_type_parts() {
        all.push((b"Content-Type".to_vec(), parts.concat()));
    }
    if let Some(length) = r.out.content_length {
        all.push((b"Content-Length".to_vec(), length.to_string().into_bytes()));
    }
    let connection: &[u8] = match r.flags.keepalive {
        true => b"keep-alive",
        false => b"close",
    };
    all.push((b"Connection".to_vec(), connection.to_vec()));
    if r.out.content_length.is_none() && r.flags.header_sent && !r.flags.header_only {
        all.push((b"Transfer-Encoding".to_vec(), b"chunked".to_vec()));
    }
    all.extend(r.out.iter().map(|(n, v)| (n.to_vec(), v.to_vec())));
    write_pairs(all.iter().map(|(n, v)| (n.as_slice(), v.as_slice())), max, keep_case, answer)
}

fn write_pairs<'a>(
    pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    max: usize,
    keep_case: bool,
    answer: &mut Answer,
) -> i32 {
    let mut truncated = false;
    let mut list = answer.list();
    for (at, (name, value)) in pairs.enumerate() {
        if at >= max {
            truncated = true;
            break;
        }
        match keep_case {
            true => list.text(name),
            false => list.text(&name.to_ascii_lowercase()),
        };
        list.text(value);
    }
    if truncated {
        code::CUT_TABLE
    } else {
        code::TABLE
    }
}

fn all_in(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let max = if args.i <= 0 { usize::MAX } else { args.i as usize };
    write_pairs(r.headers(), max, !args.a.is_empty(), answer)
}

fn set_in(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let name = safe_name(args.a);
    if name.is_empty() {
        return code::TRUE;
    }
    let value = safe_value(args.b);
    match args.i {
        0 => r.remove_fields_in(|n| is(n, &name)),
        _ if is(&name, b"Host") && value.is_empty() => r.remove_fields_in(|n| is(n, &name)),
        2 if !is(&name, b"Host") => r.append_field_in(&name, &value),
        _ => {
            if !r.set_field_in(&name, &value, false) {
                return answer.raise("failed to set header");
            }
        }
    }
    code::TRUE
}

fn raw_header(r: &mut Request, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if let Some(head) = r.raw_head() {
        let line = head.iter().position(|byte| *byte == b'\n').map_or(head.len(), |at| at + 1);
        answer.text.extend_from_slice(&head[if args.i == 0 { 0 } else { line }..]);
        return code::TEXT;
    }
    if args.i == 0 {
        answer.text.extend_from_slice(r.request_line());
        answer.text.extend_from_slice(b"\r\n");
    }
    for (name, value) in r.headers() {
        answer.text.extend_from_slice(name);
        answer.text.extend_from_slice(b": ");
        answer.text.extend_from_slice(value);
        answer.text.extend_from_slice(b"\r\n");
    }
    answer.text.extend_from_slice(b"\r\n");
    code::TEXT
}
