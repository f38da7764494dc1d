//! What a datagram is known by, and a worker's wait for the next, on every system.

use crate::listen::{Listener, ListenerWatch};
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::task::{ready, Context, Poll};

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

/// One worker's watch on a socket that receives datagrams.
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
