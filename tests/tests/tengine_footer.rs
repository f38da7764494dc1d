//! Tengine's footer: a text behind the body.

use weir_tests::{Origin, Setup};

const CONF: &str = r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
    footer "<!-- $uri -->"; gzip_min_length 1; gzip_types *;
    types { text/html html; text/css css; }
    location / { gzip on; }
    location /css/ { footer_types text/css; alias %%DIR%%/; }
    location /none/ { footer ""; alias %%DIR%%/; }
    location /part { proxy_pass http://127.0.0.1:%%UP%%; }
    location /made { default_type text/html; return 200 x; }
} }"#;

#[test]
fn text_stands_behind_the_body() {
    let server =
        Setup::new(CONF).set("UP", 9).file("a.html", "page").file("a.css", "style").start();
    for (path, expected) in [
        ("/a.html", "page<!-- /a.html -->"),
        ("/a.css", "style"),
        ("/css/a.css", "style<!-- /css/a.css -->"),
        ("/none/a.html", "page"),
        ("/made", "x<!-- /made -->"),
    ] {
        let answer = server.get(path);
        assert_eq!(answer.text(), expected, "{path}");
        assert_eq!(answer.content_length(), Some(expected.len()), "{path}");
    }
    let missing = server.get("/nothing.html");
    assert!(missing.status == 404 && missing.text().ends_with("<!-- /nothing.html -->"));
    let answer = server.get("/a.html");
    assert!(answer.header("ETag").unwrap().starts_with("W/"));
    assert_eq!(answer.header("Accept-Ranges"), None);
    assert_eq!(server.get_with("/a.html", "Range: bytes=0-0\r\n").status, 200);
    let head = server.head("/a.html");
    assert_eq!((head.content_length(), head.header("ETag")), (Some(20), answer.header("ETag")));
    assert_eq!(head.header("Accept-Ranges"), None);
    let zipped = server.get_with("/a.html", "Accept-Encoding: gzip\r\n");
    assert_eq!(zipped.header("Content-Encoding"), Some("gzip"));
}

/// A download that is resumed has no text in its middle.
#[test]
fn parts_stay_as_they_are() {
    let origin = Origin::replying(
        "HTTP/1.1 206 Partial Content\r\nContent-Type: text/html\r\nContent-Range: bytes 2-3/9\r\nContent-Length: 2\r\n\r\nab",
    );
    let server = Setup::new(CONF).set("UP", origin.port()).start();
    let part = server.get_with("/part", "Range: bytes=2-3\r\n");
    assert_eq!((part.status, part.content_length(), part.text()), (206, Some(2), "ab".to_string()));
}
