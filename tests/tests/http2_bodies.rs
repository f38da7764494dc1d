//! HTTP/2: what clients send, and how much of it at a time.

use weir_tests::h2::{block, request, H2};
use weir_tests::{Origin, Server, Setup};
use weir_wire::http2::frame::{self, DATA, END_STREAM};

const PROXY: &str = "events {} http { http2 on; client_max_body_size 2m;
    server { listen 127.0.0.1:%%PORT_0%%; client_body_buffer_size 16k;
    location / { proxy_pass http://%%ORIGIN%%; }
    location /small { client_max_body_size 10; proxy_pass http://%%ORIGIN%%; }
    location /stream { proxy_request_buffering off; proxy_http_version 1.1;
        proxy_pass http://%%ORIGIN%%; }
    location /ignored { return 200 'not read'; } } }";

fn proxied() -> (Server, Origin) {
    let origin = Origin::start(|request, conn| {
        conn.reply("200 OK", "", &format!("{} {}", request.method(), request.body.len()));
        weir_tests::Next::Keep
    });
    let server = Setup::new(PROXY).set("ORIGIN", origin.address()).start();
    (server, origin)
}

#[test]
fn bodies_reach_the_upstream() {
    let (server, origin) = proxied();
    let mut h2 = H2::connect(&server);
    for path in ["/", "/stream"] {
        let stream = h2.post(path, "hello");
        assert_eq!(h2.answer(stream).text(), "POST 5", "{path}");
        assert_eq!(origin.last_request().body, b"hello");
    }
    let fields = [&request("PUT", "/")[..], &[("content-length", "6")]].concat();
    let stream = h2.open(&fields, false);
    h2.send(DATA, 0, stream, b"abc");
    h2.send(DATA, frame::PADDED, stream, b"\x02def\0\0");
    h2.send(DATA, END_STREAM, stream, b"");
    assert_eq!(h2.answer(stream).text(), "PUT 6");
    assert_eq!(origin.last_request().header("Content-Length"), Some("6"));
}

#[test]
fn windows_open_while_a_body_is_read() {
    let (server, _origin) = proxied();
    for path in ["/", "/stream"] {
        let mut h2 = H2::connect(&server);
        let stream = h2.open(&request("POST", path), false);
        let (mut window, mut left) = (65_535i64, 1_000_000i64);
        while left > 0 {
            if window < 8000 {
                let update = h2.expect(frame::WINDOW_UPDATE);
                if update.stream == stream {
                    window += i64::from(update.code());
                }
                continue;
            }
            let n = left.min(8000);
            left -= n;
            window -= n;
            let end = if left == 0 { END_STREAM } else { 0 };
            h2.send(DATA, end, stream, &vec![b'x'; n as usize]);
        }
        assert_eq!(h2.answer(stream).text(), "POST 1000000", "{path}");
    }
}

#[test]
fn lengths_that_do_not_hold_are_refused() {
    let (server, _origin) = proxied();
    let mut h2 = H2::connect(&server);
    for (announced, status) in [("4", 400), ("6", 400), ("5", 200)] {
        let fields = [&request("POST", "/")[..], &[("content-length", announced)]].concat();
        let stream = h2.open(&fields, false);
        h2.send(DATA, END_STREAM, stream, b"hello");
        assert_eq!(h2.answer(stream).status, status, "{announced}");
    }
    let stream = h2.post("/small", "01234567890");
    assert_eq!(h2.answer(stream).status, 413);
    let fields = [&request("POST", "/small")[..], &[("content-length", "11")]].concat();
    let stream = h2.open(&fields, false);
    assert_eq!(h2.answer(stream).status, 413);
    assert_eq!(h2.fetch("/ignored").status, 200, "the connection goes on");
}

#[test]
fn a_body_nobody_reads_is_cut_off() {
    let (server, _origin) = proxied();
    let mut h2 = H2::connect(&server);
    let stream = h2.open(&request("POST", "/ignored"), false);
    assert_eq!(h2.answer(stream).text(), "not read");
    let reset = h2.expect(frame::RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (stream, 0), "NO_ERROR");
    h2.send(DATA, END_STREAM, stream, b"late");
    assert_eq!(h2.fetch("/ignored").status, 200);
}

/// nginx takes no trailers and ends the connection.
#[test]
fn trailers_end_a_body() {
    let (server, origin) = proxied();
    let mut h2 = H2::connect(&server);
    let stream = h2.open(&request("POST", "/"), false);
    h2.send(DATA, 0, stream, b"abc");
    let trailers = block(&[("x-checksum", "1")]);
    h2.send(frame::HEADERS, frame::END_HEADERS | END_STREAM, stream, &trailers);
    assert_eq!(h2.answer(stream).text(), "POST 3");
    assert_eq!(origin.last_request().body, b"abc");
    let stream = h2.open(&request("POST", "/ignored"), false);
    h2.answer(stream);
    h2.expect(frame::RST_STREAM);
    h2.send(frame::HEADERS, frame::END_HEADERS | END_STREAM, stream, &trailers);
    assert_eq!(h2.fetch("/ignored").status, 200, "they crossed the reset");
}

#[test]
fn more_than_the_window_is_refused() {
    let server = Server::start(
        "events {} http { http2 on; http2_body_preread_size 100; server {
            listen 127.0.0.1:%%PORT_0%%; location / { limit_rate 1; return 200 okay; } } }",
    );
    let mut h2 = H2::connect(&server);
    let stream = h2.open(&request("POST", "/"), false);
    h2.send(DATA, 0, stream, &[b'x'; 101]);
    let reset = h2.expect(frame::RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (stream, 3), "FLOW_CONTROL_ERROR");
}

#[test]
fn a_body_that_does_not_come_times_out() {
    let origin = Origin::echo();
    let server = Setup::new(
        "events {} http { http2 on; client_body_timeout 100ms; server {
            listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://%%ORIGIN%%; }
            location /ok { return 200 ok; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let mut h2 = H2::connect(&server);
    let stream = h2.open(&request("POST", "/"), false);
    h2.send(DATA, 0, stream, b"some");
    let reset = h2.expect(frame::RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (stream, 1), "PROTOCOL_ERROR");
    assert_eq!(h2.fetch("/ok").text(), "ok");
}
