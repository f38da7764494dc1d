//! The trace that a request belongs to, and its span: made when first asked for, or when the request enters its location.

use super::conf::{OtelLoc, EXTRACT, INJECT};
use std::cell::Cell;
use std::rc::Rc;
use weir_base::bytes::push_hex;
use weir_core::eval::with_value;
use weir_core::{random, Session as _};
use weir_http::detached::ForCopies;
use weir_http::marks::Mark;
use weir_http::module::Flow;
use weir_http::Request;
use weir_shipping::otlp::traces::STATE_MAX_BYTES;
use weir_wire::traceparent::{self, Context};

/// Of a request, its parts and copies.
pub struct Traced {
    pub trace: [u8; 16],
    pub span: [u8; 8],
    /// The client's span, if its word is taken.
    pub parent: Option<[u8; 8]>,
    pub parent_is_sampled: bool,
    /// The client's `tracestate`, as far as it goes with that.
    pub state: Box<[u8]>,
    pub is_sampled: Cell<bool>,
}

/// Somewhere a request was to be sampled.
pub static SAMPLED: Mark = Mark::new();

/// If there is one.
pub fn found(r: &mut Request) -> Option<Rc<Traced>> {
    Rc::clone(&r.kept::<ForCopies>()?.0).downcast().ok()
}

/// A trace, and the request's span where it has one.
pub type Ids = ([u8; 16], Option<[u8; 8]>);

/// The trace that the request is known by, here or, by the client's word, to the servers behind.
pub fn trace_of(r: &mut Request) -> Option<Ids> {
    match found(r) {
        Some(traced) => Some((traced.trace, Some(traced.span))),
        None => Context::of_fields(r.headers()).map(|told| (told.trace, None)),
    }
}

/// Made by where the request is now, unless it is there.
pub fn of(r: &mut Request) -> Rc<Traced> {
    if let Some(traced) = found(r) {
        return traced;
    }
    let is_told = r.with_conf::<OtelLoc, _>(|_, conf| *conf.context & EXTRACT != 0);
    let told = Context::of_fields(r.headers()).filter(|_| is_told);
    let traced = Rc::new(Traced {
        trace: told.map_or_else(random::long_id, |told| told.trace),
        span: random::id(),
        parent: told.map(|told| told.span),
        parent_is_sampled: told.is_some_and(|told| told.is_sampled()),
        state: told.map(|_| state(r)).unwrap_or_default(),
        is_sampled: Cell::new(false),
    });
    r.keep_state(ForCopies(Rc::clone(&traced) as _));
    traced
}

pub fn hex(out: &mut Vec<u8>, id: &[u8]) -> bool {
    push_hex(out, id);
    true
}

fn is_state(name: &[u8]) -> bool {
    name.eq_ignore_ascii_case(b"tracestate")
}

/// Several fields are one list (W3C, 3.3.1).
fn state(r: &Request) -> Box<[u8]> {
    let mut state = Vec::new();
    for (_, value) in r.headers().filter(|(name, value)| is_state(name) && !value.is_empty()) {
        if state.len() + value.len() >= STATE_MAX_BYTES {
            return Box::default();
        }
        if !state.is_empty() {
            state.push(b',');
        }
        state.extend_from_slice(value);
    }
    state.into()
}

/// A request enters its location.
pub fn begins(r: &mut Request) -> Flow {
    // What was decided for it stays when it is redirected; a part is of its request.
    if r.flags.internal || r.is_part() {
        return Flow::Declined;
    }
    r.with_conf::<OtelLoc, _>(|r, conf| {
        let trace = conf.trace.as_option().and_then(Option::as_ref);
        let is_sampled = trace.is_some_and(|trace| {
            with_value(r, &trace.0, |_, value| value == b"on" || value == b"1")
        });
        if *conf.context == 0 && !is_sampled {
            return;
        }
        let traced = of(r);
        traced.is_sampled.set(is_sampled);
        if is_sampled {
            r.mark(&SAMPLED);
        }
        if *conf.context & INJECT != 0 {
            inject(r, &traced);
        }
    });
    Flow::Declined
}

/// Puts the context into the request, from which it goes to servers.
fn inject(r: &mut Request, traced: &Traced) {
    let flags = if traced.is_sampled.get() { traceparent::SAMPLED } else { 0 };
    let context = Context { trace: traced.trace, span: traced.span, flags };
    r.set_field_in(b"traceparent", &context.text(), false);
    // The client's goes on as it came, if it is of this trace.
    if traced.parent.is_none() && r.headers().any(|(name, _)| is_state(name)) {
        r.remove_fields_in(is_state);
    }
}
