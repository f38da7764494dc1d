//! Bytes that go from one socket to another within the kernel.

use super::Stream;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::task::{Context, Poll};

/// Bytes that a pipe is asked to hold; the kernel may refuse so many to a user that has many pipes.
const PIPE_BYTES: libc::c_int = 256 * 1024;

/// A pipe that bytes are moved through without being copied into this process.
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    held: usize,
}

impl Pipe {
    pub fn new() -> io::Result<Pipe> {
        let mut ends = [0; 2];
        // SAFETY: room for two descriptors, which the call fills if it succeeds.
        if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: both were opened just now and are owned by nobody else.
        let [read, write] = ends.map(|fd| unsafe { OwnedFd::from_raw_fd(fd) });
        // SAFETY: numbers only; without it the pipe has its usual size.
        let _ = unsafe { libc::fcntl(write.as_raw_fd(), libc::F_SETPIPE_SZ, PIPE_BYTES) };
        Ok(Pipe { read, write, held: 0 })
    }

    /// Bytes that are in it.
    pub fn held(&self) -> usize {
        self.held
    }

    /// Takes what a socket has; 0 is the end of the stream. Only into an empty pipe: of another it could
    /// not be told whether the socket has nothing or the pipe no room.
    pub fn poll_fill(&mut self, cx: &mut Context<'_>, from: &Stream) -> Poll<io::Result<usize>> {
        debug_assert_eq!(self.held, 0, "what is in it leaves first");
        let (source, pipe) = (from.fd(), self.write.as_raw_fd());
        let done = from.poll_read_with(cx, || splice(source, pipe, PIPE_BYTES as usize));
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
