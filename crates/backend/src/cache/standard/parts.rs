//! Parts of answers (RFC 9111, sections 3.3 and 3.4; RFC 9110, sections 14.2 and 15.3.7).
//!
//! Which requests are for a part, what they get of what is kept, and what of an answer's part may be kept. A part
//! is asked for as its client asks for it: where parts of the answer are kept already, and where
//! `…_cache_max_range_offset` says that the range begins too late to ask for all. Everything else (the range of an
//! answer of which nothing is kept, or all) is as ever: the whole is asked for, and cut for the client.
//!
//! Limits: one range of a GET without conditions; its answer must say how long the whole is and have a strong
//! validator; 32 parts of an answer that do not touch; one request at a time adds to an answer, others are passed
//! on beside it.

use super::{forwards, head, verdict, Verdict};
use std::sync::Arc;
use weir_base::date::parse_http_time;
use weir_base::units::parse_int;
use weir_cache::{Meta, Resumable, Stored};
use weir_http::Request;
use weir_runtime::clock;
use weir_wire::http1::names::{HeaderId, ResponseHeaderId as Id};
use weir_wire::http1::range::{parse, Wanted};
use weir_wire::http1::request::Method;

/// A date is a strong validator where the answer was made so much later: nobody changed it in that second.
const STRONG_SECS: i64 = 60;

/// A part that a server is asked for.
pub(crate) struct Part {
    /// As the client says it.
    pub(crate) range: Vec<u8>,
    pub(crate) if_range: Vec<u8>,
    /// What is kept already.
    pub(crate) old: Option<Arc<Stored>>,
}

/// What becomes of a request of whose answer parts are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// As if there were nothing.
    Whole,
    /// It is answered with these bytes, up to the second number.
    Serve(u64, u64),
    /// Its server is asked for the part, which is kept.
    Ask,
    /// It is passed on as it is, and the answer is not kept.
    Pass,
}

fn range_of(r: &Request) -> Option<&[u8]> {
    let value = r.header(HeaderId::Range).filter(|_| r.method == Method::Get && !r.is_part())?;
    let (unit, ranges) = value.split_at_checked(6)?;
    unit.eq_ignore_ascii_case(b"bytes=").then_some(ranges)
}

/// Whether it is for one range and nothing else.
fn is_plain(r: &Request, ranges: &[u8]) -> bool {
    let conditions = [
        HeaderId::IfModifiedSince,
        HeaderId::IfUnmodifiedSince,
        HeaderId::IfNoneMatch,
        HeaderId::IfMatch,
    ];
    !ranges.contains(&b',') && conditions.iter().all(|id| r.header(*id).is_none())
}

/// Whether a request for what is not there is for a part that may be kept by itself.
pub(crate) fn is_for_part(r: &Request) -> bool {
    range_of(r).is_some_and(|ranges| is_plain(r, ranges))
}

/// What becomes of a request where these parts are kept.
pub(crate) fn turn(r: &mut Request, stored: &Stored) -> Turn {
    let Some(ranges) = range_of(r) else { return Turn::Whole };
    if !is_plain(r, ranges) {
        forwards(r, "partial");
        return Turn::Pass;
    }
    let wanted = parse(ranges, stored.body_len, Some(1));
    let has_theirs = match r.header(HeaderId::IfRange) {
        None => true,
        Some(theirs) => is_validator_of(&stored.meta, theirs),
    };
    let there = match wanted {
        Wanted::Whole => return Turn::Whole,
        Wanted::Unsatisfiable => None,
        Wanted::Parts(list) => list.first().copied().filter(|(from, to)| {
            has_theirs && stored.parts.as_ref().is_some_and(|parts| parts.hold(*from, *to))
        }),
    };
    if let Some((from, to)) = there {
        if verdict(r, stored, clock::wall_secs()) == Verdict::Use {
            return Turn::Serve(from, to);
        }
    }
    forwards(r, "partial");
    Turn::Ask
}

/// Whether a client's `If-Range` is about what is kept, whose validator is a strong one.
fn is_validator_of(meta: &Meta, theirs: &[u8]) -> bool {
    match theirs.last() {
        Some(b'"') => !meta.etag.is_empty() && meta.etag == theirs,
        // Dates are exact where there is no other.
        _ => {
            meta.etag.is_empty()
                && parse_http_time(theirs).is_some_and(|t| meta.last_modified == Some(t))
        }
    }
}

/// What to ask for.
pub(crate) fn asked(r: &Request, old: Option<Arc<Stored>>) -> Part {
    let text = |id| r.header(id).map(<[u8]>::to_vec).unwrap_or_default();
    Part { range: text(HeaderId::Range), if_range: text(HeaderId::IfRange), old }
}

