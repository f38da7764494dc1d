//! add_header, add_trailer and expires.

use weir_tests::{Server, Setup};

#[test]
fn headers_are_added_to_good_answers() {
    let server = Server::start(
        "events {} http { add_header X-Main main; server { listen 127.0.0.1:%%PORT_0%%;
            location / { return 200 ok; }
            location /own { add_header X-Own $uri; add_header X-Empty ''; return 200 ok; }
            location /bad { add_header X-Own 1; add_header X-Always 2 always; return 404; }
            location /etag { add_header ETag mine; add_header Last-Modified '';
                add_header Cache-Control a; add_header Cache-Control b; return 200 ok; }
            location /several { add_header X 1; add_header X 2; return 302 /; }
        } }",
    );
    assert_eq!(server.get("/").header("X-Main"), Some("main"));
    let own = server.get("/own");
    assert_eq!((own.header("X-Own"), own.header("X-Main")), (Some("/own"), None));
    assert_eq!(own.header("X-Empty"), None);
    let bad = server.get("/bad");
    assert_eq!((bad.header("X-Own"), bad.header("X-Always")), (None, Some("2")));
    assert_eq!(server.get("/etag").all("Cache-Control"), ["a", "b"]);
    assert_eq!(server.get("/several").all("X"), ["1", "2"]);
}

#[test]
fn expiry_is_a_date_and_an_age() {
    let server = Server::start(
        "events {} http { map $arg_e $e { default off; a 5m; b epoch; }
            server { listen 127.0.0.1:%%PORT_0%%;
            location /hour { expires 1h; return 200 ok; }
            location /past { expires -1; return 200 ok; }
            location /epoch { expires epoch; return 200 ok; }
            location /max { expires max; return 200 ok; }
            location /off { expires off; return 200 ok; }
            location /var { expires $e; return 200 ok; }
            location /404 { expires 1h; return 404; }
        } }",
    );
    for (path, cache, expires) in [
        ("/past", Some("no-cache"), None),
        ("/epoch", Some("no-cache"), Some("Thu, 01 Jan 1970 00:00:01 GMT")),
        ("/max", Some("max-age=315360000"), Some("Thu, 31 Dec 2037 23:55:55 GMT")),
        ("/hour", Some("max-age=3600"), None),
        ("/var?e=a", Some("max-age=300"), None),
        ("/var?e=b", Some("no-cache"), None),
    ] {
        let response = server.get(path);
        assert_eq!(response.header("Cache-Control"), cache, "{path}");
        assert!(response.header("Expires").is_some_and(|v| v.ends_with(" GMT")), "{path}");
        if expires.is_some() {
            assert_eq!(response.header("Expires"), expires, "{path}");
        }
    }
    for path in ["/off", "/404", "/var"] {
        assert_eq!(server.get(path).header("Expires"), None, "{path}");
    }
}

#[test]
fn trailers_follow_chunked_bodies() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location / { gzip on; gzip_types *; gzip_min_length 0; add_trailer X-T 'end $uri'; } } }",
    )
    .file("html/f", "some text some text some text")
    .start();
    let mut client = server.connect();
    client.send(b"GET /f HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
    let response = client.response();
    assert!(response.is_chunked());
    assert_eq!(response.trailers, [("X-T".to_string(), "end /f".to_string())]);
}

#[test]
fn the_usual_headers_come_first_and_in_order() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            add_header X-Added 1; } }",
    )
    .file("html/f.txt", "x")
    .start();
    let response = server.get("/f.txt");
    let names: Vec<&str> = response.headers.iter().map(|(n, _)| n.as_str()).collect();
    assert_eq!(
        names,
        [
            "Server",
            "Date",
            "Content-Type",
            "Content-Length",
            "Last-Modified",
            "Connection",
            "ETag",
            "X-Added",
            "Accept-Ranges"
        ]
    );
    let date = response.header("Date").unwrap_or_default();
    assert_eq!(date.len(), "Sun, 09 Sep 2001 01:46:40 GMT".len());
}

#[test]
fn when_a_server_says_that_it_was_changed_counts_here_too() {
    let server = Server::start(
        "events {} http {
            server { listen 127.0.0.1:%%PORT_1%%; location / {
                add_header Last-Modified 'Sun, 06 Nov 1994 08:49:37 GMT'; return 200 0123456789; } }
            server { listen 127.0.0.1:%%PORT_0%%; proxy_force_ranges on;
                location / { proxy_pass http://127.0.0.1:%%PORT_1%%; add_header X $sent_http_last_modified; }
                location /other { proxy_pass http://127.0.0.1:%%PORT_1%%;
                    add_header Last-Modified 'Sat, 05 Nov 1994 08:49:37 GMT'; }
                location /none { proxy_pass http://127.0.0.1:%%PORT_1%%; add_header Last-Modified ''; }
                location /expires { proxy_pass http://127.0.0.1:%%PORT_1%%; expires modified 1h; } } }",
    );
    const TIME: &str = "Sun, 06 Nov 1994 08:49:37 GMT";
    for (path, shown) in
        [("/", Some(TIME)), ("/other", Some("Sat, 05 Nov 1994 08:49:37 GMT")), ("/none", None)]
    {
        let response = server.get(path);
        assert_eq!(response.all("Last-Modified"), shown.into_iter().collect::<Vec<_>>(), "{path}");
    }
    assert_eq!(server.get("/").header("X"), Some(TIME));
    assert_eq!(server.get("/expires").header("Expires"), Some("Sun, 06 Nov 1994 09:49:37 GMT"));
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nRange: bytes=100-\r\n\r\n");
    let none = client.response();
    assert_eq!((none.status, none.header("Last-Modified")), (416, None));
    for (time, text) in [(TIME, "123"), ("Sat, 05 Nov 1994 08:49:37 GMT", "0123456789")] {
        let mut client = server.connect();
        let fields = format!("Range: bytes=1-3\r\nIf-Range: {time}");
        client.send(format!("GET / HTTP/1.1\r\nHost: a\r\n{fields}\r\n\r\n").as_bytes());
        assert_eq!(client.response().text(), text, "{time}");
    }
}
