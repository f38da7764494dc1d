//! Who is refused is not told to continue, and the log counts what the refusal is.

use weir_tests::Setup;

const CONF: &str = "events {} http { log_format f '$status $bytes_sent $body_bytes_sent';
    access_log %%DIR%%/access.log f; server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
        lingering_timeout 100ms;
        location /try { try_files /none =404; }
        location /auth { auth_basic a; auth_basic_user_file %%DIR%%/users; }
        location /deny { deny all; }
        location /big { client_max_body_size 1; proxy_pass http://127.0.0.1:%%PORT_1%%; }
        location /return { return 403; } } }";

#[test]
fn errors_come_without_a_hundred_before_them() {
    let server = Setup::new(CONF)
        .file("html/dir/f", "x")
        .file("html/file", "x")
        .file("users", "a:{PLAIN}b\n")
        .start();
    let mut expected = Vec::new();
    for (method, path, status) in [
        ("POST", "/try", 404),
        ("GET", "/try", 404),
        ("GET", "/none", 404),
        ("GET", "/dir", 301),
        ("POST", "/dir", 301),
        ("GET", "/dir/", 403),
        ("POST", "/auth", 401),
        ("POST", "/deny", 403),
        ("POST", "/file", 405),
        ("POST", "/big", 413),
        ("POST", "/return", 403),
    ] {
        for length in ["Content-Length: 5", "Transfer-Encoding: chunked"] {
            // nginx cannot know how long a chunked body is until it has read it.
            if path == "/big" && length.starts_with('T') {
                continue;
            }
            let mut client = server.connect();
            let head = format!("{method} {path} HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\n");
            client.send(format!("{head}Connection: close\r\n{length}\r\n\r\n").as_bytes());
            let answer = String::from_utf8(client.read_to_end()).unwrap();
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{head}{length}: {answer}");
            let body = answer.split_once("\r\n\r\n").unwrap().1.len();
            expected.push(format!("{status} {} {body}", answer.len()));
        }
    }
    assert_eq!(server.log_lines("access.log", expected.len()), expected);
}

#[test]
fn a_file_is_sent_after_a_hundred() {
    let server = Setup::new(CONF).file("html/file", "content").start();
    let mut client = server.connect();
    let head = "GET /file HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 5\r\n";
    client.send(format!("{head}Connection: close\r\n\r\n").as_bytes());
    assert_eq!(client.read_until(b"\r\n\r\n"), b"HTTP/1.1 100 Continue\r\n\r\n");
    client.send(b"12345");
    assert_eq!(client.response().text(), "content");
    // What told to go on counts too.
    assert!(server.log_lines("access.log", 1)[0].ends_with(" 32"));
}
