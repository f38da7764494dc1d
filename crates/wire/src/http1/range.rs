//! The `Range` field of a request (RFC 9110 section 14.1.2), read as nginx reads it: spaces may
//! stand around numbers, a range that ends before it begins is passed over, and numbers go up to
//! what a file's length may be.

/// What a client gets that asked for ranges.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    Whole,
    /// None of them can be given.
    Unsatisfiable,
    /// Start and end (exclusive) of each, within the body and never empty.
    Parts(Vec<(u64, u64)>),
}

/// Where the number of ranges is not limited, what each of them counts besides its bytes, and by
/// how much all of them may be more than the body.
const PART_BYTES: u64 = 256;
const PARTS_MORE_BYTES: u64 = 4096;

/// Reads what stands behind `bytes=`, for a body of `size` bytes. More than `max` ranges are the
/// whole body, as are ranges that are longer than it together.
pub fn parse(text: &[u8], size: u64, max: Option<u64>) -> Wanted {
    let mut scanner = Scanner(text);
    let mut list = Vec::new();
    let mut total = 0u64;
    loop {
        let Some((start, end)) = scanner.range(size) else { return Wanted::Unsatisfiable };
        if start < end {
            list.push((start, end));
            total = total.saturating_add(end - start);
            if max.is_some_and(|max| list.len() as u64 > max) {
                return Wanted::Whole;
            }
        } else if start == 0 {
            return Wanted::Whole;
        }
        if !scanner.take(b',') {
            break;
        }
    }
    let count = list.len() as u64;
    let overhead = match max {
        Some(_) => (0, 0),
        None => (count * PART_BYTES, PARTS_MORE_BYTES),
    };
    let is_much = || total.saturating_add(overhead.0) > size.saturating_add(overhead.1);
    match count {
        0 => Wanted::Unsatisfiable,
        2.. if total > size || is_much() => Wanted::Whole,
        _ => Wanted::Parts(list),
    }
}

struct Scanner<'a>(&'a [u8]);

impl Scanner<'_> {
    /// One range, up to the comma or the end behind it. It is empty when it begins behind the body.
    fn range(&mut self, size: u64) -> Option<(u64, u64)> {
        self.spaces();
        let bounds = if self.take(b'-') {
            (size.saturating_sub(self.number()?), size)
        } else {
            let start = self.number()?;
            self.spaces();
            if !self.take(b'-') {
                return None;
            }
            self.spaces();
            match self.is_at_end() {
                true => (start, size),
                false => (start, (self.number()? + 1).min(size)),
            }
        };
        self.spaces();
        self.is_at_end().then_some(bounds)
    }

    fn is_at_end(&self) -> bool {
        matches!(self.0.first(), None | Some(b','))
    }

    fn spaces(&mut self) {
        while self.take(b' ') {}
    }

    fn take(&mut self, byte: u8) -> bool {
        let rest = self.0.strip_prefix(&[byte]);
        self.0 = rest.unwrap_or(self.0);
        rest.is_some()
    }

    /// At least one digit, and no more than a file's length may be.
    fn number(&mut self) -> Option<u64> {
        let digits = self.0.iter().take_while(|b| b.is_ascii_digit()).count();
        let (text, rest) = self.0.split_at(digits);
        self.0 = rest;
        let value: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
        u64::try_from(value).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(list: &[(u64, u64)]) -> Wanted {
        Wanted::Parts(list.to_vec())
    }

    #[test]
    fn one_range() {
        for (text, wanted) in [
            ("0-3", parts(&[(0, 4)])),
            ("4-", parts(&[(4, 10)])),
            (" 4 - ", parts(&[(4, 10)])),
            ("-3 ", parts(&[(7, 10)])),
            ("-99", parts(&[(0, 10)])),
            ("0-9223372036854775807", parts(&[(0, 10)])),
            ("0-9223372036854775808", Wanted::Unsatisfiable),
            ("10-", Wanted::Unsatisfiable),
            ("-0", Wanted::Unsatisfiable),
            ("5-3", Wanted::Unsatisfiable),
            ("- 3", Wanted::Unsatisfiable),
            ("\t0-3", Wanted::Unsatisfiable),
            ("0-3,", Wanted::Unsatisfiable),
            ("0 3", Wanted::Unsatisfiable),
            ("+0-3", Wanted::Unsatisfiable),
            ("", Wanted::Unsatisfiable),
            ("-", Wanted::Unsatisfiable),
        ] {
            assert_eq!(parse(text.as_bytes(), 10, None), wanted, "{text}");
        }
    }

    #[test]
    fn several() {
        let read = |text: &str, max| parse(text.as_bytes(), 10, max);
        assert_eq!(read("0-1,-2", None), parts(&[(0, 2), (8, 10)]));
        assert_eq!(read("5-3, 0-1,99-", None), parts(&[(0, 2)]));
        assert_eq!(read("0-8,1-9", None), Wanted::Whole);
        assert_eq!(read("0-0,1-1", Some(1)), Wanted::Whole);
        assert_eq!(read("0-0,x", Some(1)), Wanted::Unsatisfiable);
        let many = "0-0,".repeat(16) + "1-1";
        assert_eq!(parse(many.as_bytes(), 17, None), Wanted::Whole);
        assert!(matches!(parse(many.as_bytes(), 17, Some(17)), Wanted::Parts(_)));
    }

    #[test]
    fn of_nothing() {
        assert_eq!(parse(b"0-", 0, None), Wanted::Whole);
        assert_eq!(parse(b"-1", 0, None), Wanted::Whole);
        assert_eq!(parse(b"1-", 0, None), Wanted::Unsatisfiable);
    }
}
