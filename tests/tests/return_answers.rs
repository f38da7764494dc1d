//! `return`: codes, texts and redirects.

use weir_tests::Server;

#[test]
fn texts_and_redirects() {
    let server = Server::start(
        "events {} http { default_type text/x; server { listen 127.0.0.1:%%PORT_0%%;
            location /text { return 200 'a $uri\\n'; }
            location /empty { return 200 ''; }
            location /code { return 404 nothing; }
            location /to { return 302 /there?$args; }
            location /url { return http://example.com/$arg_x; }
            location /308 { return 308 https://example.com$request_uri; }
            location /json { default_type application/json; return 200 '{}'; }
        } }",
    );
    let text = server.get("/text");
    assert_eq!((text.status, text.text().as_str()), (200, "a /text\n"));
    assert_eq!(text.header("Content-Type"), Some("text/x"));
    assert_eq!(text.content_length(), Some(8));
    assert_eq!(server.get("/empty").content_length(), Some(0));
    assert_eq!(server.get("/code").text(), "nothing");
    assert_eq!(server.get("/json").header("Content-Type"), Some("application/json"));
    let port = server.port(0);
    for (path, status, to) in [
        ("/to?a=b", 302, format!("http://localhost:{port}/there?a=b")),
        ("/url?x=y", 302, "http://example.com/y".into()),
        ("/308?x", 308, "https://example.com/308?x".into()),
    ] {
        let response = server.get(path);
        assert_eq!((response.status, response.header("Location")), (status, Some(to.as_str())));
    }
    assert_eq!(server.post("/text", "ignored").status, 200);
    let head = server.head("/text");
    assert_eq!((head.content_length(), head.body.len()), (Some(8), 0));
}
