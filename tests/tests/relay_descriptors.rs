//! Bytes that a client does not take hold its session's two sockets, and no further descriptor: otherwise
//! slow clients use up those that `worker_connections` counts on.

use weir_tests::{expect_soon, Origin, Setup};

const SESSIONS: usize = 30;
/// Of the worker itself, whatever the number of sessions.
const OWN: usize = 6;
const BYTES: usize = 6 * 1024 * 1024;

#[test]
fn clients_that_take_nothing_hold_two_descriptors_each() {
    let origin = Origin::start_raw(|conn, _| {
        conn.try_write(&vec![b'x'; BYTES]);
    });
    let server = Setup::new(
        "worker_processes 1; events {} stream {
            server { listen 127.0.0.1:%%PORT_0%% sndbuf=64k; proxy_pass 127.0.0.1:%%ORIGIN%%; } }",
    )
    .set("ORIGIN", origin.port())
    .start();
    let before = server.descriptors();
    let mut clients: Vec<_> = (0..SESSIONS).map(|_| server.on(0).connect()).collect();
    for client in &mut clients {
        // It takes enough for the sender to be one with much to send, and then nothing.
        assert!(client.read_exactly(BYTES / 4).is_some());
    }
    let most = before + 2 * SESSIONS + OWN;
    let mut now = 0;
    expect_soon("sessions that are blocked", || {
        now = server.descriptors();
        now >= before + 2 * SESSIONS
    });
    assert!(now <= most, "{now} descriptors, of {before} before {SESSIONS} sessions");
    for mut client in clients {
        assert_eq!(client.read_to_end().len(), BYTES - BYTES / 4);
    }
}
