//! Who is at the other end of a connection.

use std::net::{IpAddr, SocketAddr};

/// A client's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientAddr {
    /// Where its packets come from, or what stands in for that (PROXY protocol, `real_ip`).
    Ip(SocketAddr),
    /// Of the same machine, by a Unix socket: it has no address, and is written `unix:`.
    Unix,
}

impl ClientAddr {
    /// `None` for a Unix socket.
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

    /// The same, on its own.
    pub(crate) fn text(&self) -> Box<[u8]> {
        let mut text = Vec::new();
        self.write(&mut text);
        text.into()
    }

    /// `$remote_port`; `None` for a Unix socket.
    pub fn port(&self) -> Option<u16> {
        match self {
            ClientAddr::Ip(a) => Some(a.port()),
            ClientAddr::Unix => None,
        }
    }
}
