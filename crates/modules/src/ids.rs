//! Ids of requests besides nginx's `$request_id`: `$request_uuid` (a UUID of version 7, RFC 9562: ids sort by the time
//! they were made), and those of W3C's trace context (`$trace_id`, `$span_id`, `$parent_span_id`, `$trace_sampled`,
//! `$traceparent`), which go on with what the client's `traceparent` says.
//!
//! `proxy_set_header traceparent $traceparent;` passes the context on: the trace is the client's, or begins here; the
//! span is this request's own. Nothing of it is made for a request that does not use it, and all of it is made once:
//! the ids of a request belong together. (The names of nginx's OpenTelemetry module begin with `otel_`.)
//!
//! Ids are keyed hashes of a counter: they cannot be guessed and cost no call of the system's.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use weir_base::bytes::push_hex;
use weir_http::module::{HttpModule, VarArg, Variable};
use weir_http::Request;
use weir_runtime::clock;

pub const MODULE: HttpModule = HttpModule {
    variables: &[
        Variable::new("request_uuid", uuid).cached().weak(),
        Variable::new("trace_id", |r, _, out| hex(out, &ids(r).trace)).cached().weak(),
        Variable::new("span_id", |r, _, out| hex(out, &ids(r).span)).cached().weak(),
        Variable::new("parent_span_id", |r, _, out| {
            ids(r).parent.is_some_and(|parent| hex(out, &parent))
        })
        .weak(),
        Variable::new("trace_sampled", |r, _, out| {
            out.push(b'0' + (ids(r).flags & SAMPLED));
            true
        })
        .weak(),
        Variable::new("traceparent", traceparent).cached().weak(),
    ],
    ..HttpModule::EMPTY
};

const SAMPLED: u8 = 1;

/// Of a request.
#[derive(Clone, Copy)]
struct Ids {
    trace: [u8; 16],
    span: [u8; 8],
    /// The client's span, if it has told of one.
    parent: Option<[u8; 8]>,
    flags: u8,
}

thread_local! {
    /// Keys from the operating system, and a counter.
    static NUMBERS: (RandomState, Cell<u64>) = (RandomState::new(), const { Cell::new(0) });
}

fn number() -> u64 {
    NUMBERS.with(|(keys, counter)| {
        counter.set(counter.get() + 1);
        // W3C: an id of zeros is none.
        keys.hash_one(counter.get()).max(1)
    })
}

fn hex(out: &mut Vec<u8>, bytes: &[u8]) -> bool {
    push_hex(out, bytes);
    true
}

/// Made when first asked for.
fn ids(r: &mut Request) -> Ids {
    if let Some(ids) = r.kept::<Ids>() {
        return *ids;
    }
    let span = number().to_be_bytes();
    let ids = match told(r) {
        Some((trace, parent, flags)) => Ids { trace, span, parent: Some(parent), flags },
        None => {
            let trace = (u128::from(number()) << 64 | u128::from(number())).to_be_bytes();
            Ids { trace, span, parent: None, flags: 0 }
        }
    };
    r.keep_state(ids);
    ids
}

/// What the client says; two fields say nothing.
fn told(r: &Request) -> Option<([u8; 16], [u8; 8], u8)> {
    let mut told = r.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"traceparent"));
    let first = told.next();
    first.filter(|_| told.next().is_none()).and_then(|(_, value)| context(value))
}

/// Trace, span and flags of a `traceparent`: `00-` 32 digits `-` 16 digits `-` 2 digits. Newer versions may have more
/// behind it.
fn context(value: &[u8]) -> Option<([u8; 16], [u8; 8], u8)> {
    let (version, rest) = value.split_at_checked(3)?;
    let [version] = unhex::<1>(version.strip_suffix(b"-")?)?;
    let (trace, rest) = rest.split_at_checked(33)?;
    let trace = unhex::<16>(trace.strip_suffix(b"-")?)?;
    let (span, rest) = rest.split_at_checked(17)?;
    let span = unhex::<8>(span.strip_suffix(b"-")?)?;
    let (flags, rest) = rest.split_at_checked(2)?;
    let [flags] = unhex::<1>(flags)?;
    let is_whole = match version {
        0 => rest.is_empty(),
        0xff => false,
        _ => rest.is_empty() || rest.starts_with(b"-"),
    };
    (is_whole && trace != [0; 16] && span != [0; 8]).then_some((trace, span, flags))
}

