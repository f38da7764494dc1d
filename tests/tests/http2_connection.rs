//! HTTP/2: the life of a connection.

use std::time::Duration;
use weir_tests::h2::{request, H2, PREFACE};
use weir_tests::{Server, Setup, Signal};
use weir_wire::http2::frame::{self, GOAWAY, PING, RST_STREAM};

const CONF: &str = "events {} http { http2 on; server { listen 127.0.0.1:%%PORT_0%%;
    keepalive_requests 3; location / { return 200 '$connection_requests'; } } }";

#[test]
fn the_last_request_is_followed_by_goaway() {
    let server = Server::start(CONF);
    let mut h2 = H2::connect(&server);
    assert_eq!((h2.fetch("/").text(), h2.fetch("/").text()), ("1".into(), "2".into()));
    let stream = h2.get("/");
    let goaway = h2.expect(GOAWAY);
    assert_eq!((frame::u32_at(&goaway.payload, 0), goaway.code()), (stream, 0));
    assert_eq!(h2.answer(stream).text(), "3");
    h2.raw.shutdown_write();
    assert!(h2.frame().is_none());
}

#[test]
fn idle_connections_are_ended_politely() {
    let server = Server::start(
        "events {} http { http2 on; keepalive_timeout 100ms; server {
            listen 127.0.0.1:%%PORT_0%%; return 200 ok; } }",
    );
    let mut h2 = H2::connect(&server);
    assert_eq!(h2.fetch("/").text(), "ok");
    assert_eq!(h2.goaway(), 0);
}

#[test]
fn the_preface_may_come_in_pieces_or_not_at_all() {
    let server = Server::start(CONF);
    let mut raw = server.connect();
    raw.send(&PREFACE[..10]);
    assert!(raw.is_silent(Duration::from_millis(50)));
    raw.send(&PREFACE[10..]);
    let mut h2 = H2::over(raw);
    assert_eq!(h2.expect(frame::SETTINGS).flags, 0);
    assert_eq!(h2.fetch("/").text(), "1");
    assert_eq!(server.on(0).status_of(b"PRI * HTTP/2.0\r\n\r\nxxxxxxxx"), 400);
    assert_eq!(server.on(0).get("/").text(), "1");
}

#[test]
fn pings_are_answered_and_unknown_frames_are_not() {
    let server = Server::start(CONF);
    let mut h2 = H2::connect(&server);
    h2.send(0x55, 3, 7, b"what is this");
    h2.send(PING, 0, 0, b"12345678");
    let pong = h2.expect(PING);
    assert_eq!((pong.flags, pong.payload.as_slice()), (1, &b"12345678"[..]));
}

#[test]
fn errors_of_the_connection_end_it() {
    let server = Server::start(CONF);
    for (kind, flags, stream, payload, code) in [
        (frame::HEADERS, 5, 2, &b"\x82"[..], 1),
        (frame::HEADERS, 5, 1, b"\xff\xff", 6),
        (frame::HEADERS, 5, 1, b"\xbf", 9),
        (frame::SETTINGS, 0, 0, b"12345", 6),
        (frame::WINDOW_UPDATE, 0, 0, b"\x7f\xff\xff\xff", 3),
        (frame::CONTINUATION, 4, 1, b"\x82", 1),
        (frame::DATA, 8, 1, b"\x07ab", 1),
    ] {
        let mut h2 = H2::connect(&server);
        h2.send(kind, flags, stream, payload);
        assert_eq!(h2.goaway(), code, "{kind} {payload:?}");
    }
}

#[test]
fn a_reload_keeps_the_connection() {
    let conf = |text: &str| {
        format!(
            "events {{}} http {{ http2 on; server {{ listen 127.0.0.1:%%PORT_0%%;
                return 200 {text}; }} }}"
        )
    };
    let mut server = Server::start(&conf("old"));
    let mut h2 = H2::connect(&server);
    assert_eq!(h2.fetch("/").text(), "old");
    let peer = server.on(0);
    server.reload(&conf("new"), || peer.get("/").text() == "new");
    assert_eq!(h2.fetch("/").text(), "new");
}

