//! Errors replaced by pages, and the pages that are built in.

use weir_tests::{Origin, Server, Setup};

#[test]
fn built_in_pages() {
    let server = Server::start(
        "events {} http { server_tokens off; server { listen 127.0.0.1:%%PORT_0%%;
            location /301 { return 301 http://x/; }
            location /302 { return 302 http://x/; }
            location /401 { return 401; }
            location /403 { return 403; }
            location /404 { return 404; }
            location /410 { return 410; }
            location /429 { return 429; }
            location /503 { return 503; }
            location /444 { return 444; }
            location /599 { return 599; }
            location /204 { return 204; } } }",
    );
    for (path, status, title) in [
        ("/301", 301, "301 Moved Permanently"),
        ("/302", 302, "302 Found"),
        ("/401", 401, "401 Authorization Required"),
        ("/403", 403, "403 Forbidden"),
        ("/404", 404, "404 Not Found"),
        ("/410", 410, "410 Gone"),
        ("/429", 429, "429 Too Many Requests"),
        ("/503", 503, "503 Service Temporarily Unavailable"),
    ] {
        let response = server.get(path);
        assert_eq!(response.status, status);
        assert_eq!(response.header("Content-Type"), Some("text/html"));
        let text = response.text();
        let start = format!(
            "<html>\r\n<head><title>{title}</title></head>\r\n<body>\r\n<center><h1>{title}</h1></center>\r\n<hr><center>"
        );
        assert!(text.starts_with(&start), "{text}");
        assert!(text.ends_with("</center>\r\n</body>\r\n</html>\r\n"), "{text}");
    }
    assert_eq!(server.raw(b"GET /444 HTTP/1.0\r\n\r\n"), b"");
    let odd = server.get("/599");
    assert_eq!((odd.status, odd.reason.as_str(), odd.content_length()), (599, "", Some(0)));
    let empty = server.get("/204");
    assert_eq!((empty.status, empty.header("Content-Length")), (204, None));
}

#[test]
fn answers_to_head_end_with_their_header() {
    let server = Server::start(
        "events {} http { sub_filter a b; server { listen 127.0.0.1:%%PORT_0%%; return 404; } }",
    );
    // The filter takes the length away; without a body nothing says how one would come.
    for (request, line) in [
        ("HEAD / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", "HTTP/1.1 404 Not Found"),
        ("HEAD / HTTP/1.1\r\nHost: <a>\r\n\r\n", "HTTP/1.1 400 Bad Request"),
        ("HEAD / HTTP/9.1\r\nHost: a\r\n\r\n", "HTTP/1.1 505 HTTP Version Not Supported"),
    ] {
        let answer = String::from_utf8(server.raw(request.as_bytes())).unwrap();
        assert!(answer.starts_with(line) && answer.ends_with("\r\n\r\n"), "{answer}");
        assert_eq!(answer.matches("\r\n\r\n").count(), 1, "{answer}");
        assert!(!answer.contains("Transfer-Encoding"), "{answer}");
    }
}

#[test]
fn pages_that_pad_for_old_browsers() {
    let server =
        Server::start("events {} http { server { listen 127.0.0.1:%%PORT_0%%; return 404; } }");
    let modern = server.get("/").body.len();
    let old = server.get_with("/", "User-Agent: Mozilla/4.0 (compatible; MSIE 6.0)\r\n");
    let chrome = server.get_with("/", "User-Agent: Chrome/99\r\n");
    assert_eq!(chrome.body.len(), old.body.len());
    assert!(old
        .text()
        .contains("<!-- a padding to disable MSIE and Chrome friendly error page -->"));
    assert!(old.body.len() > modern + 300);
}

#[test]
fn replaced_pages_and_codes() {
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            error_page 404 /404.html;
            location /same { error_page 403 /page; return 403; }
            location /other { error_page 403 =201 /page; return 403; }
            location /its { error_page 403 = /page; return 403; }
            location /named { error_page 403 @named; return 403; }
            location /away { error_page 403 http://example.com/x?y; return 403; }
            location /away2 { error_page 403 =301 http://example.com/; return 403; }
            location /twice { error_page 403 /twice2; return 403; }
            location /twice2 { error_page 404 /page; return 404; }
            location /page { return 202 'page $uri $request_uri $status'; }
            location @named { return 202 'named $uri'; }
            location /vars { error_page 403 /page$arg_x; return 403; }
        } }",
    )
    .file("html/404.html", "my 404")
    .start();
    for (path, status, text) in [
        ("/none", 404, "my 404"),
        ("/same", 403, "page /page /same 403"),
        ("/other", 201, "page /page /other 201"),
        ("/its", 202, "page /page /its 202"),
        ("/named", 403, "named /named"),
        ("/vars?x=y", 403, "page /pagey /vars?x=y 403"),
    ] {
        let response = server.get(path);
        assert_eq!((response.status, response.text().as_str()), (status, text), "{path}");
    }
    let away = server.get("/away");
    assert_eq!((away.status, away.header("Location")), (302, Some("http://example.com/x?y")));
    assert_eq!(server.get("/away2").status, 301);
    let twice = server.get("/twice");
    assert_eq!(twice.status, 404);
    assert!(!twice.text().contains("page /page"));
    // The page is fetched by GET whatever the request was.
    assert_eq!(server.post("/same", "x").status, 403);
    let head = server.head("/none");
    assert_eq!((head.status, head.body.len()), (404, 0));
}

#[test]
fn upstream_errors_are_replaced_when_intercepted() {
    let origin = Origin::start(|request, conn| {
        let status = request.target().trim_start_matches(|c: char| !c.is_ascii_digit()).to_string();
        conn.reply(&format!("{status} X"), "X-Kept: yes\r\n", "origin");
        weir_tests::Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /i/ { proxy_intercept_errors on; error_page 404 503 /page;
                proxy_pass http://%%ORIGIN%%; }
            location /n/ { error_page 404 502 /page; proxy_pass http://%%ORIGIN%%; }
            location /page { return 200 page; }
        } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for (path, status, text) in [
        ("/i/404", 404, "page"),
        ("/i/500", 500, "origin"),
        ("/i/200", 200, "origin"),
        ("/n/404", 404, "origin"),
    ] {
        let response = server.get(path);
        assert_eq!((response.status, response.text().as_str()), (status, text), "{path}");
    }
}
