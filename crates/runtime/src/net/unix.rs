//! Sockets on Unix: system calls first, the event loop only when one would block. A connection
//! whose request has arrived by the time it is accepted is answered and closed without ever
//! being registered.

use crate::event_loop::{Watch, Way};
use rustix::io::Errno;
use rustix::net::{RecvFlags, SendFlags};
use std::cell::OnceCell;
use std::fs::File;
use std::io::{self, IoSlice};
use std::net::SocketAddr;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};
use std::task::{ready, Context, Poll};

/// A connected stream socket.
pub struct Stream {
    /// Made when a call first would block. The socket is closed after it, and by that forgotten by the system.
    watch: OnceCell<Watch>,
    /// None for a stream that leads nowhere.
    socket: Option<OwnedFd>,
    tcp: bool,
}

impl From<std::net::TcpStream> for Stream {
    /// The socket must be non-blocking.
    fn from(s: std::net::TcpStream) -> Stream {
        Stream { watch: OnceCell::new(), socket: Some(s.into()), tcp: true }
    }
}

impl From<std::os::unix::net::UnixStream> for Stream {
    /// The socket must be non-blocking.
    fn from(s: std::os::unix::net::UnixStream) -> Stream {
        Stream { watch: OnceCell::new(), socket: Some(s.into()), tcp: false }
    }
}

impl Stream {
    /// Takes a connected, non-blocking socket, accepted here or by another process.
    pub fn from_fd(socket: OwnedFd, tcp: bool) -> Stream {
        Stream { watch: OnceCell::new(), socket: Some(socket), tcp }
    }

    /// A stream that leads nowhere and takes no descriptor: nobody sends, nobody hangs up, and
    /// what reads or writes fails.
    pub fn nowhere() -> Stream {
        Stream { watch: OnceCell::new(), socket: None, tcp: false }
    }

    /// The descriptor, -1 for a stream that leads nowhere: every call on that fails.
    pub fn fd(&self) -> RawFd {
        self.socket.as_ref().map_or(-1, OwnedFd::as_raw_fd)
    }

