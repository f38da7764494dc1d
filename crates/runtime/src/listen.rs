//! Listening sockets: made once with their options, kept over reloads, shared by the workers.
//!
//! Windows: exclusive addresses, no `reuseport`, and no options but the queue's and the buffers' sizes.

use crate::event_loop::{Watch, Way};
use crate::net::Stream;
use crate::sockets::{OwnedFd, RawFd};
use socket2::{Domain, Protocol, SockAddr, Socket, Type};
use std::cell::Cell;
use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
#[cfg(unix)]
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd};
#[cfg(windows)]
use std::os::windows::io::AsRawSocket;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::task::{ready, Context, Poll};
use weir_base::addr::{self, Endpoint, EndpointOptions, Host};

/// Whether several sockets may have one address, among which the system chooses (`reuseport`). Windows: all workers have one.
pub const HAS_REUSEPORT: bool = cfg!(unix);
/// Whether there are Unix sockets. Windows: those that it has can be used by nothing here.
const HAS_UNIX: bool = cfg!(unix);

/// What is said of a Unix socket where there are none; nginx's words, and what to do.
///
/// # Errors
///
/// There are none.
pub fn may_be_unix() -> Result<(), &'static str> {
    const NONE: &str = "the unix domain sockets are not supported on this platform \
                        (127.0.0.1 and a port take their place)";
    if HAS_UNIX {
        Ok(())
    } else {
        Err(NONE)
    }
}

/// [`addr::parse_endpoint`], which also refuses what this system has not.
///
/// # Errors
///
/// nginx's word for what is wrong.
pub fn parse_endpoint(text: &[u8], options: EndpointOptions) -> Result<Endpoint<'_>, &'static str> {
    let endpoint = addr::parse_endpoint(text, options)?;
    if let Host::Unix(_) = endpoint.host {
        may_be_unix()?;
    }
    Ok(endpoint)
}

/// An address to listen on.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum ListenAddr {
    Ip(SocketAddr),
    /// Datagrams; shown like the one of TCP.
    Udp(SocketAddr),
    Unix(PathBuf),
}

impl ListenAddr {
    /// The address, unless it is a path.
    pub fn ip(&self) -> Option<SocketAddr> {
        match self {
            ListenAddr::Ip(a) | ListenAddr::Udp(a) => Some(*a),
            ListenAddr::Unix(_) => None,
        }
    }

    pub fn is_udp(&self) -> bool {
        matches!(self, ListenAddr::Udp(_))
    }

    /// All addresses of this machine.
    pub fn is_wildcard(&self) -> bool {
        self.ip().is_some_and(|a| a.ip().is_unspecified())
    }

    /// All addresses of its family and port; of a path it is the path itself.
    pub fn wildcard(&self) -> ListenAddr {
        let Some(addr) = self.ip() else { return self.clone() };
        let any: IpAddr = match addr.ip() {
            IpAddr::V4(_) => Ipv4Addr::UNSPECIFIED.into(),
            IpAddr::V6(_) => Ipv6Addr::UNSPECIFIED.into(),
        };
        self.with(SocketAddr::new(any, addr.port()))
    }

    /// Another address for the same protocol.
    pub fn with(&self, addr: SocketAddr) -> ListenAddr {
        match self.is_udp() {
            true => ListenAddr::Udp(addr),
            false => ListenAddr::Ip(addr),
        }
    }
}

impl std::fmt::Display for ListenAddr {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            ListenAddr::Ip(a) | ListenAddr::Udp(a) => write!(f, "{a}"),
            ListenAddr::Unix(p) => write!(f, "unix:{}", p.display()),
        }
    }
}

/// TCP keepalive probes of accepted connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct KeepAlive {
    pub on: Option<bool>,
    pub idle_secs: u32,
    pub interval_secs: u32,
    pub count: u32,
}

