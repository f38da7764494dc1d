//! Messages between processes of one program: there is one process, which has nobody to talk to.

use super::sockets::{OwnedFd, RawFd, UnixStream};
use super::unsupported;
use std::io;
use std::time::{Duration, Instant};

/// What a message may be.
pub struct Bounds {
    pub body_max_bytes: u64,
    pub fds_max: u64,
    /// Of the whole message; `None` waits as long as it takes.
    pub deadline: Option<Instant>,
}

/// Messages on their way.
pub struct Outbox(UnixStream);

impl Outbox {
    pub fn new(link: UnixStream) -> io::Result<Outbox> {
        Ok(Outbox(link))
    }

    pub fn send(&mut self, _: &[u8], _: Vec<OwnedFd>, _: u8) -> io::Result<()> {
        match self.0 .0 {}
    }

    pub fn flush(&mut self) -> io::Result<()> {
        match self.0 .0 {}
    }

    pub fn waits(&self) -> Option<RawFd> {
        match self.0 .0 {}
    }
}

pub fn has_message(from: &UnixStream) -> bool {
    match from.0 {}
}

/// Nobody listens under such a name.
///
/// # Errors
///
/// In any case.
pub fn connect_abstract(_: &[u8], _: Duration) -> io::Result<UnixStream> {
    unsupported()
}

pub fn receive(from: &UnixStream) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    match from.0 {}
}

pub fn receive_within(from: &UnixStream, _: &Bounds) -> io::Result<(Vec<u8>, Vec<OwnedFd>)> {
    match from.0 {}
}
