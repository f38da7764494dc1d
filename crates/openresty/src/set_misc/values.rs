//! What is made of one string. `array_map_op` has these by their names too.

use super::{base32, quote, MiscLoc};
use md5::{Digest, Md5};
use ring::rand::{SecureRandom, SystemRandom};
use sha1::Sha1;
use std::rc::Rc;
use weir_base::base64;
use weir_base::bytes::push_hex;
use weir_base::units::parse_int;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::Request;
use weir_modules::rewrite::Failed;
use weir_runtime::{clock, tz};

/// Appends what a value comes to in a request.
type Make = fn(&mut Request, &[u8], &mut Vec<u8>) -> Result<(), Failed>;

/// Appends what a value comes to.
#[derive(Clone, Copy)]
pub(crate) enum Value {
    /// Of nothing but the value.
    Of(fn(&[u8], &mut Vec<u8>)),
    /// By what the request's location says, or with an error that is the request's.
    In(Make),
}

impl Value {
    pub(crate) fn make(
        self,
        r: &mut Request,
        value: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), Failed> {
        match self {
            Value::Of(make) => {
                make(value, out);
                Ok(())
            }
            Value::In(make) => make(r, value, out),
        }
    }
}

/// Appends what a value comes to by the directive of that name, for `ndk.set_var`: whether there is one, and what has
/// become of it.
pub(crate) fn by_name(
    name: &[u8],
    r: Option<&mut Request>,
    value: &[u8],
    out: &mut Vec<u8>,
) -> Option<bool> {
    Some(match (value_named(name)?, r) {
        (Value::Of(make), _) => {
            make(value, out);
            true
        }
        (Value::In(make), Some(r)) => make(r, value, out).is_ok(),
        (Value::In(_), None) => false,
    })
}

