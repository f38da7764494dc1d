//! Requests over HTTP/2 that would be others, or more than one, in HTTP/1: the backend behind gets
//! one well-formed request with the stream's body, or nothing.

use crate::request_smuggling::backend::Backend;
use weir_tests::h2::H2;
use weir_tests::{Server, Setup};
use weir_wire::http2::frame;

const CONF: &str = "worker_processes 1; events {} http { http2 on;
    client_header_timeout 5s; client_body_timeout 5s; client_max_body_size 1m;
    upstream b { server %%ORIGIN%%; keepalive 4; }
    proxy_http_version 1.1; proxy_set_header Connection ''; proxy_set_header Host $host;
    server { listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://b; } }
    server { listen 127.0.0.1:%%PORT_1%%; proxy_buffering off; proxy_request_buffering off;
        location / { proxy_pass http://b; } } }";

const MORE: &str = "0\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n";

type Fields = &'static [(&'static str, &'static str)];

#[derive(Clone, Copy)]
enum Fate {
    /// One request with the body that was sent.
    Passed,
    Refused,
    /// The request was whole with its head; what comes after it may still stop it.
    EmptyOrRefused,
}

use Fate::{EmptyOrRefused, Passed, Refused};

/// Fields in the place of, or besides, those of a plain POST; the body; what becomes of it.
const PROBES: &[(Fields, &str, Fate)] = &[
    (&[], "", Passed),
    (&[], "abc", Passed),
    (&[], MORE, Passed),
    (&[("content-length", "3")], "abc", Passed),
    (&[("content-length", "0")], "", Passed),
    (&[("content-length", "2")], "abc", Refused),
    (&[("content-length", "4")], "abc", Refused),
    (&[("content-length", "0")], "abc", EmptyOrRefused),
    (&[("content-length", "3")], "", Refused),
    (&[("content-length", "+3")], "abc", Refused),
    (&[("content-length", "-3")], "abc", Refused),
    (&[("content-length", "0x3")], "abc", Refused),
    (&[("content-length", "3, 3")], "abc", Refused),
    (&[("content-length", "3 3")], "abc", Refused),
    (&[("content-length", "")], "abc", Refused),
    (&[("content-length", "99999999999999999999")], "abc", Refused),
    (&[("content-length", "3"), ("content-length", "3")], "abc", Refused),
    (&[("content-length", "3"), ("content-length", "4")], "abc", Refused),
    (&[("transfer-encoding", "chunked")], MORE, Refused),
    (&[("transfer-encoding", "identity")], "abc", Refused),
    (&[("transfer-encoding", "chunked"), ("content-length", "3")], "abc", Refused),
    (&[("transfer_encoding", "chunked")], MORE, Passed),
    (&[("content_length", "40")], "abc", Passed),
    (&[("connection", "close")], "abc", Refused),
    (&[("connection", "transfer-encoding")], "abc", Refused),
    (&[("keep-alive", "timeout=5")], "abc", Refused),
    (&[("proxy-connection", "close")], "abc", Refused),
    (&[("upgrade", "h2c")], "abc", Refused),
    (&[("te", "trailers")], "abc", Passed),
    (&[("te", "chunked")], "abc", Refused),
    (&[("expect", "100-continue")], "abc", Passed),
    (&[("trailer", "content-length")], "abc", Passed),
    (&[("x", "y")], "", Passed),
    (&[("x", "")], "", Passed),
    (&[("x", "a\r\nY: z")], "", Refused),
    (&[("x", "a\r\n\r\nGET /smuggled HTTP/1.1\r\nHost: a\r\n\r\n")], "", Refused),
    (&[("x", "a\nY: z")], "", Refused),
    (&[("x", "a\rY: z")], "", Refused),
    (&[("x", "a\0")], "", Refused),
    (&[("x", "a\r")], "", Refused),
    (&[("x", "a\n")], "", Refused),
    (&[("x", "\n")], "", Refused),
    (&[("x\r\ny", "z")], "", Refused),
    (&[("x: y\r\nz", "w")], "", Refused),
    (&[("x\n", "z")], "", Refused),
    (&[("x\0", "z")], "", Refused),
    (&[("x y", "z")], "", Refused),
    (&[("x ", "z")], "", Refused),
    (&[(" x", "z")], "", Refused),
    (&[("x:", "z")], "", Refused),
    (&[("x:y", "z")], "", Refused),
    (&[("", "z")], "", Refused),
    (&[("X", "z")], "", Refused),
    (&[("Transfer-Encoding", "chunked")], "abc", Refused),
    (&[("x_y", "z")], "", Passed),
    (&[("x.y", "z")], "", Passed),
    (&[("x\u{7f}", "z")], "", Refused),
    (&[("cookie", "a=b"), ("cookie", "c=d")], "", Passed),
    (&[("cookie", "a=b\r\nX: y")], "", Refused),
    (&[(":path", "/PATH?a=b")], "", Passed),
    (&[(":path", "/PATH#x")], "", Passed),
    (&[(":path", "/PATH%0d%0aX:%20y")], "", Passed),
    (&[(":path", "/PATH x")], "", Refused),
    (&[(":path", "/PATH HTTP/1.1\r\nX: y")], "", Refused),
    (&[(":path", "/PATH HTTP/1.1\r\nHost: a\r\n\r\nGET /smuggled")], "", Refused),
    (&[(":path", "/PATH\r\nX: y")], "", Refused),
    (&[(":path", "/PATH\n")], "", Refused),
    (&[(":path", "/PATH\t")], "", Refused),
    (&[(":path", "/PATH\0")], "", Refused),
    (&[(":path", "/PATH\u{7f}")], "", Refused),
    (&[(":path", "/PATH%00")], "", Refused),
    (&[(":path", "PATH")], "", Refused),
    (&[(":path", "")], "", Refused),
    (&[(":path", "*")], "", Refused),
    (&[(":path", "/../PATH")], "", Refused),
    (&[(":path", "/PATH"), (":path", "/smuggled")], "", Refused),
    (&[(":method", "G_T")], "", Passed),
    (&[(":method", "G T")], "", Refused),
    (&[(":method", "GET /smuggled HTTP/1.1\r\nX: y")], "", Refused),
    (&[(":method", "GET\r\n")], "", Refused),
    (&[(":method", "GET\t")], "", Refused),
    (&[(":method", "get")], "", Refused),
    (&[(":method", "")], "", Refused),
    (&[(":method", "GET"), (":method", "POST")], "", Refused),
    (&[(":method", "TRACE")], "", Refused),
    (&[(":method", "CONNECT")], "", Refused),
    (&[(":scheme", "https")], "", Passed),
    (&[(":scheme", "http://a/smuggled HTTP/1.1\r\nX: y")], "", Refused),
    (&[(":scheme", "h ttp")], "", Refused),
    (&[(":scheme", "")], "", Refused),
    (&[(":scheme", "http"), (":scheme", "http")], "", Refused),
    (&[(":authority", "a:80")], "", Passed),
    (&[(":authority", "a b")], "", Refused),
    (&[(":authority", "a\r\nX: y")], "", Refused),
    (&[(":authority", "a/b")], "", Refused),
    (&[(":authority", "a\0")], "", Refused),
    (&[(":authority", "a"), (":authority", "b")], "", Refused),
    (&[("host", "a")], "", Passed),
    (&[("host", "b")], "", Refused),
    (&[("host", "a"), ("host", "a")], "", Refused),
    (&[("host", "a"), ("host", "b")], "", Refused),
    (&[("host", "a b")], "", Refused),
    (&[("x", "y"), (":late", "z")], "", Refused),
    (&[(":status", "200")], "", Refused),
    (&[(":protocol", "websocket")], "", Refused),
];

/// The fields of a probe: those of a plain POST, unless it has its own.
fn fields(own: Fields, tag: &str) -> Vec<(String, String)> {
    let plain = [(":method", "POST"), (":scheme", "http"), (":path", "/PATH"), (":authority", "a")];
    let has = |name: &str| own.iter().any(|(n, _)| *n == name);
    let plain = plain.iter().filter(|(n, _)| !has(n));
    let pseudo = own.iter().filter(|(n, _)| n.starts_with(':') && *n != ":late");
    let rest = own.iter().filter(|(n, _)| !n.starts_with(':') || *n == ":late");
    let all = plain.chain(pseudo).chain(rest);
    all.map(|(n, v)| (n.to_string(), v.replace("/PATH", tag))).collect()
}

/// Until those streams have ended, or the connection has, for the probe's sake.
fn wait_for_ends(h2: &mut H2, streams: &[u32]) {
    let mut open = streams.to_vec();
    while !open.is_empty() {
        let Some(frame) = h2.frame() else { return };
        if frame.ends_stream() || frame.kind == frame::RST_STREAM {
            open.retain(|s| *s != frame.stream);
        }
    }
}

fn check(server: &Server, backend: &Backend, port: usize) {
    let mut wrong = Vec::new();
    for (i, (own, body, fate)) in PROBES.iter().enumerate() {
        let tag = format!("/p{port}-{i}-");
        let all = fields(own, &tag);
        let all: Vec<(&str, &str)> = all.iter().map(|(n, v)| (n.as_str(), v.as_str())).collect();
        let mut h2 = H2::over(server.on(port).connect());
        h2.greet(&[]);
        let stream = h2.open(&all, body.is_empty());
        if !body.is_empty() {
            h2.send(frame::DATA, frame::END_STREAM, stream, body.as_bytes());
        }
        let last = h2.open(
            &[(":method", "GET"), (":scheme", "http"), (":path", "/last"), (":authority", "a")],
            true,
        );
        wait_for_ends(&mut h2, &[stream, last]);
        drop(h2);
        let (bodies, violations) = backend.take(&tag);
        let is_right = match fate {
            Passed => bodies == [*body],
            Refused => bodies.is_empty(),
            EmptyOrRefused => bodies.is_empty() || bodies == [""],
        };
        if !is_right || !violations.is_empty() {
            wrong.push(format!("{own:?} {body:?}: {bodies:?} {violations:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of {}:\n{}", wrong.len(), PROBES.len(), wrong.join("\n"));
}

#[test]
fn buffered_and_unbuffered() {
    let backend = Backend::start();
    let server = Setup::new(CONF).set("ORIGIN", backend.address()).start();
    check(&server, &backend, 0);
    check(&server, &backend, 1);
}
