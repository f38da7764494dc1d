//! When the access log's line of a request with a body that nobody reads is written, and what it says.

use std::time::Duration;
use weir_tests::{expect_soon, Client, Server, Setup};

fn server() -> Server {
    Setup::new(
        "error_log %%DIR%%/error.log info; events {} http {
            log_format t '$uri $status $request_length [$request_completion] $request_time';
            access_log %%DIR%%/access.log t; lingering_timeout 1s;
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
                location /text { return 200 text; }
                location /last { keepalive_timeout 0; return 200 text; }
                location /always { lingering_close always; return 200 text; }
                location /off { lingering_close off; return 200 text; }
                location /large { client_max_body_size 4; }
            } }",
    )
    .start()
}

const BODY: &str = "Content-Length: 9\r\n\r\nabc";
const CHUNKS: &str = "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n";

/// The client that has asked and been answered, but has not sent all; nothing is logged yet.
fn asked(server: &Server, path: &str, body: &str) -> Client {
    let mut client = server.connect();
    client.send(format!("POST {path} HTTP/1.1\r\nHost: x\r\n{body}").as_bytes());
    client.response_to("POST");
    assert!(client.is_silent(Duration::from_millis(300)), "{path}: the connection has ended");
    assert_eq!(server.read("access.log"), "", "{path}");
    client
}

/// The only line, of which `$request_time` is at least so many seconds.
fn expect_line(server: &Server, wanted: &str, secs: f64) {
    let lines = server.log_lines("access.log", 1);
    let (line, time) = lines[0].rsplit_once(' ').unwrap();
    assert_eq!(line, wanted);
    assert!(time.parse::<f64>().unwrap() >= secs, "{wanted}: {time} s");
    server.write("access.log", "");
}

/// The request has ended when its body has come.
#[test]
fn a_request_lasts_as_long_as_the_body_that_is_thrown_away() {
    let server = server();
    for (path, body, rest, closes) in [
        ("/text", BODY, "defghi", false),
        ("/text", CHUNKS, "0\r\n\r\n", false),
        ("/off", BODY, "defghi", false),
        ("/last", BODY, "defghi", true),
        ("/last", CHUNKS, "0\r\n\r\n", true),
    ] {
        let mut client = asked(&server, path, body);
        client.send(rest.as_bytes());
        let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\n{body}");
        let (head, _) = head.split_once("\r\n\r\n").unwrap();
        expect_line(&server, &format!("{path} 200 {} [OK]", head.len() + 4), 0.25);
        match closes {
            true => assert!(client.is_closed()),
            false => {
                assert_eq!(client.get("/text").text(), "text");
                expect_soon("a line", || !server.read("access.log").is_empty());
                server.write("access.log", "");
            }
        }
    }
}

/// Who does not send the rest is waited for, and so is who may send more.
#[test]
fn a_request_lasts_as_long_as_its_client_is_waited_for() {
    let server = server();
    let mut client = asked(&server, "/large", BODY);
    assert!(client.is_closed());
    let head = "POST /large HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n".len();
    expect_line(&server, &format!("/large 413 {head} [OK]"), 0.95);

    let mut client = server.connect();
    let asks = "GET /always HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    client.send(asks.as_bytes());
    assert!(client.read_to_end().ends_with(b"text"));
    assert_eq!(server.read("access.log"), "");
    expect_line(&server, &format!("/always 200 {} [OK]", asks.len()), 0.95);

    let mut client = asked(&server, "/text", BODY);
    client.shutdown_write();
    assert!(client.is_closed());
    let head = "POST /text HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n".len();
    expect_line(&server, &format!("/text 200 {head} [OK]"), 0.25);
}
