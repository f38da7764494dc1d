//! Connections that serve more than one request.

use std::time::Duration;
use weir_tests::Server;

const CONF: &str = "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
    keepalive_requests 4; location / { return 200 '$connection_requests '; } } }";

#[test]
fn requests_follow_one_another_until_the_limit() {
    let server = Server::start(CONF);
    let mut client = server.connect();
    for n in 1..4 {
        let response = client.get("/");
        assert_eq!(response.text(), format!("{n} "));
        assert_eq!(response.header("Connection"), Some("keep-alive"));
    }
    let last = client.get("/");
    assert_eq!((last.text().as_str(), last.header("Connection")), ("4 ", Some("close")));
    assert!(client.is_closed());
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 200 $uri; } }",
    );
    let mut client = server.connect();
    let one = |n: usize| format!("GET /{n} HTTP/1.1\r\nHost: a\r\n\r\n");
    let all: String = (0..50).map(one).collect();
    let (head, tail) = all.split_at(all.len() - 10);
    client.send(head.as_bytes());
    assert_eq!(client.response().text(), "/0");
    client.send(tail.as_bytes());
    for n in 1..50 {
        assert_eq!(client.response().text(), format!("/{n}"));
    }
}

#[test]
fn the_version_and_the_client_decide() {
    let server = Server::start(CONF);
    for (head, kept) in [
        ("HTTP/1.1\r\nHost: a", true),
        ("HTTP/1.1\r\nHost: a\r\nConnection: close", false),
        ("HTTP/1.1\r\nHost: a\r\nConnection: x, CLOSE", false),
        ("HTTP/1.0", false),
        ("HTTP/1.0\r\nConnection: Keep-Alive", true),
    ] {
        let mut client = server.connect();
        client.send(format!("GET / {head}\r\n\r\n").as_bytes());
        let response = client.response();
        let said = response.header("Connection");
        assert_eq!(said, Some(if kept { "keep-alive" } else { "close" }), "{head}");
        assert_eq!(client.is_silent(Duration::from_millis(50)), kept, "{head}");
    }
}

#[test]
fn an_idle_connection_is_closed_and_says_when() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { keepalive_timeout 1s 7s; return 200 ok; }
            location /off { keepalive_timeout 0; return 200 ok; } } }",
    );
    let mut client = server.connect();
    assert_eq!(client.get("/").header("Keep-Alive"), Some("timeout=7"));
    assert!(client.is_silent(Duration::from_millis(300)));
    assert!(client.is_closed());
    let mut client = server.connect();
    assert_eq!(client.get("/off").header("Connection"), Some("close"));
    assert!(client.is_closed());
}

#[test]
fn a_bad_request_ends_the_connection() {
    let server = Server::start(CONF);
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\n\r\nBAD\r\n\r\n");
    assert_eq!(client.response().status, 200);
    let bad = client.response();
    assert_eq!((bad.status, bad.header("Connection")), (400, Some("close")));
    assert!(client.is_closed());
}
