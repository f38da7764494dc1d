//! What the logs say of heads that are refused, cut off or too slow: as much of the request as nginx
//! has understood of the same bytes.

use weir_tests::Server;

/// What a client does with its connection once it has sent its bytes.
#[derive(Clone, Copy)]
enum Then {
    Waits,
    Closes,
}
use Then::{Closes, Waits};

/// The bytes; the access log's line; the error log's, from its message on.
type Case = (&'static str, Then, &'static str, &'static str);

fn server() -> Server {
    Server::start(
        "error_log %%DIR%%/error.log info; events {} http {
            log_format t '$status $request_length [$request_method] [$request_uri] [$uri] [$args] [$arg_a]'
                ' [$server_protocol] [$host] [$http_host] [$server_name] [$request]';
            access_log %%DIR%%/access.log t; client_header_timeout 500ms;
            client_header_buffer_size 128; connection_pool_size 128; large_client_header_buffers 2 128; lingering_timeout 200ms;
            server { listen 127.0.0.1:%%PORT_0%%; server_name def; return 200; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name other; return 200; } }",
    )
}

const CASES: &[Case] = &[
    ("GET /r?a=1&b=2 HT", Closes,
        "400 0 [-] [-] [-] [-] [-] [] [def] [-] [def] [GET /r?a=1&b=2 HT]",
        "client prematurely closed connection while reading client request line, client: 127.0.0.1, server: def, request: \"GET /r?a=1&b=2 HT\""),
    ("GET /r?a=1&b=2 HT", Waits,
        "408 0 [-] [-] [-] [-] [-] [] [def] [-] [def] [GET /r?a=1&b=2 HT]",
        "client timed out (110: Connection timed out) while reading client request line, client: 127.0.0.1, server: def, request: \"GET /r?a=1&b=2 HT\""),
    ("GE", Waits,
        "408 0 [-] [-] [-] [-] [-] [-] [def] [-] [def] [GE]",
        "client timed out (110: Connection timed out) while reading client request line, client: 127.0.0.1, server: def, request: \"GE\""),
    ("GET /r?a=1&b=2 HTTP/1.1\r\nHost: other\r\nX: y\r\n", Closes,
        "400 44 [GET] [/r?a=1&b=2] [/r] [a=1&b=2] [1] [HTTP/1.1] [other] [other] [other] [GET /r?a=1&b=2 HTTP/1.1]",
        "client prematurely closed connection while reading client request headers, client: 127.0.0.1, server: other, request: \"GET /r?a=1&b=2 HTTP/1.1\", host: \"other\""),
    ("GET /r?a=1&b=2 HTTP/1.1\r\nHost: other\r\nX: y\r\nCoo", Waits,
        "408 44 [GET] [/r?a=1&b=2] [/r] [a=1&b=2] [1] [HTTP/1.1] [other] [other] [other] [GET /r?a=1&b=2 HTTP/1.1]",
        "client timed out (110: Connection timed out) while reading client request headers, client: 127.0.0.1, server: other, request: \"GET /r?a=1&b=2 HTTP/1.1\", host: \"other\""),
    ("GET /a/../x%20y?a=1 HTTP/1.1\r\nHost: other\r\nX: y\r\n", Waits,
        "408 49 [GET] [/a/../x%20y?a=1] [/x y] [a=1] [1] [HTTP/1.1] [other] [other] [other] [GET /a/../x%20y?a=1 HTTP/1.1]",
        "client timed out (110: Connection timed out) while reading client request headers, client: 127.0.0.1, server: other, request: \"GET /a/../x%20y?a=1 HTTP/1.1\", host: \"other\""),
    ("get /r?a=1 HTTP/1.1\r\nHost: other\r\nX: y\r\n\r\n", Waits,
        "400 0 [-] [-] [-] [-] [-] [-] [def] [-] [def] [get /r?a=1 HTTP/1.1]",
        "client sent invalid method while reading client request line, client: 127.0.0.1, server: def, request: \"get /r?a=1 HTTP/1.1\""),
    ("GET r?a=1 HTTP/1.1\r\nHost: other\r\nX: y\r\n\r\n", Waits,
        "400 0 [-] [-] [-] [-] [-] [-] [def] [-] [def] [GET r?a=1 HTTP/1.1]",
        "client sent invalid request while reading client request line, client: 127.0.0.1, server: def, request: \"GET r?a=1 HTTP/1.1\""),
    ("GET /r%zz?a=1 HTTP/1.1\r\n", Waits,
        "400 24 [GET] [-] [] [-] [-] [HTTP/1.1] [def] [-] [def] [GET /r%zz?a=1 HTTP/1.1]",
        "client sent invalid request while reading client request line, client: 127.0.0.1, server: def, request: \"GET /r%zz?a=1 HTTP/1.1\""),
    ("GET /../r?a=1 HTTP/1.1\r\nHost: other\r\nX: y\r\n\r\n", Waits,
        "400 24 [GET] [-] [] [-] [-] [HTTP/1.1] [def] [-] [def] [GET /../r?a=1 HTTP/1.1]",
        "client sent invalid request while reading client request line, client: 127.0.0.1, server: def, request: \"GET /../r?a=1 HTTP/1.1\""),
    ("GET /r?a=1 HTXP/1.1\r\nHost: other\r\nX: y\r\n\r\n", Waits,
        "400 0 [-] [-] [-] [-] [-] [] [def] [-] [def] [GET /r?a=1 HTXP/1.1]",
        "client sent invalid request while reading client request line, client: 127.0.0.1, server: def, request: \"GET /r?a=1 HTXP/1.1\""),
    ("GET /r?a=1 HTTP/2.0\r\nHost: other\r\nX: y\r\n\r\n", Waits,
        "505 0 [-] [-] [-] [-] [-] [] [def] [-] [def] [GET /r?a=1 HTTP/2.0]",
        "client sent invalid version while reading client request line, client: 127.0.0.1, server: def, request: \"GET /r?a=1 HTTP/2.0\""),
    ("POST /r?a=1\r\n", Waits,
        "400 0 [-] [-] [-] [-] [-] [-] [def] [-] [def] [POST /r?a=1]",
        "client sent invalid method in HTTP/0.9 request while reading client request line, client: 127.0.0.1, server: def, request: \"POST /r?a=1\""),
    ("GET /r ?a=1 HTTP/1.1\r\nHost: other\r\nX: y\r\n\r\n", Waits,
        "400 0 [-] [-] [-] [-] [-] [-] [def] [-] [def] [GET /r ?a=1 HTTP/1.1]",
        "client sent invalid request while reading client request line, client: 127.0.0.1, server: def, request: \"GET /r ?a=1 HTTP/1.1\""),
    ("GET /r?a=1&b=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx HTTP/1.1\r\nHost: other\r\nX: y\r\n\r\n", Waits,
        "414 0 [-] [-] [-] [-] [-] [-] [def] [-] [def] [GET /r?a=1&b=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx]",
        "client sent too long URI while reading client request line, client: 127.0.0.1, server: def, request: \"GET /r?a=1&b=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\""),
    ("GET /r?a=1&b=2 HTTP/1.1\r\nHost: other\r\nX: y\r\nBig: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\r\n\r\n", Waits,
        "400 44 [GET] [/r?a=1&b=2] [/r] [a=1&b=2] [1] [HTTP/1.1] [other] [other] [other] [GET /r?a=1&b=2 HTTP/1.1]",
        "client sent too long header line: \"Big: xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx...\" while reading client request headers, client: 127.0.0.1, server: other, request: \"GET /r?a=1&b=2 HTTP/1.1\", host: \"other\""),
    ("GET /r?a=1&b=2 HTTP/1.1\r\nX: y\r\n\r\n", Waits,
        "400 33 [GET] [/r?a=1&b=2] [/r] [a=1&b=2] [1] [HTTP/1.1] [def] [-] [def] [GET /r?a=1&b=2 HTTP/1.1]",
        "client sent HTTP/1.1 request without \"Host\" header while reading client request headers, client: 127.0.0.1, server: def, request: \"GET /r?a=1&b=2 HTTP/1.1\""),
    ("GET /r?a=1&b=2 HTTP/1.1\r\nX: y\r\nHost: a/b\r\nC: d\r\n\r\n", Waits,
        "400 42 [GET] [/r?a=1&b=2] [/r] [a=1&b=2] [1] [HTTP/1.1] [def] [a/b] [def] [GET /r?a=1&b=2 HTTP/1.1]",
        "client sent invalid host header while reading client request headers, client: 127.0.0.1, server: def, request: \"GET /r?a=1&b=2 HTTP/1.1\", host: \"a/b\""),
    ("GET /r?a=1&b=2 HTTP/1.1\r\nHost: other\r\nX: y\r\nHost: b\r\nC: d\r\n\r\n", Waits,
        "400 53 [GET] [/r?a=1&b=2] [/r] [a=1&b=2] [1] [HTTP/1.1] [other] [other] [other] [GET /r?a=1&b=2 HTTP/1.1]",
        "client sent duplicate host header: \"Host: b\", previous value: \"Host: other\" while reading client request headers, client: 127.0.0.1, server: other, request: \"GET /r?a=1&b=2 HTTP/1.1\", host: \"other\""),
    ("GET /r?a=1&b=2 HTTP/1.1\r\nHost: other\r\nX: y\r\n abc\r\nC: d\r\n\r\n", Waits,
        "400 44 [GET] [/r?a=1&b=2] [/r] [a=1&b=2] [1] [HTTP/1.1] [other] [other] [other] [GET /r?a=1&b=2 HTTP/1.1]",
        "client sent invalid header line: \"\\x20...\" while reading client request headers, client: 127.0.0.1, server: other, request: \"GET /r?a=1&b=2 HTTP/1.1\", host: \"other\""),
    ("GET /r?a=1&b=2 HTTP/1.1\r\nHost: other\r\nX: y\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n", Waits,
        "400 82 [GET] [/r?a=1&b=2] [/r] [a=1&b=2] [1] [HTTP/1.1] [other] [other] [other] [GET /r?a=1&b=2 HTTP/1.1]",
        "client sent duplicate header line: \"Content-Length: 1\", previous value: \"Content-Length: 1\" while reading client request headers, client: 127.0.0.1, server: other, request: \"GET /r?a=1&b=2 HTTP/1.1\", host: \"other\""),
    ("GET /r?a=1&b=2 HTTP/1.1\r\nHost: other\r\nX: y\r\nContent-Length: x\r\n\r\n", Waits,
        "400 65 [GET] [/r?a=1&b=2] [/r] [a=1&b=2] [1] [HTTP/1.1] [other] [other] [other] [GET /r?a=1&b=2 HTTP/1.1]",
        "client sent invalid \"Content-Length\" header while reading client request headers, client: 127.0.0.1, server: other, request: \"GET /r?a=1&b=2 HTTP/1.1\", host: \"other\""),
    ("TRACE /r?a=1 HTTP/1.1\r\nHost: other\r\nX: y\r\n\r\n", Waits,
        "405 44 [TRACE] [/r?a=1] [/r] [a=1] [1] [HTTP/1.1] [other] [other] [other] [TRACE /r?a=1 HTTP/1.1]",
        "client sent TRACE method while reading client request headers, client: 127.0.0.1, server: other, request: \"TRACE /r?a=1 HTTP/1.1\", host: \"other\""),
    ("GET http:///r?a=1 HTTP/1.1\r\nHost: other\r\nX: y\r\n\r\n", Waits,
        "400 28 [GET] [/r?a=1] [/r] [a=1] [1] [HTTP/1.1] [def] [-] [def] [GET http:///r?a=1 HTTP/1.1]",
        "client sent invalid host in request line while reading client request line, client: 127.0.0.1, server: def, request: \"GET http:///r?a=1 HTTP/1.1\""),
    ("\r\nxx /r\r\n", Waits,
        "400 0 [-] [-] [-] [-] [-] [-] [def] [-] [def] [xx /r]",
        "client sent invalid method while reading client request line, client: 127.0.0.1, server: def, request: \"xx /r\""),
    ("\r\n\r\n", Closes,
        "400 0 [-] [-] [-] [-] [-] [-] [def] [-] [def] []",
        "client prematurely closed connection while reading client request line, client: 127.0.0.1, server: def"),
    ("GET /r?a=1&b=2 HTTP/1.1\r\nHost: other\r\nX: y\r\na_b: c\r\nConnection: close\r\n\r\n", Waits,
        "200 73 [GET] [/r?a=1&b=2] [/r] [a=1&b=2] [1] [HTTP/1.1] [other] [other] [other] [GET /r?a=1&b=2 HTTP/1.1]",
        "client sent invalid header line: \"a_b: c\" while reading client request headers, client: 127.0.0.1, server: other, request: \"GET /r?a=1&b=2 HTTP/1.1\", host: \"other\""),
    ("GET /r?a=1&b=2 HTTP/1.1\r\na_b: c\r\nHost: other\r\nX: y\r\nConnection: close\r\n\r\n", Waits,
        "200 73 [GET] [/r?a=1&b=2] [/r] [a=1&b=2] [1] [HTTP/1.1] [other] [other] [other] [GET /r?a=1&b=2 HTTP/1.1]",
        "client sent invalid header line: \"a_b: c\" while reading client request headers, client: 127.0.0.1, server: def, request: \"GET /r?a=1&b=2 HTTP/1.1\""),
];

