//! Databases of addresses: whatever a file holds, a look-up ends.

use super::Target;
use crate::random::Random;
use weir_script::mmdb::Mmdb;

pub const TARGET: Target = Target {
    name: "database of addresses",
    seeds: &[
        // One node, whose left record leads to a map; what the file says of itself.
        b"\0\0\x11\0\0\x01\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xe2\x41a\x41b\x41c\x02\x04\x41d\x20\x02\
          \xab\xcd\xefMaxMind.com\xe6\x5bbinary_format_major_version\xc1\x02\x4anode_count\xc1\x01\
          \x4brecord_size\xc1\x18\x4aip_version\xc1\x04\x4bbuild_epoch\xc1\x09\x4ddatabase_type\x44Test",
        b"\0\0\x01\0\0\x01\0\0\x12\0\0\x02\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x5d\x01etadataa-text-that-is-long\
          \xab\xcd\xefMaxMind.com\xe5\x5bbinary_format_major_version\xc1\x02\x4anode_count\xc1\x02\
          \x4brecord_size\xc1\x18\x4aip_version\xc1\x06\x4ddatabase_type\x44Test",
    ],
    pieces: &[
        b"\xab\xcd\xefMaxMind.com",
        b"\xff\xff\xff",
        b"\x20\x00",
        b"\x38\xff\xff\xff\xff",
        b"\xfe\xff\xff",
        b"\x1f\x04\xff\xff\xff",
        b"\xe1\x41a",
        b"\0",
    ],
    check: database,
};

fn database(buf: &[u8], _: &mut Random) {
    let Ok(file) = Mmdb::new(buf.to_vec()) else { return };
    for address in ["0.0.0.0", "127.0.0.1", "255.255.255.255", "::", "2001:db8::1", "ffff::"] {
        let Ok(address) = address.parse() else { continue };
        let Some(entry) = file.find(address) else { continue };
        for path in [&[][..], &["a"], &["b"], &["c", "1"], &["c", "-1"], &["a", "a", "a"]] {
            let _ = entry.get(path);
        }
    }
}
