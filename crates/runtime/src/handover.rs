//! Messages with descriptors between the master and the serving process, over a socket pair.
//!
//! Windows: a pipe that is the other's standard input; a descriptor is a socket or a handle that is duplicated into it.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::time::{Duration, Instant};

/// Descriptors sent in one system call (the kernel's own bound is 253).
const FDS_PER_CALL: usize = 200;

/// What a message may be, and until when it must be there. Looked at before room is made for it.
pub struct Bounds {
    pub body_max_bytes: u64,
    pub fds_max: u64,
    /// Of the whole message; `None` waits as long as it takes.
    pub deadline: Option<Instant>,
}

/// Between the processes of one program.
const TRUSTED: Bounds = Bounds { body_max_bytes: 1 << 30, fds_max: 1 << 20, deadline: None };

/// A message on its way: what is sent of it, and what waits until the other side reads.
struct Parcel {
    /// Lengths, then the body; the descriptors travel between the two.
    bytes: Vec<u8>,
    sent_bytes: usize,
    fds: Vec<OwnedFd>,
    sent_fds: usize,
    class: u8,
}

const HEAD_BYTES: usize = 16;

impl Parcel {
    /// `Ok(true)`: all of it is sent.
    fn push(&mut self, to: &UnixStream) -> io::Result<bool> {
        let mut socket = to;
        loop {
            let until = if self.sent_bytes < HEAD_BYTES { HEAD_BYTES } else { self.bytes.len() };
            let result = if self.sent_bytes == HEAD_BYTES && self.sent_fds < self.fds.len() {
                let end = self.fds.len().min(self.sent_fds + FDS_PER_CALL);
                let part: Vec<RawFd> =
                    self.fds[self.sent_fds..end].iter().map(AsRawFd::as_raw_fd).collect();
                send_fds(to, &part).map(|()| self.sent_fds = end)
            } else if self.sent_bytes == until {
                return Ok(true);
            } else {
                let result = socket.write(&self.bytes[self.sent_bytes..until]);
                result.map(|n| self.sent_bytes += n)
            };
            match result {
                Ok(()) => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(false),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }
}

/// The sending side, which never waits: a process that does not read must not stop the other.
pub struct Outbox {
    link: UnixStream,
    queue: std::collections::VecDeque<Parcel>,
}

impl Outbox {
    pub fn new(link: UnixStream) -> io::Result<Outbox> {
        link.set_nonblocking(true)?;
        Ok(Outbox { link, queue: Default::default() })
    }

    /// Says which process is at the other end, which Windows must know.
    pub fn goes_to(&mut self, _: i32) {}

    /// Queues a body and descriptors, and sends what can be sent. A message makes earlier ones of
    /// its class needless, if they are not yet begun: who does not read piles nothing up.
    pub fn send(&mut self, body: &[u8], fds: Vec<OwnedFd>, class: u8) -> io::Result<()> {
        self.queue.retain(|p| p.sent_bytes > 0 || p.class != class);
        let mut bytes = Vec::with_capacity(HEAD_BYTES + body.len());
        bytes.extend_from_slice(&(body.len() as u64).to_ne_bytes());
        bytes.extend_from_slice(&(fds.len() as u64).to_ne_bytes());
        bytes.extend_from_slice(body);
        self.queue.push_back(Parcel { bytes, sent_bytes: 0, fds, sent_fds: 0, class });
        self.flush()
    }

    /// Sends on; call it when [`Outbox::waits`] gives a descriptor and that is writable.
    pub fn flush(&mut self) -> io::Result<()> {
        while let Some(first) = self.queue.front_mut() {
            match first.push(&self.link) {
                Ok(true) => drop(self.queue.pop_front()),
                Ok(false) => return Ok(()),
                Err(e) => {
                    self.queue.clear();
                    return Err(e);
                }
            }
        }
        Ok(())
    }

    /// What to wait for, while there is something to send.
    pub fn waits(&self) -> Option<RawFd> {
        (!self.queue.is_empty()).then(|| self.link.as_raw_fd())
    }
}

/// Whether [`receive`] would find something.
pub fn has_message(from: &UnixStream) -> bool {
    let mut ask = libc::pollfd { fd: from.as_raw_fd(), events: libc::POLLIN, revents: 0 };
    // SAFETY: one valid entry, and no waiting.
    unsafe { libc::poll(&mut ask, 1, 0) > 0 && ask.revents & libc::POLLIN != 0 }
}

/// Connects to an abstract name; waits so long at most for the one who listens there.
#[cfg(target_os = "linux")]
pub fn connect_abstract(name: &[u8], patience: Duration) -> io::Result<UnixStream> {
    use socket2::{Domain, SockAddr, Socket, Type};
    let path = [b"\0", name].concat();
    let socket = Socket::new(Domain::UNIX, Type::STREAM, None)?;
    // The kernel's time for sending is that for a place in a full queue, too.
    socket.set_write_timeout(Some(patience))?;
    socket.connect(&SockAddr::unix(crate::paths::path(&path))?)?;
    Ok(OwnedFd::from(socket).into())
}

/// Receives what [`Outbox::send`] sent.
pub fn receive(from: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    receive_within(from, &TRUSTED)
}

/// The same of somebody who may be slow, or promise more than he should.
pub fn receive_within(from: &UnixStream, bounds: &Bounds) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    let mut head = [0u8; HEAD_BYTES];
    fill(from, &mut head, bounds)?;
    let (len, count) = head.split_at(HEAD_BYTES / 2);
    let number = |b: &[u8]| b.try_into().map(u64::from_ne_bytes).unwrap_or(u64::MAX);
    let (len, count) = (number(len), number(count));
    if len > bounds.body_max_bytes || count > bounds.fds_max {
        return Err(io::Error::other("a message of impossible length"));
    }
    let count = count as usize;
    let mut fds = Vec::with_capacity(count.min(4096));
    while fds.len() < count {
        await_more(from, bounds)?;
        receive_fds(from, &mut fds)?;
    }
    if fds.len() > count {
        return Err(io::Error::other("a message with more descriptors than it says"));
    }
    let mut body = vec![0; len as usize];
    fill(from, &mut body, bounds)?;
    Ok((body, fds))
}

/// The next call that reads waits no longer than until the deadline.
fn await_more(from: &UnixStream, bounds: &Bounds) -> io::Result<()> {
    let Some(deadline) = bounds.deadline else { return Ok(()) };
    let left = deadline.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(io::ErrorKind::TimedOut.into());
    }
    from.set_read_timeout(Some(left))
}