/// Where an answer's part belongs: first byte, the one behind its last, length of the whole. `None`: it does not
/// say, or may not be kept.
pub(crate) fn place(r: &Request) -> Option<(u64, u64, u64)> {
    let (head, bytes) = (&r.exchange.head, r.exchange.head_bytes());
    let mut all =
        head.headers.iter().filter(|f| f.name.of(bytes).eq_ignore_ascii_case(b"Content-Range"));
    let (from, to, whole) = content_range(all.next()?.value.of(bytes))?;
    let is_said = head.chunked || head.content_length.is_none_or(|n| n == to - from);
    (all.next().is_none() && is_said && is_strong(r)).then_some((from, to, whole))
}

fn content_range(value: &[u8]) -> Option<(u64, u64, u64)> {
    let (unit, rest) = value.split_at_checked(6)?;
    let (range, whole) = weir_base::bytes::split_once(rest.trim_ascii(), b'/')?;
    let (first, last) = weir_base::bytes::split_once(range, b'-')?;
    let number =
        |text: &[u8]| parse_int(text).filter(|n| i64::try_from(*n).is_ok_and(|n| n < i64::MAX));
    let (first, last, whole) = (number(first)?, number(last)?, number(whole)?);
    let is_one = unit.eq_ignore_ascii_case(b"bytes ") && first <= last && last < whole;
    is_one.then_some((first, last + 1, whole))
}

/// Whether the answer's validator says of every byte that it is the same (RFC 9110, section 8.8).
fn is_strong(r: &Request) -> bool {
    let (head, bytes) = (&r.exchange.head, r.exchange.head_bytes());
    if let Some(etag) = head.value(Id::ETag, bytes) {
        let fits = etag.len() <= weir_cache::entry::ETAG_MAX_BYTES;
        return fits && etag.len() >= 2 && etag.starts_with(b"\"") && etag.ends_with(b"\"");
    }
    let date = |id| head.value(id, bytes).and_then(parse_http_time);
    let pair = date(Id::LastModified).zip(date(Id::Date));
    pair.is_some_and(|(changed, made)| made.saturating_sub(changed) >= STRONG_SECS)
}

/// Whether an answer may be kept up to where it is cut off, and gone on with by ranges.
pub(crate) fn resumable(r: &Request) -> Option<Resumable> {
    let (head, bytes) = (&r.exchange.head, r.exchange.head_bytes());
    let body_len = head.content_length.filter(|_| head.status == 200 && !head.chunked)?;
    let gives_ranges = head.value(Id::AcceptRanges, bytes)?.eq_ignore_ascii_case(b"bytes");
    let is_long = body_len > weir_cache::spool::MEMORY_MAX_BYTES as u64;
    (gives_ranges && is_long && is_strong(r)).then_some(Resumable { body_len, pad: head::padded })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_parts_belong() {
        for (text, place) in [
            ("bytes 0-4/10", Some((0, 5, 10))),
            ("Bytes 9-9/10", Some((9, 10, 10))),
            ("bytes 0-9/10", Some((0, 10, 10))),
            ("bytes 0-10/10", None),
            ("bytes 5-4/10", None),
            ("bytes 0-4/*", None),
            ("bytes */10", None),
            ("bytes 0-4", None),
            ("bytes 0-/10", None),
            ("bytes -4/10", None),
            ("octet 0-4/10", None),
            ("bytes 0-4/9223372036854775807", None),
            ("bytes 18446744073709551615-18446744073709551615/18446744073709551616", None),
            ("", None),
            ("bytes", None),
        ] {
            assert_eq!(content_range(text.as_bytes()), place, "{text}");
        }
    }

    #[test]
    fn what_a_client_has() {
        let meta = Meta { etag: b"\"a\"".to_vec(), last_modified: Some(0), ..Meta::default() };
        assert!(is_validator_of(&meta, b"\"a\"") && !is_validator_of(&meta, b"\"b\""));
        assert!(!is_validator_of(&meta, b"W/\"a\""));
        assert!(!is_validator_of(&meta, b"Thu, 01 Jan 1970 00:00:00 GMT"));
        let dated = Meta { etag: Vec::new(), ..meta };
        assert!(is_validator_of(&dated, b"Thu, 01 Jan 1970 00:00:00 GMT"));
        assert!(!is_validator_of(&dated, b"Thu, 01 Jan 1970 00:00:01 GMT"));
        assert!(!is_validator_of(&dated, b"\"\"") && !is_validator_of(&dated, b""));
    }
}
