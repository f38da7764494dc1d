//! An upload that is not buffered goes on behind an early answer with all of it that has been read already, its
//! end too: nothing is waited for that is at hand.

use std::time::Duration;
use weir_tests::family::{Family, FAMILIES};
use weir_tests::h2::{self, request, H2};
use weir_tests::{cgi, Client, Conn, Origin, Server, Setup};

use weir_wire::http2::frame;

/// The first part of a body, the rest of which begins to come when the answer has.
const EARLY: usize = 4000;
const FIRST: &str = "first;";
/// Stands here and there in the rest, and behind its last but one byte.
const END: u8 = b';';
const LAST: u8 = b'Z';

/// More than the sockets on the way hold.
const BYTES: usize = 8 << 20;

/// Says the first part of its answer when it has the first of the body, and the rest when it has the last. It
/// reads nothing for a while, so that each window on the way is used up.
fn early([first, last]: [Vec<u8>; 2]) -> Origin {
    Origin::start_raw(move |conn: &mut Conn, _| {
        conn.keeps_unread(64 << 10);
        if conn.read_until(FIRST.as_bytes()).is_some() {
            conn.write(&first);
            std::thread::sleep(Duration::from_millis(300));
            while let Some(come) = conn.read_until(&[END]) {
                if come.contains(&LAST) {
                    return conn.write(&last);
                }
            }
        }
    })
}

fn parts(family: Family) -> [Vec<u8>; 2] {
    let line = if family == Family::Proxy { "HTTP/1.1 200 OK" } else { "Status: 200" };
    let first = "early".repeat(EARLY);
    let first = format!("{line}\r\nContent-Length: {}\r\n\r\n{first}", first.len() + 5);
    match family {
        Family::Fastcgi => [cgi::stdout(&first), [cgi::stdout("later"), cgi::ended()].concat()],
        _ => [first.into_bytes(), b"later".to_vec()],
    }
}

/// The same over HTTP/2, where only the socket limits what may be sent.
fn parts_h2(kind: &str) -> [Vec<u8>; 2] {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let n = u8::try_from(payload.len()).unwrap();
        [&[0, 0, n, kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let head = h2::block(&[(":status", "200"), ("content-type", kind)]);
    let first = [
        frame(frame::SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
        frame(frame::WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]),
        frame(frame::HEADERS, frame::END_HEADERS, 1, &head),
        frame(frame::DATA, 0, 1, b"early"),
    ];
    let trailers = h2::block(&[("grpc-status", "0")]);
    let end = frame::END_HEADERS | frame::END_STREAM;
    let last = [frame(frame::DATA, 0, 1, b"later"), frame(frame::HEADERS, end, 1, &trailers)];
    [first.concat(), last.concat()]
}

/// So many bytes behind the first part.
fn rest(bytes: usize) -> Vec<u8> {
    let mut body = vec![b'x'; bytes];
    body.iter_mut().step_by(10_000).for_each(|b| *b = END);
    (body[bytes - 2], body[bytes - 1]) = (LAST, END);
    body
}

fn chunk(body: &[u8]) -> Vec<u8> {
    [format!("{:x}\r\n", body.len()).as_bytes(), body, b"\r\n"].concat()
}

/// All at once behind the first part: so many bytes in chunks of that size.
fn upload_chunks(client: &mut Client, bytes: usize, size: usize) {
    let head = "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n";
    client.send(&[head.as_bytes(), &chunk(FIRST.as_bytes())].concat());
    client.read_until(b"early");
    let body = rest(bytes);
    let chunks: Vec<u8> = body.chunks(size).flat_map(chunk).collect();
    client.send(&[&chunks[..], b"0\r\n\r\n"].concat());
    client.read_until(b"later");
}

#[test]
fn what_was_read_of_chunks_is_not_waited_for() {
    for family in [Family::Proxy, Family::Fastcgi] {
        let origin = early(parts(family));
        let server = family
            .setup(
                "events {} http { server { listen 127.0.0.1:%%PORT_0%%; %%PARAMS%%
                    proxy_http_version 1.1; client_body_buffer_size 16k;
                    %%F%%_request_buffering off; location / { %%F%%_pass %%TO%%; } } }",
                &origin,
            )
            .start();
        for (bytes, size) in [(16_384, 1000), (65_536, 65_536), (66_000, 1000), (70_000, 1000)] {
            upload_chunks(&mut server.connect(), bytes, size);
        }
    }
}

