//! Which header lines are understood, and how the others are refused or dropped.

use weir_tests::Server;

const CONF: &str = "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
    error_log %%DIR%%/error.log info;
    location / { return 200 '$http_x|$http_x_y|$host'; } } }";

#[test]
fn lines_and_their_statuses() {
    let server = Server::start(CONF);
    for (lines, status) in [
        ("Host: a\r\n", 200),
        ("Host:a\n", 200),
        ("Host: a \r\r\n", 200),
        ("Host: a\r\nNoColon\r\n", 200),
        ("Host: a\r\nBad/Name: x\r\n", 200),
        ("Host: a\r\nX: \tb\x01\r\n", 200),
        ("", 400),
        ("Host : a\r\n", 400),
        ("Host: a\r\n b\r\n", 400),
        ("Host: a\r\n: x\r\n", 400),
        ("Host: a\r\nX: \0\r\n", 400),
        ("Host: a\r\nX: b\rc\r\n", 400),
        ("Host: a\r\nHost: a\r\n", 400),
        ("Host: \r\n", 400),
        ("Host: a b\r\n", 400),
        ("Host: a/b\r\n", 400),
        ("Host: a:b\r\n", 400),
        ("Host: .\r\n", 400),
        ("Host: a.\r\n", 200),
        ("Host: A_b%20~:\r\n", 200),
        ("Host: [::1]:8080\r\n", 200),
        ("Host: [::1]x\r\n", 400),
        ("Host: a\r\nRange: x\r\nRange: x\r\n", 200),
        ("Host: a\r\nIf-Range: x\r\nIf-Range: x\r\n", 400),
        ("Host: a\r\nAuthorization: x\r\nAuthorization: x\r\n", 400),
    ] {
        let request = format!("GET / HTTP/1.1\r\nConnection: close\r\n{lines}\r\n");
        assert_eq!(server.status_of(request.as_bytes()), status, "{lines:?}");
    }
}

#[test]
fn body_lengths_and_their_statuses() {
    let server = Server::start(CONF);
    for (lines, status) in [
        ("Content-Length: 1\r\n", 200),
        ("Content-Length: +1\r\n", 400),
        ("Content-Length: 0x1\r\n", 400),
        ("Content-Length: 1, 1\r\n", 400),
        ("Content-Length:\r\n", 400),
        ("Content-Length: 1\r\nContent-Length: 1\r\n", 400),
        ("Content-Length: 9223372036854775808\r\n", 400),
        ("Transfer-Encoding: gzip\r\n", 501),
        ("Transfer-Encoding: gzip, chunked\r\n", 501),
        ("Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n", 400),
        ("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n", 400),
    ] {
        let request =
            format!("POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n{lines}\r\n0\r\n\r\n");
        assert_eq!(server.status_of(request.as_bytes()), status, "{lines:?}");
    }
    let old = b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    assert_eq!(server.status_of(old), 400);
}

#[test]
fn odd_names_are_dropped_unless_allowed() {
    let server = Server::start(CONF);
    assert_eq!(server.get_with("/", "X: 1\r\nX_Y: 2\r\n").text(), "1||localhost");
    server.expect_error("client sent invalid header line: \"X_Y: 2\"");
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            underscores_in_headers on; return 200 $http_x_y; } }",
    );
    assert_eq!(server.get_with("/", "X_Y: 2\r\n").text(), "2");
}

#[test]
fn values_are_trimmed_of_spaces_and_joined() {
    let server = Server::start(CONF);
    assert_eq!(server.get_with("/", "X:   a  b  \r\n").text(), "a  b||localhost");
    assert_eq!(server.get_with("/", "x: 1\r\nX: 2\r\n").text(), "1, 2||localhost");
}

#[test]
fn refusals_are_logged_with_their_reason() {
    let server = Server::start(CONF);
    for (request, reason) in [
        ("GET / HTTP/1.1\r\n\r\n", "client sent HTTP/1.1 request without \"Host\" header"),
        ("GET / HTTP/1.1\r\nA b\r\n\r\n", "client sent invalid header line: \"A\\x20...\""),
        ("GET / HTTP/1.1\r\nHost: @\r\n\r\n", "client sent invalid host header"),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nhost: b\r\n\r\n",
            "client sent duplicate host header: \"host: b\", previous value: \"Host: a\"",
        ),
        (
            "GET / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: x\r\n\r\n",
            "client sent unknown \"Transfer-Encoding\": \"x\"",
        ),
    ] {
        server.raw(request.as_bytes());
        server.expect_error(reason);
    }
}
