//! The body of a request that came by a connection: the bytes behind its head.

use crate::body::BodyError;
use crate::request::Request;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::ConnError;
use weir_core::Session;
use weir_runtime::clock;

/// Bytes asked of the socket at once.
const READ_ROOM_BYTES: usize = 16 * 1024;

/// Waits for more of the body.
pub(crate) async fn fill(r: &mut Request, timeout_ms: u64) -> Result<(), BodyError> {
    let conn = Rc::clone(r.conn());
    let deadline = clock::mono_ms() + timeout_ms;
    let read = conn.read(&mut r.body.pending, READ_ROOM_BYTES, deadline).await;
    if !matches!(read, Ok(n) if n > 0) {
        r.flags.keepalive = false;
    }
    match read {
        Ok(n) if n > 0 => Ok(()),
        Err(ConnError::Timeout) => {
            conn.timed_out.set(true);
            Err(BodyError::Status(408))
        }
        Ok(_) => Err(cut(r)),
        Err(ConnError::Io(e)) => {
            let why = weir_conf::messages::os_error(&e);
            r.log(LogLevel::Info, &format!("recv() failed ({why}){}", doing(r)));
            Err(cut(r))
        }
    }
}

/// The client is gone, or says no more: there is nobody to answer. A body that is thrown away may end
/// so without a word.
fn cut(r: &Request) -> BodyError {
    if !r.flags.discard_body {
        r.log(LogLevel::Info, &format!("client prematurely closed connection{}", doing(r)));
    }
    r.conn().broken.set(true);
    BodyError::Status(400)
}

/// nginx's words for what it reads the body for.
fn doing(r: &Request) -> &'static str {
    match r.has_upstream() {
        true => " while sending request to upstream",
        false => "",
    }
}
