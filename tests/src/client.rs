//! Talking to a server in bytes: one-shot requests and kept connections.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::time::Duration;

use crate::message::{self, Response};
use crate::tls::{Tls, TlsStream};
use crate::PATIENCE;

/// An address to talk to.
#[derive(Clone, Debug)]
pub enum Peer {
    Tcp(u16),
    Tcp6(u16),
    Unix(PathBuf),
}

impl Peer {
    pub fn connect(&self) -> Client {
        let stream = match self {
            Peer::Tcp(port) => TcpStream::connect(("127.0.0.1", *port)).map(Stream::Tcp),
            Peer::Tcp6(port) => TcpStream::connect(("::1", *port)).map(Stream::Tcp),
            Peer::Unix(path) => UnixStream::connect(path).map(Stream::Unix),
        };
        let stream = stream.unwrap_or_else(|error| panic!("connecting to {self:?}: {error}"));
        if let Stream::Tcp(tcp) = &stream {
            tcp.set_nodelay(true).unwrap();
        }
        let client = Client { stream, seen: Vec::new() };
        // Longer than a server lingers by default, after which it closes.
        client.set_patience(2 * PATIENCE);
        client
    }

    /// GET over HTTP/1.1 for `localhost`, on a connection of its own.
    #[track_caller]
    pub fn get(&self, path: &str) -> Response {
        self.request("GET", path, "")
    }

    /// GET with more header lines, each ending in CRLF.
    #[track_caller]
    pub fn get_with(&self, path: &str, headers: &str) -> Response {
        self.request("GET", path, headers)
    }

    #[track_caller]
    pub fn head(&self, path: &str) -> Response {
        self.request("HEAD", path, "")
    }

    #[track_caller]
    pub fn post(&self, path: &str, body: &str) -> Response {
        let lines = format!("Content-Length: {}\r\n", body.len());
        let head = head("POST", path, "localhost", &lines);
        self.exchange("POST", (head + body).as_bytes())
    }

    #[track_caller]
    pub fn request(&self, method: &str, path: &str, headers: &str) -> Response {
        self.exchange(method, head(method, path, "localhost", headers).as_bytes())
    }

    /// GET for another host than `localhost`.
    #[track_caller]
    pub fn get_host(&self, host: &str, path: &str) -> Response {
        self.exchange("GET", head("GET", path, host, "").as_bytes())
    }

    /// Sends raw bytes and reads the answer up to the end of the connection.
    #[track_caller]
    pub fn exchange(&self, method: &str, bytes: &[u8]) -> Response {
        let answer = self.raw(bytes);
        Response::parse_all(&answer, method).unwrap_or_else(|| {
            panic!("not a response to {:?}: {:?}", message::latin1(bytes), message::latin1(&answer))
        })
    }

    /// A request with a body of JSON.
    #[track_caller]
    pub fn send_json(&self, method: &str, path: &str, body: &str) -> Response {
        let text = format!(
            "{method} {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
            body.len()
        );
        self.exchange(method, text.as_bytes())
    }

    /// Sends raw bytes and reads all there is until the other side closes.
    #[track_caller]
    pub fn raw(&self, bytes: &[u8]) -> Vec<u8> {
        let mut client = self.connect();
        client.send(bytes);
        client.read_to_end()
    }

    /// The status of the answer to raw bytes; 0 if the connection was closed without one.
    #[track_caller]
    pub fn status_of(&self, bytes: &[u8]) -> u16 {
        let answer = self.raw(bytes);
        let head = message::latin1(&answer);
        head.split(' ').nth(1).and_then(|s| s.parse().ok()).unwrap_or(0)
    }
}

fn head(method: &str, path: &str, host: &str, headers: &str) -> String {
    format!("{method} {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{headers}\r\n")
}

enum Stream {
    Tcp(TcpStream),
    Unix(UnixStream),
    Tls(Box<TlsStream>),
}

impl Stream {
    fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
        match self {
            Stream::Tcp(s) => read(s, buf),
            Stream::Unix(s) => read(s, buf),
            Stream::Tls(s) => read(s, buf),
        }
    }
}

/// Reads once. A read with a time limit is interrupted when the process is stopped and goes on
/// (a container that is frozen for a moment), with no signal handler needed: that is no end.
pub fn read(from: &mut impl Read, buf: &mut [u8]) -> std::io::Result<usize> {
    loop {
        match from.read(buf) {
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            done => return done,
        }
    }
}

/// A connection that stays open until dropped.
pub struct Client {
    stream: Stream,
    /// Read, not yet used.
    seen: Vec<u8>,
}

impl From<TlsStream> for Client {
    fn from(stream: TlsStream) -> Client {
        Client { stream: Stream::Tls(Box::new(stream)), seen: Vec::new() }
    }
}

impl Client {
    /// The same connection with TLS from here on; nothing may have come that was not read.
    pub fn start_tls(self, tls: &Tls) -> std::io::Result<Client> {
        assert!(self.seen.is_empty(), "said before TLS: {:?}", message::latin1(&self.seen));
        let Stream::Tcp(tcp) = self.stream else { panic!("not a plain TCP connection") };
        Ok(tls.connect_on(tcp, "localhost")?.into_client())
    }

    pub fn set_patience(&self, patience: Duration) {
        match &self.stream {
            Stream::Tcp(s) => s.set_read_timeout(Some(patience)).unwrap(),
            Stream::Unix(s) => s.set_read_timeout(Some(patience)).unwrap(),
            Stream::Tls(s) => s.sock.set_read_timeout(Some(patience)).unwrap(),
        }
    }

