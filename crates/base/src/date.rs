//! Dates of HTTP, of cookies and of logs, and back.
//!
//! As in nginx, times before 1970 print as its first second and times past the year 9999
//! as the last second of it.

use crate::bytes::{fmt_u64, two_digits};

const WEEKDAYS: [&[u8; 3]; 7] = [b"Sun", b"Mon", b"Tue", b"Wed", b"Thu", b"Fri", b"Sat"];
const MONTHS: [&[u8; 3]; 12] = [
    b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec",
];
const DAY_SECS: i64 = 86_400;
/// 31 December 9999, counted from 1 January 1970.
const LAST_DAY: i64 = 2_932_896;

/// A moment of the Gregorian calendar; `month` and `day` count from 1, Sunday is weekday 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Civil {
    pub year: u32,
    pub month: u32,
    pub day: u32,
    pub hour: u32,
    pub min: u32,
    pub sec: u32,
    pub weekday: u32,
}

impl Civil {
    /// Seconds since 1970, clamped to the years 1970 to 9999.
    pub fn from_unix(secs: i64) -> Civil {
        let secs = secs.clamp(0, (LAST_DAY + 1) * DAY_SECS - 1);
        let (days, rest) = (secs / DAY_SECS, (secs % DAY_SECS) as u32);
        // Eras of 400 years that begin on 1 March, so that the leap day is the last of a year.
        let shifted = days + 719_468;
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era =
            (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        let from_march = (5 * day_of_year + 2) / 153;
        let month = if from_march < 10 { from_march + 3 } else { from_march - 9 };
        Civil {
            year: (era * 400 + year_of_era + i64::from(month <= 2)) as u32,
            month: month as u32,
            day: (day_of_year - (153 * from_march + 2) / 5 + 1) as u32,
            hour: rest / 3600,
            min: rest / 60 % 60,
            sec: rest % 60,
            weekday: ((days + 4) % 7) as u32,
        }
    }

    fn month_name(&self) -> &'static [u8; 3] {
        MONTHS[(self.month as usize - 1) % 12]
    }

    fn weekday_name(&self) -> &'static [u8; 3] {
        WEEKDAYS[self.weekday as usize % 7]
    }
}

