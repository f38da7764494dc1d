//! TLS on a session's connection: the handshake, and whether the client's certificate will do.

use crate::serve::ERROR;
use crate::Session;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::tls::{self, client};
use weir_core::unknown::regex_match;
use weir_core::Session as _;
use weir_tls::server::VerifyClient;

/// Does the handshake, as the address has TLS; a status ends the session.
pub(crate) async fn handshake(s: &mut Session) -> Result<(), u16> {
    let conn = Rc::clone(s.conn());
    s.doing = "SSL handshaking";
    let read = std::mem::take(&mut s.buf);
    let Some(rest) = tls::accept(&conn, read).await else { return Err(ERROR) };
    if !conn.stream.is_tls() {
        let text =
            "SSL_do_handshake() failed (SSL: error:0A00010B:SSL routines::wrong version number)";
        s.log(LogLevel::Info, text);
        return Err(ERROR);
    }
    s.buf = rest;
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
    let verify = s.server().base.verify_client;
    if verify == VerifyClient::Off {
        return Ok(());
    }
    let refused = |why: String| format!("client SSL certificate verify error: {why}");
    let text = match client::opinion(s.conn(), &s.gen().core, &s.server().base) {
        client::Opinion::Untrusted(e)
            if verify != VerifyClient::OptionalNoCa || !e.is_unknown_issuer() =>
        {
            refused(format!("({}:{})", e.number(), e.text()))
        }
        client::Opinion::Missing if verify == VerifyClient::On => {
            "client sent no required SSL certificate".to_string()
        }
        client::Opinion::Revoked(why) => refused(why.to_string()),
        _ => return Ok(()),
    };
    s.log(LogLevel::Info, &text);
    Err(ERROR)
}
