//! Byte classes and the scanning loops that the parsers share.

/// A span of the message buffer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Range32 {
    pub start: u32,
    pub end: u32,
}

impl Range32 {
    pub const EMPTY: Range32 = Range32 { start: 0, end: 0 };

    /// Offsets come from buffers whose limits keep them far below 4 GiB.
    pub(crate) fn new(start: usize, end: usize) -> Self {
        debug_assert!(start <= end && end <= u32::MAX as usize);
        Range32 { start: start as u32, end: end as u32 }
    }

    /// The bytes of this span; empty if the buffer is not the one the span was made for.
    #[inline]
    pub fn of(self, buf: &[u8]) -> &[u8] {
        buf.get(self.start as usize..self.end as usize).unwrap_or_default()
    }

    pub fn len(self) -> usize {
        self.end.saturating_sub(self.start) as usize
    }

    pub fn is_empty(self) -> bool {
        self.end <= self.start
    }
}

pub(crate) const CR: u8 = b'\r';
pub(crate) const LF: u8 = b'\n';

/// Letters, digits and `-`: what a header name may hold without being called invalid.
pub(crate) const NAME: u8 = 1;
/// What a request method may hold: capitals, `_` and `-`.
pub(crate) const METHOD: u8 = 2;
/// Bytes after which a path may need normalising: `/ . % #`, and `?` and `+`.
pub(crate) const URI_MARK: u8 = 4;
/// Controls, space and DEL: never part of a header name, the end or the ruin of a target.
pub(crate) const CTL_OR_SPACE: u8 = 8;
/// Letters, digits, `.` and `-`: a registered name on the request line.
pub(crate) const LINE_HOST: u8 = 16;
/// What an IP literal in brackets may hold, `:` and the closing bracket aside.
pub(crate) const IP_LITERAL: u8 = 32;
/// The usual bytes of a host: small letters, digits and `-`.
pub(crate) const HOST_PLAIN: u8 = 64;

pub(crate) static CLASS: [u8; 256] = classes();

const fn classes() -> [u8; 256] {
    let mut table = [0u8; 256];
    let mut i = 0;
    while i < 256 {
        let b = i as u8;
        let mut class = 0;
        if b.is_ascii_alphanumeric() || b == b'-' {
            class |= NAME;
        }
        if b.is_ascii_uppercase() || b == b'_' || b == b'-' {
            class |= METHOD;
        }
        if matches!(b, b'/' | b'.' | b'%' | b'#' | b'?' | b'+') {
            class |= URI_MARK;
        }
        if b <= b' ' || b == 0x7f {
            class |= CTL_OR_SPACE;
        }
        if b.is_ascii_alphanumeric() || b == b'.' || b == b'-' {
            class |= LINE_HOST;
        }
        if b.is_ascii_alphanumeric() || is_unreserved_mark(b) || is_sub_delim(b) {
            class |= IP_LITERAL;
        }
        if b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-' {
            class |= HOST_PLAIN;
        }
        table[i] = class;
        i += 1;
    }
    table
}

const fn is_unreserved_mark(b: u8) -> bool {
    matches!(b, b'-' | b'.' | b'_' | b'~')
}

