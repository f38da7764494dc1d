//! Servers that the API puts are checked at once, not at the next look around.

use std::time::{Duration, Instant};
use weir_tests::figures::{number, part};
use weir_tests::{expect_soon, Origin, Server, Setup};

const CONF: &str = "worker_processes 1; events {} http {
    upstream u { zone u 64k; server %%A%%; }
    server { listen 127.0.0.1:%%PORT_0%%;
        location / { proxy_pass http://u; health_check interval=1h; }
        location /api { api write=on; allow 127.0.0.1; deny all; } } }
    stream { upstream s { zone s 64k; server %%A%%; }
        server { listen 127.0.0.1:%%PORT_1%%; proxy_pass s; health_check interval=1h; } }";

/// How many checks the server of an id had.
fn checks(server: &Server, upstream: &str, id: u64) -> u64 {
    let text = server.get(&format!("/api/9/{upstream}")).text();
    let peers = part(&text, "peers");
    let own = peers.split("{\"id\":").find(|one| one.starts_with(&format!("{id},")));
    own.map_or(0, |one| number(part(one, "health_checks"), "checks"))
}

fn put(server: &Server, upstream: &str, address: &str) -> u64 {
    let body = format!("{{\"server\":\"{address}\"}}");
    let text = format!(
        "POST /api/9/{upstream}/servers HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let done = server.exchange("POST", text.as_bytes());
    assert_eq!(done.status, 201, "{}", done.text());
    number(&done.text(), "id")
}

#[test]
fn a_server_that_is_put_is_checked_at_once() {
    let origins: Vec<Origin> = (0..9).map(|_| Origin::echo()).collect();
    let server = Setup::new(CONF).set("A", origins[0].address()).start();
    for upstream in ["http/upstreams/u", "stream/upstreams/s"] {
        expect_soon("the first is checked", || checks(&server, upstream, 0) == 1);
        let begun = Instant::now();
        for origin in &origins[1..] {
            let id = put(&server, upstream, &origin.address());
            expect_soon("it is checked", || checks(&server, upstream, id) == 1);
        }
        // Looks around are half a second apart.
        assert!(begun.elapsed() < Duration::from_secs(2), "{upstream}: {:?}", begun.elapsed());
    }
}
