//! A TLS client's hello: the same whole and in pieces, and never more of it than there is.

use super::Target;
use crate::random::Random;
use weir_wire::client_hello::{Progress, Reader};

/// With a name, two protocols and the versions, in one record.
const WHOLE: &[u8] =
    b"\x16\x03\x01\0\x5a\x01\0\0\x56\x03\x030123456789abcdef0123456789abcdef\x02id\
    \0\x02\x13\x01\x01\0\0\x29\0\0\0\x0b\0\x09\0\0\x06a.test\0\x10\0\x08\0\x06\x02h2\x02x1\
    \0\x2b\0\x05\x04\x03\x04\x03\x03\xff\x01\0\x01\0";
/// The same in two.
const PARTS: &[u8] = b"\x16\x03\x01\0\x2c\x01\0\0\x56\x03\x030123456789abcdef0123456789abcdef\x02id\
    \0\x02\x13\x16\x03\x01\0\x2e\x01\x01\0\0\x29\0\0\0\x0b\0\x09\0\0\x06a.test\0\x10\0\x08\0\x06\x02h2\x02x1\
    \0\x2b\0\x05\x04\x03\x04\x03\x03\xff\x01\0\x01\0";

pub const TARGET: Target = Target {
    name: "client hello",
    seeds: &[WHOLE, PARTS, b"\x80\x2e\x01\x03\x01", b"GET / HTTP/1.0\r\n"],
    pieces: &[
        b"\0",
        b"\x01",
        b"\xff\xff",
        b"\x16\x03\x01\0\x05",
        b"\0\x10\0\x03\0\x01a",
        b"\0\0\0\x05",
        b"\0\x2b\0\x02",
        b"\x80",
        b"\x16\x03\x03\0\0",
    ],
    check,
};

fn check(buf: &[u8], random: &mut Random) {
    let whole = Reader::new().read(buf);
    let mut reader = Reader::new();
    let mut pieces = Progress::NeedMore;
    for cut in random.cuts(buf.len()) {
        pieces = reader.read(&buf[..cut]);
        if pieces != Progress::NeedMore {
            break;
        }
    }
    assert_eq!(pieces, whole);
    if buf == WHOLE || buf == PARTS {
        assert!(matches!(whole, Progress::Hello(_)));
    }
    let Progress::Hello(hello) = whole else { return };
    let told = hello.server_name.len() + hello.alpn.iter().map(|p| p.len() + 1).sum::<usize>();
    assert!(told <= buf.len() && hello.alpn.iter().all(|p| !p.is_empty()));
    hello.protocol();
}
