//! Static files: nginx's `ngx_http_static_module`.
//!
//! A small file is answered from memory in one write, larger ones by sendfile, or by reading
//! where `sendfile` is off or a filter needs the text.

mod pieces;

use crate::files::{Entry, FileCache, Found};
use crate::range;
use bytes::Bytes;
use pieces::Reader;
use std::fs::File;
use std::future::poll_fn;
use std::io;
use std::ops::Range;
use std::rc::Rc;
use std::task::Poll;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_core::eval::with_scratch;
use weir_core::logger::LogLevel;
use weir_core::os_text;
use weir_core::LocalFuture;
use weir_core::Session;
use weir_http::buf::Data;
use weir_http::conf::Aio;
use weir_http::lent::Lent;
use weir_http::location::map_uri_into;
use weir_http::module::{FilterError, Flow, HttpModule, PhaseHandler};
use weir_http::request::Whole;
use weir_http::special;
use weir_http::symlinks::Guard;
use weir_http::{Buf, Chain, Phase, Request};
use weir_runtime::event_loop::yield_now;
use weir_runtime::turns;
use weir_wire::http1::request::Method;

pub const MODULE: HttpModule = HttpModule {
    phases: &[PhaseHandler { phase: Phase::Content, handler: handle, active: |_| true }],
    build: Some(|b| {
        b.main.get_mut::<Lent>().send_file = |r, buf| send_file(r, buf, false);
        Ok(())
    }),
    ..HttpModule::EMPTY
};

fn handle(r: &mut Request) -> Flow {
    if !matches!(r.method, Method::Get | Method::Head | Method::Post) {
        return Flow::Status(405);
    }
    if r.uri.last() == Some(&b'/') {
        return Flow::Declined;
    }
    with_scratch(|path| {
        let uri = std::mem::take(&mut r.uri);
        map_uri_into(r, &uri, path);
        r.uri = uri;
        answer(r, path)
    })
}

/// With what that path names.
fn answer(r: &mut Request, path: &[u8]) -> Flow {
    let loc = Rc::clone(r.loc());
    let cache = r.conn().worker.local::<FileCache>();
    match cache.find(&loc.core, path, Guard::of(r, path)) {
        Ok(Found::File(entry)) => serve(r, path, &entry),
        Ok(Found::Directory) => redirect_to_directory(r),
        Ok(Found::Other) => {
            let text = format!("\"{}\" is not a regular file", String::from_utf8_lossy(path));
            r.log(LogLevel::Crit, &text);
            Flow::Status(404)
        }
        Err(e) => open_error(r, path, &e),
    }
}

/// nginx's status and log level for a file that cannot be opened.
pub fn open_error(r: &mut Request, path: &[u8], e: &io::Error) -> Flow {
    use io::ErrorKind as K;
    let (level, status) = match e.kind() {
        K::NotFound | K::NotADirectory | K::InvalidFilename | K::InvalidInput => {
            (LogLevel::Error, 404)
        }
        K::PermissionDenied => (LogLevel::Error, 403),
        _ if weir_runtime::beneath::is_refusal(e) => (LogLevel::Error, 403),
        _ => (LogLevel::Crit, 500),
    };
    if status != 404 || *r.loc().core.log_not_found {
        let path = String::from_utf8_lossy(path);
        r.log(level, &format!("open() \"{path}\" failed ({})", os_text(e)));
    }
    Flow::Status(status)
}

fn redirect_to_directory(r: &mut Request) -> Flow {
    let mut target = Vec::with_capacity(r.uri.len() + r.args.len() + 2);
    escape_uri(&mut target, &r.uri, EscapeKind::Uri);
    target.push(b'/');
    if !r.args.is_empty() {
        target.push(b'?');
        target.extend_from_slice(&r.args);
    }
    r.out.remove(b"Location");
    special::redirect(r, 301, &target)
}

/// Sends a file that was found.
fn serve(r: &mut Request, path: &[u8], entry: &Rc<Entry>) -> Flow {
    if r.method == Method::Post {
        return Flow::Status(405);
    }
    if let Err(flow) = weir_http::body::discard(r) {
        return flow;
    }
    special::set_content_type(r);
    send_entry(r, path, entry)
}

