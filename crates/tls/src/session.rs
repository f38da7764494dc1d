//! One TLS session: rustls' connection between our sockets and plain bytes.
//!
//! Invariants: ciphertext is received into a buffer that the worker's connections share, is
//! decrypted there, and all of it at once; kept with the session is only the part of a record whose
//! rest has not come, and plain bytes that the reader had no room for. Records are made from the
//! caller's slices in a buffer of the worker and leave in one call; what the socket does not take is
//! kept. Bytes are reported as written when their record has left, so nothing is left behind that
//! nobody would flush, except the last flight of a handshake, which goes out with the first bytes
//! written or before the first wait to read. A session that waits has no buffer at all.

use crate::engine::{Engine, Queue, Stop, Task};
use crate::session_id::{self, ID_BYTES};
use crate::write::{Batch, Out};
use rustls::client::UnbufferedClientConnection;
use rustls::server::UnbufferedServerConnection;
use rustls::{CommonState, HandshakeKind};
use std::cell::{Cell, RefCell};
use std::io;
use std::task::{ready, Context, Poll};
use weir_runtime::net::Stream;

/// Ciphertext asked of the socket at once: a whole record.
const CIPHER_ROOM_BYTES: usize = 16 * 1024 + 512;
/// The most plain bytes that a record may have (RFC 8446, section 5.1).
pub const RECORD_MAX_BYTES: usize = 16 * 1024;
/// Received bytes that are kept: the longest message of a handshake that rustls takes (64 KB), in
/// records of their own overhead.
const HELD_MAX_BYTES: usize = 96 * 1024;
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

/// Plain bytes that the reader had no room for.
#[derive(Default)]
struct Rest {
    bytes: Vec<u8>,
    taken: usize,
}

impl Rest {
    fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    fn take(&mut self, buf: &mut Vec<u8>, room: usize) -> usize {
        let rest = &self.bytes[self.taken..];
        let n = rest.len().min(room);
        buf.extend_from_slice(&rest[..n]);
        self.taken += n;
        if self.taken == self.bytes.len() {
            *self = Rest::default();
        }
        n
    }
}

