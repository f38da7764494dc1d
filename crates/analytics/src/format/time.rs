//! The ways logs write a time. What counts is the clock that was on the wall: zones are not reckoned with.

use crate::event::{Moment, DAY_SECS};
use weir_base::date::days_from_civil;

const MONTHS: &[u8; 36] = b"janfebmaraprmayjunjulaugsepoctnovdec";

fn digits(text: &[u8]) -> Option<u32> {
    text.iter().try_fold(0_u32, |n, b| match b {
        b'0'..=b'9' => Some(n * 10 + u32::from(b - b'0')),
        _ => None,
    })
}

fn date(year: &[u8], month: u32, day: &[u8]) -> Option<i32> {
    let (year, day) = (digits(year)?, digits(day)?);
    let longest = match month {
        2 if year % 4 == 0 && (year % 100 != 0 || year % 400 == 0) => 29,
        2 => 28,
        4 | 6 | 9 | 11 => 30,
        1..=12 => 31,
        _ => 0,
    };
    let is_one = (1..=longest).contains(&day);
    is_one.then(|| days_from_civil(i64::from(year), month, day) as i32)
}

/// `13:55:36`, and whatever is behind.
pub fn clock(text: &[u8]) -> Option<u32> {
    let [h1, h2, b':', m1, m2, b':', s1, s2, ..] = *text else { return None };
    let (hour, minute, second) = (digits(&[h1, h2])?, digits(&[m1, m2])?, digits(&[s1, s2])?);
    // A leap second is the last of its minute.
    let is_one = hour < 24 && minute < 60 && second <= 60;
    is_one.then(|| hour * 3600 + minute * 60 + second.min(59))
}

/// `2026-10-10`, and whatever is behind.
pub fn iso_date(text: &[u8]) -> Option<i32> {
    match text.get(..10)? {
        [year @ .., b'-', m1, m2, b'-', d1, d2] => date(year, digits(&[*m1, *m2])?, &[*d1, *d2]),
        _ => None,
    }
}

/// `2026-10-10T13:55:36+00:00`, with or without what is behind the seconds.
pub fn iso(text: &[u8]) -> Option<Moment> {
    match text.get(10)? {
        b'T' | b't' | b' ' => Some(Moment { day: iso_date(text)?, second: clock(&text[11..])? }),
        _ => None,
    }
}

/// `1791640536.123`, by a clock that shows Greenwich's time; thousandths and less are known by their size.
pub fn unix(text: &[u8]) -> Option<Moment> {
    let end = text.iter().position(|b| !b.is_ascii_digit()).unwrap_or(text.len());
    let (whole, rest) = text.split_at(end);
    let is_fraction = |rest: &[u8]| match rest {
        [] => true,
        [b'.', digits @ ..] => digits.iter().all(u8::is_ascii_digit),
        // Large numbers of JSON's writers.
        [b'e' | b'E', ..] => false,
        _ => false,
    };
    if whole.is_empty() || whole.len() > 19 || !is_fraction(rest) {
        return None;
    }
    let number =
        whole.iter().try_fold(0_i64, |n, b| n.checked_mul(10)?.checked_add(i64::from(b - b'0')))?;
    let secs = match whole.len() {
        0..=11 => number,
        12..=14 => number / 1000,
        15..=17 => number / 1_000_000,
        _ => number / 1_000_000_000,
    };
    Some(Moment::from_unix(secs))
}

/// `10/Oct/2026:13:55:36 +0000`, as most lines have it; the date that was read last is remembered.
#[derive(Clone, Default)]
pub struct Local {
    text: [u8; 11],
    day: i32,
}

impl Local {
    pub fn read(&mut self, text: &[u8]) -> Option<Moment> {
        let (day_text, rest) = text.split_at_checked(11)?;
        let [b':', time @ ..] = rest else { return None };
        if day_text != self.text {
            let [d1, d2, b'/', m1, m2, m3, b'/', year @ ..] = day_text else { return None };
            let name = [m1, m2, m3].map(u8::to_ascii_lowercase);
            let month = MONTHS.chunks(3).position(|m| m == name)? as u32 + 1;
            self.day = date(year, month, &[*d1, *d2])?;
            self.text.copy_from_slice(day_text);
        }
        Some(Moment { day: self.day, second: clock(time)? })
    }
}

/// What a person writes: `2026-10-10`, with a `T` or a space and a time or without; `at_end` means the last second
/// of what is not said.
pub fn given(text: &[u8], at_end: bool) -> Option<Moment> {
    let day = iso_date(text)?;
    let second = match (&text[10..], at_end) {
        ([], false) => 0,
        ([], true) => DAY_SECS - 1,
        ([b'T' | b't' | b' ', time @ ..], _) => match time.len() {
            5 => clock(&[time, b":00"].concat())? + if at_end { 59 } else { 0 },
            8 => clock(time)?,
            _ => return None,
        },
        _ => return None,
    };
    Some(Moment { day, second })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_ways() {
        let moment = Some(Moment { day: 20_736, second: 50_136 });
        let mut local = Local::default();
        assert_eq!(local.read(b"10/Oct/2026:13:55:36 +0000"), moment);
        assert_eq!(local.read(b"10/oct/2026:13:55:36"), moment);
        assert_eq!(iso(b"2026-10-10T13:55:36+02:00"), moment);
        assert_eq!(iso(b"2026-10-10 13:55:36.123Z"), moment);
        for text in ["1791640536", "1791640536.123", "1791640536123", "1791640536123456"] {
            assert_eq!(unix(text.as_bytes()), moment, "{text}");
        }
        assert_eq!(given(b"2026-10-10 13:55:36", false), moment);
        assert_eq!(given(b"2026-10-10", true), Some(Moment { day: 20_736, second: 86_399 }));
        assert_eq!(given(b"2026-10-10T13:55", true), Some(Moment { day: 20_736, second: 50_159 }));
    }

    #[test]
    fn what_is_none() {
        let mut local = Local::default();
        for text in [
            "",
            "-",
            "10/Oct/2026",
            "10/Oct/2026:24:00:00 +0000",
            "31/Sep/2026:13:55:36",
            "0/Oct/2026:13:55:36 +",
            "10/Xxx/2026:13:55:36",
            "10/Oct/20x6:13:55:36",
            "29/Feb/2026:13:55:36 +0000",
        ] {
            assert_eq!(local.read(text.as_bytes()), None, "{text}");
        }
        for text in ["", "-", "1e9", "-5", "99999999999999999999", "1.5x", "."] {
            assert_eq!(unix(text.as_bytes()), None, "{text}");
        }
        for text in ["2026-10-10x13:00:00", "2026-10", "2026-10-10T1:00:00", "2026-13-10T13:00:00"]
        {
            assert_eq!(
                (iso(text.as_bytes()), given(text.as_bytes(), false)),
                (None, None),
                "{text}"
            );
        }
    }
}
