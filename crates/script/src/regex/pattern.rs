//! Patterns of any bytes for a library interface that takes UTF-8 only.
//!
//! Without `(*UTF)` PCRE2 matches bytes, so a pattern that is not UTF-8 can be written with
//! `\xHH` for its upper half and means the same.

use std::borrow::Cow;

pub(super) struct Translated<'a> {
    pub text: Cow<'a, str>,
    /// For each byte of the original where it begins in `text`; empty when nothing changed.
    starts: Vec<usize>,
}

impl Translated<'_> {
    /// The place in the original of a place in `text`.
    pub fn original(&self, at: usize) -> usize {
        if self.starts.is_empty() {
            return at;
        }
        self.starts.partition_point(|&start| start < at)
    }
}

pub(super) fn to_utf8(pattern: &[u8]) -> Translated<'_> {
    match std::str::from_utf8(pattern) {
        Ok(text) => Translated { text: Cow::Borrowed(text), starts: Vec::new() },
        Err(_) => translate(pattern),
    }
}

fn translate(pattern: &[u8]) -> Translated<'static> {
    let mut text = String::with_capacity(pattern.len() + 16);
    let mut starts = Vec::with_capacity(pattern.len());
    let mut in_quotation = false;
    let mut escaped = false;
    for (at, &byte) in pattern.iter().enumerate() {
        starts.push(text.len());
        if byte.is_ascii() {
            match byte {
                b'Q' if escaped && !in_quotation => in_quotation = true,
                b'E' if in_quotation && pattern[..at].ends_with(b"\\") => in_quotation = false,
                _ => {}
            }
            escaped = byte == b'\\' && !escaped && !in_quotation;
            text.push(char::from(byte));
            continue;
        }
        if in_quotation {
            text.push_str(&format!("\\E\\x{byte:02x}\\Q"));
        } else if escaped {
            // The backslash is there already.
            text.push_str(&format!("x{byte:02x}"));
        } else {
            text.push_str(&format!("\\x{byte:02x}"));
        }
        escaped = false;
    }
    Translated { text: Cow::Owned(text), starts }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn translation() {
        for (pattern, expected) in [
            (&b"a.b"[..], "a.b"),
            ("caf\u{e9}".as_bytes(), "caf\u{e9}"),
            (b"caf\xe9", "caf\\xe9"),
            (b"[\xe0-\xff]", "[\\xe0-\\xff]"),
            (b"\\\xe9", "\\xe9"),
            (b"\\\\\xe9", "\\\\\\xe9"),
            (b"\\Q.\xe9\\E\xe9", "\\Q.\\E\\xe9\\Q\\E\\xe9"),
            (b"\\\\Q\xe9", "\\\\Q\\xe9"),
        ] {
            assert_eq!(to_utf8(pattern).text, expected);
        }
    }

    #[test]
    fn places() {
        let translated = to_utf8(b"\xe9(");
        assert_eq!(translated.text, "\\xe9(");
        assert_eq!(translated.original(0), 0);
        assert_eq!(translated.original(4), 1);
        assert_eq!(translated.original(5), 2);
    }
}
