//! Connections that wait: what each costs, and that nothing is lost by what they let go of meanwhile.

use rustls::pki_types::ServerName;
use rustls::ClientConnection;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;
use weir_tests::h2::H2;
use weir_tests::tls::{self_signed, Tls};
use weir_tests::{wait_for, Client, Origin, Server, Setup, PATIENCE};

/// Few enough for a process that may have 1,024 descriptors, of which other tests need some.
const CONNECTIONS: u64 = 400;
/// Of sessions, where the test has the other end too.
const SESSIONS: u64 = 250;
/// Made and closed beforehand, for what a worker has once.
const FIRST: usize = 20;
/// How long a client is quiet where that is tested.
const QUIET: Duration = Duration::from_millis(60);

fn server() -> Server {
    let pair = self_signed("localhost");
    Setup::new(
        "worker_processes 1; events {} http { keepalive_timeout 600s; http2 on;
            large_client_header_buffers 4 32k;
            ssl_certificate %%DIR%%/cert; ssl_certificate_key %%DIR%%/key;
            server { listen 127.0.0.1:%%PORT_0%%; return 200 $uri; }
            server { listen 127.0.0.1:%%PORT_1%% ssl; return 200 $uri; } }",
    )
    .file("cert", &pair.cert)
    .file("key", &pair.key)
    .start()
}

fn plain(server: &Server) -> Client {
    let mut client = server.connect();
    assert_eq!(client.get("/a").text(), "/a");
    client
}

fn encrypted(server: &Server) -> Client {
    let tls = Tls::showing(None).offering(&["http/1.1"]);
    let mut client = tls.connect(server.port(1), "localhost").unwrap().into_client();
    assert_eq!(client.get("/a").text(), "/a");
    client
}

fn streams(server: &Server) -> H2 {
    let mut client = H2::connect(server);
    assert_eq!(client.fetch("/a").text(), "/a");
    client
}

fn costs<T>(open: impl Fn(&Server) -> T, bytes_max: u64) {
    let server = server();
    costs_of(&server, CONNECTIONS, || open(&server), bytes_max);
}

fn costs_of<T>(server: &Server, count: u64, open: impl Fn() -> T, bytes_max: u64) {
    drop((0..FIRST).map(|_| open()).collect::<Vec<_>>());
    let Some(before) = server.memory() else { return weir_tests::skip("the system does not tell") };
    let _waiting: Vec<T> = (0..count).map(|_| open()).collect();
    let mut each = 0;
    let fits = wait_for(
        || {
            each = server.memory().unwrap_or(u64::MAX).saturating_sub(before) / count;
            each <= bytes_max
        },
        PATIENCE,
    );
    assert!(fits, "{each} bytes for a connection that waits");
}

#[test]
fn one_that_is_kept_is_small() {
    costs(plain, 2500);
}

#[test]
fn one_with_tls_is_small() {
    if weir_tests::binary().ends_with("nginx") {
        return weir_tests::skip("OpenSSL keeps more");
    }
    costs(encrypted, 10_500);
}

#[test]
fn one_with_http2_is_small() {
    costs(streams, 5500);
}

#[test]
fn a_session_of_stream_is_small() {
    if weir_tests::binary().ends_with("nginx") {
        return weir_tests::skip("it keeps two buffers");
    }
    let origin = Origin::start_raw(|conn, _| {
        if let Some(text) = conn.read_until(b"ping") {
            conn.write(text);
            conn.wait_closed();
        }
    });
    let conf = "worker_processes 1; events {} stream { server { listen 127.0.0.1:%%PORT_0%%;
        proxy_pass %%O%%; } }";
    let server = Setup::new(conf).set("O", origin.address()).start();
    let open = || {
        let mut client = server.connect();
        client.send(b"ping");
        assert_eq!(client.read_until(b"ping"), b"ping");
        client
    };
    costs_of(&server, SESSIONS, open, 3000);
}

