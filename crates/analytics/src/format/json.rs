//! Lines of JSON, by the names that nginx's variables have and that other servers give (Caddy, Traefik, Envoy).
//! A name counts wherever it stands, also within objects and arrays; what servers say of their answers' headers
//! does not.

use super::raw::{Field, Raw};
use memchr::memchr2;

const DEPTH_MAX: u32 = 16;
/// Longer names are none that are known.
const NAME_MAX_BYTES: usize = 32;
/// Values that may be escaped and are wanted.
const TEXTS_MAX: usize = 32;

/// A value of the line, or of what was decoded.
#[derive(Clone, Copy)]
enum Found<'a> {
    Plain(&'a [u8]),
    Decoded(usize, usize),
}

/// `decoded` is for strings with escapes in them.
pub fn split<'a>(line: &'a [u8], decoded: &'a mut Vec<u8>) -> Option<Raw<'a>> {
    decoded.clear();
    let mut found = [(Field::Skipped, Found::Plain(b"")); TEXTS_MAX];
    let mut count = 0;
    walk(line, &mut |field, text, is_escaped| {
        let Some(place) = found.get_mut(count) else { return };
        let value = match is_escaped {
            false => Found::Plain(text),
            true => {
                let start = decoded.len();
                unescape(text, decoded);
                Found::Decoded(start, decoded.len())
            }
        };
        *place = (field, value);
        count += 1;
    })?;
    let mut raw = Raw::default();
    for (field, value) in &found[..count] {
        raw.set(
            *field,
            match *value {
                Found::Plain(text) => text,
                Found::Decoded(start, end) => &decoded[start..end],
            },
        );
    }
    Some(raw)
}

/// Calls for every value whose name is known; `None` if it is no object, or ends early.
fn walk<'a>(line: &'a [u8], value: &mut dyn FnMut(Field, &'a [u8], bool)) -> Option<()> {
    let start = line.iter().position(|b| !b.is_ascii_whitespace())?;
    let mut rest = line[start..].strip_prefix(b"{")?;
    let mut depth = 1;
    let mut field = Field::Skipped;
    // The depth outside of an object that is not looked at, with what is in it.
    let mut ignored = None;
    let mut name: &[u8] = b"";
    while depth > 0 {
        let (first, behind) = rest.split_first()?;
        match first {
            b'{' | b'[' => {
                if ignored.is_none() && name.starts_with(b"resp") {
                    ignored = Some(depth);
                }
                depth += 1;
                rest = behind;
                if depth > DEPTH_MAX {
                    return None;
                }
            }
            b'}' | b']' => {
                depth -= 1;
                rest = behind;
                if ignored == Some(depth) {
                    ignored = None;
                }
                if *first == b'}' {
                    name = b"";
                }
            }
            b'"' => {
                let (text, is_escaped, behind) = string(behind)?;
                let next = behind.iter().position(|b| !b.is_ascii_whitespace())?;
                rest = &behind[next..];
                if rest[0] == b':' {
                    (name, field) = (text, known(text));
                } else if field != Field::Skipped && ignored.is_none() {
                    value(field, text, is_escaped);
                }
            }
            b',' | b':' | b' ' | b'\t' => rest = behind,
            _ => {
                let is_end = |b: &u8| matches!(b, b',' | b'}' | b']' | b' ' | b'\t');
                let end = rest.iter().position(is_end)?;
                let text = &rest[..end];
                if field != Field::Skipped
                    && ignored.is_none()
                    && !matches!(text, b"null" | b"true" | b"false")
                {
                    value(field, text, false);
                }
                rest = &rest[end..];
            }
        }
    }
    Some(())
}

/// Behind its first quote: what is in it, whether some of it is escaped, and what is behind it.
fn string(text: &[u8]) -> Option<(&[u8], bool, &[u8])> {
    let mut at = 0;
    let mut is_escaped = false;
    loop {
        at += memchr2(b'"', b'\\', &text[at..])?;
        if text[at] == b'"' {
            return Some((&text[..at], is_escaped, &text[at + 1..]));
        }
        is_escaped = true;
        at += 2;
        if at > text.len() {
            return None;
        }
    }
}