/// The options of one `listen` directive that belong to the socket.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ListenOptions {
    pub backlog: i32,
    pub rcvbuf: Option<usize>,
    pub sndbuf: Option<usize>,
    pub deferred: bool,
    pub fastopen: Option<u32>,
    pub ipv6only: bool,
    pub reuseport: bool,
    pub keepalive: KeepAlive,
    pub fib: Option<u32>,
}

impl Default for ListenOptions {
    fn default() -> Self {
        ListenOptions {
            backlog: 511,
            rcvbuf: None,
            sndbuf: None,
            deferred: false,
            fastopen: None,
            ipv6only: true,
            reuseport: false,
            keepalive: KeepAlive::default(),
            fib: None,
        }
    }
}

/// A bound socket that listens, or receives datagrams. Closing the last handle closes it.
pub struct Listener {
    pub addr: ListenAddr,
    socket: Socket,
}

impl Listener {
    pub fn bind(addr: &ListenAddr, options: &ListenOptions) -> io::Result<Listener> {
        let (domain, sock_addr) = match addr {
            ListenAddr::Ip(a) | ListenAddr::Udp(a) => (Domain::for_address(*a), SockAddr::from(*a)),
            ListenAddr::Unix(p) => (Domain::UNIX, SockAddr::unix(p)?),
        };
        let (kind, protocol) = match addr {
            ListenAddr::Ip(_) => (Type::STREAM, Some(Protocol::TCP)),
            ListenAddr::Udp(_) => (Type::DGRAM, Some(Protocol::UDP)),
            ListenAddr::Unix(_) => (Type::STREAM, None),
        };
        let socket = Socket::new(domain, kind, protocol)?;
        if let Some(a) = addr.ip() {
            #[cfg(unix)]
            socket.set_reuse_address(true)?;
            if a.is_ipv6() {
                socket.set_only_v6(options.ipv6only)?;
            }
            #[cfg(unix)]
            if options.reuseport {
                socket.set_reuse_port(true)?;
            }
        }
        #[cfg(unix)]
        if let ListenAddr::Unix(p) = addr {
            crate::trusted::may_bind(p)?;
        }
        socket.bind(&sock_addr)?;
        #[cfg(unix)]
        if let ListenAddr::Unix(p) = addr {
            crate::trusted::open_socket_to_all(p)?;
        }
        let listener = Listener { addr: addr.clone(), socket };
        listener.configure(options)?;
        listener.set_backlog(options.backlog)?;
        listener.socket.set_nonblocking(true)?;
        Ok(listener)
    }

    /// Sets what may change while the socket listens; also called when a reload changes options.
    pub fn configure(&self, o: &ListenOptions) -> io::Result<()> {
        if let Some(n) = o.rcvbuf {
            self.socket.set_recv_buffer_size(n)?;
        }
        if let Some(n) = o.sndbuf {
            self.socket.set_send_buffer_size(n)?;
        }
        #[cfg(unix)]
        if self.addr.is_udp() && self.addr.is_wildcard() {
            return self.tell_asked_address();
        }
        if !matches!(self.addr, ListenAddr::Ip(_)) {
            return Ok(());
        }
        if let Some(on) = o.keepalive.on {
            self.socket.set_keepalive(on)?;
        }
        #[cfg(target_os = "linux")]
        self.configure_tcp(o)?;
        Ok(())
    }

    #[cfg(target_os = "linux")]
    fn configure_tcp(&self, o: &ListenOptions) -> io::Result<()> {
        use crate::net::set_option;
        let fd = self.socket.as_raw_fd();
        let probes = [
            (libc::TCP_KEEPIDLE, o.keepalive.idle_secs),
            (libc::TCP_KEEPINTVL, o.keepalive.interval_secs),
            (libc::TCP_KEEPCNT, o.keepalive.count),
        ];
        for (name, value) in probes.into_iter().filter(|(_, v)| *v > 0) {
            set_option(fd, libc::IPPROTO_TCP, name, &(value as libc::c_int))?;
        }
        if let Some(queue) = o.fastopen {
            set_option(fd, libc::IPPROTO_TCP, libc::TCP_FASTOPEN, &(queue as libc::c_int))?;
        }
        if o.deferred {
            set_option(fd, libc::IPPROTO_TCP, libc::TCP_DEFER_ACCEPT, &(1 as libc::c_int))?;
        }
        Ok(())
    }

