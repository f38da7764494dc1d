//! `log_format`.

use super::raw::Field;
use super::text::{Part, Text};
use super::Escape;

/// What a variable says; of those that say the same, the first one counts.
fn field(name: &[u8]) -> Field {
    match name {
        b"remote_addr" => Field::Address,
        b"time_local" => Field::TimeLocal,
        b"time_iso8601" => Field::TimeIso,
        b"msec" => Field::TimeUnix,
        b"request" => Field::Request,
        b"request_method" => Field::Method,
        b"request_uri" | b"uri" | b"document_uri" => Field::Uri,
        b"args" | b"query_string" => Field::Args,
        b"server_protocol" => Field::Protocol,
        b"status" => Field::Status,
        b"body_bytes_sent" | b"bytes_sent" => Field::Bytes,
        b"http_referer" => Field::Referrer,
        b"http_user_agent" => Field::Agent,
        b"host" | b"http_host" | b"server_name" => Field::Host,
        b"request_time" => Field::Seconds,
        _ => Field::Skipped,
    }
}

/// Where clients are that a proxy before this server speaks for.
const BEHIND_PROXIES: &[&[u8]] = &[
    b"http_x_forwarded_for",
    b"http_x_real_ip",
    b"http_cf_connecting_ip",
    b"proxy_protocol_addr",
    b"realip_remote_addr",
];

enum Word<'a> {
    Text(&'a [u8]),
    Variable(&'a [u8]),
}

pub fn compile(text: &[u8], escape: Escape) -> Result<Text, String> {
    let words = words(text)?;
    let has =
        |wanted: &[u8]| words.iter().any(|w| matches!(w, Word::Variable(name) if *name == wanted));
    let has_address = has(b"remote_addr");
    let is_whole = has(b"request_uri");
    let parts = words.iter().map(|word| match word {
        Word::Text(text) => Part::Text(text.to_vec()),
        Word::Variable(name) if !has_address && BEHIND_PROXIES.contains(name) => {
            Part::Field(Field::Address)
        }
        Word::Variable(b"uri" | b"document_uri" | b"args" | b"query_string") if is_whole => {
            Part::Field(Field::Skipped)
        }
        Word::Variable(name) => Part::Field(field(name)),
    });
    Text::new(parts.collect(), escape)
}

fn words(text: &[u8]) -> Result<Vec<Word<'_>>, String> {
    let mut words = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let dollar = memchr::memchr(b'$', rest).unwrap_or(rest.len());
        if dollar > 0 {
            words.push(Word::Text(&rest[..dollar]));
            rest = &rest[dollar..];
            continue;
        }
        let named = rest.strip_prefix(b"${").unwrap_or(&rest[1..]);
        let is_name = |b: &&u8| b.is_ascii_alphanumeric() || **b == b'_';
        let len = named.iter().take_while(is_name).count();
        let behind = &named[len..];
        rest = match rest.starts_with(b"${") {
            true => behind.strip_prefix(b"}").ok_or("a bracket of a variable is not closed")?,
            false => behind,
        };
        if len == 0 {
            return Err("a \"$\" has no name behind it".into());
        }
        words.push(Word::Variable(&named[..len]));
    }
    Ok(words)
}
