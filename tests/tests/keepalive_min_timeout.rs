//! `keepalive_min_timeout`: a client that may just be sending is not closed on.

use weir_tests::{Setup, Signal};

#[test]
fn an_idle_connection_outlives_the_beginning_of_the_end() {
    let mut server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { return 200 ok; }
            location /least { keepalive_min_timeout 30s; return 200 ok; } } }",
    )
    .start();
    let (mut plain, mut least) = (server.connect(), server.connect());
    assert_eq!(plain.get("/").status, 200);
    assert_eq!(least.get("/least").status, 200);
    server.signal(Signal::Quit);
    assert!(plain.is_closed());
    assert_eq!(least.get("/").status, 200);
    assert!(least.is_closed());
    server.wait_exit();
}
