//! Answers to subrequests before and after a body: nginx's `ngx_http_addition_filter_module`.
//!
//! Two places in the filter chain: what comes before is started ahead of all filters that may start
//! parts of their own (SSI), what comes after behind all that may hold text back, so that the order
//! is right whatever they do.

use std::rc::Rc;
use std::sync::Arc;

use weir_http::module::{Filter, FilterError, FilterResult, HttpModule, Next, Reach};
use weir_http::subrequest::{self, Output};
use weir_http::{Buf, Chain, Request};
use weir_module::first::bytes;
use weir_module::{
    merge_values, set, slot, Arity, Cf, ConfResult, ConfType, Context, Level, Row, SlotVtable,
    Slots, Val,
};

use crate::mime::MimeTypes;
use crate::ssi;

#[derive(Default)]
struct AdditionLoc {
    before: Val<Vec<u8>>,
    after: Val<Vec<u8>>,
    types: Val<Arc<MimeTypes>>,
}

impl ConfType for AdditionLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &AdditionLoc) -> ConfResult {
        merge_values!(self, parent;
            before = Vec::new(),
            after = Vec::new(),
            types = MimeTypes::of(&["text/html"]),
        );
        Ok(())
    }
}

const ROWS: &[Row] = &[
    Row::new(
        "add_before_body",
        Context::HSL,
        Arity::ONE,
        "",
        "The URI whose answer is put before the body of a response.",
        set!(Cf::get::<AdditionLoc>, before, bytes),
    ),
    Row::new(
        "add_after_body",
        Context::HSL,
        Arity::ONE,
        "",
        "The URI whose answer is put after the body of a response.",
        set!(Cf::get::<AdditionLoc>, after, bytes),
    ),
    Row::new(
        "addition_types",
        Context::HSL,
        Arity::ONE_MORE,
        "text/html",
        "MIME types of the responses that are added to, besides text/html.",
        |cf, d| {
            MimeTypes::read(cf, d, |cf| &mut cf.get::<AdditionLoc>().types);
            Ok(())
        },
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<AdditionLoc>()],
    filter: Some(Filter { header: Some(header), body: Some(before), active, reach: Reach::Main }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

pub const AFTER: HttpModule = HttpModule {
    filter: Some(Filter { header: None, body: Some(after), active, reach: Reach::Main }),
    body_on_demand: true,
    ..HttpModule::EMPTY
};

fn active(slots: &Slots) -> bool {
    let conf = slots.get::<AdditionLoc>();
    !conf.before.is_empty() || !conf.after.is_empty()
}

/// A response that is added to.
struct Added {
    begun: bool,
}

fn header(r: &mut Request, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    if r.out.status != 200 || !loc.conf::<AdditionLoc>().types.match_response(r) {
        return next.header(r);
    }
    r.set_ctx(Added { begun: false });
    r.whole = None;
    r.out.clear_content_length();
    r.out.remove(b"Accept-Ranges");
    r.flags.allow_ranges = false;
    r.out.weaken_etag();
    next.header(r)
}

fn start(r: &mut Request, uri: &[u8]) -> FilterResult {
    let part = subrequest::new(r, uri, b"", Output::Place);
    let mut part = part.ok_or(FilterError::Broken)?;
    ssi::share_page(r, &mut part);
    subrequest::start(r, part, None);
    Ok(())
}

fn before(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let first = r.ctx::<Added>().is_some_and(|a| !std::mem::replace(&mut a.begun, true));
    if first && !r.flags.header_only {
        let loc = Rc::clone(r.loc());
        let uri = &loc.conf::<AdditionLoc>().before;
        if !uri.is_empty() {
            start(r, uri)?;
        }
    }
    next.body(r, chain)
}

fn after(r: &mut Request, chain: Chain, next: Next) -> FilterResult {
    let loc = Rc::clone(r.loc());
    let uri = &loc.conf::<AdditionLoc>().after;
    if !chain.has_last() || uri.is_empty() || r.flags.header_only || !r.has_ctx::<Added>() {
        return next.body(r, chain);
    }
    let mut own = Chain::new();
    for mut buf in chain {
        buf.last = false;
        own.push(buf);
    }
    next.body(r, own)?;
    start(r, uri)?;
    next.body(r, Chain::one(Buf::last()))
}
