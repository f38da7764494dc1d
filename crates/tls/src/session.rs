//! One TLS session: rustls' connection between our sockets and plain bytes.
//!
//! Invariants: ciphertext is received into a buffer that the worker's connections share, and only
//! what rustls cannot take yet is kept with the session; records are made from the caller's slices
//! in one pass and leave in one call; bytes are reported as written when their record has left, so
//! nothing is left behind that nobody would flush, except the last flight of a handshake, which
//! goes out with the first bytes written or before the first wait to read.

use crate::write::{Batch, Out};
use rustls::Connection;
use std::cell::RefCell;
use std::io::{self, BufRead};
use std::task::{Context, Poll};
use weir_runtime::net::Stream;

/// Ciphertext asked of the socket at once: a whole record.
const CIPHER_ROOM_BYTES: usize = 16 * 1024 + 512;
/// The most plain bytes that a record may have (RFC 8446, section 5.1).
pub const RECORD_MAX_BYTES: usize = 16 * 1024;
/// Plain bytes turned into records before they are sent.
pub(crate) const BATCH_MAX_BYTES: usize = 64 * 1024;

thread_local! {
    /// Where ciphertext is received, shared by the worker's sessions.
    static CIPHER: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) };
}

/// Why a session could not be set up or went wrong.
#[derive(Debug)]
pub enum TlsError {
    Io(io::Error),
    Tls(rustls::Error),
    /// The peer hung up in the middle of the handshake.
    Closed,
}

impl std::fmt::Display for TlsError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            TlsError::Io(e) => e.fmt(f),
            TlsError::Tls(e) => e.fmt(f),
            TlsError::Closed => f.write_str("peer closed connection in SSL handshake"),
        }
    }
}

pub(crate) struct Inner {
    pub tls: Connection,
    /// Ciphertext received beyond what rustls takes before its plain bytes are read.
    held: Vec<u8>,
    /// Early data that was not read yet.
    early: Vec<u8>,
    pub batch: Batch,
    /// The peer's end was seen.
    ended: bool,
    /// `close_notify` was sent, or must not be.
    pub closed: bool,
    pub failed: bool,
}

pub struct Session {
    pub(crate) inner: RefCell<Inner>,
    /// Plain bytes of a full record.
    pub(crate) record: usize,
}

fn tls_io(e: rustls::Error) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e)
}

impl Inner {
    /// Whether there are plain bytes to take.
    fn has_plain(&mut self) -> bool {
        !self.early.is_empty() || matches!(self.tls.reader().fill_buf(), Ok(b) if !b.is_empty())
    }

    /// Moves plain bytes to the caller, early data first.
    fn take(&mut self, buf: &mut Vec<u8>, room: usize) -> usize {
        if !self.early.is_empty() {
            let n = self.early.len().min(room);
            buf.extend(self.early.drain(..n));
            return n;
        }
        let mut taken = 0;
        let mut reader = self.tls.reader();
        while taken < room {
            let n = match reader.fill_buf() {
                Ok(chunk) if !chunk.is_empty() => {
                    let n = chunk.len().min(room - taken);
                    buf.extend_from_slice(&chunk[..n]);
                    n
                }
                _ => break,
            };
            reader.consume(n);
            taken += n;
        }
        taken
    }

    /// Takes early data over, which rustls keeps apart.
    fn collect_early(&mut self) {
        let Connection::Server(server) = &mut self.tls else { return };
        let Some(mut early) = server.early_data() else { return };
        let mut piece = [0; 4096];
        while let Ok(n @ 1..) = io::Read::read(&mut early, &mut piece) {
            self.early.extend_from_slice(&piece[..n]);
        }
    }

    /// Gives ciphertext to rustls; what it cannot take now is kept.
    fn feed(&mut self, mut cipher: &[u8]) -> Result<(), rustls::Error> {
        while !cipher.is_empty() {
            match self.tls.read_tls(&mut cipher) {
                // Bytes behind close_notify mean nothing.
                Ok(0) => {
                    self.ended = true;
                    return Ok(());
                }
                Ok(_) => {}
                // Plain bytes must be taken first.
                Err(_) => {
                    self.held.extend_from_slice(cipher);
                    return Ok(());
                }
            }
            self.digest()?;
        }
        Ok(())
    }

    /// Lets rustls work on what it has taken.
    fn digest(&mut self) -> Result<(), rustls::Error> {
        let handshaking = self.tls.is_handshaking();
        match self.tls.process_new_packets() {
            Ok(state) => self.ended |= state.peer_has_closed(),
            Err(e) => {
                self.failed = true;
                return Err(e);
            }
        }
        if handshaking {
            self.collect_early();
        }
        Ok(())
    }

    /// Feeds what was kept; `true` when there was something.
    fn feed_held(&mut self) -> Result<bool, rustls::Error> {
        if self.held.is_empty() {
            return Ok(false);
        }
        let held = std::mem::take(&mut self.held);
        self.feed(&held).map(|()| true)
    }

    /// Takes in what a read of the socket gave; 0 is its end, with or without `close_notify`.
    fn received(&mut self, socket: &Stream, n: usize, cipher: &[u8]) -> io::Result<()> {
        if n == 0 {
            self.ended = true;
            return Ok(());
        }
        self.feed(cipher).map_err(|e| {
            // The alert that says why, as far as the socket takes it.
            let _ = self.flush_now(socket);
            tls_io(e)
        })
    }
}

