//! How the answers of FastCGI servers are read and passed on.

use weir_tests::cgi::{answer, ended, record, stderr, stdout};
use weir_tests::{Next, Origin, Server, Setup};

/// A server that answers each path with its own bytes.
fn scripted(answers: Vec<(&'static str, Vec<u8>)>) -> Origin {
    Origin::fastcgi(move |asked, conn| {
        let uri = asked.param("URI").unwrap();
        let found = answers.iter().find(|(path, _)| *path == uri);
        conn.write(&found.unwrap_or_else(|| panic!("no answer for {uri}")).1);
        Next::Close
    })
}

fn start(origin: &Origin, more: &str) -> Server {
    let conf = "events {} http { %%MORE%% fastcgi_param URI $uri;
        server { listen 127.0.0.1:%%PORT_0%%; location / { fastcgi_pass %%ORIGIN%%; } } }";
    Setup::new(&conf.replace("%%MORE%%", more)).set("ORIGIN", origin.address()).start()
}

#[test]
fn status_fields_and_bodies() {
    let head =
        "Status: 404 Gone Fishing\r\nX-A: b\r\nX-Accel-Expires: 1\r\nContent-Length: 4\r\n\r\n";
    let mut pieces = Vec::new();
    for byte in head.bytes().chain(*b"body") {
        pieces.extend(record(6, &[byte]));
    }
    pieces.extend(ended());
    let origin = scripted(vec![
        ("/status", pieces),
        ("/plain", answer("Content-Type: text/x\n\nhello")),
        ("/there", answer("Location: /elsewhere\r\n\r\n")),
        ("/bad", answer("Status: many\r\n\r\n")),
        ("/none", ended()),
        ("/http", answer("HTTP/1.1 200 OK\r\nX-A: b\r\n\r\nx")),
        ("/long", answer("Content-Length: 2\r\n\r\nabcd")),
        ("/version", b"HTTP/1.0 200 OK\r\n\r\n".to_vec()),
    ]);
    let server = start(&origin, "");
    let r = server.get("/status");
    assert_eq!((r.status, r.header("X-A"), &*r.text()), (404, Some("b"), "body"));
    assert_eq!(r.reason, "Gone Fishing");
    assert_eq!((r.header("Status"), r.header("X-Accel-Expires")), (None, None));
    let r = server.get("/plain");
    assert_eq!((r.status, r.header("Content-Type"), &*r.text()), (200, Some("text/x"), "hello"));
    assert!(r.header("Date").is_some() && r.header("Server").is_some());
    let r = server.get("/there");
    assert_eq!((r.status, r.header("Location")), (302, Some("/elsewhere")));
    assert_eq!(server.get("/bad").status, 502);
    server.expect_error("upstream sent invalid status \"many\"");
    assert_eq!(server.get("/none").status, 502);
    server.expect_error("upstream prematurely closed FastCGI stdout while reading response header");
    assert_eq!(server.get("/http").header("X-A"), Some("b"));
    assert_eq!(server.get("/long").text(), "ab");
    assert_eq!(server.get("/version").status, 502);
    server.expect_error("upstream sent unsupported FastCGI protocol version: 72");
}

#[test]
fn standard_error_is_logged_and_may_spoil_the_answer() {
    let origin = scripted(vec![
        ("/warns", [stderr("PHP message: careful.\n"), answer("\r\nfine")].concat()),
        ("/late", [stdout("\r\nsent"), stderr("PHP Fatal error"), ended()].concat()),
        ("/fatal", [stderr("x PHP Fatal error y"), answer("\r\nno")].concat()),
    ]);
    let server = start(&origin, "fastcgi_catch_stderr 'PHP Fatal error';");
    assert_eq!(server.get("/warns").text(), "fine");
    server.expect_error("FastCGI sent in stderr: \"PHP message: careful\" while reading response header from upstream");
    assert_eq!(server.get("/late").text(), "sent");
    assert_eq!(server.get("/fatal").status, 502);
    server.expect_error("FastCGI sent in stderr: \"x PHP Fatal error y\"");
}

#[test]
fn an_answer_that_is_cut_short_is_not_completed() {
    let origin = scripted(vec![("/cut", answer("Content-Length: 10\r\n\r\nhalf"))]);
    let server = start(&origin, "");
    let mut client = server.connect();
    client.send_get("/cut");
    assert!(client.read_to_end().ends_with(b"\r\n\r\nhalf"));
    server.expect_error("upstream prematurely closed FastCGI");
}

#[test]
fn another_server_is_asked() {
    let down = scripted(vec![("/", answer("Status: 503 Busy\r\n\r\nbusy"))]);
    let up = scripted(vec![("/", answer("\r\nup"))]);
    let server = Setup::new(
        "events {} http { upstream u { server %%DOWN%%; server %%UP%% backup; }
        server { listen 127.0.0.1:%%PORT_0%%; fastcgi_param URI $uri;
            location / { fastcgi_pass u; fastcgi_next_upstream error http_503; add_header X-S $upstream_status; } } }",
    )
    .set("DOWN", down.address())
    .set("UP", up.address())
    .start();
    let r = server.get("/");
    assert_eq!((&*r.text(), r.header("X-S")), ("up", Some("503, 200")));
}

#[test]
fn answers_are_kept() {
    let origin = Origin::fastcgi(|asked, conn| {
        let lang = asked.param("HTTP_IF_NONE_MATCH").unwrap_or("-");
        conn.write(answer(&format!("Status: 201 Made\r\nX-A: b\r\n\r\n{lang}")));
        Next::Close
    });
    let server = Setup::new(
        "events {} http { fastcgi_cache_path %%DIR%%/cache keys_zone=z:1m;
        server { listen 127.0.0.1:%%PORT_0%%;
            location / { fastcgi_pass %%ORIGIN%%; fastcgi_cache z; fastcgi_cache_key $uri; fastcgi_cache_valid any 1m;
                add_header X-C $upstream_cache_status; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for cached in ["MISS", "HIT", "HIT"] {
        let r = server.get_with("/", "If-None-Match: x\r\n");
        assert_eq!((r.status, r.header("X-A"), &*r.text()), (201, Some("b"), "-"));
        assert_eq!(r.header("X-C"), Some(cached));
    }
    assert_eq!(origin.connections(), 1);
}

/// A program that only complains is not listened to for ever.
#[test]
fn what_stands_beside_the_answer_has_an_end() {
    let origin = Origin::fastcgi(move |asked, conn| {
        let empty = asked.param("URI") == Some("/empty");
        let flood = if empty { record(7, b"").repeat(2000) } else { record(7, &[b'e'; 60_000]) };
        while conn.try_write(&flood) {}
        Next::Close
    });
    let server = start(&origin, "error_log /dev/null; fastcgi_next_upstream off;");
    assert_eq!(server.get("/text").status, 502);
    assert_eq!(server.get("/empty").status, 502);
}
