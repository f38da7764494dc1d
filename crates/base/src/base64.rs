//! Base64 as nginx reads it: padding is optional, and decoding ends at the first `=`.

const STANDARD: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Appends the text of `src`, padded.
pub fn encode(out: &mut Vec<u8>, src: &[u8]) {
    for group in src.chunks(3) {
        let bits = group.iter().fold(0u32, |bits, byte| bits << 8 | u32::from(*byte));
        let bits = bits << (8 * (3 - group.len()));
        for at in 0..4 {
            out.push(match at <= group.len() {
                true => STANDARD[(bits >> (18 - 6 * at)) as usize & 63],
                false => b'=',
            });
        }
    }
}

/// The bytes that a text in the usual alphabet stands for.
pub fn decode(text: &[u8]) -> Option<Vec<u8>> {
    decode_with(text, b'+', b'/')
}

/// The same for the alphabet that is safe in URLs (`-` and `_`).
pub fn decode_url(text: &[u8]) -> Option<Vec<u8>> {
    decode_with(text, b'-', b'_')
}

fn decode_with(text: &[u8], c62: u8, c63: u8) -> Option<Vec<u8>> {
    let end = memchr::memchr(b'=', text).unwrap_or(text.len());
    let text = &text[..end];
    if text.len() % 4 == 1 {
        return None;
    }
    let mut out = Vec::with_capacity(text.len() / 4 * 3 + 2);
    let (mut bits, mut have) = (0u32, 0);
    for &byte in text {
        let value = match byte {
            b'A'..=b'Z' => byte - b'A',
            b'a'..=b'z' => byte - b'a' + 26,
            b'0'..=b'9' => byte - b'0' + 52,
            _ if byte == c62 => 62,
            _ if byte == c63 => 63,
            _ => return None,
        };
        bits = bits << 6 | u32::from(value);
        have += 6;
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        for (plain, text) in
            [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")]
        {
            let mut out = Vec::new();
            encode(&mut out, plain.as_bytes());
            assert_eq!(out, text.as_bytes());
            assert_eq!(decode(text.as_bytes()).as_deref(), Some(plain.as_bytes()));
            let bare = text.trim_end_matches('=');
            assert_eq!(decode(bare.as_bytes()).as_deref(), Some(plain.as_bytes()));
        }
    }

    #[test]
    fn alphabets() {
        assert_eq!(decode(b"+/+/"), decode_url(b"-_-_"));
        assert_eq!(decode(b"-_-_"), None);
        assert_eq!(decode_url(b"+/+/"), None);
        assert_eq!(decode(b"A"), None);
        assert_eq!(decode(b"A B="), None);
    }
}
