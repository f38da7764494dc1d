//! xss: answers as calls of a function.

use weir_tests::{Server, Setup};

const CONF: &str = r#"events {} http { default_type application/json; server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
    error_log %%DIR%%/error.log; xss_callback_arg c;
    location /off { return 200 '[]'; }
    location /on { xss_get on; return 200 '[]'; }
    location /text { xss_get on; default_type text/plain; return 200 '[]'; }
    location /types { xss_get on; xss_input_types text/plain; xss_output_type text/js; default_type text/plain; return 200 '[]'; }
    location /404 { xss_get on; xss_input_types text/html; return 404; }
    location /any { xss_get on; xss_check_status off; xss_input_types text/html; return 404; }
    location /kept { xss_get on; xss_check_status off; xss_override_status off; return 404 '[]'; }
    location /parts { xss_get on; echo_location /off; echo_location_async /off; }
    location /file { xss_get on; }
    location /unnamed { xss_callback_arg ''; xss_get on; return 200 '[]'; }
} }"#;

fn start() -> Server {
    Setup::new(CONF).file("file", "{}").start()
}

#[test]
fn answers_become_calls() {
    let server = start();
    for (path, expected) in [
        ("/off?c=f", "[]"),
        ("/on", "[]"),
        ("/on?c=f", "f([]);"),
        ("/on?c=a.b%5b12%5D", "a.b[12]([]);"),
        ("/on?c=alert();f", "[]"),
        ("/on?c=f%3Cb%3E", "[]"),
        ("/on?c=", "[]"),
        ("/text?c=f", "[]"),
        ("/types?c=f", "f([]);"),
        ("/parts?c=f", "f([][]);"),
        ("/file?c=f", "f({});"),
        ("/unnamed?c=f", "[]"),
    ] {
        assert_eq!(server.get(path).text(), expected, "{path}");
    }
    assert_eq!(server.post("/on?c=f", "").text(), "[]");
    server.expect_error("xss: bad callback argument: \"f<b>\"");
    server.expect_error("xss: xss_get is enabled but no xss_callback_arg specified");
}

#[test]
fn headers_say_so() {
    let server = start();
    let answer = server.get("/on?c=f");
    assert_eq!(answer.header("Content-Type"), Some("application/x-javascript"));
    assert_eq!(server.get("/types?c=f").header("Content-Type"), Some("text/js"));
    assert_eq!((answer.header("Content-Length"), answer.is_chunked()), (None, true));
    assert_eq!(server.get("/404?c=f").status, 404);
    let any = server.get("/any?c=f");
    assert!(any.status == 200 && any.text().starts_with("f(<html>"), "{}", any.text());
    assert_eq!(server.get("/kept?c=f").status, 404);
    assert_eq!(server.get("/kept?c=f").text(), "f([]);");
    let file = server.get_with("/file?c=f", "Range: bytes=0-0\r\n");
    assert_eq!((file.status, file.header("Accept-Ranges")), (200, None));
}
