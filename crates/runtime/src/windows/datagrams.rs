//! Datagrams of a bound socket. Which address was asked is not told yet: of a socket that is bound to all of them,
//! answers leave from the one that the system chooses.

use crate::listen::{Listener, ListenerWatch};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use windows_sys::Win32::Networking::WinSock::WSAECONNRESET;

/// No datagram is larger.
pub const DATAGRAM_MAX_BYTES: usize = 65_535;

/// What is known of a datagram.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Received {
    pub len: usize,
    pub client: SocketAddr,
    /// The address of this machine that it was sent to.
    pub local: IpAddr,
}

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

/// A worker's watch on a socket for datagrams.
pub struct DatagramWatch(ListenerWatch);

impl DatagramWatch {
    /// Must be called inside the worker's event loop.
    pub fn new(listener: Arc<Listener>) -> io::Result<DatagramWatch> {
        ListenerWatch::new(listener).map(DatagramWatch)
    }

    /// The next datagram.
    pub fn poll_receive(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<Received>> {
        loop {
            ready!(self.0.poll_ready(cx));
            match self.0.listener.receive(buf) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => self.0.clear_ready(),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                done => return Poll::Ready(done),
            }
        }
    }
}
