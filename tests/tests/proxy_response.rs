//! What becomes of the origin's answer on its way to the client.

use weir_tests::{Origin, Setup};

#[test]
fn headers_are_passed_hidden_or_acted_on() {
    let origin = Origin::replying(
        "HTTP/1.1 201 Made Up\r\nServer: origin\r\nDate: then\r\nX-Pad: x\r\nX-Own: 1\r\nX-Own: 2\r\n\
         X-Accel-Charset: utf-8\r\nX-Accel-Expires: 0\r\nSet-Cookie: a=b; Path=/in\r\nSet-Cookie: c=d\r\n\
         Content-Type: text/x\r\nContent-Length: 2\r\nKeep-Alive: 5\r\nConnection: close\r\n\r\nok",
    );
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%ORIGIN%%; }
            location /pass { proxy_pass_header Server; proxy_pass_header Date;
                proxy_pass_header X-Accel-Charset; proxy_hide_header x-own;
                proxy_pass http://%%ORIGIN%%; }
            location /known { charset utf-8; }
            location /cookie { proxy_cookie_path /in /out; proxy_hide_header X-None;
                proxy_pass http://%%ORIGIN%%; }
        } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let response = server.get("/");
    assert_eq!((response.status, response.reason.as_str()), (201, "Made Up"));
    assert!(response.header("Server").is_some_and(|v| v != "origin"));
    assert!(response.header("Date").is_some_and(|v| v.ends_with("GMT")));
    assert_eq!(response.all("X-Own"), ["1", "2"]);
    assert_eq!(response.header("Content-Type"), Some("text/x; charset=utf-8"));
    assert_eq!(response.all("Set-Cookie"), ["a=b; Path=/in", "c=d"]);
    for gone in ["X-Pad", "X-Accel-Charset", "X-Accel-Expires", "Keep-Alive"] {
        assert_eq!(response.header(gone), None, "{gone}");
    }
    let passed = server.get("/pass");
    assert_eq!(passed.header("Server"), Some("origin"));
    assert_eq!(passed.header("Date"), Some("then"));
    assert_eq!(passed.header("X-Accel-Charset"), Some("utf-8"));
    assert_eq!(passed.header("X-Own"), None);
    assert_eq!(server.get("/cookie").all("Set-Cookie"), ["a=b; Path=/out", "c=d"]);
}

