//! What a client may do with TLS's records: cut them as it likes, send messages that never end, have new
//! keys, say its end before the answer; and what a connection that waits keeps of it.

use rustls::crypto::cipher::{MessageEncrypter, OutboundChunks, OutboundPlainMessage};
use rustls::pki_types::ServerName;
use rustls::version::{TLS12, TLS13};
use rustls::{
    ClientConnection, ConnectionTrafficSecrets, ContentType, ProtocolVersion,
    SupportedProtocolVersion,
};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::Arc;
use weir_tests::tls::{self, Tls, TlsStream};
use weir_tests::{Server, Setup, PATIENCE};

const VERSIONS: [&SupportedProtocolVersion; 2] = [&TLS12, &TLS13];

fn start(more: &str) -> Server {
    let pair = tls::self_signed("localhost");
    Setup::new(
        "worker_processes 1; events {} http { ssl_certificate %%DIR%%/a.crt; %%MORE%%
            ssl_certificate_key %%DIR%%/a.key; keepalive_timeout 600s; keepalive_requests 100000;
            server { listen 127.0.0.1:%%PORT_0%% ssl; root %%DIR%%/html;
                location / { return 200 here; }
                location /id { return 200 $ssl_session_id; }
                location /file { } } }",
    )
    .set("MORE", more)
    .file("a.crt", pair.cert)
    .file("a.key", pair.key)
    .start()
}

fn hello(version: &'static SupportedProtocolVersion) -> ClientConnection {
    let mut config = Tls::speaking(&[version], None).config();
    Arc::make_mut(&mut config).enable_secret_extraction = true;
    ClientConnection::new(config, ServerName::try_from("localhost").unwrap()).unwrap()
}

fn tcp(server: &Server) -> TcpStream {
    let tcp = TcpStream::connect(("127.0.0.1", server.port(0))).unwrap();
    tcp.set_nodelay(true).unwrap();
    tcp.set_read_timeout(Some(PATIENCE)).unwrap();
    tcp.set_write_timeout(Some(PATIENCE)).unwrap();
    tcp
}

fn connect(server: &Server, version: &'static SupportedProtocolVersion) -> TlsStream {
    let mut conn = TlsStream::new(hello(version), tcp(server));
    conn.conn.complete_io(&mut conn.sock).unwrap();
    conn
}

const REQUEST: &[u8] = b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
const ID_REQUEST: &[u8] = b"GET /id HTTP/1.1\r\nHost: localhost\r\n\r\n";

