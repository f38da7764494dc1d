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

#[test]
fn a_reload_ends_old_requests_after_a_time() {
    let origin = weir_tests::Origin::start_raw(|conn, _| {
        conn.read_until(b"\r\n\r\n");
        conn.write("HTTP/1.1 101 Switching\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n");
        conn.wait_closed();
    });
    let conf = "events {} worker_shutdown_timeout 20ms;
        http { server { listen 127.0.0.1:%%PORT_0%%; location /page { return 200 WORD; }
            location / { proxy_pass http://%%ORIGIN%%; proxy_http_version 1.1;
                proxy_set_header Upgrade x; proxy_set_header Connection upgrade; } } }"
        .replace("%%ORIGIN%%", &origin.address());
    let mut server = Setup::new(&conf.replace("WORD", "old")).start();
    let mut tunnel = server.connect();
    tunnel.send(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
    tunnel.read_until(b"\r\n\r\n");
    let peer = server.on(0);
    server.reload(&conf.replace("WORD", "new"), || peer.get("/page").text() == "new");
    assert!(tunnel.is_closed());
}