    /// A server that has closed already is no failure: the answer tells.
    pub fn send(&mut self, bytes: &[u8]) {
        let _ = self.try_send(bytes);
    }

    /// The same; whether the server has taken it.
    pub fn try_send(&mut self, bytes: &[u8]) -> bool {
        match &mut self.stream {
            Stream::Tcp(s) => s.write_all(bytes).is_ok(),
            Stream::Unix(s) => s.write_all(bytes).is_ok(),
            Stream::Tls(s) => s.write_all(bytes).is_ok(),
        }
    }

    /// A plain GET that leaves the connection open.
    pub fn send_get(&mut self, path: &str) {
        self.send(format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
    }

    #[track_caller]
    pub fn get(&mut self, path: &str) -> Response {
        self.send_get(path);
        self.response()
    }

    /// No more will be sent.
    pub fn shutdown_write(&self) {
        let _ = match &self.stream {
            Stream::Tcp(s) => s.shutdown(Shutdown::Write),
            Stream::Unix(s) => s.shutdown(Shutdown::Write),
            Stream::Tls(s) => s.sock.shutdown(Shutdown::Write),
        };
    }

    /// Ends the connection with RST.
    pub fn reset(self) {
        let Stream::Tcp(s) = &self.stream else { panic!("not a plain TCP connection") };
        socket2::SockRef::from(s).set_linger(Some(Duration::ZERO)).unwrap();
    }

    pub fn local_port(&self) -> u16 {
        match &self.stream {
            Stream::Tcp(s) => s.local_addr().unwrap().port(),
            Stream::Unix(_) => 0,
            Stream::Tls(s) => s.sock.local_addr().unwrap().port(),
        }
    }

    /// Reads one response to a GET and no more.
    #[track_caller]
    pub fn response(&mut self) -> Response {
        self.response_to("GET")
    }

    #[track_caller]
    pub fn response_to(&mut self, method: &str) -> Response {
        let head_len = loop {
            if let Some(len) = message::head_len(&self.seen) {
                break len;
            }
            let so_far = message::latin1(&self.seen);
            assert!(self.fill(), "closed before a response; so far {so_far:?}");
        };
        let head: Vec<u8> = self.seen.drain(..head_len).collect();
        let mut response = Response::parse_head(&head).expect("a response head");
        if response.has_no_body(method) {
            return response;
        }
        if response.is_chunked() {
            loop {
                if let Some((body, trailers, len)) = message::dechunk(&self.seen) {
                    self.seen.drain(..len);
                    response.body = body;
                    response.trailers = trailers;
                    return response;
                }
                assert!(self.fill(), "closed inside a chunked body");
            }
        }
        if let Some(len) = response.content_length() {
            while self.seen.len() < len {
                assert!(self.fill(), "closed inside a body of {len}");
            }
            response.body = self.seen.drain(..len).collect();
            return response;
        }
        response.body = self.read_to_end();
        response
    }

    /// Reads until `wanted` has come; returns everything up to and with it.
    #[track_caller]
    pub fn read_until(&mut self, wanted: &[u8]) -> Vec<u8> {
        let mut from = 0;
        loop {
            let fresh = &self.seen[from..];
            if let Some(at) = fresh.windows(wanted.len()).position(|w| w == wanted) {
                return self.seen.drain(..from + at + wanted.len()).collect();
            }
            from = self.seen.len().saturating_sub(wanted.len());
            if !self.fill() {
                let (wanted, seen) = (message::latin1(wanted), message::latin1(&self.seen));
                panic!("closed before {wanted:?}; so far {seen:?}");
            }
        }
    }

    /// So many bytes; nothing when the other side closes before.
    #[track_caller]
    pub fn read_exactly(&mut self, n: usize) -> Option<Vec<u8>> {
        while self.seen.len() < n {
            if !self.fill() {
                return None;
            }
        }
        Some(self.seen.drain(..n).collect())
    }

    /// Everything until the other side closes.
    #[track_caller]
    pub fn read_to_end(&mut self) -> Vec<u8> {
        while self.fill() {}
        std::mem::take(&mut self.seen)
    }

    /// Whether the other side closes without sending anything more.
    #[track_caller]
    pub fn is_closed(&mut self) -> bool {
        self.seen.is_empty() && !self.fill()
    }

    /// Whether nothing comes, not even an end, for so long.
    pub fn is_silent(&mut self, time: Duration) -> bool {
        if !self.seen.is_empty() {
            return false;
        }
        self.set_patience(time);
        let mut byte = [0];
        let result = self.stream.read(&mut byte);
        self.set_patience(PATIENCE);
        match result {
            Ok(0) => false,
            Ok(n) => {
                self.seen.extend_from_slice(&byte[..n]);
                false
            }
            Err(error) => is_timeout(error.kind()),
        }
    }

    /// Reads once; false at the end of the connection.
    #[track_caller]
    fn fill(&mut self) -> bool {
        let mut buf = [0; 16 * 1024];
        match self.stream.read(&mut buf) {
            Ok(n) => {
                self.seen.extend_from_slice(&buf[..n]);
                n > 0
            }
            Err(error) if is_timeout(error.kind()) => {
                panic!("nothing comes; so far {:?}", message::latin1(&self.seen))
            }
            Err(_) => false,
        }
    }
}

fn is_timeout(kind: ErrorKind) -> bool {
    matches!(kind, ErrorKind::WouldBlock | ErrorKind::TimedOut)
}