/// In DATA frames.
fn framed(stream: u32, body: &[u8], ends: bool) -> Vec<u8> {
    let pieces = body.len().div_ceil(16_384);
    let frames = body.chunks(16_384).enumerate().flat_map(|(i, piece)| {
        let flags = if ends && i + 1 == pieces { frame::END_STREAM } else { 0 };
        [&frame::head(piece.len(), frame::DATA, flags, stream)[..], piece].concat()
    });
    frames.collect()
}

/// All that the windows let it, at once each time.
fn upload_h2(server: &Server, path: &str, bytes: usize) {
    let mut h2 = H2::connect(server);
    let length = (FIRST.len() + bytes).to_string();
    let fields = [&request("POST", path)[..], &[("content-length", &*length), ("te", "trailers")]];
    let stream = h2.open(&fields.concat(), false);
    h2.send(frame::DATA, 0, stream, FIRST.as_bytes());
    // The settings have given the stream one more.
    let (mut window, mut all) = (65_536 - FIRST.len(), 65_535 - FIRST.len());
    let body = rest(bytes);
    let mut left = &body[..];
    let mut answer = Vec::new();
    while !answer.ends_with(b"later") {
        let room = window.min(all).min(left.len());
        if answer.starts_with(b"early") && room > 0 {
            let (burst, behind) = left.split_at(room);
            left = behind;
            (window, all) = (window - room, all - room);
            h2.raw.send(&framed(stream, burst, left.is_empty()));
            continue;
        }
        let next =
            h2.frame().unwrap_or_else(|| panic!("{path}: cut off, {} bytes left", left.len()));
        match (next.kind, next.stream) {
            (frame::WINDOW_UPDATE, 0) => all += next.code() as usize,
            (frame::WINDOW_UPDATE, _) => window += next.code() as usize,
            (frame::DATA, _) => answer.extend(next.payload),
            (frame::RST_STREAM, _) => panic!("{path}: reset, {} bytes left", left.len()),
            _ => {}
        }
    }
}

#[test]
fn windows_are_opened_for_what_was_taken() {
    for family in FAMILIES {
        let origin = early(parts(family));
        let server = family
            .setup(
                "events {} http { server { listen 127.0.0.1:%%PORT_0%%; http2 on; %%PARAMS%%
                    client_max_body_size 0; proxy_http_version 1.1;
                    %%F%%_request_buffering off; %%F%%_buffering off; location / { %%F%%_pass %%TO%%; } } }",
                &origin,
            )
            .start();
        for bytes in [65_529, 65_530, BYTES] {
            upload_h2(&server, "/", bytes);
        }
    }
}

#[test]
fn they_are_on_the_way_to_a_server_with_http2() {
    for (pass, kind) in [
        (
            "proxy_http_version 2; proxy_request_buffering off; proxy_pass http://%%ORIGIN%%",
            "text/plain",
        ),
        ("grpc_pass %%ORIGIN%%", "application/grpc"),
    ] {
        let origin = early(parts_h2(kind));
        let server = Setup::new(&format!(
            "events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%%; http2 on;
                client_max_body_size 0; location / {{ {pass}; }} }} }}"
        ))
        .set("ORIGIN", origin.address())
        .start();
        for bytes in [65_529, BYTES] {
            upload_h2(&server, "/", bytes);
        }
    }
}
