//! Whom code runs for, and where: requests in locations of `http`, sessions at servers of `stream`.

use crate::conf::{LuaLoc, Outer};
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::Virtual;
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::{Connection, Session as _};
use weir_http::generation::Location;
use weir_http::Request;
use weir_resolve::Resolver;
use weir_stream::Session;

/// The block of the configuration that code stands in. Each has states of its own, and dictionaries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Block {
    Http,
    Stream,
}

/// Whose settings are in force.
#[derive(Clone)]
pub(crate) enum Site {
    Location(Rc<Location>),
    Server(Arc<Virtual>),
    /// The block's own: of workers that begin, and of their timers.
    Outer(Arc<Outer>),
}

impl Site {
    pub(crate) fn conf(&self) -> &LuaLoc {
        match self {
            Site::Location(loc) => loc.conf(),
            Site::Server(server) => server.conf(),
            Site::Outer(outer) => &outer.conf,
        }
    }

    pub(crate) fn error_log(&self) -> &ErrorLog {
        match self {
            Site::Location(loc) => &loc.error_log,
            Site::Server(server) => &server.error_log,
            Site::Outer(outer) => &outer.error_log,
        }
    }

    /// And how long it may take, in milliseconds.
    pub(crate) fn resolver(&self) -> Option<(Arc<Resolver>, u64)> {
        match self {
            Site::Location(loc) => {
                let core = &loc.core;
                Some(((*core.resolver).as_ref().map(Arc::clone)?, *core.resolver_timeout))
            }
            Site::Server(server) => {
                Some((server.resolver.as_ref().map(Arc::clone)?, server.resolver_timeout_ms))
            }
            Site::Outer(outer) => outer.resolver.clone(),
        }
    }
}

/// Whom an entry is for.
pub(crate) enum Who<'a> {
    /// Timers, handshakes, workers.
    Nobody,
    Request(&'a mut Request),
    Session(&'a mut Session),
}

impl Who<'_> {
    /// The same for a shorter time.
    pub(crate) fn again(&mut self) -> Who<'_> {
        match self {
            Who::Nobody => Who::Nobody,
            Who::Request(r) => Who::Request(r),
            Who::Session(s) => Who::Session(s),
        }
    }

    pub(crate) fn log(&self, level: LogLevel, text: &str) {
        match self {
            Who::Nobody => {}
            Who::Request(r) => r.log(level, text),
            Who::Session(s) => s.log(level, text),
        }
    }

    /// Whether its client's going is watched for.
    pub(crate) fn checks_abort(&self) -> bool {
        match self {
            Who::Nobody => false,
            Who::Request(r) => *r.loc().conf::<LuaLoc>().check_client_abort,
            Who::Session(s) => *s.base().conf::<LuaLoc>().check_client_abort && !s.conn().is_udp(),
        }
    }
}

/// What lines of the log say of who has come by a connection.
pub(crate) fn came_by(conn: &Connection, client: &[u8]) -> Rc<[u8]> {
    let mut text = b", client: ".to_vec();
    text.extend_from_slice(client);
    text.extend_from_slice(b", server: ");
    let (gen, listen) = conn.came_by();
    if let Some(listen) = gen.shared.listens.get(listen) {
        text.extend_from_slice(listen.addr.to_string().as_bytes());
    }
    text.into()
}
