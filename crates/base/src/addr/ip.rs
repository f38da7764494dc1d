//! Numeric addresses, with nginx's tolerance.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Four decimal numbers; as in nginx leading zeroes are decimal and a missing number is 0.
///
/// nginx cannot read 255.255.255.255, because it is also its error value; this can.
pub fn parse_ipv4(text: &[u8]) -> Option<Ipv4Addr> {
    let mut octets = [0u8; 4];
    let mut at = 0;
    for &byte in text {
        if byte == b'.' {
            at += 1;
            continue;
        }
        let digit = byte.checked_sub(b'0').filter(|&digit| digit <= 9)?;
        let octet = octets.get_mut(at)?;
        *octet = octet.checked_mul(10)?.checked_add(digit)?;
    }
    (at == 3).then(|| Ipv4Addr::from(octets))
}

/// Colon form without brackets, with an optional IPv4 tail; no zone.
pub fn parse_ipv6(text: &[u8]) -> Option<Ipv6Addr> {
    if text.is_empty() {
        return None;
    }
    let text = text.strip_prefix(b":").unwrap_or(text);
    let mut groups = [0u16; 8];
    let mut len = 0;
    let mut gap = None;
    let (mut word, mut nibbles, mut group_at) = (0u16, 0, None);

    for (at, &byte) in text.iter().enumerate() {
        match byte {
            b':' if nibbles > 0 => {
                groups[len] = word;
                len += 1;
                if len == groups.len() {
                    return None;
                }
                (word, nibbles, group_at) = (0, 0, Some(at + 1));
            }
            b':' if gap.is_none() => (gap, group_at) = (Some(len), Some(at + 1)),
            b'.' if nibbles > 0 => {
                if len + 2 > groups.len() {
                    return None;
                }
                let tail = u32::from(parse_ipv4(&text[group_at?..])?);
                groups[len] = (tail >> 16) as u16;
                len += 1;
                word = tail as u16;
                break;
            }
            _ => {
                nibbles += 1;
                if nibbles > 4 {
                    return None;
                }
                word = word << 4 | u16::from(crate::bytes::hex_value(byte)?);
            }
        }
    }
    if nibbles == 0 && gap.is_none() {
        return None;
    }
    groups[len] = word;
    len += 1;
    match gap {
        Some(gap) if len < groups.len() => {
            groups.copy_within(gap..len, gap + 8 - len);
            groups[gap..gap + 8 - len].fill(0);
            Some(groups.into())
        }
        None if len == groups.len() => Some(groups.into()),
        _ => None,
    }
}

/// An IPv6 address that carries an IPv4 one (`::ffff:a.b.c.d`) as that IPv4 address.
pub fn unmapped(addr: IpAddr) -> IpAddr {
    match addr {
        IpAddr::V6(v6) => v6.to_ipv4_mapped().map_or(addr, IpAddr::V4),
        IpAddr::V4(_) => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ipv4() {
        for (text, expected) in [
            ("127.0.0.1", Some([127, 0, 0, 1])),
            ("255.255.255.255", Some([255; 4])),
            ("010.08.0.1", Some([10, 8, 0, 1])),
            ("1.2.3.", Some([1, 2, 3, 0])),
            ("1.2.3", None),
            ("1.2.3.4.5", None),
            ("1.2.3.256", None),
            ("1.2.3.4a", None),
            ("", None),
        ] {
            assert_eq!(parse_ipv4(text.as_bytes()), expected.map(Ipv4Addr::from), "{text}");
        }
    }

    #[test]
    fn ipv6() {
        for text in [
            "::",
            "::1",
            "1::",
            "1:2:3:4:5:6:7:8",
            "2001:db8::1",
            "FE80::a:B",
            "::1.2.3.4",
            "::ffff:1.2.3.4",
            "1:2:3:4:5:6:1.2.3.4",
            "64:ff9b::1.2.3.4",
            "1::3:4:5:6:7:8",
        ] {
            let expected: Ipv6Addr = text.parse().unwrap();
            assert_eq!(parse_ipv6(text.as_bytes()), Some(expected), "{text}");
        }
        for text in [
            "",
            ":",
            ":1",
            "1:",
            "1:2:3:4:5:6:7",
            "1:2:3:4:5:6:7:8:9",
            "1::2::3",
            "12345::",
            "g::",
            "1.2.3.4",
            "::1.2.3",
            "::1.2.3.4.5",
            "1:2:3:4:5:6:7:1.2.3.4",
            "::1%eth0",
            "1:::2",
            ":::",
        ] {
            assert_eq!(parse_ipv6(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn mapped() {
        assert_eq!(unmapped("::ffff:1.2.3.4".parse().unwrap()), IpAddr::from([1, 2, 3, 4]));
        assert_eq!(unmapped("::1".parse().unwrap()), "::1".parse::<IpAddr>().unwrap());
    }
}