pub(crate) struct Inner {
    pub tls: Engine,
    /// Ciphertext whose rest has not come.
    held: Vec<u8>,
    plain: Rest,
    /// Records that the socket has not taken yet.
    pub out: Queue,
    pub batch: Batch,
    id: Option<[u8; ID_BYTES]>,
    /// The peer's end was seen, or nothing that it says is worth hearing.
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

impl Inner {
    /// Works on what was received, all that was held before it. Plain bytes go to `take`, which says
    /// how many it took; the others are kept.
    fn digest(
        &mut self,
        cipher: &mut [u8],
        take: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Result<(), rustls::Error> {
        if self.ended {
            return Ok(());
        }
        let handshaking = self.tls.is_handshaking();
        let rest = &mut self.plain.bytes;
        let mut plain = |bytes: &[u8]| rest.extend_from_slice(&bytes[take(bytes)..]);
        let worked = self.tls.work(Task::Read, cipher, &mut self.out, &mut plain);
        if handshaking {
            self.id = session_id::take().or(self.id);
        }
        let (used, stop) = worked.inspect_err(|_| self.fail())?;
        if stop == Stop::Ended {
            // Bytes behind close_notify mean nothing.
            self.ended = true;
            return Ok(());
        }
        let held = &cipher[used..];
        if held.len() > HELD_MAX_BYTES {
            self.fail();
            return Err(rustls::Error::General("a message is too long".to_string()));
        }
        if !held.is_empty() {
            self.held = held.to_vec();
        }
        Ok(())
    }

    /// Gives the engine something to send, behind `records`.
    pub fn seal(&mut self, task: Task<'_>, records: &mut Queue) -> io::Result<()> {
        let rest = &mut self.plain.bytes;
        let mut plain = |bytes: &[u8]| rest.extend_from_slice(bytes);
        match self.tls.work(task, &mut self.held, records, &mut plain) {
            Ok((used, _)) => {
                self.held.drain(..used);
                Ok(())
            }
            Err(_) => {
                self.fail();
                Err(io::ErrorKind::BrokenPipe.into())
            }
        }
    }

    /// The session is over: the alert that says why is to be sent, nothing else comes in or goes out.
    fn fail(&mut self) {
        (self.failed, self.ended) = (true, true);
        // It has failed already.
        let _ = self.tls.work(Task::Send, &mut [], &mut self.out, &mut |_| ());
    }

    /// Receives with `receive` and works on that, what was held before it; `false` is the end of what the
    /// peer sends, with or without `close_notify`.
    fn receive(
        &mut self,
        receive: impl FnOnce(&mut Vec<u8>) -> Poll<io::Result<usize>>,
        take: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Poll<Result<bool, TlsError>> {
        let held = std::mem::take(&mut self.held);
        let done = with_cipher(&held, |cipher| match ready!(receive(cipher)) {
            Ok(0) => Poll::Ready(Ok(false)),
            Ok(_) => {
                let worked = self.digest(cipher, take);
                Poll::Ready(worked.map(|()| true).map_err(TlsError::Tls))
            }
            Err(e) => Poll::Ready(Err(TlsError::Io(e))),
        });
        if matches!(done, Poll::Pending | Poll::Ready(Err(TlsError::Io(_)))) {
            self.held = held;
        }
        done
    }

    /// The same for one who reads.
    fn read(
        &mut self,
        socket: &Stream,
        receive: impl FnOnce(&mut Vec<u8>) -> Poll<io::Result<usize>>,
        take: &mut dyn FnMut(&[u8]) -> usize,
    ) -> Poll<io::Result<()>> {
        let said = ready!(self.receive(receive, take)).map_err(|e| match e {
            TlsError::Io(e) => e,
            TlsError::Tls(e) => {
                // The alert that says why, as far as the socket takes it.
                let _ = self.flush_now(socket);
                io::Error::new(io::ErrorKind::InvalidData, e)
            }
            TlsError::Closed => io::ErrorKind::UnexpectedEof.into(),
        });
        self.ended |= matches!(said, Ok(false));
        Poll::Ready(said.map(drop))
    }
}

/// Runs `f` with the worker's buffer for ciphertext, which has in it what is held.
fn with_cipher<T>(held: &[u8], f: impl FnOnce(&mut Vec<u8>) -> T) -> T {
    CIPHER.with(|cipher| {
        let mut buf = cipher.take();
        buf.clear();
        buf.extend_from_slice(held);
        let done = f(&mut buf);
        cipher.replace(buf);
        done
    })
}

impl Session {
    /// A session with a server; `record` is the most plain bytes in a record that it makes.
    pub fn client(tls: UnbufferedClientConnection, record: usize) -> Session {
        Session::new(Engine::Client(tls), Vec::new(), record)
    }

    /// The same with a client that has said these bytes already.
    pub(crate) fn server(tls: UnbufferedServerConnection, said: Vec<u8>, record: usize) -> Session {
        Session::new(Engine::Server(tls), said, record)
    }

    fn new(tls: Engine, held: Vec<u8>, record: usize) -> Session {
        let record = record.clamp(1, RECORD_MAX_BYTES);
        Session {
            inner: RefCell::new(Inner {
                tls,
                held,
                plain: Rest::default(),
                out: Queue::default(),
                batch: Batch::default(),
                id: None,
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

    /// A number of the session that nobody can guess, once it has keys; a client's session has none.
    pub fn id(&self) -> Option<[u8; ID_BYTES]> {
        self.inner.borrow().id
    }

    /// Looks at what rustls knows of the connection.
    pub fn with<T>(&self, f: impl FnOnce(&CommonState) -> T) -> T {
        f(&self.inner.borrow().tls)
    }

    /// Whether a read would give something without the socket.
    pub fn has_read(&self) -> bool {
        let inner = &*self.inner.borrow();
        inner.ended || !inner.plain.is_empty()
    }

    /// Works on the hello that a server's session begins with; whether it goes on with an earlier session.
    /// Nothing has left by then, so that another session may be begun with the same hello.
    pub fn resumes(&self) -> bool {
        let inner = &mut *self.inner.borrow_mut();
        let mut said = std::mem::take(&mut inner.held);
        // What fails here fails again where it is told.
        inner.digest(&mut said, &mut |_| 0).is_ok()
            && inner.tls.handshake_kind() == Some(HandshakeKind::Resumed)
    }

    pub(crate) fn poll_handshake(
        &self,
        socket: &Stream,
        cx: &mut Context<'_>,
    ) -> Poll<Result<(), TlsError>> {
        let inner = &mut *self.inner.borrow_mut();
        // The hello has been read, and early data may have come with it.
        let mut said = std::mem::take(&mut inner.held);
        let mut done = inner.digest(&mut said, &mut |_| 0).map_err(TlsError::Tls);
        loop {
            if let Err(e) = done {
                inner.failed = true;
                // The alert that says why, as far as the socket takes it.
                let _ = inner.flush_now(socket);
                return Poll::Ready(Err(e));
            }
            if !inner.tls.is_handshaking() {
                inner.batch.behind = !inner.out.is_empty();
                return Poll::Ready(Ok(()));
            }
            if !inner.plain.is_empty() {
                return Poll::Ready(Ok(()));
            }
            let out = Out { socket, cx: Some(&mut *cx), more: false };
            inner.flush(out).map_err(TlsError::Io)?;
            let receive = |cipher: &mut Vec<u8>| socket.poll_read(cx, cipher, CIPHER_ROOM_BYTES);
            done = match ready!(inner.receive(receive, &mut |_| 0)) {
                Ok(false) => Err(TlsError::Closed),
                done => done.map(drop),
            };
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
        if !inner.plain.is_empty() {
            return Poll::Ready(Ok(inner.plain.take(buf(), room)));
        }
        let (mut buf, mut place, taken) = (Some(buf), None::<&mut Vec<u8>>, Cell::new(0));
        let mut take = |bytes: &[u8]| {
            let n = bytes.len().min(room - taken.get());
            if place.is_none() {
                place = buf.take().map(|buf| buf());
            }
            let Some(place) = &mut place else { return 0 };
            place.extend_from_slice(&bytes[..n]);
            taken.set(taken.get() + n);
            n
        };
        let want = room.clamp(CIPHER_ROOM_BYTES, BATCH_MAX_BYTES);
        loop {
            if taken.get() > 0 || inner.ended || !inner.plain.is_empty() {
                return Poll::Ready(Ok(taken.get()));
            }
            if !inner.out.is_empty() && !inner.batch.is_open() {
                inner.flush_now(socket)?;
            }
            ready!(inner.read(socket, |cipher| receive(cipher, want), &mut take))?;
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
            if !inner.plain.is_empty() {
                return Ok(1);
            }
            if inner.ended {
                return Ok(0);
            }
            look(socket)?;
            // What is there may be no data, but a session ticket: rustls must see it to tell.
            let now =
                |cipher: &mut Vec<u8>| Poll::Ready(socket.try_read(cipher, CIPHER_ROOM_BYTES));
            if let Poll::Ready(Err(e)) = inner.read(socket, now, &mut |_| 0) {
                return Err(e);
            }
        }
    }
}
