//! What the error log says of the end of an upgraded connection, and how grave it is.

use std::io::{Read, Write};
use std::net::TcpStream;
use weir_tests::{Conn, Origin, Server, Setup};

const SWITCHED: &str =
    "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n";

fn start(origin: &Origin) -> Server {
    let conf =
        "events {} http { error_log %%DIR%%/error.log info; server { listen 127.0.0.1:%%PORT_0%%;
        location / { proxy_pass http://%%O%%; proxy_http_version 1.1; proxy_read_timeout 9s;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }
        location /short { proxy_pass http://%%O%%; proxy_http_version 1.1; proxy_read_timeout 300ms;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; }
        location /slow { proxy_pass http://%%O%%; proxy_http_version 1.1; send_timeout 300ms;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; } } }";
    Setup::new(conf).set("O", origin.address()).start()
}

/// An origin that switches and then does that.
fn switching(then: fn(&mut Conn)) -> Origin {
    Origin::start_raw(move |conn, _| {
        if conn.read_until(b"\r\n\r\n").is_some() {
            conn.write(SWITCHED);
            then(conn);
        }
    })
}

fn upgrade(server: &Server, path: &str) -> TcpStream {
    let mut client = TcpStream::connect(("127.0.0.1", server.port(0))).unwrap();
    let head =
        format!("GET {path} HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n");
    client.write_all(head.as_bytes()).unwrap();
    let mut seen = Vec::new();
    while !seen.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        client.read_exact(&mut byte).unwrap();
        seen.extend(byte);
    }
    assert!(seen.starts_with(b"HTTP/1.1 101 "));
    client
}

/// One line about the connection, at that level.
#[track_caller]
fn only_line(server: &Server, level: &str, text: &str) {
    server.expect_error(&format!("{text} while proxying upgraded connection"));
    let log = server.error_log();
    let lines: Vec<&str> = log.lines().filter(|l| l.contains("request: ")).collect();
    assert_eq!(lines.len(), 1, "{log}");
    assert!(lines[0].contains(&format!(" [{level}] ")), "{log}");
    assert!(lines[0].contains("upstream: \"http://127.0.0.1:"), "{log}");
}

#[test]
fn one_that_is_idle_for_too_long_is_no_error() {
    let origin = switching(|conn| {
        conn.wait_closed();
    });
    let server = start(&origin);
    let mut client = upgrade(&server, "/short");
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);
    only_line(&server, "info", "upstream timed out (110: Connection timed out)");
}

#[test]
fn a_client_that_takes_nothing() {
    let origin = switching(|conn| while conn.try_write(&[b'a'; 65536]) {});
    let server = start(&origin);
    let _client = upgrade(&server, "/slow");
    only_line(&server, "info", "client timed out (110: Connection timed out)");
}

#[test]
fn a_client_that_resets() {
    let origin = switching(|conn| {
        conn.write("hello");
        conn.wait_closed();
    });
    let server = start(&origin);
    let client = upgrade(&server, "/");
    // What has come is not read: closing resets.
    assert!(client.peek(&mut [0; 5]).unwrap() > 0);
    drop(client);
    only_line(&server, "info", "recv() failed (104: Connection reset by peer)");
}

#[test]
fn a_server_that_resets_is_an_error() {
    let origin = switching(|conn| {
        conn.read_until(b"go");
        conn.will_reset();
    });
    let server = start(&origin);
    let mut client = upgrade(&server, "/");
    client.write_all(b"go").unwrap();
    let _ = client.read(&mut [0; 9]);
    let log = || server.error_log();
    weir_tests::expect_soon("the reset is told", || log().contains("proxying upgraded"));
    let text = log();
    let line = text.lines().find(|l| l.contains("proxying upgraded")).unwrap();
    assert!(line.contains(" [error] "), "{line}");
    assert!(line.contains("recv() failed (104") || line.contains("send() failed ("), "{line}");
}
