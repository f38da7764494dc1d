//! `api`: what modules report, as JSON, by paths, and what may be changed while the server runs (NGINX Plus's
//! `ngx_http_api_module`). What is shown is the tree ([`crate::gather`]); a table leads from paths into it.
//!
//! Who may write is the configuration's matter, and it must say it: a place with `write=on` that nothing guards is
//! refused when the configuration is read, and so are requests that another site has a browser send.
//!
//! Differences from NGINX Plus: names may have slashes; figures of our own stand beside Plus's; a request that
//! writes says `Content-Type: application/json`; there is no `/license`.

mod guard;
mod input;
mod pairs;
mod places;
mod refusal;
mod servers;
mod show;
mod since;

use crate::angie;
use crate::keyval::Zone;
use bytes::Bytes;
pub(crate) use guard::ApiSrv;
use places::Target;
use refusal::{Outcome, Refusal};
use servers::{Block, Servers};
use show::{Asked, Fields};
pub(crate) use since::apply as begun_anew;
use std::sync::atomic::AtomicBool;
use std::sync::Arc;
use weir_base::escape::{unescape_uri, Unescape};
use weir_core::figures::Figure;
use weir_core::generation::Generation;
use weir_core::logger::LogLevel;
use weir_core::registry::template_of;
use weir_core::shared_file::{self, Kept};
use weir_core::{state_places, LocalFuture, Session};
use weir_http::body;
use weir_http::buf::Buf;
use weir_http::build::here;
use weir_http::client_watch::unless_client_goes;
use weir_http::conf::CoreLoc;
use weir_http::module::{Flow, HttpModule};
use weir_http::{long_text, special, Request};
use weir_module::{
    merged, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable,
};
use weir_runtime::threads::in_thread;
use weir_script::template::Template;
use weir_wire::http1::request::Method;

const ROWS: &[Row] = &[Row::new(
    "api",
    Context::LOCATION,
    Arity::NONE_ONE,
    "",
    "Answers with what is counted, as JSON, by paths; with write=on, changes servers of upstreams and keyval zones; with a path, by Angie's.",
    set_api,
)
.once()
.note(
    "NGINX Plus's, versions 1 to 9. With write=on the location must have \"deny all\" (behind an allow), auth_basic, auth_jwt or \
     auth_request (limit_except GET may hold them), or its server ssl_verify_client on; bodies must be sent as \
     Content-Type: application/json. What a browser sends is refused (403, CrossSiteRequest) unless its Origin is the name that it asked \
     (Host), and that an address or in server_name; so behind a proxy write \"proxy_set_header Host $host;\" there ($http_host where the \
     port is not the usual one), and that name into server_name here. DELETE has figures begin \
     anew as the API shows them, over an upgrade too; metrics and logs go on. There is no /license (build ends in -r32, \
     the last release of NGINX Plus without it) and no /stream/zone_sync. With a path (\"api /status/;\", which may have \
     variables) it is Angie's tree, read only, down to single figures (/status/http/server_zones/NAME/requests/total; date=epoch has dates \
     as seconds; of several servers with one address the second is ADDRESS@2): without what is not counted (passed of streams, sent of resolvers, refs), certificates, config_files and /config/.",
)];

/// The directive.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[
        angie::SLOT,
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
    start: Some(|_, _| since::keep()),
    ..HttpModule::EMPTY
};

/// Reads a path behind an API's location; whether it leads anywhere. One that does names its version.
pub fn path_leads(path: &str) -> bool {
    let found = places::target(path);
    if let Ok((version, target)) = &found {
        assert!(*version <= places::VERSION);
        if let Target::Named(place, name) = target {
            assert!(path.ends_with(name) && path.contains(place.path));
            servers::split(name);
        }
    }
    found.is_ok()
}