fn send_entry(r: &mut Request, path: &[u8], entry: &Rc<Entry>) -> Flow {
    describe(r, entry);
    send_body(r, path, entry)
}

/// The fields of a file's answer; used by `gzip_static` too.
pub fn describe(r: &mut Request, entry: &Entry) {
    let loc = Rc::clone(r.loc());
    r.out.status = 200;
    r.out.content_length = Some(entry.stamp.size);
    r.out.last_modified = Some(entry.stamp.mtime);
    if *loc.core.etag {
        r.out.add(b"ETag", &entry.etag);
    }
}

/// The header as it is now and the file.
pub fn send_body(r: &mut Request, path: &[u8], entry: &Rc<Entry>) -> Flow {
    r.flags.allow_ranges = true;
    if let Some(text) = &entry.memory {
        let forms = std::sync::Arc::clone(&entry.forms);
        r.whole = Some(Whole { text: text.clone(), forms });
        return special::finish(r, Buf::mem(text.clone()).and_last());
    }
    let file = match entry.open(path) {
        Ok(f) => f,
        Err(e) => return open_error(r, path, &e),
    };
    let direct = entry.stamp.size >= *r.loc().core.directio;
    send_file(r, Buf::file(file, 0, entry.stamp.size).and_last(), direct)
}

/// Header and body, the latter a part of a file; `direct`: past the page cache.
fn send_file(r: &mut Request, buf: Buf, direct: bool) -> Flow {
    let loc = Rc::clone(r.loc());
    if sends_itself(r) && !direct && loc.plan.body_filters.is_empty() {
        return special::finish(r, buf);
    }
    r.set_ctx(Pending { body: Body::Whole(buf), direct });
    Flow::Wait(read_and_send)
}

/// Takes a request for a file that is sent in parts: GET and HEAD, not of a directory, and without a body.
pub fn accept(r: &mut Request) -> Result<(), Flow> {
    if !matches!(r.method, Method::Get | Method::Head) {
        return Err(Flow::Status(405));
    }
    if r.uri.last() == Some(&b'/') {
        return Err(Flow::Declined);
    }
    weir_http::body::discard(r)
}

/// The file that the request's URI names, for who sends parts of it; what is no file is the next handler's.
pub fn find(r: &mut Request) -> Result<(Vec<u8>, Rc<Entry>), Flow> {
    let mut path = Vec::with_capacity(128);
    let uri = std::mem::take(&mut r.uri);
    map_uri_into(r, &uri, &mut path);
    r.uri = uri;
    let loc = Rc::clone(r.loc());
    let cache = r.conn().worker.local::<FileCache>();
    match cache.find(&loc.core, &path, Guard::of(r, &path)) {
        Ok(Found::File(entry)) => Ok((path, entry)),
        Ok(_) => Err(Flow::Declined),
        Err(e) => Err(open_error(r, &path, &e)),
    }
}

/// Sends some text, and behind it what a file holds from `start` to `end`, in bytes.
pub fn send_part(r: &mut Request, text: Option<Bytes>, file: Rc<File>, part: Range<u64>) -> Flow {
    r.flags.allow_ranges = true;
    let direct = part.end >= *r.loc().core.directio;
    let mut chain = text.map_or_else(Chain::new, |text| Chain::one(Buf::mem(text)));
    chain.push(Buf::file(file, part.start, part.end - part.start).and_last());
    r.set_ctx(Pending { body: Body::Parts(chain), direct });
    Flow::Wait(read_and_send)
}

/// Sends texts and parts of files, one behind the other; the chain ends the answer.
pub fn send_parts(r: &mut Request, chain: Chain) -> Flow {
    r.set_ctx(Pending { body: Body::Parts(chain), direct: false });
    Flow::Wait(read_and_send)
}

/// Whether the connection takes the file as it is: by sendfile, or because what encrypts reads it
/// piece by piece anyway (a read here was one more copy, and 926 us for 1 MB instead of 574).
fn sends_itself(r: &Request) -> bool {
    let core = &r.loc().core;
    *core.sendfile || (r.conn().stream.is_tls() && *core.aio != Aio::Threads)
}