/// Days from 1 January 1970 to a day of the Gregorian calendar, negative before.
pub fn days_from_civil(year: i64, month: u32, day: u32) -> i64 {
    let year = year - i64::from(month <= 2);
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let from_march = i64::from((month + 9) % 12);
    let day_of_year = (153 * from_march + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

/// `Mon, 28 Sep 1970 06:00:00 GMT`
pub fn http_time(secs: i64) -> [u8; 29] {
    let t = Civil::from_unix(secs);
    let mut out = *b"Mon, 00 Jan 0000 00:00:00 GMT";
    out[..3].copy_from_slice(t.weekday_name());
    put2(&mut out, 5, t.day);
    out[8..11].copy_from_slice(t.month_name());
    put4(&mut out, 12, t.year);
    put_clock(&mut out, 17, &t);
    out
}

/// `Mon, 28-Sep-70 06:00:00 GMT`; the year gets four digits past 2037.
pub fn cookie_time(out: &mut Vec<u8>, secs: i64) {
    let t = Civil::from_unix(secs);
    out.extend_from_slice(t.weekday_name());
    out.extend_from_slice(b", ");
    out.extend_from_slice(&two_digits(t.day));
    out.push(b'-');
    out.extend_from_slice(t.month_name());
    out.push(b'-');
    if t.year > 2037 {
        fmt_u64(out, u64::from(t.year));
    } else {
        out.extend_from_slice(&two_digits(t.year));
    }
    let mut clock = *b" 00:00:00 GMT";
    put_clock(&mut clock, 1, &t);
    out.extend_from_slice(&clock);
}

/// `28/Sep/1970:12:00:00 +0600`: `$time_local`
pub fn format_clf(secs: i64, offset_minutes: i32) -> [u8; 26] {
    let t = local(secs, offset_minutes);
    let mut out = *b"00/Jan/0000:00:00:00 +0000";
    put2(&mut out, 0, t.day);
    out[3..6].copy_from_slice(t.month_name());
    put4(&mut out, 7, t.year);
    put_clock(&mut out, 12, &t);
    put_offset(&mut out, 21, 24, offset_minutes);
    out
}

/// `1970-09-28T12:00:00+06:00`: `$time_iso8601`
pub fn format_iso8601(secs: i64, offset_minutes: i32) -> [u8; 25] {
    let t = local(secs, offset_minutes);
    let mut out = *b"0000-00-00T00:00:00+00:00";
    put4(&mut out, 0, t.year);
    put2(&mut out, 5, t.month);
    put2(&mut out, 8, t.day);
    put_clock(&mut out, 11, &t);
    put_offset(&mut out, 19, 23, offset_minutes);
    out
}

/// `2026/11/21 01:43:00`: the head of an error log line
pub fn format_errlog(secs: i64, offset_minutes: i32) -> [u8; 19] {
    let t = local(secs, offset_minutes);
    let mut out = *b"0000/00/00 00:00:00";
    put4(&mut out, 0, t.year);
    put2(&mut out, 5, t.month);
    put2(&mut out, 8, t.day);
    put_clock(&mut out, 11, &t);
    out
}

/// `Sep 28 12:00:00`: the head of a syslog message
pub fn format_syslog(secs: i64, offset_minutes: i32) -> [u8; 15] {
    let t = local(secs, offset_minutes);
    let mut out = *b"Jan 00 00:00:00";
    out[..3].copy_from_slice(t.month_name());
    put2(&mut out, 4, t.day);
    if out[4] == b'0' {
        out[4] = b' ';
    }
    put_clock(&mut out, 7, &t);
    out
}

fn local(secs: i64, offset_minutes: i32) -> Civil {
    Civil::from_unix(secs.saturating_add(i64::from(offset_minutes) * 60))
}

fn put2(out: &mut [u8], at: usize, value: u32) {
    out[at..at + 2].copy_from_slice(&two_digits(value));
}

fn put4(out: &mut [u8], at: usize, value: u32) {
    put2(out, at, value / 100);
    put2(out, at + 2, value);
}

fn put_clock(out: &mut [u8], at: usize, t: &Civil) {
    put2(out, at, t.hour);
    put2(out, at + 3, t.min);
    put2(out, at + 6, t.sec);
}

fn put_offset(out: &mut [u8], sign_at: usize, minutes_at: usize, offset_minutes: i32) {
    let minutes = offset_minutes.unsigned_abs();
    out[sign_at] = if offset_minutes < 0 { b'-' } else { b'+' };
    put2(out, sign_at + 1, minutes / 60);
    put2(out, minutes_at, minutes % 60);
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Format {
    /// `Tue, 10 Nov 2002 23:50:13`
    Rfc1123,
    /// `Tuesday, 10-Dec-02 23:50:13`
    Rfc850,
    /// `Tue Dec 10 23:50:13 2002`
    Asctime,
}

/// The three date forms of HTTP, as tolerantly as nginx reads them: the weekday is not
/// looked at, months are told apart by as few letters as needed, what follows is ignored.
pub fn parse_http_time(text: &[u8]) -> Option<i64> {
    let cut = text.iter().position(|&b| b == b',' || b == b' ')?;
    let mut r = Reader(&text[cut + 1..]);
    while r.take(b' ').is_some() {}
    if r.0.len() < 18 {
        return None;
    }
    let (format, mut day) = if text[cut] == b' ' {
        (Format::Asctime, 0)
    } else {
        let day = r.number(2)?;
        match r.next()? {
            b' ' if r.0.len() >= 17 => (Format::Rfc1123, day),
            b'-' => (Format::Rfc850, day),
            _ => return None,
        }
    };
    let month = r.month()?;
    let separator = r.next()?;
    let mut year = 0;
    match format {
        Format::Rfc1123 if separator == b' ' => year = r.number(4)?,
        Format::Rfc850 if separator == b'-' => {
            let short = r.number(2)?;
            year = short + if short < 70 { 2000 } else { 1900 };
        }
        Format::Asctime => day = r.asctime_day()?,
        _ => return None,
    }
    let secs = r.clock()?;
    if format == Format::Asctime {
        r.take(b' ')?;
        year = r.number(4)?;
    }
    if day > days_in_month(year, month) {
        return None;
    }
    Some(days_from_civil(i64::from(year), month, day) * DAY_SECS + i64::from(secs))
}

fn days_in_month(year: u32, month: u32) -> u32 {
    let leap = year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    match month {
        2 => 28 + u32::from(leap),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

/// Takes from the front of what is left.
struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn next(&mut self) -> Option<u8> {
        let (&first, rest) = self.0.split_first()?;
        self.0 = rest;
        Some(first)
    }

    fn take(&mut self, byte: u8) -> Option<()> {
        self.0 = self.0.strip_prefix(&[byte])?;
        Some(())
    }

    fn number(&mut self, digits: usize) -> Option<u32> {
        let (head, rest) = self.0.split_at_checked(digits)?;
        self.0 = rest;
        crate::units::parse_int(head)?.try_into().ok()
    }

    /// From 1; by the first letter, and the next two only where they decide.
    fn month(&mut self) -> Option<u32> {
        let (name, rest) = self.0.split_at_checked(3)?;
        self.0 = rest;
        Some(match (name[0], name[1], name[2]) {
            (b'J', b'a', _) => 1,
            (b'J', _, b'n') => 6,
            (b'J', _, _) => 7,
            (b'F', _, _) => 2,
            (b'M', _, b'r') => 3,
            (b'M', _, _) => 5,
            (b'A', b'p', _) => 4,
            (b'A', _, _) => 8,
            (b'S', _, _) => 9,
            (b'O', _, _) => 10,
            (b'N', _, _) => 11,
            (b'D', _, _) => 12,
            _ => return None,
        })
    }

    /// One digit, padded or not, or two.
    fn asctime_day(&mut self) -> Option<u32> {
        let _padding = self.take(b' ');
        let first = self.number(1)?;
        if self.0.first() == Some(&b' ') {
            return Some(first);
        }
        Some(first * 10 + self.number(1)?)
    }

    /// ` 23:50:13`, in seconds.
    fn clock(&mut self) -> Option<u32> {
        self.take(b' ')?;
        let hour = self.number(2)?;
        self.take(b':')?;
        let min = self.number(2)?;
        self.take(b':')?;
        let sec = self.number(2)?;
        (hour <= 23 && min <= 59 && sec <= 59).then_some(hour * 3600 + min * 60 + sec)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SEP_28: i64 = 23_349_600; // Mon, 28 Sep 1970 06:00:00 GMT

    fn cookie(secs: i64) -> String {
        let mut out = Vec::new();
        cookie_time(&mut out, secs);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn http_dates() {
        assert_eq!(&http_time(SEP_28), b"Mon, 28 Sep 1970 06:00:00 GMT");
        assert_eq!(&http_time(0), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&http_time(-5), b"Thu, 01 Jan 1970 00:00:00 GMT");
        assert_eq!(&http_time(951_782_400), b"Tue, 29 Feb 2000 00:00:00 GMT");
        assert_eq!(&http_time(i64::MAX), b"Fri, 31 Dec 9999 23:59:59 GMT");
    }

    #[test]
    fn cookie_dates() {
        assert_eq!(cookie(SEP_28), "Mon, 28-Sep-70 06:00:00 GMT");
        assert_eq!(cookie(2_145_916_799), "Thu, 31-Dec-37 23:59:59 GMT");
        assert_eq!(cookie(2_145_916_800), "Fri, 01-Jan-2038 00:00:00 GMT");
        assert_eq!(cookie(951_782_400), "Tue, 29-Feb-00 00:00:00 GMT");
    }

    #[test]
    fn log_dates() {
        assert_eq!(&format_clf(SEP_28, 360), b"28/Sep/1970:12:00:00 +0600");
        assert_eq!(&format_clf(SEP_28, -210), b"28/Sep/1970:02:30:00 -0330");
        assert_eq!(&format_iso8601(SEP_28, 360), b"1970-09-28T12:00:00+06:00");
        assert_eq!(&format_errlog(1_795_225_380, 0), b"2026/11/21 01:43:00");
        assert_eq!(&format_syslog(SEP_28, 360), b"Sep 28 12:00:00");
        assert_eq!(&format_syslog(0, 0), b"Jan  1 00:00:00");
    }

    #[test]
    fn every_day_goes_there_and_back() {
        for day in (0..=LAST_DAY).step_by(13) {
            let t = Civil::from_unix(day * DAY_SECS + 3661);
            assert_eq!(days_from_civil(i64::from(t.year), t.month, t.day), day);
            assert_eq!((t.hour, t.min, t.sec), (1, 1, 1));
        }
    }

    #[test]
    fn parsing() {
        for text in [
            "Mon, 28 Sep 1970 06:00:00 GMT",
            "Mon, 28 Sep 1970 06:00:00",
            "Monday, 28-Sep-70 06:00:00 GMT",
            "Mon Sep 28 06:00:00 1970",
            ",28 Sxx 1970 06:00:00 anything",
        ] {
            assert_eq!(parse_http_time(text.as_bytes()), Some(SEP_28), "{text}");
        }
        assert_eq!(parse_http_time(b"Thu Jan  1 00:00:00 1970"), Some(0));
        assert_eq!(parse_http_time(b"Thu Jan 1 00:00:00 1970"), Some(0));
        assert_eq!(parse_http_time(b"Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(parse_http_time(b"Wed, 31 Dec 1969 23:59:59 GMT"), Some(-1));
        assert_eq!(parse_http_time(b"Tue, 29 Feb 2000 00:00:00 GMT"), Some(951_782_400));
    }

    #[test]
    fn months_by_few_letters() {
        for (name, number) in (1u32..).zip(MONTHS).map(|(number, name)| (name, number)) {
            assert_eq!(Reader(name).month(), Some(number));
        }
        assert_eq!(Reader(b"xxx").month(), None);
    }

    #[test]
    fn refusing() {
        for text in [
            "",
            "Mon",
            "Mon,",
            "Mon, 28 Sep 1970 06:00:0",
            "Mon, 2x Sep 1970 06:00:00 GMT",
            "Mon, 28/Sep/1970 06:00:00 GMT",
            "Mon, 28 Xep 1970 06:00:00 GMT",
            "Mon, 28 Sep 197x 06:00:00 GMT",
            "Mon, 28 Sep 1970 24:00:00 GMT",
            "Mon, 28 Sep 1970 06:60:00 GMT",
            "Mon, 28 Sep 1970 06:00:60 GMT",
            "Mon, 31 Sep 1970 06:00:00 GMT",
            "Mon, 29 Feb 1970 06:00:00 GMT",
            "Mon, 29 Feb 1900 06:00:00 GMT",
            "Mon Sep 28 06:00:00",
            "Mon Sep 28 06-00-00 1970",
        ] {
            assert_eq!(parse_http_time(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn no_cut_of_a_date_panics() {
        for text in
            ["Mon, 28 Sep 1970 06:00:00 GMT", "M, 28-Sep-70 06:00:00", "M Sep 28 06:00:00 1970"]
        {
            for from in 0..text.len() {
                for to in from..text.len() {
                    let _ = parse_http_time(&text.as_bytes()[from..to]);
                }
            }
        }
    }
}