/// Reads the body of a request that changes something; how many members it has.
pub fn body_is_read(body: &[u8]) -> Option<usize> {
    input::members(body).ok().map(|members| members.len())
}

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
    /// Nothing but `ssl_verify_client` keeps strangers out.
    wants_certificate: AtomicBool,
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
        Some(path) if path.starts_with(b"/") => return angie::set(cf, d),
        Some(other) => {
            let shown = String::from_utf8_lossy(other);
            let e = d.bad(0, format!("invalid parameter \"{shown}\""));
            return Err(e.hint(
                "write \"api;\", \"api write=on;\", or a path of Angie's tree, \"api /status/;\""
                    .to_string(),
            ));
        }
    };
    let place = here(cf);
    if place.is_regex || place.is_named {
        let e = d.fail("\"api\" is for a location with a prefix");
        return Err(e.hint("write it as in \"location /api/ { api; }\"".to_string()));
    }
    let prefix = place.name.clone();
    let id = template_of::<Request>(cf, d, 0, b"$request_id")?;
    let mark = guard::mark(cf, d, &prefix, writes);
    if writes {
        state_places::are_written(cf);
    }
    cf.get::<ApiLoc>().0 =
        Some(Arc::new(Api { writes, prefix, id, mark, wants_certificate: AtomicBool::new(false) }));
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

fn handler(r: &mut Request) -> Flow {
    match r.method {
        Method::Get | Method::Head => match body::discard(r) {
            Ok(()) if asks_for_visitors(r) => Flow::Wait(visitors),
            Ok(()) if asks_for_much(r) => Flow::Wait(show_much),
            Ok(()) if asks_for_pairs(r) => Flow::Wait(show_pairs),
            Ok(()) if shared_file::any_newer() => Flow::Wait(catch_up),
            Ok(()) => {
                let done = with_call(r, |r, call| call.show(r));
                finish(r, done)
            }
            Err(flow) => flow,
        },
        _ => Flow::Wait(change),
    }
}

/// Another process has changed what stands in files.
fn catch_up(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        if unless_client_goes(r, false, in_thread(shared_file::catch_up)).await.is_none() {
            return Flow::Status(499);
        }
        let done = with_call(r, |r, call| call.show(r));
        finish(r, done)
    })
}

const VISITORS: &str = "http/analytics_zones";

/// Whether it may be figures of thousands of things.
fn asks_for_much(r: &Request) -> bool {
    let uri = String::from_utf8_lossy(&r.uri);
    let (place, name) = match places::target(below(r, &uri)) {
        Ok((_, Target::All(place))) => (place, ""),
        Ok((_, Target::Named(place, name))) => (place, name),
        _ => return false,
    };
    match place.kind {
        places::Kind::Many(..) => {
            !place.path.ends_with("keyvals") && servers::split(name).is_none()
        }
        _ => place.path == FIGURES,
    }
}

const FIGURES: &str = "figures";

/// Shows them: a thread makes the text.
fn show_much(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        if shared_file::any_newer()
            && unless_client_goes(r, false, in_thread(shared_file::catch_up)).await.is_none()
        {
            return Flow::Status(499);
        }
        let uri = String::from_utf8_lossy(&r.uri);
        let path = below(r, &uri).to_owned();
        let (asked, fields) = (Asked::of(r), Fields::of(&r.args));
        let making = long_text::made(r, move || {
            let (version, target) = places::target(&path)?;
            if matches!(target, Target::All(place) if place.path == FIGURES) {
                return Ok(asked.document());
            }
            let mut text = Vec::new();
            show::show(&asked, version, &target, &fields)?.write_json(&mut text);
            Ok(text)
        });
        match making.await {
            Err(status) => Flow::Status(status),
            Ok(Ok(text)) => send(r, 200, text),
            Ok(Err(refusal)) => finish(r, Err(refusal)),
        }
    })
}

/// Whether it is for all pairs of zones, of which there may be any number.
fn asks_for_pairs(r: &Request) -> bool {
    let uri = String::from_utf8_lossy(&r.uri);
    match places::target(below(r, &uri)) {
        Ok((_, Target::All(place))) => {
            place.path.ends_with("keyvals") && !Fields::of(&r.args).are_none()
        }
        Ok((_, Target::Named(place, _))) => {
            place.path.ends_with("keyvals") && argument(&r.args, b"key=").is_none()
        }
        _ => false,
    }
}

