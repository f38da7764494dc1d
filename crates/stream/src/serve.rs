//! A session from its connection to its line in the log.

use crate::generation::Stream;
use crate::module::{Flow, Look, Phase, Seen};
use crate::{ssl, status_zone, Session};
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::proxy_header::{self, Taken};
use weir_core::whole::{log_connected, log_end};
use weir_core::{ConnError, Connection, Session as _};
use weir_runtime::clock;

/// The session has done what it was for.
pub(crate) const OK: u16 = 200;
pub(crate) const BAD_REQUEST: u16 = 400;
/// `$status` of a session that was refused.
pub const FORBIDDEN: u16 = 403;
pub(crate) const ERROR: u16 = 500;
pub(crate) const BAD_GATEWAY: u16 = 502;
/// `$status` of one for which there was no room, as with `limit_conn`.
pub const UNAVAILABLE: u16 = 503;

/// Serves a connection to its end, or (`true`) to where another socket of this server has it.
pub async fn serve(conn: Rc<Connection>, passes: u32) -> bool {
    let gen = Stream::of(&conn.generation());
    let default = conn.default_server(&gen.core);
    let mut s = Session::new(Rc::clone(&conn), gen, default, passes);
    log_connected(&s, &conn.socket(&s.gen().core).addr);
    if let Some(first) = conn.datagrams.get().and_then(|d| d.take()) {
        s.received = first.len() as u64;
        s.buf = first;
    }
    status_zone::begins(&mut s);
    let status = run(&mut s).await;
    status_zone::ends(&s, status);
    if let Some((listen, addr)) = s.pass_to.take().map(|to| *to) {
        s.hand_on();
        conn.pass_to(listen, addr.ip());
        return true;
    }
    if s.peeks {
        // What is left in the socket would turn its end into a reset.
        let room = *s.server().core.preread_buffer_size as usize;
        conn.try_read(&mut s.buf, room);
    }
    s.end(status);
    let server = std::sync::Arc::clone(s.server());
    for handler in &server.phases[Phase::Log as usize] {
        handler(&mut s);
    }
    conn.stream.shutdown_write();
    false
}

/// Runs the phases; answers the session's status. What waits before the content is in boxes: their room
/// is no part of a session that talks.
async fn run(s: &mut Session) -> u16 {
    let addr = s.conn().addr(&s.gen().core);
    let (is_proxied, is_tls) = (addr.proxy_protocol, addr.ssl);
    if is_proxied {
        if let Err(status) = Box::pin(read_proxy_header(s)).await {
            return status;
        }
    }
    for phase in [Phase::PostAccept, Phase::Preaccess, Phase::Access] {
        if let Some(status) = handlers(s, phase) {
            return status;
        }
    }
    if is_tls {
        if let Err(status) = Box::pin(ssl::handshake(s)).await {
            return status;
        }
    }
    if !s.server().prereaders.is_empty() {
        if let Err(status) = Box::pin(preread(s)).await {
            return status;
        }
    }
    if s.server().base.tcp_nodelay {
        s.conn().set_nodelay();
    }
    s.doing = "";
    s.is_served = true;
    match s.server().content {
        Some(content) => content(s).await,
        None => {
            s.log(LogLevel::Error, "no handler for server");
            ERROR
        }
    }
}

/// The handlers of a phase; a status ends the session.
fn handlers(s: &mut Session, phase: Phase) -> Option<u16> {
    let server = std::sync::Arc::clone(s.server());
    for handler in &server.phases[phase as usize] {
        let flow = handler(s);
        if s.match_failed() {
            return Some(ERROR);
        }
        match flow {
            Flow::Declined => {}
            Flow::Ok => break,
            Flow::Status(status) => return Some(status),
        }
    }
    None
}

async fn read_proxy_header(s: &mut Session) -> Result<(), u16> {
    s.doing = "reading PROXY protocol";
    let deadline = clock::mono_ms() + *s.server().core.proxy_protocol_timeout;
    s.peeks = !s.conn().stream.is_tls();
    let mut buf = std::mem::take(&mut s.buf);
    let taken = proxy_header::take(s, &mut buf, deadline).await;
    s.buf = buf;
    s.doing = "initializing session";
    match taken {
        Taken::Yes => Ok(()),
        Taken::Broken => Err(BAD_REQUEST),
        Taken::Ended => Err(OK),
    }
}

/// Lets those see the first bytes who want to look at them. They stay in the socket where they can, so
/// that another may have the whole connection (`pass`).
async fn preread(s: &mut Session) -> Result<(), u16> {
    let server = std::sync::Arc::clone(s.server());
    s.doing = "prereading client data";
    let deadline = clock::mono_ms() + *server.core.preread_timeout;
    s.peeks = s.buf.is_empty() && !s.conn().stream.is_tls();
    for prereader in &server.prereaders {
        match prereader.look {
            // As in nginx, nobody looks into datagrams.
            Look::AtBytes(_) if s.conn().is_udp() => {}
            Look::AtBytes(look) => {
                while s.buf.is_empty() || look(s) == Seen::More {
                    more(s, deadline).await?;
                }
            }
            Look::ByItself(run) => run(s).await?,
        }
        if s.match_failed() {
            return Err(ERROR);
        }
    }
    if s.peeks {
        s.buf = Vec::new();
    }
    Ok(())
}

/// More of the first bytes; an error is the status to end with.
async fn more(s: &mut Session, deadline: u64) -> Result<(), u16> {
    let room = *s.server().core.preread_buffer_size as usize;
    if s.buf.len() >= room {
        s.log(LogLevel::Error, "preread buffer full");
        return Err(BAD_REQUEST);
    }
    let conn = Rc::clone(s.conn());
    let left = room - s.buf.len();
    let got = match s.peeks {
        true => conn.peek(&mut s.buf, room, deadline).await,
        false => conn.read(&mut s.buf, left, deadline).await,
    };
    match got {
        Ok(0) => return Err(OK),
        Ok(n) => s.received += if s.peeks { 0 } else { n as u64 },
        // nginx goes on without a word: the client has said what it wanted to.
        Err(ConnError::Timeout) => return Err(OK),
        Err(e) => {
            log_end(s, &e);
            return Err(OK);
        }
    }
    Ok(())
}

impl Session {
    /// Waits for so many of the first bytes to be in `buf`, for who looks at them before the content.
    ///
    /// # Errors
    ///
    /// The status that the session is to end with: they do not come, or there is no room for them.
    pub async fn peek(&mut self, bytes: usize) -> Result<(), u16> {
        let deadline = clock::mono_ms() + *self.server().core.preread_timeout;
        while self.buf.len() < bytes {
            more(self, deadline).await?;
        }
        Ok(())
    }
}
