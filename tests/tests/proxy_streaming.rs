//! An answer that comes in pieces is passed on in pieces, while it is buffered: the origin says the
//! next only when the client has seen the last.

use std::io::Write;
use std::sync::{mpsc, Mutex};
use weir_tests::cgi::{self, stdout};
use weir_tests::h2::{self, H2};
use weir_tests::{Client, Conn, Origin, Server, Setup, PATIENCE};
use weir_wire::http2::frame;

const PIECES: usize = 4;
/// Of `piece 0!`.
const PIECE_BYTES: usize = 8;

fn piece(n: usize) -> String {
    format!("piece {n}!")
}

/// An origin that says one thing after another, each when it is told to.
struct Turns {
    origin: Origin,
    go: mpsc::Sender<()>,
}

/// `read` reads a request; `say` tells what comes with the piece of that number.
fn turns(
    read: impl Fn(&mut Conn) -> bool + Send + Sync + 'static,
    say: impl Fn(usize) -> Vec<u8> + Send + Sync + 'static,
) -> Turns {
    let (go, gate) = mpsc::channel::<()>();
    let gate = Mutex::new(gate);
    let origin = Origin::start_raw(move |conn, _| {
        if !read(conn) {
            return;
        }
        let gate = gate.lock().unwrap();
        while gate.try_recv().is_ok() {}
        for n in 0..PIECES {
            conn.write(say(n));
            if gate.recv_timeout(PATIENCE * 2).is_err() {
                return;
            }
        }
    });
    Turns { origin, go }
}

fn http(conn: &mut Conn) -> bool {
    conn.read_until(b"\r\n\r\n").is_some()
}

fn chunk(n: usize) -> Vec<u8> {
    let head = match n {
        0 => {
            "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nCache-Control: max-age=9\r\n\
              Transfer-Encoding: chunked\r\n\r\n"
        }
        _ => "",
    };
    let end = if n + 1 == PIECES { "0\r\n\r\n" } else { "" };
    format!("{head}{PIECE_BYTES:x}\r\n{}\r\n{end}", piece(n)).into_bytes()
}

/// As [`chunk`], without framing.
fn plain(head: &'static str) -> impl Fn(usize) -> Vec<u8> {
    move |n| format!("{}{}", if n == 0 { head } else { "" }, piece(n)).into_bytes()
}

/// A server with these locations before that origin.
fn before(turns: &Turns, http: &str, locations: &str) -> Server {
    let conf = format!(
        "events {{}} http {{ {http}
            server {{ listen 127.0.0.1:%%PORT_0%%; http2 on; {locations} }} }}"
    );
    Setup::new(&conf).set("ORIGIN", turns.origin.address()).file("end", "").start()
}

/// What the client reads with.
enum Eyes {
    Plain(Client),
    Gzip(Client, Box<flate2::write::GzDecoder<Vec<u8>>>),
    H2(H2),
}

impl Eyes {
    fn plain(server: &Server, path: &str) -> Eyes {
        let mut client = server.connect();
        client.send_get(path);
        Eyes::Plain(client)
    }

    fn gzip(server: &Server, path: &str) -> Eyes {
        let mut client = server.connect();
        let text = format!("GET {path} HTTP/1.1\r\nHost: a\r\nAccept-Encoding: gzip\r\n\r\n");
        client.send(text.as_bytes());
        let head = String::from_utf8(client.read_until(b"\r\n\r\n")).unwrap();
        assert!(head.contains("Content-Encoding: gzip"), "{head}");
        Eyes::Gzip(client, Box::new(flate2::write::GzDecoder::new(Vec::new())))
    }

    fn h2(server: &Server, path: &str) -> Eyes {
        let mut client = H2::connect(server);
        client.get(path);
        Eyes::H2(client)
    }

    /// Reads until that has come.
    #[track_caller]
    fn see(&mut self, wanted: &str) {
        match self {
            Eyes::Plain(client) => drop(client.read_until(wanted.as_bytes())),
            Eyes::Gzip(client, text) => loop {
                text.flush().unwrap();
                if String::from_utf8_lossy(text.get_ref()).contains(wanted) {
                    return;
                }
                let size = String::from_utf8(client.read_until(b"\r\n")).unwrap();
                let size = usize::from_str_radix(size.trim(), 16).unwrap();
                let bytes = client.read_exactly(size + 2).expect("a chunk");
                text.write_all(&bytes[..size]).unwrap();
            },
            Eyes::H2(client) => loop {
                let data = client.expect(frame::DATA);
                if String::from_utf8_lossy(&data.payload).contains(wanted) {
                    return;
                }
            },
        }
    }
}

#[track_caller]
fn sees_each(turns: &Turns, mut eyes: Eyes, what: &str) {
    for n in 0..PIECES {
        eprintln!("{what}: piece {n}");
        eyes.see(&piece(n));
        turns.go.send(()).unwrap();
    }
}

