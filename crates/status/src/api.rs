//! `api`: what modules report, as JSON, by paths, and what may be changed while the server runs (NGINX Plus's
//! `ngx_http_api_module`). What is shown is the tree ([`crate::gather`]); a table leads from paths into it.
//!
//! Who may write is the configuration's matter, and it must say it: a place with `write=on` that nothing guards is
//! refused when the configuration is read, and so are requests that another site has a browser send.
//!
//! Differences from NGINX Plus: names may have slashes; figures of our own stand beside Plus's; a request that
//! writes says `Content-Type: application/json`; there is no `/license`.

mod guard;
mod places;
mod refusal;
mod show;
mod since;

use guard::ApiSrv;
use places::Target;
use refusal::{Outcome, Refusal};
use show::Fields;
use std::sync::Arc;
use weir_core::figures::Figure;
use weir_core::registry::template_of;
use weir_core::Session;
use weir_http::body;
use weir_http::buf::Buf;
use weir_http::build::here;
use weir_http::conf::CoreLoc;
use weir_http::module::{Flow, HttpModule};
use weir_http::{special, Request};
use weir_module::{
    merged, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable,
};
use weir_script::template::Template;
use weir_wire::http1::request::Method;

const ROWS: &[Row] = &[Row::new(
    "api",
    Context::LOCATION,
    Arity::NONE_ONE,
    "",
    "Answers with what is counted, as JSON, by paths; with write=on, changes it.",
    set_api,
)
.once()
.note(
    "NGINX Plus's, versions 1 to 9. With write=on the location must have allow and deny, auth_basic, auth_jwt or \
     auth_request (limit_except GET may hold them), or its server ssl_verify_client on; bodies must be sent as \
     Content-Type: application/json, and browsers' requests from other sites are refused. DELETE has figures begin \
     anew as the API shows them; metrics and logs go on. There is no /license and no /stream/zone_sync.",
)];

/// The directive.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[
        SlotVtable::of::<ApiSrv>(),
        // As with all handlers, only an `if` or `limit_except` block has its location's.
        SlotVtable {
            merge: |own, outer, unnamed| {
                merged(own, outer, |own: &mut ApiLoc, outer: &ApiLoc| {
                    if own.0.is_none() && unnamed {
                        own.0.clone_from(&outer.0);
                    }
                    Ok(())
                })
            },
            ..SlotVtable::of::<ApiLoc>()
        },
    ],
    build: Some(guard::check),
    ..HttpModule::EMPTY
};

/// An `api` as read.
#[derive(Debug)]
struct Api {
    writes: bool,
    /// Of its location, which stands before the API's own path; nothing in one by an expression.
    prefix: Vec<u8>,
    /// `$request_id`
    id: Template,
    /// For [`guard`]: it is told apart from all others, and where it stands.
    mark: guard::Mark,
}

#[derive(Default)]
struct ApiLoc(Option<Arc<Api>>);

impl ConfType for ApiLoc {
    const LEVEL: Level = Level::Location;
    slot!();
}

fn set_api(cf: &mut Cf, d: &Directive) -> ConfResult {
    let writes = match d.args.first().map(|a| &*a.text) {
        None | Some(b"write=off") => false,
        Some(b"write=on") => true,
        Some(other) => {
            let shown = String::from_utf8_lossy(other);
            let e = d.bad(0, format!("invalid parameter \"{shown}\""));
            return Err(e.hint("write \"api;\", or \"api write=on;\"".to_string()));
        }
    };
    let place = here(cf);
    if place.is_regex || place.is_named {
        let e = d.fail("\"api\" is for a location with a prefix");
        return Err(e.hint("write it as in \"location /api/ { api; }\"".to_string()));
    }
    let prefix = place.name.clone();
    let id = template_of::<Request>(cf, d, 0, b"$request_id")?;
    let mark = guard::mark(cf, d, writes);
    cf.get::<ApiLoc>().0 = Some(Arc::new(Api { writes, prefix, id, mark }));
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

fn handler(r: &mut Request) -> Flow {
    let Some(api) = r.loc().conf::<ApiLoc>().0.clone() else { return Flow::Status(500) };
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    let uri = String::from_utf8_lossy(&r.uri).into_owned();
    let path = uri.get(api.prefix.len()..).unwrap_or_default();
    let (version, done) = match places::target(path) {
        Ok((version, target)) => (version, answer(r, &api, version, &target)),
        Err(refusal) => (places::version(path), Err(refusal)),
    };
    match done {
        Ok(Done::Shown(figure)) => {
            let mut text = Vec::new();
            figure.write_json(&mut text);
            send(r, 200, text)
        }
        Ok(Done::Nothing) => send(r, 204, Vec::new()),
        Err(refusal) => {
            let id = r.eval(&api.id);
            send(r, refusal.status, refusal.json(version, &id))
        }
    }
}

/// What came of a request.
enum Done {
    Shown(Figure),
    Nothing,
}

fn answer(r: &mut Request, api: &Api, version: u8, target: &Target) -> Outcome<Done> {
    match r.method {
        Method::Get | Method::Head => {
            let fields = Fields::of(&r.args);
            show::show(r, version, target, &fields).map(Done::Shown)
        }
        Method::Post | Method::Patch | Method::Delete if !api.writes => {
            Err(Refusal::new(405, "MethodDisabled", "method disabled"))
        }
        Method::Delete => {
            guard::same_site(r)?;
            let (place, name) = match target {
                Target::All(place)
                    if !matches!(place.kind, places::Kind::Many(..)) || place.path == "workers" =>
                {
                    (place, None)
                }
                Target::Named(place, name) => (place, Some(*name)),
                _ => return Err(not_allowed()),
            };
            if !place.resets {
                return Err(not_allowed());
            }
            show::begin_anew(r, place, name).map(|()| Done::Nothing)
        }
        _ => Err(not_allowed()),
    }
}

fn not_allowed() -> Refusal {
    Refusal::new(405, "MethodNotAllowed", "method not allowed")
}

fn send(r: &mut Request, status: u16, text: Vec<u8>) -> Flow {
    r.out.status = status;
    // What it was a moment ago is of use to nobody.
    r.out.set(b"Cache-Control", b"no-store");
    if status == 204 {
        return special::finish(r, Buf::last());
    }
    r.out.set_content_type(b"application/json");
    r.out.content_length = Some(text.len() as u64);
    special::finish(r, Buf::mem(text).and_last())
}
