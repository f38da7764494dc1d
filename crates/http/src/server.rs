//! Which server a request is for: by address, then by name.

use crate::generation::{Http, Location, Server};
use crate::request::Request;
use std::rc::Rc;
use weir_core::generation::AddrConf;
use weir_core::unknown::regex_match;
use weir_core::Connection;

/// The configuration for a connection's next request: the newest one, or that which the connection came to,
/// if it may not go over and ends with this request.
pub(crate) fn newest(conn: &Connection) -> Rc<Http> {
    conn.keep_up();
    Http::of(&conn.generation())
}

/// The server of a request that has not named one yet.
pub(crate) fn default_of(conn: &Connection, gen: &Http) -> Rc<Server> {
    Rc::clone(gen.server(conn.default_server(&gen.core)))
}

/// The same, by the configuration that the connection has.
pub(crate) fn default(conn: &Connection) -> Rc<Server> {
    default_of(conn, &Http::of(&conn.generation()))
}

/// The outermost location of that server.
pub(crate) fn default_location(conn: &Connection) -> Rc<Location> {
    let gen = Http::of(&conn.generation());
    Rc::clone(gen.location(default_of(conn, &gen).location))
}

/// Chooses among the servers of the connection's address by the request's host.
pub(crate) fn select(conn: &Connection, r: &mut Request) {
    let gen = Rc::clone(r.gen());
    let addr = conn.addr(&gen.core);
    // It is for the one that it has.
    if addr.names.is_empty() && (r.host.is_empty() || addr.regexes.is_empty()) {
        return;
    }
    let id = by_name(r, addr, conn.default_server(&gen.core));
    if id != r.server().id {
        r.set_server(Rc::clone(gen.server(id)));
    }
}

fn by_name(r: &mut Request, addr: &AddrConf, default: usize) -> usize {
    if let Some(id) = addr.names.get(&r.host) {
        return *id;
    }
    if r.host.is_empty() {
        return default;
    }
    for (regex, id, vars) in &addr.regexes {
        let host = std::mem::take(&mut r.host);
        let hit = regex_match(r, regex, vars, &host);
        r.host = host;
        match hit {
            Ok(true) => return *id,
            Ok(false) => {}
            // The request ends with 500.
            Err(_) => return default,
        }
    }
    default
}
