//! Base32 in an alphabet that the configuration chooses.

use super::MiscLoc;
use std::sync::Arc;
use weir_module::{ArgsExt, Cf, ConfResult, Directive};

const CHARACTERS: usize = 32;
const NONE: u8 = u8::MAX;

/// Its characters, and which of them a byte is.
pub struct Alphabet {
    characters: [u8; CHARACTERS],
    digits: [u8; 256],
}

impl Alphabet {
    fn new(characters: [u8; CHARACTERS]) -> Alphabet {
        let mut digits = [NONE; 256];
        for (digit, character) in characters.iter().enumerate() {
            digits[usize::from(*character)] = digit as u8;
        }
        Alphabet { characters, digits }
    }
}

impl Default for Alphabet {
    fn default() -> Alphabet {
        Alphabet::new(*b"0123456789abcdefghijklmnopqrstuv")
    }
}

pub(super) fn set_alphabet(cf: &mut Cf, d: &Directive) -> ConfResult {
    let Ok(characters) = <[u8; CHARACTERS]>::try_from(d.arg(0)) else {
        let length = d.arg(0).len();
        let text = format!("takes an alphabet of {length} bytes but {CHARACTERS} expected");
        return Err(d.error(&text));
    };
    cf.get::<MiscLoc>().alphabet.once(d, Arc::new(Alphabet::new(characters)))
}

/// Appends base32, filled up with `=` to eights if `padding`.
pub fn encode(value: &[u8], alphabet: &Alphabet, padding: bool, out: &mut Vec<u8>) {
    for group in value.chunks(5) {
        let bits = group.iter().fold(0u64, |bits, byte| bits << 8 | u64::from(*byte));
        let bits = bits << (8 * (5 - group.len()));
        let used = (group.len() * 8).div_ceil(5);
        out.extend((0..used).map(|at| alphabet.characters[(bits >> (35 - 5 * at)) as usize & 31]));
        if padding {
            out.extend(std::iter::repeat_n(b'=', 8 - used));
        }
    }
}

/// Up to the first `=`; of what is no base32, nothing.
pub fn decode(text: &[u8], alphabet: &Alphabet, out: &mut Vec<u8>) {
    let end = text.iter().position(|b| *b == b'=').unwrap_or(text.len());
    let text = &text[..end];
    let is_digit = |b: &u8| alphabet.digits[usize::from(*b)] != NONE;
    if matches!(text.len() % 8, 1 | 3 | 6) || !text.iter().all(is_digit) {
        return;
    }
    let (mut bits, mut have) = (0u32, 0);
    for byte in text {
        bits = bits << 5 | u32::from(alphabet.digits[usize::from(*byte)]);
        have += 5;
        if have >= 8 {
            have -= 8;
            out.push((bits >> have) as u8);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ways() {
        let hex = Alphabet::default();
        let rfc = Alphabet::new(*b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567");
        for (alphabet, plain, text) in [
            (&hex, "abcde", "c5h66p35"),
            (&hex, "!", "44======"),
            (&hex, "\"hello, world!\"ab", "49k6ar3cdsm20trfe9m68892c5h0===="),
            (&rfc, "foobar", "MZXW6YTBOI======"),
            (&rfc, "", ""),
        ] {
            let (mut padded, mut bare) = (Vec::new(), Vec::new());
            encode(plain.as_bytes(), alphabet, true, &mut padded);
            encode(plain.as_bytes(), alphabet, false, &mut bare);
            assert_eq!(padded, text.as_bytes());
            assert_eq!(bare, text.trim_end_matches('=').as_bytes());
            for text in [padded, bare] {
                let mut back = Vec::new();
                decode(&text, alphabet, &mut back);
                assert_eq!(back, plain.as_bytes());
            }
        }
        for text in ["c", "c5h", "c5h66p", "w5h66p35", "C5H66P35"] {
            let mut back = Vec::new();
            decode(text.as_bytes(), &hex, &mut back);
            assert_eq!(back, b"", "{text}");
        }
    }
}
