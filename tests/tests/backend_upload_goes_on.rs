//! An upload that is not buffered goes on while its answer comes.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::mpsc;
use weir_tests::family::{Family, FAMILIES};
use weir_tests::{cgi, h2, Client, Conn, Origin, Server, Setup, PATIENCE};

const PIECE: usize = 20_000;

/// The answer in two parts, its head with the first.
fn parts(family: Family) -> [Vec<u8>; 2] {
    let line = if family == Family::Proxy { "HTTP/1.1 200 OK" } else { "Status: 200" };
    let head = format!("{line}\r\nContent-Length: {}\r\n\r\n", PIECE + 4);
    let first = head + &"x".repeat(PIECE);
    match family {
        Family::Fastcgi => [cgi::stdout(&first), [cgi::stdout("end;"), cgi::ended()].concat()],
        _ => [first.into_bytes(), b"end;".to_vec()],
    }
}

/// Answers in part once it has seen the upload's first half, and to the end once it has seen the second.
fn by_halves([first, second]: [Vec<u8>; 2]) -> Origin {
    Origin::start_raw(move |conn: &mut Conn, _| {
        while conn.read_until(b"first;").is_some() {
            conn.write(&first);
            if conn.read_until(b"second;").is_none() {
                return;
            }
            conn.write(&second);
        }
    })
}

const LENGTH: (&str, &str, &str) = ("Content-Length: 13", "first;", "second;");
const CHUNKS: (&str, &str, &str) =
    ("Transfer-Encoding: chunked", "6\r\nfirst;\r\n", "7\r\nsecond;\r\n0\r\n\r\n");

fn goes_on(client: &mut Client, path: &str, (field, first, second): (&str, &str, &str)) {
    client.send(format!("POST {path} HTTP/1.1\r\nHost: a\r\n{field}\r\n\r\n{first}").as_bytes());
    client.read_until(b"\r\n\r\n");
    client.send(second.as_bytes());
    let rest = client.read_until(b"end;");
    assert!(rest.iter().filter(|b| **b == b'x').count() == PIECE, "{path}: {}", rest.len());
}

#[test]
fn an_upload_goes_on_while_its_answer_comes() {
    for family in FAMILIES {
        let origin = by_halves(parts(family));
        let server = family
            .setup(
                "events {} http { server { listen 127.0.0.1:%%PORT_0%%; %%PARAMS%%
                    %%F%%_request_buffering off;
                    location / { %%F%%_pass %%TO%%; }
                    location /unbuffered { %%F%%_buffering off; %%F%%_pass %%TO%%; } } }",
                &origin,
            )
            .start();
        for path in ["/", "/unbuffered"] {
            goes_on(&mut server.connect(), path, LENGTH);
        }
    }
}

