//! Networks: an address and how many of its bits count.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::ip::{parse_ipv4, parse_ipv6, unmapped};

/// A network, or a single address with all bits counting; low bits are always zero.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Cidr {
    base: IpAddr,
    prefix: u8,
}

impl Cidr {
    pub const ALL_V4: Cidr = Cidr { base: IpAddr::V4(Ipv4Addr::UNSPECIFIED), prefix: 0 };
    pub const ALL_V6: Cidr = Cidr { base: IpAddr::V6(Ipv6Addr::UNSPECIFIED), prefix: 0 };

    /// `address[/bits]`. The flag says that bits beyond the prefix were set and have been
    /// cleared: nginx then warns `low address bits of … are meaningless`.
    pub fn parse(text: &[u8]) -> Option<(Cidr, bool)> {
        let (addr, bits) = match crate::bytes::split_once(text, b'/') {
            Some((addr, bits)) => (addr, Some(bits)),
            None => (text, None),
        };
        let addr = parse_ipv4(addr).map(IpAddr::V4).or_else(|| parse_ipv6(addr).map(IpAddr::V6))?;
        match bits {
            None => Some((Cidr { base: addr, prefix: width(addr) }, false)),
            Some(bits) => Cidr::new(addr, crate::units::parse_int(bits)?.try_into().ok()?),
        }
    }

    /// As [`Cidr::parse`]; `None` when `prefix` is longer than the address.
    pub fn new(addr: IpAddr, prefix: u8) -> Option<(Cidr, bool)> {
        if prefix > width(addr) {
            return None;
        }
        let base = masked(addr, prefix);
        Some((Cidr { base, prefix }, base != addr))
    }

    pub fn base(&self) -> IpAddr {
        self.base
    }

    pub fn prefix(&self) -> u8 {
        self.prefix
    }

    /// Whether `addr` is inside. An IPv4 address in IPv6 clothes meets only IPv4 networks,
    /// as in nginx.
    pub fn matches(&self, addr: IpAddr) -> bool {
        let addr = unmapped(addr);
        addr.is_ipv4() == self.base.is_ipv4() && masked(addr, self.prefix) == self.base
    }
}

impl fmt::Display for Cidr {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.base, self.prefix)
    }
}

fn width(addr: IpAddr) -> u8 {
    if addr.is_ipv4() {
        32
    } else {
        128
    }
}

fn masked(addr: IpAddr, prefix: u8) -> IpAddr {
    match addr {
        IpAddr::V4(v4) => {
            let mask = u32::MAX.checked_shl(32 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V4((u32::from(v4) & mask).into())
        }
        IpAddr::V6(v6) => {
            let mask = u128::MAX.checked_shl(128 - u32::from(prefix)).unwrap_or(0);
            IpAddr::V6((u128::from(v6) & mask).into())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parsing() {
        for (text, shown, meaningless) in [
            ("10.0.0.0/8", "10.0.0.0/8", false),
            ("10.1.2.3/8", "10.0.0.0/8", true),
            ("10.1.2.3", "10.1.2.3/32", false),
            ("10.1.2.3/0", "0.0.0.0/0", true),
            ("0.0.0.0/0", "0.0.0.0/0", false),
            ("2001:db8::/32", "2001:db8::/32", false),
            ("2001:db8::1/33", "2001:db8::/33", true),
            ("::1", "::1/128", false),
            ("::/0", "::/0", false),
        ] {
            let (cidr, flag) = Cidr::parse(text.as_bytes()).unwrap();
            assert_eq!((cidr.to_string().as_str(), flag), (shown, meaningless), "{text}");
        }
        for bad in
            ["", "10.0.0.0/33", "10.0.0.0/", "10.0.0.0/-1", "10.0.0/8", "::/129", "x/8", "::/256"]
        {
            assert_eq!(Cidr::parse(bad.as_bytes()), None, "{bad}");
        }
    }

    #[test]
    fn matching() {
        let inside = |net: &str, addr: &str| {
            Cidr::parse(net.as_bytes()).unwrap().0.matches(addr.parse().unwrap())
        };
        assert!(inside("10.0.0.0/8", "10.255.0.1"));
        assert!(!inside("10.0.0.0/8", "11.0.0.1"));
        assert!(inside("10.0.0.0/8", "::ffff:10.0.0.1"));
        assert!(!inside("::/0", "::ffff:10.0.0.1"));
        assert!(!inside("::/0", "10.0.0.1"));
        assert!(inside("2001:db8::/33", "2001:db8:7fff::1"));
        assert!(!inside("2001:db8::/33", "2001:db8:8000::1"));
        assert!(inside("0.0.0.0/0", "1.2.3.4"));
        assert!(Cidr::ALL_V6.matches("::1".parse().unwrap()));
        assert!(Cidr::ALL_V4.matches("1.2.3.4".parse().unwrap()));
    }
}
