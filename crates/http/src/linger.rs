//! Waiting for what a client still sends, so that it can read its answer.

use crate::generation::Location;
use std::rc::Rc;
use weir_core::Connection;
use weir_runtime::clock;

/// Read at once.
const ROOM_BYTES: usize = 4096;

/// Half-closes and reads what the client still sends, so that it can read the answer.
pub(crate) async fn linger(conn: &Connection, loc: Rc<Location>) {
    let core = &loc.core;
    conn.end_sending();
    let end = clock::mono_ms() + *core.lingering_time;
    let mut buf = Vec::new();
    loop {
        let now = clock::mono_ms();
        if now >= end {
            return;
        }
        let deadline = (now + *core.lingering_timeout).min(end);
        buf.clear();
        match conn.read(&mut buf, ROOM_BYTES, deadline).await {
            Ok(n) if n > 0 => continue,
            _ => return,
        }
    }
}
