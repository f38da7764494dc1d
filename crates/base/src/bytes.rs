//! Byte strings: sets, case, trimming, hexadecimal, decimal.

/// A set of byte values, tested in a few instructions and built at compile time.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ByteSet([u64; 4]);

impl ByteSet {
    pub const EMPTY: ByteSet = ByteSet([0; 4]);
    pub const ALNUM: ByteSet =
        Self::EMPTY.with_range(b'0', b'9').with_range(b'A', b'Z').with_range(b'a', b'z');

    pub const fn of(bytes: &[u8]) -> Self {
        Self::EMPTY.with(bytes)
    }

    pub const fn with(mut self, bytes: &[u8]) -> Self {
        let mut i = 0;
        while i < bytes.len() {
            self.0[(bytes[i] >> 6) as usize] |= 1 << (bytes[i] & 63);
            i += 1;
        }
        self
    }

    /// Both ends are in the set.
    pub const fn with_range(mut self, first: u8, last: u8) -> Self {
        let mut byte = first;
        while byte <= last {
            self = self.with(&[byte]);
            if byte == u8::MAX {
                break;
            }
            byte += 1;
        }
        self
    }

    /// Every byte that is not in this set.
    pub const fn inverted(self) -> Self {
        let [a, b, c, d] = self.0;
        ByteSet([!a, !b, !c, !d])
    }

    #[inline]
    pub const fn contains(&self, byte: u8) -> bool {
        self.0[(byte >> 6) as usize] >> (byte & 63) & 1 != 0
    }

    /// Where the first byte of the set stands.
    #[inline]
    pub fn find(&self, text: &[u8]) -> Option<usize> {
        text.iter().position(|&byte| self.contains(byte))
    }
}

/// The prefix is compared without regard to ASCII case.
pub fn strip_prefix_ignore_case<'a>(text: &'a [u8], prefix: &[u8]) -> Option<&'a [u8]> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

pub fn starts_with_ignore_case(text: &[u8], prefix: &[u8]) -> bool {
    strip_prefix_ignore_case(text, prefix).is_some()
}

/// Where `needle` first stands in `text`, without regard to ASCII case.
pub fn find_ignore_case(text: &[u8], needle: &[u8]) -> Option<usize> {
    let Some(&first) = needle.first() else { return Some(0) };
    let (lower, upper) = (first.to_ascii_lowercase(), first.to_ascii_uppercase());
    memchr::memchr2_iter(lower, upper, text)
        .find(|&at| starts_with_ignore_case(&text[at..], needle))
}

/// Spaces and tabs off both ends: what HTTP calls optional white space.
pub fn trim_ows(text: &[u8]) -> &[u8] {
    trim_with(text, |byte| byte == b' ' || byte == b'\t')
}

/// Off both ends, everything for which `unwanted` is true.
pub fn trim_with(mut text: &[u8], unwanted: impl Fn(u8) -> bool) -> &[u8] {
    while let [first, rest @ ..] = text {
        if !unwanted(*first) {
            break;
        }
        text = rest;
    }
    while let [rest @ .., last] = text {
        if !unwanted(*last) {
            break;
        }
        text = rest;
    }
    text
}

/// What stands before and after the first `byte`.
pub fn split_once(text: &[u8], byte: u8) -> Option<(&[u8], &[u8])> {
    let at = memchr::memchr(byte, text)?;
    Some((&text[..at], &text[at + 1..]))
}

pub const HEX_UPPER: &[u8; 16] = b"0123456789ABCDEF";
pub const HEX_LOWER: &[u8; 16] = b"0123456789abcdef";

#[inline]
pub const fn hex_value(byte: u8) -> Option<u8> {
    match byte {
        b'0'..=b'9' => Some(byte - b'0'),
        b'a'..=b'f' => Some(byte - b'a' + 10),
        b'A'..=b'F' => Some(byte - b'A' + 10),
        _ => None,
    }
}

/// Lower-case hexadecimal, two digits a byte.
pub fn push_hex(out: &mut Vec<u8>, bytes: &[u8]) {
    out.reserve(bytes.len() * 2);
    for &byte in bytes {
        out.push(HEX_LOWER[usize::from(byte >> 4)]);
        out.push(HEX_LOWER[usize::from(byte & 15)]);
    }
}

