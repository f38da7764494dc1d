//! Answers fetched range by range: nginx's `ngx_http_slice_filter_module`.
//!
//! `$slice_range` names the range that is wanted now, for the request to the server and for the
//! cache's key. The first answer gives the header; each further range is a subrequest in the same
//! location, started when the one before it has ended. The range the client asked for is cut out of
//! the whole, which need not begin with the entity's first byte ([`offset`]).
//!
//! Two places in the filter chain: the header is read before all other filters, the next range is
//! asked for behind those that may hold text back.

use crate::slice_args;
use std::cell::RefCell;
use std::rc::Rc;
use weir_core::Session;

use weir_core::logger::LogLevel;
use weir_http::module::{
    Filter, FilterError, FilterResult, HttpModule, Next, Reach, VarArg, Variable,
};
use weir_http::{subrequest, Buf, Chain, Request};
use weir_module::first::size;
use weir_module::{slot, Arity, ConfResult, ConfType, Context, Level, Row, SlotVtable, Slots, Val};
use weir_wire::http1::names::HeaderId;

#[derive(Default)]
struct SliceLoc {
    size: Val<u64>,
}

impl ConfType for SliceLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &SliceLoc) -> ConfResult {
        self.size.merge(&parent.size, || 0);
        Ok(())
    }
}

const ROWS: &[Row] = &[Row::new(
    "slice",
    Context::HSL,
    Arity::NONE_ONE,
    "0",
    "Fetches answers in ranges of this size (0: whole); needs $slice_range in the request.",
    |cf, d| {
        if d.args.is_empty() {
            return slice_args::take_over(cf, d);
        }
        let size = size(d)?;
        cf.get::<SliceLoc>().size.once(d, size)
    },
)
.note("Without a size, in a location, it is Tengine's: files are sent in parts that arguments name (slice_arg_begin).")];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<SliceLoc>()],
    variables: &[Variable::new("slice_range", slice_range)],
    filter: Some(Filter { header: Some(header), body: None, active, reach: Reach::Part }),
    ..HttpModule::EMPTY
};

