//! Datagrams of a bound socket. Which address was asked is not told yet: of a socket that is bound to all of them,
//! answers leave from the one that the system chooses.

pub use crate::datagram::{DatagramWatch, Received, DATAGRAM_MAX_BYTES};
use crate::listen::Listener;
use std::io;
use std::net::{IpAddr, SocketAddr};
use windows_sys::Win32::Networking::WinSock::WSAECONNRESET;

impl Listener {
    /// The next datagram, if there is one.
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<Received> {
        loop {
            match self.receive_from(buf) {
                // That an earlier answer has found nobody is nothing to this socket.
                Err(e) if e.raw_os_error() == Some(WSAECONNRESET) => {}
                Err(e) => return Err(e),
                Ok((len, client)) => {
                    let own = self.local_addr().ok_or(io::ErrorKind::NotConnected)?;
                    return Ok(Received { len, client, local: own.ip() });
                }
            }
        }
    }

    /// Answers a client.
    pub fn send_to(&self, data: &[u8], client: SocketAddr, _: IpAddr) -> io::Result<usize> {
        self.send_datagram(data, client)
    }
}