#[test]
fn chunks_through_filters_and_into_the_cache() {
    let turns = turns(http, chunk);
    let server = before(
        &turns,
        "proxy_cache_path %%DIR%%/cache keys_zone=z:1m; proxy_http_version 1.1;
            charset_map koi8-r utf-8 { C0 D18E; }",
        "location / { proxy_pass http://%%ORIGIN%%; }
        location /sub { sub_filter piecemeal x; sub_filter_once off; proxy_pass http://%%ORIGIN%%; }
        location /ssi { ssi on; proxy_pass http://%%ORIGIN%%; }
        location /charset { charset koi8-r; source_charset utf-8; proxy_pass http://%%ORIGIN%%; }
        location /cache { proxy_cache z; proxy_pass http://%%ORIGIN%%; }
        location /trailers { add_trailer X-A b; proxy_pass http://%%ORIGIN%%; }
        location /direct { proxy_buffering off; proxy_pass http://%%ORIGIN%%; }",
    );
    for path in ["/", "/sub", "/ssi", "/charset", "/trailers", "/cache/1", "/direct"] {
        sees_each(&turns, Eyes::plain(&server, path), path);
        let h2 = path.replace('1', "2");
        sees_each(&turns, Eyes::h2(&server, &h2), &format!("{h2} over HTTP/2"));
    }
    assert!(server.error_log().is_empty(), "{}", server.error_log());
}

#[test]
fn bodies_that_a_length_or_the_end_of_the_connection_ends() {
    let length = "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nContent-Length: 32\r\n\r\n";
    for head in [length, "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\n\r\n"] {
        let turns = turns(http, plain(head));
        let server = before(&turns, "", "location / { proxy_pass http://%%ORIGIN%%; }");
        sees_each(&turns, Eyes::plain(&server, "/"), head);
        sees_each(&turns, Eyes::h2(&server, "/"), head);
    }
}

#[test]
fn pieces_that_are_compressed() {
    let turns = turns(http, chunk);
    let server = before(
        &turns,
        "gzip on; gzip_min_length 0; gzip_proxied any; proxy_cache_path %%DIR%%/cache keys_zone=z:1m;",
        "location / { proxy_pass http://%%ORIGIN%%; }
        location /sub { sub_filter ! !!; sub_filter_once off; proxy_pass http://%%ORIGIN%%; }
        location /cache { proxy_cache z; proxy_pass http://%%ORIGIN%%; }
        location /limited { limit_rate 1m; proxy_pass http://%%ORIGIN%%; }
        location /direct { proxy_buffering off; proxy_pass http://%%ORIGIN%%; }",
    );
    for path in ["/direct", "/", "/sub", "/cache/", "/limited"] {
        sees_each(&turns, Eyes::gzip(&server, path), path);
    }
}

#[test]
fn pieces_between_parts_and_held_to_a_rate() {
    let turns = turns(http, chunk);
    let server = before(
        &turns,
        "proxy_http_version 1.1;",
        "location /limited { limit_rate 1m; proxy_pass http://%%ORIGIN%%; }
        location /addition { add_after_body /end; proxy_pass http://%%ORIGIN%%; }
        location = /end { root %%DIR%%; }
        location = /page.html { root %%DIR%%; ssi on; }
        location /part { proxy_pass http://%%ORIGIN%%; }",
    );
    server.write("page.html", "begin <!--#include virtual=\"/part\" --> end");
    for path in ["/limited", "/addition", "/page.html"] {
        sees_each(&turns, Eyes::plain(&server, path), path);
        sees_each(&turns, Eyes::h2(&server, path), path);
    }
}

#[test]
fn the_head_is_passed_on_before_the_first_piece() {
    let turns = turns(http, |n| match n {
        0 => b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nX-Piece: piece 0!\r\n\r\n".to_vec(),
        n => chunk(n),
    });
    let server = before(&turns, "", "location / { proxy_pass http://%%ORIGIN%%; }");
    sees_each(&turns, Eyes::plain(&server, "/"), "/");
}

#[test]
fn pieces_by_every_protocol() {
    const HEAD: &str = "Status: 200 OK\r\nContent-Type: text/html\r\n\r\n";
    let fastcgi = turns(
        |conn| cgi::read_fastcgi(conn).is_some(),
        |n| {
            let text = plain(HEAD)(n);
            let mut said = stdout(std::str::from_utf8(&text).unwrap());
            if n + 1 == PIECES {
                said.extend(cgi::ended());
            }
            said
        },
    );
    let scgi = turns(|conn| cgi::read_scgi(conn).is_some(), plain(HEAD));
    let uwsgi = turns(|conn| cgi::read_uwsgi(conn).is_some(), plain(HEAD));
    let memcached = turns(
        |conn| conn.read_until(b"\r\n").is_some(),
        |n| {
            let mut said = plain("VALUE /k 0 32\r\n")(n);
            if n + 1 == PIECES {
                said.extend(b"\r\nEND\r\n");
            }
            said
        },
    );
    for (turns, pass) in [
        (fastcgi, "fastcgi_pass %%ORIGIN%%;"),
        (scgi, "scgi_pass %%ORIGIN%%;"),
        (uwsgi, "uwsgi_pass %%ORIGIN%%;"),
        (memcached, "set $memcached_key /k; memcached_pass %%ORIGIN%%;"),
        (of_http2(), "proxy_http_version 2; proxy_pass http://%%ORIGIN%%;"),
        (of_http2(), "grpc_pass grpc://%%ORIGIN%%;"),
    ] {
        let server = before(&turns, "", &format!("location / {{ {pass} }}"));
        sees_each(&turns, Eyes::plain(&server, "/"), pass);
        sees_each(&turns, Eyes::h2(&server, "/"), pass);
    }
}

/// An origin that speaks HTTP/2.
fn of_http2() -> Turns {
    let data = |kind, flags, payload: &[u8]| {
        [&frame::head(payload.len(), kind, flags, 1)[..], payload].concat()
    };
    turns(
        |conn| conn.read_until(h2::PREFACE).is_some(),
        move |n| {
            let mut said = Vec::new();
            if n == 0 {
                frame::settings(&[], &mut said);
                let head = h2::block(&[(":status", "200"), ("content-type", "text/html")]);
                said.extend(data(frame::HEADERS, frame::END_HEADERS, &head));
            }
            let end = if n + 1 == PIECES { frame::END_STREAM } else { 0 };
            said.extend(data(frame::DATA, end, piece(n).as_bytes()));
            said
        },
    )
}