/// Small letters only, as W3C has it.
fn unhex<const N: usize>(text: &[u8]) -> Option<[u8; N]> {
    let digit = |b: u8| match b {
        b'0'..=b'9' => Some(b - b'0'),
        b'a'..=b'f' => Some(b - b'a' + 10),
        _ => None,
    };
    let mut bytes = [0; N];
    if text.len() != 2 * N {
        return None;
    }
    for (byte, pair) in bytes.iter_mut().zip(text.chunks_exact(2)) {
        *byte = digit(pair[0])? << 4 | digit(pair[1])?;
    }
    Some(bytes)
}

/// What servers are to be told: this request's span in the trace. Flags that nobody knows yet are not passed on.
fn traceparent(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let ids = ids(r);
    out.extend_from_slice(b"00-");
    push_hex(out, &ids.trace);
    out.push(b'-');
    push_hex(out, &ids.span);
    out.extend_from_slice(b"-0");
    out.push(b'0' + (ids.flags & SAMPLED));
    true
}

/// RFC 9562, 5.7: milliseconds since 1970, then what cannot be guessed.
fn uuid(_: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let (secs, ms) = clock::wall();
    let ms = u64::try_from(secs).unwrap_or(0) * 1000 + u64::from(ms);
    push_uuid(out, ms, number(), number());
    true
}

fn push_uuid(out: &mut Vec<u8>, ms: u64, a: u64, b: u64) {
    let high = ms << 16 | 0x7000 | a & 0x0fff;
    let low = 1 << 63 | b >> 2;
    let bytes = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
    for (n, part) in [&bytes[..4], &bytes[4..6], &bytes[6..8], &bytes[8..10], &bytes[10..]]
        .into_iter()
        .enumerate()
    {
        if n > 0 {
            out.push(b'-');
        }
        push_hex(out, part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn contexts_of_w3c() {
        let trace = "0af7651916cd43dd8448eb211c80319c";
        let good = format!("00-{trace}-b7ad6b7169203331-01");
        let (id, span, flags) = context(good.as_bytes()).unwrap();
        assert_eq!((id[0], id[15], span[0], flags), (0x0a, 0x9c, 0xb7, 1));
        let newer = format!("01-{trace}-b7ad6b7169203331-01-more");
        assert!(context(newer.as_bytes()).is_some());
        for bad in [
            "".to_string(),
            "00".to_string(),
            good.to_uppercase(),
            format!("{good}-more"),
            format!("ff-{trace}-b7ad6b7169203331-01"),
            format!("00-{}-b7ad6b7169203331-01", "0".repeat(32)),
            format!("00-{trace}-0000000000000000-01"),
            format!("00-{trace}-b7ad6b716920333-01"),
            format!("01-{trace}-b7ad6b7169203331-01x"),
            format!("00_{trace}-b7ad6b7169203331-01"),
        ] {
            assert!(context(bad.as_bytes()).is_none(), "{bad}");
        }
        for end in 0..good.len() {
            assert!(context(&good.as_bytes()[..end]).is_none());
        }
    }

    #[test]
    fn uuids_have_their_version_and_sort_by_time() {
        let mut out = Vec::new();
        push_uuid(&mut out, 0x0123_4567_89ab, u64::MAX, u64::MAX);
        assert_eq!(out, b"01234567-89ab-7fff-bfff-ffffffffffff");
        let mut low = Vec::new();
        push_uuid(&mut low, 1, 0, 0);
        assert_eq!(low, b"00000000-0001-7000-8000-000000000000");
        assert!(low < out);
    }
}
