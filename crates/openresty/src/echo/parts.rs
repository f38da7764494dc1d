//! Subrequests: their answers stand in the answer where they were asked for.

use super::run::Run;
use super::vars::shared;
use super::{Ask, AskBody};
use std::cell::Cell;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use weir_core::temp::TempFile;
use weir_core::Session;
use weir_http::body::RequestBody;
use weir_http::module::Flow;
use weir_http::subrequest::{self, Output};
use weir_http::symlinks::{self, Guard};
use weir_http::{Buf, Chain, Request};
use weir_runtime::paths;
use weir_wire::http1::request::Method;
use weir_wire::http1::uri::unsafe_uri;
use weir_wire::Range32;

/// So many run at once; what follows waits for the next one's end.
const RUNNING_MAX: usize = 32;

pub(super) async fn run(run: &mut Run<'_>, ask: &Ask) -> Result<(), Flow> {
    // A part has the body that its request has read.
    run.read_body().await?;
    let target = run.r.eval(&ask.uri);
    let given = ask.args.as_ref().map(|args| run.r.eval(args));
    let mut path = Vec::new();
    let Ok(own) = unsafe_uri(&target, &mut path) else {
        return Err(run.refuse(&ask.name, &target, 500));
    };
    let args = given.as_deref().or(own).unwrap_or_default();
    let body = body_of(run, ask)?;
    run.begin()?;
    if run.r.flags.header_only {
        return Ok(());
    }
    // What filters put before the body stands before the part.
    let nothing = Buf { flush: false, ..Buf::flush() };
    run.r.output(Chain::one(nothing)).map_err(|_| Flow::Close)?;
    let shared = shared(run.r);
    let part = subrequest::new(run.r, &path, args, Output::Place);
    let mut part = part.ok_or(Flow::Close)?;
    part.keep_state(shared);
    part.values.clear();
    part.values.is_computed = true;
    if let Some(method) = &ask.method {
        let method = run.r.eval(method);
        set_method(&mut part, &method);
    }
    if let Some(body) = body {
        let length = body.length.to_string();
        part.remove_fields_in(|name| name.eq_ignore_ascii_case(b"Transfer-Encoding"));
        part.set_field_in(b"Content-Length", length.as_bytes(), false);
        part.body = body;
    }
    let is_crowded = subrequest::is_crowded(run.r) || run.r.running_parts() >= RUNNING_MAX;
    match ask.waits || is_crowded {
        true => start_and_wait(run.r, part).await,
        false => {
            subrequest::start(run.r, part, None);
            Ok(())
        }
    }
}

/// The body that a part is given instead of its request's.
fn body_of(run: &mut Run<'_>, ask: &Ask) -> Result<Option<RequestBody>, Flow> {
    match &ask.body {
        None => Ok(None),
        Some(AskBody::Text(text)) => {
            let text = run.r.eval(text);
            Ok((!text.is_empty()).then(|| RequestBody::made(text, None)))
        }
        Some(AskBody::File(path, prefix)) => {
            let mut path = run.r.eval(path);
            if path.is_empty() {
                return Ok(None);
            }
            if !paths::is_whole(&path) {
                path.splice(..0, [prefix, &b"/"[..]].concat());
            }
            let opened = open(run.r, &path);
            opened.map(Some).map_err(|e| {
                let (shown, why) = (paths::path(&path), weir_conf::messages::os_error(&e));
                run.fail(&format!("open() \"{}\" failed ({why})", shown.display()), 500)
            })
        }
    }
}

fn open(r: &mut Request, path: &[u8]) -> std::io::Result<RequestBody> {
    // To open what is no file may take for ever.
    if !symlinks::metadata(r, path)?.is_file() {
        return Err(std::io::ErrorKind::InvalidInput.into());
    }
    let file = match Guard::of(r, path) {
        Some(guard) => guard.open(path)?,
        None => std::fs::File::open(paths::path(path))?,
    };
    let meta = file.metadata()?;
    let file = Rc::new(TempFile::lent(file, paths::path(path).into()));
    Ok(RequestBody::made(Vec::new(), Some((file, meta.len()))))
}

fn set_method(part: &mut Request, name: &[u8]) {
    part.method = Method::from_bytes(name);
    part.flags.header_only = part.method == Method::Head;
    if part.method == Method::Other {
        // Only its head has the name of one that is not known by number.
        let start = part.buf.len() as u32;
        part.buf.extend_from_slice(name);
        part.head.method = Method::Other;
        part.head.method_span = Range32 { start, end: part.buf.len() as u32 };
    }
}

/// Lets a part run, and what it puts out leave, until it has ended.
async fn start_and_wait(r: &mut Request, part: Box<Request>) -> Result<(), Flow> {
    let ended = Rc::new(Cell::new(false));
    let told = Rc::clone(&ended);
    let tell = move |_: &mut Request, _: Box<Request>| {
        told.set(true);
        Ok(())
    };
    subrequest::start(r, part, Some(Box::new(tell)));
    while !ended.get() {
        let mut going = pin!(r.drain_on(0));
        let done = poll_fn(|cx| match going.as_mut().poll(cx) {
            Poll::Pending if !ended.get() => Poll::Pending,
            Poll::Pending => Poll::Ready(Ok(())),
            Poll::Ready(done) => Poll::Ready(done),
        });
        done.await.map_err(|_| Flow::Close)?;
    }
    Ok(())
}