const fn is_sub_delim(b: u8) -> bool {
    matches!(b, b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=')
}

#[inline(always)]
pub(crate) fn is(b: u8, class: u8) -> bool {
    CLASS[b as usize] & class != 0
}

/// The first position at or after `from` whose byte is not in `class`.
#[inline(always)]
pub(crate) fn skip(buf: &[u8], from: usize, class: u8) -> usize {
    let rest = buf.get(from..).unwrap_or_default();
    from + rest.iter().position(|&b| !is(b, class)).unwrap_or(rest.len())
}

const ONES: u64 = 0x0101_0101_0101_0101;
const HIGH: u64 = 0x8080_8080_8080_8080;

/// Marks the bytes of `word` that are below `n` (at most 128). The lowest mark is exact;
/// ones above it may be the borrow of a true one.
#[inline(always)]
const fn below(word: u64, n: u8) -> u64 {
    word.wrapping_sub(repeat(n)) & !word & HIGH
}

/// The eight bytes from `at`, the first in the lowest place, zeros where the buffer has ended.
#[inline(always)]
fn word_at(buf: &[u8], at: usize) -> u64 {
    match buf.get(at..).and_then(|rest| rest.first_chunk::<8>()) {
        Some(bytes) => u64::from_le_bytes(*bytes),
        None => last_word(buf, at),
    }
}

/// Kept apart so that the common case is a branch and a load.
#[inline(never)]
fn last_word(buf: &[u8], at: usize) -> u64 {
    let rest = buf.get(at..).unwrap_or_default();
    match buf.last_chunk::<8>() {
        Some(_) if rest.is_empty() => 0,
        Some(bytes) => u64::from_le_bytes(*bytes) >> (8 * (8 - rest.len())),
        None => rest.iter().rev().fold(0, |word, &b| word << 8 | u64::from(b)),
    }
}

#[inline(always)]
const fn repeat(b: u8) -> u64 {
    ONES * b as u64
}

/// The first position at or after `from` holding a control, a space or DEL.
#[inline(always)]
pub(crate) fn target_end(buf: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        let word = word_at(buf, at);
        let hit = below(word, b' ' + 1) | below(word ^ repeat(0x7f), 1);
        if hit != 0 {
            return at + (hit.trailing_zeros() / 8) as usize;
        }
        at += 8;
    }
}

/// The first position at or after `from` holding CR, LF or NUL.
#[inline(always)]
pub(crate) fn value_end(buf: &[u8], from: usize) -> usize {
    let mut at = from;
    loop {
        let hit = below(word_at(buf, at), CR + 1);
        if hit == 0 {
            at += 8;
            continue;
        }
        at += (hit.trailing_zeros() / 8) as usize;
        if buf.get(at).is_none_or(|&b| matches!(b, CR | LF | 0)) {
            return at;
        }
        at += 1;
    }
}

/// Decimal digits only, no sign, no overflow of a signed 64-bit size.
pub(crate) fn decimal(bytes: &[u8]) -> Option<u64> {
    if bytes.is_empty() {
        return None;
    }
    let mut value: u64 = 0;
    for &b in bytes {
        if !b.is_ascii_digit() {
            return None;
        }
        value = value.checked_mul(10)?.checked_add(u64::from(b - b'0'))?;
    }
    (value <= i64::MAX as u64).then_some(value)
}

/// Whether `needle` (lower case) occurs in `hay`, letter case apart.
pub(crate) fn contains_ignoring_case(hay: &[u8], needle: &[u8]) -> bool {
    hay.windows(needle.len()).any(|w| w.eq_ignore_ascii_case(needle))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scanning_by_words_agrees_with_scanning_by_bytes() {
        for len in 0..40usize {
            for mark in 0..=255u8 {
                for at in [0, len / 2, len.saturating_sub(1)] {
                    let mut buf = vec![b'a'; len];
                    if let Some(b) = buf.get_mut(at) {
                        *b = mark;
                    }
                    let slow = |stop: &dyn Fn(u8) -> bool| {
                        buf.iter().position(|&b| stop(b)).unwrap_or(len)
                    };
                    assert_eq!(target_end(&buf, 0), slow(&|b| b <= b' ' || b == 0x7f));
                    assert_eq!(value_end(&buf, 0), slow(&|b| matches!(b, CR | LF | 0)));
                }
            }
        }
    }

    #[test]
    fn decimal_refuses_signs_spaces_and_overflow() {
        assert_eq!(decimal(b"0"), Some(0));
        assert_eq!(decimal(b"9223372036854775807"), Some(i64::MAX as u64));
        for bad in [&b""[..], b"+1", b"-1", b"1 ", b"0x1", b"9223372036854775808", b"1,1"] {
            assert_eq!(decimal(bad), None);
        }
    }
}