    /// Calls `listen` again, so that a changed backlog takes effect.
    pub fn set_backlog(&self, backlog: i32) -> io::Result<()> {
        match self.addr.is_udp() {
            true => Ok(()),
            false => self.socket.listen(backlog),
        }
    }

    /// The address as bound (the port the kernel chose, for port 0).
    pub fn local_addr(&self) -> Option<SocketAddr> {
        self.socket.local_addr().ok()?.as_socket()
    }

    /// Whether two handles are of the same kernel socket.
    #[cfg(target_os = "linux")]
    pub fn same_socket(&self, other: &Listener) -> bool {
        match (self.socket.cookie(), other.socket.cookie()) {
            (Ok(a), Ok(b)) => a == b,
            _ => false,
        }
    }

    /// Whether two handles are of the same socket.
    #[cfg(windows)]
    pub fn same_socket(&self, other: &Listener) -> bool {
        use windows_sys::Win32::Foundation::CompareObjectHandles;
        let [own, other] = [self, other].map(|l| l.socket.as_raw_socket() as usize as _);
        // SAFETY: two open handles.
        unsafe { CompareObjectHandles(own, other) != 0 }
    }

    /// Only Linux can tell; elsewhere no process hands sockets to another.
    #[cfg(not(any(target_os = "linux", windows)))]
    pub fn same_socket(&self, _other: &Listener) -> bool {
        false
    }

    /// Lets other sockets join this one's address, or no more: a reload may do either while the
    /// socket listens.
    pub fn set_reuseport(&self, on: bool) -> io::Result<()> {
        #[cfg(unix)]
        self.socket.set_reuse_port(on)?;
        #[cfg(not(unix))]
        let _ = on;
        Ok(())
    }