/// Shows them: a thread makes the text.
fn show_pairs(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let found = with_call(r, |r, call| call.pairs(&r.gen().core));
        let shown = match found {
            Ok(shown) => shown,
            Err(refusal) => return finish(r, Err(refusal)),
        };
        let making = long_text::made(r, move || {
            shared_file::catch_up();
            Ok::<_, Refusal>(shown.json())
        });
        match making.await {
            Err(status) => Flow::Status(status),
            Ok(Ok(text)) => send(r, 200, text),
            Ok(Err(refusal)) => finish(r, Err(refusal)),
        }
    })
}

fn asks_for_visitors(r: &Request) -> bool {
    let uri = String::from_utf8_lossy(&r.uri);
    let target = places::target(below(r, &uri));
    matches!(target, Ok((_, Target::All(place) | Target::Named(place, _))) if place.path == VISITORS)
}

/// The reports of `analytics_zone`: a thread makes them.
fn visitors(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let uri = String::from_utf8_lossy(&r.uri).into_owned();
        let Ok((_, target)) = places::target(below(r, &uri)) else { return Flow::Status(500) };
        let mut zones = crate::visitors::zones(&r.gen().core);
        let is_one = matches!(target, Target::Named(..));
        if let Target::Named(place, name) = target {
            zones.retain(|(own, _)| own == name.as_bytes());
            if zones.is_empty() {
                return finish(r, Err(Refusal::missing(place.kind)));
            }
        }
        let making = in_thread(move || match zones.first() {
            Some((_, zone)) if is_one => zone.json().into_bytes(),
            _ => crate::visitors::json(&zones),
        });
        match unless_client_goes(r, false, making).await {
            Some(Ok(text)) => send(r, 200, text),
            Some(Err(_)) => Flow::Status(500),
            None => Flow::Status(499),
        }
    })
}

/// What is asked for: of which version, and what stands at the path.
struct Call<'a> {
    version: u8,
    target: Target<'a>,
}

/// What came of a request.
enum Done {
    Shown(u16, Figure),
    Nothing(u16),
}

fn api_of(r: &Request) -> Option<Arc<Api>> {
    r.loc().conf::<ApiLoc>().0.clone()
}

/// Reads the path and does what is asked for.
fn with_call<T>(r: &mut Request, f: impl FnOnce(&mut Request, &Call) -> Outcome<T>) -> Outcome<T> {
    let uri = String::from_utf8_lossy(&r.uri).into_owned();
    let (version, target) = places::target(below(r, &uri))?;
    f(r, &Call { version, target })
}

/// What of a URI is the API's own.
fn below<'a>(r: &Request, uri: &'a str) -> &'a str {
    api_of(r).and_then(|api| uri.get(api.prefix.len()..)).unwrap_or_default()
}

fn finish(r: &mut Request, done: Outcome<Done>) -> Flow {
    let Some(api) = api_of(r) else { return Flow::Status(500) };
    match done {
        Ok(Done::Shown(status, figure)) => {
            let mut text = Vec::new();
            figure.write_json(&mut text);
            send(r, status, text)
        }
        Ok(Done::Nothing(status)) => send(r, status, Vec::new()),
        Err(refusal) => {
            let version = places::version(below(r, &String::from_utf8_lossy(&r.uri)));
            let id = r.eval(&api.id);
            send(r, refusal.status, refusal.json(version, &id))
        }
    }
}

