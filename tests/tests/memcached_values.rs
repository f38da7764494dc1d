//! Values of memcached as answers.

use std::io::{Read, Write};
use std::net::TcpStream;
use weir_tests::tools::need;
use weir_tests::{expect_soon, free_port, Conn, Origin, Setup};

/// A memcached by hand: keys and the whole answers to them.
fn scripted(answers: &'static [(&'static str, &'static str)]) -> Origin {
    Origin::start_raw(move |conn: &mut Conn, _| {
        while let Some(line) = conn.read_until(b"\r\n") {
            let key = String::from_utf8_lossy(&line[4..line.len() - 2]).into_owned();
            let found = answers.iter().find(|(k, _)| *k == key);
            conn.write(found.map_or("END\r\n", |(_, answer)| answer));
        }
    })
}

const CONF: &str = "events {} http { upstream m { server %%ORIGIN%%; keepalive 4; }
    server { listen 127.0.0.1:%%PORT_0%%; types { text/x x; }
        location / { set $memcached_key $uri$is_args$args; memcached_pass m; memcached_gzip_flag 2;
            error_page 404 = @there; }
        location /none { memcached_pass m; set $memcached_key $arg_none; }
        location @there { return 200 fallback; } } }";

#[test]
fn values_and_what_goes_wrong() {
    let origin = scripted(&[
        ("/a.x", "VALUE /a.x 0 5\r\nhello\r\nEND\r\n"),
        ("/a%20b", "VALUE /a%20b 0 1\r\nx\r\nEND\r\n"),
        ("/gz", "VALUE /gz 2 2\r\nzz\r\nEND\r\n"),
        ("/error", "ERROR\r\n"),
        ("/other", "VALUE /else 0 1\r\nx\r\nEND\r\n"),
        ("/cut", "VALUE /cut 0 2\r\nabcdefgh"),
    ]);
    let server = Setup::new(CONF).set("ORIGIN", origin.address()).start();
    let r = server.get("/a.x");
    assert_eq!((r.status, &*r.text(), r.header("Content-Type")), (200, "hello", Some("text/x")));
    assert_eq!(r.header("Content-Length"), Some("5"));
    assert_eq!(server.get_with("/a.x", "Range: bytes=1-2\r\n").text(), "el");
    assert_eq!(server.get("/a%20b").text(), "x");
    assert_eq!(server.get("/gz").header("Content-Encoding"), Some("gzip"));
    assert_eq!(server.get("/missing").text(), "fallback");
    assert_eq!(origin.connections(), 1, "{}", server.error_log());
    assert_eq!(server.get("/error").status, 502);
    server.expect_error("memcached sent invalid response: \"ERROR\"");
    assert_eq!(server.get("/other").status, 502);
    server.expect_error(
        "memcached sent invalid key in response \"VALUE /else 0 1\" for key \"/other\"",
    );
    assert_eq!(server.get("/cut").text(), "ab");
    server.expect_error("memcached sent invalid trailer");
    assert_eq!(server.get("/none").status, 500);
    server.expect_error("the \"$memcached_key\" variable is not set");
    assert_eq!(server.post("/a.x", "body").status, 405);
}

#[test]
fn the_real_memcached_answers() {
    let Some(memcached) = need("memcached") else { return };
    let port = free_port();
    let _memcached = memcached.start(|c| {
        c.args(["-u", "root", "-l", "127.0.0.1", "-p", &port.to_string()]);
    });
    expect_soon("memcached listens", || TcpStream::connect(("127.0.0.1", port)).is_ok());
    let value = "0123456789".repeat(50_000);
    let mut conn = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(conn, "set /large 0 0 {}\r\n{value}\r\nset /empty 0 0 0\r\n\r\n", value.len()).unwrap();
    let mut stored = [0; 16];
    conn.read_exact(&mut stored).unwrap();
    assert_eq!(&stored, b"STORED\r\nSTORED\r\n");
    let server = Setup::new(CONF).set("ORIGIN", format!("127.0.0.1:{port}")).start();
    for _ in 0..2 {
        assert_eq!(server.get("/large").text(), value);
        let empty = server.get("/empty");
        assert_eq!((empty.status, empty.body.len()), (200, 0));
        assert_eq!(server.get("/missing").text(), "fallback");
    }
}
