//! Bytes that go from one socket to another within the kernel.

use super::Stream;
use rustix::io::Errno;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll};

/// Bytes that a pipe is asked to hold. It holds so many only in whole pages, and what a socket has is in
/// pieces of one packet each.
const PIPE_BYTES: libc::c_int = 1024 * 1024;
/// Without so much it is not worth it. The kernel gives less to a user who has many pipes
/// (`fs.pipe-user-pages-soft`).
const PIPE_MIN_BYTES: libc::c_int = 64 * 1024;

/// A pipe that bytes are moved through without being copied into this process.
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
}

impl Pipe {
    /// An empty one. Fails where the system has no descriptors left, or room for a small one only.
    pub fn new() -> io::Result<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, which the call fills if it succeeds.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were opened just now and are owned by nobody else.
        let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: numbers only; where it is refused the pipe has the size that it was made with.
        let size = unsafe {
            match libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) {
                -1 => libc::fcntl(write.as_raw_fd(), libc::F_GETPIPE_SZ),
                size => size,
            }
        };
        match size >= PIPE_MIN_BYTES {
            true => Ok(Pipe { read, write, held: 0 }),
            false => Err(Errno::NOBUFS.into()),
        }
    }

    /// Bytes that are in it.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Takes of what a socket has, at most so many bytes; 0 is the end of the stream. Only into an empty pipe:
    /// of another it could not be told whether the socket has nothing or the pipe no room.
    pub fn poll_fill(
        &mut self,
        cx: &mut Context<'_>,
        from: &Stream,
        max: usize,
    ) -> Poll<io::Result<usize>> {
        debug_assert_eq!(self.held, 0, "what is in it leaves first");
        let (source, pipe) = (from.fd(), self.write.as_raw_fd());
        let done = from.poll_read_with(cx, || splice(source, pipe, max));
        done.map_ok(|n| {
            self.held = n;
            n
        })
    }

    /// Gives what it holds to a socket; answers how much that took.
    pub fn poll_drain(&mut self, cx: &mut Context<'_>, to: &Stream) -> Poll<io::Result<usize>> {
        let (pipe, target, held) = (self.read.as_raw_fd(), to.fd(), self.held);
        let done = to.poll_write_with(cx, || splice(pipe, target, held));
        done.map_ok(|n| {
            self.held -= n;
            n
        })
    }

    /// Copies out what it holds, so that it is of use to others.
    pub fn take_out(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::with_capacity(self.held);
        while self.held > 0 {
            let spare = &mut bytes.spare_capacity_mut()[..self.held];
            let n = match rustix::io::read(&self.read, spare) {
                Ok((read, _)) => read.len(),
                Err(Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            if n == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            // SAFETY: the kernel has written `n` bytes behind what there was.
            unsafe { bytes.set_len(bytes.len() + n) };
            self.held -= n;
        }
        Ok(bytes)
    }
}

fn splice(from: libc::c_int, to: libc::c_int, max: usize) -> io::Result<usize> {
    let none = std::ptr::null_mut();
    let flags = libc::SPLICE_F_MOVE | libc::SPLICE_F_NONBLOCK;
    // SAFETY: descriptors and numbers; sockets and pipes have no offsets.
    let n = unsafe { libc::splice(from, none, to, none, max, flags) };
    match n {
        0.. => Ok(n as usize),
        _ => Err(io::Error::last_os_error()),
    }
}
