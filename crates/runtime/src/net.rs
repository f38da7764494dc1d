//! Connected sockets: one type for TCP and Unix streams, with the few calls the request path
//! makes, each without an extra system call.

use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
#[cfg(unix)]
use std::os::fd::{AsRawFd, RawFd};
use std::task::{ready, Context, Poll};
use tokio::io::Interest;
use tokio::net::TcpStream;
#[cfg(unix)]
use tokio::net::UnixStream;

/// A connected stream socket, watched by the worker's event loop.
pub enum Stream {
    Tcp(TcpStream),
    #[cfg(unix)]
    Unix(UnixStream),
}

macro_rules! both {
    ($self:expr, $s:ident => $e:expr) => {
        match $self {
            Stream::Tcp($s) => $e,
            #[cfg(unix)]
            Stream::Unix($s) => $e,
        }
    };
}

impl Stream {
    #[cfg(unix)]
    pub fn fd(&self) -> RawFd {
        both!(self, s => s.as_raw_fd())
    }

    /// Reads into the buffer's spare room, at most `room` bytes more; 0 is the end of the stream.
    ///
    /// A read that does not fill the room has drained the socket, so its readiness is cleared at
    /// once and the next poll waits for the kernel instead of asking it again.
    pub fn poll_read(
        &self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(both!(self, s => s.poll_read_ready(cx)))?;
            match self.try_read(buf, room) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                done => return Poll::Ready(done),
            }
        }
    }

    /// The same, once, without waiting.
    #[cfg(unix)]
    pub fn try_read(&self, buf: &mut Vec<u8>, room: usize) -> io::Result<usize> {
        buf.reserve(room);
        let start = buf.len();
        let fd = self.fd();
        let mut got: io::Result<usize> = Err(io::ErrorKind::WouldBlock.into());
        let tried = both!(self, s => s.try_io(Interest::READABLE, || {
            // SAFETY: `reserve` left at least `room` bytes behind `start`; the kernel writes at
            // most `room` bytes there.
            let n = unsafe {
                libc::recv(fd, buf.as_mut_ptr().add(start).cast(), room, 0)
            };
            if n < 0 {
                return Err(io::Error::last_os_error());
            }
            let n = n as usize;
            got = Ok(n);
            if n > 0 && n < room { Err(io::ErrorKind::WouldBlock.into()) } else { Ok(()) }
        }));
        if let Ok(n) = got {
            // SAFETY: the kernel has written `n` bytes behind `start`.
            unsafe { buf.set_len(start + n) };
            return Ok(n);
        }
        Err(tried.err().unwrap_or_else(|| io::ErrorKind::WouldBlock.into()))
    }

    #[cfg(not(unix))]
    pub fn try_read(&self, buf: &mut Vec<u8>, room: usize) -> io::Result<usize> {
        let start = buf.len();
        buf.resize(start + room, 0);
        let got = both!(self, s => s.try_read(&mut buf[start..]));
        buf.truncate(start + *got.as_ref().unwrap_or(&0));
        got
    }

    /// Whether something waits to be read: `Some(0)` is the end of the stream. Takes nothing.
    #[cfg(unix)]
    pub fn peek(&self) -> io::Result<usize> {
        both!(self, s => s.try_io(Interest::READABLE, || self.peek_now()))
    }

    /// The same, asking the kernel even when the event loop has seen nothing happen.
    #[cfg(unix)]
    pub fn peek_now(&self) -> io::Result<usize> {
        let mut byte = 0u8;
        // SAFETY: one byte of room, one byte asked for.
        let n = unsafe {
            let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
            libc::recv(self.fd(), (&raw mut byte).cast(), 1, flags)
        };
        if n < 0 {
            Err(io::Error::last_os_error())
        } else {
            Ok(n as usize)
        }
    }

    #[cfg(not(unix))]
    pub fn peek_now(&self) -> io::Result<usize> {
        self.peek()
    }

    #[cfg(not(unix))]
    pub fn peek(&self) -> io::Result<usize> {
        Err(io::ErrorKind::WouldBlock.into())
    }

    /// Ready when a read would not block (data, end or error).
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        both!(self, s => s.poll_read_ready(cx))
    }

    /// Ready when a write may make progress.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        both!(self, s => s.poll_write_ready(cx))
    }

    /// Writes the pieces in one call; `more` says that further bytes follow at once.
    pub fn poll_write(
        &self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(both!(self, s => s.poll_write_ready(cx)))?;
            match self.try_write(pieces, more) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                done => return Poll::Ready(done),
            }
        }
    }

    #[cfg(unix)]
    pub fn try_write(&self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let fd = self.fd();
        let mut flags = libc::MSG_NOSIGNAL;
        if more && cfg!(target_os = "linux") {
            flags |= libc::MSG_MORE;
        }
        both!(self, s => s.try_io(Interest::WRITABLE, || {
            let n = if let [one] = pieces {
                // SAFETY: the slice is valid for its length.
                unsafe { libc::send(fd, one.as_ptr().cast(), one.len(), flags) }
            } else {
                // SAFETY: `msghdr` is plain data for which all zeroes is valid; `IoSlice` has the
                // layout of `iovec`; the kernel only reads through it.
                unsafe {
                    let mut msg: libc::msghdr = std::mem::zeroed();
                    msg.msg_iov = pieces.as_ptr() as *mut libc::iovec;
                    msg.msg_iovlen = pieces.len() as _;
                    libc::sendmsg(fd, &msg, flags)
                }
            };
            if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
        }))
    }

    #[cfg(not(unix))]
    pub fn try_write(&self, pieces: &[IoSlice<'_>], _more: bool) -> io::Result<usize> {
        both!(self, s => s.try_write_vectored(pieces))
    }

    /// Sends a range of a file without copying it through this process.
    #[cfg(target_os = "linux")]
    pub fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        let (fd, from) = (self.fd(), file.as_raw_fd());
        loop {
            ready!(both!(self, s => s.poll_write_ready(cx)))?;
            let sent = both!(self, s => s.try_io(Interest::WRITABLE, || {
                let mut at = offset as libc::off_t;
                // SAFETY: both descriptors are open for the call; `at` is valid.
                let n = unsafe { libc::sendfile(fd, from, &mut at, len) };
                if n < 0 { Err(io::Error::last_os_error()) } else { Ok(n as usize) }
            }));
            match sent {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => continue,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                done => return Poll::Ready(done),
            }
        }
    }

    /// Closes the sending half.
    pub fn shutdown_write(&self) {
        #[cfg(unix)]
        // SAFETY: the descriptor is open; an error (peer gone) needs no answer.
        unsafe {
            libc::shutdown(self.fd(), libc::SHUT_WR);
        }
    }

    /// Closes the receiving half, which wakes whoever waits for a request.
    pub fn shutdown_read(&self) {
        #[cfg(unix)]
        // SAFETY: the descriptor is open; an error (peer gone) needs no answer.
        unsafe {
            libc::shutdown(self.fd(), libc::SHUT_RD);
        }
    }

    pub fn set_nodelay(&self, on: bool) {
        if let Stream::Tcp(s) = self {
            // A socket that is already dead says so on its next read or write.
            let _ = s.set_nodelay(on);
        }
    }

    /// Makes the close reset the connection instead of leaving it in TIME_WAIT.
    pub fn reset_on_close(&self) {
        #[cfg(unix)]
        set_option(
            self.fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            &libc::linger { l_onoff: 1, l_linger: 0 },
        )
        .ok();
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        match self {
            Stream::Tcp(s) => s.local_addr().ok(),
            #[cfg(unix)]
            Stream::Unix(_) => None,
        }
    }

    /// The path a Unix socket is bound to.
    #[cfg(unix)]
    pub fn local_path(&self) -> Option<std::path::PathBuf> {
        match self {
            Stream::Tcp(_) => None,
            Stream::Unix(s) => s.local_addr().ok()?.as_pathname().map(|p| p.to_path_buf()),
        }
    }

    #[cfg(unix)]
    pub fn set_keepalive(&self, on: bool) -> io::Result<()> {
        set_option(self.fd(), libc::SOL_SOCKET, libc::SO_KEEPALIVE, &libc::c_int::from(on))
    }

    /// Round-trip time, its variance, congestion window and receive space, as `$tcpinfo_*` has them.
    #[cfg(target_os = "linux")]
    pub fn tcp_info(&self) -> Option<[u32; 4]> {
        let Stream::Tcp(s) = self else { return None };
        // SAFETY: `tcp_info` is plain data; all zeroes is valid.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = std::mem::size_of_val(&info) as libc::socklen_t;
        // SAFETY: the pointer and length describe `info`.
        let rc = unsafe {
            libc::getsockopt(
                s.as_raw_fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &mut len,
            )
        };
        (rc == 0).then_some([info.tcpi_rtt, info.tcpi_rttvar, info.tcpi_snd_cwnd, info.tcpi_rcv_space])
    }
}

/// Sets one socket option.
#[cfg(unix)]
pub(crate) fn set_option<T>(fd: RawFd, level: i32, name: i32, value: &T) -> io::Result<()> {
    // SAFETY: the pointer and length describe `value`, which the kernel only reads.
    let rc = unsafe {
        libc::setsockopt(
            fd,
            level,
            name,
            (value as *const T).cast(),
            std::mem::size_of::<T>() as libc::socklen_t,
        )
    };
    if rc == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