/// Runs `f` with the worker's buffer for ciphertext, emptied.
fn with_cipher<T>(f: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    CIPHER.with(|cipher| {
        let mut buf = cipher.take();
        buf.clear();
        let done = f(&mut buf);
        cipher.replace(buf);
        done
    })
}

impl Session {
    /// A session around rustls' connection; `record` is the most plain bytes in a record it makes.
    pub fn new(mut tls: Connection, record: usize) -> Session {
        tls.set_buffer_limit(None);
        let record = record.clamp(1, RECORD_MAX_BYTES);
        Session {
            inner: RefCell::new(Inner {
                tls,
                held: Vec::new(),
                early: Vec::new(),
                batch: Batch::default(),
                ended: false,
                closed: false,
                failed: false,
            }),
            record,
        }
    }

    /// The protocol that was agreed on (ALPN).
    pub fn protocol(&self) -> Option<Box<[u8]>> {
        self.inner.borrow().tls.alpn_protocol().map(Into::into)
    }

    /// Whether the handshake is not complete: the request came as early data.
    pub fn is_early(&self) -> bool {
        self.inner.borrow().tls.is_handshaking()
    }

    /// Looks at rustls' connection.
    pub fn with<T>(&self, f: impl FnOnce(&Connection) -> T) -> T {
        f(&self.inner.borrow().tls)
    }

    /// Whether a read would give something without the socket.
    pub fn has_read(&self) -> bool {
        let inner = &mut *self.inner.borrow_mut();
        inner.ended || !inner.held.is_empty() || inner.has_plain()
    }

    pub(crate) fn poll_handshake(
        &self,
        socket: &Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), TlsError>> {
        let inner = &mut *self.inner.borrow_mut();
        // Early data may have come with the hello.
        let mut begun = inner.digest();
        loop {
            if let Err(e) = std::mem::replace(&mut begun, Ok(())) {
                let _ = inner.flush_now(socket);
                return Poll::Ready(Err(TlsError::Tls(e)));
            }
            if !inner.tls.is_handshaking() {
                inner.batch.behind = inner.tls.wants_write();
                return Poll::Ready(Ok(()));
            }
            if !inner.early.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let out = Out { socket, cx: Some(cx), more: false };
            inner.flush(out).map_err(TlsError::Io)?;
            let read = with_cipher(|cipher| {
                let read = socket.poll_read(cx, cipher, CIPHER_ROOM_BYTES);
                read.map(|got| match got.map_err(TlsError::Io)? {
                    0 => Err(TlsError::Closed),
                    _ => inner.feed(cipher).map_err(TlsError::Tls),
                })
            });
            match read {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(e)) => {
                    inner.failed = true;
                    // The alert that says why, as far as the socket takes it.
                    let _ = inner.flush_now(socket);
                    return Poll::Ready(Err(e));
                }
            }
        }
    }

    pub(crate) fn poll_read(
        &self,
        socket: &Stream,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let wait = |cipher: &mut Vec<u8>, n| socket.poll_read(cx, cipher, n);
        self.read_with(socket, || buf, room, wait)
    }

    pub(crate) fn poll_read_lazy<'s>(
        &self,
        socket: &Stream,
        cx: &mut Context<'_>,
        room: usize,
        buf: impl FnOnce() -> &'s mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let wait = |cipher: &mut Vec<u8>, n| socket.poll_read_lazy(cx, n, cipher, |c| c);
        self.read_with(socket, buf, room, wait)
    }

    pub(crate) fn try_read(
        &self,
        socket: &Stream,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> io::Result<usize> {
        let now = |cipher: &mut Vec<u8>, n| Poll::Ready(socket.try_read(cipher, n));
        match self.read_with(socket, || buf, room, now) {
            Poll::Ready(done) => done,
            Poll::Pending => Err(io::ErrorKind::WouldBlock.into()),
        }
    }

    /// Reads plain bytes, receiving ciphertext with `receive` until there are some.
    fn read_with<'s>(
        &self,
        socket: &Stream,
        buf: impl FnOnce() -> &'s mut Vec<u8>,
        room: usize,
        mut receive: impl FnMut(&mut Vec<u8>, usize) -> Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        let inner = &mut *self.inner.borrow_mut();
        loop {
            if inner.has_plain() {
                return Poll::Ready(Ok(inner.take(buf(), room)));
            }
            if inner.ended {
                return Poll::Ready(Ok(0));
            }
            if inner.feed_held().map_err(tls_io)? {
                continue;
            }
            if inner.tls.wants_write() && !inner.batch.is_open() {
                inner.flush_now(socket)?;
            }
            let want = room.clamp(CIPHER_ROOM_BYTES, BATCH_MAX_BYTES);
            let done = with_cipher(|cipher| {
                receive(cipher, want).map(|n| inner.received(socket, n?, cipher))
            });
            std::task::ready!(done)?;
        }
    }

    /// Whether something waits to be read, as far as `look` finds the socket readable.
    pub(crate) fn peek(
        &self,
        socket: &Stream,
        look: impl Fn(&Stream) -> io::Result<usize>,
    ) -> io::Result<usize> {
        let inner = &mut *self.inner.borrow_mut();
        loop {
            if inner.has_plain() {
                return Ok(1);
            }
            if inner.ended {
                return Ok(0);
            }
            if inner.feed_held().map_err(tls_io)? {
                continue;
            }
            look(socket)?;
            // What is there may be no data, but a session ticket: rustls must see it to tell.
            with_cipher(|cipher| {
                let n = socket.try_read(cipher, CIPHER_ROOM_BYTES)?;
                inner.received(socket, n, cipher)
            })?;
        }
    }
}