    /// Makes the kernel choose among the first `active` sockets of this one's `reuseport` group
    /// only, so that the others see no new connection and can be closed without loss. Sockets are
    /// numbered in the order in which they began to listen; one that is closed has its number taken
    /// over by the last, so closing those from `active` on never moves the first. A client's datagrams
    /// come to the same socket for as long as their number stays the same.
    #[cfg(target_os = "linux")]
    pub fn steer(&self, active: u32) -> io::Result<()> {
        let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
        let mut program = match &self.addr {
            ListenAddr::Udp(a) => crate::datagrams::client_number(a.is_ipv4()).to_vec(),
            _ => {
                let random = (libc::SKF_AD_OFF + libc::SKF_AD_RANDOM) as u32;
                vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, random)]
            }
        };
        program.push(step(libc::BPF_ALU | libc::BPF_MOD | libc::BPF_K, active.max(1)));
        program.push(step(libc::BPF_RET | libc::BPF_A, 0));
        let program = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        // The kernel copies the program, which lives until the call returns.
        let option = libc::SO_ATTACH_REUSEPORT_CBPF;
        crate::net::set_option(self.fd(), libc::SOL_SOCKET, option, &program)
    }

    #[cfg(not(target_os = "linux"))]
    pub fn steer(&self, _active: u32) -> io::Result<()> {
        Ok(())
    }

    #[cfg(unix)]
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    #[cfg(windows)]
    pub fn fd(&self) -> RawFd {
        self.socket.as_raw_socket() as RawFd
    }

    /// As the event loop takes it.
    fn raw(&self) -> crate::event_loop::Raw {
        #[cfg(unix)]
        return self.socket.as_raw_fd();
        #[cfg(windows)]
        return self.socket.as_raw_socket();
    }

    #[cfg(windows)]
    pub(crate) fn receive_from(&self, buf: &mut [u8]) -> io::Result<(usize, SocketAddr)> {
        // SAFETY: the buffer is initialised, and the call writes nothing else into it.
        let room = unsafe { &mut *(std::ptr::from_mut(buf) as *mut [std::mem::MaybeUninit<u8>]) };
        let (len, from) = self.socket.recv_from(room)?;
        Ok((len, from.as_socket().ok_or(io::ErrorKind::InvalidData)?))
    }

    #[cfg(windows)]
    pub(crate) fn send_datagram(&self, data: &[u8], to: SocketAddr) -> io::Result<usize> {
        self.socket.send_to(data, &to.into())
    }

    /// Takes over a listening socket of another process.
    #[cfg(windows)]
    pub fn from_inherited(fd: OwnedFd) -> io::Result<Listener> {
        let socket = Socket::from(std::os::windows::io::OwnedSocket::from(fd));
        let local = socket.local_addr()?.as_socket().filter(|a| a.port() != 0);
        let is_udp = socket.r#type()? == Type::DGRAM;
        let addr = match local {
            Some(a) if is_udp => ListenAddr::Udp(a),
            Some(a) if crate::windows::lent::listens(socket.as_raw_socket() as RawFd) => {
                ListenAddr::Ip(a)
            }
            _ => return Err(io::Error::other("a socket that does not listen")),
        };
        socket.set_nonblocking(true)?;
        Ok(Listener { addr, socket })
    }

    /// Takes over a listening socket of another process.
    #[cfg(unix)]
    pub fn from_inherited(fd: OwnedFd) -> io::Result<Listener> {
        let socket = Socket::from(fd);
        let is_udp = socket.r#type()? == Type::DGRAM;
        let local = socket.local_addr()?;
        let is_bound = local.as_socket().is_some_and(|a| a.port() != 0);
        let listens = match is_udp {
            true => is_bound && socket.peer_addr().is_err(),
            false => socket.is_listener()?,
        };
        if !listens {
            return Err(io::Error::other("a socket that does not listen"));
        }
        let addr = match local.as_socket() {
            Some(a) if is_udp => ListenAddr::Udp(a),
            Some(a) => ListenAddr::Ip(a),
            None => ListenAddr::Unix(
                local
                    .as_pathname()
                    .map(|p| p.to_path_buf())
                    .ok_or_else(|| io::Error::other("a socket without an address"))?,
            ),
        };
        socket.set_nonblocking(true)?;
        socket.set_cloexec(true)?;
        Ok(Listener { addr, socket })
    }

    /// Whether a connection waits to be accepted.
    #[cfg(unix)]
    fn has_waiting(&self) -> bool {
        let mut ask = libc::pollfd { fd: self.fd(), events: libc::POLLIN, revents: 0 };
        // SAFETY: one valid entry, and no waiting.
        unsafe { libc::poll(&mut ask, 1, 0) != 0 }
    }

    /// Whether a connection waits to be accepted.
    #[cfg(windows)]
    fn has_waiting(&self) -> bool {
        use windows_sys::Win32::Networking::WinSock::{WSAPoll, POLLRDNORM, WSAPOLLFD};
        let fd = self.socket.as_raw_socket() as usize;
        let mut ask = WSAPOLLFD { fd, events: POLLRDNORM, revents: 0 };
        // SAFETY: one valid entry, and no waiting.
        unsafe { WSAPoll(&mut ask, 1, 0) != 0 }
    }

    /// Accepts one connection.
    #[cfg(windows)]
    pub fn accept(&self) -> io::Result<(Stream, Peer)> {
        let (socket, addr) = self.socket.accept()?;
        socket.set_nonblocking(true)?;
        let is_ip = addr.as_socket();
        let stream = Stream::from_fd(socket, is_ip.is_some());
        Ok((stream, is_ip.map_or(Peer::Unix, Peer::Ip)))
    }

    /// Accepts one connection: one system call, and nothing else to be set on the socket.
    #[cfg(target_os = "linux")]
    pub fn accept(&self) -> io::Result<(Stream, Peer)> {
        // SAFETY: the storage and its length are valid for the call, which fills at most that
        // much; the descriptor it returns is owned by nobody else.
        let (fd, addr) = unsafe {
            SockAddr::try_init(|storage, len| {
                let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
                match libc::accept4(self.fd(), storage.cast(), len, flags) {
                    -1 => Err(io::Error::last_os_error()),
                    fd => Ok(OwnedFd::from_raw_fd(fd)),
                }
            })?
        };
        Ok(match addr.as_socket() {
            Some(a) => (Stream::from_fd(fd, true), Peer::Ip(a)),
            None => (Stream::from_fd(fd, false), Peer::Unix),
        })
    }
}

