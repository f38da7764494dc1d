//! Paths: their normal form has no dot segments and never leaves the root.

use super::Target;
use crate::random::Random;
use weir_wire::http1::uri::{exten, normalize, unescape, unsafe_uri, Rules};

pub const TARGET: Target = Target {
    name: "uri",
    seeds: &[
        b"/",
        b"/a/b.html",
        b"/a/./b/../c//d",
        b"/%2e%2e/x%2f..%2F",
        b"/a+b%20c%3f%25?args#fragment",
        b"/../..",
        b"/a/%2e/%2e./.%2e/b",
        b"/\xc3\xa9%e2%82%ac",
    ],
    pieces: &[
        b"/", b"//", b".", b"..", b"/..", b"/./", b"%", b"%2", b"%2e", b"%2F", b"%00", b"%25",
        b"%3f", b"%23", b"?", b"#", b"+", b"\\", b"\0", b" ", b":", b"$", b". ",
    ],
    check,
};

fn check(path: &[u8], random: &mut Random) {
    let mut out = Vec::new();
    let (merge, back, cut) = (random.coin(), random.coin(), random.coin());
    let rules = Rules { merge, back, cut };
    if path.first() == Some(&b'/') && normalize(path, rules, &mut out).is_ok() {
        assert!(out.first() == Some(&b'/') && out.len() <= path.len());
        assert!(!out.contains(&0) || path.contains(&0));
        let mut segments = out.split(|&b| b == b'/');
        assert!(!segments.any(|s| s == b".." || s == b"."), "{}", out.escape_ascii());
        assert!(!back || !out.contains(&b'\\'), "{}", out.escape_ascii());
        assert!(!merge || !out.windows(2).any(|w| w == b"//"), "{}", out.escape_ascii());
        let mut segments = out.split(|&b| b == b'/');
        let is_cut = segments.all(|s| !matches!(s.last(), Some(b'.' | b' ')));
        assert!(!cut || is_cut && !out.windows(2).any(|w| w == b":$"), "{}", out.escape_ascii());
        if !out.iter().any(|b| b"%?#".contains(b)) {
            let mut again = Vec::new();
            assert!(normalize(&out, rules, &mut again).is_ok() && again == out);
        }
    } else {
        // Paths that do not begin with a slash never come from a request; they must not panic.
        let _ = normalize(path, rules, &mut out);
    }
    let _ = exten(path);
    let _ = unsafe_uri(path, &mut out);
    out.clear();
    unescape(path, &mut out);
    assert!(out.len() <= path.len());
}
