//! Request bodies: by length and by chunks, announced, limited, kept in memory or in a file.

use weir_tests::{expect_soon, Origin, Setup};

const CONF: &str = "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
    error_log %%DIR%%/error.log info;
    client_max_body_size 1k; access_log %%DIR%%/access.log;
    location / { proxy_pass http://%%ORIGIN%%; }
    location /unlimited { client_max_body_size 0; client_body_buffer_size 1k;
        proxy_pass http://%%ORIGIN%%; add_header X-File $request_body_file; }
    location /file { client_body_in_file_only clean; proxy_pass http://%%ORIGIN%%;
        add_header X-File $request_body_file; }
    location /short { client_body_timeout 1s; proxy_pass http://%%ORIGIN%%; }
    location /return { return 200 done; }
} }";

fn start() -> (Origin, weir_tests::Server) {
    let origin = Origin::start(|request, conn| {
        conn.reply("200 OK", "", &request.text());
        weir_tests::Next::Keep
    });
    let server = Setup::new(CONF).set("ORIGIN", origin.address()).start();
    (origin, server)
}

#[test]
fn bodies_arrive_however_they_are_cut() {
    let (origin, server) = start();
    assert_eq!(server.post("/", "hello").text(), "hello");
    let mut client = server.connect();
    for piece in ["POST / HTTP/1.1\r\nHost: a\r\nTransfer-", "Encoding: chunked\r\n\r\n5", ";x=y"] {
        client.send(piece.as_bytes());
    }
    for piece in ["\r\nhel", "lo\r\n", "A\r\n0123456789\r\n", "0\r\nTrailer: x\r\n", "\r\n"] {
        client.send(piece.as_bytes());
    }
    assert_eq!(client.response().text(), "hello0123456789");
    assert_eq!(client.get("/").status, 200);
    assert_eq!(origin.requests()[1].header("Content-Length"), Some("15"));
}

#[test]
fn malformed_chunks_are_refused() {
    let (_origin, server) = start();
    for body in ["x\r\n", "5\nhello\r\n0\r\n\r\n", "5\r\nhelloX", "5;a\nhello", "-1\r\n", "\r\n"] {
        let request = format!(
            "POST / HTTP/1.1\r\nHost: a\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n{body}"
        );
        assert_eq!(server.status_of(request.as_bytes()), 400, "{body:?}");
    }
    server.expect_error("client sent invalid chunked body");
}

#[test]
fn too_large_is_413_before_the_body_comes() {
    let (origin, server) = start();
    let head = "POST / HTTP/1.1\r\nHost: a\r\n";
    let mut client = server.connect();
    client.send(format!("{head}Content-Length: 1025\r\n\r\n").as_bytes());
    let response = client.response();
    assert_eq!((response.status, response.header("Connection")), (413, Some("close")));
    server.expect_error("client intended to send too large body: 1025 bytes");
    let mut client = server.connect();
    client.send(format!("{head}Transfer-Encoding: chunked\r\n\r\n401\r\n").as_bytes());
    client.send(b"x");
    assert_eq!(client.response().status, 413);
    server.expect_error("client intended to send too large chunked body: 0+1025 bytes");
    assert_eq!(server.post("/", &"x".repeat(1024)).status, 200);
    assert_eq!(origin.requests().len(), 1);
}

#[test]
fn large_bodies_go_through_a_file() {
    let (_origin, server) = start();
    let body = "0123456789".repeat(10_000);
    let response = server.post("/unlimited", &body);
    assert_eq!(response.text(), body);
    assert!(response.header("X-File").is_some_and(|f| f.contains("client_body_temp")));
    let response = server.post("/file", "x");
    assert_eq!(response.text(), "x");
    let file = response.header("X-File").expect("a file").to_string();
    expect_soon("the file is cleaned away", || !std::path::Path::new(&file).exists());
}

/// A name whose directories had to be made was given up for the next: the first body made all of
/// a thousand directories.
#[test]
fn a_temporary_file_makes_its_own_directories_and_no_more() {
    let server = Setup::new(
        "events {} http { client_body_temp_path %%DIR%%/spool 1 2; server { listen 127.0.0.1:%%PORT_0%%;
            location / { client_body_in_file_only on; add_header X-File $request_body_file;
                         proxy_pass http://127.0.0.1:%%PORT_0%%/end; }
            location /end { return 200; } } }",
    )
    .start();
    let file = server.post("/", "x").header("X-File").expect("a file").to_string();
    assert!(file.ends_with("/spool/1/00/0000000001"), "{file}");
    let within = |dir: &str| std::fs::read_dir(server.dir().join(dir)).unwrap().count();
    assert_eq!((within("spool"), within("spool/1")), (1, 1));
}

#[test]
fn a_hundred_is_sent_when_expected() {
    let (_origin, server) = start();
    let mut client = server.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n");
    assert_eq!(client.read_until(b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"ok");
    assert_eq!(client.response().text(), "ok");
    client.send(
        b"POST / HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 9999\r\n\r\n",
    );
    assert_eq!(client.response().status, 413);
}

#[test]
fn a_body_that_does_not_come_times_out() {
    let (_origin, server) = start();
    let mut client = server.connect();
    client.send(b"POST /short HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe");
    assert_eq!(client.read_to_end(), b"");
    assert!(server.log_lines("access.log", 1)[0].contains("\" 408 0 "));
}

#[test]
fn an_unread_body_is_discarded_before_the_next_request() {
    let (_origin, server) = start();
    let mut client = server.connect();
    client.send(b"POST /return HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhel");
    assert_eq!(client.response().text(), "done");
    client.send(b"loGET /return HTTP/1.1\r\nHost: a\r\n\r\n");
    assert_eq!(client.response().text(), "done");
}

/// What is only kept for a while has no name, so that nothing is left of it after a kill -9.
#[test]
fn bodies_in_files_have_no_names() {
    let server = Setup::new(
        "error_log %%DIR%%/error.log warn; events {}
         http { client_body_temp_path %%DIR%%/spool; client_body_buffer_size 1k;
          log_format l $request_length; access_log %%DIR%%/length.log l;
          server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://127.0.0.1:%%PORT_0%%/end; } location /end { access_log off; return 200 end; } } }",
    )
    .start();
    let mut client = server.connect();
    let begin = "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 9000\r\n\r\n";
    client.send(begin.as_bytes());
    client.send(&[b'x'; 8000]);
    server.expect_error("is buffered to a temporary file");
    assert_eq!(std::fs::read_dir(server.dir().join("spool")).unwrap().count(), 0);
    client.send(&[b'x'; 1000]);
    assert_eq!(client.response().text(), "end");
    // All of it counts, also what came with the head.
    assert_eq!(server.log_lines("length.log", 1), [(begin.len() + 9000).to_string()]);
    assert_eq!(server.post("/", "some").text(), "end");
    assert_eq!(server.log_lines("length.log", 2)[1], "78");
}
