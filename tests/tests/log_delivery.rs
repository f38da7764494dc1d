//! What the access log says of answers that were cut: what was taken of them, and not what was meant.

use weir_tests::h2::{request, H2};
use weir_tests::tls::{self, Tls};
use weir_tests::{Client, Next, Origin, Server, Setup};
use weir_wire::http2::frame;

/// More than the buffers of a socket hold.
const BODY_BYTES: usize = 10_000_000;
const WINDOW_MAX_BYTES: u32 = 0x7fff_ffff;

const CONF: &str = "error_log %%DIR%%/error.log info; events {} http { send_timeout 1s;
    log_format d '$uri $status $bytes_sent $body_bytes_sent [$request_completion]';
    proxy_cache_path %%DIR%%/cache keys_zone=k:1m; proxy_http_version 1.1;
    access_log %%DIR%%/access.log d; ssl_certificate %%DIR%%/a.crt;
    ssl_certificate_key %%DIR%%/a.key;
    server { listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%% ssl; http2 on; root %%DIR%%;
    location /sendfile/ { alias %%DIR%%/; sendfile on; }
    location /memory/ { alias %%DIR%%/; sendfile off; }
    location /slow/ { alias %%DIR%%/; limit_rate 64k; }
    location /cached/ { proxy_cache k; proxy_cache_valid 1h; proxy_pass http://%%ORIGIN%%/; }
    location /proxied/ { proxy_pass http://%%ORIGIN%%/; }
    location /unbuffered/ { proxy_buffering off; proxy_pass http://%%ORIGIN%%/; }
    location /text { return 200 text; }
    location /nothing { return 204; }
    location /gone { return 444; }
    location /missing { return 404; } } }";

fn server() -> (Server, Origin) {
    let origin = Origin::start(|request, conn| {
        match request.target() {
            "/never" => drop(conn.wait_closed()),
            "/begun" => {
                conn.write("HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n");
                conn.write("x".repeat(5000));
                conn.wait_closed();
            }
            "/cut" => conn.write("HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nfive5"),
            _ => conn.reply("200 OK", "", &"x".repeat(BODY_BYTES)),
        }
        Next::Close
    });
    let pair = tls::self_signed("localhost");
    let setup = Setup::new(CONF).file("big", vec![b'x'; BODY_BYTES]).file("a.crt", pair.cert);
    (setup.file("a.key", pair.key).set("ORIGIN", origin.address()).start(), origin)
}

/// A line of the log, and its numbers of bytes.
#[derive(Debug, PartialEq)]
struct Line {
    uri: String,
    status: u16,
    sent: usize,
    body: usize,
    completion: String,
}

#[track_caller]
fn lines(server: &Server, count: usize) -> Vec<Line> {
    let lines = server.log_lines("access.log", count);
    assert_eq!(lines.len(), count, "{lines:?}");
    let of = |line: &String| {
        let words: Vec<&str> = line.split(' ').collect();
        Line {
            uri: words[0].to_string(),
            status: words[1].parse().unwrap(),
            sent: words[2].parse().unwrap(),
            body: words[3].parse().unwrap(),
            completion: words[4].to_string(),
        }
    };
    lines.iter().map(of).collect()
}

fn stalled(server: &Server, path: &str) -> Client {
    let mut client = server.connect();
    client.send_get(path);
    client
}

#[test]
fn what_a_client_did_not_take_is_not_counted() {
    let (server, _origin) = server();
    for (n, place) in ["sendfile", "memory", "proxied", "unbuffered", "cached"].iter().enumerate() {
        let mut client = stalled(&server, &format!("/{place}/big"));
        let line = lines(&server, n + 1).pop().unwrap();
        // What the socket has taken arrives all the same.
        let got = client.read_to_end();
        let head = got.windows(4).position(|w| w == b"\r\n\r\n").unwrap() + 4;
        assert!(got.len() < BODY_BYTES, "{place}: the buffers hold it all");
        assert_eq!((line.sent, line.body), (got.len(), got.len() - head), "{line:?}");
        assert_eq!((line.status, line.completion.as_str()), (200, "[]"), "{line:?}");
    }
}

#[test]
fn nor_over_tls() {
    let (server, _origin) = server();
    let mut client = Tls::default().connect(server.port(1), "localhost").unwrap();
    client.send(b"GET /sendfile/big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    let line = lines(&server, 1).pop().unwrap();
    assert!(line.body > 0 && line.body < BODY_BYTES, "{line:?}");
    assert_eq!((line.status, line.completion.as_str()), (200, "[]"), "{line:?}");
}

#[test]
fn nor_over_http2() {
    let (server, _origin) = server();
    for (n, place) in ["sendfile", "memory", "proxied"].iter().enumerate() {
        let mut h2 = H2::over(server.connect());
        h2.greet(&[(4, WINDOW_MAX_BYTES)]);
        h2.widen(0, WINDOW_MAX_BYTES - 65_535);
        h2.opens_windows = false;
        h2.open(&request("GET", &format!("/{place}/big")), true);
        let line = lines(&server, n + 1).pop().unwrap();
        let mut got = 0;
        while let Some(frame) = h2.frame() {
            got += if frame.kind == frame::DATA { frame.payload.len() } else { 0 };
        }
        assert!(got < BODY_BYTES, "{place}: the buffers hold it all");
        // A frame may be cut in the middle, and one of 8 KB stands for many small ones.
        assert!(line.body.abs_diff(got) <= 16 * 1024, "{line:?}, and {got} came");
        assert_eq!((line.status, line.completion.as_str()), (200, "[]"), "{line:?}");
    }
}

#[test]
fn http2_streams_count_their_frames() {
    let (server, _origin) = server();
    let mut h2 = H2::connect(&server);
    let whole = h2.fetch("/sendfile/big");
    let line = lines(&server, 1).pop().unwrap();
    assert_eq!((line.body, line.completion.as_str()), (BODY_BYTES, "[OK]"), "{line:?}");
    let least = whole.body.len() + whole.frames * frame::HEAD_BYTES;
    assert!((least + 30..least + 400).contains(&line.sent), "{line:?}, {} frames", whole.frames);
    h2.opens_windows = false;
    let stream = h2.get("/sendfile/big");
    let mut got = 0;
    while got < 65_535 {
        got += h2.expect(frame::DATA).payload.len();
    }
    h2.reset(stream);
    let line = lines(&server, 2).pop().unwrap();
    assert_eq!((line.status, line.body, line.completion.as_str()), (200, 65_535, "[]"));
}

#[test]
fn pipelined_answers_are_counted_apart() {
    let (server, _origin) = server();
    let mut client = server.connect();
    let paths = ["/text", "/nothing", "/sendfile/big", "/text"];
    let text: Vec<String> =
        paths.iter().map(|p| format!("GET {p} HTTP/1.1\r\nHost: a\r\n\r\n")).collect();
    client.send(text.concat().as_bytes());
    let lines = lines(&server, 3);
    let got = client.read_to_end();
    assert_eq!(lines.iter().map(|l| l.sent).sum::<usize>(), got.len());
    let bodies: Vec<_> = lines.iter().map(|l| (l.body, l.completion.as_str())).collect();
    assert_eq!(bodies[..2], [(4, "[OK]"), (0, "[OK]")]);
    assert!(bodies[2].0 < BODY_BYTES && bodies[2].1 == "[]", "{bodies:?}");
}

/// The status is the one that was sent; 499 only when none was.
#[test]
fn clients_that_leave() {
    let (server, origin) = server();
    drop(stalled(&server, "/sendfile/big"));
    let line = lines(&server, 1).pop().unwrap();
    assert_eq!((line.status, line.completion.as_str()), (200, "[]"), "{line:?}");
    assert!(line.body < BODY_BYTES, "{line:?}");

    let client = stalled(&server, "/proxied/never");
    origin.expect_requests(1);
    drop(client);
    let line = lines(&server, 2).pop().unwrap();
    assert_eq!((line.status, line.sent, line.completion.as_str()), (499, 0, "[]"));

    let mut client = stalled(&server, "/unbuffered/begun");
    client.read_until(b"\r\n\r\nxxxxx");
    drop(client);
    let line = lines(&server, 3).pop().unwrap();
    assert_eq!((line.status, line.body, line.completion.as_str()), (200, 5000, "[]"), "{line:?}");

    let mut client = stalled(&server, "/slow/big");
    client.read_until(b"\r\n\r\nxxxxx");
    drop(client);
    let line = lines(&server, 4).pop().unwrap();
    assert_eq!((line.status, line.completion.as_str()), (200, "[]"), "{line:?}");
    assert!(line.body < 1_000_000, "{line:?}");
}

#[test]
fn answers_that_end_otherwise() {
    let (server, _origin) = server();
    for (n, (path, status, body, completion)) in [
        ("/text", 200, 4, "[OK]"),
        ("/nothing", 204, 0, "[OK]"),
        ("/gone", 444, 0, "[]"),
        ("/unbuffered/cut", 200, 5, "[OK]"),
        ("/proxied/cut", 200, 5, "[OK]"),
    ]
    .into_iter()
    .enumerate()
    {
        let head = format!("GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        server.raw(head.as_bytes());
        let line = lines(&server, n + 1).pop().unwrap();
        assert_eq!((line.status, line.body, line.completion.as_str()), (status, body, completion));
    }
    server.raw(
        b"POST /proxied/cut HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
          Expect: 100-continue\r\nContent-Length: 0\r\n\r\n",
    );
    let line = lines(&server, 6).pop().unwrap();
    assert_eq!(line.body, 5 + "HTTP/1.1 100 Continue\r\n\r\n".len(), "{line:?}");
    server.head("/sendfile/big");
    let line = lines(&server, 7).pop().unwrap();
    assert_eq!((line.status, line.body, line.completion.as_str()), (200, 0, "[OK]"));
}
