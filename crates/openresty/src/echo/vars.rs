//! `$echo_…`

use std::cell::Cell;
use std::rc::Rc;
use weir_base::bytes::fmt_u64;
use weir_http::module::{VarArg, Variable};
use weir_http::Request;
use weir_runtime::clock;
use weir_wire::http1::request::Version;

/// The piece that the loop is at.
pub(super) struct Item(pub(super) Vec<u8>);

/// Since when time is counted.
pub(super) struct Timer {
    pub(super) begun_ms: u64,
}

/// What a request and its parts have together.
#[derive(Clone)]
pub(super) struct Shared {
    counter: Rc<Cell<u64>>,
    /// The client's.
    method: Rc<[u8]>,
}

pub(super) fn shared(r: &mut Request) -> Shared {
    if let Some(shared) = r.kept::<Shared>() {
        return shared.clone();
    }
    let shared = Shared { counter: Rc::default(), method: r.bytes(r.head.method_span).into() };
    r.keep_state(shared.clone());
    shared
}

pub(super) const VARIABLES: &[Variable] = &[
    Variable::new("echo_it", it),
    Variable::new("echo_timer_elapsed", timer_elapsed),
    Variable::new("echo_request_body", request_body),
    Variable::new("echo_request_method", request_method),
    Variable::new("echo_client_request_method", client_request_method),
    Variable::new("echo_client_request_headers", client_request_headers),
    Variable::new("echo_cacheable_request_uri", request_uri).cached(),
    Variable::new("echo_request_uri", request_uri),
    Variable::new("echo_incr", incr),
    Variable::new("echo_response_status", response_status),
];

fn some(out: &mut Vec<u8>, value: &[u8]) -> bool {
    out.extend_from_slice(value);
    !value.is_empty()
}

fn it(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    r.ctx::<Item>().is_some_and(|item| some(out, &item.0))
}

fn timer_elapsed(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let since = r.ctx::<Timer>().map(|timer| timer.begun_ms);
    let ms = match since {
        Some(since) => clock::mono_ms().saturating_sub(since),
        None => r.elapsed_ms(),
    };
    out.extend_from_slice(format!("{}.{:03}", ms / 1000, ms % 1000).as_bytes());
    true
}

/// Only while all of it is in memory.
fn request_body(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    r.body.complete && r.body.file.is_none() && some(out, &r.body.memory)
}

fn request_method(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, r.method_name())
}

fn client_request_method(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    match r.kept::<Shared>() {
        Some(shared) => some(out, &shared.method),
        None => some(out, r.bytes(r.head.method_span)),
    }
}

/// As they came; HTTP/2 has none.
fn client_request_headers(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    if r.version() > Version::HTTP_11 {
        return false;
    }
    let head = r.head.request_line.start as usize..r.head.head_len;
    r.buf.get(head).is_some_and(|head| some(out, head))
}

fn request_uri(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    some(out, &r.uri)
}

fn incr(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let shared = shared(r);
    shared.counter.set(shared.counter.get() + 1);
    fmt_u64(out, shared.counter.get());
    true
}

fn response_status(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    if r.out.status == 0 {
        return false;
    }
    fmt_u64(out, u64::from(r.out.status));
    true
}
