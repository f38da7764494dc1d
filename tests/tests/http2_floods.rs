//! HTTP/2: clients that cost more than they pay for. nginx ends some of these later or not at
//! all; here each has a budget.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use weir_tests::h2::{block, request, string, H2};
use weir_tests::{expect_soon, wait_for, Server, Setup};
use weir_wire::http2::frame;

const CALM: u32 = 11;

const CONF: &str = "events {} http { http2 on; server { listen 127.0.0.1:%%PORT_0%%;
    root %%DIR%%; send_timeout 300ms; client_header_timeout 300ms;
    location /ok { return 200 ok; } } }";

fn server() -> Server {
    Setup::new(CONF).file("big", "x".repeat(200_000)).start()
}

/// Sends a frame again and again; the code that the connection ends with.
#[track_caller]
fn flood(h2: &mut H2, times: usize, kind: u8, flags: u8, stream: u32, payload: &[u8]) -> u32 {
    let head = frame::head(payload.len(), kind, flags, stream);
    let one = [&head[..], payload].concat();
    h2.raw.send(&one.repeat(times));
    h2.goaway()
}

#[test]
fn frames_that_carry_nothing() {
    let server = server();
    for (kind, flags, stream, payload, times) in [
        (frame::PING, 0, 0, &b"12345678"[..], 30_000),
        (frame::SETTINGS, 0, 0, b"", 3000),
        (frame::SETTINGS, 0, 0, b"\0\x04\0\0\0\x01", 3000),
        (frame::PRIORITY, 0, 1, b"\0\0\0\0\x01", 30_000),
        (frame::WINDOW_UPDATE, 0, 0, b"\0\0\0\x01", 30_000),
        (frame::RST_STREAM, 0, 1, b"\0\0\0\x08", 30_000),
        (0xee, 0, 0, b"", 30_000),
        (frame::PRIORITY_UPDATE, 0, 0, b"\0\0\0\x01u=1", 30_000),
    ] {
        let mut h2 = H2::connect(&server);
        // The first stream is closed: what comes for one that never was is an error at once.
        h2.fetch("/ok");
        assert_eq!(flood(&mut h2, times, kind, flags, stream, payload), CALM, "type {kind}");
    }
    assert_eq!(H2::connect(&server).fetch("/ok").text(), "ok");
}

#[test]
fn empty_data_frames() {
    let server = server();
    let mut h2 = H2::connect(&server);
    let stream = h2.open(&request("POST", "/big"), false);
    assert_eq!(flood(&mut h2, 30_000, frame::DATA, 0, stream, b""), CALM);
}

#[test]
fn continuations_without_end() {
    let server = server();
    let mut h2 = H2::connect(&server);
    h2.send(frame::HEADERS, frame::END_STREAM, 1, &block(&request("GET", "/ok")));
    assert_eq!(flood(&mut h2, 1000, frame::CONTINUATION, 0, 1, b""), CALM, "empty ones");
    let mut h2 = H2::connect(&server);
    h2.send(frame::HEADERS, frame::END_STREAM, 1, &block(&request("GET", "/ok")));
    let piece = block(&[("x", &"y".repeat(8000))]);
    assert_eq!(flood(&mut h2, 50, frame::CONTINUATION, 0, 1, &piece), CALM, "full ones");
}

#[test]
fn a_header_that_unpacks_to_too_much() {
    let server = server();
    let mut h2 = H2::connect(&server);
    // One large field is put into the table and then referred to.
    let mut bomb = block(&request("GET", "/ok"));
    bomb.push(0x40);
    string("x", &mut bomb);
    string(&"y".repeat(3000), &mut bomb);
    bomb.extend([0xbe; 1000]);
    h2.send(frame::HEADERS, frame::END_STREAM | frame::END_HEADERS, 1, &bomb);
    assert_eq!(h2.goaway(), CALM);
}

/// Opens streams again and again, sixty and then a PING, each with what ends it behind its header; the code that the
/// connection ends with.
#[track_caller]
fn waste(h2: &mut H2, end: impl Fn(u32, &mut Vec<u8>)) -> u32 {
    let block = block(&request("GET", "/big"));
    for _ in 0..16 {
        let mut bytes = Vec::new();
        for _ in 0..60 {
            let stream = h2.number();
            bytes.extend(frame::head(block.len(), frame::HEADERS, 5, stream));
            bytes.extend(&block);
            end(stream, &mut bytes);
        }
        h2.raw.send(&bytes);
        h2.send(frame::PING, 0, 0, b"SEE-THIS");
        loop {
            match h2.frame() {
                Some(f) if f.kind == frame::GOAWAY => return f.code(),
                Some(f) if f.kind == frame::PING => break,
                f => assert!(f.is_some(), "closed"),
            }
        }
    }
    panic!("goes on");
}

fn cancel(stream: u32, bytes: &mut Vec<u8>) {
    frame::rst_stream(stream, weir_wire::http2::ErrorCode::CANCEL, bytes);
}

#[test]
fn rapid_reset() {
    let server = server();
    assert_eq!(waste(&mut H2::connect(&server), cancel), CALM);
}

