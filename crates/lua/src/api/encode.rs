//! Escapes, digests and check sums.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::ANY;
use crate::site::Block;
use crate::symbols;
use md5::{Digest, Md5};
use ring::hmac;
use sha1::Sha1;
use weir_base::base64;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_http::generation::HttpConf;
use weir_http::lent::Lent;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("ndk_value", ANY, ndk_value),
    OpRow::any("escape_uri", ANY, escape),
    OpRow::any("unescape_uri", ANY, unescape),
    OpRow::any("md5", ANY, |_, args, answer| {
        hex(&Md5::digest(args.a), &mut answer.text);
        code::TEXT
    }),
    OpRow::any("md5_bin", ANY, |_, args, answer| answer.text(&Md5::digest(args.a))),
    OpRow::any("sha1_bin", ANY, |_, args, answer| answer.text(&Sha1::digest(args.a))),
    OpRow::any("crc32", ANY, |_, args, answer| answer.number(f64::from(crc32fast::hash(args.a)))),
    OpRow::any("hmac_sha1", ANY, hmac_sha1),
    OpRow::any("quote_sql_str", ANY, quote_sql),
    OpRow::any("encode_base64", ANY, encode_base64),
    OpRow::any("decode_base64", ANY, decode_base64),
    OpRow::any("decode_args", ANY, decode_args),
];

fn hex(bytes: &[u8], out: &mut Vec<u8>) {
    for b in bytes {
        out.extend_from_slice(&symbols::hex(*b));
    }
}

/// The kinds by nginx's numbers.
pub(crate) const KINDS: [EscapeKind; 7] = [
    EscapeKind::Uri,
    EscapeKind::Args,
    EscapeKind::UriComponent,
    EscapeKind::Html,
    EscapeKind::Refresh,
    EscapeKind::Memcached,
    EscapeKind::Memcached,
];

fn escape(_: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let kind = KINDS.get(args.i as usize).copied().unwrap_or(EscapeKind::UriComponent);
    escape_uri(&mut answer.text, args.a, kind);
    code::TEXT
}

fn unescape(_: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    unescape_component(args.a, &mut answer.text);
    code::TEXT
}

/// As arguments are: `+` is a space.
fn unescape_component(text: &[u8], out: &mut Vec<u8>) {
    let digit = |b: Option<&u8>| b.and_then(|b| char::from(*b).to_digit(16)).map(|d| d as u8);
    let mut at = 0;
    while let Some(b) = text.get(at) {
        match b {
            b'+' => out.push(b' '),
            b'%' => match (digit(text.get(at + 1)), digit(text.get(at + 2))) {
                (Some(high), Some(low)) => {
                    out.push(high << 4 | low);
                    at += 2;
                }
                _ => out.push(b'%'),
            },
            b => out.push(*b),
        }
        at += 1;
    }
}

fn hmac_sha1(_: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let key = hmac::Key::new(hmac::HMAC_SHA1_FOR_LEGACY_USE_ONLY, args.a);
    answer.text(hmac::sign(&key, args.b).as_ref())
}

fn quote_sql(_: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    answer.text.push(b'\'');
    for b in args.a {
        let escaped: &[u8] = match b {
            0 => b"\\0",
            b'\n' => b"\\n",
            b'\r' => b"\\r",
            b'\t' => b"\\t",
            0x08 => b"\\b",
            0x1a => b"\\Z",
            b'\\' => b"\\\\",
            b'\'' => b"\\'",
            b'"' => b"\\\"",
            _ => std::slice::from_ref(b),
        };
        answer.text.extend_from_slice(escaped);
    }
    answer.text.push(b'\'');
    code::TEXT
}

/// `args.i`: 0 as usual, 1 without padding, 2 for URLs.
fn encode_base64(_: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    base64::encode(&mut answer.text, args.a);
    if args.i > 0 {
        while answer.text.last() == Some(&b'=') {
            answer.text.pop();
        }
    }
    if args.i == 2 {
        for b in answer.text.iter_mut() {
            match b {
                b'+' => *b = b'-',
                b'/' => *b = b'_',
                _ => {}
            }
        }
    }
    code::TEXT
}

/// `args.i`: 0 as usual, 1 what is not of the alphabet is passed over, 2 of URLs.
fn decode_base64(_: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let filtered: Vec<u8>;
    let text = match args.i {
        1 => {
            let is_of = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'/');
            filtered = args.a.iter().copied().filter(is_of).collect();
            &filtered[..]
        }
        _ => args.a,
    };
    let decoded = if args.i == 2 { base64::decode_url(text) } else { base64::decode(text) };
    match decoded {
        Some(bytes) => answer.text(&bytes),
        None => code::NIL,
    }
}

fn decode_args(_: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    write_args(args.a, args.i, answer)
}

/// Arguments as a list of names and values; `max` 0 or less: all.
pub(super) fn write_args(text: &[u8], max: i32, answer: &mut Answer) -> i32 {
    let max = if max <= 0 { usize::MAX } else { max as usize };
    let (mut count, mut truncated) = (0, false);
    let mut list = answer.list();
    let (mut name, mut value) = (Vec::new(), Vec::new());
    for part in text.split(|b| *b == b'&').filter(|p| !p.is_empty()) {
        let at = memchr::memchr(b'=', part);
        name.clear();
        unescape_component(&part[..at.unwrap_or(part.len())], &mut name);
        if name.is_empty() {
            continue;
        }
        if count >= max {
            truncated = true;
            break;
        }
        count += 1;
        list.text(&name);
        match at {
            None => list.boolean(true),
            Some(at) => {
                value.clear();
                unescape_component(&part[at + 1..], &mut value);
                list.text(&value)
            }
        };
    }
    if truncated {
        code::CUT_TABLE
    } else {
        code::TABLE
    }
}
/// `ndk.set_var`: what the directive `a` makes of `b`.
fn ndk_value(state: &mut State<'_>, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if state.vm.block != Block::Http {
        return code::NIL;
    }
    let Some(http) = state.vm.gen.part::<HttpConf>() else { return code::NIL };
    let make = http.main.get::<Lent>().make_value;
    let mut out = Vec::new();
    match make(args.a, state.r.as_deref_mut(), args.b, &mut out) {
        None => code::NIL,
        Some(true) => answer.text(&out),
        Some(false) => code::FALSE,
    }
}