const VALUES: &[(&str, Value)] = &[
    ("set_quote_sql_str", Value::Of(quote::sql)),
    ("set_quote_pgsql_str", Value::Of(quote::pgsql)),
    ("set_quote_json_str", Value::Of(quote::json)),
    ("set_unescape_uri", Value::Of(unescape)),
    ("set_escape_uri", Value::Of(escape)),
    (
        "set_encode_base32",
        Value::In(|r, value, out| {
            let loc = Rc::clone(r.loc());
            let conf = loc.conf::<MiscLoc>();
            base32::encode(value, &conf.alphabet, *conf.padding, out);
            Ok(())
        }),
    ),
    (
        "set_decode_base32",
        Value::In(|r, value, out| {
            let loc = Rc::clone(r.loc());
            base32::decode(value, &loc.conf::<MiscLoc>().alphabet, out);
            Ok(())
        }),
    ),
    ("set_encode_base64", Value::Of(|value, out| base64::encode(out, value))),
    (
        "set_decode_base64",
        Value::In(|r, value, out| {
            taken(r, base64::decode(value), "set_decode_base64: invalid value", out)
        }),
    ),
    ("set_encode_base64url", Value::Of(encode_url)),
    (
        "set_decode_base64url",
        Value::In(|r, value, out| {
            taken(r, base64::decode_url(value), "set_decode_base64url: invalid value", out)
        }),
    ),
    ("set_encode_hex", Value::Of(|value, out| push_hex(out, value))),
    (
        "set_decode_hex",
        Value::In(|r, value, out| taken(r, from_hex(value), "set_decode_hex: invalid value", out)),
    ),
    ("set_sha1", Value::Of(|value, out| push_hex(out, &Sha1::digest(value)))),
    ("set_md5", Value::Of(|value, out| push_hex(out, &Md5::digest(value)))),
    (
        "set_secure_random_alphanum",
        Value::In(|r, value, out| {
            random(r, value, b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789", out)
        }),
    ),
    (
        "set_secure_random_lcalpha",
        Value::In(|r, value, out| random(r, value, b"abcdefghijklmnopqrstuvwxyz", out)),
    ),
    ("set_local_today", Value::In(|r, _, out| time(r, false, b"%Y-%m-%d", out))),
    ("set_formatted_gmt_time", Value::In(|r, value, out| time(r, true, value, out))),
    ("set_formatted_local_time", Value::In(|r, value, out| time(r, false, value, out))),
];

/// The function of a directive.
pub(crate) fn value_named(name: &[u8]) -> Option<Value> {
    VALUES.iter().find(|(n, _)| n.as_bytes() == name).map(|(_, value)| *value)
}

fn fail(r: &Request, text: &str) -> Failed {
    r.log(LogLevel::Error, text);
    Failed
}

fn taken(
    r: &Request,
    value: Option<Vec<u8>>,
    why_not: &str,
    out: &mut Vec<u8>,
) -> Result<(), Failed> {
    out.extend_from_slice(&value.ok_or_else(|| fail(r, why_not))?);
    Ok(())
}

/// As lenient as the module: of what follows a `%` and is no hexadecimal digit, the first stands for itself, and a
/// second is left out with it.
pub fn unescape(value: &[u8], out: &mut Vec<u8>) {
    let digit = |b: u8| char::from(b).to_digit(16).map(|n| n as u8);
    let mut rest = value.iter().copied();
    while let Some(byte) = rest.next() {
        match byte {
            b'+' => out.push(b' '),
            b'%' => {
                let Some(first) = rest.next() else { return };
                match digit(first) {
                    None => out.push(first),
                    Some(high) => {
                        out.extend(rest.next().and_then(digit).map(|low| high << 4 | low));
                    }
                }
            }
            byte => out.push(byte),
        }
    }
}

/// As a part of a URI.
pub fn escape(value: &[u8], out: &mut Vec<u8>) {
    for &byte in value {
        let is_plain = byte.is_ascii_graphic() && !b"\"#%&+/:;<=>?[\\]^{}".contains(&byte);
        match is_plain {
            true => out.push(byte),
            false => {
                let digit = |n: u8| b"0123456789ABCDEF"[usize::from(n & 15)];
                out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
            }
        }
    }
}

/// Without padding, as nginx writes it.
fn encode_url(value: &[u8], out: &mut Vec<u8>) {
    let start = out.len();
    base64::encode(out, value);
    let padding = out[start..].iter().rev().take_while(|b| **b == b'=').count();
    out.truncate(out.len() - padding);
    for byte in &mut out[start..] {
        match byte {
            b'+' => *byte = b'-',
            b'/' => *byte = b'_',
            _ => {}
        }
    }
}

fn from_hex(value: &[u8]) -> Option<Vec<u8>> {
    if !value.len().is_multiple_of(2) {
        return None;
    }
    let digit = |b: u8| char::from(b).to_digit(16);
    value.chunks(2).map(|pair| Some((digit(pair[0])? << 4 | digit(pair[1])?) as u8)).collect()
}

const RANDOM_MAX_CHARACTERS: u64 = 64;

fn random(r: &Request, value: &[u8], alphabet: &[u8], out: &mut Vec<u8>) -> Result<(), Failed> {
    let length = parse_int(value).filter(|n| (1..=RANDOM_MAX_CHARACTERS).contains(n));
    let Some(length) = length else {
        let shown = String::from_utf8_lossy(value);
        return Err(fail(r, &format!("set_random: bad \"length\" argument: {shown}")));
    };
    let end = out.len() + length as usize;
    // Of the bytes, those below the greatest multiple of the alphabet's length are even among its characters.
    let even = 256 / alphabet.len() * alphabet.len();
    let mut bytes = [0; 2 * RANDOM_MAX_CHARACTERS as usize];
    while out.len() < end {
        let filled = SystemRandom::new().fill(&mut bytes);
        filled.map_err(|_| fail(r, "set_secure_random: the system gives no random bytes"))?;
        let taken = bytes.iter().map(|b| usize::from(*b)).filter(|b| *b < even);
        out.extend(taken.take(end - out.len()).map(|b| alphabet[b % alphabet.len()]));
    }
    Ok(())
}

fn time(r: &Request, gmt: bool, format: &[u8], out: &mut Vec<u8>) -> Result<(), Failed> {
    if format.is_empty() {
        return Ok(());
    }
    let text = tz::strftime(clock::wall_secs(), gmt, format);
    out.extend_from_slice(&text.ok_or_else(|| fail(r, "a time's format comes to no text"))?);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn made(f: fn(&[u8], &mut Vec<u8>), value: &str) -> String {
        let mut out = Vec::new();
        f(value.as_bytes(), &mut out);
        String::from_utf8_lossy(&out).into_owned()
    }

    #[test]
    fn parts_of_uris() {
        for (value, plain) in [
            ("hello+world%21", "hello world!"),
            ("%e4%BD%a0", "\u{4f60}"),
            ("a%", "a"),
            ("a%4", "a"),
            ("%zz%4zb", "zzb"),
            ("%%41", "%41"),
        ] {
            assert_eq!(made(unescape, value), plain, "{value}");
        }
        assert_eq!(made(escape, "a b/\u{4f60}~-_.!*'(),@$|"), "a%20b%2F%E4%BD%A0~-_.!*'(),@$|");
        assert_eq!(made(escape, "\"#%&+:;<=>?[\\]^{}\n\x7f").len(), 19 * 3);
    }

    #[test]
    fn texts_for_bytes() {
        assert_eq!(made(encode_url, "?b><d?"), "P2I-PGQ_");
        assert_eq!(made(encode_url, "a"), "YQ");
        assert_eq!(from_hex(b"61fF").as_deref(), Some(&b"a\xff"[..]));
        assert_eq!((from_hex(b"6"), from_hex(b"6g")), (None, None));
    }
}
