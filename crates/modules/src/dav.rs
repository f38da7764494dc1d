//! `dav_methods` (nginx's `ngx_http_dav_module`): files are put, removed, copied and moved (RFC 4918).
//!
//! What touches the disk is done by threads, so that a large tree or a slow disk holds nobody else up.
//!
//! Differences from nginx: an intermediate collection that is missing is answered with 409 (RFC 4918, sections
//! 9.7.1 and 9.8.5), not 500; PUT without a body makes an empty file; COPY replaces a file at once instead of
//! writing over it, and never through a link that stands there; links within a tree are not followed.

pub(crate) mod destination;
mod disk;

use destination::{depth, Depth, Target};
use disk::{Failure, Status};
use std::path::PathBuf;
use std::rc::Rc;
use weir_base::date;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_core::logger::LogLevel;
use weir_core::{os_text, paths, LocalFuture, Session};
use weir_http::body::{self, BodyError};
use weir_http::location::map_uri;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::{special, Request};
use weir_module::first::{flag, num};
use weir_module::{
    merge_values, set, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level,
    Row, SlotVtable, Val,
};
use weir_runtime::threads::in_thread;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Method;

#[derive(Default)]
struct DavLoc {
    methods: Val<u8>,
    access: Val<u32>,
    min_delete_depth: Val<u64>,
    create_full_put_path: Val<bool>,
}

impl ConfType for DavLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &DavLoc) -> ConfResult {
        merge_values!(self, parent;
            methods = 0,
            access = 0o600,
            min_delete_depth = 0,
            create_full_put_path = false,
        );
        Ok(())
    }
}

const OFF: u8 = 1;
const PUT: u8 = 1 << 1;
const DELETE: u8 = 1 << 2;
const MKCOL: u8 = 1 << 3;
const COPY: u8 = 1 << 4;
const MOVE: u8 = 1 << 5;

const METHODS: &[(&str, u8)] = &[
    ("off", OFF),
    ("put", PUT),
    ("delete", DELETE),
    ("mkcol", MKCOL),
    ("copy", COPY),
    ("move", MOVE),
];

const ROWS: &[Row] = &[
    Row::new(
        "dav_methods",
        Context::HSL,
        Arity::ONE_MORE,
        "off",
        "Which of PUT, DELETE, MKCOL, COPY and MOVE are answered here.",
        set_methods,
    )
    .note(
        "a missing intermediate collection is answered with 409, not 500; COPY replaces a file at once, and not \
         through a link; links within a tree are not followed",
    ),
    Row::new(
        "dav_access",
        Context::HSL,
        Arity::ONE_TO_THREE,
        "user:rw",
        "Rights of files and directories that are made.",
        |cf, d| {
            let access = paths::access(d)?;
            cf.get::<DavLoc>().access.once(d, access)
        },
    ),
    Row::new(
        "min_delete_depth",
        Context::HSL,
        Arity::ONE,
        "0",
        "DELETE removes files whose URI has at least so many elements.",
        set!(Cf::get::<DavLoc>, min_delete_depth, num),
    ),
    Row::new(
        "create_full_put_path",
        Context::HSL,
        Arity::FLAG,
        "off",
        "PUT makes the directories that are missing on the way.",
        set!(Cf::get::<DavLoc>, create_full_put_path, flag),
    ),
];

pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<DavLoc>()],
    phases: &[PhaseHandler {
        phase: Phase::Content,
        handler,
        active: |slots| !matches!(*slots.get::<DavLoc>().methods, 0 | OFF),
    }],
    ..HttpModule::EMPTY
};

fn set_methods(cf: &mut Cf, d: &Directive) -> ConfResult {
    for i in 0..d.args.len() {
        let method = d.choice(i, METHODS)?;
        let methods = &mut cf.get::<DavLoc>().methods;
        methods.set(methods.as_option().copied().unwrap_or(0) | method);
    }
    Ok(())
}

fn handler(r: &mut Request) -> Flow {
    let (method, answer): (u8, fn(&mut Request) -> LocalFuture<'_, Flow>) = match r.method {
        Method::Put => (PUT, |r| Box::pin(put(r))),
        Method::Delete => (DELETE, |r| Box::pin(delete(r))),
        Method::Mkcol => (MKCOL, |r| Box::pin(make_collection(r))),
        Method::Copy => (COPY, |r| Box::pin(copy_or_move(r))),
        Method::Move => (MOVE, |r| Box::pin(copy_or_move(r))),
        _ => return Flow::Declined,
    };
    match *r.loc().conf::<DavLoc>().methods & method {
        0 => Flow::Declined,
        _ => Flow::Wait(answer),
    }
}

/// Logs why a request is refused, and with what.
fn refused(r: &Request, status: u16, text: &str) -> Flow {
    r.log(LogLevel::Error, text);
    Flow::Status(status)
}

fn is_collection(r: &Request) -> bool {
    r.uri.last() == Some(&b'/')
}