fn fill(from: &UnixStream, mut room: &mut [u8], bounds: &Bounds) -> io::Result<()> {
    let mut from_socket = from;
    while !room.is_empty() {
        await_more(from, bounds)?;
        match from_socket.read(room) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(n) => room = &mut room[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

fn control_space(n: usize) -> usize {
    // SAFETY: a computation on a number.
    unsafe { libc::CMSG_SPACE((n * std::mem::size_of::<RawFd>()) as u32) as usize }
}

fn send_fds(to: &UnixStream, fds: &[RawFd]) -> io::Result<()> {
    let mut byte = [1u8];
    let mut control = vec![0u64; control_space(fds.len()).div_ceil(8)];
    // SAFETY: every pointer refers to a local that outlives the call; the control buffer is
    // aligned and large enough for one header and the descriptors, as CMSG_SPACE computed.
    let n = unsafe {
        let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut msg: libc::msghdr = std::mem::zeroed();
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = control_space(fds.len()) as _;
        let header = libc::CMSG_FIRSTHDR(&msg);
        (*header).cmsg_level = libc::SOL_SOCKET;
        (*header).cmsg_type = libc::SCM_RIGHTS;
        (*header).cmsg_len = libc::CMSG_LEN(std::mem::size_of_val(fds) as u32) as _;
        std::ptr::copy_nonoverlapping(
            fds.as_ptr().cast(),
            libc::CMSG_DATA(header),
            std::mem::size_of_val(fds),
        );
        libc::sendmsg(to.as_raw_fd(), &msg, libc::MSG_NOSIGNAL)
    };
    match n {
        1 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

fn receive_fds(from: &UnixStream, out: &mut Vec<OwnedFd>) -> io::Result<()> {
    let mut byte = [0u8];
    let space = control_space(FDS_PER_CALL);
    let mut control = vec![0u64; space.div_ceil(8)];
    // SAFETY: as in `send_fds`; the kernel fills the control buffer within the given length, and
    // every descriptor in it is new and owned by nobody else.
    unsafe {
        let mut iov = libc::iovec { iov_base: byte.as_mut_ptr().cast(), iov_len: 1 };
        let mut msg: libc::msghdr = std::mem::zeroed();
        msg.msg_iov = &mut iov;
        msg.msg_iovlen = 1;
        msg.msg_control = control.as_mut_ptr().cast();
        msg.msg_controllen = space as _;
        let n = libc::recvmsg(from.as_raw_fd(), &mut msg, libc::MSG_CMSG_CLOEXEC);
        if n < 0 {
            return Err(io::Error::last_os_error());
        }
        let header = libc::CMSG_FIRSTHDR(&msg);
        if n == 0 || header.is_null() || (*header).cmsg_type != libc::SCM_RIGHTS {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let bytes = (*header).cmsg_len as usize - libc::CMSG_LEN(0) as usize;
        let data = libc::CMSG_DATA(header).cast::<RawFd>();
        for i in 0..bytes / std::mem::size_of::<RawFd>() {
            out.push(OwnedFd::from_raw_fd(std::ptr::read_unaligned(data.add(i))));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn received(bytes: &[u8]) -> io::Result<Vec<u8>> {
        let (mut ours, theirs) = UnixStream::pair()?;
        ours.write_all(bytes)?;
        drop(ours);
        receive(&theirs).map(|(body, _)| body)
    }

    #[test]
    fn a_message_that_is_cut_is_an_error() {
        let number = |n: u64| n.to_ne_bytes();
        let whole = [&number(4)[..], &number(0), b"body"].concat();
        assert_eq!(received(&whole).unwrap(), b"body");
        assert!((0..whole.len()).all(|cut| received(&whole[..cut]).is_err()));
        // Descriptors that are only promised, and a length that cannot be.
        assert!(received(&[&number(4)[..], &number(u64::MAX), b"body"].concat()).is_err());
        assert!(received(&[number(u64::MAX), number(0)].concat()).is_err());
    }

    #[test]
    fn no_descriptor_comes_unannounced() {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let fds = [ours.as_raw_fd(), theirs.as_raw_fd()];
        (&ours).write_all(&[0u64.to_ne_bytes(), 1u64.to_ne_bytes()].concat()).unwrap();
        send_fds(&ours, &fds).unwrap();
        assert!(receive(&theirs).is_err());
    }
}
