//! more_set_headers and more_clear_headers, and the fields that the server makes itself.

use weir_tests::h2::H2;
use weir_tests::{Server, Setup};

const CONF: &str = r#"events {} http { default_type text/plain; server { listen 127.0.0.1:%%PORT_0%%; http2 on;
    root %%DIR%%;
    location /server { more_set_headers 'Server: Foo/1' 'Date: today'; return 200 hi; }
    location /bare { more_clear_headers Server Date; return 200 hi; }
    location /type { more_set_headers 'Content-Type: text/css'; return 200 hi; }
    location /typed { charset iso-8859-1; more_set_headers 'Content-Type: text/html; charset="utf-8"'; return 200 hi; }
    location /untyped { more_clear_headers Content-Type; return 200 hi; }
    location /file { more_clear_headers Last-Modified ETag Accept-Ranges; }
    location /modified { alias %%DIR%%/file; more_set_headers 'Last-Modified: long ago' 'ETag: "x"'; }
    location /unlong { more_clear_headers Content-Length; return 200 hi; }
    location /short { more_set_headers 'Content-Length: 1'; return 200 hi; }
    location /length { more_set_headers 'Content-Length: 2'; return 200 hi; }
    location /control { expires 1d; more_set_headers 'Cache-Control: private'; return 200 hi; }
    location /proxied { proxy_pass http://127.0.0.1:%%PORT_0%%/many; more_set_headers 'Cache-Control: one' 'X-Many: one'; }
    location /many { add_header Cache-Control a; add_header Cache-Control b; add_header X-Many 1; add_header x-many 2;
        return 200 hi; }
    location /moved { more_set_headers 'Location: /there'; return 302 /here; }
    location /gzip { gzip on; gzip_min_length 1; gzip_types text/css; more_set_headers 'Content-Type: text/css'; return 200 hihihihihihihi; }
    location /auth { auth_basic area; auth_basic_user_file %%DIR%%/users; more_set_headers 'WWW-Authenticate: Other'; }
} }"#;

fn start() -> Server {
    Setup::new(CONF).file("file", "hello").file("users", "").start()
}

#[test]
fn the_servers_own_fields_are_set_and_cleared() {
    let server = start();
    let port = server.port(0);
    let there = format!("http://localhost:{port}/there");
    for (path, name, expected) in [
        ("/server", "Server", vec!["Foo/1"]),
        ("/server", "Date", vec!["today"]),
        ("/bare", "Server", vec![]),
        ("/bare", "Date", vec![]),
        ("/type", "Content-Type", vec!["text/css"]),
        ("/typed", "Content-Type", vec!["text/html; charset=\"utf-8\""]),
        ("/untyped", "Content-Type", vec![]),
        ("/file", "Last-Modified", vec![]),
        ("/file", "ETag", vec![]),
        ("/modified", "Last-Modified", vec!["long ago"]),
        ("/modified", "ETag", vec!["\"x\""]),
        ("/unlong", "Content-Length", vec![]),
        ("/unlong", "Transfer-Encoding", vec!["chunked"]),
        ("/length", "Content-Length", vec!["2"]),
        ("/proxied", "Cache-Control", vec!["one"]),
        ("/proxied", "X-Many", vec!["one"]),
        ("/moved", "Location", vec![there.as_str()]),
        ("/auth", "WWW-Authenticate", vec!["Other"]),
    ] {
        assert_eq!(server.get(path).all(name), expected, "{path} {name}");
    }
}

#[test]
fn ranges_are_neither_offered_nor_given_once_their_field_is_cleared() {
    let answer = start().get_with("/file", "Range: bytes=0-1\r\n");
    assert_eq!((answer.status, answer.header("Accept-Ranges")), (200, None));
    assert_eq!(answer.text(), "hello");
}

#[test]
fn filters_behind_see_the_type_that_was_set() {
    let answer = start().get_with("/gzip", "Accept-Encoding: gzip\r\n");
    assert_eq!(answer.header("Content-Encoding"), Some("gzip"));
}

#[test]
fn what_is_longer_than_announced_is_no_next_answer() {
    let server = start();
    let answer = server.raw(b"GET /short HTTP/1.1\r\nHost: a\r\n\r\nGET /length HTTP/1.0\r\n\r\n");
    let text = String::from_utf8_lossy(&answer).into_owned();
    if text.matches("HTTP/1.1 200").count() == 2 {
        return weir_tests::skip("nginx answers on");
    }
    assert!(text.contains("Content-Length: 1\r\n") && text.contains("Connection: close"), "{text}");
}

#[test]
fn http2_has_them_too() {
    let server = start();
    let answer = H2::connect(&server).fetch("/server");
    assert_eq!((answer.header("server"), answer.header("date")), (Some("Foo/1"), Some("today")));
    let bare = H2::connect(&server).fetch("/bare");
    assert_eq!((bare.header("server"), bare.text().as_str()), (None, "hi"));
}