#[test]
fn a_session_of_mail_is_small() {
    if weir_tests::binary().ends_with("nginx") {
        return weir_tests::skip("it keeps two buffers");
    }
    let backend = Origin::start_raw(|conn, _| {
        conn.write("+OK\r\n");
        while conn.read_until(b"\r\n").is_some() {
            conn.write("+OK\r\n");
        }
    });
    let port = backend.port();
    let auth = Origin::replying(format!(
        "HTTP/1.0 200 OK\r\nAuth-Status: OK\r\nAuth-Server: 127.0.0.1\r\nAuth-Port: {port}\r\n\r\n"
    ));
    let conf = "worker_processes 1; events {} mail { auth_http %%A%%; timeout 1h;
        server { listen 127.0.0.1:%%PORT_0%%; protocol pop3; } }";
    let server = Setup::new(conf).set("A", auth.address()).start();
    let open = || {
        let mut client = server.connect();
        for said in ["", "USER me\r\n", "PASS secret\r\n", "NOOP\r\n"] {
            client.send(said.as_bytes());
            assert!(client.read_until(b"\r\n").starts_with(b"+OK"));
        }
        client
    };
    costs_of(&server, SESSIONS, open, 3000);
}

/// One that has said something, and whose server is not known yet. nginx keeps a buffer for it, 4,502 bytes
/// in all.
#[test]
fn a_client_of_mail_without_a_server_is_small() {
    let conf = "worker_processes 1; events {} mail { auth_http 127.0.0.1:1; timeout 1h;
        server { listen 127.0.0.1:%%PORT_0%%; protocol imap; } }";
    let server = Server::start(conf);
    let open = || {
        let mut client = server.connect();
        client.send(b"a NOOP\r\n");
        client.read_until(b"a OK completed\r\n");
        client
    };
    costs_of(&server, CONNECTIONS, open, 4500);
}

