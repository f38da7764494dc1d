//! Copies of requests whose answers are thrown away: nginx's `ngx_http_mirror_module`.
//!
//! Difference from nginx: a slow answer to a copy does not hold the client's connection back.

use std::rc::Rc;
use std::sync::Arc;
use weir_core::LocalFuture;
use weir_http::body::{self, BodyError};
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::{subrequest, Request};
use weir_module::first::flag;
use weir_module::{
    set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Slots, Val,
};

#[derive(Default)]
struct MirrorLoc {
    uris: Val<Option<Arc<Vec<Vec<u8>>>>>,
    request_body: Val<bool>,
}

impl ConfType for MirrorLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &MirrorLoc) -> ConfResult {
        self.uris.merge(&parent.uris, || None);
        self.request_body.merge(&parent.request_body, || true);
        Ok(())
    }
}

const ROWS: &[Row] = &[
    Row::new(
        "mirror",
        Context::HSL,
        Arity::ONE,
        "off",
        "Where a copy of each request goes; may be given more than once.",
        set_uri,
    ),
    Row::new(
        "mirror_request_body",
        Context::HSL,
        Arity::FLAG,
        "on",
        "Whether the body is read first and goes with the copies.",
        set!(Cf::get::<MirrorLoc>, request_body, flag),
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<MirrorLoc>()],
    phases: &[PhaseHandler { phase: Phase::Precontent, handler, active }],
    ..HttpModule::EMPTY
};

fn set_uri(cf: &mut Cf, d: &Directive) -> ConfResult {
    let uris = &mut cf.get::<MirrorLoc>().uris;
    if d.arg(0) == b"off" {
        return uris.once(d, None);
    }
    if !uris.is_set() {
        uris.set(Some(Arc::default()));
    }
    match uris.as_mut().and_then(Option::as_mut).and_then(Arc::get_mut) {
        Some(list) => list.push(d.arg(0).to_vec()),
        None => return Err(d.error("is duplicate")),
    }
    Ok(())
}

fn active(slots: &Slots) -> bool {
    slots.get::<MirrorLoc>().uris.is_some()
}

fn handler(r: &mut Request) -> Flow {
    if r.is_part() {
        return Flow::Declined;
    }
    if *r.loc().conf::<MirrorLoc>().request_body && !r.body.complete {
        return Flow::Wait(read_first);
    }
    send(r);
    Flow::Declined
}

fn read_first(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        match body::read_all(r).await {
            Ok(()) => {}
            Err(BodyError::Status(s)) => return Flow::Status(s),
            Err(BodyError::Closed) => return Flow::Status(499),
        }
        send(r);
        Flow::Declined
    })
}

fn send(r: &Request) {
    let loc = Rc::clone(r.loc());
    let Some(uris) = loc.conf::<MirrorLoc>().uris.as_ref() else { return };
    uris.iter().for_each(|uri| subrequest::send_copy(r, uri, &r.args));
}
