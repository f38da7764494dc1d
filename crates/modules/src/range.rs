//! Byte ranges: nginx's `ngx_http_range_filter_module` (RFC 9110 section 14).

use crate::slice;
use bytes::Bytes;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_base::date::parse_http_time;
use weir_http::buf::Data;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::{Buf, Chain, Request};
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::range::{parse, Wanted};

pub const MODULE: HttpModule = HttpModule {
    filter: Some(Filter {
        header: Some(header),
        body: Some(body),
        active: |_| true,
        reach: Reach::Whole,
    }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

/// The ranges of a response that is partial.
struct Ranges {
    list: Vec<(u64, u64)>,
    /// Separators in front of each range when there are several, and the closing one.
    parts: Vec<Vec<u8>>,
    closing: Vec<u8>,
    /// How much of the whole body has passed.
    at: u64,
}

static BOUNDARY: AtomicU64 = AtomicU64::new(1);

fn header(r: &mut Request, next: Next) -> FilterResult {
    if !r.flags.allow_ranges || r.out.status != 200 || r.out.content_length.is_none() {
        return next.header(r);
    }
    if *r.loc().core.max_ranges == 0 {
        return next.header(r);
    }
    let wanted = match r.header(HeaderId::Range) {
        Some(v) if v.len() >= 7 && v[..6].eq_ignore_ascii_case(b"bytes=") && if_range(r) => v,
        _ => return accept(r, next),
    };
    let size = r.out.content_length.unwrap_or(0);
    let single = r.flags.single_range;
    let max = match *r.loc().core.max_ranges {
        _ if single => Some(1),
        u64::MAX => None,
        max => Some(max),
    };
    match parse(&wanted[6..], size, max) {
        Wanted::Whole => accept(r, next),
        Wanted::Unsatisfiable => unsatisfiable(r, size),
        Wanted::Parts(list) => partial(r, next, list, size),
    }
}

fn accept(r: &mut Request, next: Next) -> FilterResult {
    r.out.set(b"Accept-Ranges", b"bytes");
    next.header(r)
}

/// `If-Range`: the ranges count only for the very entity the client has.
fn if_range(r: &Request) -> bool {
    let Some(v) = r.header(HeaderId::IfRange) else { return true };
    if v.len() >= 2 && v[v.len() - 1] == b'"' {
        return r.out.get(b"ETag").is_some_and(|e| e == v);
    }
    match (parse_http_time(v), r.out.changed()) {
        (Some(t), Some(last)) => t == last,
        _ => false,
    }
}

fn unsatisfiable(r: &mut Request, size: u64) -> FilterResult {
    r.out.set(b"Content-Range", format!("bytes */{size}").as_bytes());
    r.out.clear_content_length();
    Err(FilterError::Status(416))
}

fn partial(r: &mut Request, next: Next, list: Vec<(u64, u64)>, size: u64) -> FilterResult {
    r.out.status = 206;
    r.out.clear_status_line();
    r.whole = None;
    let mut ranges = Ranges { parts: Vec::new(), closing: Vec::new(), list, at: 0 };
    if let [(start, end)] = ranges.list[..] {
        let text = format!("bytes {start}-{}/{size}", end - 1);
        r.out.set(b"Content-Range", text.as_bytes());
        r.out.content_length = Some(end - start);
    } else {
        // Each part has its own; one that a server sent is of no use.
        r.out.remove(b"Content-Range");
        multipart(r, &mut ranges, size);
    }
    r.out.remove(b"Accept-Ranges");
    r.set_ctx(ranges);
    next.header(r)
}

fn multipart(r: &mut Request, ranges: &mut Ranges, size: u64) {
    let boundary = format!("{:020}", BOUNDARY.fetch_add(1, Ordering::Relaxed));
    let kind = r.out.content_type_parts().map(|parts| parts.concat()).unwrap_or_default();
    let mut total = 0;
    for (start, end) in &ranges.list {
        let mut part = format!("\r\n--{boundary}\r\n").into_bytes();
        if !kind.is_empty() {
            part.extend_from_slice(b"Content-Type: ");
            part.extend_from_slice(&kind);
            part.extend_from_slice(b"\r\n");
        }
        let line = format!("Content-Range: bytes {start}-{}/{size}\r\n\r\n", end - 1);
        part.extend_from_slice(line.as_bytes());
        total += part.len() as u64 + end - start;
        ranges.parts.push(part);
    }
    ranges.closing = format!("\r\n--{boundary}--\r\n").into_bytes();
    total += ranges.closing.len() as u64;
    let kind = format!("multipart/byteranges; boundary={boundary}");
    r.out.set_content_type(kind.as_bytes());
    r.out.content_length = Some(total);
}

/// What of a body in a file is to be read, so that nothing is read for nobody. Several ranges are
/// in the order that the client wants them in.
pub fn wanted(r: &mut Request, whole: Buf) -> Chain {
    let len = whole.len();
    if r.is_part() {
        let (from, to) = slice::wanted(r, len).unwrap_or((0, len));
        return Chain::one(cut(whole, from, to));
    }
    if r.out.status != 206 || !r.has_ctx::<Ranges>() {
        return Chain::one(whole);
    }
    if slice::drops_first(r) {
        return Chain::one(cut(whole, 0, 0));
    }
    let offset = slice::offset(r);
    let Some(ranges) = r.ctx::<Ranges>() else { return Chain::one(whole) };
    let at = offset + ranges.at;
    if let [(start, end)] = ranges.list[..] {
        let from = start.saturating_sub(at).min(len);
        ranges.at += from;
        return Chain::one(cut(whole, from, end.saturating_sub(at).clamp(from, len)));
    }
    let out = cut_many(ranges, &Chain::one(whole), at, len, true);
    r.take_ctx::<Ranges>();
    out
}

/// A part of a buffer, with its flags.
fn cut(whole: Buf, from: u64, to: u64) -> Buf {
    let data = sliced(&whole.data, from, to - from).unwrap_or(Data::None);
    Buf { data, ..whole }
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    if r.out.status != 206 || !r.has_ctx::<Ranges>() {
        return next.body(r, chain);
    }
    let last = chain.has_last();
    let flush = chain.iter().any(|b| b.flush);
    let offset = slice::offset(r);
    let skipped = if r.flags.single_range { slice::take_skipped(r) } else { 0 };
    let Some(ranges) = r.ctx::<Ranges>() else { return next.body(r, chain) };
    ranges.at += skipped;
    let start = offset + ranges.at;
    let length = chain.len();
    ranges.at += length;
    let out = match ranges.list.len() {
        1 => cut_one(&chain, start, ranges.list[0], last),
        _ => cut_many(ranges, &chain, start, length, last),
    };
    let mut out = out;
    if flush {
        out.push(Buf::flush());
    }
    next.body(r, out)
}

/// The part of a chain (which begins at `start` of the body) that lies in the range.
fn cut_one(chain: &Chain, start: u64, range: (u64, u64), last: bool) -> Chain {
    let mut out = Chain::new();
    cut_into(chain, start, range, &mut out);
    if last {
        out.push(Buf::last());
    }
    out
}

fn cut_into(chain: &Chain, start: u64, range: (u64, u64), out: &mut Chain) {
    let mut at = start;
    for b in chain.iter() {
        let len = b.len();
        let from = range.0.max(at);
        let to = range.1.min(at + len);
        if from < to {
            if let Some(data) = sliced(&b.data, from - at, to - from) {
                out.push(Buf { data, last: false, flush: false });
            }
        }
        at += len;
    }
}

fn sliced(data: &Data, from: u64, len: u64) -> Option<Data> {
    match data {
        Data::None => None,
        Data::Mem(b) => Some(Data::Mem(b.slice(from as usize..(from + len) as usize))),
        Data::File { file, offset, .. } => {
            Some(Data::File { file: Rc::clone(file), offset: offset + from, len })
        }
    }
}

/// Several ranges need the whole body in one chain, as nginx does; in pieces, the parts are cut as
/// they pass, which is right for ranges in ascending order.
fn cut_many(ranges: &mut Ranges, chain: &Chain, start: u64, length: u64, last: bool) -> Chain {
    let mut out = Chain::new();
    for (range, part) in ranges.list.iter().zip(&mut ranges.parts) {
        let begins = range.0 >= start && range.0 < start + length;
        if begins && !part.is_empty() {
            out.push(Buf::mem(Bytes::from(std::mem::take(part))));
        }
        cut_into(chain, start, *range, &mut out);
    }
    if last {
        out.push(Buf::mem(Bytes::from(std::mem::take(&mut ranges.closing))));
        out.push(Buf::last());
    }
    out
}
