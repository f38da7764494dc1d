//! `echo_before_body` and `echo_after_body`: lines around the body of any answer.

use super::run::write;
use super::{EchoLoc, Line};
use std::rc::Rc;
use weir_http::module::{FilterResult, Next};
use weir_http::{Buf, Chain, Request};

/// An answer that lines are put around.
struct Surrounded {
    begun: bool,
}

pub(super) fn header(r: &mut Request, next: Next) -> FilterResult {
    r.set_ctx(Surrounded { begun: false });
    r.whole = None;
    r.out.clear_content_length();
    r.out.remove(b"Accept-Ranges");
    r.flags.allow_ranges = false;
    next.header(r)
}

pub(super) fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let Some(state) = r.ctx::<Surrounded>() else { return next.body(r, chain) };
    let first = !std::mem::replace(&mut state.begun, true);
    if r.flags.header_only {
        return next.body(r, chain);
    }
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<EchoLoc>();
    if let Some(lines) = conf.before.as_deref().filter(|_| first) {
        put(r, lines, next)?;
    }
    let Some(lines) = conf.after.as_deref().filter(|_| chain.has_last()) else {
        return next.body(r, chain);
    };
    let mut own = Chain::new();
    for mut buf in chain {
        buf.last = false;
        if !buf.is_empty() || buf.flush {
            own.push(buf);
        }
    }
    if !own.is_empty() {
        next.body(r, own)?;
    }
    put(r, lines, next)?;
    r.take_ctx::<Surrounded>();
    next.body(r, Chain::one(Buf::last()))
}

fn put(r: &mut Request, lines: &[Line], next: Next) -> FilterResult {
    let mut text = Vec::new();
    for line in lines {
        write(r, line, &mut text);
    }
    match text.is_empty() {
        true => Ok(()),
        false => next.body(r, Chain::one(Buf::mem(text))),
    }
}