#[cfg(windows)]
impl crate::sockets::AsRawFd for Listener {
    fn as_raw_fd(&self) -> RawFd {
        self.fd()
    }
}

#[cfg(unix)]
impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

/// Sockets from an older process, by address, waiting to be named by the configuration.
static INHERITED: Mutex<Option<HashMap<ListenAddr, Vec<Listener>>>> = Mutex::new(None);

/// The numbers that were given out.
#[cfg(unix)]
static CLAIMED: Mutex<Vec<RawFd>> = Mutex::new(Vec::new());

/// Claims a descriptor that came from outside: once, and none that this program has opened, for
/// those are all closed at exec.
#[cfg(unix)]
pub(crate) fn claim(fd: RawFd) -> bool {
    let mut claimed = CLAIMED.lock().unwrap_or_else(|e| e.into_inner());
    // SAFETY: a number only.
    let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
    if flags < 0 || flags & libc::FD_CLOEXEC != 0 || claimed.contains(&fd) {
        return false;
    }
    claimed.push(fd);
    true
}

/// The listening socket that an older program has left open under this number, which came with the
/// environment; `None` if it is none. What it is was looked at before anybody owns it, and nobody
/// comes to own it twice.
#[cfg(unix)]
pub(crate) fn inherit(fd: RawFd) -> Option<Listener> {
    // Standard input, output and error are no listening sockets of ours, whatever they are.
    let is_one = ask(fd, libc::SO_ACCEPTCONN) == Some(1)
        || ask(fd, libc::SO_TYPE) == Some(libc::SOCK_DGRAM) && is_bound_ip(fd);
    if fd <= 2 || !is_one || !claim(fd) {
        return None;
    }
    // SAFETY: it is an open socket, not one that this program has opened, and is given out once.
    Listener::from_inherited(unsafe { OwnedFd::from_raw_fd(fd) }).ok()
}

/// What the kernel says of a socket, if the number is one's.
#[cfg(unix)]
fn ask(fd: RawFd, name: libc::c_int) -> Option<libc::c_int> {
    let mut answer: libc::c_int = 0;
    let mut len = std::mem::size_of_val(&answer) as libc::socklen_t;
    let value = (&raw mut answer).cast();
    // SAFETY: the value and its length are valid for the call, which takes any number for `fd`.
    let rc = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, name, value, &mut len) };
    (rc == 0).then_some(answer)
}

/// Whether a socket is bound to an IP address and port.
#[cfg(unix)]
fn is_bound_ip(fd: RawFd) -> bool {
    // SAFETY: the storage and its length are valid for the call, which takes any number for `fd`.
    let addr = unsafe {
        SockAddr::try_init(|storage, len| match libc::getsockname(fd, storage.cast(), len) {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        })
    };
    addr.ok().and_then(|(_, a)| a.as_socket()).is_some_and(|a| a.port() != 0)
}

/// Keeps inherited sockets until the configuration asks for their addresses.
pub fn keep_inherited(listeners: Vec<Listener>) {
    let mut map = INHERITED.lock().unwrap_or_else(|e| e.into_inner());
    for l in listeners {
        map.get_or_insert_with(HashMap::new).entry(l.addr.clone()).or_default().push(l);
    }
}

/// The inherited sockets of that address, in the order in which they were handed over.
pub fn take_inherited(addr: &ListenAddr) -> Vec<Listener> {
    let mut map = INHERITED.lock().unwrap_or_else(|e| e.into_inner());
    map.as_mut().and_then(|m| m.remove(addr)).unwrap_or_default()
}

