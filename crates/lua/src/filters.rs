//! `header_filter_by_lua` and `body_filter_by_lua`.

use crate::conf::LuaLoc;
use crate::run::{context, Outcome, Piece, Run};
use crate::site::Who;
use crate::vm::Vm;
use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::{Buf, Chain, Request};
use weir_module::Slots;
use weir_modules::util::text_of;

fn is_active(slots: &Slots) -> bool {
    let conf = slots.get::<LuaLoc>();
    conf.header_filter.is_some() || conf.body_filter.is_some()
}

/// The filters' place is behind those that the answer meets first.
pub const FILTERS: HttpModule = HttpModule {
    filter: Some(Filter {
        header: Some(header),
        body: Some(body),
        active: is_active,
        reach: Reach::Every,
    }),
    ..HttpModule::EMPTY
};

/// The body filter has seen the end.
struct Over;

/// The header filter's code wants this status.
struct Exited(u16);

/// The status that a filter's code wants instead of what is there.
pub(crate) fn wanted_status(r: &Request) -> Option<u16> {
    r.ctx_ref::<Exited>().map(|exited| exited.0).filter(|_| !r.flags.header_sent)
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = r.loc();
    let conf = loc.conf::<LuaLoc>();
    let (code, has_body) = (*conf.header_filter, conf.body_filter.is_some());
    if has_body {
        r.flags.filter_needs_memory = true;
    }
    if let Some(code) = code {
        let vm = Vm::of_request(r);
        let mut run = Run::new(&vm, context::HEADER);
        run.begin(Who::Request(r), code);
        match run.outcome {
            Outcome::Failed => return Err(FilterError::Broken),
            Outcome::Exit(code @ 200..=999) if !r.has_ctx::<Exited>() => {
                // The header of that answer comes here, too.
                r.set_ctx(Exited(code as u16));
                return Err(FilterError::Status(code as u16));
            }
            Outcome::Exit(-1) => return Err(FilterError::Broken),
            _ => {}
        }
    }
    next.header(r)
}

fn body(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let Some(code) = *r.loc().conf::<LuaLoc>().body_filter else { return next.body(r, chain) };
    if chain.is_empty() {
        return next.body(r, chain);
    }
    if r.has_ctx::<Over>() {
        // The code has ended the body before this.
        return match chain.iter().any(|b| b.flush) {
            true => next.body(r, Chain::one(Buf::flush())),
            false => Ok(()),
        };
    }
    let (mut text, mut last, mut flush) = (Vec::new(), false, false);
    for buf in chain.iter() {
        text.extend_from_slice(&text_of(&buf.data).map_err(|_| FilterError::Broken)?);
        last |= buf.last;
        flush |= buf.flush;
    }
    let vm = Vm::of_request(r);
    let mut run = Run::new(&vm, context::BODY);
    run.piece = Piece { text, last, is_set: false };
    run.begin(Who::Request(r), code);
    match run.outcome {
        Outcome::Failed => return Err(FilterError::Broken),
        Outcome::Exit(code) if code != 0 => return Err(FilterError::Broken),
        // `return ngx.ERROR`
        _ if run.returned == -1.0 || run.returned >= 300.0 => return Err(FilterError::Broken),
        _ => {}
    }
    if !run.piece.is_set {
        return next.body(r, chain);
    }
    r.whole = None;
    let piece = std::mem::take(&mut run.piece);
    if piece.last && !last {
        r.set_ctx(Over);
    }
    let mut buf = match piece.text.is_empty() {
        true => Buf::flush(),
        false => Buf::mem(piece.text),
    };
    (buf.last, buf.flush) = (piece.last, flush);
    next.body(r, Chain::one(buf))
}