#[test]
fn logs_have_what_was_understood() {
    let server = server();
    let mut lines = (0, 0);
    for (bytes, then, access, error) in CASES {
        let mut client = server.connect();
        client.send(bytes.as_bytes());
        match then {
            Waits => drop(client.read_to_end()),
            Closes => drop(client),
        }
        lines.0 += 1;
        let told = server.log_lines("access.log", lines.0);
        assert_eq!(told[lines.0 - 1], *access, "{bytes:?}");
        // A client that ends after its request leaves no line of its own here.
        let of_head = |l: &&String| l.contains("[info] ") && !l.contains("keepalive connection");
        weir_tests::expect_soon("the error log's line", || {
            server.error_log().lines().filter(|l| of_head(&&l.to_string())).count() > lines.1
        });
        lines.1 += 1;
        let log = server.log_lines("error.log", 1);
        let told = log.iter().filter(of_head).nth(lines.1 - 1).unwrap();
        let (_, text) = told.split_once(" client").expect("what the client did");
        assert_eq!(format!("client{text}"), *error, "{bytes:?}");
    }
}

#[test]
fn connections_without_a_request_are_told_of() {
    let server = server();
    let at = server.port(0);
    drop(server.connect());
    let idle = format!(" while waiting for request, client: 127.0.0.1, server: 127.0.0.1:{at}");
    server.expect_error(&format!("client closed connection{idle}"));
    assert_eq!(server.connect().read_to_end(), b"");
    server.expect_error(&format!("client timed out (110: Connection timed out){idle}"));
    let mut client = server.connect();
    assert_eq!(client.get("/").status, 200);
    drop(client);
    server.expect_error("client 127.0.0.1 closed keepalive connection\n");
}
