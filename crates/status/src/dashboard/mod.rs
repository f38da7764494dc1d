//! `dashboard`: a page that shows what modules report while it happens. nginx has no such module.
//!
//! Below its location: the page itself, `history` (JSON: what there was before it was opened) and `events`
//! (server-sent: the figures once a second, [`flat`]). The page is built of `dashboard/` and is one file that
//! asks nobody else; its policy names its style and its script by their digests, so that nothing that the
//! figures name can run in it.
//!
//! Who may see it is the location's to say (`allow`, `auth_basic`, …), as for `stub_status`.

mod flat;
mod history;
mod live;
mod place;
pub(crate) mod recent;
pub(crate) mod system;

use crate::machines;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::{LocalFuture, Session as _, Worker};
use weir_http::client_watch::unless_client_goes;
use weir_http::conf::CoreLoc;
use weir_http::module::{Flow, HttpModule};
use weir_http::{body, special, Buf, Chain, Request};
use weir_module::{
    joined_rows, slot, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable,
};
use weir_runtime::threads::in_thread;
use weir_wire::http1::request::Method;

const ROWS: &[Row] = joined_rows!(PAGE_ROWS, machines::ROWS);

const PAGE_ROWS: &[Row] = &[Row::new(
    "dashboard",
    Context::LOCATION,
    Arity::NONE_TO_TWO,
    "",
    "Answers with a page that shows the server's figures while they change.",
    set_dashboard,
)
.note(
    "Weir's own. The page is at the location's name, \"history\", \"events\" and \"about\" are below it; a name that does \
     not end in a slash is redirected to one that does. With api=URI, which names a location of the same server with \
     \"api\", the page leads there, and if that writes (write=on), servers of upstreams are drained, enabled and \
     disabled from the page by who may do so by the API, if the browser's Origin is this server's name: behind a proxy that takes \
     \"proxy_set_header Host $host;\" there, and that name in server_name here. slow=time \
     (1s) says which requests are shown as slow, beside those that fail and the error log's lines: the newest 200, without \
     clients' addresses and without what is behind the question mark of URIs. Whoever may ask the location sees all figures of the server: say who that \
     is, by \"allow\" and \"deny\" for example. 64 clients at most have it open at a time.",
)];

/// The directive.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[
        SlotVtable::of::<DashboardMain>(),
        SlotVtable::of::<place::DashboardSrv>(),
        place::DashboardLoc::VTABLE,
        machines::PeersLoc::VTABLE,
    ],
    build: Some(|b| {
        machines::check(b)?;
        place::check(b)
    }),
    serves: Some(serves),
    ..HttpModule::EMPTY
};

/// Whether there is one.
#[derive(Default)]
struct DashboardMain {
    is_there: bool,
    slow_ms: Option<u64>,
}

/// What is slow unless it is said.
const SLOW_MS: u64 = 1000;

impl DashboardMain {
    fn slow_ms(&self) -> u64 {
        self.slow_ms.unwrap_or(SLOW_MS)
    }
}

impl ConfType for DashboardMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

/// The built page, what its style and its script are known by.
const PAGE: &[u8] = include_bytes!("../../page/index.html");
const POLICY: &str = concat!(
    "default-src 'none'; connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; ",
    "frame-ancestors 'none'; ",
    include_str!("../../page/policy.txt")
);

fn set_dashboard(cf: &mut Cf, d: &Directive) -> ConfResult {
    place::set(cf, d)?;
    cf.get::<DashboardMain>().is_there = true;
    machines::there_is_a_page(cf);
    cf.get::<CoreLoc>().handler = Some(handler);
    Ok(())
}

fn serves(worker: &Rc<Worker>, _: usize) {
    let gen = &worker.generation().shared;
    let Some(http) = gen.part::<weir_http::generation::HttpConf>() else { return };
    let main = http.main.get::<DashboardMain>();
    if main.is_there {
        recent::begin(main.slow_ms());
        live::live().serve(gen, &worker.all);
    }
}

fn handler(r: &mut Request) -> Flow {
    if !matches!(r.method, Method::Get | Method::Head) {
        return Flow::Status(405);
    }
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    let name = r.loc().name.len();
    let rest = r.uri.get(name..).unwrap_or_default();
    let slash = r.loc().name.ends_with(b"/");
    match (slash, rest) {
        (true, b"") | (false, b"/") => answer(r, b"text/html; charset=utf-8", PAGE.to_vec()),
        (true, b"history") | (false, b"/history") => {
            answer(r, b"application/json", live::live().history())
        }
        (true, b"about") | (false, b"/about") => {
            let text = place::about(r);
            answer(r, b"application/json", text)
        }
        (true, b"events") | (false, b"/events") => Flow::Wait(events),
        (true, b"analytics") | (false, b"/analytics") => Flow::Wait(visitors),
        (true, b"machines") | (false, b"/machines") => Flow::Wait(all_machines),
        (false, b"") => {
            let there = [&r.uri[..], b"/"].concat();
            special::redirect(r, 301, &there)
        }
        _ => Flow::Status(404),
    }
}

fn put_header(r: &mut Request, kind: &[u8]) {
    r.out.status = 200;
    r.out.set_content_type(kind);
    r.out.add(b"Cache-Control", b"no-store");
    r.out.add(b"Content-Security-Policy", POLICY.trim_end().as_bytes());
    r.out.add(b"X-Content-Type-Options", b"nosniff");
    r.out.add(b"Referrer-Policy", b"no-referrer");
}

fn answer(r: &mut Request, kind: &[u8], text: Vec<u8>) -> Flow {
    put_header(r, kind);
    r.out.content_length = Some(text.len() as u64);
    special::finish(r, Buf::mem(text).and_last())
}

/// This server and those that `dashboard_peer` names, and their sum.
fn all_machines(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let (gen, all) = (Arc::clone(&r.gen().core), Arc::clone(&r.conn().worker.all));
        let machines = r.with_conf::<machines::PeersLoc, _>(|_, conf| conf.machines().cloned());
        let Some(machines) = machines else { return Flow::Status(404) };
        let making = in_thread(move || machines.json(&gen, &all));
        let made = unless_client_goes(r, false, making).await;
        from_thread(r, made)
    })
}

/// Answers with what a thread has made, unless the client has gone.
fn from_thread<E>(r: &mut Request, made: Option<Result<Vec<u8>, E>>) -> Flow {
    match made {
        Some(Ok(text)) => answer(r, b"application/json", text),
        Some(Err(_)) => Flow::Status(500),
        None => Flow::Status(499),
    }
}

/// Who comes and what for, where that is counted (`analytics_zone`).
fn visitors(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let zones = crate::visitors::zones(&r.gen().core);
        let making = in_thread(move || crate::visitors::json(&zones));
        let made = unless_client_goes(r, false, making).await;
        from_thread(r, made)
    })
}

fn events(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let Some(mut viewer) = live::live().view() else { return Flow::Status(503) };
        put_header(r, b"text/event-stream");
        r.flags.endless = true;
        r.out.clear_content_length();
        if r.send_header().is_err() {
            return Flow::Close;
        }
        while !r.flags.header_only && !r.conn().worker.closing.get() {
            let next = unless_client_goes(r, false, viewer.next()).await;
            let Some(Some(text)) = next else { return Flow::Close };
            let put = r.output(Chain::one(Buf::mem(text)));
            if put.is_err() || r.output(Chain::one(Buf::flush())).is_err() {
                return Flow::Close;
            }
            if r.drain(0).await.is_err() {
                return Flow::Close;
            }
        }
        let _ = r.output(Chain::one(Buf::last()));
        Flow::Ok
    })
}
