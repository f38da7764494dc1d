//! HTTP/2 towards servers (`proxy_http_version 2`).

use weir_tests::h2;
use weir_tests::{Next, Origin, Server, Setup};
use weir_wire::http2::frame;
use weir_wire::http2::ErrorCode;

/// A proxy on the first port, and an origin on the second that speaks both versions.
fn both(locations: &str, origin: &str) -> Server {
    Setup::new(
        "events {} http { client_max_body_size 0; client_body_buffer_size 16k;
            upstream app { server 127.0.0.1:%%PORT_1%%; keepalive 4; }
            server { listen 127.0.0.1:%%PORT_0%%; proxy_http_version 2; %%LOCATIONS%% }
            server { listen 127.0.0.1:%%PORT_1%%; http2 on; keepalive_requests 1000;
                location / { return 200
                    '$server_protocol $connection $connection_requests $host $http_x_a$http_upgrade';
                }
                location /up { proxy_pass http://%%ORIGIN%%; }
                location /discard { return 200 early; }
                location /files { alias %%DIR%%; add_trailer X-Sum 42; } } }",
    )
    .set("LOCATIONS", locations)
    .set("ORIGIN", origin)
    .file("big", "0123456789abcdef".repeat(40_000))
    .start()
}

#[test]
fn one_connection_carries_requests_one_after_another() {
    let server = both(
        "location / { proxy_set_header X-A 'a b'; proxy_set_header Upgrade x;
            proxy_set_header Host app.test; proxy_pass http://app; }
        location /old { proxy_http_version 1.1; proxy_set_header Connection '';
            proxy_pass http://app/; }",
        "127.0.0.1:1",
    );
    let said = |path: &str| server.get(path).text();
    let first = said("/");
    let id = first.split(' ').nth(1).unwrap().to_string();
    assert_eq!(first, format!("HTTP/2.0 {id} 1 app.test a b"));
    assert_eq!(said("/"), format!("HTTP/2.0 {id} 2 app.test a b"));
    let old = said("/old");
    assert!(old.starts_with("HTTP/1.1 ") && !old.contains(&format!(" {id} ")), "{old}");
    assert_eq!(server.head("/").status, 200);
    assert_eq!(said("/"), format!("HTTP/2.0 {id} 4 app.test a b"));
    assert!(server.error_log().is_empty(), "{}", server.error_log());
}

#[test]
fn large_bodies_go_both_ways_within_the_windows() {
    let origin = Origin::start(|request, conn| {
        conn.reply("200 OK", "", &request.body.len().to_string());
        Next::Close
    });
    let server = both(
        "proxy_pass_trailers on;
        location / { proxy_pass http://app; }
        location /stream/ { proxy_request_buffering off; proxy_buffering off;
            proxy_pass http://app/; }",
        &origin.address(),
    );
    let body = "x".repeat(1_000_000);
    for path in ["/discard", "/stream/discard"] {
        let answer = server.post(path, &body);
        assert_eq!((answer.status, answer.text().as_str()), (200, "early"), "{path}");
    }
    for path in ["/up", "/stream/up"] {
        assert_eq!(server.post(path, &body).text(), "1000000", "{path}");
    }
    for path in ["/files/big", "/stream/files/big"] {
        let answer = server.get_with(path, "TE: trailers\r\n");
        assert_eq!(answer.text().len(), 640_000, "{path}");
    }
    let raw =
        b"GET /files/big HTTP/1.1\r\nHost: a\r\nConnection: TE, close\r\nTE: trailers\r\n\r\n";
    let raw = String::from_utf8(server.raw(raw)).unwrap();
    assert!(raw.to_ascii_lowercase().contains("x-sum: 42"));
}

fn ok(fields: &[(&str, &str)]) -> Vec<u8> {
    h2::block(&[&[(":status", "200")], fields].concat())
}

fn frame_of(kind: u8, flags: u8, stream: u32, payload: &[u8]) -> Vec<u8> {
    [&frame::head(payload.len(), kind, flags, stream)[..], payload].concat()
}

/// What a server says to its first request, after its settings.
fn saying(bytes: Vec<u8>) -> (Origin, Server) {
    let origin = Origin::start_raw(move |conn, _| {
        conn.read_until(h2::PREFACE);
        let mut out = Vec::new();
        frame::settings(&[], &mut out);
        out.extend_from_slice(&bytes);
        conn.write(out);
        conn.wait_closed();
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_http_version 2; proxy_read_timeout 5s; proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    (origin, server)
}

#[test]
fn an_answer_in_many_frames() {
    let mut said =
        frame_of(frame::HEADERS, frame::END_HEADERS, 1, &h2::block(&[(":status", "103")]));
    said.extend(frame_of(frame::HEADERS, 0, 1, &ok(&[])));
    said.extend(frame_of(frame::CONTINUATION, 4, 1, &h2::block(&[("x-a", "1")])));
    said.extend(frame_of(frame::DATA, frame::PADDED, 1, b"\x03abc\0\0\0"));
    said.extend(frame_of(0x7f, 0, 1, b"unknown"));
    said.extend(frame_of(frame::PING, 0, 0, b"12345678"));
    said.extend(frame_of(frame::DATA, frame::END_STREAM, 1, b"def"));
    said.extend(frame_of(frame::RST_STREAM, 0, 1, &ErrorCode::NO_ERROR.0.to_be_bytes()));
    let (_origin, server) = saying(said);
    let answer = server.get("/");
    assert_eq!((answer.status, answer.text().as_str()), (200, "abcdef"));
    assert_eq!(answer.header("X-A"), Some("1"));
}

#[test]
fn a_server_that_breaks_the_rules_is_a_bad_gateway() {
    let head = |block: &[u8]| frame_of(frame::HEADERS, frame::END_HEADERS, 1, block);
    let refused = ErrorCode::REFUSED_STREAM.0.to_be_bytes();
    let goaway = [&[0; 4][..], &[0, 0, 0, 2]].concat();
    for (said, why) in [
        (frame_of(frame::RST_STREAM, 0, 1, &refused), "rejected request with error 7"),
        (frame_of(frame::GOAWAY, 0, 0, &goaway), "upstream sent goaway with error 2"),
        (frame_of(frame::DATA, 0, 1, b"x"), "unexpected http2 frame: 0"),
        (head(&h2::block(&[("x", "y")])), "upstream sent no :status header"),
        (head(&ok(&[("x", "a\r\nSet-Cookie: b")])), "upstream sent invalid header"),
        (head(&ok(&[("x", &"y".repeat(5000))])), "upstream sent too large http2 header"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n".to_vec(), "too large http2 frame"),
    ] {
        let (_origin, server) = saying(said);
        assert_eq!(server.get("/").status, 502, "{why}");
        server.expect_error(why);
    }
}

#[test]
fn a_body_that_is_not_as_long_as_announced_is_cut_off() {
    for (data, why) in [
        ("abc", "upstream prematurely closed stream"),
        ("abcdef", "upstream sent response body larger than indicated content length"),
    ] {
        let block = ok(&[("content-length", "5")]);
        let mut said = frame_of(frame::HEADERS, frame::END_HEADERS, 1, &block);
        said.extend(frame_of(frame::DATA, frame::END_STREAM, 1, data.as_bytes()));
        let (_origin, server) = saying(said);
        let raw = server.raw(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        let raw = String::from_utf8(raw).unwrap();
        assert!(raw.contains("Content-Length: 5\r\n") && raw.ends_with("\r\n\r\n"), "{raw}");
        server.expect_error(why);
    }
}

#[test]
fn tls_offers_it_by_alpn() {
    let own = weir_tests::tls::self_signed("localhost");
    let server = Setup::new(
        "events {} http { ssl_certificate %%DIR%%/a.crt; ssl_certificate_key %%DIR%%/a.key;
            server { listen 127.0.0.1:%%PORT_1%% ssl; http2 on;
                location / { return 200 '$ssl_alpn_protocol $server_protocol $scheme'; } }
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_http_version 2; proxy_pass https://127.0.0.1:%%PORT_1%%; } 
                location /1 { proxy_pass https://127.0.0.1:%%PORT_1%%; } } }",
    )
    .file("a.crt", own.cert)
    .file("a.key", own.key)
    .start();
    assert_eq!(server.get("/").text(), "h2 HTTP/2.0 https");
    assert_eq!(server.get("/1").text(), " HTTP/1.1 https");
}

/// A server that never comes to its answer, or to its end, is not listened to for ever.
#[test]
fn frames_that_carry_nothing_have_an_end() {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let frame = |kind: u8, payload: &[u8]| {
            let mut bytes = vec![0, 0, payload.len() as u8, kind, 0, 0, 0, 0, 1];
            bytes.extend_from_slice(payload);
            bytes
        };
        let kinds =
            [(frame::WINDOW_UPDATE, &[0, 0, 0, 1][..]), (frame::PRIORITY, &[0; 5]), (77, b"x")];
        for (kind, payload) in kinds {
            let Ok((mut conn, _)) = listener.accept() else { return };
            let _ = conn.read(&mut [0; 4096]);
            let _ = conn.write_all(&[0, 0, 0, frame::SETTINGS, 0, 0, 0, 0, 0]);
            let flood = frame(kind, payload).repeat(500);
            while conn.write_all(&flood).is_ok() {}
        }
    });
    let server = Server::start(
        &"events {} http { server { listen 127.0.0.1:%%PORT_0%%; location / {
            proxy_http_version 2; proxy_next_upstream off; proxy_pass http://ADDRESS; } } }"
            .replace("ADDRESS", &address),
    );
    (0..3).for_each(|_| assert_eq!(server.get("/").status, 502));
}