/// With `sub_filter` nginx was seen to stop here.
#[test]
fn it_does_where_filters_or_a_rate_stand_before_the_client() {
    let origin = by_halves(parts(Family::Proxy));
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%; proxy_request_buffering off;
            location /limited { limit_rate 10m; proxy_pass http://%%ORIGIN%%; }
            location /filtered { sub_filter nothing something; sub_filter_types *;
                proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for path in ["/limited", "/filtered"] {
        goes_on(&mut server.connect(), path, LENGTH);
    }
}

fn kept(coding: (&str, &str, &str)) {
    let origin = by_halves(parts(Family::Proxy));
    let server = Setup::new(
        "events {} http { upstream u { server %%ORIGIN%%; keepalive 2; }
            server { listen 127.0.0.1:%%PORT_0%%;
                proxy_request_buffering off; proxy_http_version 1.1;
                proxy_set_header Connection ''; location / { proxy_pass http://u; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    let mut client = server.connect();
    for _ in 0..3 {
        goes_on(&mut client, "/", coding);
    }
    assert_eq!(origin.connections(), 1);
}

#[test]
fn a_connection_that_took_the_whole_upload_is_kept() {
    kept(LENGTH);
}

#[test]
fn a_connection_that_took_the_whole_chunked_upload_is_kept() {
    kept(CHUNKS);
}

fn unbuffered(origin: &str) -> Server {
    Setup::new(
        "events {} http { client_max_body_size 0; server { listen 127.0.0.1:%%PORT_0%%;
            proxy_http_version 1.1; proxy_request_buffering off; proxy_buffering off;
            location / { proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin)
    .start()
}

#[test]
fn an_answer_may_end_before_the_upload_does() {
    let (tell, told) = mpsc::channel();
    let origin = Origin::start_raw(move |conn: &mut Conn, _| {
        if conn.read_until(b"first;").is_some() {
            conn.reply("413 Too Much", "", "much!");
            tell.send(conn.wait_closed()).unwrap();
        }
    });
    let server = unbuffered(&origin.address());
    let mut client = server.connect();
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 13\r\n\r\nfirst;");
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (413, "much!"));
    assert!(told.recv_timeout(PATIENCE).unwrap(), "what had half a request was kept");
}

/// nginx cuts the answer where it cannot go on with the upload.
#[test]
fn an_answer_goes_on_though_the_server_takes_nothing_more() {
    let origin = Origin::start_raw(move |conn: &mut Conn, _| {
        if conn.read_until(b"first;").is_some() {
            conn.write("HTTP/1.1 413 Too Much\r\nContent-Length: 9\r\n\r\nmuch");
            // The client sends what fits nowhere, and only then there is more of the answer.
            conn.read_until(b"second;");
            conn.write("more!");
        }
    });
    let server = unbuffered(&origin.address());
    let mut client = server.connect();
    let body = [b"first;second;".as_slice(), &vec![b'x'; 4_000_000]].concat();
    let head = format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {}\r\n\r\n", body.len());
    client.send(&[head.as_bytes(), &body].concat());
    let response = client.response();
    assert_eq!((response.status, response.text().as_str()), (413, "muchmore!"));
}

#[test]
fn an_upload_does_not_wait_for_a_client_that_reads_its_answer_later() {
    const BYTES: usize = 16 << 20;
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = unbuffered(&listener.local_addr().unwrap().to_string());
    let mut client = server.connect();
    let (tell, told) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut out = stream.try_clone().unwrap();
        std::thread::spawn(move || {
            let _ = out.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 16777216\r\n\r\n");
            let _ = out.write_all(&vec![b'a'; BYTES]);
        });
        let (mut got, mut buf) = (0, vec![0; 64 << 10]);
        while got < BYTES {
            match stream.read(&mut buf) {
                Ok(n) if n > 0 => got += n,
                _ => return,
            }
        }
        tell.send(()).unwrap();
        let _ = stream.read(&mut buf);
    });
    client.send(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 16777216\r\n\r\n");
    client.read_until(b"\r\n\r\n");
    client.send(&vec![b'x'; BYTES]);
    told.recv_timeout(2 * PATIENCE).expect("the whole upload");
    assert!(client.read_exactly(BYTES).is_some_and(|body| body.iter().all(|b| *b == b'a')));
}

#[test]
fn an_upload_goes_on_over_http2_while_its_answer_comes() {
    let frame = |kind: u8, flags: u8, stream: u8, payload: &[u8]| {
        let n = u16::try_from(payload.len()).unwrap().to_be_bytes();
        [&[0, n[0], n[1], kind, flags, 0, 0, 0, stream], payload].concat()
    };
    let head = h2::block(&[(":status", "200"), ("content-length", "20004")]);
    let first = [
        frame(4, 0, 0, b""),
        frame(1, 4, 1, &head),
        frame(0, 0, 1, &vec![b'x'; PIECE / 2]),
        frame(0, 0, 1, &vec![b'x'; PIECE / 2]),
    ];
    let origin = by_halves([first.concat(), frame(0, 1, 1, b"end;")]);
    let server = Setup::new(
        "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
            proxy_http_version 2; proxy_request_buffering off;
            location / { proxy_pass http://%%ORIGIN%%; }
            location /unbuffered { proxy_buffering off; proxy_pass http://%%ORIGIN%%; } } }",
    )
    .set("ORIGIN", origin.address())
    .start();
    for path in ["/", "/unbuffered"] {
        goes_on(&mut server.connect(), path, LENGTH);
    }
}