#[test]
fn a_tunnel_is_small() {
    if weir_tests::binary().ends_with("nginx") {
        return weir_tests::skip("it keeps buffers");
    }
    let origin = Origin::start_raw(|conn, _| {
        if conn.read_until(b"\r\n\r\n").is_some() {
            conn.write("HTTP/1.1 101 S\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\nhello");
            conn.wait_closed();
        }
    });
    let conf = "worker_processes 1; events {} http { server { listen 127.0.0.1:%%PORT_0%%;
        location / { proxy_pass http://%%O%%; proxy_http_version 1.1;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; } } }";
    let server = Setup::new(conf).set("O", origin.address()).start();
    let open = || {
        let mut client = server.connect();
        client.send(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n");
        client.read_until(b"hello");
        client
    };
    costs_of(&server, SESSIONS, open, 3500);
}

#[test]
fn what_many_have_needed_goes_back_to_the_system_when_they_are_gone() {
    const LEFT_MAX_BYTES: u64 = 1 << 20;
    let server = server();
    drop((0..FIRST).map(|_| encrypted(&server)).collect::<Vec<_>>());
    let Some(before) = server.memory() else { return weir_tests::skip("the system does not tell") };
    drop((0..CONNECTIONS).map(|_| encrypted(&server)).collect::<Vec<_>>());
    let mut left = 0;
    let is_back = wait_for(
        || {
            left = server.memory().unwrap_or(u64::MAX).saturating_sub(before);
            left <= LEFT_MAX_BYTES
        },
        PATIENCE,
    );
    assert!(is_back, "{left} bytes are left");
}

#[test]
fn a_head_that_comes_slowly_is_read_whole() {
    let server = server();
    let mut client = plain(&server);
    for (uri, fill) in [("/b", 10), ("/c", 30_000), ("/d", 0)] {
        let head = format!("GET {uri} HTTP/1.1\r\nHost: a\r\nX: {}\r\n\r\n", "x".repeat(fill));
        let (first, rest) = head.as_bytes().split_at(7);
        client.send(first);
        std::thread::sleep(QUIET);
        client.send(&rest[..rest.len() - 3]);
        std::thread::sleep(QUIET);
        client.send(&rest[rest.len() - 3..]);
        assert_eq!(client.response().text(), uri);
    }
}

#[test]
fn what_is_sent_together_is_answered_in_turn_and_quiet_ends_nothing() {
    let server = server();
    let mut client = plain(&server);
    for turn in 0..3 {
        let one = |n| format!("GET /{turn}/{n} HTTP/1.1\r\nHost: a\r\n\r\n");
        let all: String = (0..20).map(one).collect();
        let (now, later) = all.split_at(all.len() - 25);
        client.send(now.as_bytes());
        std::thread::sleep(QUIET);
        client.send(later.as_bytes());
        (0..20).for_each(|n| assert_eq!(client.response().text(), format!("/{turn}/{n}")));
        std::thread::sleep(QUIET);
    }
}

/// A client that decides which bytes of its records leave when.
struct InPieces(ClientConnection, TcpStream);

impl InPieces {
    fn connect(server: &Server) -> InPieces {
        let name = ServerName::try_from("localhost").unwrap();
        let mut tls = ClientConnection::new(Tls::default().config(), name).unwrap();
        let mut socket = TcpStream::connect(("127.0.0.1", server.port(1))).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        while tls.is_handshaking() {
            tls.complete_io(&mut socket).unwrap();
        }
        InPieces(tls, socket)
    }

    fn get(&mut self, uri: &str, pause_at: usize) -> String {
        let InPieces(tls, socket) = self;
        let text = format!("GET {uri} HTTP/1.1\r\nHost: localhost\r\n\r\n");
        tls.writer().write_all(text.as_bytes()).unwrap();
        let mut record = Vec::new();
        while tls.wants_write() {
            tls.write_tls(&mut record).unwrap();
        }
        let (first, rest) = record.split_at(pause_at);
        socket.write_all(first).unwrap();
        std::thread::sleep(QUIET);
        socket.write_all(rest).unwrap();
        let mut answer = String::new();
        while !answer.ends_with(uri) {
            assert!(tls.read_tls(socket).unwrap() > 0, "{answer}");
            tls.process_new_packets().unwrap();
            let mut part = Vec::new();
            // It ends with `WouldBlock` while the connection is open.
            let _ = tls.reader().read_to_end(&mut part);
            answer += &String::from_utf8(part).unwrap();
        }
        answer
    }
}

#[test]
fn a_record_that_comes_in_two_is_put_together() {
    let server = server();
    let mut client = InPieces::connect(&server);
    for pause_at in [1, 4, 5, 6, 30] {
        let answer = client.get(&format!("/{pause_at}"), pause_at);
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    }
}

#[test]
fn a_tunnel_that_was_quiet_carries_much_both_ways() {
    const BYTES: usize = 3 << 20;
    const TURNS: usize = 3;
    let origin = Origin::start_raw(|conn, _| {
        if conn.read_until(b"\r\n\r\n").is_none() {
            return;
        }
        conn.write(
            "HTTP/1.1 101 Switching Protocols\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n",
        );
        // As much each way at the same time, or the one would wait for the other.
        while let Some(part) = conn.read_exactly(BYTES / 8) {
            conn.write(part);
        }
    });
    let conf = "events {} http { server { listen 127.0.0.1:%%PORT_0%%;
        location / { proxy_pass http://%%O%%; proxy_http_version 1.1; proxy_buffer_size 4k;
            proxy_set_header Upgrade $http_upgrade; proxy_set_header Connection upgrade; } } }";
    let server = Setup::new(conf).set("O", origin.address()).start();
    let mut stream = TcpStream::connect(("127.0.0.1", server.port(0))).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
        .write_all(b"GET / HTTP/1.1\r\nHost: a\r\nUpgrade: echo\r\nConnection: Upgrade\r\n\r\n")
        .unwrap();
    let mut byte = [0];
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        stream.read_exact(&mut byte).unwrap();
        head.extend(byte);
    }
    for turn in 0..TURNS {
        std::thread::sleep(QUIET);
        let sent: Vec<u8> = (0..BYTES).map(|i| (i * 7 + turn + i / 251) as u8).collect();
        let mut got = vec![0; BYTES];
        std::thread::scope(|s| {
            s.spawn(|| (&stream).write_all(&sent).unwrap());
            (&stream).read_exact(&mut got).unwrap();
        });
        assert!(sent == got, "turn {turn}");
    }
}
