//! Connections to others: made without waiting longer than the kernel does.

use super::Stream;
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::Path;

/// What is set on a socket before it connects.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SocketOptions {
    pub bind: Option<SocketAddr>,
    /// That address need not be this machine's.
    pub transparent: bool,
    pub keepalive: bool,
    pub rcvbuf: Option<usize>,
    pub sndbuf: Option<usize>,
}

/// Whether a socket was not to be had because the process, or the system, has too many open files.
pub fn is_out_of_descriptors(e: &io::Error) -> bool {
    #[cfg(unix)]
    return matches!(e.raw_os_error(), Some(libc::EMFILE | libc::ENFILE));
    #[cfg(windows)]
    return e.raw_os_error() == Some(windows_sys::Win32::Networking::WinSock::WSAEMFILE);
}

/// A socket that does not block.
fn socket(domain: Domain, kind: Type, protocol: Option<Protocol>) -> io::Result<Socket> {
    #[cfg(unix)]
    return Socket::new(domain, kind.nonblocking(), protocol);
    #[cfg(windows)]
    {
        let socket = Socket::new(domain, kind, protocol)?;
        socket.set_nonblocking(true)?;
        Ok(socket)
    }
}

/// Whether a connection on a socket that does not block has only begun.
fn is_connecting(e: &io::Error) -> bool {
    #[cfg(unix)]
    if e.raw_os_error() == Some(libc::EINPROGRESS) {
        return true;
    }
    e.kind() == io::ErrorKind::WouldBlock
}

/// A socket that does not block, whose connection has begun: it is made once the peer's address is known, and has failed
/// when there is an error to be taken.
pub fn begin_connect(addr: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
    match socket.connect(&addr.into()) {
        Err(e) if !is_connecting(&e) => Err(e),
        _ => Ok(socket.into()),
    }
}

impl Stream {
    pub async fn connect(addr: SocketAddr, options: &SocketOptions) -> io::Result<Stream> {
        let socket = socket(Domain::for_address(addr), Type::STREAM, Some(Protocol::TCP))?;
        if options.keepalive {
            socket.set_keepalive(true)?;
        }
        if let Some(n) = options.rcvbuf {
            socket.set_recv_buffer_size(n)?;
        }
        if let Some(n) = options.sndbuf {
            socket.set_send_buffer_size(n)?;
        }
        if let Some(local) = options.bind {
            if options.transparent {
                set_transparent(&socket, local)?;
            }
            socket.bind(&local.into())?;
        }
        finish(socket, &addr.into(), true).await
    }

    /// A socket for datagrams to and from one address.
    pub fn connect_udp(addr: SocketAddr, options: &SocketOptions) -> io::Result<Stream> {
        let socket = socket(Domain::for_address(addr), Type::DGRAM, Some(Protocol::UDP))?;
        if let Some(n) = options.rcvbuf {
            socket.set_recv_buffer_size(n)?;
        }
        if let Some(n) = options.sndbuf {
            socket.set_send_buffer_size(n)?;
        }
        if let Some(local) = options.bind {
            if options.transparent {
                set_transparent(&socket, local)?;
            }
            if local.port() != 0 {
                // Several sessions may be bound to one port, each with a server of its own.
                socket.set_reuse_address(true)?;
            }
            socket.bind(&local.into())?;
        }
        socket.connect(&addr.into())?;
        Ok(Stream::from_fd(socket, true))
    }

    /// The same to a socket of the file system, which cannot answer.
    pub fn connect_datagram_path(path: &Path) -> io::Result<Stream> {
        let socket = socket(Domain::UNIX, Type::DGRAM, None)?;
        socket.connect(&SockAddr::unix(path)?)?;
        Ok(Stream::from_fd(socket, false))
    }

    pub async fn connect_path(path: &Path) -> io::Result<Stream> {
        let socket = socket(Domain::UNIX, Type::STREAM, None)?;
        finish(socket, &SockAddr::unix(path)?, false).await
    }
}

#[cfg(target_os = "linux")]
fn set_transparent(socket: &Socket, local: SocketAddr) -> io::Result<()> {
    use std::os::fd::AsRawFd;
    if local.is_ipv4() {
        return socket.set_ip_transparent_v4(true);
    }
    let on: libc::c_int = 1;
    let (on, len) = (std::ptr::from_ref(&on).cast(), size_of_val(&on) as libc::socklen_t);
    let (level, name) = (libc::IPPROTO_IPV6, libc::IPV6_TRANSPARENT);
    // SAFETY: the value is an int of this frame, and the length its own.
    match unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, on, len) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

#[cfg(not(target_os = "linux"))]
fn set_transparent(_: &Socket, _: SocketAddr) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

async fn finish(socket: Socket, addr: &SockAddr, tcp: bool) -> io::Result<Stream> {
    let pending = match socket.connect(addr) {
        Ok(()) => false,
        Err(e) if is_connecting(&e) => true,
        Err(e) => return Err(e),
    };
    let stream = Stream::from_fd(socket, tcp);
    if pending {
        poll_fn(|cx| stream.poll_writable(cx)).await?;
        if let Some(e) = stream.take_error()? {
            return Err(e);
        }
    }
    Ok(stream)
}
