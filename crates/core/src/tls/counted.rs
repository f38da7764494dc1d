//! What is counted of clients' handshakes: by the server that their hello asks for, and all together.

use super::{client, Failure, LATE};
use crate::connection::Connection;
use crate::counts::{Handshakes, Near, OfTls};
use crate::figures::Figures;
use crate::generation::{AddrConf, WorkerGen};
use std::rc::Rc;
use std::sync::OnceLock;
use weir_runtime::clock;

/// Those of all servers.
fn all() -> &'static Near<OfTls> {
    static ALL: OnceLock<Near<OfTls>> = OnceLock::new();
    ALL.get_or_init(|| Near::named("tls", b""))
}

/// Notes those of all servers.
pub fn put(figures: &mut Figures) {
    Handshakes::put(all().all(), |part| &part.0, figures);
}

/// One is over.
pub(super) fn handshake(
    conn: &Rc<Connection>,
    gen: &WorkerGen,
    addr: &AddrConf,
    done: &Result<(), Failure>,
    begun_us: u64,
) {
    let secure = conn.secure.get();
    let id = secure.and_then(|secure| secure.server(&gen.shared, addr).ok().flatten());
    let server = conn.server(&gen.shared, id.unwrap_or(addr.default));
    let of_server = server.handshakes.as_ref().and_then(|near| near.part(&conn.worker));
    for part in all().part(&conn.worker).into_iter().chain(of_server) {
        let counts = part.get();
        match done {
            Ok(()) => {
                let took_us = clock::mono_us().saturating_sub(begun_us);
                if let Some(tls) = conn.stream.tls() {
                    tls.with(|tls| counts.succeeded(tls, took_us));
                }
                if let Some(why) = client::unverified(conn, &gen.shared, server) {
                    counts.unverified(why);
                }
            }
            Err(failure) if failure.text.starts_with(LATE) => counts.timed_out(),
            Err(failure) => counts.failed(failure.why.as_ref()),
        }
    }
}
