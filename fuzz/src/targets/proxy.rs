//! The PROXY protocol: the same answer whole and in pieces.

use super::Target;
use crate::random::Random;
use std::net::{IpAddr, SocketAddr};
use weir_base::crc32c::crc32c;
use weir_wire::proxy_protocol::{
    parse, shown, tlv, write_v2, Parsed, TlsFacts, Transport, MAX_BYTES,
};

pub const TARGET: Target = Target {
    name: "proxy protocol",
    seeds: &[
        b"PROXY TCP4 192.0.2.1 198.51.100.2 123 5678\r\nGET / HTTP/1.1\r\n",
        b"PROXY TCP6 2001:db8::1 ::1 65535 1\r\n",
        b"PROXY UNKNOWN x y\r\n",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x13\x01\x02\x03\x04\x05\x06\x07\x08\x00\x50\x01\xbb\x20\x00\x04\x01\x00\x00\x00GET",
        b"\r\n\r\n\0\r\nQUIT\n\x20\x00\x00\x00",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x21\x00\x28aaaabbbbccccddddeeeeffffgggghhhh\x00\x50\x01\xbb\x01\x00\x01h",
    ],
    pieces: &[
        b"\r\n", b" ", b"PROXY ", b"TCP4", b"TCP6", b"UNKNOWN", b"\0", b"\xff", b":", b".", b"65536",
        b"\x21\x11", b"\x20", b"\x00\x0c", b"\x20\x00\x05", b"\r\n\r\n\0\r\nQUIT\n",
    ],
    check,
};

fn check(buf: &[u8], random: &mut Random) {
    let whole = parse(buf);
    let mut pieces = Ok(Parsed::NeedMore);
    for cut in random.cuts(buf.len()) {
        pieces = parse(&buf[..cut]);
        if pieces != Ok(Parsed::NeedMore) {
            break;
        }
    }
    assert_eq!(pieces, whole);
    assert!(shown(buf).len() <= buf.len());
    let Ok(Parsed::Header { len, client }) = whole else { return };
    assert!(len <= buf.len() && len <= MAX_BYTES);
    for name in ["ssl_verify", "ssl_cn", "alpn", "0x20"] {
        let _ = client.as_ref().map(|client| tlv(&client.tlvs, name));
    }
}

pub const WRITTEN: Target = Target {
    name: "proxy protocol, written",
    seeds: &[b"abcdabcd h.test", b"0123456789abcdef0123456789abcdef h.test"],
    pieces: &[b"\0", b"\xff\xff\x0a\0\0\x01", b"x"],
    check: written,
};

/// What is written is read back, with its addresses, its text and its checksum.
fn written(buf: &[u8], random: &mut Random) {
    let ip = |from: &[u8]| -> Option<IpAddr> {
        match from.first_chunk::<16>() {
            Some(bytes) => Some(IpAddr::from(*bytes)),
            None => from.first_chunk::<4>().map(|bytes| IpAddr::from(*bytes)),
        }
    };
    let half = buf.len() / 2;
    let (Some(from), Some(to)) = (ip(&buf[..half]), ip(&buf[half..])) else { return };
    let addresses = (SocketAddr::new(from, 1), SocketAddr::new(to, 65535));
    let text = buf.repeat(1 + random.below(3));
    let facts = TlsFacts { server_name: &text, cipher: buf, ..TlsFacts::default() };
    let mut out = Vec::new();
    let done = write_v2(Some(addresses), Transport::Stream, Some(&facts), &mut out);
    assert_eq!(done.is_err(), out.is_empty());
    if done.is_err() {
        return assert!(text.len() + buf.len() > MAX_BYTES - 200);
    }
    let Ok(Parsed::Header { len, client: Some(client) }) = parse(&out) else { panic!("{out:?}") };
    assert_eq!((len, client.source_port, client.destination_port), (out.len(), 1, 65535));
    let same = |text: &str, ip: IpAddr| {
        text.parse().map(|found: IpAddr| found.to_canonical()) == Ok(ip.to_canonical())
    };
    assert!(same(&client.source, from) && same(&client.destination, to));
    assert_eq!(tlv(&client.tlvs, "authority"), Ok(Some(text)));
    assert_eq!(tlv(&client.tlvs, "ssl_cipher"), Ok(Some(buf.to_vec())));
    let at = out.len() - 4;
    let crc = out.split_off(at);
    out.extend_from_slice(&[0; 4]);
    assert_eq!(crc, crc32c(&out).to_be_bytes());
}
