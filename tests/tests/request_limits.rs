//! Sizes of request heads: the buffers, the number of lines, and which error each limit is.

use weir_tests::Server;

const CONF: &str = "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
    connection_pool_size 256; client_header_buffer_size 128; large_client_header_buffers 2 256; max_headers 5;
    error_log %%DIR%%/error.log info; return 200 ok; } }";

#[test]
fn a_line_fits_one_large_buffer() {
    let server = Server::start(CONF);
    let line = |n: usize| format!("GET /{} HTTP/1.0\r\n\r\n", "a".repeat(n - 16));
    assert_eq!(server.status_of(line(256).as_bytes()), 200);
    assert_eq!(server.status_of(line(257).as_bytes()), 414);
    server.expect_error("client sent too long URI while reading client request line");
}

#[test]
fn a_header_line_fits_one_large_buffer() {
    let server = Server::start(CONF);
    let header = |n: usize| format!("GET / HTTP/1.0\r\nA: {}\r\n\r\n", "a".repeat(n - 5));
    assert_eq!(server.status_of(header(256).as_bytes()), 200);
    let answer = server.exchange("GET", header(257).as_bytes());
    assert_eq!((answer.status, answer.reason.as_str()), (400, "Bad Request"));
    assert!(answer.text().contains("Request Header Or Cookie Too Large"));
    server.expect_error("client sent too long header line: \"A: aaaa");
}

#[test]
fn all_lines_fit_all_buffers() {
    let server = Server::start(CONF);
    let lines = |n: usize| {
        let line = format!("A: {}\r\n", "b".repeat(195));
        format!("GET / HTTP/1.0\r\n{}\r\n", line.repeat(n))
    };
    assert_eq!(server.status_of(lines(2).as_bytes()), 200);
    assert_eq!(server.status_of(lines(3).as_bytes()), 400);
}

#[test]
fn lines_are_counted() {
    let server = Server::start(CONF);
    let lines = |n: usize| format!("GET / HTTP/1.0\r\n{}\r\n", "A: b\r\n".repeat(n));
    assert_eq!(server.status_of(lines(5).as_bytes()), 200);
    assert_eq!(server.status_of(lines(6).as_bytes()), 400);
    server.expect_error("client sent too many header lines");
}
