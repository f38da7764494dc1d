//! What each of the timeouts towards servers bounds, and what begins it again.

use std::time::Duration;
use weir_tests::cgi::{self, stdout};
use weir_tests::{h2, wait_for, Conn, Origin, Server, Setup, PATIENCE};
use weir_wire::http2::frame;

fn start(conf: &str, origin: &Origin) -> Server {
    let conf = format!(
        "events {{}} http {{ error_log %%DIR%%/error.log info; client_max_body_size 0;
            upstream two {{ server %%ORIGIN%%; server 127.0.0.1:%%PORT_1%% backup; }}
            server {{ listen 127.0.0.1:%%PORT_0%%; location / {{ {conf} }} }}
            server {{ listen 127.0.0.1:%%PORT_1%%; return 200 good; }} }}"
    );
    Setup::new(&conf).set("ORIGIN", origin.address()).start()
}

/// Says the same again and again, with a pause each time, until nobody listens. Reads nothing.
fn keep_saying(conn: &mut Conn, bytes: &[u8]) {
    wait_for(|| !conn.try_write(bytes), PATIENCE * 2);
}

/// An origin that never comes to the end of its head.
fn dribbling(
    read: impl Fn(&mut Conn) -> bool + Send + Sync + 'static,
    first: impl Into<Vec<u8>>,
    more: impl Into<Vec<u8>>,
) -> Origin {
    let (first, more) = (first.into(), more.into());
    Origin::start_raw(move |conn, _| {
        if read(conn) {
            conn.write(&first);
            keep_saying(conn, &more);
        }
    })
}

fn http(conn: &mut Conn) -> bool {
    conn.read_until(b"\r\n\r\n").is_some()
}

fn of_http2() -> Origin {
    let mut settings = Vec::new();
    frame::settings(&[], &mut settings);
    let ping = [&frame::head(8, frame::PING, 0, 0)[..], b"12345678"].concat();
    dribbling(|conn| conn.read_until(h2::PREFACE).is_some(), settings, ping)
}

#[test]
fn the_whole_head_has_one_read_timeout() {
    const FIELD: &str = "Status: 200\r\nX-A: ";
    for (family, pass, origin) in [
        ("proxy", "proxy_pass http://", dribbling(http, "HTTP/1.1 200 OK\r\nX-A: ", "a")),
        (
            "proxy",
            "proxy_pass http://",
            dribbling(http, "", "HTTP/1.1 103 Early Hints\r\nLink: a\r\n\r\n"),
        ),
        (
            "fastcgi",
            "fastcgi_pass ",
            dribbling(|c| cgi::read_fastcgi(c).is_some(), stdout(FIELD), stdout("a")),
        ),
        ("scgi", "scgi_pass ", dribbling(|c| cgi::read_scgi(c).is_some(), FIELD, "a")),
        ("uwsgi", "uwsgi_pass ", dribbling(|c| cgi::read_uwsgi(c).is_some(), FIELD, "a")),
        (
            "memcached",
            "set $memcached_key k; memcached_pass ",
            dribbling(|c| c.read_until(b"\r\n").is_some(), "VALUE ", "k"),
        ),
        ("proxy", "proxy_http_version 2; proxy_pass http://", of_http2()),
        ("grpc", "grpc_pass grpc://", of_http2()),
    ] {
        let server =
            start(&format!("{family}_read_timeout 300ms; {pass}{};", origin.address()), &origin);
        assert_eq!(server.get("/").status, 504, "{pass}");
        server.expect_error(
            "upstream timed out (110: Connection timed out) while reading response header from \
             upstream, client: 127.0.0.1, server: , request: \"GET / HTTP/1.1\", upstream: \"",
        );
    }
}

#[test]
fn the_next_server_is_asked_when_a_head_takes_too_long() {
    let origin = dribbling(http, "HTTP/1.1 200 OK\r\nX-A: ", "a");
    let server = start("proxy_read_timeout 300ms; proxy_pass http://two;", &origin);
    assert_eq!(server.get("/").text(), "good");
    let limited =
        "proxy_read_timeout 300ms; proxy_next_upstream_timeout 200ms; proxy_pass http://two;";
    assert_eq!(start(limited, &origin).get("/").status, 504);
}

#[test]
fn each_part_of_a_body_has_a_read_timeout_of_its_own() {
    const PARTS: usize = 6;
    const CHUNK: &str = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nx\r\n";
    for (head, buffering) in [
        ("HTTP/1.1 200 OK\r\n\r\n", "on"),
        ("HTTP/1.1 200 OK\r\nX-Accel-Buffering: no\r\n\r\n", "off"),
    ] {
        let origin = Origin::start_raw(move |conn, _| {
            if !http(conn) {
                return;
            }
            conn.write(head);
            for _ in 0..PARTS {
                conn.write("part");
                conn.is_closed_within(Duration::from_millis(500));
            }
        });
        let conf = format!("proxy_read_timeout 2s; proxy_buffering {buffering};");
        let server = start(&format!("{conf} proxy_pass http://%%ORIGIN%%;"), &origin);
        assert_eq!(server.get("/").text(), "part".repeat(PARTS), "{}", server.error_log());
    }
    let origin = dribbling(http, CHUNK, "");
    let server = start("proxy_read_timeout 300ms; proxy_pass http://%%ORIGIN%%;", &origin);
    let mut client = server.connect();
    client.send_get("/");
    client.read_until(b"\r\n\r\n1\r\nx\r\n");
    assert!(client.is_closed());
    server.expect_error("upstream timed out (110: Connection timed out) while reading upstream");
}

#[test]
fn a_server_that_takes_nothing_of_a_request_times_out_whatever_it_says() {
    let conf =
        "proxy_http_version VERSION; proxy_send_timeout 300ms; proxy_pass http://%%ORIGIN%%;";
    let of_http1 = Origin::start_raw(|conn, _| {
        conn.write("HTTP/1.1 200 OK\r\nX-A: ");
        keep_saying(conn, b"a");
    });
    // Its windows are never opened.
    for (version, origin) in [("1.1", of_http1), ("2", of_http2())] {
        let server = start(&conf.replace("VERSION", version), &origin);
        assert_eq!(server.post("/", &"x".repeat(12_000_000)).status, 504, "{version}");
        server.expect_error("upstream timed out (110: Connection timed out) while ");
    }
}
