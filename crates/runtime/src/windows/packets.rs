//! Packets with descriptors between processes: there is one process.

use super::sockets::{AsRawFd, OwnedFd, RawFd};
use super::unsupported;
use std::convert::Infallible;
use std::io;

/// No packet is longer.
pub const PACKET_MAX_BYTES: usize = 70_000;

/// One end.
pub struct Packets(Infallible);

/// Both ends.
///
/// # Errors
///
/// In any case.
pub fn pair() -> io::Result<(Packets, Packets)> {
    unsupported()
}

impl AsRawFd for Packets {
    fn as_raw_fd(&self) -> RawFd {
        match self.0 {}
    }
}

impl From<Packets> for OwnedFd {
    fn from(of: Packets) -> OwnedFd {
        match of.0 {}
    }
}

impl Packets {
    pub fn try_clone(&self) -> io::Result<Packets> {
        match self.0 {}
    }

    pub fn of(_: OwnedFd) -> Option<Packets> {
        None
    }

    pub fn to_owned_fd(&self) -> io::Result<OwnedFd> {
        match self.0 {}
    }

    pub fn send(&self, _: &[u8], _: Option<RawFd>) -> io::Result<()> {
        match self.0 {}
    }

    pub fn wait_readable(&self) -> bool {
        match self.0 {}
    }

    pub fn try_receive(&self, _: &mut Vec<u8>) -> io::Result<Option<OwnedFd>> {
        match self.0 {}
    }
}

/// What an older process has left under a number: nothing.
pub fn inherit(_: RawFd) -> Option<Packets> {
    None
}
