//! Which request lines are understood, and what the others get.

use weir_tests::Server;

const CONF: &str = "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
    error_log %%DIR%%/error.log info;
    return 200 '$request_method|$request_uri|$uri|$args|$server_protocol|$host'; } }";

#[test]
fn lines_and_their_statuses() {
    let server = Server::start(CONF);
    for (line, status) in [
        ("GET / HTTP/1.0", 200),
        ("GET  /   HTTP/1.0  ", 200),
        ("\r\n\n\rGET / HTTP/1.0", 200),
        ("G_E-T / HTTP/1.0", 200),
        ("GET http://a/b HTTP/1.0", 200),
        ("GET http://[::1]:80/ HTTP/1.0", 200),
        ("GET x+y-z.1://a/ HTTP/1.0", 200),
        ("get / HTTP/1.0", 400),
        ("G(T / HTTP/1.0", 400),
        ("GET\t/ HTTP/1.0", 400),
        ("OPTIONS * HTTP/1.0", 400),
        ("GET a HTTP/1.0", 400),
        ("GET /\x7f HTTP/1.0", 400),
        ("GET /\t HTTP/1.0", 400),
        ("GET /a\rb HTTP/1.0", 400),
        ("GET / FTP/1.0", 400),
        ("GET / HTTP/1", 400),
        ("GET / HTTP/1.0 x", 400),
        ("GET / HTTP/01.0", 400),
        ("GET / HTTP/1.1000", 400),
        ("GET / HTTP/2.0", 505),
        ("GET / HTTP/10.0", 505),
        ("PRI * HTTP/2.0", 400),
        ("GET http:/a HTTP/1.0", 400),
        ("GET http:///x HTTP/1.0", 400),
        ("GET http://a_b/ HTTP/1.0", 400),
        ("GET http://a..b/ HTTP/1.0", 400),
        ("GET http://a:99999/ HTTP/1.0", 400),
        ("GET http://[::1/ HTTP/1.0", 400),
        ("GET /.. HTTP/1.0", 400),
        ("GET /%00 HTTP/1.0", 400),
        ("GET /% HTTP/1.0", 400),
        ("CONNECT a:443 HTTP/1.0", 405),
        ("CONNECT a HTTP/1.0", 400),
        ("TRACE / HTTP/1.0", 405),
    ] {
        let request = format!("{line}\r\n\r\n");
        assert_eq!(server.status_of(request.as_bytes()), status, "{line:?}");
    }
    assert_eq!(server.status_of(b"GET / HTTP/1.0\n\n"), 200);
    assert_eq!(server.status_of(b"GET / HTTP/1.12\r\nHost: a\r\nConnection: close\r\n\r\n"), 200);
}

#[test]
fn a_version_less_request_gets_a_bare_body() {
    let server = Server::start(CONF);
    assert_eq!(server.raw(b"GET /x\r\n"), b"GET|/x|/x|||");
    assert_eq!(server.raw(b"GET / \n"), b"GET|/|/|||");
    assert!(server.raw(b"HEAD /\r\n").starts_with(b"<html>"));
    server.expect_error("client sent invalid method in HTTP/0.9 request");
}

#[test]
fn what_cannot_be_http_is_answered_at_its_first_byte() {
    let server = Server::start(CONF);
    let mut client = server.connect();
    client.send(b"\x16");
    let answer = client.read_to_end();
    assert!(answer.starts_with(b"HTTP/1.1 400 Bad Request\r\n"));
    server.expect_error("client sent invalid method while reading client request line");
}

#[test]
fn targets_are_normalised() {
    let server = Server::start(CONF);
    for (target, shown) in [
        ("/a//b/./c/../d", "/a//b/./c/../d|/a/b/d|"),
        ("/%61%2fb%3fc", "/%61%2fb%3fc|/a/b?c|"),
        ("/a?b=c%20&d#e", "/a?b=c%20&d#e|/a|b=c%20&d"),
        ("/a#b?c", "/a#b?c|/a|"),
        ("/?", "/?|/|"),
        ("/a/..", "/a/..|/|"),
        ("/\u{e9}", "/\u{e9}|/\u{e9}|"),
        ("http://H:81/x?y", "/x?y|/x|y"),
        ("http://h", "/|/|"),
        ("http://h?y", "?y|/|y"),
    ] {
        let request = format!("GET {target} HTTP/1.1\r\nHost: z\r\nConnection: close\r\n\r\n");
        let host = if target.starts_with("http") { "h" } else { "z" };
        let text = server.exchange("GET", request.as_bytes()).text();
        assert_eq!(text, format!("GET|{shown}|HTTP/1.1|{host}"), "{target}");
    }
}

#[test]
fn slashes_are_kept_when_told() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; merge_slashes off;
            return 200 $uri; } }",
    );
    assert_eq!(server.get("//a///b/../c").text(), "//a///c");
}