/// Pages that are left with all that they have asked for, one after the other.
#[test]
fn pages_that_are_left_are_no_flood() {
    let server = server();
    let mut h2 = H2::connect(&server);
    let block = block(&request("GET", "/big"));
    for _ in 0..2 {
        let streams: Vec<u32> = (0..120).map(|_| h2.number()).collect();
        let mut bytes = Vec::new();
        for stream in &streams {
            bytes.extend(frame::head(block.len(), frame::HEADERS, 5, *stream));
            bytes.extend(&block);
        }
        for stream in &streams {
            cancel(*stream, &mut bytes);
        }
        h2.raw.send(&bytes);
        assert_eq!(h2.fetch("/ok").text(), "ok");
    }
}

/// A stream of events: each is a small frame, for which two windows are opened.
#[test]
fn small_frames_are_acknowledged() {
    let server = Server::start(
        r#"events {} http { http2 on; server { listen 127.0.0.1:%%PORT_0%%;
        location / { content_by_lua_block { for n = 1, 5000 do ngx.print("x") ngx.flush(true) end } } } }"#,
    );
    assert_eq!(H2::connect(&server).fetch("/").text().len(), 5000);
}

/// The client makes this side reset: more than a window can hold, again and again.
#[test]
fn resets_that_the_client_provokes() {
    let server = server();
    let mut h2 = H2::connect(&server);
    h2.opens_windows = false;
    let code = waste(&mut h2, |stream, bytes| frame::window_update(stream, 0x7fff_ffff, bytes));
    assert_eq!(code, CALM);
}

#[test]
fn a_window_that_stays_shut() {
    let server = server();
    let mut h2 = H2::over(server.on(0).connect());
    h2.greet(&[(frame::SETTING_INITIAL_WINDOW_SIZE, 0)]);
    let stream = h2.get("/big");
    let reset = h2.expect(frame::RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (stream, 1), "after send_timeout");
    assert_eq!(h2.fetch("/none").status, 404, "with no window, a header alone");
}

#[test]
fn tiny_windows() {
    let server = server();
    let mut h2 = H2::over(server.on(0).connect());
    h2.opens_windows = false;
    h2.greet(&[(frame::SETTING_INITIAL_WINDOW_SIZE, 1)]);
    let stream = h2.get("/big");
    assert_eq!(flood(&mut h2, 30_000, frame::WINDOW_UPDATE, 0, stream, b"\0\0\0\x01"), CALM);
}

#[test]
fn a_header_block_that_does_not_end() {
    let server = server();
    let mut h2 = H2::connect(&server);
    let stream = h2.number();
    h2.send(frame::HEADERS, frame::END_STREAM, stream, &block(&request("GET", "/ok")));
    let reset = h2.expect(frame::RST_STREAM);
    assert_eq!((reset.stream, reset.code()), (stream, 1), "after client_header_timeout");
    h2.send(frame::CONTINUATION, frame::END_HEADERS, stream, &block(&[("x", "y")]));
    assert_eq!(h2.fetch("/ok").text(), "ok", "the connection goes on");
}

#[test]
fn a_client_that_says_nothing() {
    let server = server();
    let mut h2 = H2::connect(&server);
    assert!(h2.is_silent(Duration::from_millis(50)) || h2.frame().is_some());
    assert_eq!(h2.goaway(), 0, "after client_header_timeout");
}

/// The beginning of a connection on which so many streams are opened and reset at once. There is
/// no window, so that none of them can end well before.
fn resets(streams: u32) -> Vec<u8> {
    let block = block(&request("GET", "/ok"));
    let mut bytes = weir_tests::h2::PREFACE.to_vec();
    frame::settings(&[(frame::SETTING_INITIAL_WINDOW_SIZE, 0)], &mut bytes);
    for stream in (0..streams).map(|n| 2 * n + 1) {
        bytes.extend(frame::head(block.len(), frame::HEADERS, 5, stream));
        bytes.extend(&block);
        cancel(stream, &mut bytes);
    }
    bytes
}

/// Tells threads to stop, also when the test fails.
struct Stop<'a>(&'a AtomicBool);

impl Drop for Stop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Many connections, each of which resets less than would end it alone, are an attack together:
/// while it lasts, nobody may reset much. nginx has no such limit.
#[test]
fn resets_of_many_connections_together() {
    let server = server();
    // A connection alone has credit for two hundred and fifty.
    let is_ended = || {
        let mut h2 = H2::over(server.on(0).connect());
        h2.raw.send(&resets(30));
        h2.send(frame::PING, 0, 0, b"SEE-THIS");
        loop {
            match h2.frame() {
                Some(f) if f.kind == frame::GOAWAY => return f.code() == CALM,
                Some(f) if f.kind == frame::PING => return false,
                Some(_) => {}
                None => return false,
            }
        }
    };
    assert!(!is_ended(), "before");
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _stop = Stop(&stop);
        for _ in 0..4 {
            scope.spawn(|| {
                let bytes = resets(120);
                while !stop.load(Ordering::SeqCst) {
                    let mut raw = server.on(0).connect();
                    raw.send(&bytes);
                    raw.shutdown_write();
                    raw.read_to_end();
                }
            });
        }
        // Credit fills with time, so a slow machine takes longer to use it up.
        let patience = Duration::from_secs(60);
        assert!(wait_for(is_ended, patience), "thirty resets are never too many");
    });
    expect_soon("the limit is gone again", || !is_ended());
}
