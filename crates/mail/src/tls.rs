//! TLS on a session's connection: the handshake, and whether the client's certificate will do.

use crate::Session;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::tls::{self, client};
use weir_core::Session as _;

/// Does the handshake; what was read already is part of it. An error has the words that the client is told
/// before the session ends, if there are any.
pub(crate) async fn begin(
    s: &mut Session,
    read: Vec<u8>,
    deadline: u64,
) -> Result<(), &'static [u8]> {
    let conn = Rc::clone(s.conn());
    // Behind `pass` it may have been done by the server in front.
    if !conn.stream.is_tls() {
        if let Err(text) = tls::secure(&conn, read, deadline).await {
            if let Some(text) = text {
                s.log(LogLevel::Info, &text);
            }
            return Err(b"");
        }
    }
    let Some(refusal) = client::refusal(&conn, &s.gen().core, s.base()) else { return Ok(()) };
    s.log(LogLevel::Info, &refusal.text());
    let protocol = s.server().settings.protocol;
    Err(match refusal {
        client::Refusal::Missing => protocol.no_certificate(),
        client::Refusal::Bad(_) | client::Refusal::Unasked => protocol.certificate_error(),
    })
}
