//! `internal_redirect`: on to another location, once limits and access have been judged: what `rewrite` and
//! `return` cannot do, for they come before. In nginx it is a module of the commercial version
//! (`ngx_http_internal_redirect_module`).
//!
//! Invariant: a request that is where it would be sent to stays there, so that the directive may stand in a server.

use std::rc::Rc;
use std::sync::Arc;
use weir_core::Session;
use weir_http::module::{Flow, HttpModule, PhaseHandler};
use weir_http::redirect::{internal_redirect, named_location};
use weir_http::vars::template;
use weir_http::{Phase, Request};
use weir_module::{
    merge_values, slot, Arity, ConfResult, ConfType, Context, Level, Row, SlotVtable, Slots, Val,
};
use weir_script::template::Template;

#[derive(Default)]
struct RedirectLoc {
    uri: Val<Option<Arc<Template>>>,
}

impl ConfType for RedirectLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &RedirectLoc) -> ConfResult {
        merge_values!(self, parent; uri = None);
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[Row::new(
        "internal_redirect",
        Context::SERVER.or(Context::LOCATION),
        Arity::ONE,
        "",
        "Goes on with another URI, or in a named location, once limits and access have been judged.",
        |cf, d| {
            let uri = template(cf, d, 0)?;
            cf.get::<RedirectLoc>().uri.once(d, Some(Arc::new(uri)))
        },
    )
    .note(
        "In nginx it is part of the commercial version. An empty URI means no redirect, and so does the one that the \
         request has.",
    )],
    slots: &[SlotVtable::of::<RedirectLoc>()],
    phases: &[PhaseHandler { phase: Phase::Precontent, handler, active }],
    ..HttpModule::EMPTY
};

fn active(slots: &Slots) -> bool {
    slots.get::<RedirectLoc>().uri.is_some()
}

fn handler(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    let Some(uri) = loc.conf::<RedirectLoc>().uri.as_ref() else { return Flow::Declined };
    let target = r.eval(uri);
    if target.first() == Some(&b'@') {
        let mut named = r.server().named.iter();
        return match named.any(|(name, id)| *id == loc.id && *name == target) {
            true => Flow::Declined,
            false => named_location(r, &target),
        };
    }
    let mut parts = target.splitn(2, |b| *b == b'?');
    let path = parts.next().unwrap_or_default();
    if path.is_empty() || path == r.uri {
        return Flow::Declined;
    }
    internal_redirect(r, path, parts.next().unwrap_or_default())
}
