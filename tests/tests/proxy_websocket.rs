//! Connections that leave HTTP behind.

use weir_tests::{Origin, Setup};

#[test]
fn an_upgraded_connection_is_a_tunnel() {
    let origin = Origin::start_raw(|conn, _| {
        let Some(head) = conn.read_until(b"\r\n\r\n") else { return };
        assert!(String::from_utf8_lossy(&head).contains("Upgrade: echo\r\n"));
        conn.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nhello",
        );
        let Some(ping) = conn.read_until(b"ping") else { return };
        conn.write(ping);
        conn.write(" pong");
        conn.wait_closed();
    });
    let server = Setup::new(
        "events {} http { access_log %%DIR%%/access.log; server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%O%%; proxy_http_version 1.1;
                proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; } } }",
    )
    .set("O", origin.address())
    .start();
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n");
    let head = client.read_until(b"\r\n\r\n");
    assert!(head.starts_with(b"HTTP/1.1 101 Switching Protocols\r\n"));
    assert!(String::from_utf8_lossy(&head).contains("Upgrade: echo\r\n"));
    assert_eq!(client.read_until(b"hello"), b"hello");
    client.send(b"raw \0 bytes, then ping");
    assert_eq!(client.read_until(b"pong"), b"raw \0 bytes, then ping pong");
    drop(client);
    assert!(server.log_lines("access.log", 1)[0].contains("\" 101 "));
}

/// nginx passes the switch on, and the client's next request with it.
#[test]
fn a_switch_that_nobody_asked_for_is_refused_with_all_its_fields() {
    if weir_tests::binary().ends_with("nginx") {
        return weir_tests::skip("nginx passes it on");
    }
    let origin = Origin::replying("HTTP/1.1 101 Switching\r\nUpgrade: x\r\nX-A: b\r\n\r\nhello");
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://%%O%%; } } }",
    );
    let server = server.set("O", origin.address()).start();
    let answer = server.get("/");
    assert_eq!(answer.status, 502);
    assert_eq!((answer.header("Upgrade"), answer.header("X-A")), (None, None));
}