/// Bytes out of an even number of hexadecimal digits.
pub fn parse_hex_bytes(text: &[u8]) -> Option<Vec<u8>> {
    if !text.len().is_multiple_of(2) {
        return None;
    }
    text.chunks_exact(2).map(|pair| Some(hex_value(pair[0])? << 4 | hex_value(pair[1])?)).collect()
}

const PAIRS: [[u8; 2]; 100] = {
    let mut pairs = [[0; 2]; 100];
    let mut i = 0;
    while i < 100 {
        pairs[i] = [b'0' + (i / 10) as u8, b'0' + (i % 10) as u8];
        i += 1;
    }
    pairs
};

/// `value` below 100, as two digits.
#[inline]
pub(crate) fn two_digits(value: u32) -> [u8; 2] {
    PAIRS[(value % 100) as usize]
}

/// Appends `value` in decimal, without going through `fmt`.
pub fn fmt_u64(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    while value >= 100 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[(value % 100) as usize]);
        value /= 100;
    }
    if value >= 10 {
        at -= 2;
        digits[at..at + 2].copy_from_slice(&PAIRS[value as usize]);
    } else {
        at -= 1;
        digits[at] = b'0' + value as u8;
    }
    out.extend_from_slice(&digits[at..]);
}

pub fn fmt_i64(out: &mut Vec<u8>, value: i64) {
    if value < 0 {
        out.push(b'-');
    }
    fmt_u64(out, value.unsigned_abs());
}

/// A hasher for keys that are spread well already: small numbers given out in turn, and type ids.
#[derive(Clone, Copy, Default, Debug)]
pub struct Identity(u64);

impl std::hash::Hasher for Identity {
    fn finish(&self) -> u64 {
        // The table looks at the top bits too.
        self.0.wrapping_mul(0x9e37_79b9_7f4a_7c15)
    }

    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.0 = self.0.rotate_left(5) ^ u64::from_le_bytes(word);
        }
    }

    fn write_u64(&mut self, n: u64) {
        self.0 = self.0.rotate_left(5) ^ n;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets() {
        const SET: ByteSet = ByteSet::of(b"ab").with_range(0xf0, 0xff);
        for byte in 0..=255u8 {
            let expected = byte == b'a' || byte == b'b' || byte >= 0xf0;
            assert_eq!(SET.contains(byte), expected, "{byte}");
            assert_eq!(SET.inverted().contains(byte), !expected, "{byte}");
        }
        assert_eq!(SET.find(b"xyzb"), Some(3));
        assert_eq!(SET.find(b"xyz"), None);
    }

    #[test]
    fn case() {
        assert_eq!(strip_prefix_ignore_case(b"UNIX:/a", b"unix:"), Some(&b"/a"[..]));
        assert_eq!(strip_prefix_ignore_case(b"un", b"unix:"), None);
        assert_eq!(find_ignore_case(b"keep-alive, Close", b"close"), Some(12));
        assert_eq!(find_ignore_case(b"clos", b"close"), None);
        assert_eq!(find_ignore_case(b"x", b""), Some(0));
    }

    #[test]
    fn trimming_and_splitting() {
        assert_eq!(trim_ows(b" \t a b\t "), b"a b");
        assert_eq!(trim_ows(b"  "), b"");
        assert_eq!(trim_with(b"--a-", |b| b == b'-'), b"a");
        assert_eq!(split_once(b"a=b=c", b'='), Some((&b"a"[..], &b"b=c"[..])));
        assert_eq!(split_once(b"a", b'='), None);
    }

    #[test]
    fn hexadecimal() {
        let mut out = Vec::new();
        push_hex(&mut out, &[0x00, 0xaf, 0xff]);
        assert_eq!(out, b"00afff");
        assert_eq!(parse_hex_bytes(b"00AFff"), Some(vec![0, 0xaf, 0xff]));
        assert_eq!(parse_hex_bytes(b"0"), None);
        assert_eq!(parse_hex_bytes(b"0g"), None);
    }

    #[test]
    fn decimals() {
        for value in
            [0, 1, 9, 10, 11, 99, 100, 101, 999, 1000, 12345, u64::from(u32::MAX), u64::MAX]
        {
            let mut out = Vec::new();
            fmt_u64(&mut out, value);
            assert_eq!(out, value.to_string().as_bytes());
        }
        let mut out = Vec::new();
        fmt_i64(&mut out, i64::MIN);
        assert_eq!(out, i64::MIN.to_string().as_bytes());
    }
}
