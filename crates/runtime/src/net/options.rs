//! Options of a socket that code asks for by name.

#[cfg(unix)]
use super::set_option;
use super::Stream;
#[cfg(unix)]
use socket2::SockRef;
use std::io;

/// One of them, whose value is a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Choice {
    KeepAlive,
    /// Seconds between probes.
    KeepInterval,
    /// Probes without an answer.
    KeepCount,
    ReuseAddress,
    NoDelay,
    /// Bytes.
    SendBuffer,
    /// Bytes.
    ReceiveBuffer,
}

impl Stream {
    /// The value of an option; one that is on or off is 1 or 0.
    pub fn chosen(&self, what: Choice) -> io::Result<i32> {
        let socket = self.open()?;
        #[cfg(unix)]
        let socket = SockRef::from(&socket);
        let number = |n: usize| i32::try_from(n).unwrap_or(i32::MAX);
        Ok(match what {
            Choice::KeepAlive => i32::from(socket.keepalive()?),
            #[cfg(unix)]
            Choice::KeepInterval => number(socket.tcp_keepalive_interval()?.as_secs() as usize),
            #[cfg(unix)]
            Choice::KeepCount => number(socket.tcp_keepalive_retries()? as usize),
            #[cfg(windows)]
            Choice::KeepInterval | Choice::KeepCount => {
                return Err(io::ErrorKind::Unsupported.into())
            }
            Choice::ReuseAddress => i32::from(socket.reuse_address()?),
            Choice::NoDelay => i32::from(socket.tcp_nodelay()?),
            Choice::SendBuffer => number(socket.send_buffer_size()?),
            Choice::ReceiveBuffer => number(socket.recv_buffer_size()?),
        })
    }

    /// Sets an option.
    #[cfg(windows)]
    pub fn choose(&self, what: Choice, value: i32) -> io::Result<()> {
        let (socket, is_on, bytes) = (self.open()?, value != 0, usize::try_from(value));
        let bytes = bytes.map_err(|_| io::ErrorKind::InvalidInput);
        match what {
            Choice::KeepAlive => socket.set_keepalive(is_on),
            Choice::ReuseAddress => socket.set_reuse_address(is_on),
            Choice::NoDelay => socket.set_tcp_nodelay(is_on),
            Choice::SendBuffer => socket.set_send_buffer_size(bytes?),
            Choice::ReceiveBuffer => socket.set_recv_buffer_size(bytes?),
            Choice::KeepInterval | Choice::KeepCount => Err(io::ErrorKind::Unsupported.into()),
        }
    }

    /// Sets an option.
    #[cfg(unix)]
    pub fn choose(&self, what: Choice, value: i32) -> io::Result<()> {
        let (level, name) = match what {
            Choice::KeepAlive => (libc::SOL_SOCKET, libc::SO_KEEPALIVE),
            Choice::KeepInterval => (libc::IPPROTO_TCP, libc::TCP_KEEPINTVL),
            Choice::KeepCount => (libc::IPPROTO_TCP, libc::TCP_KEEPCNT),
            Choice::ReuseAddress => (libc::SOL_SOCKET, libc::SO_REUSEADDR),
            Choice::NoDelay => (libc::IPPROTO_TCP, libc::TCP_NODELAY),
            Choice::SendBuffer => (libc::SOL_SOCKET, libc::SO_SNDBUF),
            Choice::ReceiveBuffer => (libc::SOL_SOCKET, libc::SO_RCVBUF),
        };
        set_option(self.fd(), level, name, &value)
    }
}
