//! What the error log says of servers that fail: the line's end shows whose request it was, and
//! where it went.

use std::io::Write;
use std::net::TcpStream;
use weir_tests::{Conn, Next, Origin, Server, Setup};

fn start(origin: &Origin, location: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ error_log %%DIR%%/error.log info; proxy_read_timeout 300ms;
            upstream none {{ server 127.0.0.1:1 down; }}
            server {{ listen 127.0.0.1:%%PORT_0%%; server_name my.name;
                location /a/ {{ {location} }} }} }}"
    );
    Setup::new(&conf).set("ORIGIN", origin.address()).start()
}

/// Asks once; the log has that text with this end behind it.
#[track_caller]
fn logs(server: &Server, text: &str, upstream: &str) {
    server.raw(
        b"GET /a/b?c=d HTTP/1.1\r\nHost: h.test\r\nReferer: http://r/\r\nConnection: close\r\n\r\n",
    );
    server.expect_error(&format!(
        "{text}, client: 127.0.0.1, server: my.name, request: \"GET /a/b?c=d HTTP/1.1\", \
         upstream: \"{upstream}\", host: \"h.test\", referrer: \"http://r/\""
    ));
}

const OK: &str = "HTTP/1.1 200 OK\r\n";

#[test]
fn lines_end_with_the_request_and_where_it_went() {
    const HEAD: &str = "while reading response header from upstream";
    const BODY: &str = "while reading upstream";
    let big = format!("{OK}X: {}\r\n\r\n", "a".repeat(9000));
    for (said, closes, text, doing) in [
        ("", true, "upstream prematurely closed connection", HEAD),
        ("", false, "upstream timed out (110: Connection timed out)", HEAD),
        ("nonsense\r\n", true, "upstream sent no valid HTTP/1.0 header", HEAD),
        (
            &*format!("{OK}Bad\0: x\r\n\r\n"),
            true,
            "upstream sent invalid header: \"Bad\\x00...\"",
            HEAD,
        ),
        (&*big, true, "upstream sent too big header", HEAD),
        (
            &*format!("{OK}Content-Length: 1\r\nContent-Length: 2\r\n\r\nab"),
            true,
            "upstream sent duplicate header line: \"Content-Length: 2\", previous value: \
             \"Content-Length: 1\"",
            HEAD,
        ),
        (
            &*format!("{OK}X-Accel-Redirect: /../../x\r\nContent-Length: 0\r\n\r\n"),
            true,
            "unsafe URI \"/../../x\" was detected",
            HEAD,
        ),
        (
            &*format!("{OK}Content-Length: 9\r\n\r\nabc"),
            true,
            "upstream prematurely closed connection",
            BODY,
        ),
        (
            &*format!("{OK}Content-Length: 9\r\n\r\nabc"),
            false,
            "upstream timed out (110: Connection timed out)",
            BODY,
        ),
        (
            &*format!("{OK}Transfer-Encoding: chunked\r\n\r\nzz\r\n"),
            true,
            "upstream sent invalid chunked response",
            BODY,
        ),
    ] {
        let said = said.to_string();
        let origin = Origin::start(move |_, conn: &mut Conn| {
            conn.write(&said);
            if !closes {
                conn.wait_closed();
            }
            Next::Close
        });
        let server = start(&origin, "proxy_pass http://%%ORIGIN%%/to/;");
        logs(&server, &format!("{text} {doing}"), &format!("http://{}/to/b?c=d", origin.address()));
    }
}

#[test]
fn servers_that_are_not_there() {
    let origin = Origin::echo();
    let server = start(&origin, "proxy_pass http://127.0.0.1:%%PORT_1%%/to/;");
    logs(
        &server,
        "connect() failed (111: Connection refused) while connecting to upstream",
        &format!("http://127.0.0.1:{}/to/b?c=d", server.port(1)),
    );
    let server = start(&origin, "proxy_pass http://none/to/;");
    let text = "no live upstreams while connecting to upstream";
    logs(&server, text, "http://none/to/b?c=d");
    if weir_tests::is_windows() {
        return;
    }
    let server = start(&origin, "proxy_pass http://unix:%%DIR%%/none.sock:/to/;");
    let socket = format!("unix:{}/none.sock", server.dir().display());
    let text = format!(
        "connect() to {socket} failed (2: No such file or directory) while connecting to upstream"
    );
    logs(&server, &text, &format!("http://{socket}:/to/b?c=d"));
}

#[test]
fn a_client_that_has_gone() {
    let origin = Origin::start_raw(|conn, _| {
        conn.read_until(b"\r\n\r\n");
        conn.wait_closed();
    });
    let server = start(&origin, "proxy_read_timeout 9s; proxy_pass http://%%ORIGIN%%/to/;");
    let mut client = TcpStream::connect(("127.0.0.1", server.port(0))).unwrap();
    client.write_all(b"GET /a/b HTTP/1.1\r\nHost: h.test\r\n\r\n").unwrap();
    weir_tests::expect_soon("the origin is asked", || origin.connections() == 1);
    drop(client);
    server
        .expect_error("client prematurely closed connection, so upstream connection is closed too");
    server.expect_error(&format!(
        ", client: 127.0.0.1, server: my.name, request: \"GET /a/b HTTP/1.1\", \
         upstream: \"http://{}/to/b\", host: \"h.test\"",
        origin.address()
    ));
}

#[test]
fn a_charset_that_nobody_has_declared() {
    for (charset, more) in [("", ""), ("charset koi8-r;", ""), ("", "Content-Type: \r\n")] {
        let fields = format!("X-Accel-Charset: utf-7\r\n{more}");
        let origin = Origin::start(move |_, conn| {
            let kind = if more.is_empty() { "Content-Type: text/html\r\n" } else { "" };
            conn.reply("200 OK", &format!("{fields}{kind}"), "x");
            Next::Keep
        });
        let server = start(&origin, &format!("{charset} proxy_pass http://%%ORIGIN%%/to/;"));
        let upstream = format!("http://{}/to/b?c=d", origin.address());
        if more.is_empty() {
            let text = "unknown charset \"utf-7\" to override while reading response header from \
                        upstream";
            logs(&server, text, &upstream);
        } else {
            assert_eq!(server.get("/a/b").status, 200);
            assert!(!server.error_log().contains("unknown charset"));
        }
    }
}
