//! `dyups_interface` (Tengine's `ngx_http_dyups_module`): upstreams are listed, put and deleted by requests to a
//! location that says so. Nothing listens for them unless that is configured; who may ask is `allow`'s and
//! `auth_basic`'s matter.

use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session};
use weir_http::body::{self, BodyError};
use weir_http::buf::Buf;
use weir_http::conf::CoreLoc;
use weir_http::module::Flow;
use weir_http::{special, HttpModule, Request};
use weir_module::{slot, ArgsExt, Arity, ConfType, Context, Level, Row, SlotVtable};
use weir_upstream::dynamic::{self, Refused};
use weir_upstream::UpstreamMain;
use weir_wire::http1::request::Method;

/// `dyups_shm_zone_size` where nobody says.
const ZONE_BYTES: u64 = 2 * 1024 * 1024;

/// `dyups_…`
#[derive(Default)]
struct DyupsMain {
    zone_bytes: Option<u64>,
}

impl ConfType for DyupsMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

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
    Row::new("dyups_shm_zone_size", Context::HTTP, Arity::ONE, "2m", "The memory for what is put.", |cf, d| {
        cf.get::<DyupsMain>().zone_bytes = Some(d.size(0)?);
        Ok(())
    })
    .once()
    .note(
        "It is Tengine's. An upstream counts for 1 KB and each of its servers for half a KB, beside their names; \
         what there is no room for is answered with 507. What is there already stays where a reload makes it \
         smaller.",
    ),
    Row::new("dyups_trylock", Context::HTTP, Arity::FLAG, "off", "Whether to answer 409 for waiting.", |_, d| {
        d.flag().map(drop)
    })
    .once()
    .note(NEEDLESS),
];

/// `dyups_interface` and what belongs to it.
pub const MODULE: HttpModule =
    HttpModule { rows: ROWS, slots: &[SlotVtable::of::<DyupsMain>()], ..HttpModule::EMPTY };

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
        let room = r.gen().shared.main.get::<DyupsMain>().zone_bytes.unwrap_or(ZONE_BYTES);
        match dynamic::put::<Request>(&name, &r.body.memory, room) {
            Ok(()) => answer(r, 200, "success".to_string()),
            Err(Refused::Unfit(text)) => answer(r, 400, text + "\n"),
            Err(Refused::Full(text)) => {
                r.log(
                    LogLevel::Error,
                    &format!("upstream \"{}\" is not put: {text}", name.escape_ascii()),
                );
                answer(r, 507, text + "\n")
            }
        }
    })
}

fn answer(r: &mut Request, status: u16, text: String) -> Flow {
    r.out.status = status;
    r.out.set_content_type(b"text/plain");
    r.out.content_length = Some(text.len() as u64);
    special::finish(r, Buf::mem(text.into_bytes()).and_last())
}
