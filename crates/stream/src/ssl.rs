//! TLS on a session's connection: the handshake, and whether the client's certificate will do.

use crate::serve::ERROR;
use crate::Session;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::tls::{self, client};
use weir_core::unknown::regex_match;
use weir_core::Session as _;

/// Does the handshake, as the address has TLS; a status ends the session.
pub(crate) async fn handshake(s: &mut Session) -> Result<(), u16> {
    let conn = Rc::clone(s.conn());
    s.doing = "SSL handshaking";
    let deadline = conn.start_ms + s.server().base.handshake_timeout_ms;
    if s.server().base.tcp_nodelay {
        conn.set_nodelay();
    }
    // Behind `pass` it may have been done by the server in front.
    if !conn.stream.is_tls() {
        let read = std::mem::take(&mut s.buf);
        if let Err(text) = tls::secure(&conn, read, deadline).await {
            if let Some(text) = text {
                s.log(LogLevel::Info, &text);
            }
            return Err(ERROR);
        }
    }
    named(s)?;
    s.doing = "verifying client certificate";
    verify(s)
}

/// The server is that of the name that the client has asked for.
fn named(s: &mut Session) -> Result<(), u16> {
    let conn = Rc::clone(s.conn());
    if let Some(name) = conn.secure.get().and_then(|secure| secure.name.as_deref()) {
        choose_server(s, name);
        if s.match_failed() {
            return Err(ERROR);
        }
    }
    Ok(())
}

impl Session {
    /// TLS on a connection that has spoken without; `read` is what of it has been read already, and the deadline is in
    /// monotonic ms. What is not as it should be is logged.
    ///
    /// # Errors
    ///
    /// There is no TLS, or the client is refused.
    pub async fn secure(&mut self, read: Vec<u8>, deadline: u64) -> Result<(), ()> {
        let conn = Rc::clone(self.conn());
        if let Err(text) = tls::secure(&conn, read, deadline).await {
            let text = text.unwrap_or_else(|| "client closed connection in SSL handshake".into());
            self.log(LogLevel::Info, &text);
            return Err(());
        }
        named(self).and_then(|()| verify(self)).map_err(|_| ())
    }
}

/// The server that has a name, where several share the address: that of a hello which is answered here, or was
/// only looked at. One whose expression has matched has what that captured.
pub(crate) fn choose_server(s: &mut Session, name: &[u8]) {
    let Some(name) = tls::host_name(name) else { return };
    let (conn, gen) = (Rc::clone(s.conn()), Rc::clone(s.gen()));
    let addr = conn.addr(&gen.core);
    if let Some(id) = addr.names.get(&name) {
        return s.set_server(*id);
    }
    for (regex, id, vars) in &addr.regexes {
        match regex_match(s, regex, vars, &name) {
            Ok(true) => return s.set_server(*id),
            Ok(false) => {}
            // That is noted on the session.
            Err(_) => return,
        }
    }
}

fn verify(s: &mut Session) -> Result<(), u16> {
    match client::refusal(s.conn(), &s.gen().core, &s.server().base) {
        None | Some(client::Refusal::Unasked) => Ok(()),
        Some(refusal) => {
            s.log(LogLevel::Info, &refusal.text());
            Err(ERROR)
        }
    }
}
