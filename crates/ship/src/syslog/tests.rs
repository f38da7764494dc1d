//! The sender against receivers that close early, reset, or never close.

use super::conf::Settings;
use super::Syslog;
use crate::common::Address;
use crate::fake::{self, send};
use crate::receiver::{Client, Outcome, Target};
use std::io::{Read, Write};
use std::net::{TcpListener, UdpSocket};
use std::sync::Arc;
use std::thread;
use std::time::Duration;
use weir_shipping::syslog::{Framing, Head};

fn client(scheme: &str, port: u16, timeout: Duration) -> Box<dyn Client> {
    let head = Head {
        facility: 16,
        host: "h".into(),
        app: "weir".into(),
        process: "1".into(),
        structure: "event@32473".into(),
    };
    let addresses = vec![Address { scheme: scheme.into(), host: "127.0.0.1".into(), port }];
    let (framing, message_max) = (Framing::Counted, 8096);
    let settings = Settings { addresses, tls: None, head, framing, message_max, timeout };
    Syslog(Arc::new(settings)).client(fake::ground())
}

fn texts(count: usize) -> Vec<Vec<u8>> {
    (0..count).map(|n| format!("{{\"n\":{n}}}").into_bytes()).collect()
}

fn messages(bytes: &[u8]) -> Vec<String> {
    let mut rest = std::str::from_utf8(bytes).unwrap();
    let mut found = Vec::new();
    while let Some((len, behind)) = rest.split_once(' ') {
        let (message, behind) = behind.split_at(len.parse().unwrap());
        found.push(message.to_owned());
        rest = behind;
    }
    found
}

const LONG: Duration = Duration::from_secs(20);

#[test]
fn a_batch_is_there_when_its_connection_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let receiver = thread::spawn(move || {
        // The first goes away in the middle, the second takes all.
        let (mut socket, _) = listener.accept().unwrap();
        socket.read_exact(&mut [0; 10]).unwrap();
        drop(socket);
        let (mut socket, _) = listener.accept().unwrap();
        let mut all = Vec::new();
        socket.read_to_end(&mut all).unwrap();
        all
    });
    let mut client = client("tcp", port, LONG);
    let outcome = send(&mut *client, &texts(300));
    assert!(matches!(outcome, Outcome::Later { .. }), "{outcome:?}");
    assert!(matches!(send(&mut *client, &texts(300)), Outcome::All));
    let found = messages(&receiver.join().unwrap());
    assert_eq!(found.len(), 300);
    assert!(found[7].starts_with(&format!(
        "<134>1 1970-01-01T00:00:01.007Z h weir {} access [event@32473 id=\"",
        std::process::id()
    )));
    assert!(found[7].ends_with("\"] {\"n\":7}"), "{}", found[7]);
}

#[test]
fn who_never_closes_is_believed_and_who_talks_is_not() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = std::sync::mpsc::channel();
    thread::spawn(move || {
        let mut kept = Vec::new();
        for mut socket in listener.incoming().flatten() {
            let mut all = Vec::new();
            socket.read_to_end(&mut all).unwrap();
            tell.send(messages(&all).len()).unwrap();
            kept.push(socket);
        }
    });
    let mut quiet = client("tcp", port, Duration::from_millis(300));
    assert!(matches!(send(&mut *quiet, &texts(3)), Outcome::All));
    assert!(matches!(send(&mut *quiet, &texts(4)), Outcome::All));
    assert_eq!((told.recv().unwrap(), told.recv().unwrap()), (3, 4));

    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        let (mut socket, _) = listener.accept().unwrap();
        while socket.write_all(&[b'x'; 4096]).is_ok() {}
    });
    let outcome = send(&mut *client("tcp", port, LONG), &texts(3));
    assert!(matches!(outcome, Outcome::Later { .. }), "{outcome:?}");
}

#[test]
fn datagrams() {
    let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
    receiver.set_read_timeout(Some(LONG)).unwrap();
    let port = receiver.local_addr().unwrap().port();
    let mut client = client("udp", port, LONG);
    let mut all = texts(100);
    all[50] = vec![b'x'; 70_000];
    let Outcome::Some { done, refused, .. } = send(&mut *client, &all) else { panic!() };
    assert_eq!(done.iter().filter(|d| **d).count(), 99);
    assert_eq!(refused.len(), 1);
    assert!(refused[0].0 == 50 && refused[0].1.contains("more than 8096 bytes"), "{refused:?}");
    for n in (0..100).filter(|n| *n != 50) {
        let mut buf = [0; 2048];
        let len = receiver.recv(&mut buf).unwrap();
        assert!(buf[..len].ends_with(format!("] {{\"n\":{n}}}").as_bytes()));
    }
    drop(receiver);
    // The first one's fate is heard of with the next.
    let outcomes: Vec<_> = (0..3).map(|_| send(&mut *client, &texts(2))).collect();
    assert!(outcomes.iter().any(|o| !matches!(o, Outcome::All)), "{outcomes:?}");
}
