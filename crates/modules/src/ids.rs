//! Ids of requests besides nginx's `$request_id`: `$request_uuid` (a UUID of version 7, RFC 9562: ids sort by the time
//! they were made), and those of W3C's trace context (`$trace_id`, `$span_id`, `$parent_span_id`, `$trace_sampled`,
//! `$traceparent`), which go on with what the client's `traceparent` says.
//!
//! `proxy_set_header traceparent $traceparent;` passes the context on: the trace is the client's, or begins here; the
//! span is this request's own. Nothing of it is made for a request that does not use it, and all of it is made once:
//! the ids of a request belong together. (The names of nginx's OpenTelemetry module begin with `otel_`.)

use weir_base::bytes::push_hex;
use weir_core::random::number;
use weir_http::module::{HttpModule, VarArg, Variable};
use weir_http::Request;
use weir_runtime::clock;
use weir_wire::traceparent::{Context, SAMPLED};

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

/// Of a request.
#[derive(Clone, Copy)]
struct Ids {
    trace: [u8; 16],
    span: [u8; 8],
    /// The client's span, if it has told of one.
    parent: Option<[u8; 8]>,
    flags: u8,
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
        Some(Context { trace, span: parent, flags }) => {
            Ids { trace, span, parent: Some(parent), flags }
        }
        None => {
            let trace = (u128::from(number()) << 64 | u128::from(number())).to_be_bytes();
            Ids { trace, span, parent: None, flags: 0 }
        }
    };
    r.keep_state(ids);
    ids
}

/// What the client says.
fn told(r: &Request) -> Option<Context> {
    Context::of_fields(r.headers())
}

/// What servers are to be told: this request's span in the trace. Flags that nobody knows yet are not passed on.
fn traceparent(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let Ids { trace, span, flags, .. } = ids(r);
    out.extend_from_slice(&Context { trace, span, flags }.text());
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
