//! What comes before its time: hints ahead of an answer, a body ahead of the phases; and what a
//! block without a name has from the location around it.

use weir_tests::{Next, Origin, Setup};

#[test]
fn hints_are_passed_on_where_they_are_wanted() {
    let origin = Origin::start(|request, conn| {
        conn.write("HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\nX-Accel-Buffering: no\r\n\r\n");
        if request.target().starts_with("/none") {
            return Next::Close;
        }
        conn.reply("200 OK", "", "done");
        Next::Close
    });
    let server = Setup::new(
        "events {} http { early_hints $arg_h;
            server { listen 127.0.0.1:%%PORT_0%%;
                location / { proxy_pass http://%%ORIGIN%%; }
                location /off { early_hints 0; proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let get = |path: &str, version: &str| {
        let head = format!("GET {path} HTTP/{version}\r\nHost: a\r\nConnection: close\r\n\r\n");
        String::from_utf8(server.raw(head.as_bytes())).unwrap()
    };
    let hinted = get("/?h=1", "1.1");
    let start = "HTTP/1.1 103 Early Hints\r\nLink: </a.css>\r\n\r\nHTTP/1.1 200 OK\r\n";
    assert!(hinted.starts_with(start) && hinted.ends_with("done"), "{hinted}");
    for (path, version) in [("/", "1.1"), ("/?h=0", "1.1"), ("/off?h=1", "1.1"), ("/?h=1", "1.0")] {
        let plain = get(path, version);
        assert!(plain.starts_with("HTTP/1.1 200 OK\r\n") && plain.ends_with("done"), "{plain}");
    }
    assert!(get("/none?h=1", "1.1").contains("502 Bad Gateway"));
}

#[test]
fn a_body_is_read_before_the_request_is_looked_at() {
    let server = Setup::new(
        "events {} http { client_body_early_read $arg_early; client_max_body_size 10;
            server { listen 127.0.0.1:%%PORT_0%%; location / { return 200 $request_length; } } }",
    )
    .start();
    let head = |query: &str, length: usize| {
        format!("POST /?{query} HTTP/1.1\r\nHost: a\r\nContent-Length: {length}\r\n\r\n")
    };
    let mut client = server.connect();
    client.send(head("early=1", 3).as_bytes());
    assert!(client.is_silent(std::time::Duration::from_millis(100)));
    client.send(b"abc");
    assert_eq!(client.response().status, 200);
    let mut client = server.connect();
    client.send(head("early=0", 3).as_bytes());
    assert_eq!(client.response().status, 200);
    let mut client = server.connect();
    client.send(head("early=1", 11).as_bytes());
    assert_eq!(client.response().status, 413);
}

#[test]
fn an_if_passes_where_its_location_does() {
    let origin = Origin::start(|request, conn| {
        conn.reply("200 OK", "", request.target());
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%;
            location /a { proxy_pass http://%%ORIGIN%%/b;
                if ($arg_if) { add_header X-If yes; }
                location /a/files { if ($arg_if) { add_header X-If yes; } } }
            location /lmt { proxy_pass http://%%ORIGIN%%/b; limit_except POST { } } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    assert_eq!(server.get("/a").text(), "/b");
    let inside = server.get("/a?if=1");
    assert_eq!((inside.text().as_str(), inside.header("X-If")), ("/b?if=1", Some("yes")));
    assert_eq!(server.get("/a/files?if=1").status, 404);
    assert_eq!(server.get("/lmt").text(), "/b");
}

#[test]
fn conditions_are_the_servers_affair() {
    let origin = Origin::start(|_, conn| {
        let etag = "ETag: \"a\"\r\nLast-Modified: Fri, 05 Jul 1985 14:30:52 GMT\r\n";
        conn.reply("200 OK", etag, "whole");
        Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for condition in ["If-None-Match: \"a\"", "If-Unmodified-Since: Thu, 04 Jul 1985 14:30:52 GMT"]
    {
        let response = server.get_with("/", &format!("{condition}\r\n"));
        assert_eq!((response.status, response.text().as_str()), (200, "whole"), "{condition}");
    }
}

#[test]
fn a_transparent_bind_is_read() {
    let conf = |word: &str| {
        format!(
            "events {{}} http {{ server {{ location / {{
                proxy_bind $remote_addr {word}; proxy_pass http://127.0.0.1:1; }} }} }}"
        )
    };
    assert_eq!(weir_tests::run_cli(&["-t"], &conf("transparent")).code, 0);
    let wrong = weir_tests::run_cli(&["-t"], &conf("opaque"));
    assert!(wrong.stderr.contains("invalid parameter \"opaque\""), "{}", wrong.stderr);
}
