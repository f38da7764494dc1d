//! Apache's `LogFormat`.

use super::raw::Field;
use super::text::{Part, Text};
use super::Escape;

pub fn compile(text: &[u8]) -> Result<Text, String> {
    let mut parts = Vec::new();
    let mut rest = text;
    while let Some((first, behind)) = rest.split_first() {
        match (first, behind) {
            (b'%', [b'%', behind @ ..]) => {
                parts.push(Part::Text(b"%".to_vec()));
                rest = behind;
            }
            (b'%', _) => rest = directive(behind, &mut parts)?,
            // As it is written between the quotes of a configuration.
            (b'\\', [b'"', behind @ ..]) => {
                parts.push(Part::Text(b"\"".to_vec()));
                rest = behind;
            }
            (b'\\', [b't', behind @ ..]) => {
                parts.push(Part::Text(b"\t".to_vec()));
                rest = behind;
            }
            _ => {
                parts.push(Part::Text(vec![*first]));
                rest = behind;
            }
        }
    }
    Text::new(parts, Escape::Default)
}

/// One of them, behind its `%`; what is behind it.
fn directive<'a>(text: &'a [u8], parts: &mut Vec<Part>) -> Result<&'a [u8], String> {
    let is_condition = |b: &&u8| matches!(**b, b'<' | b'>' | b'!' | b',' | b'0'..=b'9');
    let mut rest = &text[text.iter().take_while(is_condition).count()..];
    let mut argument: &[u8] = b"";
    if let Some(braced) = rest.strip_prefix(b"{") {
        let end = memchr::memchr(b'}', braced).ok_or("a bracket behind \"%\" is not closed")?;
        argument = &braced[..end];
        rest = &braced[end + 1..];
    }
    let (letter, behind) = rest.split_first().ok_or("a \"%\" has nothing behind it")?;
    let header = argument.to_ascii_lowercase();
    let field = match (letter, &*header) {
        (b'h' | b'a', _) => Field::Address,
        (b't', b"") => {
            parts.push(Part::Text(b"[".to_vec()));
            parts.push(Part::Field(Field::TimeLocal));
            parts.push(Part::Text(b"]".to_vec()));
            return Ok(behind);
        }
        (b't', b"sec" | b"msec" | b"usec" | b"end:sec" | b"begin:sec") => Field::TimeUnix,
        (b'r', _) => Field::Request,
        (b'm', _) => Field::Method,
        (b'U', _) => Field::Uri,
        (b'q', _) => Field::Args,
        (b'H', _) => Field::Protocol,
        (b's', _) => Field::Status,
        (b'b' | b'B' | b'O', _) => Field::Bytes,
        (b'i', b"referer") => Field::Referrer,
        (b'i', b"user-agent") => Field::Agent,
        (b'v' | b'V', _) | (b'i', b"host") => Field::Host,
        (b'D', _) | (b'T', b"us") => Field::Microseconds,
        (b'T', b"ms") => Field::Milliseconds,
        (b'T', _) => Field::Seconds,
        _ => Field::Skipped,
    };
    parts.push(Part::Field(field));
    Ok(behind)
}
