//! A scripted HTTP origin for the proxy to talk to, on a port the kernel chose.

use std::io::{ErrorKind, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::client;
use crate::message::{self, Request};
use crate::{expect_soon, PATIENCE};

/// What becomes of the connection after an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    Keep,
    Close,
}

/// The origin's side of a connection.
pub struct Conn {
    stream: TcpStream,
    seen: Vec<u8>,
    resets: bool,
}

impl Conn {
    /// Errors are ignored: the proxy may have gone away, which is for the test to notice.
    pub fn write(&mut self, bytes: impl AsRef<[u8]>) {
        let _ = self.stream.write_all(bytes.as_ref());
    }

    /// Whether the proxy has not gone away yet.
    pub fn try_write(&mut self, bytes: &[u8]) -> bool {
        self.stream.write_all(bytes).is_ok()
    }

    /// An answer with this status line, these header lines and this body, its length said.
    pub fn reply(&mut self, status: &str, headers: &str, body: &str) {
        let len = body.len();
        self.write(format!("HTTP/1.1 {status}\r\nContent-Length: {len}\r\n{headers}\r\n{body}"));
    }

    /// When it is closed the proxy sees a reset, not an end.
    pub fn will_reset(&mut self) {
        socket2::SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).unwrap();
        self.resets = true;
    }

    /// Not much more than so many bytes wait for it unread.
    pub fn keeps_unread(&self, bytes: usize) {
        socket2::SockRef::from(&self.stream).set_recv_buffer_size(bytes).unwrap();
    }

    /// Reads wait so long from now on.
    pub fn patience(&mut self, within: Duration) {
        self.stream.set_read_timeout(Some(within)).unwrap();
    }

    /// Waits until the proxy has closed its side.
    pub fn wait_closed(&mut self) -> bool {
        let mut buf = [0; 1024];
        loop {
            match client::read(&mut self.stream, &mut buf) {
                Ok(0) => return true,
                Ok(_) => {}
                Err(_) => return false,
            }
        }
    }

    /// Whether the proxy closes its side within that time; what it says meanwhile is kept.
    pub fn is_closed_within(&mut self, time: Duration) -> bool {
        self.stream.set_read_timeout(Some(time)).unwrap();
        let mut buf = [0; 1024];
        let read = client::read(&mut self.stream, &mut buf);
        self.stream.set_read_timeout(Some(PATIENCE * 2)).unwrap();
        match read {
            Ok(n) => {
                self.seen.extend_from_slice(&buf[..n]);
                n == 0
            }
            Err(e) => !matches!(e.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut),
        }
    }

    fn fill(&mut self) -> bool {
        let mut buf = [0; 16 * 1024];
        match client::read(&mut self.stream, &mut buf) {
            Ok(n) => {
                self.seen.extend_from_slice(&buf[..n]);
                n > 0
            }
            Err(_) => false,
        }
    }

    /// Raw bytes until `wanted` has come.
    pub fn read_until(&mut self, wanted: &[u8]) -> Option<Vec<u8>> {
        loop {
            if let Some(at) = self.seen.windows(wanted.len()).position(|w| w == wanted) {
                return Some(self.seen.drain(..at + wanted.len()).collect());
            }
            if !self.fill() {
                return None;
            }
        }
    }

    pub fn read_exactly(&mut self, n: usize) -> Option<Vec<u8>> {
        while self.seen.len() < n {
            if !self.fill() {
                return None;
            }
        }
        Some(self.seen.drain(..n).collect())
    }

    fn request(&mut self, connection: usize) -> Option<Request> {
        let head = self.read_until(b"\r\n\r\n")?;
        let mut request =
            Request { head: message::latin1(&head), connection, ..Request::default() };
        if request.header("Transfer-Encoding").is_some() {
            loop {
                if let Some((body, _, len)) = message::dechunk(&self.seen) {
                    self.seen.drain(..len);
                    request.body = body;
                    return Some(request);
                }
                if !self.fill() {
                    return None;
                }
            }
        }
        let len = request.header("Content-Length").and_then(|v| v.parse().ok()).unwrap_or(0);
        while self.seen.len() < len {
            if !self.fill() {
                return None;
            }
        }
        request.body = self.seen.drain(..len).collect();
        Some(request)
    }
}

/// An origin that runs until dropped.
pub struct Origin {
    port: u16,
    requests: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
    stopping: Arc<AtomicBool>,
}

impl Origin {
    /// Answers every whole request by calling `script`.
    pub fn start(script: impl Fn(&Request, &mut Conn) -> Next + Send + Sync + 'static) -> Origin {
        let requests: Arc<Mutex<Vec<Request>>> = Arc::default();
        let log = Arc::clone(&requests);
        Origin::listen(requests, move |conn, id| {
            while let Some(request) = conn.request(id) {
                log.lock().unwrap().push(request.clone());
                if script(&request, conn) == Next::Close {
                    return;
                }
            }
        })
    }

    /// Hands every connection to `script` as it is, with its number.
    pub fn start_raw(script: impl Fn(&mut Conn, usize) + Send + Sync + 'static) -> Origin {
        Origin::listen(Arc::default(), script)
    }

    /// Answers everything alike and closes.
    pub fn replying(bytes: impl Into<Vec<u8>>) -> Origin {
        let bytes = bytes.into();
        Origin::start(move |_, conn| {
            conn.write(&bytes);
            Next::Close
        })
    }

    /// Answers 200 with the request as it came, head and body, as the body.
    pub fn echo() -> Origin {
        Origin::start(|request, conn| {
            conn.reply("200 OK", "", &format!("{}{}", request.head, request.text()));
            Next::Keep
        })
    }

    fn listen(
        requests: Arc<Mutex<Vec<Request>>>,
        serve: impl Fn(&mut Conn, usize) + Send + Sync + 'static,
    ) -> Origin {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicUsize::new(0));
        let stopping = Arc::new(AtomicBool::new(false));
        let (count, stop, serve) =
            (Arc::clone(&connections), Arc::clone(&stopping), Arc::new(serve));
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                if stop.load(Ordering::SeqCst) {
                    return;
                }
                let Ok(stream) = stream else { continue };
                let id = count.fetch_add(1, Ordering::SeqCst);
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || {
                    stream.set_nodelay(true).unwrap();
                    stream.set_read_timeout(Some(PATIENCE * 2)).unwrap();
                    let mut conn = Conn { stream, seen: Vec::new(), resets: false };
                    serve(&mut conn, id);
                    if !conn.resets {
                        let _ = conn.stream.shutdown(Shutdown::Write);
                    }
                });
            }
        });
        Origin { port, requests, connections, stopping }
    }

    pub fn port(&self) -> u16 {
        self.port
    }

    /// `127.0.0.1:PORT`.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    pub fn requests(&self) -> Vec<Request> {
        self.requests.lock().unwrap().clone()
    }

    /// The only request that came.
    #[track_caller]
    pub fn only_request(&self) -> Request {
        let mut requests = self.requests();
        assert_eq!(requests.len(), 1, "{requests:?}");
        requests.remove(0)
    }

    /// The last request that came.
    #[track_caller]
    pub fn last_request(&self) -> Request {
        self.requests().pop().expect("a request came")
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    #[track_caller]
    pub fn expect_requests(&self, count: usize) {
        expect_soon("so many requests at the origin", || self.requests().len() >= count);
    }
}

impl Drop for Origin {
    fn drop(&mut self) {
        self.stopping.store(true, Ordering::SeqCst);
        let _ = TcpStream::connect(("127.0.0.1", self.port));
    }
}
