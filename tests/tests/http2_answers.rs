//! HTTP/2: requests and what is answered.

use weir_tests::h2::{request, H2};
use weir_tests::{Origin, Server, Setup};

const CONF: &str = "events {} http { http2 on; server { listen 127.0.0.1:%%PORT_0%%;
    add_header X-Mixed-Case on always;
    location / { return 200 '$request|$http2|$server_protocol|$host|$http_cookie|$http_host'; }
    location /files/ { alias %%DIR%%/; }
    location /gone { return 410 text; }
    location /move { return 302 /elsewhere; }
    location /none { return 204; }
    location /hop { add_header Connection x; add_header Keep-Alive y; return 200 ok; }
    location /trailers { add_trailer X-T one; add_trailer X-U $request_method; return 200 ok; } } }";

#[test]
fn variables_know_the_protocol() {
    let server = Server::start(CONF);
    let mut h2 = H2::connect(&server);
    let mut fields = request("GET", "/a/%41//b?x=1").to_vec();
    fields.extend([("cookie", "a=b"), ("cookie", "c=d")]);
    let stream = h2.open(&fields, true);
    let answer = h2.answer(stream);
    assert_eq!(answer.status, 200);
    let expected = "GET /a/%41//b?x=1 HTTP/2.0|h2c|HTTP/2.0|localhost|a=b; c=d|localhost";
    assert_eq!(answer.text(), expected);
    assert_eq!(answer.header("x-mixed-case"), Some("on"), "names are in small letters");
    assert_eq!(answer.header("connection"), None);
    assert_eq!(server.on(0).get("/h1").text(), "GET /h1 HTTP/1.1||HTTP/1.1|localhost||localhost");
}

#[test]
fn statuses_with_and_without_bodies() {
    let server = Server::start(CONF);
    let mut h2 = H2::connect(&server);
    for (path, status, body) in
        [("/gone", 410, "text"), ("/none", 204, ""), ("/hop", 200, "ok"), ("/files/no", 404, "")]
    {
        let answer = h2.fetch(path);
        assert_eq!(answer.status, status, "{path}");
        assert!(answer.text().contains(body), "{path}");
        assert!(answer.header("keep-alive").is_none_or(|_| path == "/hop"));
    }
    let stream = h2.open(&request("HEAD", "/gone"), true);
    let head = h2.answer(stream);
    assert_eq!((head.status, head.header("content-length"), head.frames), (410, Some("4"), 0));
    let moved = h2.fetch("/move");
    let target = format!("http://localhost:{}/elsewhere", server.port(0));
    assert_eq!((moved.status, moved.header("location")), (302, Some(target.as_str())));
}

#[test]
fn trailers_follow_the_body() {
    let server = Server::start(CONF);
    let answer = H2::connect(&server).fetch("/trailers");
    assert_eq!((answer.status, answer.text().as_str()), (200, "ok"));
    let expected = [("x-t", "one"), ("x-u", "GET")].map(|(n, v)| (n.to_string(), v.to_string()));
    assert_eq!(answer.trailers, expected);
}

#[test]
fn many_streams_at_a_time() {
    let big: String = (0..50_000).map(|n| format!("{n:07}\n")).collect();
    let server = Setup::new(CONF).file("big", &big).file("small", "little").start();
    let mut h2 = H2::connect(&server);
    let streams: Vec<(u32, &str)> = (0..40)
        .map(|n| if n % 3 == 0 { "/files/big" } else { "/files/small" })
        .map(|path| (h2.get(path), path))
        .collect();
    for (stream, path) in streams {
        let answer = h2.answer(stream);
        assert_eq!(answer.status, 200);
        let expected = if path.ends_with("big") { &big } else { "little" };
        assert!(answer.text() == expected, "{path} of stream {stream}");
    }
}

#[test]
fn malformed_requests_get_an_answer_of_their_own() {
    let server = Server::start(CONF);
    let mut h2 = H2::connect(&server);
    let base = request("GET", "/");
    let with = |name, value| [&base[..], &[(name, value)]].concat();
    for fields in [
        with("x-Upper", "1"),
        with("x y", "1"),
        with("x", "a\nb"),
        with("connection", "close"),
        with("transfer-encoding", "chunked"),
        with("te", "gzip"),
        with("host", "other"),
        with(":path", "/again"),
        with(":unknown", "1"),
        with("content-length", "x"),
        with("content-length", "5"),
        base[..3].to_vec(),
        base[1..].to_vec(),
        request("GET", "nowhere").to_vec(),
        request("GET", "/../..").to_vec(),
    ] {
        let stream = h2.open(&fields, true);
        assert_eq!(h2.answer(stream).status, 400, "{fields:?}");
    }
    for method in ["TRACE", "CONNECT"] {
        let stream = h2.open(&request(method, "/"), true);
        assert_eq!(h2.answer(stream).status, 405, "{method}");
    }
    assert_eq!(h2.fetch("/").status, 200, "the connection goes on");
}

#[test]
fn servers_without_it_are_misdirected() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; http2 on; return 200 on; }
            server { listen 127.0.0.1:%%PORT_0%%; server_name off; return 200 off; } }",
    );
    let mut h2 = H2::connect(&server);
    assert_eq!(h2.fetch("/").text(), "on");
    let mut fields = request("GET", "/");
    fields[3].1 = "off";
    let stream = h2.open(&fields, true);
    assert_eq!(h2.answer(stream).status, 421);
    assert_eq!(server.on(0).get_host("off", "/").text(), "off");
}

#[test]
fn chunks_are_as_large_as_configured() {
    let server = Server::start(
        "events {} http { http2 on; server { listen 127.0.0.1:%%PORT_0%%;
            location / { http2_chunk_size 2; return 200 12345; } } }",
    );
    let answer = H2::connect(&server).fetch("/");
    assert_eq!((answer.text().as_str(), answer.frames), ("12345", 3));
}

/// Fewer bytes than the socket has room for: what is read ahead of the connection's turn to write
/// must not go by way of a temporary file.
#[test]
fn an_answer_that_the_client_takes_waits_in_no_file() {
    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", 384 << 10);
    let origin = Origin::replying([head.as_bytes(), &vec![b'x'; 384 << 10]].concat());
    let server = Setup::new(
        "error_log error.log warn; events {} http { http2 on; server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let mut h2 = H2::over(server.on(0).connect());
    h2.greet(&[(4, 1 << 30)]);
    h2.widen(0, 1 << 30);
    for _ in 0..10 {
        assert_eq!(h2.fetch("/").body.len(), 384 << 10);
    }
    let files = server.error_log().matches("response is buffered to a temporary file").count();
    assert!(files < 5, "{files} of 10 answers went by way of a file");
}