fn has_body(r: &Request) -> bool {
    r.body.is_chunked() || r.body.announced().is_some_and(|n| n > 0)
}

/// The file that the request's URI names.
fn own_path(r: &mut Request) -> PathBuf {
    let uri = std::mem::take(&mut r.uri);
    let path = map_uri(r, &uri);
    r.uri = uri;
    path
}

async fn put(r: &mut Request) -> Flow {
    if is_collection(r) {
        return refused(r, 409, "cannot PUT to a collection");
    }
    if r.headers().any(|(name, _)| name.eq_ignore_ascii_case(b"content-range")) {
        return refused(r, 501, "PUT with range is unsupported");
    }
    let temp = match body::read_to_file(r).await {
        Ok(temp) => temp,
        Err(BodyError::Status(status)) => return Flow::Status(status),
        Err(BodyError::Closed) => return Flow::Status(499),
    };
    // It may have taken long to come.
    if crate::dav_ext::is_locked(r) {
        return Flow::Status(423);
    }
    let to = own_path(r);
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<DavLoc>();
    let date = r.header(HeaderId::Date).and_then(date::parse_http_time);
    let put = disk::Put {
        from: temp.path.clone(),
        to,
        access: *conf.access,
        makes_path: *conf.create_full_put_path,
        modified_secs: date,
    };
    // The body's file has its name until then.
    let done = in_thread(move || disk::put(&put)).await;
    drop(temp);
    // What was not renamed is gone before the client hears of it.
    r.body.file = None;
    match done {
        Ok(Ok(true)) => created(r),
        Ok(Ok(false)) => Flow::Status(204),
        Ok(Err(failure)) => failed(r, failure),
        Err(_) => Flow::Status(500),
    }
}

/// 201, with where it is.
fn created(r: &mut Request) -> Flow {
    let mut location = Vec::with_capacity(r.uri.len());
    escape_uri(&mut location, &r.uri, EscapeKind::Uri);
    special::set_location(r, &location);
    Flow::Status(201)
}

/// Logs what has failed, and answers with what nginx does.
fn failed(r: &Request, failure: Failure) -> Flow {
    let Failure { call, path, error, status } = failure;
    let Status(status) = status;
    let level = if matches!(status, 500 | 507) { LogLevel::Crit } else { LogLevel::Error };
    r.log(level, &format!("{call}() \"{}\" failed ({})", path.display(), os_text(&error)));
    Flow::Status(status)
}

/// The answer to what was done beside the worker; what went wrong on the way is logged.
fn answer(r: &mut Request, done: std::io::Result<disk::Done>, success: u16) -> Flow {
    let Ok(disk::Done { skipped, result }) = done else { return Flow::Status(500) };
    for failure in skipped {
        failed(r, failure);
    }
    match result {
        Ok(()) if r.method == Method::Mkcol => created(r),
        Ok(()) => {
            if matches!(r.method, Method::Delete | Method::Move) {
                crate::dav_ext::has_gone(r);
            }
            Flow::Status(success)
        }
        Err(failure) => failed(r, failure),
    }
}

async fn delete(r: &mut Request) -> Flow {
    if has_body(r) {
        return refused(r, 415, "DELETE with body is unsupported");
    }
    let least = *r.loc().conf::<DavLoc>().min_delete_depth;
    let elements = r.uri.split(|b| *b == b'/').filter(|e| !e.is_empty()).count() as u64;
    if elements < least {
        return refused(r, 409, &format!("insufficient URI depth:{elements} to DELETE"));
    }
    let Some(depth) = depth(r, Depth::Infinity) else { return Flow::Status(400) };
    let (path, is_collection) = (own_path(r), is_collection(r));
    let work = move || disk::delete(&path, is_collection, depth);
    let done = in_thread(work).await;
    answer(r, done, 204)
}

async fn make_collection(r: &mut Request) -> Flow {
    if has_body(r) {
        return refused(r, 415, "MKCOL with body is unsupported");
    }
    if !is_collection(r) {
        return refused(r, 409, "MKCOL can create a collection only");
    }
    let (path, access) = (own_path(r), *r.loc().conf::<DavLoc>().access);
    let done = in_thread(move || disk::make_collection(&path, access)).await;
    answer(r, done, 201)
}

async fn copy_or_move(r: &mut Request) -> Flow {
    if has_body(r) {
        return refused(r, 415, "COPY and MOVE with body are unsupported");
    }
    let target = match Target::of(r) {
        Ok(target) => target,
        Err((status, text)) => return refused(r, status, &text),
    };
    let from = own_path(r);
    let to = map_uri(r, &target.uri);
    let transfer = disk::Transfer {
        moves: r.method == Method::Move,
        from,
        to,
        is_collection: is_collection(r),
        overwrite: target.overwrite,
        depth: target.depth,
        access: *r.loc().conf::<DavLoc>().access,
    };
    let success = if transfer.is_collection { 201 } else { 204 };
    let done = in_thread(move || disk::transfer(transfer)).await;
    answer(r, done, success)
}
