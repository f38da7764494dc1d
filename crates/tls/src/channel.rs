//! A connected socket, plain or with a TLS session on it, with one set of calls for both. The plain
//! path is the socket's own, behind one branch.

use crate::session::{Session, TlsError};
use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::task::{ready, Context, Poll};
use weir_runtime::net::Stream;
use weir_runtime::sockets::RawFd;

pub struct Channel {
    socket: Stream,
    /// Put on the socket once, before anything but the handshake has gone over it.
    tls: OnceCell<Box<Session>>,
}

impl From<Stream> for Channel {
    fn from(socket: Stream) -> Channel {
        Channel { socket, tls: OnceCell::new() }
    }
}

impl Channel {
    /// The socket itself, for what does not read or write: options and addresses.
    pub fn socket(&self) -> &Stream {
        &self.socket
    }

    /// The TLS session, when there is one.
    #[inline]
    pub fn tls(&self) -> Option<&Session> {
        self.tls.get().map(|s| &**s)
    }

    /// Whether there is TLS on it.
    #[inline]
    pub fn is_tls(&self) -> bool {
        self.tls.get().is_some()
    }

    /// The protocol that the handshake agreed on (ALPN): `h2`, `http/1.1`, or none.
    pub fn protocol(&self) -> Option<Box<[u8]>> {
        self.tls().and_then(Session::protocol)
    }

    /// Puts a session on the socket; a second one is an error of the caller and is dropped.
    pub fn start(&self, session: Session) {
        let first = self.tls.set(Box::new(session)).is_ok();
        debug_assert!(first, "one session for a socket");
    }

    /// Drives the handshake of the session to its end; a plain socket has none.
    pub fn poll_handshake(&self, cx: &mut Context<'_>) -> Poll<Result<(), TlsError>> {
        match self.tls() {
            None => Poll::Ready(Ok(())),
            Some(tls) => tls.poll_handshake(&self.socket, cx),
        }
    }

    /// Reads into the buffer's spare room, at most `room` bytes more; 0 is the end of the stream.
    #[inline]
    pub fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        match self.tls() {
            None => self.socket.poll_read(cx, buf, room),
            Some(tls) => tls.poll_read(&self.socket, cx, buf, room),
        }
    }

    /// Waits until there is something to read, then reads it into the buffer that `buf` gives: a
    /// connection that waits needs no buffer.
    #[inline]
    pub fn poll_read_lazy<S>(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        slot: &mut S,
        buf: impl Fn(&mut S) -> &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        match self.tls() {
            None => self.socket.poll_read_lazy(cx, room, slot, buf),
            Some(tls) => tls.poll_read_lazy(&self.socket, cx, room, || buf(slot)),
        }
    }

    /// Reads what has already arrived.
    #[inline]
    pub fn try_read(&self, buf: &mut Vec<u8>, room: usize) -> io::Result<usize> {
        match self.tls() {
            None => self.socket.try_read(buf, room),
            Some(tls) => tls.try_read(&self.socket, buf, room),
        }
    }

    /// Whether something waits to be read: `Ok(0)` is the end of the stream. Takes nothing, and
    /// asks the kernel only when the event loop has seen something happen.
    #[inline]
    pub fn peek(&self) -> io::Result<usize> {
        match self.tls() {
            None => self.socket.peek(),
            Some(tls) => tls.peek(&self.socket, Stream::peek),
        }
    }

    /// The same, asking the kernel in any case.
    pub fn peek_now(&self) -> io::Result<usize> {
        match self.tls() {
            None => self.socket.peek_now(),
            Some(tls) => tls.peek(&self.socket, Stream::peek_now),
        }
    }

    /// Ready when a read may not block (data, end or error).
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.tls().is_some_and(Session::has_read) {
            return Poll::Ready(Ok(()));
        }
        self.socket.poll_readable(cx)
    }

    /// Of a connection that has nothing more to read, as [`Channel::peek`] has told: ready once the other side has ended it as
    /// a whole, and not its session alone, behind which it still takes an answer (RFC 8446 section 6.1); with `false` once
    /// there is something behind that, which nobody reads.
    pub fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<bool> {
        while self.tls().is_some() {
            if ready!(self.socket.poll_readable(cx)).is_err() {
                break;
            }
            match self.socket.peek() {
                Ok(1..) => return Poll::Ready(false),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Ok(0) | Err(_) => break,
            }
        }
        Poll::Ready(true)
    }

    /// Whether the other side has ended the connection behind all that was read, and not its session alone.
    pub fn is_ended(&self) -> bool {
        matches!(self.peek_now(), Ok(0)) && matches!(self.socket.peek_now(), Ok(0))
    }

    /// Ready when the connection is broken, and not only ended on the other side.
    pub fn poll_broken(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.socket.poll_broken(cx)
    }

    /// Forgets that the socket was readable: a call has found that it is not.
    pub fn not_readable(&self) {
        self.socket.not_readable();
    }

    /// Ready when a write may make progress.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.socket.poll_writable(cx)
    }

    /// Writes the pieces, or the first of them; `more` says that further bytes follow at once. What
    /// it answers has left. After `Pending` the same bytes must be given again.
    #[inline]
    pub fn poll_write(
        &self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        match self.tls() {
            None => self.socket.poll_write(cx, pieces, more),
            Some(tls) => tls.poll_write(&self.socket, cx, pieces, more),
        }
    }

    /// Sends a range of a file: from kernel to kernel when plain, through a buffer of bounded size
    /// with TLS.
    pub fn poll_send_file(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        match self.tls() {
            None => self.socket.poll_sendfile(cx, file, offset, len),
            Some(tls) => tls.poll_write_file(&self.socket, cx, file, offset, len),
        }
    }

    /// Says that nothing more will be sent (`close_notify` with TLS) and closes the sending half.
    pub fn shutdown_write(&self) {
        if let Some(tls) = self.tls() {
            tls.close(&self.socket);
        }
        self.socket.shutdown_write();
    }

    /// The socket's descriptor.
    pub fn fd(&self) -> RawFd {
        self.socket.fd()
    }

    /// Closes the receiving half, which wakes whoever waits for a request.
    pub fn shutdown_read(&self) {
        self.socket.shutdown_read();
    }

    /// Closes both halves at once, without a word.
    pub fn shutdown_both(&self) {
        if let Some(tls) = self.tls() {
            tls.be_quiet();
        }
        self.socket.shutdown_both();
    }

    pub fn set_nodelay(&self, on: bool) {
        self.socket.set_nodelay(on);
    }

    /// Makes the close reset the connection instead of leaving it in TIME_WAIT.
    pub fn reset_on_close(&self) {
        if let Some(tls) = self.tls() {
            tls.be_quiet();
        }
        self.socket.reset_on_close();
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr()
    }

    /// The other side's.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        self.socket.peer_addr()
    }

    /// The path a Unix socket is bound to.
    pub fn local_path(&self) -> Option<std::path::PathBuf> {
        self.socket.local_path()
    }

    pub fn tcp_info(&self) -> Option<[u32; 4]> {
        self.socket.tcp_info()
    }
}

impl Drop for Channel {
    /// A TLS session ends with `close_notify`, as far as the socket takes it.
    fn drop(&mut self) {
        if let Some(tls) = self.tls.get() {
            tls.close(&self.socket);
        }
    }
}
