//! gzip and gzip_static: who gets what compressed.

use weir_tests::{Origin, Response, Server, Setup};

fn start() -> Server {
    Setup::new(
        "events {} http { gzip on; types { text/html html; text/plain txt; image/png png; }
            server { listen 127.0.0.1:%%PORT_0%%; root %%DIR%%/html;
            location /types/ { gzip_types text/plain; alias %%DIR%%/html/; }
            location /all/ { gzip_types *; alias %%DIR%%/html/; }
            location /small/ { gzip_min_length 10000; alias %%DIR%%/html/; }
            location /v10/ { gzip_http_version 1.0; alias %%DIR%%/html/; }
            location /vary/ { gzip_vary on; alias %%DIR%%/html/; }
            location /ua/ { gzip_disable Bad; alias %%DIR%%/html/; }
            location /static/ { gzip off; gzip_static on; gzip_vary on; alias %%DIR%%/html/; }
            location /always/ { gzip off; gzip_static always; alias %%DIR%%/html/; }
        } }",
    )
    .file("html/a.html", "text ".repeat(1000))
    .file("html/a.txt", "text ".repeat(1000))
    .file("html/a.png", "text ".repeat(1000))
    .file("html/tiny.html", "tiny")
    .file("html/s.html", "plain")
    .file("html/s.html.gz", "\x1f\x01 pretending")
    .start()
}

fn is_gzip(response: &Response) -> bool {
    let said = response.header("Content-Encoding") == Some("gzip");
    let magic = response.body.starts_with(&[0x1f, 0x8b, 8]);
    assert_eq!(said, magic);
    said
}

#[test]
fn only_what_is_worth_it() {
    let server = start();
    for (path, compressed) in [
        ("/a.html", true),
        ("/a.txt", false),
        ("/tiny.html", false),
        ("/types/a.txt", true),
        ("/types/a.html", true),
        ("/all/a.png", true),
        ("/small/a.html", false),
    ] {
        let response = server.get_with(path, "Accept-Encoding: gzip\r\n");
        assert_eq!(is_gzip(&response), compressed, "{path}");
        if compressed {
            // A kept form's length is known, so unlike nginx it is not chunked.
            assert!(response.body.len() < 200, "{path}");
            assert_eq!(response.content_length(), Some(response.body.len()), "{path}");
            assert!(response.header("ETag").is_some_and(|v| v.starts_with("W/\"")), "{path}");
            assert_eq!(response.header("Accept-Ranges"), None, "{path}");
        }
    }
}

#[test]
fn error_pages_of_404_are_compressed_and_others_not() {
    let server = Server::start(
        "events {} http { gzip on; server { listen 127.0.0.1:%%PORT_0%%;
            location /404 { return 404; } location /403 { return 403; }
            location /500 { return 500; } } }",
    );
    for (path, compressed) in [("/404", true), ("/403", true), ("/500", false)] {
        let response = server.get_with(path, "Accept-Encoding: gzip\r\n");
        assert_eq!(is_gzip(&response), compressed, "{path}");
    }
}

#[test]
fn only_for_those_who_accept_it() {
    let server = start();
    for (accept, compressed) in [
        ("", false),
        ("Accept-Encoding: gzip\r\n", true),
        ("Accept-Encoding: deflate, GZIP\r\n", true),
        ("Accept-Encoding: gzip;q=0\r\n", false),
        ("Accept-Encoding: gzip; q=0.0\r\n", false),
        ("Accept-Encoding: gzip;q=0.5\r\n", true),
        ("Accept-Encoding: x-gzip\r\n", false),
        ("Accept-Encoding: *\r\n", false),
        ("Accept-Encoding: br, gzip;q=1.0, *;q=0\r\n", true),
        ("Accept-Encoding: gzip\r\nVia: 1.1 p\r\n", false),
    ] {
        assert_eq!(is_gzip(&server.get_with("/a.html", accept)), compressed, "{accept}");
    }
    let old = b"GET /a.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n";
    assert!(!is_gzip(&server.exchange("GET", old)));
    let old = b"GET /v10/a.html HTTP/1.0\r\nAccept-Encoding: gzip\r\n\r\n";
    let response = server.exchange("GET", old);
    assert!(is_gzip(&response) && !response.is_chunked());
    let agent = "Accept-Encoding: gzip\r\nUser-Agent: Bad one\r\n";
    assert!(!is_gzip(&server.get_with("/ua/a.html", agent)));
}

