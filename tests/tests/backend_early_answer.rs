//! A server that has seen enough of an upload answers and closes: the client gets that answer.

use std::sync::{mpsc, Mutex};
use weir_tests::family::{Family, FAMILIES};
use weir_tests::{cgi, h2, Conn, Origin, Server, Setup, PATIENCE};

const BODY_BYTES: usize = 5_000_000;

/// An origin that reads a little and says that; what it has not read resets the connection.
fn hasty(answer: impl Into<Vec<u8>>) -> Origin {
    let answer = answer.into();
    Origin::start_raw(move |conn: &mut Conn, _| {
        if conn.read_exactly(64).is_some() {
            conn.write(&answer);
        }
    })
}

fn said_by(family: Family) -> Vec<u8> {
    let rest = "413 Too Much\r\nContent-Length: 5\r\n\r\nmuch!";
    match family {
        Family::Proxy => format!("HTTP/1.1 {rest}").into_bytes(),
        Family::Fastcgi => cgi::answer(&format!("Status: {rest}")),
        _ => format!("Status: {rest}").into_bytes(),
    }
}

#[track_caller]
fn upload_is_answered(server: &Server, path: &str, body: &[u8]) {
    let mut client = server.connect();
    let head = format!("PUT {path} HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n");
    client.send(&[head.as_bytes(), body].concat());
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (413, "much!"), "{path}");
}

#[test]
fn an_early_answer_reaches_the_client_though_sending_fails() {
    let body = vec![b'x'; BODY_BYTES];
    for family in FAMILIES {
        let origin = hasty(said_by(family));
        let other = Origin::echo();
        let server = family
            .setup(
                "events {} http { client_max_body_size 0;
                    upstream u { server %%ORIGIN%% max_fails=0; server %%OTHER%% backup; }
                    server { listen 127.0.0.1:%%PORT_0%%; %%PARAMS%%
                        location /file { %%F%%_pass %%U%%; }
                        location /memory { client_body_buffer_size 8m; %%F%%_pass %%U%%; }
                        location /streamed { %%F%%_request_buffering off; %%F%%_pass %%U%%; } } }",
                &origin,
            )
            .set("OTHER", other.address())
            .set("U", if family == Family::Proxy { "http://u" } else { "u" })
            .start();
        for path in ["/file", "/memory", "/streamed"] {
            for _ in 0..if family == Family::Proxy { 10 } else { 4 } {
                upload_is_answered(&server, path, &body);
            }
        }
        assert_eq!(other.connections(), 0, "{family:?}");
    }
}

const DATA: u8 = 0;
const HEADERS: u8 = 1;
const RST_STREAM: u8 = 3;
const SETTINGS: u8 = 4;
const WINDOW_UPDATE: u8 = 8;

fn frame(kind: u8, flags: u8, stream: u8, payload: &[u8]) -> Vec<u8> {
    let length = u8::try_from(payload.len()).unwrap();
    [&[0, 0, length, kind, flags, 0, 0, 0, stream], payload].concat()
}

#[test]
fn the_same_over_http2() {
    // Windows so wide that only the socket limits what is sent.
    let greeting = [
        frame(SETTINGS, 0, 0, &[0, 4, 0x7f, 0xff, 0xff, 0xff]),
        frame(WINDOW_UPDATE, 0, 0, &[0x7f, 0, 0, 0]),
    ]
    .concat();
    let fields = h2::block(&[(":status", "413"), ("content-length", "5")]);
    let answer = [frame(HEADERS, 4, 1, &fields), frame(DATA, 1, 1, b"much!")].concat();
    let origin = Origin::start_raw(move |conn: &mut Conn, _| {
        conn.write(&greeting);
        // More than the window that a connection begins with.
        if conn.read_exactly(100_000).is_some() {
            conn.write(&answer);
        }
    });
    let server = Setup::new(
        "events {} http { client_max_body_size 0; proxy_http_version 2;
            server { listen 127.0.0.1:%%PORT_0%%;
                location /file { proxy_pass http://%%ORIGIN%%; }
                location /streamed { proxy_request_buffering off; proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let body = vec![b'x'; BODY_BYTES];
    for path in ["/file", "/streamed"] {
        for _ in 0..10 {
            upload_is_answered(&server, path, &body);
        }
    }
}

#[test]
fn an_answer_that_has_ended_is_complete_whatever_follows_it() {
    let (tell, told) = mpsc::channel();
    let told = Mutex::new(told);
    let fields = h2::block(&[(":status", "413"), ("content-length", "5")]);
    let head = [frame(SETTINGS, 0, 0, b""), frame(HEADERS, 4, 1, &fields)].concat();
    // It wants no more of the request, and says so again of what it is sent all the same.
    let rest = [
        frame(DATA, 1, 1, b"much!"),
        frame(RST_STREAM, 0, 1, &[0, 0, 0, 0]),
        frame(RST_STREAM, 0, 1, &[0, 0, 0, 5]),
    ]
    .concat();
    let origin = Origin::start_raw(move |conn: &mut Conn, _| {
        if conn.read_until(b"first;").is_some() {
            conn.write(&head);
            told.lock().unwrap().recv_timeout(PATIENCE).expect("the head is passed on");
            conn.write(&rest);
            conn.wait_closed();
        }
    });
    let server = Setup::new(
        "events {} http { proxy_http_version 2; proxy_request_buffering off;
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://%%ORIGIN%%; }
                location /unbuffered { proxy_buffering off; proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for path in ["/", "/unbuffered"] {
        let mut client = server.connect();
        let head = format!("POST {path} HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\n");
        client.send(format!("{head}first;").as_bytes());
        client.read_until(b"\r\n\r\n");
        tell.send(()).unwrap();
        client.send(b"second;");
        assert_eq!(client.read_exactly(5), Some(b"much!".to_vec()), "{path}");
    }
}
