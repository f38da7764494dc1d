//! What the master hands to the serving process: what is read is what was written, and nothing that
//! is cut is taken for whole.

use super::Target;
use crate::random::Random;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use weir_conf::Sources;
use weir_core::carried::Carried;
use weir_runtime::handed::{Kind, Message};

pub const TARGET: Target = Target {
    name: "handover",
    seeds: &[
        b"\0\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0/logweir configuration 1\n\x01\0\
          \0\0\0\x01\0\0\0a\x04\0\0\0x 1;\0\0\0\0\0\0\0\0",
        b"\x01\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0weir configuration 1\n\0\0\0\0\x01\0\0\0\x02\0\0\0*.\
          \x01\0\0\0\x01\0\0\0b\x01\0\0\0\x01\0\0\0k\x03\0\0\0key",
        b"\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0",
    ],
    pieces: &[
        b"\0\0\0\0",
        b"\x01\0\0\0",
        b"\x01\0\0\0\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"\xe9",
        b"weir configuration 1\n",
    ],
    check,
};

fn check(body: &[u8], random: &mut Random) {
    if let Some(message) = Message::unpack(body) {
        assert_eq!(message.pack(), body);
        bundle(&message.bundle, random);
        let head = body.len() - message.bundle.len();
        assert!(Message::unpack(&body[..random.below(head)]).is_none(), "cut");
    }
    bundle(body, random);
    // Any bytes may be a path, whatever they are.
    let path = |bytes: &[u8]| OsStr::from_bytes(bytes).into();
    let paths = body.chunks(1 + random.below(9)).map(path).collect();
    let listeners = random.below(1000);
    let kinds = [Kind::Configuration, Kind::Logs, Kind::Successor, Kind::NoSuccessor];
    let kind = kinds[random.below(kinds.len())];
    let made = Message { kind, listeners, paths, bundle: body.to_vec() };
    assert_eq!(Message::unpack(&made.pack()), Some(made));
}

fn bundle(bytes: &[u8], random: &mut Random) {
    let Ok(sources) = Sources::from_bundle(bytes) else { return };
    let again = sources.to_bundle();
    let read = Sources::from_bundle(&again);
    assert_eq!(read.as_ref().map(Sources::to_bundle), Ok(again));
    let size: usize = sources.files().iter().map(|f| f.path.len() + f.text.len()).sum();
    assert!(size < bytes.len());
    assert!(Sources::from_bundle(&bytes[..random.below(bytes.len())]).is_err(), "cut");
}

/// What is known of a kept connection that another process takes on.
pub const CARRIED: Target = Target {
    name: "carried connection",
    seeds: &[
        b"\x09\0\0\0\0\0\0\x001.2.3.4:5\x09\0\0\0\0\0\0\0[::1]:400\x01\0\0\0\0\0\0\0\x02\0\0\0\
          \0\0\0\0\x03\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\x05\0\0\0\0\0\0\0",
        b"\x07\0\0\0\0\0\0\0unix:/a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\
          \0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x07\0\0\0\0\0\0\x001.2.3.4\x01\0\0\0\0\0\0\0x\x09\0\
          \x0a\0\x03\0\0\0\0\0\0\0abc",
    ],
    pieces: &[
        b"\0\0\0\0\0\0\0\0",
        b"\x01\0\0\0\0\0\0\0",
        b"\xff\xff\xff\xff\xff\xff\xff\xff",
        b"unix:",
        b"\xe9",
        b"\0",
    ],
    check: carried,
};

fn carried(body: &[u8], random: &mut Random) {
    let Some(carried) = Carried::unpack(body) else { return };
    let packed = carried.pack();
    assert_eq!(Carried::unpack(&packed).as_ref(), Some(&carried));
    assert!(Carried::unpack(&[body, b"x"].concat()).is_none(), "more behind it");
    // What a connection has said through the PROXY protocol may be missing, and nothing else.
    let less = Carried::unpack(&packed[..random.below(packed.len())]);
    assert!(less.is_none_or(|less| less == Carried { proxied: None, ..carried }));
}
