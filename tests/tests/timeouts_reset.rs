//! `reset_timedout_connection`: which connections end by a reset, and which by an end.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use weir_tests::{Origin, Server, Setup};

fn server(reset: &str, origin: &Origin) -> Server {
    Setup::new(
        "error_log %%DIR%%/error.log info; events {} http {
            log_format t '$uri $status [$request_completion]'; access_log %%DIR%%/access.log t;
            reset_timedout_connection %%RESET%%;
            client_header_timeout 300ms; client_body_timeout 300ms; lingering_timeout 300ms;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
                location /proxied { proxy_pass http://%%ORIGIN%%; }
                location /streamed { proxy_pass http://%%ORIGIN%%; proxy_request_buffering off; }
                location /text { return 200 text; }
                location /large { client_max_body_size 4; }
                location /idle { keepalive_timeout 300ms; return 200 text; }
            } }",
    )
    .set("ORIGIN", origin.address())
    .set("RESET", reset)
    .start()
}

/// The status of the answer, if one comes, and whether the connection is reset behind it.
fn end_of(server: &Server, sent: &str, then: &str) -> (String, bool) {
    let mut conn = TcpStream::connect(("127.0.0.1", server.port(0))).unwrap();
    conn.set_read_timeout(Some(Duration::from_secs(30))).unwrap();
    conn.write_all(sent.as_bytes()).unwrap();
    let (mut seen, mut buf) = (Vec::new(), [0; 4096]);
    let mut then = Some(then).filter(|t| !t.is_empty());
    loop {
        match conn.read(&mut buf) {
            Ok(0) => return (status(&seen), false),
            Ok(n) => seen.extend_from_slice(&buf[..n]),
            Err(e) if e.kind() == ErrorKind::ConnectionReset => return (status(&seen), true),
            Err(e) => panic!("{sent:?}: {e}"),
        }
        if let Some(then) = then.take_if(|_| seen.ends_with(b"text")) {
            conn.write_all(then.as_bytes()).unwrap();
        }
    }
}

fn status(answer: &[u8]) -> String {
    String::from_utf8_lossy(answer).split(' ').nth(1).unwrap_or_default().to_string()
}

fn post(path: &str, more: &str) -> String {
    format!("POST {path} HTTP/1.1\r\nHost: x\r\n{more}")
}

/// Every timeout at which nginx gives a client up; idle connections and lingering ones just end.
#[test]
fn who_is_given_up_is_reset() {
    let origin = Origin::start_raw(|conn, _| {
        conn.wait_closed();
    });
    let length = "Content-Length: 9\r\n\r\nabc";
    let chunked = "Transfer-Encoding: chunked\r\n\r\n9\r\nabc";
    let kept = "GET /text HTTP/1.1\r\nHost: x\r\n\r\n";
    let cases = [
        ("part of a head", "GET / HTTP/1.1\r\n".to_string(), "", "", true),
        ("a body that is kept", post("/proxied", length), "", "", true),
        ("a chunked one", post("/proxied", chunked), "", "", true),
        ("a body that is passed on", post("/streamed", length), "", "", true),
        ("a body that is thrown away", post("/text", length), "", "200", true),
        ("a chunked one of these", post("/text", chunked), "", "200", true),
        ("one that is too large", post("/large", length), "", "413", true),
        (
            "the last of these",
            post("/text", &format!("Connection: close\r\n{length}")),
            "",
            "200",
            true,
        ),
        ("an empty line", kept.to_string(), "\r\n", "200", true),
        ("part of a second head", kept.to_string(), "GET", "200", true),
        ("an idle connection", kept.replace("text", "idle"), "", "200", false),
    ];
    for reset in ["on", "off"] {
        let server = server(reset, &origin);
        for (what, sent, then, status, is_reset) in &cases {
            let wanted = ((*status).to_string(), *is_reset && reset == "on");
            assert_eq!(end_of(&server, sent, then), wanted, "{what}, {reset}");
        }
    }
}
