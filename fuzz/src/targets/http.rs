//! Fields that a server acts upon: ranges against a second, stricter reader; cookies written as
//! they were read.

use super::Target;
use crate::random::Random;
use weir_wire::http1::range::{self, Wanted};
use weir_wire::http1::set_cookie::{self, flag, Attr};

pub const RANGES: Target = Target {
    name: "ranges",
    seeds: &[
        b"0-3",
        b"4-",
        b"-3",
        b" 4 - 7 , -2",
        b"0-1,3-4,9-99,200-",
        b"5-3,0-0",
        b"0-0,1-1,2-2,3-3",
    ],
    pieces: &[
        b"-",
        b",",
        b" ",
        b"\t",
        b"0",
        b"9",
        b"+",
        b"0-0,",
        b"9223372036854775807",
        b"9223372036854775808",
        b"18446744073709551615",
        b"-0",
    ],
    check: ranges,
};

fn ranges(text: &[u8], random: &mut Random) {
    let size = match random.below(4) {
        0 => random.below(3) as u64,
        1 => i64::MAX as u64 - random.below(2) as u64,
        _ => random.below(300) as u64,
    };
    let max = random.coin().then(|| 1 + random.below(5) as u64);
    let wanted = range::parse(text, size, max);
    if let Wanted::Parts(list) = &wanted {
        assert!(!list.is_empty() && max.is_none_or(|m| list.len() as u64 <= m));
        assert!(list.iter().all(|(start, end)| start < end && *end <= size), "{list:?} of {size}");
        assert!(
            list.iter().map(|(start, end)| u128::from(end - start)).sum::<u128>() <= size.into()
        );
    }
    // What keeps to the letter of the RFC is read as the RFC means it.
    let Some(strict) = strict(text, size) else { return };
    match wanted {
        Wanted::Parts(list) => assert_eq!(list, strict),
        Wanted::Unsatisfiable => assert!(strict.is_empty()),
        Wanted::Whole => assert!(strict.len() > 1 || size == 0, "{strict:?}"),
    }
}

/// Ranges without any space, in numbers of at most 18 digits.
fn strict(text: &[u8], size: u64) -> Option<Vec<(u64, u64)>> {
    let text = std::str::from_utf8(text).ok()?;
    if !text.bytes().all(|b| b.is_ascii_digit() || b == b'-' || b == b',') {
        return None;
    }
    let number = |t: &str| (t.len() <= 18).then(|| t.parse::<u64>().ok()).flatten();
    let mut list = Vec::new();
    for item in text.split(',') {
        let (start, end) = match item.split_once('-')? {
            ("", last) => (size.saturating_sub(number(last)?), size),
            (first, "") => (number(first)?, size),
            (first, last) => (number(first)?, size.min(number(last)? + 1)),
        };
        if start < end {
            list.push((start, end));
        }
    }
    Some(list)
}

pub const COOKIES: Target = Target {
    name: "cookies",
    seeds: &[
        b"id=1; Domain=.localhost; path=/two/x; HttpOnly",
        b"a = b ;secure; SameSite=Lax;;=; x",
        b"secure=1; Secure; secure; samesite; SameSite=none; samesite=Strict",
        b"novalue; path=/",
    ],
    pieces: &[
        b";",
        b"=",
        b" ",
        b"\t",
        b"Secure",
        b"; secure",
        b"; httponly",
        b"; SameSite=lax",
        b"; samesite",
        b"\xff",
    ],
    check: cookies,
};

fn cookies(text: &[u8], random: &mut Random) {
    let attrs = set_cookie::parse(text);
    let written = set_cookie::write(&attrs);
    assert_eq!(set_cookie::parse(&written), attrs);
    assert_eq!(set_cookie::write(&set_cookie::parse(&written)), written);
    let without_spaces = |t: &[u8]| t.iter().copied().filter(|b| *b != b' ').collect::<Vec<u8>>();
    assert_eq!(without_spaces(&written), without_spaces(text));

    let mask = random.below(256) as u32;
    let mut edited = attrs.clone();
    set_cookie::edit_flags(&mut edited, mask);
    assert_eq!(edited[0], attrs[0], "the cookie itself");
    let is_flag = |a: &&Attr| [&b"secure"[..], b"httponly", b"samesite"].iter().any(|n| a.is(n));
    let rest =
        |list: &[Attr]| list[1..].iter().filter(|a| !is_flag(a)).cloned().collect::<Vec<_>>();
    assert_eq!(rest(&edited), rest(&attrs), "other attributes");
    let has = |list: &[Attr], name: &[u8]| list[1..].iter().any(|a| a.is(name));
    for (name, on, off) in [
        (&b"secure"[..], flag::SECURE, flag::NO_SECURE),
        (b"httponly", flag::HTTPONLY, flag::NO_HTTPONLY),
        (b"samesite", flag::STRICT | flag::LAX | flag::NONE, flag::NO_SAMESITE),
    ] {
        let wanted = match mask {
            m if m & on != 0 => true,
            m if m & off != 0 => false,
            _ => has(&attrs, name),
        };
        assert_eq!(has(&edited, name), wanted, "mask {mask}");
    }
    let again = &mut edited.clone();
    set_cookie::edit_flags(again, mask);
    assert_eq!(*again, edited, "done twice");
}