/// Closes the inherited sockets that the configuration no longer names.
pub fn drop_inherited() {
    INHERITED.lock().unwrap_or_else(|e| e.into_inner()).take();
}

/// The peer of an accepted connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Peer {
    Ip(SocketAddr),
    Unix,
}

/// Whether `accept` failed because of the connection that was to be taken (accept(2): errors of the
/// network that were waiting on it), so that the next may succeed at once.
#[cfg(unix)]
pub fn concerns_one_connection(e: &io::Error) -> bool {
    const ERRORS: [i32; 9] = [
        libc::ECONNABORTED,
        libc::EPERM,
        libc::EPROTO,
        libc::ENOPROTOOPT,
        libc::ENETDOWN,
        libc::ENETUNREACH,
        libc::EHOSTDOWN,
        libc::EHOSTUNREACH,
        libc::ETIMEDOUT,
    ];
    e.raw_os_error().is_some_and(|code| ERRORS.contains(&code))
}

/// Windows: all but what the process or the listening socket lacks, for its providers tell of a connection that has gone by
/// codes of their own (wine: 10057).
#[cfg(windows)]
pub fn concerns_one_connection(e: &io::Error) -> bool {
    use windows_sys::Win32::Networking::WinSock;
    const LACKS: [i32; 9] = [
        WinSock::WSAEMFILE,
        WinSock::WSAENOBUFS,
        WinSock::WSA_NOT_ENOUGH_MEMORY,
        WinSock::WSANOTINITIALISED,
        WinSock::WSAENOTSOCK,
        WinSock::WSAEBADF,
        WinSock::WSAEINVAL,
        WinSock::WSAEFAULT,
        WinSock::WSAEOPNOTSUPP,
    ];
    e.raw_os_error().is_some_and(|code| !LACKS.contains(&code))
}

/// A worker's watch on a socket that others may have open too.
pub(crate) struct ListenerWatch {
    watch: Watch,
    pub(crate) listener: Arc<Listener>,
}

impl ListenerWatch {
    pub(crate) fn new(listener: Arc<Listener>) -> io::Result<ListenerWatch> {
        Ok(ListenerWatch { watch: Watch::new(listener.raw())?, listener })
    }

    pub(crate) fn poll_ready(&self, cx: &Context<'_>) -> Poll<()> {
        self.watch.poll_ready(Way::Read, cx)
    }

    pub(crate) fn clear_ready(&self) {
        self.watch.clear(Way::Read);
    }
}

impl Drop for ListenerWatch {
    fn drop(&mut self) {
        self.watch.leave(self.listener.raw());
    }
}

/// One worker's watch on a listening socket.
pub struct Acceptor {
    watch: ListenerWatch,
    /// Ask whether anyone waits before accepting: the queue may be empty.
    ask: Cell<bool>,
    /// Another worker has lately been quicker.
    lost: Cell<bool>,
}

impl Acceptor {
    /// Must be called inside the worker's event loop.
    pub fn new(listener: Arc<Listener>) -> io::Result<Acceptor> {
        let watch = ListenerWatch::new(listener)?;
        Ok(Acceptor { watch, ask: Cell::new(false), lost: Cell::new(false) })
    }

    /// Ready when somebody waits to be accepted.
    pub fn poll_waiting(&self, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            ready!(self.watch.poll_ready(cx));
            if self.has_waiting() {
                return Poll::Ready(());
            }
            self.watch.clear_ready();
        }
    }

    /// Whether somebody waits now.
    pub fn has_waiting(&self) -> bool {
        self.watch.listener.has_waiting()
    }

    /// The next connection.
    ///
    /// The kernel makes a socket before it looks whether anyone waits, so an `accept4` that finds
    /// nobody costs a dozen times what `poll` does (4.3 against 0.33 us here). One is made unasked
    /// when the event loop reports the socket; after that, or after losing a connection to another
    /// worker, the queue is looked at first.
    pub fn poll_accept(&self, cx: &mut Context<'_>) -> Poll<io::Result<(Stream, Peer)>> {
        loop {
            ready!(self.watch.poll_ready(cx));
            if self.ask.replace(true) && !self.has_waiting() {
                self.watch.clear_ready();
                self.ask.set(self.lost.get());
                continue;
            }
            match self.watch.listener.accept() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    self.watch.clear_ready();
                    self.lost.set(true);
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Poll::Ready(Err(e)),
                Ok(accepted) => {
                    self.lost.set(false);
                    return Poll::Ready(Ok(accepted));
                }
            }
        }
    }
}

