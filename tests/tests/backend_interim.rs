//! A server that says a lot, and never what was asked for.

use weir_tests::h2::{self, H2};
use weir_tests::{Conn, Next, Origin, Server, Setup};
use weir_wire::http2::frame;

fn repeat(conn: &mut Conn, what: &[u8]) {
    let many = what.repeat(64 * 1024 / what.len());
    while conn.try_write(&many) {}
}

fn start(conf: &str, origin: &Origin) -> Server {
    let conf = format!(
        "events {{}} http {{ server {{ listen 127.0.0.1:%%PORT_0%%; http2 on; {conf} }} }}"
    );
    Setup::new(&conf).set("ORIGIN", origin.address()).start()
}

/// Greets, reads the start of a request, and says the same for ever.
fn endless_h2(what: Vec<u8>) -> Origin {
    Origin::start_raw(move |conn, _| {
        conn.read_until(h2::PREFACE);
        let mut out = Vec::new();
        frame::settings(&[], &mut out);
        conn.write(out);
        while let Some(start) = conn.read_exactly(9) {
            let length = usize::from(start[1]) * 256 + usize::from(start[2]);
            if conn.read_exactly(length).is_some() && start[3] == frame::HEADERS {
                repeat(conn, &what);
            }
        }
    })
}

#[test]
fn interim_answers_without_end_are_no_answer() {
    for status in ["100 Continue", "103 Early Hints"] {
        let origin = Origin::start(move |_, conn| {
            repeat(conn, format!("HTTP/1.1 {status}\r\nA: b\r\n\r\n").as_bytes());
            Next::Close
        });
        let server = start("location / { early_hints 1; proxy_pass http://%%ORIGIN%%; }", &origin);
        let answer = server.raw(b"GET / HTTP/1.0\r\nHost: a\r\n\r\n");
        assert!(answer.starts_with(b"HTTP/1.1 502"), "{status}");
        server.expect_error("upstream sent too many interim responses");
    }
}

#[test]
fn a_few_interim_answers_are_passed_over() {
    let origin = Origin::start(|_, conn| {
        conn.write("HTTP/1.1 100 Continue\r\n\r\n".repeat(100));
        conn.reply("200 OK", "", "done");
        Next::Close
    });
    let server = start("location / { proxy_pass http://%%ORIGIN%%; }", &origin);
    assert_eq!(server.get("/").text(), "done");
}

#[test]
fn they_have_an_end_in_http2_too() {
    let block = h2::block(&[(":status", "103")]);
    let head = frame::head(block.len(), frame::HEADERS, frame::END_HEADERS, 1);
    let origin = endless_h2([&head[..], &block[..]].concat());
    let server = start(
        "location / { grpc_pass %%ORIGIN%%; }
         location /v2 { proxy_http_version 2; proxy_pass http://%%ORIGIN%%; }",
        &origin,
    );
    for path in ["/", "/v2"] {
        assert_eq!(H2::connect(&server).fetch(path).header(":status"), Some("502"), "{path}");
    }
    server.expect_error("upstream sent too many interim responses");
}
