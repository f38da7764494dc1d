//! Which server a request is for: by address, then by name.

use crate::conn::Connection;
use crate::generation::AddrConf;
use crate::request::Request;
use std::rc::Rc;
use weir_core::unknown::regex_match;
use weir_script::regex::MatchError;

/// Chooses among the servers of the connection's address by the request's host.
pub fn select(conn: &Connection, r: &mut Request) {
    let gen = Rc::clone(r.gen());
    let listen = &gen.shared.listens[conn.listen.get()];
    let addr = listen.choose(|| conn.local_addr());
    if r.host.is_empty() && addr.names.is_empty() {
        return;
    }
    let id = by_name(r, addr, conn.default_server_of(&gen).id);
    if id != r.server().id {
        r.set_server(Rc::clone(&gen.servers[id]));
    }
}

/// The server that has a name, by whatever kind of name.
///
/// # Errors
///
/// An expression could not tell whether the name is its.
pub fn of_name(addr: &AddrConf, name: &[u8]) -> Result<Option<usize>, MatchError> {
    if let Some(id) = addr.names.get(name) {
        return Ok(Some(*id));
    }
    for (regex, id, _) in &addr.regexes {
        if regex.is_match(name)? {
            return Ok(Some(*id));
        }
    }
    Ok(None)
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
