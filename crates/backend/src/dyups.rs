//! `dyups_interface` (Tengine's `ngx_http_dyups_module`): upstreams are listed, put and deleted by requests to a
//! location that says so. Nothing listens for them unless that is configured; who may ask is `allow`'s and
//! `auth_basic`'s matter.

use weir_core::LocalFuture;
use weir_http::body::{self, BodyError};
use weir_http::buf::Buf;
use weir_http::conf::CoreLoc;
use weir_http::module::Flow;
use weir_http::{special, HttpModule, Request};
use weir_module::{ArgsExt, Arity, Context, Row};
use weir_upstream::{dynamic, UpstreamMain};
use weir_wire::http1::request::Method;

const NEEDLESS: &str =
    "It is Tengine's. The value is checked and not needed: workers share what is put, at once.";

const ROWS: &[Row] = &[
    Row::new(
        "dyups_interface",
        Context::LOCATION,
        Arity::NONE,
        "",
        "GET /list, /detail and /upstream/NAME, POST and DELETE /upstream/NAME here.",
        |cf, _| {
            cf.get::<CoreLoc>().handler = Some(handler);
            Ok(())
        },
    )
    .note(
        "It is Tengine's. proxy_pass finds what is put by a name that has a variable, as there. What is put has \
         server, ip_hash and least_conn, servers by their addresses; it stays over reloads as long as the process \
         lives, and its connections are not kept.",
    ),
    Row::new("dyups_read_msg_timeout", Context::HTTP, Arity::ONE, "1s", "How often workers look.", |_, d| {
        d.msec(0).map(drop)
    })
    .once()
    .note(NEEDLESS),
    Row::new("dyups_read_msg_log", Context::HTTP, Arity::FLAG, "off", "Whether workers log that.", |_, d| {
        d.flag().map(drop)
    })
    .once()
    .note(NEEDLESS),
    Row::new("dyups_shm_zone_size", Context::HTTP, Arity::ONE, "2m", "The memory for what is put.", |_, d| {
        d.size(0).map(drop)
    })
    .once()
    .note(NEEDLESS),
    Row::new("dyups_trylock", Context::HTTP, Arity::FLAG, "off", "Whether to answer 409 for waiting.", |_, d| {
        d.flag().map(drop)
    })
    .once()
    .note(NEEDLESS),
];

/// `dyups_interface` and what belongs to it.
pub const MODULE: HttpModule = HttpModule { rows: ROWS, ..HttpModule::EMPTY };

fn handler(r: &mut Request) -> Flow {
    match r.method {
        Method::Post => Flow::Wait(wait),
        Method::Get | Method::Head => shown(r),
        Method::Delete => match body::discard(r) {
            Ok(()) => removed(r),
            Err(flow) => flow,
        },
        _ => Flow::Status(405),
    }
}

/// The name behind `/upstream/`.
fn named(r: &Request) -> Option<Vec<u8>> {
    let name = r.uri.strip_prefix(b"/upstream/")?;
    let is_one = !name.is_empty() && !name.contains(&b'/');
    is_one.then(|| name.to_vec())
}

fn shown(r: &mut Request) -> Flow {
    if let Err(flow) = body::discard(r) {
        return flow;
    }
    let gen = std::rc::Rc::clone(r.gen());
    let main = gen.shared.main.get::<UpstreamMain>();
    let text = match (&r.uri[..], named(r)) {
        (b"/list", _) => Some(dynamic::list(main)),
        (b"/detail", _) => Some(dynamic::detail(main)),
        (_, Some(name)) => dynamic::servers(&name, main),
        _ => None,
    };
    match text {
        None => Flow::Status(404),
        Some(text) if text.is_empty() => answer(r, 204, String::new()),
        Some(text) => answer(r, 200, text),
    }
}

fn removed(r: &mut Request) -> Flow {
    let gen = std::rc::Rc::clone(r.gen());
    match named(r) {
        Some(name) if dynamic::remove(&name, gen.shared.main.get()) => {
            answer(r, 200, "success".to_string())
        }
        _ => Flow::Status(404),
    }
}

fn wait(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        match body::read_all(r).await {
            Ok(()) => {}
            Err(BodyError::Status(status)) => return Flow::Status(status),
            Err(BodyError::Closed) => return Flow::Status(499),
        }
        let Some(name) = named(r) else { return Flow::Status(404) };
        // What does not fit into memory (client_body_buffer_size) is no list of servers.
        if r.body.file.is_some() {
            return Flow::Status(413);
        }
        match dynamic::put::<Request>(&name, &r.body.memory) {
            Ok(()) => answer(r, 200, "success".to_string()),
            Err(text) => answer(r, 400, text + "\n"),
        }
    })
}

fn answer(r: &mut Request, status: u16, text: String) -> Flow {
    r.out.status = status;
    r.out.set_content_type(b"text/plain");
    r.out.content_length = Some(text.len() as u64);
    special::finish(r, Buf::mem(text.into_bytes()).and_last())
}
