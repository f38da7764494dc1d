//! A name server that says what a test wants it to, over UDP and TCP on one port.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, TcpListener, UdpSocket};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::expect_soon;

/// What is known of a name, each with its TTL in seconds, or how the server behaves for it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Record {
    A(u32, [u8; 4]),
    Aaaa(u32, Ipv6Addr),
    Cname(u32, &'static str),
    /// TTL, priority, weight, port, host.
    Srv(u32, u16, u16, u16, &'static str),
    Ptr(u32, &'static str),
    /// The answer has this code.
    Code(u8),
    /// There is no answer.
    Silence,
    /// Over UDP the answer is cut off.
    Truncated,
    /// The answer's id is another's.
    WrongId,
    /// The answer is one to another name.
    WrongName,
}

impl Record {
    fn kind(&self) -> u16 {
        match self {
            Record::A(..) => 1,
            Record::Cname(..) => 5,
            Record::Ptr(..) => 12,
            Record::Aaaa(..) => 28,
            Record::Srv(..) => 33,
            _ => 0,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (ttl, data) = match self {
            Record::A(ttl, a) => (ttl, a.to_vec()),
            Record::Aaaa(ttl, a) => (ttl, a.octets().to_vec()),
            Record::Cname(ttl, name) | Record::Ptr(ttl, name) => (ttl, encode(name)),
            Record::Srv(ttl, priority, weight, port, name) => {
                let mut data = Vec::new();
                [priority, weight, port].iter().for_each(|n| data.extend(n.to_be_bytes()));
                data.extend(encode(name));
                (ttl, data)
            }
            _ => return,
        };
        // The name is the question's.
        out.extend([0xc0, 12]);
        out.extend(self.kind().to_be_bytes());
        out.extend([0, 1]);
        out.extend(ttl.to_be_bytes());
        out.extend((data.len() as u16).to_be_bytes());
        out.extend(data);
    }
}

fn encode(name: &str) -> Vec<u8> {
    let mut out = Vec::new();
    for label in name.split('.') {
        out.push(label.len() as u8);
        out.extend(label.as_bytes());
    }
    out.push(0);
    out
}

/// One query that came: `name A`, `name SRV tcp`.
fn shown(name: &str, kind: u16, tcp: bool) -> String {
    let kind = match kind {
        1 => "A",
        12 => "PTR",
        28 => "AAAA",
        33 => "SRV",
        _ => "?",
    };
    format!("{name} {kind}{}", if tcp { " tcp" } else { "" })
}

#[derive(Default)]
struct State {
    zone: Mutex<HashMap<String, Vec<Record>>>,
    queries: Mutex<Vec<String>>,
    stopping: AtomicBool,
}

impl State {
    fn answer(&self, query: &[u8], tcp: bool) -> Option<Vec<u8>> {
        let (mut name, mut at) = (String::new(), 12);
        while *query.get(at)? != 0 {
            let len = usize::from(query[at]);
            if !name.is_empty() {
                name.push('.');
            }
            name.push_str(&String::from_utf8_lossy(query.get(at + 1..at + 1 + len)?));
            at += 1 + len;
        }
        let kind = u16::from_be_bytes([*query.get(at + 1)?, *query.get(at + 2)?]);
        self.queries.lock().unwrap().push(shown(&name, kind, tcp));
        let zone = self.zone.lock().unwrap();
        let records = zone.get(&name).cloned().unwrap_or(vec![Record::Code(3)]);
        if records.contains(&Record::Silence) {
            return None;
        }
        let fits = |r: &&Record| r.kind() == kind || r.kind() == 5;
        let cut = !tcp && records.contains(&Record::Truncated);
        let answers: Vec<&Record> = records.iter().filter(fits).filter(|_| !cut).collect();
        let code = records.iter().find_map(|r| match r {
            Record::Code(code) => Some(*code),
            _ => None,
        });
        let mut out = query[..2].to_vec();
        if records.contains(&Record::WrongId) {
            out[0] ^= 1;
        }
        out.extend([if cut { 0x83 } else { 0x81 }, 0x80 | code.unwrap_or(0), 0, 1, 0]);
        out.push(answers.len() as u8);
        out.extend([0; 4]);
        out.extend(&query[12..at + 5]);
        if records.contains(&Record::WrongName) {
            out[13] ^= 1;
        }
        answers.iter().for_each(|r| r.write(&mut out));
        Some(out)
    }
}

/// A name server that runs until dropped. A name it has not been told of does not exist.
pub struct Dns {
    port: u16,
    state: Arc<State>,
}

impl Dns {
    pub fn start() -> Dns {
        let (listener, socket) = loop {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            if let Ok(socket) = UdpSocket::bind(listener.local_addr().unwrap()) {
                break (listener, socket);
            }
        };
        let port = listener.local_addr().unwrap().port();
        let state: Arc<State> = Arc::default();
        socket.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
        let shared = Arc::clone(&state);
        std::thread::spawn(move || serve_udp(&shared, &socket));
        let shared = Arc::clone(&state);
        std::thread::spawn(move || serve_tcp(&shared, &listener));
        Dns { port, state }
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// From now on this is what is known of a name.
    pub fn set(&self, name: &str, records: &[Record]) {
        self.state.zone.lock().unwrap().insert(name.to_owned(), records.to_vec());
    }

    /// An address of a name, for so many seconds.
    pub fn set_ip(&self, name: &str, ttl: u32, ip: Ipv4Addr) {
        self.set(name, &[Record::A(ttl, ip.octets())]);
    }

    pub fn queries(&self) -> Vec<String> {
        self.state.queries.lock().unwrap().clone()
    }

    /// How often this was asked.
    pub fn count(&self, query: &str) -> usize {
        self.queries().iter().filter(|q| *q == query).count()
    }

    #[track_caller]
    pub fn expect(&self, query: &str, times: usize) {
        expect_soon(query, || self.count(query) >= times);
    }
}

impl Drop for Dns {
    fn drop(&mut self) {
        self.state.stopping.store(true, Ordering::SeqCst);
        let _ = std::net::TcpStream::connect(("127.0.0.1", self.port));
    }
}

fn serve_udp(state: &State, socket: &UdpSocket) {
    let mut buf = [0; 1024];
    while !state.stopping.load(Ordering::SeqCst) {
        let Ok((n, from)) = socket.recv_from(&mut buf) else { continue };
        if let Some(answer) = state.answer(&buf[..n], false) {
            let _ = socket.send_to(&answer, from);
        }
    }
}

fn serve_tcp(state: &State, listener: &TcpListener) {
    for stream in listener.incoming() {
        if state.stopping.load(Ordering::SeqCst) {
            return;
        }
        let Ok(mut stream) = stream else { continue };
        let mut length = [0; 2];
        if stream.read_exact(&mut length).is_err() {
            continue;
        }
        let mut query = vec![0; usize::from(u16::from_be_bytes(length))];
        if stream.read_exact(&mut query).is_err() {
            continue;
        }
        if let Some(answer) = state.answer(&query, true) {
            let length = (answer.len() as u16).to_be_bytes();
            let _ = stream.write_all(&[&length[..], &answer].concat());
        }
    }
}
