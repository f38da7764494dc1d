//! The PROXY protocol, versions 1 and 2, that a balancer puts in front of a connection.
//!
//! As in nginx, addresses of version 1 are kept as text and judged only by their characters;
//! `LOCAL` and families other than TCP over IP are accepted and name nobody. Unlike nginx, a
//! header that arrives in pieces is waited for.

mod write;

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use crate::scan::{self, CR, LF};
use weir_base::units::parse_hex;

pub use write::{write_v1, write_v2, ClientCertificate, TlsFacts, TooLong, Transport};

/// No header is longer, TLVs included.
pub const MAX_BYTES: usize = 4096;
/// The longest version 1 header.
pub const V1_MAX_BYTES: usize = 107;

const SIGNATURE: &[u8; 12] = b"\r\n\r\n\0\r\nQUIT\n";
const V2_FIXED: usize = 16;

/// Who the client is, by the header.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Proxied {
    pub source: String,
    pub destination: String,
    pub source_port: u16,
    pub destination_port: u16,
    /// Version 2's extensions, to be read with [`tlv`].
    pub tlvs: Vec<u8>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Parsed {
    NeedMore,
    /// `len` bytes of header; `client` is `None` if it names nobody.
    Header {
        len: usize,
        client: Option<Proxied>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ProxyProtocolError {
    /// Log `broken header: "…"` with the first line.
    Broken,
    UnknownVersion(u8),
    TooLarge,
}

/// Reads the header at the start of a connection.
pub fn parse(buf: &[u8]) -> Result<Parsed, ProxyProtocolError> {
    let n = buf.len().min(SIGNATURE.len());
    if buf.get(..n) == SIGNATURE.get(..n) {
        return parse_v2(buf);
    }
    parse_v1(buf)
}

/// The part of a broken header that a log shows: its first line.
pub fn shown(buf: &[u8]) -> &[u8] {
    let end = memchr::memchr2(CR, LF, buf).unwrap_or(buf.len());
    buf.get(..end).unwrap_or(buf)
}

fn parse_v1(buf: &[u8]) -> Result<Parsed, ProxyProtocolError> {
    let prefix = b"PROXY ";
    let n = buf.len().min(prefix.len());
    if buf.get(..n) != prefix.get(..n) {
        return Err(ProxyProtocolError::Broken);
    }
    let buf_max = buf.get(..MAX_BYTES).unwrap_or(buf);
    let Some(lf) = memchr::memmem::find(buf_max, b"\r\n") else {
        // What cannot become a header any more is not waited for.
        let begun = buf.get(prefix.len()..).unwrap_or_default();
        let may_be = |word: &[u8]| begun.iter().zip(word).all(|(a, b)| a == b);
        let is_begun = [&b"TCP4 "[..], b"TCP6 ", b"UNKNOWN"].into_iter().any(may_be);
        return match is_begun && buf.len() < MAX_BYTES {
            true => Ok(Parsed::NeedMore),
            false => Err(ProxyProtocolError::Broken),
        };
    };
    let line = buf.get(prefix.len()..lf).ok_or(ProxyProtocolError::Broken)?;
    let len = lf + 2;
    if line.starts_with(b"UNKNOWN") {
        return Ok(Parsed::Header { len, client: None });
    }
    let client = v1_addresses(line).ok_or(ProxyProtocolError::Broken)?;
    Ok(Parsed::Header { len, client: Some(client) })
}

fn v1_addresses(line: &[u8]) -> Option<Proxied> {
    let rest = line.strip_prefix(b"TCP4 ").or_else(|| line.strip_prefix(b"TCP6 "))?;
    let mut parts = rest.splitn(4, |&b| b == b' ');
    let source = v1_address(parts.next()?)?;
    let destination = v1_address(parts.next()?)?;
    let source_port = v1_port(parts.next()?)?;
    let destination_port = v1_port(parts.next()?)?;
    Some(Proxied { source, destination, source_port, destination_port, tlvs: Vec::new() })
}

fn v1_address(text: &[u8]) -> Option<String> {
    let good = |b: &u8| b.is_ascii_hexdigit() || matches!(b, b':' | b'.');
    if !text.iter().all(good) {
        return None;
    }
    Some(text.iter().map(|&b| char::from(b)).collect())
}

fn v1_port(text: &[u8]) -> Option<u16> {
    u16::try_from(scan::decimal(text)?).ok()
}

fn parse_v2(buf: &[u8]) -> Result<Parsed, ProxyProtocolError> {
    let Some(fixed) = buf.first_chunk::<V2_FIXED>() else { return Ok(Parsed::NeedMore) };
    let [version_command, family_transport, high, low] =
        [fixed[12], fixed[13], fixed[14], fixed[15]];
    if version_command >> 4 != 2 {
        return Err(ProxyProtocolError::UnknownVersion(version_command >> 4));
    }
    let len = V2_FIXED + usize::from(u16::from_be_bytes([high, low]));
    if len > MAX_BYTES {
        return Err(ProxyProtocolError::TooLarge);
    }
    let Some(payload) = buf.get(V2_FIXED..len) else { return Ok(Parsed::NeedMore) };
    const COMMAND_PROXY: u8 = 1;
    const TRANSPORT_STREAM: u8 = 1;
    let names_client =
        version_command & 15 == COMMAND_PROXY && family_transport & 15 == TRANSPORT_STREAM;
    let client = match family_transport >> 4 {
        1 if names_client => Some(v2_inet(payload)),
        2 if names_client => Some(v2_inet6(payload)),
        _ => None,
    };
    match client {
        Some(None) => Err(ProxyProtocolError::Broken),
        Some(client) => Ok(Parsed::Header { len, client }),
        None => Ok(Parsed::Header { len, client: None }),
    }
}

fn v2_inet(payload: &[u8]) -> Option<Proxied> {
    let (addresses, tlvs) = payload.split_first_chunk::<12>()?;
    let ip =
        |at: usize| addresses.get(at..)?.first_chunk::<4>().map(|b| IpAddr::V4(Ipv4Addr::from(*b)));
    v2_client(ip(0)?, ip(4)?, addresses.get(8..)?, tlvs)
}

fn v2_inet6(payload: &[u8]) -> Option<Proxied> {
    let (addresses, tlvs) = payload.split_first_chunk::<36>()?;
    let ip = |at: usize| {
        addresses.get(at..)?.first_chunk::<16>().map(|b| IpAddr::V6(Ipv6Addr::from(*b)))
    };
    v2_client(ip(0)?, ip(16)?, addresses.get(32..)?, tlvs)
}

fn v2_client(source: IpAddr, destination: IpAddr, ports: &[u8], tlvs: &[u8]) -> Option<Proxied> {
    let &[a, b, c, d] = ports.first_chunk::<4>()?;
    Some(Proxied {
        source: source.to_string(),
        destination: destination.to_string(),
        source_port: u16::from_be_bytes([a, b]),
        destination_port: u16::from_be_bytes([c, d]),
        tlvs: tlvs.to_vec(),
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TlvError {
    /// The extensions are cut off.
    Broken,
    UnknownName,
}

/// The extension that `$proxy_protocol_tlv_NAME` shows: `alpn`, `authority`, `unique_id`,
/// `ssl`, `netns`, `ssl_version`, `ssl_cn`, `ssl_cipher`, `ssl_sig_alg`, `ssl_key_alg`,
/// `ssl_verify`, or a number such as `0x01` and `ssl_0x21`.
pub fn tlv(tlvs: &[u8], name: &str) -> Result<Option<Vec<u8>>, TlvError> {
    const SSL: u64 = 0x20;
    let Some(sub) = name.strip_prefix("ssl_") else {
        let kind = match name {
            "alpn" => 0x01,
            "authority" => 0x02,
            "unique_id" => 0x05,
            "ssl" => SSL,
            "netns" => 0x30,
            _ => numbered(name)?,
        };
        return Ok(find_tlv(tlvs, kind)?.map(<[u8]>::to_vec));
    };
    let Some(ssl) = find_tlv(tlvs, SSL)? else { return Ok(None) };
    let (fixed, subs) = ssl.split_first_chunk::<5>().ok_or(TlvError::Broken)?;
    let kind = match sub {
        "verify" => {
            let [_, verify @ ..] = *fixed;
            return Ok(Some(u32::from_be_bytes(verify).to_string().into_bytes()));
        }
        "version" => 0x21,
        "cn" => 0x22,
        "cipher" => 0x23,
        "sig_alg" => 0x24,
        "key_alg" => 0x25,
        _ => numbered(sub)?,
    };
    Ok(find_tlv(subs, kind)?.map(<[u8]>::to_vec))
}

/// A number that no extension can have is looked for as any other.
fn numbered(name: &str) -> Result<u64, TlvError> {
    let digits = name.strip_prefix("0x").ok_or(TlvError::UnknownName)?;
    parse_hex(digits.as_bytes()).ok_or(TlvError::UnknownName)
}

fn find_tlv(tlvs: &[u8], wanted: u64) -> Result<Option<&[u8]>, TlvError> {
    let mut rest = tlvs;
    while !rest.is_empty() {
        let (&[kind, high, low], after) = rest.split_first_chunk::<3>().ok_or(TlvError::Broken)?;
        let len = usize::from(u16::from_be_bytes([high, low]));
        let value = after.get(..len).ok_or(TlvError::Broken)?;
        if u64::from(kind) == wanted {
            return Ok(Some(value));
        }
        rest = after.get(len..).unwrap_or_default();
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(buf: &[u8]) -> (usize, Option<Proxied>) {
        match parse(buf) {
            Ok(Parsed::Header { len, client }) => (len, client),
            other => panic!("{other:?}"),
        }
    }

    fn v2(command: u8, family: u8, payload: &[u8]) -> Vec<u8> {
        let mut buf = SIGNATURE.to_vec();
        buf.extend_from_slice(&[command, family]);
        buf.extend_from_slice(&(payload.len() as u16).to_be_bytes());
        buf.extend_from_slice(payload);
        buf
    }

    #[test]
    fn version_1() {
        let (len, client) = header(b"PROXY TCP4 192.0.2.1 198.51.100.2 123 5678\r\nGET /");
        let client = client.expect("a client");
        assert_eq!((len, client.source.as_str()), (44, "192.0.2.1"));
        assert_eq!(client.destination, "198.51.100.2");
        assert_eq!((client.source_port, client.destination_port), (123, 5678));
        assert_eq!(header(b"PROXY UNKNOWN anything\r\n"), (24, None));
        for buf in [&b""[..], b"P", b"PROXY ", b"PROXY TCP4 1.2.3.4", b"PROXY UNKNOWN\r"] {
            assert_eq!(parse(buf), Ok(Parsed::NeedMore), "{buf:?}");
        }
        for buf in [
            &b"GET / HTTP/1.0\r\n"[..],
            b"PROXY TCP4 host 1.2.3.4 1 2\r\n",
            b"PROXY TCP5 1.1.1.1 1.2.3.4 1 2\r\n",
            b"PROXY INVALID",
            b"PROXY TCP4 1.1.1.1 1.2.3.4 1 65536\r\n",
            b"PROXY TCP4 1.1.1.1 1.2.3.4 1\r\n",
            b"PROXY TCP4 1.1.1.1 1.2.3.4 1 2 3\r\n",
        ] {
            assert_eq!(parse(buf), Err(ProxyProtocolError::Broken), "{buf:?}");
        }
    }

    #[test]
    fn version_2() {
        let mut payload = vec![192, 0, 2, 1, 198, 51, 100, 2, 0, 80, 1, 187];
        payload.extend_from_slice(b"\x02\x00\x03a.b");
        payload.extend_from_slice(b"\x20\x00\x0c\x01\x00\x00\x00\x07\x21\x00\x04TLSx");
        let (len, client) = header(&v2(0x21, 0x11, &payload));
        let client = client.expect("a client");
        assert_eq!(len, 16 + payload.len());
        assert_eq!((client.source.as_str(), client.source_port), ("192.0.2.1", 80));
        assert_eq!((client.destination.as_str(), client.destination_port), ("198.51.100.2", 443));
        let get = |name| tlv(&client.tlvs, name).map(|v| v.map(|v| v.to_ascii_lowercase()));
        assert_eq!(get("authority"), Ok(Some(b"a.b".to_vec())));
        assert_eq!(get("0x2"), Ok(Some(b"a.b".to_vec())));
        assert_eq!(get("ssl_version"), Ok(Some(b"tlsx".to_vec())));
        assert_eq!(get("ssl_verify"), Ok(Some(b"7".to_vec())));
        assert_eq!(get("alpn"), Ok(None));
        for name in ["nonsense", "0x", "0xg", "0x+1", "ssl_", "ssl_nonsense", "ssl_0x"] {
            assert_eq!(get(name), Err(TlvError::UnknownName), "{name}");
        }
        assert_eq!(get("0x100"), Ok(None));
        assert_eq!(get("ssl_0x0021"), Ok(Some(b"tlsx".to_vec())));
        assert_eq!(tlv(b"\x01\x00\x09x", "alpn"), Err(TlvError::Broken));

        let mut payload = vec![0; 36];
        payload[15] = 1;
        payload[31] = 2;
        let (_, client) = header(&v2(0x21, 0x21, &payload));
        assert_eq!(client.map(|c| (c.source, c.destination)), Some(("::1".into(), "::2".into())));
        assert_eq!(header(&v2(0x20, 0x00, b"")), (16, None));
        assert_eq!(header(&v2(0x21, 0x12, &[0; 12])), (28, None));
        assert_eq!(parse(&v2(0x31, 0x11, b"")), Err(ProxyProtocolError::UnknownVersion(3)));
        assert_eq!(parse(&v2(0x21, 0x11, b"123")), Err(ProxyProtocolError::Broken));
        assert_eq!(parse(&v2(0x21, 0x11, &[0; 5000])), Err(ProxyProtocolError::TooLarge));
    }
}
