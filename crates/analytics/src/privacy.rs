//! What of a client's address a report keeps. Visitors are told apart by all of it, by a hash whose secret ends
//! with the run; this is about what is shown.

use crate::sketch::{mix, Seed};
use ring::hmac;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A power of two.
const REMEMBERED: usize = 1024;
const NAME_BYTES: usize = 16;
const SHORT_V4_BITS: u32 = 24;
const SHORT_V6_BITS: u32 = 48;
/// Of 6to4 (RFC 3056), which has the client's IPv4 address behind its first 16 bits: 24 of that.
const SHORT_6TO4_BITS: u32 = 16 + SHORT_V4_BITS;

/// How addresses are shown.
#[derive(Clone, Debug, Default)]
pub enum Privacy {
    #[default]
    Plain,
    /// By their networks alone: 24 bits of IPv4's, 48 of IPv6's.
    Shortened,
    /// By a name that a secret gives them, another one each day.
    Hashed(Secret),
}

/// For names; whoever has it can try all addresses.
#[derive(Clone)]
pub struct Secret(hmac::Key);

impl std::fmt::Debug for Secret {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str("Secret")
    }
}

impl Secret {
    pub fn new(bytes: &[u8; 32]) -> Secret {
        Secret(hmac::Key::new(hmac::HMAC_SHA256, bytes))
    }

    /// Those of one day cannot be told from those of another.
    fn name(&self, address: IpAddr, day: i32) -> [u8; NAME_BYTES] {
        let daily = hmac::sign(&self.0, &day.to_be_bytes());
        let key = hmac::Key::new(hmac::HMAC_SHA256, daily.as_ref());
        let tag = match address {
            IpAddr::V4(v4) => hmac::sign(&key, &v4.octets()),
            IpAddr::V6(v6) => hmac::sign(&key, &v6.octets()),
        };
        let mut name = [0; NAME_BYTES];
        for (n, byte) in tag.as_ref().iter().take(NAME_BYTES / 2).enumerate() {
            name[2 * n] = b"0123456789abcdef"[usize::from(byte >> 4)];
            name[2 * n + 1] = b"0123456789abcdef"[usize::from(byte & 15)];
        }
        name
    }
}

/// An address as it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shown {
    Address(IpAddr),
    /// With so many bits.
    Network(IpAddr, u32),
    Name([u8; NAME_BYTES]),
}

impl std::fmt::Display for Shown {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self {
            Shown::Address(address) => address.fmt(f),
            Shown::Network(address, bits) => write!(f, "{address}/{bits}"),
            Shown::Name(name) => f.write_str(&String::from_utf8_lossy(name)),
        }
    }
}

/// Shows addresses, and remembers names for a while.
#[derive(Clone)]
pub struct Shower {
    privacy: Privacy,
    names: Box<[(u64, [u8; NAME_BYTES])]>,
}

impl Shower {
    pub fn new(privacy: Privacy) -> Shower {
        let room = if matches!(privacy, Privacy::Hashed(_)) { REMEMBERED } else { 0 };
        Shower { privacy, names: vec![(0, [0; NAME_BYTES]); room].into() }
    }

    /// As it is shown, and the hash of that; `hash` is the address's own.
    pub fn show(&mut self, seed: &Seed, address: IpAddr, hash: u64, day: i32) -> (Shown, u64) {
        match &self.privacy {
            Privacy::Plain => (Shown::Address(address), hash),
            Privacy::Shortened => {
                let network = match address {
                    IpAddr::V4(v4) => {
                        let short = Ipv4Addr::from(v4.to_bits() & !(u32::MAX >> SHORT_V4_BITS));
                        Shown::Network(IpAddr::V4(short), SHORT_V4_BITS)
                    }
                    IpAddr::V6(v6) => {
                        let is_6to4 = v6.segments()[0] == 0x2002;
                        let bits = if is_6to4 { SHORT_6TO4_BITS } else { SHORT_V6_BITS };
                        let short = Ipv6Addr::from(v6.to_bits() & !(u128::MAX >> bits));
                        Shown::Network(IpAddr::V6(short), bits)
                    }
                };
                let Shown::Network(short, _) = network else { return (network, hash) };
                (network, hash_of(seed, short))
            }
            Privacy::Hashed(secret) => {
                let daily = mix(hash, day as u64) | 1;
                let place = &mut self.names[daily as usize / 2 % REMEMBERED];
                if place.0 != daily {
                    *place = (daily, secret.name(address, day));
                }
                (Shown::Name(place.1), daily)
            }
        }
    }
}

pub fn hash_of(seed: &Seed, address: IpAddr) -> u64 {
    match address {
        IpAddr::V4(v4) => seed.number(u128::from(v4.to_bits()) | 0xffff << 32),
        IpAddr::V6(v6) => seed.number(v6.to_bits()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(privacy: &Privacy, address: &str, day: i32) -> String {
        let seed = Seed::new(1);
        let address = address.parse().unwrap();
        let mut shower = Shower::new(privacy.clone());
        let first = shower.show(&seed, address, hash_of(&seed, address), day);
        assert_eq!(first, shower.show(&seed, address, hash_of(&seed, address), day));
        first.0.to_string()
    }

    #[test]
    fn addresses_are_shown_as_was_asked() {
        assert_eq!(shown(&Privacy::Plain, "192.0.2.77", 1), "192.0.2.77");
        assert_eq!(shown(&Privacy::Shortened, "192.0.2.77", 1), "192.0.2.0/24");
        assert_eq!(shown(&Privacy::Shortened, "2001:db8:1:2::3", 1), "2001:db8:1::/48");
        assert_eq!(shown(&Privacy::Shortened, "2002:102:304::1", 1), "2002:102:300::/40");
        let secret = Privacy::Hashed(Secret::new(&[7; 32]));
        let name = shown(&secret, "192.0.2.77", 1);
        assert_eq!(name.len(), NAME_BYTES);
        assert!(!name.contains('.') && name == shown(&secret, "192.0.2.77", 1));
        assert_ne!(name, shown(&secret, "192.0.2.77", 2), "another day");
        assert_ne!(name, shown(&secret, "192.0.2.78", 1), "another client");
        let other = Privacy::Hashed(Secret::new(&[8; 32]));
        assert_ne!(name, shown(&other, "192.0.2.77", 1), "another secret");
    }
}
