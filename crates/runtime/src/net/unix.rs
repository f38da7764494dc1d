//! The calls on connected sockets on Unix.

use super::stream::{Peek, Stream};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd};
use std::task::{Context, Poll};

pub(super) use std::os::fd::{OwnedFd as Owned, RawFd as Raw};

/// What a stream has for a descriptor that leads nowhere: every call on it fails.
pub(super) const NOWHERE: Raw = -1;

pub(super) fn raw(socket: &Owned) -> Raw {
    socket.as_raw_fd()
}

impl From<std::net::TcpStream> for Stream {
    /// The socket must be non-blocking.
    fn from(s: std::net::TcpStream) -> Stream {
        Stream::from_fd(s, true)
    }
}

impl From<std::os::unix::net::UnixStream> for Stream {
    /// The socket must be non-blocking.
    fn from(s: std::os::unix::net::UnixStream) -> Stream {
        Stream::from_fd(s, false)
    }
}

impl Stream {
    /// The socket; a stream that leads nowhere has none.
    pub(super) fn open(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.socket.as_ref().ok_or(Errno::BADF)?.as_fd())
    }

    /// By rustix, as [`Stream::try_write`]: libc's calls are points of cancellation, which costs them three
    /// times the instructions.
    #[inline]
    pub(super) fn receive(&self, buf: &mut Vec<u8>, room: usize, peek: Peek) -> io::Result<usize> {
        match buf.capacity() {
            // Most answers are read into a fresh one, which is quicker made than grown.
            0 => *buf = Vec::with_capacity(room),
            _ => buf.reserve(room),
        }
        let mut flags = RecvFlags::DONTWAIT;
        flags.set(RecvFlags::PEEK, peek == Peek::Yes);
        loop {
            let spare = &mut buf.spare_capacity_mut()[..room];
            match rustix::net::recv(self.open()?, spare, flags) {
                Ok(((text, _), _)) => {
                    let n = text.len();
                    // SAFETY: the kernel has written `n` bytes behind what the buffer held.
                    unsafe { buf.set_len(buf.len() + n) };
                    return Ok(n);
                }
                Err(Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
        }
    }

    /// The same, asking the kernel in any case.
    pub fn peek_now(&self) -> io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        Ok(rustix::net::recv(self.open()?, &mut [0u8; 1], flags)?.1)
    }

    /// Whether the other side sends no more, which what it has sent may hide.
    pub fn has_ended(&self) -> bool {
        let mut ask = libc::pollfd { fd: self.fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one valid entry, and no waiting.
        unsafe { libc::poll(&mut ask, 1, 0) != 0 }
    }

    /// The same, once, without waiting.
    pub fn try_write(&self, pieces: &[IoSlice<'_>], more: bool) -> io::Result<usize> {
        let mut flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
        #[cfg(target_os = "linux")]
        flags.set(SendFlags::MORE, more);
        let sent = match pieces {
            [one] => rustix::net::send(self.open()?, one, flags),
            _ => rustix::net::sendmsg(self.open()?, pieces, &mut Default::default(), flags),
        };
        Ok(sent?)
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
        self.poll_write_with(cx, || {
            let mut at = offset as libc::off_t;
            // SAFETY: both descriptors are open for the call; `at` is valid.
            let n = unsafe { libc::sendfile(fd, from, &mut at, len) };
            if n < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(n as usize)
            }
        })
    }

    /// The same where the system has no call for it: through a buffer, a piece at a time.
    #[cfg(not(target_os = "linux"))]
    pub fn poll_sendfile(
        &self,
        cx: &mut Context<'_>,
        file: &File,
        offset: u64,
        len: usize,
    ) -> Poll<io::Result<usize>> {
        std::task::ready!(self.poll_writable(cx))?;
        let mut piece = [0; 16 * 1024];
        let room = len.min(piece.len());
        let n = crate::files::read_at(file, &mut piece[..room], offset)?;
        self.poll_write(cx, &[IoSlice::new(&piece[..n])], false)
    }

    /// The error that the kernel has kept for the socket.
    pub(super) fn take_error(&self) -> io::Result<Option<io::Error>> {
        self.socket.as_ref().map_or(Ok(None), |s| socket2::SockRef::from(s).take_error())
    }

    fn shutdown(&self, how: libc::c_int) {
        // SAFETY: the descriptor is open; an error (peer gone) needs no answer.
        unsafe {
            libc::shutdown(self.fd(), how);
        }
    }

    /// Closes the sending half.
    pub fn shutdown_write(&self) {
        self.shutdown(libc::SHUT_WR);
    }

    /// Ends the connection both ways, for whoever works with it.
    pub fn shutdown_both(&self) {
        self.shutdown(libc::SHUT_RDWR);
    }

    /// Closes the receiving half, which wakes whoever waits for a request.
    pub fn shutdown_read(&self) {
        self.shutdown(libc::SHUT_RD);
    }

    pub fn set_nodelay(&self, on: bool) {
        if self.tcp {
            // A socket that is already dead says so on its next read or write.
            let value = libc::c_int::from(on);
            let _ = set_option(self.fd(), libc::IPPROTO_TCP, libc::TCP_NODELAY, &value);
        }
    }

    /// Makes the close reset the connection instead of leaving it in TIME_WAIT.
    pub fn reset_on_close(&self) {
        let linger = libc::linger { l_onoff: 1, l_linger: 0 };
        // As above.
        let _ = set_option(self.fd(), libc::SOL_SOCKET, libc::SO_LINGER, &linger);
    }

    pub fn local_addr(&self) -> Option<SocketAddr> {
        if !self.tcp {
            return None;
        }
        socket2::SockRef::from(self.socket.as_ref()?).local_addr().ok()?.as_socket()
    }

    /// The other side's.
    pub fn peer_addr(&self) -> Option<SocketAddr> {
        if !self.tcp {
            return None;
        }
        socket2::SockRef::from(self.socket.as_ref()?).peer_addr().ok()?.as_socket()
    }

    /// The path a Unix socket is bound to.
    pub fn local_path(&self) -> Option<std::path::PathBuf> {
        let addr = socket2::SockRef::from(self.socket.as_ref()?).local_addr().ok()?;
        addr.as_pathname().map(|p| p.to_path_buf())
    }

    /// Round-trip time, its variance, congestion window and receive space, as `$tcpinfo_*` has them.
    #[cfg(target_os = "linux")]
    pub fn tcp_info(&self) -> Option<[u32; 4]> {
        if !self.tcp {
            return None;
        }
        // SAFETY: `tcp_info` is plain data; all zeroes is valid.
        let mut info: libc::tcp_info = unsafe { std::mem::zeroed() };
        let mut len = std::mem::size_of_val(&info) as libc::socklen_t;
        // SAFETY: the pointer and length describe `info`.
        let rc = unsafe {
            libc::getsockopt(
                self.fd(),
                libc::IPPROTO_TCP,
                libc::TCP_INFO,
                (&raw mut info).cast(),
                &mut len,
            )
        };
        (rc == 0).then_some([
            info.tcpi_rtt,
            info.tcpi_rttvar,
            info.tcpi_snd_cwnd,
            info.tcpi_rcv_space,
        ])
    }

    #[cfg(not(target_os = "linux"))]
    pub fn tcp_info(&self) -> Option<[u32; 4]> {
        None
    }
}

/// Sets one socket option.
pub(crate) fn set_option<T>(fd: Raw, level: i32, name: i32, value: &T) -> io::Result<()> {
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
