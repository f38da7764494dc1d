//! Tengine's footer: a text behind the body.

use weir_tests::Setup;

const CONF: &str = r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
    footer "<!-- $uri -->"; gzip_min_length 1; gzip_types *;
    types { text/html html; text/css css; }
    location / { gzip on; }
    location /css/ { footer_types text/css; alias %%DIR%%/; }
    location /none/ { footer ""; alias %%DIR%%/; }
    location /made { default_type text/html; return 200 x; }
} }"#;

#[test]
fn text_stands_behind_the_body() {
    let server = Setup::new(CONF).file("a.html", "page").file("a.css", "style").start();
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
    assert_eq!(server.head("/a.html").header("Content-Length"), Some("4"));
    let zipped = server.get_with("/a.html", "Accept-Encoding: gzip\r\n");
    assert_eq!(zipped.header("Content-Encoding"), Some("gzip"));
}
