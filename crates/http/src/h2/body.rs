//! The body of a request that came by a stream: it ends where the stream does.

use super::conf::H2Srv;
use super::stream::Stream;
use crate::body::BodyError;
use crate::request::Request;
use std::future::poll_fn;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::ConnError;
use weir_core::Session;
use weir_runtime::clock;
use weir_wire::http2::WINDOW_MAX_BYTES;

/// The window while a body is read whole: what comes goes to memory or a file at once.
const WHOLE_WINDOW_BYTES: u32 = 2 * 1024 * 1024;

/// Waits for more of the body.
pub(crate) async fn fill(
    r: &mut Request,
    stream: &Rc<Stream>,
    timeout_ms: u64,
) -> Result<(), BodyError> {
    let deadline = clock::mono_ms() + timeout_ms;
    let window = window(r);
    let before = r.body.pending.len();
    let pending = &mut r.body.pending;
    let got = poll_fn(|cx| stream.poll_body(cx, pending, window, deadline)).await;
    match got {
        Ok(ended) => {
            r.received += (r.body.pending.len() - before) as u64;
            r.body.ended = ended;
            Ok(())
        }
        Err(ConnError::Timeout) => {
            r.log(LogLevel::Info, "client timed out (110: Connection timed out)");
            Err(BodyError::Status(408))
        }
        Err(ConnError::Io(_)) => Err(BodyError::Closed),
    }
}

fn window(r: &Request) -> u32 {
    if r.body.whole {
        return WHOLE_WINDOW_BYTES;
    }
    let preread = *r.server().conf::<H2Srv>().body_preread_size;
    let buffer = *r.loc().core.client_body_buffer_size;
    preread.max(buffer).min(u64::from(WINDOW_MAX_BYTES)) as u32
}
