//! What clients' tests have in common: events, and the ground that a client stands on.

use crate::receiver::{Batch, Client, Entry, EventId, Ground, Kept, Kind, Outcome, Severity, Stop};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{channel, Receiver};
use std::sync::Arc;
use std::thread;

/// For clients that keep nothing.
pub struct Nothing;

impl Kept for Nothing {
    fn bytes(&self) -> &[u8] {
        &[]
    }

    fn keep(&mut self, _: &[u8]) -> std::io::Result<()> {
        panic!("this client keeps nothing")
    }
}

pub fn ground() -> Ground {
    Ground { name: "r".into(), stop: Arc::new(Stop::default()), say: Arc::new(|_, _| ()) }
}

/// Access events, numbered from `from`.
pub fn entries(texts: &[Vec<u8>], from: u32) -> Vec<Entry<'_>> {
    let numbered = (from..).zip(texts.iter().map(Vec::as_slice));
    let event = |(n, json)| Entry {
        id: EventId { random: 1, segment: 2, at: n },
        time_ms: 1000 + u64::from(n),
        kind: Kind::Access,
        severity: Severity::Info,
        json,
    };
    numbered.map(event).collect()
}

pub fn send(client: &mut dyn Client, texts: &[Vec<u8>]) -> Outcome {
    let entries = entries(texts, 0);
    client.send(&mut Batch { entries, kept: &mut Nothing, is_repeated: false })
}

/// A request as an HTTP receiver sees it: its head in small letters, and its body, unpacked.
#[derive(Debug)]
pub struct Request {
    pub head: String,
    pub body: Vec<u8>,
}

/// An HTTP receiver that answers with these texts in turn, one for each request; after an empty one it closes without
/// a word, after one without a length at its end.
pub fn http(answers: Vec<Vec<u8>>) -> (u16, Receiver<Request>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let (tell, told) = channel();
    thread::spawn(move || {
        let mut answers = answers.into_iter().peekable();
        while answers.peek().is_some() {
            let (socket, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(socket);
            while let Some(request) = request(&mut reader) {
                tell.send(request).unwrap();
                let Some(answer) = answers.next() else { return };
                reader.get_mut().write_all(&answer).unwrap();
                if !answer.windows(15).any(|w| w == b"Content-Length:") {
                    break;
                }
            }
        }
    });
    (port, told)
}

fn request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if reader.read_line(&mut head).ok()? == 0 {
            return None;
        }
    }
    let head = head.to_ascii_lowercase();
    let (_, rest) = head.split_once("content-length: ")?;
    let mut body = vec![0; rest.split("\r\n").next()?.parse().ok()?];
    reader.read_exact(&mut body).ok()?;
    if head.contains("content-encoding: gzip") {
        let packed = std::mem::take(&mut body);
        flate2::read::GzDecoder::new(&packed[..]).read_to_end(&mut body).unwrap();
    }
    Some(Request { head, body })
}

/// An answer with a body.
pub fn answer(status: &str, fields: &str, body: impl AsRef<[u8]>) -> Vec<u8> {
    let body = body.as_ref();
    let head = format!("HTTP/1.1 {status}\r\n{fields}Content-Length: {}\r\n\r\n", body.len());
    [head.as_bytes(), body].concat()
}