#[cfg(test)]
#[cfg(unix)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn group(n: usize) -> (SocketAddr, Vec<Listener>) {
        let options = ListenOptions { reuseport: true, ..ListenOptions::default() };
        let any = ListenAddr::Ip("127.0.0.1:0".parse().unwrap());
        let first = Listener::bind(&any, &options).unwrap();
        let addr = first.local_addr().unwrap();
        let mut all = vec![first];
        all.extend((1..n).map(|_| Listener::bind(&ListenAddr::Ip(addr), &options).unwrap()));
        (addr, all)
    }

    /// How many of some connections each socket is given.
    fn shares(addr: SocketAddr, group: &[Listener]) -> Vec<usize> {
        let clients: Vec<_> = (0..64).map(|_| std::net::TcpStream::connect(addr)).collect();
        assert!(clients.iter().all(|c| c.is_ok()));
        let count = |l: &Listener| std::iter::from_fn(|| l.accept().ok()).count();
        group.iter().map(count).collect()
    }

    #[test]
    fn steering_leaves_the_last_sockets_without_connections() {
        let (addr, mut all) = group(4);
        all[0].steer(2).unwrap();
        let got = shares(addr, &all);
        assert!(got[0] > 0 && got[1] > 0, "{got:?}");
        assert_eq!(got[2..], [0, 0]);
        // The first two keep their places when others go.
        all.remove(2);
        all.pop();
        let got = shares(addr, &all);
        assert_eq!(got[0] + got[1], 64);
    }

    #[test]
    fn accepting_rests_when_the_system_is_short_of_something() {
        let rests = |code| !concerns_one_connection(&io::Error::from_raw_os_error(code));
        assert!([libc::EMFILE, libc::ENFILE, libc::ENOMEM, libc::ENOBUFS].map(rests) == [true; 4]);
        assert!(!rests(libc::ECONNABORTED));
    }

    #[test]
    fn a_number_is_inherited_only_if_a_listening_socket_came_with_it() {
        let own = Listener::bind(
            &"127.0.0.1:0".parse().map(ListenAddr::Ip).unwrap(),
            &ListenOptions::default(),
        )
        .unwrap();
        // Closed at exec: opened by this program.
        assert!([-1, 0, 1, 2, own.fd(), i32::MAX].into_iter().all(|fd| inherit(fd).is_none()));
        let from_outside = own.socket.try_clone().unwrap();
        from_outside.set_cloexec(false).unwrap();
        let fd = std::os::fd::IntoRawFd::into_raw_fd(from_outside);
        assert!(inherit(fd).is_some_and(|l| l.same_socket(&own)));
        assert!(inherit(fd).is_none());
    }

    #[test]
    fn a_listening_socket_can_be_joined_by_others() {
        let options = ListenOptions::default();
        let any = ListenAddr::Ip("127.0.0.1:0".parse().unwrap());
        let first = Listener::bind(&any, &options).unwrap();
        let addr = first.local_addr().unwrap();
        let more = ListenOptions { reuseport: true, ..options };
        assert!(Listener::bind(&ListenAddr::Ip(addr), &more).is_err());
        first.set_reuseport(true).unwrap();
        let second = Listener::bind(&ListenAddr::Ip(addr), &more).unwrap();
        first.steer(2).unwrap();
        let got = shares(addr, &[first, second]);
        assert!(got[0] > 0 && got[1] > 0, "{got:?}");
    }
}