impl Call<'_> {
    fn shown(figure: Figure) -> Outcome<Done> {
        Ok(Done::Shown(200, figure))
    }

    fn show(&self, r: &Request) -> Outcome<Done> {
        let (gen, fields) = (&r.gen().core, Fields::of(&r.args));
        match &self.target {
            Target::All(place) if place.path.ends_with("keyvals") => {
                Call::shown(pairs::names(gen, Block::of(place.path)))
            }
            Target::Named(place, name) if place.path.ends_with("keyvals") => {
                let zone = pairs::find(gen, Block::of(place.path), name)?;
                let key = argument(&r.args, b"key=").unwrap_or_default();
                Call::shown(pairs::show(&zone, &key)?)
            }
            target => match self.servers(gen)? {
                Some(servers) => Call::shown(servers.show()?),
                None => Call::shown(show::show(&Asked::of(r), self.version, target, &fields)?),
            },
        }
    }

    /// The zones whose pairs are asked for.
    fn pairs(&self, gen: &Generation) -> Outcome<pairs::Shown> {
        match &self.target {
            Target::Named(place, name) => {
                pairs::find(gen, Block::of(place.path), name).map(pairs::Shown::One)
            }
            Target::All(place) => Ok(pairs::Shown::all(gen, Block::of(place.path))),
            _ => Err(not_allowed()),
        }
    }

    /// The servers of an upstream, if they are asked for.
    fn servers(&self, gen: &Generation) -> Outcome<Option<Servers>> {
        let Target::Named(place, name) = &self.target else { return Ok(None) };
        let asked = servers::split(name).filter(|_| place.path.ends_with("upstreams"));
        let Some((upstream, id)) = asked else { return Ok(None) };
        Servers::find(gen, Block::of(place.path), self.version, upstream, id).map(Some)
    }

    /// Whether there is something that changes in this way; `is_read`: what is to be done to one of many is told later.
    fn takes(&self, r: &Request, is_read: bool) -> Outcome<()> {
        let gen = &r.gen().core;
        if let Some(servers) = self.servers(gen)? {
            return match (r.method, servers.id) {
                (Method::Post, None) => Ok(()),
                (Method::Patch | Method::Delete, Some(_)) if is_read => Ok(()),
                (Method::Patch | Method::Delete, Some(_)) => servers.show().map(drop),
                _ => Err(not_allowed()),
            };
        }
        match &self.target {
            Target::Named(place, name) if place.path.ends_with("keyvals") => {
                pairs::find(gen, Block::of(place.path), name).map(drop)
            }
            _ if r.method == Method::Delete => Ok(()),
            _ => Err(not_allowed()),
        }
    }

    /// Changes what is asked for; what stands in a file is a thread's to change.
    fn change(&self, r: &Request, body: &[u8]) -> Outcome<Work> {
        let gen = &r.gen().core;
        if let Some(servers) = self.servers(gen)? {
            return change_servers(servers, r.method, body.to_vec());
        }
        match &self.target {
            Target::Named(place, name) if place.path.ends_with("keyvals") => {
                let zone = pairs::find(gen, Block::of(place.path), name)?;
                change_pairs(zone, self.version, r.method, body.to_vec())
            }
            Target::Named(place, name) if place.path == VISITORS && r.method == Method::Delete => {
                let zones = crate::visitors::zones(gen);
                let zone = zones.iter().find(|(own, _)| own == name.as_bytes());
                let (_, zone) = zone.ok_or_else(|| Refusal::missing(place.kind))?;
                zone.clear();
                Ok(Work::Done(Done::Nothing(204)))
            }
            target if r.method == Method::Delete => begin_anew(r, target).map(Work::Done),
            _ => Err(not_allowed()),
        }
    }
}

/// What a request comes to.
enum Work {
    Done(Done),
    /// It blocks.
    Thread(Box<dyn FnOnce() -> Outcome<Done> + Send>),
}

/// Changes what is kept, in a thread where that has a file.
fn by_turns(
    kept: impl Kept + 'static,
    change: impl FnOnce() -> Outcome<Done> + Send + 'static,
) -> Outcome<Work> {
    match kept.file() {
        None => change().map(Work::Done),
        Some(_) => Ok(Work::Thread(Box::new(move || shared_file::change(&kept, change)))),
    }
}

fn change_servers(servers: Servers, method: Method, body: Vec<u8>) -> Outcome<Work> {
    let upstream = servers.upstream.clone();
    match (method, servers.id) {
        (Method::Post, None) => {
            by_turns(upstream, move || servers.add(&body).map(|set| Done::Shown(201, set)))
        }
        (Method::Patch, Some(id)) => {
            by_turns(upstream, move || servers.change(id, &body).map(|set| Done::Shown(200, set)))
        }
        (Method::Delete, Some(id)) => {
            by_turns(upstream, move || servers.remove(id).map(|left| Done::Shown(200, left)))
        }
        _ => Err(not_allowed()),
    }
}