pub const NEXT: HttpModule = HttpModule {
    filter: Some(Filter { header: None, body: Some(body), active, reach: Reach::Main }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

fn active(slots: &Slots) -> bool {
    *slots.get::<SliceLoc>().size > 0
}

/// How far the slices of an answer are; the main request and its parts share it.
#[derive(Default)]
struct Slices {
    /// Where the next begins, and the whole ends.
    start: u64,
    end: u64,
    range: String,
    etag: Option<Vec<u8>>,
    /// The last that was asked for has come.
    active: bool,
    /// The first is not in the client's range: it told the size of the whole.
    drop_first: bool,
    /// Where the client's range begins.
    first: u64,
    /// Which byte of the entity the answer begins with, and which the slice that came last.
    offset: u64,
    here: u64,
    /// Bytes in front of it that were not even read, of a slice that it begins in.
    skipped: u64,
}

type SlicesRef = Rc<RefCell<Slices>>;

impl Slices {
    fn ask(&mut self, size: u64) {
        let last = self.start.saturating_add(size - 1);
        self.range = format!("bytes={}-{last}", self.start);
        self.active = false;
    }
}

fn slice_range(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    if let Some(slices) = r.ctx::<SlicesRef>() {
        out.extend_from_slice(slices.borrow().range.as_bytes());
        return true;
    }
    let size = *r.loc().conf::<SliceLoc>().size;
    if r.is_part() || r.out.status != 0 || size == 0 {
        return false;
    }
    let first = first_byte(r).unwrap_or(0);
    let mut slices = Slices { start: first / size * size, ..Slices::default() };
    slices.ask(size);
    out.extend_from_slice(slices.range.as_bytes());
    r.set_ctx(SlicesRef::new(RefCell::new(slices)));
    true
}

/// The first byte that the client wants, if it says so plainly.
fn first_byte(r: &Request) -> Option<u64> {
    if r.header(HeaderId::IfRange).is_some() {
        return None;
    }
    let range = r.header(HeaderId::Range)?;
    let (unit, range) = range.split_at_checked(6)?;
    if !unit.eq_ignore_ascii_case(b"bytes=") || range.contains(&b',') {
        return None;
    }
    let (first, _) = number(range.trim_ascii_start())?;
    Some(first)
}

/// A number and what is behind it.
fn number(text: &[u8]) -> Option<(u64, &[u8])> {
    let len = text.iter().take_while(|b| b.is_ascii_digit()).count();
    let (digits, rest) = text.split_at(len);
    let number = weir_base::units::parse_int(digits).filter(|_| len > 0)?;
    Some((number, rest))
}

/// Of a `Content-Range`: the first byte, the one behind the last, and the whole length if known.
fn content_range(value: &[u8]) -> Option<(u64, u64, Option<u64>)> {
    let text = value.strip_prefix(b"bytes ")?.trim_ascii();
    let (start, text) = number(text)?;
    let (last, text) = number(text.trim_ascii_start().strip_prefix(b"-")?.trim_ascii_start())?;
    let text = text.trim_ascii_start().strip_prefix(b"/")?.trim_ascii_start();
    if text == b"*" {
        return Some((start, last.checked_add(1)?, None));
    }
    let (whole, rest) = number(text)?;
    rest.is_empty().then_some((start, last.checked_add(1)?, Some(whole)))
}

fn broken(r: &Request, text: &str) -> FilterResult {
    r.log(LogLevel::Error, text);
    Err(FilterError::Broken)
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let Some(slices) = r.ctx::<SlicesRef>().cloned() else { return next.header(r) };
    if r.out.status != 206 {
        if !r.is_part() {
            r.take_ctx::<SlicesRef>();
            return next.header(r);
        }
        return broken(r, &format!("unexpected status code {} in slice response", r.out.status));
    }
    let etag = r.out.get(b"ETag").map(<[u8]>::to_vec);
    if slices.borrow().etag.is_some() && slices.borrow().etag != etag {
        return broken(r, "etag mismatch in slice response");
    }
    let Some((start, end, whole)) = r.out.get(b"Content-Range").and_then(content_range) else {
        return broken(r, "invalid range in slice response");
    };
    let Some(whole) = whole else {
        return broken(r, "no complete length in slice response");
    };
    let size = *r.loc().conf::<SliceLoc>().size;
    let expected = slices.borrow().start;
    let until = start.saturating_add(size).min(whole);
    if start != expected || end != until {
        let text = format!(
            "unexpected range in slice response: {start}-{end}, expected: {expected}-{until}"
        );
        return broken(r, &text);
    }
    {
        let mut slices = slices.borrow_mut();
        slices.etag = etag.or(slices.etag.take());
        slices.start = end;
        slices.here = start;
        if !r.is_part() {
            slices.end = whole;
            slices.offset = start;
        }
        slices.active = true;
    }
    r.out.status = 200;
    r.out.clear_status_line();
    r.out.content_length = Some(whole);
    r.out.remove(b"Content-Range");
    r.out.remove(b"Accept-Ranges");
    r.flags.allow_ranges = true;
    r.flags.single_range = true;
    next.header(r)?;
    if !r.is_part() && r.out.status == 206 {
        aim(r, &mut slices.borrow_mut(), size);
    }
    Ok(())
}

/// The client gets a range: what is not in it need not be fetched.
fn aim(r: &mut Request, slices: &mut Slices, size: u64) {
    let Some((start, end, _)) = r.out.get(b"Content-Range").and_then(content_range) else {
        return;
    };
    slices.first = start;
    slices.end = end;
    if slices.start.saturating_add(size) <= start {
        slices.start = start / size * size;
        slices.drop_first = true;
        slices.offset = slices.start;
    }
}

/// Which byte of the whole entity the answer's body begins with.
pub fn offset(r: &mut Request) -> u64 {
    r.ctx::<SlicesRef>().map_or(0, |s| s.borrow().offset)
}

/// Whether the body of this answer is not passed on, as the client's range begins behind it.
pub fn drops_first(r: &mut Request) -> bool {
    r.ctx::<SlicesRef>().is_some_and(|s| s.borrow().drop_first)
}

/// What of a slice (a part of the answer) is in the client's range.
pub fn wanted(r: &mut Request, len: u64) -> Option<(u64, u64)> {
    let mut slices = r.ctx::<SlicesRef>()?.borrow_mut();
    let offset = slices.here;
    let from = slices.first.saturating_sub(offset).min(len);
    slices.skipped += from;
    Some((from, slices.end.saturating_sub(offset).clamp(from, len)))
}

/// Bytes that have been left out since this was asked for the last time.
pub fn take_skipped(r: &mut Request) -> u64 {
    r.ctx::<SlicesRef>().map_or(0, |s| std::mem::take(&mut s.borrow_mut().skipped))
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let Some(slices) = r.ctx::<SlicesRef>().cloned() else {
        return next.body(r, chain);
    };
    let last = chain.has_last();
    if !slices.borrow().drop_first {
        let mut own = Chain::new();
        for mut buf in chain {
            buf.last = false;
            own.push(buf);
        }
        next.body(r, own)?;
    }
    match last {
        true => go_on(r, &slices, next),
        false => Ok(()),
    }
}

/// Asks for the next slice, or ends the answer.
fn go_on(r: &mut Request, slices: &SlicesRef, next: Next) -> FilterResult {
    if !slices.borrow().active {
        return broken(r, "missing slice response");
    }
    if slices.borrow().start >= slices.borrow().end {
        r.take_ctx::<SlicesRef>();
        return next.body(r, Chain::one(Buf::last()));
    }
    let mut part = subrequest::again(r).ok_or(FilterError::Broken)?;
    slices.borrow_mut().ask(*r.loc().conf::<SliceLoc>().size);
    part.set_ctx(Rc::clone(slices));
    let slices = Rc::clone(slices);
    let ended = move |r: &mut Request, part: Box<Request>| match part.is_broken_part() {
        true => Err(FilterError::Broken),
        false => go_on(r, &slices, next),
    };
    subrequest::start(r, part, Some(Box::new(ended)));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn content_ranges() {
        for (value, expected) in [
            ("bytes 0-1/2", Some((0, 2, Some(2)))),
            ("bytes  3 - 4 / 10 ", Some((3, 5, Some(10)))),
            ("bytes 0-1/*", Some((0, 2, None))),
            ("bytes", None),
            ("bytes */10", None),
            ("bytes 0-1", None),
            ("bytes 0-1/2x", None),
            ("bytes 0-18446744073709551615/2", None),
            ("items 0-1/2", None),
        ] {
            assert_eq!(content_range(value.as_bytes()), expected, "{value}");
        }
    }
}
