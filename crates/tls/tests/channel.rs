//! Two channels over a socket pair: what one writes the other reads, however little fits at once.

#![allow(clippy::unwrap_used)]

use rustls::client::UnbufferedClientConnection;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, RootCertStore, ServerConfig};
use std::future::poll_fn;
use std::io::{IoSlice, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::Arc;
use weir_runtime::net::Stream;
use weir_tls::{begin, rustls, Channel, Incoming, Session};

fn configs() -> (Arc<ServerConfig>, Arc<ClientConfig>) {
    let made = rcgen::generate_simple_self_signed(vec!["localhost".into()]).unwrap();
    let cert: CertificateDer<'static> = made.cert.der().clone();
    let key = PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
    let mut server = ServerConfig::builder()
        .with_no_client_auth()
        .with_single_cert(vec![cert.clone()], key)
        .unwrap();
    server.alpn_protocols = vec![b"http/1.1".to_vec()];
    let mut roots = RootCertStore::empty();
    roots.add(cert).unwrap();
    let mut client = ClientConfig::builder().with_root_certificates(roots).with_no_client_auth();
    client.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    (Arc::new(server), Arc::new(client))
}

fn pair() -> (Stream, Stream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let a = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (b, _) = listener.accept().unwrap();
    a.set_nonblocking(true).unwrap();
    b.set_nonblocking(true).unwrap();
    (a.into(), b.into())
}

async fn channels() -> (Channel, Channel) {
    let (server, client) = configs();
    let (near, far) = pair();
    let (near, far) = (Channel::from(near), Channel::from(far));
    let name = ServerName::try_from("localhost").unwrap();
    near.start(Session::client(UnbufferedClientConnection::new(client, name).unwrap(), 16384));
    let accept = async {
        let mut incoming = Incoming::default();
        let hello = poll_fn(|cx| incoming.poll_hello(far.socket(), cx)).await.unwrap();
        assert_eq!(hello.client_hello().server_name(), Some("localhost"));
        far.start(begin(incoming, server, 16384).unwrap());
        poll_fn(|cx| far.poll_handshake(cx)).await.unwrap();
    };
    let connect = async {
        poll_fn(|cx| near.poll_handshake(cx)).await.unwrap();
        // Its last flight goes out before it waits.
        assert!(near.try_read(&mut Vec::new(), 1).is_err());
    };
    tokio::join!(accept, connect);
    (near, far)
}

fn run(test: impl std::future::Future<Output = ()>) {
    weir_runtime::event_loop::run(&(), 1, test).unwrap();
}

async fn write_all(to: &Channel, bytes: &[u8]) {
    let mut at = 0;
    while at < bytes.len() {
        let (first, rest) = bytes[at..].split_at((bytes.len() - at).min(70_001));
        let pieces = [IoSlice::new(first), IoSlice::new(rest)];
        at += poll_fn(|cx| to.poll_write(cx, &pieces, false)).await.unwrap();
    }
}

async fn read_all(from: &Channel) -> Vec<u8> {
    let mut got = Vec::new();
    while poll_fn(|cx| from.poll_read(cx, &mut got, 5000)).await.unwrap() > 0 {}
    got
}

#[test]
fn bytes_pass_whole_and_the_end_is_seen() {
    run(async {
        let (near, far) = channels().await;
        assert_eq!(far.protocol().as_deref(), Some(&b"http/1.1"[..]));
        let sent: Vec<u8> = (0..3_000_000u32).map(|n| (n.wrapping_mul(n) >> 7) as u8).collect();
        let write = async {
            write_all(&near, &sent).await;
            near.shutdown_write();
        };
        let ((), got) = tokio::join!(write, read_all(&far));
        assert!(got == sent);
        assert_eq!(far.peek().unwrap(), 0);
    });
}

#[test]
fn a_file_is_sent() {
    run(async {
        let (near, far) = channels().await;
        let path = std::env::temp_dir().join(format!("weir-tls-{}", std::process::id()));
        let text: Vec<u8> = (0..300_000u32).map(|n| (n % 251) as u8).collect();
        std::fs::File::create(&path).unwrap().write_all(&text).unwrap();
        let file = std::fs::File::open(&path).unwrap();
        std::fs::remove_file(&path).unwrap();
        let write = async {
            let mut at = 10usize;
            while at < text.len() {
                let left = text.len() - at;
                let sent = poll_fn(|cx| far.poll_send_file(cx, &file, at as u64, left)).await;
                at += sent.unwrap();
            }
            drop(far);
        };
        let ((), got) = tokio::join!(write, read_all(&near));
        assert!(got == text[10..]);
    });
}

#[test]
fn a_quiet_connection_stays_quiet_behind_its_session_tickets() {
    run(async {
        let (near, far) = channels().await;
        // The server's tickets go out before it waits.
        let mut buf = Vec::new();
        assert!(far.try_read(&mut buf, 100).is_err());
        poll_fn(|cx| near.socket().poll_readable(cx)).await.unwrap();
        assert!(near.socket().peek_now().unwrap() > 0);
        assert!(near.peek_now().is_err() && near.peek().is_err());
        write_all(&far, b"x").await;
        poll_fn(|cx| near.poll_readable(cx)).await.unwrap();
        poll_fn(|cx| near.poll_read(cx, &mut buf, 10)).await.unwrap();
        assert_eq!(buf, b"x");
    });
}