#[test]
fn a_graceful_end_finishes_streams() {
    let mut server = Setup::new(
        "events {} http { http2 on; limit_rate 50k; server { listen 127.0.0.1:%%PORT_0%%;
            location / { alias %%DIR%%/; } } }",
    )
    .file("big", "x".repeat(100_000))
    .start();
    let mut idle = H2::connect(&server);
    idle.fetch("/none");
    let mut h2 = H2::connect(&server);
    let stream = h2.get("/big");
    h2.expect(frame::HEADERS);
    server.signal(Signal::Quit);
    assert_eq!(idle.goaway(), 0);
    let goaway = h2.expect(GOAWAY);
    assert_eq!((frame::u32_at(&goaway.payload, 0), goaway.code()), (stream, 0));
    let late = h2.get("/big");
    let mut seen = 0;
    while let Some(frame) = h2.frame() {
        assert_ne!(frame.stream, late, "no stream is begun after GOAWAY");
        seen += if frame.kind == frame::DATA { frame.payload.len() } else { 0 };
        if frame.ends_stream() {
            break;
        }
    }
    assert!(seen > 30_000, "the stream went on");
    h2.raw.shutdown_write();
    while h2.frame().is_some() {}
    assert_eq!(server.wait_exit(), Some(0));
}

#[test]
fn streams_of_one_connection_have_addresses_of_their_own() {
    let server = Server::start(
        "events {} http { http2 on; limit_req_zone $uri zone=z:1m rate=5r/s; server {
            listen 127.0.0.1:%%PORT_0%%; set_real_ip_from 127.0.0.1; real_ip_header X-Real-IP;
            limit_req zone=z burst=5;
            location / { proxy_pass http://127.0.0.1:%%PORT_0%%/inner/;
                proxy_set_header X-Seen $remote_addr; }
            location /inner/ { return 200 $http_x_seen; } } }",
    );
    let mut h2 = H2::connect(&server);
    let mut from = |address: &'static str| {
        let fields = [&request("GET", "/same")[..], &[("x-real-ip", address)]].concat();
        h2.open(&fields, true)
    };
    // The second waits for its turn while the third comes and sets its own address.
    let streams = [from("192.0.2.1"), from("192.0.2.2"), from("192.0.2.3")];
    for (stream, address) in streams.into_iter().zip(["192.0.2.1", "192.0.2.2", "192.0.2.3"]) {
        assert_eq!(h2.answer(stream).text(), address);
    }
}

#[test]
fn urgent_streams_go_first() {
    let server = Setup::new(
        "events {} http { http2 on; server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; } }",
    )
    .file("a", "a".repeat(60_000))
    .start();
    let mut h2 = H2::connect(&server);
    h2.opens_windows = false;
    // Uses the connection's window up.
    let first = h2.get("/a");
    h2.answer(first);
    let with =
        |priority: &'static str| [&request("GET", "/a")[..], &[("priority", priority)]].concat();
    let late = h2.open(&with("u=6"), true);
    let soon = h2.open(&with("u=1"), true);
    let updated = h2.open(&with("u=7"), true);
    let payload = [&updated.to_be_bytes()[..], b"u=0"].concat();
    h2.send(frame::PRIORITY_UPDATE, 0, 0, &payload);
    h2.send(PING, 0, 0, b"settled!");
    h2.expect(PING);
    h2.widen(0, 1_000_000);
    let mut order = Vec::new();
    while order.len() < 3 {
        let frame = h2.frame().expect("the streams end");
        if frame.ends_stream() {
            order.push(frame.stream);
        }
    }
    assert_eq!(order, [updated, soon, late]);
}

#[test]
fn too_many_streams_are_refused() {
    let server = Setup::new(
        "events {} http { http2 on; http2_max_concurrent_streams 2; server {
            listen 127.0.0.1:%%PORT_0%%; root %%DIR%%; } }",
    )
    .file("a", "a".repeat(100_000))
    .start();
    let mut h2 = H2::connect(&server);
    h2.opens_windows = false;
    h2.get("/a");
    h2.get("/a");
    let third = h2.get("/a");
    let reset = h2.expect(RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (third, 7), "REFUSED_STREAM");
}
