//! The client behind trusted proxies, from `X-Forwarded-For`.

use std::net::IpAddr;

use super::parse_addr;
use weir_base::addr::{parse_ipv4, parse_ipv6, Cidr};
use weir_base::units::parse_int;
use weir_http::Request;
use weir_wire::http1::names::HeaderId;

/// The address that a trusted proxy told; with `recursive`, the last one that is not itself a
/// trusted proxy's.
pub fn client(r: &Request, addr: IpAddr, proxies: &[Cidr], recursive: bool) -> IpAddr {
    if proxies.is_empty() || !r.head.has(HeaderId::XForwardedFor) {
        return addr;
    }
    let lines: Vec<&[u8]> =
        r.head.get_all(HeaderId::XForwardedFor).map(|f| r.bytes(f.value)).collect();
    walk(addr, &lines, proxies, recursive)
}

fn walk(addr: IpAddr, lines: &[&[u8]], proxies: &[Cidr], recursive: bool) -> IpAddr {
    let mut addr = addr;
    let names = lines
        .iter()
        .rev()
        .flat_map(|line| line.rsplit(|b| matches!(b, b',' | b' ')).filter(|name| !name.is_empty()));
    for name in names {
        if !proxies.iter().any(|net| net.matches(addr)) {
            break;
        }
        let Some(next) = parse(name) else { break };
        addr = next;
        if !recursive {
            break;
        }
    }
    addr
}

/// An address, perhaps with a port.
fn parse(text: &[u8]) -> Option<IpAddr> {
    if let Some(addr) = parse_addr(text) {
        return Some(addr);
    }
    let colon = text.iter().rposition(|b| *b == b':')?;
    let port = parse_int(&text[colon + 1..])?;
    if !(1..=65_535).contains(&port) {
        return None;
    }
    match text[..colon].strip_prefix(b"[") {
        Some(inner) => parse_ipv6(inner.strip_suffix(b"]")?).map(IpAddr::V6),
        None => parse_ipv4(&text[..colon]).map(IpAddr::V4),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks() {
        let proxies = [Cidr::parse(b"127.0.0.0/8").unwrap().0];
        let from = |lines: &[&str], recursive| {
            let lines: Vec<&[u8]> = lines.iter().map(|l| l.as_bytes()).collect();
            walk("127.0.0.1".parse().unwrap(), &lines, &proxies, recursive).to_string()
        };
        assert_eq!(from(&["1.1.1.1, 2.2.2.2"], false), "2.2.2.2");
        assert_eq!(from(&["1.1.1.1, 127.0.0.2"], false), "127.0.0.2");
        assert_eq!(from(&["1.1.1.1, 127.0.0.2"], true), "1.1.1.1");
        assert_eq!(from(&["3.3.3.3, 1.1.1.1", "127.0.0.2"], true), "1.1.1.1");
        assert_eq!(from(&["x, 127.0.0.2,"], true), "127.0.0.2");
        assert_eq!(from(&["[2001:db8::1]:80"], true), "2001:db8::1");
        assert_eq!(from(&["1.1.1.1:8080"], true), "1.1.1.1");
        assert_eq!(from(&[""], true), "127.0.0.1");
    }
}
