//! Responses of name servers: no bytes cause a panic, and what is believed belongs to the query.

use super::Target;
use crate::random::Random;
use weir_resolve::message::{query, read, Kind};

pub const TARGET: Target = Target {
    name: "dns responses",
    seeds: &[
        b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0\x01a\x04test\0\0\x01\0\x01\xc0\x0c\0\x01\0\x01\0\0\0\x09\0\x04\x7f\0\0\x01",
        b"\0\x07\x81\x80\0\x01\0\x02\0\0\0\0\x01a\x04test\0\0\x01\0\x01\xc0\x0c\0\x05\0\x01\0\0\0\x09\0\x04\x01b\xc0\x0e\xc0\x24\0\x01\0\x01\0\0\0\x09\0\x04\x7f\0\0\x01",
        b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0\x01a\x04test\0\0\x1c\0\x01\xc0\x0c\0\x1c\0\x01\0\0\0\x09\0\x10\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01",
        b"\0\x07\x81\x80\0\x01\0\x01\0\0\0\0\x01a\x04test\0\0\x21\0\x01\xc0\x0c\0\x21\0\x01\0\0\0\x09\0\x0a\0\x01\0\x05\0\x50\x01b\xc0\x0e",
        b"\0\x07\x83\x80\0\x01\0\0\0\0\0\0\x01a\x04test\0\0\x01\0\x01",
    ],
    pieces: &[
        b"\xc0\x0c", b"\xc0\x00", b"\xc0\xff", b"\0", b"\xff\xff", b"\0\x01", b"\0\x05", b"\0\x1c", b"\0\x21",
        b"\x3f", b"\x01a\x04test\0", b"\x81\x80", b"\x80\0\0\0", b"\0\x29\x10\0", b"\0\x04\x7f\0\0\x01",
    ],
    check,
};

fn check(buf: &[u8], _: &mut Random) {
    for kind in [Kind::A, Kind::Aaaa, Kind::Srv] {
        for tcp in [false, true] {
            let Ok(reply) = read(buf, 7, "a.test", kind, tcp) else { continue };
            assert!(buf[..2] == [0, 7] && buf[2] & 0x80 != 0);
            assert!(!(tcp && reply.truncated));
            assert!(reply.addresses.len() + reply.services.len() <= buf.len() / 12);
            assert!(reply.addresses.iter().all(|a| a.is_ipv6() == (kind == Kind::Aaaa)));
            assert!(kind == Kind::Srv || reply.services.is_empty());
            assert!(reply.services.iter().all(|s| s.weight > 0));
        }
    }
    let name = String::from_utf8_lossy(buf).to_ascii_lowercase();
    if let Some(bytes) = query(7, &name, Kind::A) {
        assert!(bytes.len() == name.len() + 18 && read(&bytes, 7, &name, Kind::A, false).is_err());
    }
}