fn change_pairs(zone: Arc<Zone>, version: u8, method: Method, body: Vec<u8>) -> Outcome<Work> {
    let kept = Arc::clone(&zone);
    match method {
        Method::Post => {
            by_turns(kept, move || pairs::add(&zone, version, &body).map(|()| Done::Nothing(201)))
        }
        Method::Patch => by_turns(kept, move || {
            pairs::change(&zone, version, &body).map(|()| Done::Nothing(204))
        }),
        Method::Delete => by_turns(kept, move || {
            pairs::clear(&zone);
            Ok(Done::Nothing(204))
        }),
        _ => Err(not_allowed()),
    }
}

/// The value of an argument of the request.
fn argument(args: &[u8], name: &[u8]) -> Option<Vec<u8>> {
    let said = args.split(|b| *b == b'&').find_map(|arg| arg.strip_prefix(name))?;
    let mut value = Vec::new();
    unescape_uri(&mut value, said, Unescape::Uri);
    Some(value)
}

fn begin_anew(r: &Request, target: &Target) -> Outcome<Done> {
    let (place, name) = match target {
        Target::All(place) => {
            let is_one = !matches!(place.kind, places::Kind::Many(..)) || place.path == "workers";
            is_one.then_some((place, None))
        }
        Target::Named(place, name) => Some((place, Some(*name))),
        _ => None,
    }
    .filter(|(place, _)| place.resets)
    .ok_or_else(not_allowed)?;
    show::begin_anew(r, place, name).map(|()| Done::Nothing(204))
}

fn change(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let mut body = Vec::new();
        let mut allowed = may_write(r);
        if allowed.is_ok() && r.method != Method::Delete {
            match input::read(r).await {
                Ok(read) => body = read,
                Err(input::NoBody::Closed) => return Flow::Status(499),
                Err(input::NoBody::Refused(refusal)) => allowed = Err(refusal),
            }
        } else if let Err(flow) = body::discard(r) {
            return flow;
        }
        let done = match allowed.and_then(|()| with_call(r, |r, call| call.change(r, &body))) {
            Ok(Work::Done(done)) => Ok(done),
            // It is done as a whole, whether the client waits for it or not.
            Ok(Work::Thread(work)) => match in_thread(work).await {
                Ok(done) => done,
                Err(e) => Err(Refusal::new(500, "StateFileError", e.to_string())),
            },
            Err(refusal) => Err(refusal),
        };
        if let Err(Refusal { code: "StateFileError", text, .. }) = &done {
            r.log(LogLevel::Error, text);
        }
        finish(r, done)
    })
}

/// Whether a request may change anything at all.
fn may_write(r: &mut Request) -> Outcome<()> {
    if !matches!(r.method, Method::Post | Method::Patch | Method::Delete) {
        return Err(not_allowed());
    }
    let Some(api) = api_of(r).filter(|api| api.writes) else {
        return Err(Refusal::new(405, "MethodDisabled", "method disabled"));
    };
    guard::certified(r, &api)?;
    guard::own_request(r)?;
    guard::same_site(r)?;
    let said = match r.method {
        Method::Delete => Ok(()),
        _ => input::said_to_be_json(r),
    };
    // What is not there, or does not change in this way, is told before what it would have to be sent as.
    with_call(r, |r, call| call.takes(r, said.is_ok()))?;
    said
}

fn not_allowed() -> Refusal {
    Refusal::new(405, "MethodNotAllowed", "method not allowed")
}

fn send(r: &mut Request, status: u16, text: impl Into<Bytes>) -> Flow {
    let text: Bytes = text.into();
    r.out.status = status;
    // What it was a moment ago is of use to nobody.
    r.out.set(b"Cache-Control", b"no-store");
    if text.is_empty() {
        r.out.content_length = (status != 204).then_some(0);
        return special::finish(r, Buf::last());
    }
    r.out.set_content_type(b"application/json");
    let body = long_text::whole(r, text);
    special::finish(r, body)
}
