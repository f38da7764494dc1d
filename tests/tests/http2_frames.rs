//! HTTP/2: frames that a stream's state does not allow (RFC 9113 section 5.1), and frames and windows
//! that are too large. nginx lets most of these pass.

use weir_tests::h2::{block, request, H2};
use weir_tests::{Origin, Server, Setup};
use weir_wire::http2::frame::{self, DATA, END_HEADERS, END_STREAM, HEADERS, RST_STREAM, SETTINGS};
use weir_wire::http2::FRAME_TAKEN_MAX_BYTES;

const PROTOCOL_ERROR: u32 = 1;
const FLOW_CONTROL_ERROR: u32 = 3;
const STREAM_CLOSED: u32 = 5;
const FRAME_SIZE_ERROR: u32 = 6;
const WINDOW_MAX_BYTES: u32 = 0x7fff_ffff;

/// What goes to `/wait` is read to its end before it is answered.
fn server() -> (Server, Origin) {
    let origin = Origin::echo();
    let setup = Setup::new(
        "events {} http { http2 on; server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
            location /ok { return 200 ok; } location /wait { proxy_pass http://%%O%%; } } }",
    );
    (setup.set("O", origin.address()).file("big", "x".repeat(200_000)).start(), origin)
}

/// The code that a stream is reset with; the connection goes on.
#[track_caller]
fn reset_code(h2: &mut H2, stream: u32) -> u32 {
    loop {
        let frame = h2.expect(RST_STREAM);
        if frame.stream == stream {
            assert_eq!(h2.fetch("/ok").text(), "ok");
            return frame.code();
        }
    }
}

#[test]
fn streams_that_were_never_opened() {
    let (server, _origin) = server();
    for stream in [1, 2, 7] {
        for (kind, payload) in
            [(DATA, &b"text"[..]), (DATA, b""), (RST_STREAM, b"\0\0\0\x08"), (8, b"\0\0\0\x09")]
        {
            let mut h2 = H2::connect(&server);
            h2.send(kind, 0, stream, payload);
            assert_eq!(h2.goaway(), PROTOCOL_ERROR, "type {kind}, stream {stream}");
        }
    }
    let mut h2 = H2::connect(&server);
    h2.send(frame::PRIORITY, 0, 3, b"\0\0\0\0\x01");
    assert_eq!(h2.fetch("/ok").text(), "ok", "PRIORITY may come early");
}

#[test]
fn data_for_streams_that_are_closed() {
    let (server, _origin) = server();
    let mut h2 = H2::connect(&server);
    h2.fetch("/ok");
    h2.send(DATA, 0, 1, b"more");
    assert_eq!(reset_code(&mut h2, 1), STREAM_CLOSED);
    let stream = h2.open(&request("POST", "/wait"), false);
    h2.reset(stream);
    h2.send(DATA, END_STREAM, stream, b"more");
    assert_eq!(reset_code(&mut h2, stream), STREAM_CLOSED);
}

/// It was on its way.
#[test]
fn data_for_a_stream_that_the_server_has_reset_is_let_pass() {
    let (server, _origin) = server();
    let mut h2 = H2::connect(&server);
    let stream = h2.open(&request("POST", "/ok"), false);
    assert_eq!(h2.answer(stream).text(), "ok");
    assert_eq!(h2.expect(RST_STREAM).code(), 0);
    h2.send(DATA, 0, stream, b"body");
    h2.send(DATA, END_STREAM, stream, b"");
    assert_eq!(h2.fetch("/ok").text(), "ok");
}

#[test]
fn trailers_end_the_stream_and_have_no_pseudo_fields() {
    let (server, origin) = server();
    let mut h2 = H2::connect(&server);
    for (flags, fields, code) in [
        (END_HEADERS, ("x-a", "b"), PROTOCOL_ERROR),
        (END_HEADERS | END_STREAM, (":method", "GET"), PROTOCOL_ERROR),
    ] {
        let stream = h2.open(&request("POST", "/wait"), false);
        h2.send(DATA, 0, stream, b"body");
        h2.send(HEADERS, flags, stream, &block(&[fields]));
        assert_eq!(reset_code(&mut h2, stream), code, "{fields:?}");
    }
    assert_eq!(origin.requests().len(), 0);
    let stream = h2.open(&request("POST", "/wait"), false);
    h2.send(DATA, 0, stream, b"body");
    h2.send(HEADERS, END_HEADERS | END_STREAM, stream, &block(&[("x-a", "b")]));
    assert!(h2.answer(stream).text().ends_with("body"));
}

#[test]
fn nothing_follows_the_end_of_a_request() {
    let (server, _origin) = server();
    let mut h2 = H2::connect(&server);
    h2.opens_windows = false;
    for (kind, payload) in [(DATA, b"more".to_vec()), (HEADERS, block(&[("x-a", "b")]))] {
        // Its answer is larger than the window, so the stream is half closed.
        let stream = h2.get("/big");
        h2.send(kind, END_HEADERS | END_STREAM, stream, &payload);
        let frame = h2.expect(RST_STREAM);
        assert_eq!((frame.stream, frame.code()), (stream, STREAM_CLOSED), "type {kind}");
    }
}

#[test]
fn frames_larger_than_announced() {
    let (server, _origin) = server();
    for kind in [DATA, HEADERS, 0x77] {
        let mut h2 = H2::connect(&server);
        h2.raw.send(&frame::head(FRAME_TAKEN_MAX_BYTES as usize + 1, kind, 0, 1));
        assert_eq!(h2.goaway(), FRAME_SIZE_ERROR, "type {kind}");
    }
    let mut h2 = H2::over(server.connect());
    h2.raw.send(weir_tests::h2::PREFACE);
    let settings = h2.expect(SETTINGS).payload;
    let sizes: Vec<u32> =
        settings.chunks(6).filter(|s| s[1] == 5).map(|s| frame::u32_at(s, 2)).collect();
    assert_eq!(sizes, [FRAME_TAKEN_MAX_BYTES]);
}

#[test]
fn windows_have_a_largest_size() {
    let (server, _origin) = server();
    let mut h2 = H2::connect(&server);
    let stream = h2.open(&request("POST", "/wait"), false);
    h2.widen(stream, WINDOW_MAX_BYTES);
    assert_eq!(reset_code(&mut h2, stream), FLOW_CONTROL_ERROR);
    let stream = h2.open(&request("POST", "/wait"), false);
    h2.widen(stream, WINDOW_MAX_BYTES - 65_535);
    h2.send(SETTINGS, 0, 0, b"\0\x04\x7f\xff\xff\xff");
    assert_eq!(h2.goaway(), FLOW_CONTROL_ERROR);
}
