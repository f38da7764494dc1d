//! The client's body on its way to a server.

use crate::ask::BodyLength;
use crate::conf::BackendLoc;
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;
use weir_core::logger::LogLevel;
use weir_core::temp::TempFile;
use weir_core::{LocalFuture, Session};
use weir_http::body::{self, BodyError};
use weir_http::Request;
use weir_wire::http1::request::Method;

/// Read at once from a body in a file, and at most from a client that has sent much.
pub(crate) const FILE_PIECE_BYTES: usize = 64 * 1024;

/// The client's body on its way to the server.
pub(crate) enum Body {
    None,
    Memory,
    File(Rc<TempFile>),
    /// Passed on as it arrives.
    Stream,
}

/// Kept with a request whose family sends something else than the client's body, for this one request.
pub(crate) struct OwnBody;

/// The length that it has there.
pub(crate) fn length(r: &Request, conf: &BackendLoc, chunked: bool) -> BodyLength {
    if r.body.is_none() || !*conf.pass_request_body {
        return BodyLength::None;
    }
    match chunked {
        true => BodyLength::Chunked,
        false => BodyLength::Known(r.body.announced().unwrap_or(r.body.length)),
    }
}

/// Reads the client's body, unless it is to be passed on as it comes.
#[inline(never)]
pub(crate) fn take<'a>(
    r: &'a mut Request,
    conf: &'a BackendLoc,
) -> LocalFuture<'a, Result<Body, BodyError>> {
    let own = conf.own_body || r.has_ctx::<OwnBody>();
    let streamed =
        !*conf.request_buffering && !own && (conf.streams_unmeasured || !r.body.is_chunked());
    Box::pin(async move {
        if r.body.is_none() {
            return without(r, own);
        }
        match streamed && !r.body.complete {
            true if !take_what_is_there(r).await? => return Ok(Body::Stream),
            true => {}
            false => body::read_all(r).await?,
        }
        Ok(match &r.body.file {
            _ if own => Body::None,
            Some(file) => Body::File(Rc::clone(file)),
            None if r.body.memory.is_empty() => Body::None,
            None => Body::Memory,
        })
    })
}

/// For a request whose body was thrown away. Where a server has had a part of it, another that was asked to
/// do the same with nothing might take that for all: it is not asked.
fn without(r: &Request, own: bool) -> Result<Body, BodyError> {
    let wants_none = own || matches!(r.method, Method::Get | Method::Head);
    if wants_none || !r.body.is_passed_on() {
        return Ok(Body::None);
    }
    let text = "a part of the client request body has been passed on unbuffered and is not there to be sent \
                to another upstream";
    r.log(LogLevel::Error, text);
    Err(BodyError::Status(502))
}

/// Takes the part of the body that has already come; whether it is all of it.
async fn take_what_is_there(r: &mut Request) -> Result<bool, BodyError> {
    let loc = Rc::clone(r.loc());
    let most = *loc.core.client_body_buffer_size as usize;
    while r.body.memory.len() < most {
        let Some(piece) = at_once(body::next(r)).await else { return Ok(false) };
        match piece? {
            Some(bytes) => r.body.memory.extend_from_slice(&bytes),
            None => {
                r.body.complete = true;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// What is known of a body's rest when some of it has been gathered.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum More {
    /// It has ended.
    None,
    /// There may be more at hand, or the end, of which nobody else will tell: to be gathered before
    /// anything is waited for.
    AtHand,
    /// It has yet to come, and the client may send it.
    ToCome,
}

/// Adds what has already come of the body, and is passed on, up to the size of a piece.
pub(crate) async fn gather(r: &mut Request, bytes: &mut Vec<u8>) -> Result<More, BodyError> {
    let most = *r.loc().core.client_body_buffer_size as usize;
    let most = most.clamp(1, FILE_PIECE_BYTES);
    while bytes.len() < most {
        match at_once(body::next_to_pass_on(r)).await {
            None => return Ok(More::ToCome),
            Some(more) => match more? {
                Some(more) => bytes.extend_from_slice(&more),
                None => return Ok(More::None),
            },
        }
    }
    Ok(More::AtHand)
}

/// What a future gives without waiting.
pub(crate) async fn at_once<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|cx| {
        Poll::Ready(match work.as_mut().poll(cx) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        })
    })
    .await
}