    /// The socket; a stream that leads nowhere has none.
    pub(super) fn open(&self) -> io::Result<BorrowedFd<'_>> {
        Ok(self.socket.as_ref().ok_or(Errno::BADF)?.as_fd())
    }

    /// Registers the socket with the worker's event loop, for reading at least.
    fn watch(&self) -> io::Result<&Watch> {
        if let Some(watch) = self.watch.get() {
            return Ok(watch);
        }
        if self.socket.is_none() {
            return Err(io::ErrorKind::NotConnected.into());
        }
        let watch = Watch::new(self.fd())?;
        Ok(self.watch.get_or_init(|| watch))
    }

    /// As [`Stream::watch`], for writing too.
    fn watch_writes(&self) -> io::Result<&Watch> {
        let watch = self.watch()?;
        watch.add_writes(self.fd())?;
        Ok(watch)
    }

    /// The socket has been given to another process: this one's event loop hears no more of it, though it
    /// stays open there.
    pub fn leave(&self) {
        self.watch.get().iter().for_each(|w| w.leave(self.fd()));
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
        let watch = match self.watch.get() {
            Some(watch) => watch,
            None => match self.try_read(buf, room) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.watch()?,
                done => return Poll::Ready(done),
            },
        };
        self.poll_read_watched(watch, cx, || self.try_read(buf, room), room)
    }

    /// The same of a socket that is registered.
    #[inline]
    fn poll_read_watched(
        &self,
        watch: &Watch,
        cx: &mut Context<'_>,
        mut read: impl FnMut() -> io::Result<usize>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        loop {
            ready!(watch.poll_ready(Way::Read, cx));
            match read() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => watch.clear(Way::Read),
                Ok(n) => {
                    if n > 0 && n < room {
                        watch.clear_short_read();
                    }
                    return Poll::Ready(Ok(n));
                }
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Waits until there is something to read, then reads it into the buffer that `buf` gives: a
    /// connection that waits needs no buffer.
    pub fn poll_read_lazy<S>(
        &self,
        cx: &mut Context<'_>,
        room: usize,
        slot: &mut S,
        buf: impl Fn(&mut S) -> &mut Vec<u8>,
    ) -> Poll<io::Result<usize>> {
        let watch = self.watch()?;
        self.poll_read_watched(watch, cx, || self.try_read(buf(slot), room), room)
    }

    /// Runs a call that reads, waiting while it would block.
    #[cfg(target_os = "linux")]
    pub(super) fn poll_read_with(
        &self,
        cx: &mut Context<'_>,
        call: impl Fn() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        let watch = self.watch()?;
        loop {
            ready!(watch.poll_ready(Way::Read, cx));
            match call() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => watch.clear(Way::Read),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Waits for a datagram and reads it into the buffer; an empty one is one too.
    pub fn poll_datagram(
        &self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<io::Result<usize>> {
        let watch = self.watch()?;
        loop {
            ready!(watch.poll_ready(Way::Read, cx));
            match self.try_read(buf, room) {
                // Behind a short one there may be more, so only this tells that there is none.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => watch.clear(Way::Read),
                done => return Poll::Ready(done),
            }
        }
    }

    /// The same, once, without waiting.
    pub fn try_read(&self, buf: &mut Vec<u8>, room: usize) -> io::Result<usize> {
        self.receive(buf, room, RecvFlags::empty())
    }

    /// By rustix, as [`Stream::try_write`]: libc's calls are points of cancellation, which costs them three
    /// times the instructions.
    #[inline]
    fn receive(&self, buf: &mut Vec<u8>, room: usize, flags: RecvFlags) -> io::Result<usize> {
        match buf.capacity() {
            // Most answers are read into a fresh one, which is quicker made than grown.
            0 => *buf = Vec::with_capacity(room),
            _ => buf.reserve(room),
        }
        loop {
            let spare = &mut buf.spare_capacity_mut()[..room];
            match rustix::net::recv(self.open()?, spare, flags | RecvFlags::DONTWAIT) {
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

    /// Whether something waits to be read: `Ok(0)` is the end of the stream. Takes nothing, and
    /// asks the kernel only when the event loop has seen something happen.
    pub fn peek(&self) -> io::Result<usize> {
        let watch = self.watch.get();
        if watch.is_some_and(|w| !w.is_ready(Way::Read)) {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let seen = self.peek_now();
        if is_wait(&seen) {
            watch.iter().for_each(|w| w.clear(Way::Read));
        }
        seen
    }

    /// The same, asking the kernel in any case.
    pub fn peek_now(&self) -> io::Result<usize> {
        let flags = RecvFlags::PEEK | RecvFlags::DONTWAIT;
        Ok(rustix::net::recv(self.open()?, &mut [0u8; 1], flags)?.1)
    }

    /// What waits to be read, into the buffer's spare room and without taking it: at most `room` bytes.
    pub fn peek_into(&self, buf: &mut Vec<u8>, room: usize) -> io::Result<usize> {
        self.receive(buf, room, RecvFlags::PEEK)
    }

    /// Whether the other side sends no more, which what it has sent may hide.
    pub fn has_ended(&self) -> bool {
        let mut ask = libc::pollfd { fd: self.fd(), events: libc::POLLRDHUP, revents: 0 };
        // SAFETY: one valid entry, and no waiting.
        unsafe { libc::poll(&mut ask, 1, 0) != 0 }
    }

    /// Ready when a read would not block (data, end or error).
    pub fn poll_readable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.socket.is_none() {
            return Poll::Pending;
        }
        self.watch()?.poll_ready(Way::Read, cx).map(Ok)
    }

    /// Forgets that the socket was readable: a call has found that it is not.
    pub fn not_readable(&self) {
        self.watch.get().iter().for_each(|w| w.clear(Way::Read));
    }

    /// Ready when a write may make progress.
    pub fn poll_writable(&self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch_writes()?.poll_ready(Way::Write, cx).map(Ok)
    }

    /// Runs a call that writes, waiting while it would block.
    ///
    /// Once a call has found no room, the next is made when the event loop has seen room again, and
    /// not whenever the task wakes: the kernel may take a little at any time, and what a timer's
    /// firing lets through is no sign of a client that reads.
    pub(super) fn poll_write_with(
        &self,
        cx: &mut Context<'_>,
        call: impl Fn() -> io::Result<usize>,
    ) -> Poll<io::Result<usize>> {
        // As long as there was room, the event loop need not be asked.
        let mut watch = self.watch_for_writes();
        loop {
            if let Some(watch) = watch {
                ready!(watch.poll_ready(Way::Write, cx));
            }
            match call() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => match watch {
                    Some(watch) => watch.clear(Way::Write),
                    None => watch = Some(self.watch_writes()?),
                },
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }

    /// Writes the pieces in one call, without a task that would wait: nothing is answered when it would
    /// have to, or has had to before.
    pub fn write_at_once(&self, pieces: &[IoSlice<'_>], more: bool) -> Option<io::Result<usize>> {
        if self.watch_for_writes().is_some() {
            return None;
        }
        let is_later = |e: &io::Error| {
            matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted)
        };
        match self.try_write(pieces, more) {
            Err(e) if is_later(&e) => None,
            done => Some(done),
        }
    }

    /// The registration, if it is one for writing.
    fn watch_for_writes(&self) -> Option<&Watch> {
        self.watch.get().filter(|w| w.has_writes())
    }

    /// Writes the pieces in one call; `more` says that further bytes follow at once.
    pub fn poll_write(
        &self,
        cx: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
        more: bool,
    ) -> Poll<io::Result<usize>> {
        self.poll_write_with(cx, || self.try_write(pieces, more))
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

fn is_wait(done: &io::Result<usize>) -> bool {
    done.as_ref().is_err_and(|e| e.kind() == io::ErrorKind::WouldBlock)
}

/// Sets one socket option.
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
