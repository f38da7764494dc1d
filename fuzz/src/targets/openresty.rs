//! Values that clients send: encoded, quoted, sealed, in forms and as names of functions.

use super::Target;
use weir_openresty::readers::{
    decode, encode, escape, is_function, items, json, open, packed, pgsql, seal, sql, unescape,
    values, Alphabet,
};

pub const TARGET: Target = Target {
    name: "openresty",
    seeds: &[
        b"hello+world%21",
        b"49k6ar3cdsm20trfe9m68892c5h0====",
        b"name=a%20b&other=&name=c",
        b"it's \"quoted\" \\ $",
        b"\0list\0\x01\0\0\0a\0\0\0\0",
        b"jQuery.callbacks[12]",
        b"0123456789abcdef0123456789abcdef",
    ],
    pieces: &[
        b"%",
        b"%4",
        b"+",
        b"=",
        b"&",
        b"name=",
        b"\0list\0",
        b"\xff\xff\xff\xff",
        b"\x02\0\0\0",
        b"'",
        b"\"",
        b"\\",
        b"\x1a",
        b".",
        b"[",
        b"]",
        b"[1]",
        b"v",
        b"w",
        b"\xe4\xbd",
    ],
    check: |input, _| {
        encodings(input);
        quotes(input);
        lists(input);
        sessions(input);
        if is_function(input) {
            let is_plain = |b: &u8| b.is_ascii_alphanumeric() || b"$_.[]".contains(b);
            assert!(input.iter().all(is_plain));
        }
    },
};

fn made(f: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut out = Vec::new();
    f(&mut out);
    out
}

fn encodings(input: &[u8]) {
    let alphabet = Alphabet::default();
    for padding in [true, false] {
        let text = made(|out| encode(input, &alphabet, padding, out));
        assert_eq!(made(|out| decode(&text, &alphabet, out)), input);
    }
    assert!(made(|out| decode(input, &alphabet, out)).len() <= input.len());
    let text = made(|out| escape(input, out));
    assert_eq!(made(|out| unescape(&text, out)), input);
    assert!(made(|out| unescape(input, out)).len() <= input.len());
}

/// What ends a string is never what it was made of.
fn quotes(input: &[u8]) {
    let is_whole = |text: &[u8], quote: u8| {
        let inner = text.strip_prefix(&[quote]).and_then(|t| t.strip_suffix(&[quote]));
        let Some(inner) = inner else { return false };
        let mut bytes = inner.iter();
        while let Some(byte) = bytes.next() {
            match *byte {
                b'\\' if bytes.next().is_none() => return false,
                byte if byte == quote => return false,
                _ => {}
            }
        }
        true
    };
    assert!(is_whole(&made(|out| sql(input, out)), b'\''));
    let text = made(|out| pgsql(input, out));
    assert!(is_whole(text.strip_prefix(b"E").unwrap_or(&text), b'\''));
    assert!(std::str::from_utf8(&text).is_ok());
    let text = made(|out| json(input, out));
    assert!(text == b"null" || is_whole(&text, b'"'));
    assert!(text.iter().all(|b| !b.is_ascii_control() || *b == 0x7f));
}

fn lists(input: &[u8]) {
    if let Some(found) = items(input) {
        assert_eq!(packed(found.into_iter()).as_deref(), Ok(input));
    }
    let fields: Vec<&[u8]> = values(input, b"name").collect();
    assert!(fields.iter().all(|value| !value.contains(&b'&')));
    if let Ok(list) = packed(fields.iter().copied()) {
        assert_eq!(items(&list), Some(fields));
    }
}

fn sessions(input: &[u8]) {
    let (key, iv) = (b"abcdefghijklmnopqrstuvwxyz123456", [7; 16]);
    let session = made(|out| seal(key, &iv, input, 17, out));
    assert_eq!(open(key, &iv, &session), Some((input.to_vec(), 17)));
    assert_eq!(open(key, &iv, input), None);
}
