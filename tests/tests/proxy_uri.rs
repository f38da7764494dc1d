//! Which URI, host and version the origin is asked for.

use weir_tests::{Origin, Setup};

#[test]
fn the_uri_is_passed_or_replaced() {
    let origin = Origin::echo();
    let server = Setup::new(
        r#"events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /asis/ { proxy_pass http://%%ORIGIN%%; }
            location /slash/ { proxy_pass http://%%ORIGIN%%/; }
            location /base/ { proxy_pass http://%%ORIGIN%%/other/; }
            location /noslash { proxy_pass http://%%ORIGIN%%/other; }
            location = /exact { proxy_pass http://%%ORIGIN%%/there?q=1; }
            location ~ ^/re/(.*)$ { proxy_pass http://%%ORIGIN%%/got/$1?$args; }
            location ~ ^/plainre/ { proxy_pass http://%%ORIGIN%%; }
            location /rewritten/ { rewrite ^/rewritten/(.*)$ /new/$1?a=b break; proxy_pass http://%%ORIGIN%%; }
            location /var/ { set $o %%ORIGIN%%; proxy_pass http://$o; }
            location /varuri/ { set $o %%ORIGIN%%; proxy_pass http://$o/fixed; }
            location /method { proxy_method PUT; proxy_pass http://%%ORIGIN%%; }
        } }"#,
    )
    .set("ORIGIN", origin.address())
    .start();
    for (path, asked) in [
        ("/asis/a%20b//c/../d?x=%20", "/asis/a%20b//c/../d?x=%20"),
        ("/slash/a?x", "/a?x"),
        ("/slash/", "/"),
        ("/base/a%20b%3f", "/other/a%20b%3F"),
        ("/base/%E4//x/..", "/other/%E4/"),
        ("/noslash/a", "/other/a"),
        ("/noslashed", "/othered"),
        ("/exact?z", "/there?q=1?z"),
        ("/re/a/b?x=y", "/got/a/b?x=y"),
        ("/plainre/a?b", "/plainre/a?b"),
        ("/rewritten/a?x=y", "/new/a?a=b&x=y"),
        ("/var/a%20?b", "/var/a%20?b"),
        ("/varuri/a?b", "/fixed"),
    ] {
        server.get(path);
        assert_eq!(origin.last_request().target(), asked, "{path}");
    }
    server.get("/method");
    assert_eq!(origin.last_request().line(), "PUT /method HTTP/1.1");
}

#[test]
fn what_the_origin_is_told_by_default() {
    let origin = Origin::echo();
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%ORIGIN%%; }
            location /old { proxy_http_version 1.0; proxy_pass http://%%ORIGIN%%; }
            location /name { proxy_pass http://localhost:%%OPORT%%; }
        } }",
    )
    .set("ORIGIN", origin.address())
    .set("OPORT", origin.port())
    .start();
    let headers = "X-Own: kept\r\nKeep-Alive: 5\r\nTE: trailers\r\nUpgrade: x\r\n\
                   Accept-Encoding: gzip\r\nCookie: a=b\r\nExpect: 100-continue\r\n";
    server.get_with("/", headers);
    let request = origin.last_request();
    assert_eq!(request.line(), "GET / HTTP/1.1");
    assert_eq!(request.header("Host"), Some(origin.address().as_str()));
    assert_eq!(request.header("X-Own"), Some("kept"));
    assert_eq!(request.header("Cookie"), Some("a=b"));
    assert_eq!(request.header("Accept-Encoding"), Some("gzip"));
    for gone in ["Keep-Alive", "TE", "Upgrade", "Expect", "Transfer-Encoding", "Content-Length"] {
        assert_eq!(request.header(gone), None, "{gone}");
    }
    server.get("/old");
    let old = origin.last_request();
    assert_eq!(old.line(), "GET /old HTTP/1.0");
    assert_eq!(old.header("Connection"), None);
    server.get("/name");
    let host = format!("localhost:{}", origin.port());
    assert_eq!(origin.last_request().header("Host"), Some(host.as_str()));
    server.post("/", "body");
    assert_eq!(origin.last_request().header("Content-Length"), Some("4"));
}

#[test]
fn headers_are_set_and_inherited() {
    let origin = Origin::echo();
    let server = Setup::new(
        "events {} http { proxy_set_header X-Up $uri; proxy_set_header Host $host;
            server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%ORIGIN%%; }
            location /own { proxy_set_header X-Own 'a b'; proxy_pass http://%%ORIGIN%%; }
            location /drop { proxy_set_header X-Sent ''; proxy_set_header Accept '';
                proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for;
                proxy_pass http://%%ORIGIN%%; }
            location /nohead { proxy_pass_request_headers off; proxy_pass http://%%ORIGIN%%; }
            location /nobody { proxy_pass_request_body off; proxy_set_header Content-Length '';
                proxy_pass http://%%ORIGIN%%; }
            location /body { proxy_set_body 'set $uri'; proxy_pass http://%%ORIGIN%%; }
        } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    server.get("/a");
    assert_eq!(origin.last_request().header("X-Up"), Some("/a"));
    assert_eq!(origin.last_request().header("Host"), Some("localhost"));
    server.get("/own");
    assert_eq!(origin.last_request().header("X-Own"), Some("a b"));
    assert_eq!(origin.last_request().header("X-Up"), None);
    server.get_with("/drop", "X-Sent: 1\r\nAccept: x\r\nX-Forwarded-For: 1.2.3.4\r\n");
    let request = origin.last_request();
    assert_eq!((request.header("X-Sent"), request.header("Accept")), (None, None));
    assert_eq!(request.header("X-Forwarded-For"), Some("1.2.3.4, 127.0.0.1"));
    server.get_with("/nohead", "X-Sent: 1\r\n");
    assert_eq!(origin.last_request().header("X-Sent"), None);
    server.post("/nobody", "body");
    assert_eq!(
        (origin.last_request().text().as_str(), origin.last_request().method()),
        ("", "POST")
    );
    server.post("/body", "body");
    assert_eq!(origin.last_request().text(), "set /body");
}
