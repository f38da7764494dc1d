//! Datagrams of a bound socket: who sent them, which address was asked, and answers from there.
//!
//! Windows: `WSARecvMsg` and `WSASendMsg` with `IP_PKTINFO`.

pub use crate::datagram::{DatagramWatch, Received, DATAGRAM_MAX_BYTES};
use crate::listen::{ListenAddr, Listener};
use socket2::SockAddr;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

/// Room for the address that was asked, and its alignment.
type Control = [u64; 16];

impl Listener {
    /// Has the kernel tell with each datagram which address it was sent to.
    pub(crate) fn tell_asked_address(&self) -> io::Result<()> {
        let (level, name) = match &self.addr {
            ListenAddr::Udp(a) if a.is_ipv6() => (libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO),
            _ => (libc::IPPROTO_IP, libc::IP_PKTINFO),
        };
        crate::net::set_option(self.fd(), level, name, &(1 as libc::c_int))
    }

    /// The next datagram, if there is one.
    pub fn receive(&self, buf: &mut [u8]) -> io::Result<Received> {
        let mut control: Control = [0; 16];
        let mut asked = None;
        // SAFETY: every pointer refers to what outlives the call, with its own length; the control
        // buffer is aligned. The kernel says how much of the name it has written.
        let (len, from) = unsafe {
            SockAddr::try_init(|storage, name_len| {
                let mut iov = libc::iovec { iov_base: buf.as_mut_ptr().cast(), iov_len: buf.len() };
                let mut msg: libc::msghdr = std::mem::zeroed();
                (msg.msg_name, msg.msg_namelen) = (storage.cast(), *name_len);
                (msg.msg_iov, msg.msg_iovlen) = (&mut iov, 1);
                if self.addr.is_wildcard() {
                    msg.msg_control = control.as_mut_ptr().cast();
                    msg.msg_controllen = std::mem::size_of::<Control>() as _;
                }
                let n = libc::recvmsg(self.fd(), &mut msg, libc::MSG_DONTWAIT);
                if n < 0 {
                    return Err(io::Error::last_os_error());
                }
                *name_len = msg.msg_namelen;
                asked = asked_address(&msg);
                Ok(n as usize)
            })?
        };
        let client = from.as_socket().ok_or_else(|| io::Error::other("a client of no address"))?;
        let local = asked.or_else(|| self.addr.ip().map(|a| a.ip()));
        Ok(Received { len, client, local: local.unwrap_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED)) })
    }

    /// Sends a datagram, from the address that was asked where the socket has several.
    pub fn send_to(&self, data: &[u8], client: SocketAddr, local: IpAddr) -> io::Result<usize> {
        let mut control: Control = [0; 16];
        let to = SockAddr::from(client);
        // SAFETY: every pointer refers to what outlives the call, and is only read; the control
        // buffer is aligned, and larger than one header with one address.
        let n = unsafe {
            let mut iov =
                libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
            let mut msg: libc::msghdr = std::mem::zeroed();
            (msg.msg_name, msg.msg_namelen) = (to.as_ptr().cast_mut().cast(), to.len());
            (msg.msg_iov, msg.msg_iovlen) = (&mut iov, 1);
            if self.addr.is_wildcard() {
                put_source(&mut msg, &mut control, local);
            }
            libc::sendmsg(self.fd(), &msg, libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL)
        };
        match n < 0 {
            true => Err(io::Error::last_os_error()),
            false => Ok(n as usize),
        }
    }
}

/// The address that a datagram was sent to.
///
/// # Safety
///
/// `msg` is as the kernel has left it, with a control buffer that is still there.
unsafe fn asked_address(msg: &libc::msghdr) -> Option<IpAddr> {
    // SAFETY: the headers are walked as far as the kernel says that there are some; what lies behind
    // one of these two kinds is that structure, maybe not aligned for it.
    unsafe {
        let mut header = libc::CMSG_FIRSTHDR(msg);
        while !header.is_null() {
            match ((*header).cmsg_level, (*header).cmsg_type) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let info: libc::in_pktinfo =
                        std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                    return Some(Ipv4Addr::from(u32::from_be(info.ipi_addr.s_addr)).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let info: libc::in6_pktinfo =
                        std::ptr::read_unaligned(libc::CMSG_DATA(header).cast());
                    return Some(Ipv6Addr::from(info.ipi6_addr.s6_addr).into());
                }
                _ => header = libc::CMSG_NXTHDR(msg, header),
            }
        }
    }
    None
}

/// Says from which address a message leaves.
///
/// # Safety
///
/// `control` lives for as long as `msg` is used.
unsafe fn put_source(msg: &mut libc::msghdr, control: &mut Control, local: IpAddr) {
    /// # Safety
    ///
    /// As above; `T` is the structure that belongs to the kind.
    unsafe fn put<T>(msg: &mut libc::msghdr, control: &mut Control, kind: [i32; 2], info: T) {
        let size = std::mem::size_of::<T>() as u32;
        // SAFETY: the buffer is aligned and has room for one header with either structure.
        unsafe {
            msg.msg_control = control.as_mut_ptr().cast();
            msg.msg_controllen = libc::CMSG_SPACE(size) as _;
            let header = libc::CMSG_FIRSTHDR(msg);
            [(*header).cmsg_level, (*header).cmsg_type] = kind;
            (*header).cmsg_len = libc::CMSG_LEN(size) as _;
            std::ptr::write_unaligned(libc::CMSG_DATA(header).cast(), info);
        }
    }
    // SAFETY: plain data for which all zeroes is valid; the kinds are those of the structures.
    unsafe {
        match local {
            IpAddr::V4(ip) => {
                let mut info: libc::in_pktinfo = std::mem::zeroed();
                info.ipi_spec_dst.s_addr = u32::from(ip).to_be();
                put(msg, control, [libc::IPPROTO_IP, libc::IP_PKTINFO], info);
            }
            IpAddr::V6(ip) => {
                let mut info: libc::in6_pktinfo = std::mem::zeroed();
                info.ipi6_addr.s6_addr = ip.octets();
                put(msg, control, [libc::IPPROTO_IPV6, libc::IPV6_PKTINFO], info);
            }
        }
    }
}