fn unescape(text: &[u8], out: &mut Vec<u8>) {
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'\\' {
            out.push(*first);
            continue;
        }
        let Some((letter, behind)) = rest.split_first() else { return };
        rest = behind;
        match letter {
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            b'r' => out.push(b'\r'),
            b'b' => out.push(8),
            b'f' => out.push(12),
            b'u' => {
                let (c, behind) = code(rest);
                rest = behind;
                out.extend_from_slice(c.encode_utf8(&mut [0; 4]).as_bytes());
            }
            other => out.push(*other),
        }
    }
}

/// The character of `XXXX`, or of two halves of one.
fn code(text: &[u8]) -> (char, &[u8]) {
    let unit = |text: &[u8]| {
        let digits = std::str::from_utf8(text.get(..4)?).ok()?;
        u32::from_str_radix(digits, 16).ok()
    };
    let Some(first) = unit(text) else { return (char::REPLACEMENT_CHARACTER, text) };
    let rest = &text[4..];
    if let (0xd800..=0xdbff, Some(second)) = (first, rest.strip_prefix(b"\\u")) {
        if let Some(low @ 0xdc00..=0xdfff) = unit(second) {
            let c = char::from_u32(0x10000 + ((first - 0xd800) << 10) + (low - 0xdc00));
            return (c.unwrap_or(char::REPLACEMENT_CHARACTER), &second[4..]);
        }
    }
    (char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER), rest)
}

/// What a name stands for, however it is written: `User-Agent`, `user_agent`.
fn known(name: &[u8]) -> Field {
    let name = name.strip_prefix(b"@").unwrap_or(name);
    if name.len() > NAME_MAX_BYTES {
        return Field::Skipped;
    }
    let mut folded = [0; NAME_MAX_BYTES];
    for (to, from) in folded.iter_mut().zip(name) {
        *to = if *from == b'-' { b'_' } else { from.to_ascii_lowercase() };
    }
    match &folded[..name.len()] {
        b"remote_addr"
        | b"client_ip"
        | b"clientip"
        | b"remote_ip"
        | b"remoteip"
        | b"ip"
        | b"client_addr"
        | b"clienthost"
        | b"c_ip"
        | b"remote_address"
        | b"downstream_remote_address" => Field::Address,
        b"time_local" | b"time_iso8601" | b"time" | b"timestamp" | b"ts" | b"datetime"
        | b"msec" | b"startutc" | b"start_time" => Field::TimeIso,
        b"request" | b"request_line" => Field::Request,
        b"request_method" | b"method" | b"verb" | b"requestmethod" => Field::Method,
        b"request_uri" | b"uri" | b"url" | b"path" | b"requestpath" => Field::Uri,
        b"server_protocol" | b"protocol" | b"proto" | b"http_version" | b"requestprotocol" => {
            Field::Protocol
        }
        b"status" | b"status_code" | b"response_code" | b"downstreamstatus" => Field::Status,
        b"body_bytes_sent"
        | b"bytes_sent"
        | b"bytes"
        | b"size"
        | b"response_size"
        | b"downstreamcontentsize" => Field::Bytes,
        b"http_referer" | b"http_referrer" | b"referer" | b"referrer" | b"request_referer" => {
            Field::Referrer
        }
        b"http_user_agent" | b"user_agent" | b"useragent" | b"agent" | b"request_user_agent" => {
            Field::Agent
        }
        b"host" | b"http_host" | b"server_name" | b"vhost" | b"domain" | b"requesthost"
        | b"authority" => Field::Host,
        b"request_time" | b"request_duration" | b"duration_s" => Field::Seconds,
        // Caddy's is in seconds, with a fraction; Traefik's has a name of its own case and is not known.
        b"duration" if name == b"duration" => Field::Seconds,
        b"request_time_ms" | b"duration_ms" | b"latency_ms" | b"response_time_ms" => {
            Field::Milliseconds
        }
        b"request_time_us" | b"duration_us" => Field::Microseconds,
        _ => Field::Skipped,
    }
}