#[test]
fn vary_is_said_either_way() {
    let server = start();
    assert_eq!(server.get("/vary/a.html").header("Vary"), Some("Accept-Encoding"));
    let response = server.get_with("/vary/a.html", "Accept-Encoding: gzip\r\n");
    assert_eq!(response.header("Vary"), Some("Accept-Encoding"));
    assert_eq!(server.get("/vary/a.txt").header("Vary"), None);
}

#[test]
fn ready_made_files_are_preferred() {
    let server = start();
    let response = server.get_with("/static/s.html", "Accept-Encoding: gzip\r\n");
    assert_eq!(response.header("Content-Encoding"), Some("gzip"));
    assert_eq!(response.header("Content-Type"), Some("text/html"));
    assert_eq!(response.header("Vary"), Some("Accept-Encoding"));
    assert!(response.text().ends_with("pretending"));
    assert_eq!(response.content_length(), Some(13));
    let plain = server.get("/static/s.html");
    assert_eq!((plain.text().as_str(), plain.header("Vary")), ("plain", Some("Accept-Encoding")));
    assert_eq!(server.get_with("/static/a.html", "Accept-Encoding: gzip\r\n").body.len(), 5000);
    assert!(server.get("/always/s.html").text().ends_with("pretending"));
}

#[test]
fn proxied_answers_depend_on_what_they_say() {
    let origin = Origin::start(|request, conn| {
        let headers =
            format!("Content-Type: text/html\r\n{}", request.header("X-Add").unwrap_or(""));
        let headers = headers.trim_end().to_string() + "\r\n";
        conn.reply("200 OK", &headers, &"text ".repeat(1000));
        weir_tests::Next::Keep
    });
    let server = Setup::new(
        "events {} http { gzip on; server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for (add, compressed) in [("", true), ("Content-Encoding: x", false)] {
        let headers = format!("Accept-Encoding: gzip\r\nX-Add: {add}\r\n");
        let response = server.get_with("/", &headers);
        assert_eq!(response.header("Content-Encoding") == Some("gzip"), compressed, "{add:?}");
    }
}

#[test]
fn gzip_types_given_twice_add_up() {
    let server = Server::start(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; gzip on; gzip_min_length 1;
            gzip_types text/css; gzip_types text/x-one text/x-two;
            location /css { default_type text/css; return 200 0123456789; }
            location /two { default_type text/x-two; return 200 0123456789; }
            location /plain { default_type text/plain; return 200 0123456789; } } }",
    );
    for (path, packed) in [("/css", true), ("/two", true), ("/plain", false)] {
        let answer = server.request("GET", path, "Accept-Encoding: gzip\r\n");
        assert_eq!(answer.header("Content-Encoding").is_some(), packed, "{path}");
    }
}

/// Each piece made a chunk with some bytes of what it became.
#[test]
fn small_pieces_that_come_one_after_the_other_share_chunks() {
    let origin = weir_tests::Origin::start_raw(|conn, _| {
        conn.read_until(b"\r\n\r\n");
        conn.write(
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nTransfer-Encoding: chunked\r\n\r\n",
        );
        for i in 0..400 {
            conn.write(format!("64\r\n{:<100}\r\n", format!("line {i} of the events")));
            // The pieces are to be read one by one.
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        conn.write("0\r\n\r\n");
    });
    let server = Setup::new(
        "events {} http { gzip on; server { listen 127.0.0.1:%%PORT_0%%;
            location / { proxy_pass http://%%O%%; proxy_http_version 1.1; } } }",
    )
    .set("O", origin.address())
    .start();
    let request =
        b"GET / HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\nConnection: close\r\n\r\n";
    let answer = server.raw(request);
    let begin = answer.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
    let (mut at, mut chunks) = (begin, 0);
    loop {
        let end = at + answer[at..].windows(2).position(|w| w == b"\r\n").unwrap();
        let length = std::str::from_utf8(&answer[at..end]).unwrap();
        let length = usize::from_str_radix(length, 16).unwrap();
        if length == 0 {
            break;
        }
        chunks += 1;
        at = end + 2 + length + 2;
    }
    assert!(chunks < 150, "{chunks} chunks, {} bytes", answer.len() - begin);
}