/// A file that is to be read and passed through the filters.
struct Pending {
    body: Body,
    /// Past the page cache.
    direct: bool,
}

enum Body {
    /// One file, of which ranges may be wanted.
    Whole(Buf),
    Parts(Chain),
}

fn read_and_send(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        let Some(pending) = r.take_ctx::<Pending>() else { return Flow::Close };
        match r.send_header() {
            Err(FilterError::Status(s)) if !r.flags.header_sent => return Flow::Status(s),
            Err(_) => return Flow::Close,
            Ok(()) => {}
        }
        if r.flags.header_only {
            return Flow::Ok;
        }
        let sent = if sends_itself(r) && !pending.direct && !r.flags.filter_needs_memory {
            let chain = match pending.body {
                Body::Whole(buf) => Chain::one(buf),
                Body::Parts(chain) => chain,
            };
            r.output(chain).map_err(Broken::from)
        } else {
            match pending.body {
                Body::Whole(buf) => {
                    let wanted = range::wanted(r, buf);
                    send_pieces(r, wanted, pending.direct).await
                }
                Body::Parts(chain) => send_each(r, chain, pending.direct).await,
            }
        };
        match sent {
            Ok(()) => Flow::Ok,
            Err(Broken) => Flow::Close,
        }
    })
}

/// The answer cannot be ended as it was announced.
struct Broken;

impl From<FilterError> for Broken {
    fn from(_: FilterError) -> Broken {
        Broken
    }
}

/// The parts of several files.
async fn send_each(r: &mut Request, chain: Chain, past_cache: bool) -> Result<(), Broken> {
    for buf in chain {
        send_pieces(r, Chain::one(buf), past_cache).await?;
    }
    Ok(())
}

/// Reads what is in files and passes it on, no further ahead of the client than `output_buffers`.
async fn send_pieces(r: &mut Request, chain: Chain, past_cache: bool) -> Result<(), Broken> {
    let loc = Rc::clone(r.loc());
    let reader = Reader::new(&loc.core, &chain, past_cache);
    let mut reader = reader.map_err(|e| cannot_read(r, &e))?;
    let mut turn_bytes = 0;
    for mut buf in chain {
        let (Data::File { offset, len, .. }, Some(reader)) = (&buf.data, &mut reader) else {
            r.output(Chain::one(buf))?;
            continue;
        };
        let (mut at, end) = (*offset, *offset + *len);
        while at < end {
            let piece = reader.read(at, end - at).await.map_err(|e| cannot_read(r, &e))?;
            if piece.is_empty() {
                r.log(LogLevel::Alert, "the file was truncated while sent");
                return Err(Broken);
            }
            at += piece.len() as u64;
            turn_bytes += piece.len() as u64;
            let last = buf.last && at == end;
            let buf = Buf { data: Data::Mem(piece), last, flush: false };
            turns::work(|| r.output(Chain::one(buf)))?;
            make_room(r, reader, &mut turn_bytes).await?;
        }
        if *len == 0 && buf.last {
            buf.data = Data::None;
            r.output(Chain::one(buf))?;
        }
    }
    Ok(())
}

/// Waits until the client has taken enough for another buffer to be free. Filters may make little of
/// much: others have their turn by what was read, as they have it by what is sent.
async fn make_room(r: &mut Request, reader: &Reader, turn_bytes: &mut u64) -> Result<(), Broken> {
    let loc = Rc::clone(r.loc());
    let (number, size) = *loc.core.output_buffers;
    let ahead = u64::from(number - 1).saturating_mul(size);
    if reader.waits() && !r.is_limited() {
        // What is there leaves before the next piece is waited for; an error is seen below.
        let _ = poll_fn(|cx| Poll::Ready(r.poll_flush(cx))).await;
    }
    r.drain(ahead).await.map_err(|_| Broken)?;
    let turn = *loc.core.sendfile_max_chunk;
    if (turn > 0 && *turn_bytes >= turn) || turns::is_spent() {
        *turn_bytes = 0;
        yield_now().await;
    }
    Ok(())
}

fn cannot_read(r: &Request, e: &io::Error) -> Broken {
    r.log(LogLevel::Crit, &format!("reading a file failed ({})", os_text(e)));
    Broken
}
