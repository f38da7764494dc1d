//! The calls on connected sockets on Windows.

use super::stream::{Peek, Stream};
use socket2::SockRef;
use std::fs::File;
use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::net::{Shutdown, SocketAddr};
use std::os::windows::io::AsRawSocket;
use std::task::{ready, Context, Poll};
use std::time::Duration;
use windows_sys::Win32::Networking::WinSock::{INVALID_SOCKET, MSG_PEEK, WSAESHUTDOWN};

pub(super) use std::os::windows::io::{OwnedSocket as Owned, RawSocket as Raw};

/// What a stream has for a socket that leads nowhere: every call on it fails.
pub(super) const NOWHERE: Raw = INVALID_SOCKET as Raw;

/// What of a file is sent at once.
const PIECE_BYTES: usize = 64 * 1024;

pub(super) fn raw(socket: &Owned) -> Raw {
    socket.as_raw_socket()
}

fn is_end(e: &io::Error) -> bool {
    e.kind() == io::ErrorKind::WouldBlock || e.raw_os_error() == Some(WSAESHUTDOWN)
}

impl From<std::net::TcpStream> for Stream {
    /// The socket must be non-blocking.
    fn from(s: std::net::TcpStream) -> Stream {
        Stream::from_fd(s, true)
    }
}

impl Stream {
    /// The socket; a stream that leads nowhere has none.
    pub(super) fn open(&self) -> io::Result<SockRef<'_>> {
        Ok(SockRef::from(self.socket.as_ref().ok_or(io::ErrorKind::NotConnected)?))
    }

    pub(super) fn receive(&self, buf: &mut Vec<u8>, room: usize, peek: Peek) -> io::Result<usize> {
        buf.reserve(room);
        let flags = if peek == Peek::Yes { MSG_PEEK } else { 0 };
        let spare = &mut buf.spare_capacity_mut()[..room];
        let n = self.received(self.open()?.recv_with_flags(spare, flags))?;
        // SAFETY: the system has written `n` bytes behind what the buffer held.
        unsafe { buf.set_len(buf.len() + n) };
        Ok(n)
    }

    /// Whether something waits to be read, asking the system in any case.
    pub fn peek_now(&self) -> io::Result<usize> {
        self.received(self.open()?.recv_with_flags(&mut [MaybeUninit::uninit(); 1], MSG_PEEK))
    }

    /// Where the receiving half was closed here there is an end instead of a wait or an error.
    fn received(&self, result: io::Result<usize>) -> io::Result<usize> {
        match result {
            Err(e) if self.reads_end.get() && is_end(&e) => Ok(0),
            result => result,
        }
    }

    /// Whether the other side sends no more; what it has sent hides it here.
    pub fn has_ended(&self) -> bool {
        match self.peek_now() {
            Ok(n) => n == 0,
            Err(e) => e.kind() != io::ErrorKind::WouldBlock,
        }
    }

    /// Writes the pieces in one call, without waiting. That more follows is nothing that the system could be told.
    pub fn try_write(&self, pieces: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
        match pieces {
            [one] => self.open()?.send(one),
            _ => self.open()?.send_vectored(pieces),
        }
    }

    /// Sends a range of a file, a piece at a time.
    pub fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        ready!(self.poll_writable(cx))?;
        let mut piece = vec![0; len.min(PIECE_BYTES)];
        let n = crate::files::read_at(file, &mut piece, offset)?;
        self.poll_write(cx, &[IoSlice::new(&piece[..n])], false)
    }

    /// The error that the system has kept for the socket.
    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.as_ref().map_or(Ok(None), |s| SockRef::from(s).take_error())
    }

    fn shutdown(&self, how: Shutdown) {
        // An error (peer gone) needs no answer.
        let _ = self.open().and_then(|s| s.shutdown(how));
    }

    /// Closes the sending half.
    pub fn shutdown_write(&self) {
        self.shutdown(Shutdown::Write);
    }

    /// Ends the connection both ways, for whoever works with it.
    pub fn shutdown_both(&self) {
        self.shutdown(Shutdown::Both);
        self.ended_here(true);
    }

    /// Closes the receiving half, which wakes whoever waits for a request. The system is not told: it would throw away
    /// what has come, and reset the connection for it.
    pub fn shutdown_read(&self) {
        self.ended_here(false);
    }

    pub fn set_nodelay(&self, on: bool) {
        if self.tcp {
            // A socket that is already dead says so on its next read or write.
            let _ = self.open().and_then(|s| s.set_tcp_nodelay(on));
        }
    }

    /// Makes the close reset the connection instead of leaving it in TIME_WAIT.
    pub fn reset_on_close(&self) {
        // As above.
        let _ = self.open().and_then(|s| s.set_linger(Some(Duration::ZERO)));
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self.tcp {
            true => self.open().ok()?.local_addr().ok()?.as_socket(),
            false => None,
        }
    }

    /// Of the other side.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        match self.tcp {
            true => self.open().ok()?.peer_addr().ok()?.as_socket(),
            false => None,
        }
    }

    /// The path a Unix socket is bound to: there are none.
    pub fn local_path(&self) -> Option<std::path::PathBuf> {
        None
    }

    pub fn set_keepalive(&self, on: bool) -> io::Result<()> {
        self.open()?.set_keepalive(on)
    }

    pub fn tcp_info(&self) -> Option<[u32; 4]> {
        None
    }
}

/// What goes from one socket to another without a copy: the system has no call for it.
pub struct Pipe(std::convert::Infallible);

impl Pipe {
    /// There is none.
    pub fn new() -> io::Result<Pipe> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub fn held(&self) -> usize {
        match self.0 {}
    }

    pub fn poll_fill(
        &mut self,
        _: &mut Context<'_>,
        _: &Stream,
        _: usize,
    ) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    pub fn poll_drain(&mut self, _: &mut Context<'_>, _: &Stream) -> Poll<io::Result<usize>> {
        match self.0 {}
    }

    pub fn take_out(&mut self) -> io::Result<Vec<u8>> {
        match self.0 {}
    }
}
