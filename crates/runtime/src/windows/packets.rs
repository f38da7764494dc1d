//! A pair of sockets over which whole messages go, each with a socket or a handle at most: by it two processes hand
//! connections on. Both are sockets of this machine's own address, for pipes here make who sends wait.
//!
//! What goes with a message is made the other process' own when it is sent ([`super::lent`]), for which that has said its
//! number: each message has its sender's.

use super::lent::{self, LENT_BYTES};
use super::sockets::{AsRawFd, OwnedFd, RawFd};
use socket2::SockRef;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::os::windows::io::{AsRawSocket, OwnedSocket};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};
use windows_sys::Win32::Networking::WinSock::{
    WSAPoll, POLLRDNORM, POLLWRNORM, SO_TYPE, WSAPOLLFD,
};

/// No message is longer.
pub const PACKET_MAX_BYTES: usize = 70_000;
/// So much is on its way before who sends is told to wait.
const BUFFER_BYTES: usize = 256 << 10;
/// Mark, length of what follows, sender.
const HEAD_BYTES: usize = 12;
const MARK: u32 = 0x5745_4952;
/// The rest of a message that is begun finds room within this time.
const PATIENCE: Duration = Duration::from_secs(5);
const LOOK_MS: i32 = 100;

/// One end. Several threads may use it at once: messages stay whole.
pub struct Packets(Arc<End>);

struct End {
    socket: TcpStream,
    /// The process at the other end; 0 before it has said anything.
    peer: AtomicU32,
    sends: Mutex<()>,
    /// What has come of the next message.
    begun: Mutex<Vec<u8>>,
}

fn number(from: &[u8]) -> u32 {
    from.first_chunk().map_or(0, |n| u32::from_ne_bytes(*n))
}

/// Both ends.
///
/// # Errors
///
/// The system's.
pub fn pair() -> io::Result<(Packets, Packets)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let near = TcpStream::connect(listener.local_addr()?)?;
    let own = near.local_addr()?;
    loop {
        let (far, from) = listener.accept()?;
        // Anybody may have come.
        if from == own {
            return Ok((Packets::on(near)?, Packets::on(far)?));
        }
    }
}

impl AsRawFd for Packets {
    fn as_raw_fd(&self) -> RawFd {
        self.0.socket.as_raw_socket() as RawFd
    }
}

impl Packets {
    fn on(socket: TcpStream) -> io::Result<Packets> {
        socket.set_nonblocking(true)?;
        socket.set_nodelay(true)?;
        let own = SockRef::from(&socket);
        own.set_recv_buffer_size(BUFFER_BYTES)?;
        own.set_send_buffer_size(BUFFER_BYTES)?;
        Ok(Packets(Arc::new(End {
            socket,
            peer: AtomicU32::new(0),
            sends: Mutex::default(),
            begun: Mutex::default(),
        })))
    }

    /// # Errors
    ///
    /// None.
    pub fn try_clone(&self) -> io::Result<Packets> {
        Ok(Packets(Arc::clone(&self.0)))
    }

    /// What somebody else has given; `None` if it is no socket.
    pub fn of(fd: OwnedFd) -> Option<Packets> {
        lent::ask(fd.as_raw_fd(), SO_TYPE)?;
        Packets::on(TcpStream::from(OwnedSocket::from(fd))).ok()
    }