#[test]
fn redirects_are_rewritten() {
    let origin = Origin::start(|request, conn| {
        let to = request.header("X-To").unwrap_or_default().to_string();
        conn.reply("302 Found", &format!("Location: {to}\r\n"), "");
        weir_tests::Next::Keep
    });
    let server = Setup::new(
        r"events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location /p/ { proxy_pass http://%%ORIGIN%%/base/; }
            location /off/ { proxy_redirect off; proxy_pass http://%%ORIGIN%%/base/; }
            location /own/ { proxy_redirect http://a/ /b/; proxy_redirect ~^http://re(\d)/ /re-$1/;
                proxy_pass http://%%ORIGIN%%/; }
        } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let port = server.port(0);
    let back = |path: &str, to: &str| {
        let response = server.get_with(path, &format!("X-To: {to}\r\n"));
        response.header("Location").unwrap_or_default().to_string()
    };
    let inside = format!("http://{}/base/x?y", origin.address());
    assert_eq!(back("/p/", &inside), format!("http://localhost:{port}/p/x?y"));
    assert_eq!(back("/off/", &inside), inside);
    assert_eq!(back("/p/", "http://other/base/x"), "http://other/base/x");
    assert_eq!(back("/p/", "/base/x"), "/base/x");
    assert_eq!(back("/own/", "http://a/x"), format!("http://localhost:{port}/b/x"));
    assert_eq!(back("/own/", "http://re7/x"), format!("http://localhost:{port}/re-7/"));
}

#[test]
fn bodies_of_every_framing_arrive() {
    let origin = Origin::start(|request, conn| {
        match request.target() {
            "/length" => conn.reply("200 OK", "", "length"),
            "/chunked" => conn.write(
                "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nchu\r\n4;e\r\nnked\r\n0\r\nT: v\r\n\r\n",
            ),
            "/close" => {
                conn.write("HTTP/1.1 200 OK\r\n\r\nto the end");
                return weir_tests::Next::Close;
            }
            "/http10" => {
                conn.write("HTTP/1.0 200 OK\r\n\r\nold");
                return weir_tests::Next::Close;
            }
            "/http09" => {
                conn.write("no header at all");
                return weir_tests::Next::Close;
            }
            "/304" => conn.write("HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n"),
            "/hints" => {
                conn.write("HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n");
                conn.reply("200 OK", "", "final");
            }
            _ => conn.reply("204 No Content", "", ""),
        }
        weir_tests::Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%ORIGIN%%; }
            location /b/ { proxy_buffering off; proxy_pass http://%%ORIGIN%%/; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for prefix in ["", "/b"] {
        let mut client = server.connect();
        for (path, text, chunked) in [
            ("/length", "length", false),
            ("/chunked", "chunked", true),
            ("/close", "to the end", true),
            ("/http10", "old", true),
            ("/304", "", false),
            ("/hints", "final", false),
            ("/204", "", false),
        ] {
            let response = client.get(&format!("{prefix}{path}"));
            assert_eq!(response.text(), text, "{prefix}{path}");
            assert_eq!(response.is_chunked(), chunked, "{prefix}{path}");
        }
        let head = server.head(&format!("{prefix}/length"));
        assert_eq!((head.content_length(), head.body.len()), (Some(6), 0));
    }
    let mut client = server.connect();
    client.send_get("/http09");
    assert_eq!(client.read_until(b"at all"), b"no header at all");
}

#[test]
fn answers_that_break_their_word() {
    let origin = Origin::start(|request, conn| {
        let (head, body) = match request.target() {
            "/twice" => ("Content-Length: 2\r\nContent-Length: 2\r\n", "ok"),
            "/both" => ("Content-Length: 2\r\nTransfer-Encoding: chunked\r\n", "0\r\n\r\n"),
            "/coding" => ("Transfer-Encoding: gzip\r\n", ""),
            "/folded" => ("A: b\r\n c\r\n", ""),
            "/length" => ("Content-Length: x\r\n", ""),
            "/big" => {
                let big = format!("HTTP/1.1 200 OK\r\nA: {}\r\n\r\n", "x".repeat(5000));
                conn.write(big);
                return weir_tests::Next::Close;
            }
            _ => return weir_tests::Next::Close,
        };
        conn.write(format!("HTTP/1.1 200 OK\r\n{head}\r\n{body}"));
        weir_tests::Next::Close
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
            location / { proxy_buffer_size 4k; proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for (path, error) in [
        ("/twice", "upstream sent duplicate header line: \"Content-Length: 2\", previous value"),
        ("/both", "upstream sent \"Content-Length\" and \"Transfer-Encoding\" headers"),
        ("/coding", "upstream sent unknown \"Transfer-Encoding\": \"gzip\""),
        ("/folded", "upstream sent invalid header: \"\\x20...\""),
        ("/length", "upstream sent invalid \"Content-Length\" header"),
        ("/big", "upstream sent too big header while reading response header from upstream"),
        ("/gone", "upstream prematurely closed connection while reading response header"),
    ] {
        assert_eq!(server.get(path).status, 502, "{path}");
        server.expect_error(error);
    }
}

#[test]
fn a_body_cut_short_is_not_completed() {
    let origin = Origin::start(|request, conn| {
        match request.target() {
            "/length" => conn.write("HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf"),
            _ => conn.write("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nhalf\r\n"),
        }
        weir_tests::Next::Close
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
            location / { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let length = server.raw(b"GET /length HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(length.ends_with(b"\r\n\r\nhalf"));
    let chunked = server.raw(b"GET /chunked HTTP/1.1\r\nHost: a\r\n\r\n");
    assert!(chunked.ends_with(b"4\r\nhalf\r\n"));
    server.expect_error("upstream prematurely closed connection while reading upstream");
}

#[test]
fn an_answer_can_send_the_request_elsewhere() {
    let origin = Origin::start(|request, conn| {
        let to = request.header("X-To").unwrap_or_default().to_string();
        conn.reply(
            "200 OK",
            &format!("X-Accel-Redirect: {to}\r\nContent-Type: text/y\r\nX-O: 1\r\n"),
            "",
        );
        weir_tests::Next::Keep
    });
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; error_log %%DIR%%/error.log;
            location / { proxy_pass http://%%ORIGIN%%; }
            location /ignore { proxy_ignore_headers X-Accel-Redirect; proxy_pass http://%%ORIGIN%%; }
            location /files/ { internal; alias %%DIR%%/files/; }
            location @named { return 200 'named $uri'; }
        } }",
    )
    .set("ORIGIN", origin.address())
    .file("files/a b", "secret")
    .start();
    let ask = |path: &str, to: &str| server.get_with(path, &format!("X-To: {to}\r\n"));
    let response = ask("/x", "/files/a%20b");
    assert_eq!(
        (response.text().as_str(), response.header("Content-Type")),
        ("secret", Some("text/y"))
    );
    assert_eq!(ask("/x", "@named").text(), "named /x");
    assert_eq!(ask("/x", "/files/none").status, 404);
    assert_eq!(ask("/x", "/files/../x").status, 404);
    assert_eq!(ask("/ignore", "/files/a%20b").text(), "");
}

#[test]
fn a_content_type_is_passed_on_as_it_was_written() {
    let origin = Origin::start(|request, conn| {
        let kind = request.header("X-Kind").unwrap_or_default();
        conn.reply("200 OK", &format!("Content-Type: {kind}\r\n"), "text");
        weir_tests::Next::Keep
    });
    let server = Setup::new(
        "events {} http { add_header X-Type $upstream_http_content_type; charset_types text/plain;
            server { listen 127.0.0.1:%%PORT_0%%; http2 on;
                location / { add_header X-Sent $sent_http_content_type; proxy_pass http://%%ORIGIN%%; }
                location /charset { charset utf-8; override_charset on; proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for kind in [
        "text/plain;charset=utf-8",
        "text/plain; charset=utf-8",
        "text/plain;  Charset=\"utf-8\"",
        "text/html;q=1;charset=utf-8;z=2",
        "text/html ;q=1",
    ] {
        let fields = format!("X-Kind: {kind}\r\n");
        let answer = server.get_with("/", &fields);
        assert_eq!(answer.header("Content-Type"), Some(kind));
        assert_eq!(answer.header("X-Sent"), Some(kind));
        let ranged = server.get_with("/", &format!("{fields}Range: bytes=0-0\r\n"));
        assert_eq!(ranged.header("Content-Type"), Some(kind));
        let mut client = weir_tests::h2::H2::connect(&server);
        let asked = [&weir_tests::h2::request("GET", "/")[..], &[("x-kind", kind)]].concat();
        let stream = client.open(&asked, true);
        assert_eq!(client.answer(stream).header("content-type"), Some(kind));
    }
    let fields = "X-Kind: text/plain;charset=utf-8\r\n";
    let answer = server.get_with("/charset", fields);
    assert_eq!(answer.header("Content-Type"), Some("text/plain; charset=utf-8"));
}
