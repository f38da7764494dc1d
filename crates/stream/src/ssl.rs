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
    let read = std::mem::take(&mut s.buf);
    let deadline = conn.start_ms + s.server().base.handshake_timeout_ms;
    if s.server().base.tcp_nodelay {
        conn.set_nodelay();
    }
    if let Err(text) = tls::secure(&conn, read, deadline).await {
        if let Some(text) = text {
            s.log(LogLevel::Info, &text);
        }
        return Err(ERROR);
    }
    choose_server(s);
    s.doing = "verifying client certificate";
    verify(s)
}

/// The server whose name the hello asked for.
fn choose_server(s: &mut Session) {
    let id = s.conn().default_server(&s.gen().core);
    if id != s.server().id {
        s.set_server(id);
    }
    take_captures(s, id);
}

/// What an expression that has chosen the server captures.
fn take_captures(s: &mut Session, id: usize) {
    let (conn, gen) = (Rc::clone(s.conn()), Rc::clone(s.gen()));
    let addr = conn.addr(&gen.core);
    let Some(name) = conn.secure.get().and_then(|secure| secure.name.as_deref()) else { return };
    let name = name.to_ascii_lowercase();
    if addr.regexes.is_empty() || addr.names.get(&name).is_some() {
        return;
    }
    for (regex, _, vars) in addr.regexes.iter().filter(|(_, server, _)| *server == id) {
        // One that cannot tell is noted on the session.
        if let Ok(true) | Err(_) = regex_match(s, regex, vars, &name) {
            return;
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
