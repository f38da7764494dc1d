//! The PROXY protocol: the same answer whole and in pieces.

use super::Target;
use crate::random::Random;
use weir_wire::proxy_protocol::{parse, shown, tlv, Parsed, MAX_BYTES};

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