    /// Another handle, to be handed on.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn to_owned_fd(&self) -> io::Result<OwnedFd> {
        lent::copy(self.as_raw_fd())
    }

    /// Whether something may be done, or the other end is gone, after so many ms at most.
    fn is_ready(&self, events: i16, ms: i32) -> io::Result<bool> {
        let fd = self.0.socket.as_raw_socket() as usize;
        let mut ask = WSAPOLLFD { fd, events, revents: 0 };
        // SAFETY: one valid entry, which outlives the call.
        match unsafe { WSAPoll(&mut ask, 1, ms) } {
            n if n < 0 => Err(io::Error::last_os_error()),
            n => Ok(n > 0),
        }
    }

    /// Sends a message, and something with it. `WouldBlock`: the other side has not read yet, or nobody has said there
    /// that he would.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn send(&self, body: &[u8], fd: Option<RawFd>) -> io::Result<()> {
        let _turn = self.0.sends.lock().unwrap_or_else(PoisonError::into_inner);
        // Looked at before anything is made the other's, for he could not be told to let go of it.
        if !self.is_ready(POLLWRNORM, 0)? {
            return Err(io::ErrorKind::WouldBlock.into());
        }
        let mut frame = vec![0; HEAD_BYTES];
        match fd {
            None => frame.push(0),
            Some(fd) => frame.extend_from_slice(&self.lend(fd)?),
        }
        frame.extend_from_slice(body);
        let len = (frame.len() - HEAD_BYTES) as u32;
        for (at, n) in [MARK, len, std::process::id()].into_iter().enumerate() {
            frame[at * 4..at * 4 + 4].copy_from_slice(&n.to_ne_bytes());
        }
        self.push(&frame).inspect_err(|_| {
            // Nobody could read on behind half a message.
            let _ = self.0.socket.shutdown(Shutdown::Both);
        })
    }

    /// Another process may have taken the place of the one that has died at the other end.
    fn lend(&self, fd: RawFd) -> io::Result<[u8; LENT_BYTES]> {
        let known = self.0.peer.load(Ordering::Relaxed);
        let lent = (known != 0).then(|| lent::lend(fd, known));
        if let Some(Ok(lent)) = lent {
            return Ok(lent);
        }
        let _ = self.try_receive(&mut Vec::new());
        match self.0.peer.load(Ordering::Relaxed) {
            now if now == known => Err(io::ErrorKind::WouldBlock.into()),
            now => lent::lend(fd, now),
        }
    }

    fn push(&self, mut frame: &[u8]) -> io::Result<()> {
        let end = Instant::now() + PATIENCE;
        while !frame.is_empty() {
            match (&self.0.socket).write(frame) {
                Ok(n) => frame = &frame[n..],
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && Instant::now() < end => {
                    self.is_ready(POLLWRNORM, LOOK_MS)?;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Err(e) => return Err(e),
            }
        }
        Ok(())
    }

    /// Waits until there is a message, or no more will come; `false` if that cannot be told.
    pub fn wait_readable(&self) -> bool {
        self.is_ready(POLLRDNORM, -1).is_ok()
    }

    /// The next message if it is there; one without bytes is the end.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn try_receive(&self, body: &mut Vec<u8>) -> io::Result<Option<OwnedFd>> {
        body.clear();
        let mut begun = self.0.begun.lock().unwrap_or_else(PoisonError::into_inner);
        let is_whole =
            self.fill(&mut begun, HEAD_BYTES)? && number(&begun) == MARK && number(&begun[4..]) > 0;
        let len = HEAD_BYTES + if is_whole { number(&begun[4..]) as usize } else { 0 };
        if !is_whole || len > HEAD_BYTES + LENT_BYTES + PACKET_MAX_BYTES {
            return Ok(None);
        }
        if !self.fill(&mut begun, len)? {
            return Ok(None);
        }
        self.0.peer.store(number(&begun[8..]), Ordering::Relaxed);
        let frame = std::mem::take(&mut *begun);
        let rest = &frame[HEAD_BYTES..];
        let own = if rest[0] == 0 { 1 } else { LENT_BYTES.min(rest.len()) };
        body.extend_from_slice(&rest[own..]);
        if own == 1 {
            return Ok(None);
        }
        lent::take(&rest[..own]).map(Some)
    }

    /// Reads until there is so much, and not more; `false` at the end.
    fn fill(&self, to: &mut Vec<u8>, len: usize) -> io::Result<bool> {
        let mut have = to.len();
        while have < len {
            to.resize(len, 0);
            let read = (&self.0.socket).read(&mut to[have..]);
            to.truncate(have + *read.as_ref().unwrap_or(&0));
            match read? {
                0 => return Ok(false),
                n => have += n,
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_stay_whole_and_carry_sockets() {
        let (a, b) = pair().unwrap();
        let mut body = Vec::new();
        let waits = |e: io::Error| e.kind() == io::ErrorKind::WouldBlock;
        assert!(b.try_receive(&mut body).is_err_and(waits));
        b.send(b"ready", None).unwrap();
        a.send(b"one", None).unwrap();
        assert!(a.wait_readable() && a.try_receive(&mut body).unwrap().is_none());
        a.send(b"two", Some(a.as_raw_fd())).unwrap();
        assert!(b.wait_readable() && b.try_receive(&mut body).unwrap().is_none());
        assert_eq!(body, b"one");
        while b.try_receive(&mut body).is_err_and(waits) {}
        assert_eq!(body, b"two");
        let large = [7; PACKET_MAX_BYTES];
        let sent = (0..100).take_while(|_| a.send(&large, None).is_ok()).count();
        assert!((1..100).contains(&sent));
    }
}