fn response(conn: &mut TlsStream) -> String {
    let (mut text, mut byte) = (Vec::new(), [0]);
    while !text.ends_with(b"\r\n\r\n") {
        conn.read_exact(&mut byte).unwrap();
        text.push(byte[0]);
    }
    let head = String::from_utf8(text).unwrap();
    let length = head.lines().find_map(|l| l.strip_prefix("Content-Length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    conn.read_exact(&mut body).unwrap();
    String::from_utf8(body).unwrap()
}

fn ask(conn: &mut TlsStream, request: &[u8]) -> String {
    conn.write_all(request).unwrap();
    response(conn)
}

/// Whether the server lets go of a client that sends these bytes again and again, 16 MB of them.
fn is_let_go(conn: &mut TcpStream, bytes: &[u8]) -> bool {
    let mut sent = 0;
    while sent < 16 << 20 {
        match conn.write(bytes) {
            Ok(n) => sent += n,
            Err(e) => return e.kind() != std::io::ErrorKind::WouldBlock,
        }
    }
    false
}

#[test]
fn a_message_of_the_handshake_that_does_not_end_ends_the_connection() {
    let server = start("");
    let mut conn = tcp(&server);
    hello(&TLS12).write_tls(&mut conn).unwrap();
    // A key exchange of 65,535 bytes, a byte in a record.
    let record = |byte| [22, 3, 3, 0, 1, byte];
    let head = [record(16), record(0), record(255), record(255)].concat();
    conn.write_all(&head).unwrap();
    let records = record(0).repeat(1000);
    assert!(is_let_go(&mut conn, &records));
    assert_eq!(ask(&mut connect(&server, &TLS13), REQUEST), "here");
}

#[test]
fn a_message_behind_the_handshake_that_does_not_end_ends_the_connection() {
    for version in VERSIONS {
        let server = start("");
        let conn = connect(&server, version);
        let suite = conn.conn.negotiated_cipher_suite().unwrap();
        let (conn, mut tcp) = conn.into_parts();
        let (mut number, secrets) = conn.dangerous_extract_secrets().unwrap().tx;
        let mut seal: Box<dyn MessageEncrypter> = match (secrets, suite.tls13()) {
            (ConnectionTrafficSecrets::Aes256Gcm { key, iv }, Some(suite)) => {
                suite.aead_alg.encrypter(key, iv)
            }
            (ConnectionTrafficSecrets::Aes256Gcm { key, iv }, None) => {
                let rustls::SupportedCipherSuite::Tls12(suite) = suite else { panic!("{suite:?}") };
                suite.aead_alg.encrypter(key, &iv.as_ref()[..4], &iv.as_ref()[4..])
            }
            _ => panic!("{suite:?}"),
        };
        let mut record = |bytes: &[u8]| {
            let message = OutboundPlainMessage {
                typ: ContentType::Handshake,
                version: ProtocolVersion::TLSv1_2,
                payload: OutboundChunks::Single(bytes),
            };
            number += 1;
            seal.encrypt(message, number - 1).unwrap().encode()
        };
        // A change of keys of 65,535 bytes; a hello in TLS 1.2.
        let kind = if version.version == ProtocolVersion::TLSv1_3 { 24 } else { 1 };
        let mut all = [kind, 0, 255, 255].map(|byte| record(&[byte])).concat();
        (0..8000).for_each(|_| all.extend(record(&[0])));
        assert!(is_let_go(&mut tcp, &all), "{version:?}");
        assert_eq!(ask(&mut connect(&server, version), REQUEST), "here");
    }
}

#[test]
fn bytes_may_come_one_by_one() {
    let server = start("");
    for version in VERSIONS {
        let mut conn = TlsStream::new(hello(version), tcp(&server));
        while conn.conn.is_handshaking() {
            let mut wire = Vec::new();
            while conn.conn.wants_write() {
                conn.conn.write_tls(&mut wire).unwrap();
            }
            wire.iter().for_each(|byte| conn.sock.write_all(&[*byte]).unwrap());
            if conn.conn.is_handshaking() {
                conn.conn.read_tls(&mut conn.sock).unwrap();
                conn.conn.process_new_packets().unwrap();
            }
        }
        for _ in 0..3 {
            conn.conn.writer().write_all(REQUEST).unwrap();
            let mut wire = Vec::new();
            while conn.conn.wants_write() {
                conn.conn.write_tls(&mut wire).unwrap();
            }
            wire.iter().for_each(|byte| conn.sock.write_all(&[*byte]).unwrap());
            assert_eq!(response(&mut conn), "here");
        }
    }
}

#[test]
fn keys_may_be_new_ones() {
    let server = start("");
    let mut conn = connect(&server, &TLS13);
    for _ in 0..5 {
        conn.conn.refresh_traffic_keys().unwrap();
        assert_eq!(ask(&mut conn, REQUEST), "here");
    }
}

#[test]
fn who_has_said_its_end_gets_the_answer() {
    let server = start("");
    std::fs::create_dir_all(server.dir().join("html")).unwrap();
    server.write("html/file", vec![b'x'; 300_000]);
    for version in VERSIONS {
        let mut conn = connect(&server, version);
        let request = b"GET /file HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
        conn.conn.writer().write_all(request).unwrap();
        conn.conn.send_close_notify();
        let mut all = Vec::new();
        // nginx says no end of its own.
        let _ = conn.read_to_end(&mut all);
        assert!(all.ends_with(&[b'x'; 300_000]), "{version:?}: {}", all.len());
    }
}

#[test]
fn a_session_has_a_number_of_its_own() {
    let server = start("ssl_session_cache shared:s:1m; ssl_session_tickets off;");
    for version in VERSIONS {
        let (mut one, mut other) = (connect(&server, version), connect(&server, version));
        let (first, second) = (ask(&mut one, ID_REQUEST), ask(&mut other, ID_REQUEST));
        assert!(first.len() == 64 && first.bytes().all(|b| b.is_ascii_hexdigit()), "{first}");
        assert!(first != second && ask(&mut one, ID_REQUEST) == first, "{version:?}");
    }
}

/// Of the process that serves, its own: how much of the program it shares others decide.
fn anonymous_bytes(server: &Server) -> usize {
    let serving = server.children().first().copied().unwrap_or(server.pid());
    let text = std::fs::read_to_string(format!("/proc/{serving}/smaps_rollup")).unwrap();
    let line = text.lines().find_map(|l| l.strip_prefix("Anonymous:")).unwrap();
    line.split_whitespace().next().unwrap().parse::<usize>().unwrap() * 1024
}

/// nginx takes about 15,000 bytes.
#[test]
fn a_connection_that_waits_keeps_little() {
    const CONNECTIONS: usize = 300;
    const MAX_BYTES: usize = 7000;
    for version in VERSIONS {
        let server = start("");
        let many = |count| {
            let mut all: Vec<_> = (0..count).map(|_| connect(&server, version)).collect();
            all.iter_mut().for_each(|conn| assert_eq!(ask(conn, REQUEST), "here"));
            all
        };
        let first = many(50);
        let before = anonymous_bytes(&server);
        let all = many(CONNECTIONS);
        let each = anonymous_bytes(&server).saturating_sub(before) / CONNECTIONS;
        assert!(each <= MAX_BYTES, "{version:?}: {each} bytes");
        drop((first, all));
    }
}
