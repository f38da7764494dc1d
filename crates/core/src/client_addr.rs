//! Who is at the other end of a connection.

use std::net::{IpAddr, SocketAddr};

/// A client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddr {
    Ip(SocketAddr),
    Unix,
}

impl ClientAddr {
    pub fn ip(&self) -> Option<IpAddr> {
        match self {
            ClientAddr::Ip(a) => Some(a.ip()),
            ClientAddr::Unix => None,
        }
    }

    /// `$remote_addr`.
    pub fn write(&self, out: &mut Vec<u8>) {
        use std::io::Write;
        match self {
            // Writing into a Vec cannot fail.
            ClientAddr::Ip(a) => drop(write!(out, "{}", a.ip())),
            ClientAddr::Unix => out.extend_from_slice(b"unix:"),
        }
    }

    pub fn port(&self) -> Option<u16> {
        match self {
            ClientAddr::Ip(a) => Some(a.port()),
            ClientAddr::Unix => None,
        }
    }
}
