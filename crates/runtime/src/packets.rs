//! A pair of sockets over which whole messages go, each with a descriptor at most: by it two
//! processes hand connections on. Sending never waits.
//!
//! Windows: sockets of the machine's own address, by which a socket is what `WSADuplicateSocket` makes of it.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// No message is longer.
pub const PACKET_MAX_BYTES: usize = 70_000;

/// One end. Several threads, or processes, may use it at once: messages stay whole.
pub struct Packets(OwnedFd);

/// Room for one descriptor, and its alignment.
type Control = [u64; 4];

/// Both ends.
pub fn pair() -> io::Result<(Packets, Packets)> {
    let mut fds = [0; 2];
    let kind = libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC;
    // SAFETY: the array has room for the two descriptors, which nobody else owns.
    unsafe {
        if libc::socketpair(libc::AF_UNIX, kind, 0, fds.as_mut_ptr()) < 0 {
            return Err(io::Error::last_os_error());
        }
        Ok((Packets(OwnedFd::from_raw_fd(fds[0])), Packets(OwnedFd::from_raw_fd(fds[1]))))
    }
}

impl AsRawFd for Packets {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl Packets {
    pub fn try_clone(&self) -> io::Result<Packets> {
        self.0.try_clone().map(Packets)
    }

    /// A descriptor that somebody else has given; `None` if it is of another kind.
    pub fn of(fd: OwnedFd) -> Option<Packets> {
        (kind_of(fd.as_raw_fd()) == Some(libc::SOCK_SEQPACKET)).then_some(Packets(fd))
    }

    /// Another handle, to be handed on.
    pub fn to_owned_fd(&self) -> io::Result<OwnedFd> {
        self.0.try_clone()
    }

    /// Sends a message and a descriptor with it. `WouldBlock`: the other side has not read yet.
    pub fn send(&self, body: &[u8], fd: Option<RawFd>) -> io::Result<()> {
        let mut control: Control = [0; 4];
        // SAFETY: every pointer refers to what outlives the call; the control buffer is aligned,
        // and larger than one header with one descriptor.
        let n = unsafe {
            let base = body.as_ptr().cast_mut().cast();
            let mut iov = libc::iovec { iov_base: base, iov_len: body.len() };
            let mut msg: libc::msghdr = std::mem::zeroed();
            msg.msg_iov = &mut iov;
            msg.msg_iovlen = 1;
            if let Some(fd) = fd {
                let size = std::mem::size_of::<RawFd>() as u32;
                msg.msg_control = control.as_mut_ptr().cast();
                msg.msg_controllen = libc::CMSG_SPACE(size) as _;
                let header = libc::CMSG_FIRSTHDR(&msg);
                (*header).cmsg_level = libc::SOL_SOCKET;
                (*header).cmsg_type = libc::SCM_RIGHTS;
                (*header).cmsg_len = libc::CMSG_LEN(size) as _;
                std::ptr::write_unaligned(libc::CMSG_DATA(header).cast(), fd);
            }
            libc::sendmsg(self.as_raw_fd(), &msg, libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT)
        };
        match n < 0 {
            true => Err(io::Error::last_os_error()),
            false => Ok(()),
        }
    }

    /// Waits until there is a message, or no more will come; `false` if that cannot be told.
    pub fn wait_readable(&self) -> bool {
        let mut ask = libc::pollfd { fd: self.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry, which outlives the call.
        let n = unsafe { libc::poll(&mut ask, 1, -1) };
        n > 0 || io::Error::last_os_error().kind() == io::ErrorKind::Interrupted
    }

    /// The next message if it is there; one without bytes is the end.
    pub fn try_receive(&self, body: &mut Vec<u8>) -> io::Result<Option<OwnedFd>> {
        self.receive_with(body, libc::MSG_DONTWAIT)
    }

    fn receive_with(&self, body: &mut Vec<u8>, flags: i32) -> io::Result<Option<OwnedFd>> {
        body.resize(PACKET_MAX_BYTES, 0);
        let mut control: Control = [0; 4];
        // SAFETY: as in `send`; the kernel fills both buffers within the given lengths, and a
        // descriptor in the control buffer is new and owned by nobody else.
        let (n, fd) = unsafe {
            let mut iov = libc::iovec { iov_base: body.as_mut_ptr().cast(), iov_len: body.len() };
            let mut msg: libc::msghdr = std::mem::zeroed();
            msg.msg_iov = &mut iov;
            msg.msg_iovlen = 1;
            msg.msg_control = control.as_mut_ptr().cast();
            msg.msg_controllen = libc::CMSG_SPACE(std::mem::size_of::<RawFd>() as u32) as _;
            let n = libc::recvmsg(self.as_raw_fd(), &mut msg, flags | libc::MSG_CMSG_CLOEXEC);
            let header = if n < 0 { std::ptr::null_mut() } else { libc::CMSG_FIRSTHDR(&msg) };
            let fd = (!header.is_null() && (*header).cmsg_type == libc::SCM_RIGHTS).then(|| {
                OwnedFd::from_raw_fd(std::ptr::read_unaligned(libc::CMSG_DATA(header).cast()))
            });
            (n, fd)
        };
        if n < 0 {
            body.clear();
            return Err(io::Error::last_os_error());
        }
        body.truncate(n as usize);
        Ok(fd)
    }
}

/// Which kind of socket has this number, if one has.
fn kind_of(fd: RawFd) -> Option<libc::c_int> {
    let mut kind: libc::c_int = 0;
    let mut len = std::mem::size_of_val(&kind) as libc::socklen_t;
    let value = (&raw mut kind).cast();
    // SAFETY: the value and its length are valid for the call, which takes any number for `fd`.
    let rc = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_TYPE, value, &mut len) };
    (rc == 0).then_some(kind)
}

/// The end that an older program has left open under this number, which came with the environment;
/// `None` if it is none.
pub(crate) fn inherit(fd: RawFd) -> Option<Packets> {
    if fd <= 2 || kind_of(fd) != Some(libc::SOCK_SEQPACKET) || !crate::listen::claim(fd) {
        return None;
    }
    // SAFETY: it is an open socket, not one that this program has opened, and is given out once.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    crate::process::set_cloexec(fd.as_raw_fd(), true).ok()?;
    Some(Packets(fd))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_whole_and_carry_descriptors() {
        let (a, b) = pair().unwrap();
        a.send(b"one", None).unwrap();
        a.send(b"two", Some(0)).unwrap();
        let mut body = Vec::new();
        assert!(b.try_receive(&mut body).unwrap().is_none());
        assert_eq!(body, b"one");
        assert!(b.try_receive(&mut body).unwrap().is_some());
        assert_eq!(body, b"two");
        assert_eq!(b.try_receive(&mut body).unwrap_err().kind(), io::ErrorKind::WouldBlock);
        drop(a);
        assert!(b.try_receive(&mut body).unwrap().is_none());
        assert!(body.is_empty());
    }
}
