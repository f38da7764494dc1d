//! What a client sends before its request, however much, takes no more memory than a little.

use std::time::{Duration, Instant};
use weir_tests::{skip, Client, Server};

const MIB: u64 = 1 << 20;
/// What is sent, and what the server may grow by meanwhile.
const SENT_BYTES: usize = 48 << 20;
const GROWTH_MAX_BYTES: u64 = 8 * MIB;

/// Sends the piece again and again until it is enough or the server closes, which is fine too.
fn flood(client: &mut Client, piece: &[u8]) {
    let patience = Duration::from_secs(60);
    let start = Instant::now();
    let mut sent = 0;
    while sent < SENT_BYTES && start.elapsed() < patience && client.try_send(piece) {
        sent += piece.len();
    }
}

/// The growth of a server by floods of `piece` behind `first`, on each of its ports.
fn check(server: &Server, port: usize, first: &[u8], piece: &[u8]) {
    let Some(before) = server.memory() else { return skip("the system has no /proc") };
    let mut client = server.on(port).connect();
    client.send(first);
    flood(&mut client, &piece.repeat(65536 / piece.len()));
    let growth = server.memory_growth(before);
    assert!(growth < GROWTH_MAX_BYTES, "grew by {growth} bytes");
}

const PLAIN: &str = "worker_processes 1; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
    client_header_timeout 120s; location / { return 200 ok; } } }";

#[test]
fn blank_lines() {
    for piece in ["\r\n", "\n", "\r"] {
        let server = Server::start(PLAIN);
        check(&server, 0, b"", piece.as_bytes());
    }
}

#[test]
fn blank_lines_after_a_request() {
    let server = Server::start(PLAIN);
    check(&server, 0, b"GET / HTTP/1.1\r\nHost: a\r\n\r\n", b"\r\n");
}

#[test]
fn a_request_after_many_blank_lines() {
    let server = Server::start(PLAIN);
    let mut client = server.on(0).connect();
    for _ in 0..10 {
        client.send(&b"\r\n".repeat(100_000));
        assert_eq!(client.get("/").text(), "ok");
    }
}