/// The steps of a socket group's program that make a number of a datagram's sender, which is the same
/// for all of them: of the (last four bytes of the) address and the port.
#[cfg(target_os = "linux")]
pub(crate) fn client_number(is_ipv4: bool) -> [libc::sock_filter; 6] {
    let step = |code: u32, k: u32| libc::sock_filter { code: code as u16, jt: 0, jf: 0, k };
    // Behind the beginning of the IP header; one with options gives another number, but still one.
    let (address, port) = if is_ipv4 { (12, 20) } else { (20, 40) };
    let at = |offset: i32| (libc::SKF_NET_OFF + offset) as u32;
    [
        step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, at(address)),
        step(libc::BPF_MISC | libc::BPF_TAX, 0),
        step(libc::BPF_LD | libc::BPF_H | libc::BPF_ABS, at(port)),
        step(libc::BPF_ALU | libc::BPF_XOR | libc::BPF_X, 0),
        // Fibonacci hashing: neighbours are spread.
        step(libc::BPF_ALU | libc::BPF_MUL | libc::BPF_K, 0x9E37_79B1),
        step(libc::BPF_ALU | libc::BPF_RSH | libc::BPF_K, 16),
    ]
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::listen::ListenOptions;
    use std::net::UdpSocket;

    fn bind(addr: SocketAddr, reuseport: bool) -> Listener {
        let options = ListenOptions { reuseport, ..ListenOptions::default() };
        Listener::bind(&ListenAddr::Udp(addr), &options).unwrap()
    }

    fn exchange(listen: &str, asked: &str) {
        let l = bind(listen.parse().unwrap(), false);
        let to = SocketAddr::new(asked.parse().unwrap(), l.local_addr().unwrap().port());
        let client = UdpSocket::bind(if to.is_ipv4() { "127.0.0.1:0" } else { "[::1]:0" }).unwrap();
        client.send_to(b"", to).unwrap();
        let mut buf = [1; 8];
        let got = l.receive(&mut buf).unwrap();
        let client_addr = client.local_addr().unwrap();
        assert_eq!(got, Received { len: 0, client: client_addr, local: to.ip() });
        assert_eq!(l.send_to(b"back", got.client, got.local).unwrap(), 4);
        let (n, from) = client.recv_from(&mut buf).unwrap();
        assert_eq!((&buf[..n], from), (&b"back"[..], to));
        assert_eq!(l.receive(&mut buf).unwrap_err().kind(), io::ErrorKind::WouldBlock);
    }

    #[test]
    fn answers_leave_from_the_address_that_was_asked() {
        exchange("127.0.0.1:0", "127.0.0.1");
        exchange("0.0.0.0:0", "127.0.0.2");
        if UdpSocket::bind("[::1]:0").is_ok() {
            exchange("[::1]:0", "::1");
            exchange("[::]:0", "::1");
        }
    }

    #[test]
    fn a_steered_group_gives_a_client_to_one_of_its_first_sockets() {
        let first = bind("127.0.0.1:0".parse().unwrap(), true);
        let addr = first.local_addr().unwrap();
        let all = [first, bind(addr, true), bind(addr, true)];
        all[0].steer(2).unwrap();
        let mut buf = [0; 8];
        let mut served = [0; 3];
        for _ in 0..32 {
            let client = UdpSocket::bind("127.0.0.1:0").unwrap();
            (0..4).for_each(|_| assert_eq!(client.send_to(b"x", addr).unwrap(), 1));
            let count =
                |l: &Listener, buf: &mut [u8]| std::iter::from_fn(|| l.receive(buf).ok()).count();
            let counts = [0, 1, 2].map(|i| count(&all[i], &mut buf));
            let of = counts.iter().position(|n| *n == 4).unwrap();
            served[of] += 1;
        }
        assert!(served[0] > 0 && served[1] > 0 && served[2] == 0, "{served:?}");
    }

    #[test]
    fn a_handed_over_socket_is_known_as_one_of_datagrams() {
        let l = bind("127.0.0.1:0".parse().unwrap(), false);
        let addr = l.local_addr().unwrap();
        let fd = std::os::fd::AsFd::as_fd(&l).try_clone_to_owned().unwrap();
        assert_eq!(Listener::from_inherited(fd).unwrap().addr, ListenAddr::Udp(addr));
        let unbound = socket2::Socket::new(socket2::Domain::IPV4, socket2::Type::DGRAM, None);
        assert!(Listener::from_inherited(unbound.unwrap().into()).is_err());
    }
}
