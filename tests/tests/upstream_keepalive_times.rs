//! A kept connection to a server goes from one client's request to another's, and its times with it.

use std::time::Instant;
use weir_tests::{Origin, Setup};

#[test]
fn a_server_that_falls_silent_on_a_kept_connection_is_given_up_in_time() {
    let origin = Origin::start_raw(|conn, _| {
        conn.read_until(b"\r\n\r\n");
        conn.write("HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok");
        conn.wait_closed();
    });
    let server = Setup::new(
        "worker_processes 1; events {} http { upstream u { server %%ORIGIN%%; keepalive 4; }
            server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://u;
                proxy_http_version 1.1; proxy_set_header Connection \"\"; proxy_read_timeout 2s; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    // Who was served first stays, so that it is not its end that anybody hears of.
    let mut first = server.connect();
    assert_eq!(first.get("/1").status, 200);
    let begun = Instant::now();
    let answer = server.get("/2");
    assert_eq!((answer.status, origin.connections()), (504, 1));
    assert!(begun.elapsed().as_secs() >= 1);
}
