//! DER, as far as certificates need it (X.690): tag, length, content. Everything is bounded by the
//! slice; a length that does not fit ends the reading.

pub const BOOLEAN: u8 = 0x01;
pub const INTEGER: u8 = 0x02;
pub const BIT_STRING: u8 = 0x03;
pub const OCTET_STRING: u8 = 0x04;
pub const OID: u8 = 0x06;
pub const UTC_TIME: u8 = 0x17;
pub const GENERALIZED_TIME: u8 = 0x18;
pub const SEQUENCE: u8 = 0x30;
pub const SET: u8 = 0x31;

/// One element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Item<'a> {
    pub tag: u8,
    pub body: &'a [u8],
    /// Tag and length with it.
    pub whole: &'a [u8],
}

/// Reads elements one after the other.
#[derive(Clone, Debug)]
pub struct Reader<'a>(pub &'a [u8]);

impl<'a> Reader<'a> {
    pub fn item(&mut self) -> Option<Item<'a>> {
        let (&tag, &first) = (self.0.first()?, self.0.get(1)?);
        let (len, head) = match first {
            0..=0x7f => (usize::from(first), 2),
            0x81..=0x84 => {
                let n = usize::from(first & 0x7f);
                let bytes = self.0.get(2..2 + n)?;
                (bytes.iter().fold(0, |len, b| len << 8 | usize::from(*b)), 2 + n)
            }
            _ => return None,
        };
        let whole = self.0.get(..head.checked_add(len)?)?;
        self.0 = &self.0[whole.len()..];
        Some(Item { tag, body: &whole[head..], whole })
    }

    /// The next element, when it has this tag.
    pub fn tagged(&mut self, tag: u8) -> Option<Item<'a>> {
        match self.0.first() {
            Some(t) if *t == tag => self.item(),
            _ => None,
        }
    }

    pub fn sequence(&mut self) -> Option<Reader<'a>> {
        self.tagged(SEQUENCE).map(|i| Reader(i.body))
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl<'a> Iterator for Reader<'a> {
    type Item = Item<'a>;
    fn next(&mut self) -> Option<Item<'a>> {
        self.item()
    }
}

/// The bytes of a BIT STRING that is whole bytes.
pub fn bits(item: Item<'_>) -> Option<&[u8]> {
    match item.body.split_first() {
        Some((0, rest)) if item.tag == BIT_STRING => Some(rest),
        _ => None,
    }
}

/// Seconds since 1970 of a UTCTime or GeneralizedTime, in the one form that RFC 5280 allows
/// (section 4.1.2.5): with seconds, in UTC, of a day that there is.
pub fn time(item: Item<'_>) -> Option<i64> {
    let year_digits = match item.tag {
        UTC_TIME => 2,
        GENERALIZED_TIME => 4,
        _ => return None,
    };
    let text = item.body.strip_suffix(b"Z")?;
    if text.len() != year_digits + 10 || !text.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let (year, rest) = text.split_at(year_digits);
    let year = match (number(year), year_digits) {
        (n @ ..50, 2) => 2000 + n,
        (n, 2) => 1900 + n,
        (n, _) => n,
    };
    let at = |n: usize| rest.get(2 * n..2 * n + 2).map_or(0, number);
    let (month, day, hour, minute, second) = (at(0), at(1), at(2), at(3), at(4));
    let is_day = (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    if !is_day || hour > 23 || minute > 59 || second > 59 {
        return None;
    }
    Some(days(year, month, day) * 86400 + hour * 3600 + minute * 60 + second)
}

fn number(digits: &[u8]) -> i64 {
    digits.iter().fold(0, |n, b| n * 10 + i64::from(*b & 0x0f))
}

fn days_of(year: i64, month: i64) -> i64 {
    let next = if month == 12 { (year + 1, 1) } else { (year, month + 1) };
    days(next.0, next.1, 1) - days(year, month, 1)
}

/// Days from 1970-01-01 to a date of the Gregorian calendar.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let of_era = year.rem_euclid(400);
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn elements_and_damage() {
        let mut r = Reader(&[0x30, 3, 2, 1, 5, 4, 0x81, 1, 9]);
        assert_eq!(r.sequence().unwrap().tagged(INTEGER).unwrap().body, [5]);
        assert_eq!(r.item().unwrap().body, [9]);
        assert!(r.item().is_none() && r.is_empty());
        assert!(Reader(&[0x30, 5, 0]).item().is_none());
        assert!(Reader(&[0x30, 0x84, 0xff, 0xff, 0xff, 0xff]).item().is_none());
        assert!(Reader(&[0x30, 0x80, 0, 0]).item().is_none());
    }

    #[test]
    fn times() {
        let at = |tag, text: &'static str| time(Item { tag, body: text.as_bytes(), whole: b"" });
        assert_eq!(at(UTC_TIME, "700101000000Z"), Some(0));
        assert_eq!(at(GENERALIZED_TIME, "20240229120001Z"), Some(1_709_208_001));
        assert_eq!(at(UTC_TIME, "490101000000Z"), Some(2_493_072_000));
        assert_eq!(at(UTC_TIME, "700101"), None);
        assert_eq!(at(UTC_TIME, "70x101000000Z"), None);
        for never in [
            "20230229000000Z",
            "20230431000000Z",
            "20230001000000Z",
            "20230101240000Z",
            "20230101006000Z",
            "20230101000060Z",
            "202301010000Z",
            "2023010100000099Z",
        ] {
            assert_eq!(at(GENERALIZED_TIME, never), None, "{never}");
        }
        assert_eq!(at(UTC_TIME, "7001010000Z"), None);
    }
}
