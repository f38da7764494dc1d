//! `send_timeout`: how long a client may read nothing before its connection is given up.

use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use weir_tests::h2::{request, H2};
use weir_tests::tls::{self, Tls};
use weir_tests::{wait_for, Next, Origin, Server, Setup, PATIENCE};

/// More than the buffers of a socket hold.
const BODY_BYTES: usize = 10_000_000;
const WINDOW_MAX_BYTES: u32 = 0x7fff_ffff;

const CONF: &str = "error_log %%DIR%%/error.log info; events {}
    http { send_timeout 2s; log_format t '$request_time $uri $upstream_response_time';
    access_log %%DIR%%/access.log t; ssl_certificate %%DIR%%/a.crt;
    ssl_certificate_key %%DIR%%/a.key;
    server { listen 127.0.0.1:%%PORT_0%%; listen 127.0.0.1:%%PORT_1%% ssl; http2 on; root %%DIR%%;
    location /sendfile/ { alias %%DIR%%/; sendfile on; }
    location /memory/ { alias %%DIR%%/; sendfile off; }
    location /unbuffered/ { proxy_buffering off; proxy_pass http://%%ORIGIN%%/; }
    location /proxied/ { proxy_pass http://%%ORIGIN%%/; } } }";

fn server() -> (Server, Origin) {
    let origin = Origin::start(|_, conn| {
        conn.reply("200 OK", "", &"x".repeat(BODY_BYTES));
        Next::Close
    });
    let pair = tls::self_signed("localhost");
    let setup = Setup::new(CONF).file("big", vec![b'x'; BODY_BYTES]).file("a.crt", pair.cert);
    (setup.file("a.key", pair.key).set("ORIGIN", origin.address()).start(), origin)
}

/// Every request took as long as the time limit says, and not twice as long; where the answer is
/// read ahead from another server, that is done before.
#[track_caller]
fn expect_times(server: &Server, count: usize) {
    for line in server.log_lines("access.log", count) {
        let words: Vec<&str> = line.split(' ').collect();
        let all: f64 = words[0].parse().expect("a time");
        let ahead = words.get(1).is_some_and(|uri| uri.starts_with("/proxied/"));
        let seconds = all - if ahead { words[2].parse().expect("a time") } else { 0.0 };
        assert!((1.9..3.9).contains(&seconds), "{line}");
    }
}

/// Whether the server's end of a connection is open.
fn is_open(server_port: u16, client_port: u16) -> bool {
    let table = std::fs::read_to_string("/proc/net/tcp").unwrap();
    let ends = format!(":{server_port:04X} 0100007F:{client_port:04X} 01 ");
    table.lines().any(|line| line.contains(&ends))
}

#[test]
fn a_client_that_reads_nothing_has_that_long() {
    let (server, _origin) = server();
    let clients: Vec<_> = ["sendfile", "memory", "proxied", "unbuffered"]
        .iter()
        .map(|place| {
            let mut client = server.connect();
            client.send_get(&format!("/{place}/big"));
            client
        })
        .collect();
    expect_times(&server, clients.len());
}

#[test]
fn over_tls_as_well() {
    let (server, _origin) = server();
    let clients: Vec<_> = ["sendfile", "memory", "proxied"]
        .iter()
        .map(|place| {
            let mut client = Tls::default().connect(server.port(1), "localhost").unwrap();
            let head = format!("GET /{place}/big HTTP/1.1\r\nHost: localhost\r\n\r\n");
            client.send(head.as_bytes());
            client
        })
        .collect();
    expect_times(&server, clients.len());
}

#[test]
fn http2_connections_that_are_not_read_are_closed() {
    let (server, _origin) = server();
    let mut h2 = H2::over(server.connect());
    h2.greet(&[(4, WINDOW_MAX_BYTES)]);
    h2.widen(0, WINDOW_MAX_BYTES - 65_535);
    h2.open(&request("GET", "/sendfile/big"), true);
    expect_times(&server, 1);
    let (to, from) = (server.port(0), h2.raw.local_port());
    assert!(wait_for(|| !is_open(to, from), PATIENCE), "still open");
}

/// The client reads what comes, and nothing more may come.
#[test]
fn a_stream_whose_window_stays_closed_is_reset() {
    let (server, _origin) = server();
    let mut h2 = H2::connect(&server);
    h2.opens_windows = false;
    let stream = h2.get("/sendfile/big");
    let answer = h2.answer(stream);
    assert_eq!((answer.status, answer.body.len()), (200, 65_535));
    assert!(answer.reset.is_some(), "{:?}", answer.reset);
    expect_times(&server, 1);
}

#[test]
fn a_tunnel_is_closed_too() {
    let origin = Origin::start_raw(|conn, _| {
        conn.read_until(b"\r\n\r\n");
        conn.write("HTTP/1.1 101 Go\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
        conn.write(vec![b'x'; BODY_BYTES]);
        conn.wait_closed();
    });
    let server = Setup::new(
        "error_log %%DIR%%/error.log info; events {} http { log_format t '$request_time';
            access_log %%DIR%%/access.log t; server { listen 127.0.0.1:%%PORT_0%%; send_timeout 2s;
            location / { proxy_pass http://%%O%%; proxy_http_version 1.1;
                proxy_set_header Upgrade x; proxy_set_header Connection upgrade; } } }",
    )
    .set("O", origin.address())
    .start();
    let mut client = server.connect();
    client.send(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n");
    expect_times(&server, 1);
}

/// The same towards a server that takes no request.
#[test]
fn servers_that_read_nothing_have_proxy_send_timeout() {
    let stop = std::sync::Arc::new(std::sync::Barrier::new(2));
    let held = std::sync::Arc::clone(&stop);
    let origin = Origin::start_raw(move |conn, _| {
        conn.read_until(b"\r\n\r\n");
        held.wait();
    });
    let server = Setup::new(
        "error_log %%DIR%%/error.log info; events {} http { log_format t '$upstream_response_time $status';
            access_log %%DIR%%/access.log t; client_max_body_size 0; server {
            listen 127.0.0.1:%%PORT_0%%; location / { proxy_pass http://%%O%%;
                proxy_send_timeout 2s; } } }",
    )
    .set("O", origin.address())
    .start();
    let mut client = server.connect();
    client.send(
        format!("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: {BODY_BYTES}\r\n\r\n").as_bytes(),
    );
    client.send(&vec![b'x'; BODY_BYTES]);
    expect_times(&server, 1);
    assert!(server.log_lines("access.log", 1)[0].ends_with(" 504"));
    stop.wait();
}

/// What the kernel still holds is not sent either.
#[test]
fn a_reset_may_end_the_connection() {
    let server = Setup::new(
        "error_log %%DIR%%/error.log info; events {} http { log_format t '$request_time';
            access_log %%DIR%%/access.log t; reset_timedout_connection on; server {
            listen 127.0.0.1:%%PORT_0%%; send_timeout 2s; client_header_timeout 100ms; root %%DIR%%;
            location /gone { return 444; } } }",
    )
    .file("big", vec![b'x'; BODY_BYTES])
    .start();
    let was_reset = |text: &[u8], wait: &dyn Fn()| {
        let mut raw = TcpStream::connect(("127.0.0.1", server.port(0))).unwrap();
        raw.set_read_timeout(Some(PATIENCE)).unwrap();
        raw.write_all(text).unwrap();
        wait();
        let error = raw.read_to_end(&mut Vec::new()).err();
        error.is_some_and(|e| e.kind() == ErrorKind::ConnectionReset)
    };
    assert!(was_reset(b"GET /big HTTP/1.1\r\nHost: a\r\n\r\n", &|| expect_times(&server, 1)));
    assert!(was_reset(b"GET /gone HTTP/1.1\r\nHost: a\r\n\r\n", &|| ()), "444");
    assert!(was_reset(b"GET /gone HT", &|| ()), "half a head");
    assert!(!was_reset(b"GET /none HTTP/1.0\r\n\r\n", &|| ()), "404");
}
