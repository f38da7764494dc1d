//! What a client sends before its request, however much, takes no more memory than a little.

use std::time::{Duration, Instant};
use weir_tests::tls::self_signed;
use weir_tests::{skip, Client, Server, Setup};

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

const PROXIED: &str = "worker_processes 1; events {} http { server {
    listen 127.0.0.1:%%PORT_0%% proxy_protocol; client_header_timeout 120s; } }";

#[test]
fn proxy_protocol_headers() {
    let v2 = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\xff\xff";
    let firsts: [(&[u8], &[u8]); 3] = [(b"PROXY ", b"1"), (b"PROXY UNKNOWN", b" "), (v2, b"\0")];
    for (first, piece) in firsts {
        check(&Server::start(PROXIED), 0, first, piece);
    }
}

#[test]
fn tls_hellos() {
    let pair = self_signed("localhost");
    let server = Setup::new(
        "worker_processes 1; events {} http { server { listen 127.0.0.1:%%PORT_0%% ssl;
            ssl_certificate %%DIR%%/cert; ssl_certificate_key %%DIR%%/key;
            client_header_timeout 120s; } }",
    )
    .file("cert", pair.cert)
    .file("key", pair.key)
    .start();
    // A hello that says it is 16 MB long, in records of its own; empty records; no record at all.
    let record = [&[22, 3, 1, 64, 0][..], &[0; 16384]].concat();
    check(&server, 0, &[22, 3, 1, 0, 4, 1, 255, 255, 255], &record);
    check(&server, 0, b"", &[22, 3, 1, 0, 0]);
    check(&server, 0, &[22], &[255]);
}

#[test]
fn http2_prefaces_and_frames() {
    let conf = PLAIN.replace("server {", "server { http2 on;");
    for piece in [&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"[..], b"PRI * HTTP/2.0\r\n", b"\r\n"] {
        check(&Server::start(&conf), 0, b"", piece);
    }
    let preface = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
    // HEADERS without an end, then CONTINUATION; frames of an unknown kind; DATA of no stream.
    let begun = [&preface[..], b"\0\0\0\x01\0\0\0\0\x01"].concat();
    check(&Server::start(&conf), 0, &begun, b"\0\0\x08\x09\0\0\0\0\x01AAAAAAAA");
    check(&Server::start(&conf), 0, preface, b"\0\0\x08\x7f\0\0\0\0\x01AAAAAAAA");
    check(&Server::start(&conf), 0, preface, b"\0\0\x08\0\0\0\0\0\x01AAAAAAAA");
}

#[test]
fn heads_and_chunks_without_end() {
    let server = Server::start(PLAIN);
    check(&server, 0, b"GET /", b"a");
    check(&server, 0, b"GET / HTTP/1.1\r\n", b"a: b\r\n");
    let chunked = b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    check(&server, 0, &[&chunked[..], b"1;"].concat(), b"x");
    check(&server, 0, &[&chunked[..], b"0\r\n"].concat(), b"a: b\r\n");
    check(&server, 0, chunked, b"1;extension\r\nx\r\n");
}
