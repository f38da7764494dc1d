//! Numbers as nginx.conf writes them: sizes, offsets, times, integers, flags.
//!
//! Every function returns `None` for what nginx calls an invalid value; the words of the
//! error belong to the directive.

/// The largest value nginx's signed 64-bit types hold.
const MAX: u64 = i64::MAX as u64;

/// Digits only, nothing around them; `None` when empty or too large for nginx's integer.
pub fn parse_int(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0, |value, &byte| push_digit(value, byte))
}

/// Hexadecimal digits only, in either case.
pub fn parse_hex(text: &[u8]) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    text.iter().try_fold(0u64, |value, &byte| {
        let digit = u64::from(crate::bytes::hex_value(byte)?);
        value.checked_mul(16)?.checked_add(digit).filter(|&v| v <= MAX)
    })
}

/// A number with up to `point` decimals, scaled by ten to the `point`: `10.5` and 2 give 1050.
pub fn parse_fixed(text: &[u8], point: u32) -> Option<u64> {
    if text.is_empty() {
        return None;
    }
    let (mut value, mut left, mut seen_dot) = (0, point, false);
    for &byte in text {
        if left == 0 {
            return None;
        }
        if byte == b'.' && !seen_dot {
            seen_dot = true;
            continue;
        }
        value = push_digit(value, byte)?;
        left -= u32::from(seen_dot);
    }
    10u64.checked_pow(left).and_then(|scale| scaled(value, scale))
}

/// A size of memory: digits and an optional `k` or `m`, in either case.
pub fn parse_size(text: &[u8]) -> Option<u64> {
    match text.split_last()? {
        (b'k' | b'K', digits) => scaled(parse_int(digits)?, 1 << 10),
        (b'm' | b'M', digits) => scaled(parse_int(digits)?, 1 << 20),
        _ => parse_int(text),
    }
}

/// A length of a file: as [`parse_size`], and `g`.
pub fn parse_offset(text: &[u8]) -> Option<u64> {
    match text.split_last()? {
        (b'g' | b'G', digits) => scaled(parse_int(digits)?, 1 << 30),
        _ => parse_size(text),
    }
}

/// `on` or `off`, in any case.
pub fn parse_flag(text: &[u8]) -> Option<bool> {
    if text.eq_ignore_ascii_case(b"on") {
        Some(true)
    } else if text.eq_ignore_ascii_case(b"off") {
        Some(false)
    } else {
        None
    }
}

/// A time in milliseconds; years and months are not allowed, a bare number is seconds.
pub fn parse_msec(text: &[u8]) -> Option<u64> {
    parse_time(text, Resolution::Msec)
}

/// A time in seconds; `ms` is not allowed.
pub fn parse_sec(text: &[u8]) -> Option<u64> {
    parse_time(text, Resolution::Sec)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Resolution {
    Sec,
    Msec,
}

/// Units in the only order they may appear in. A space ends a bare number of seconds, after
/// which no unit may follow.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Start,
    Year,
    Month,
    Week,
    Day,
    Hour,
    Min,
    Sec,
    Msec,
    Last,
}

fn parse_time(text: &[u8], resolution: Resolution) -> Option<u64> {
    // Milliseconds start past the month, which is how nginx refuses `y` and `M` there.
    let mut step = if resolution == Resolution::Sec { Step::Start } else { Step::Month };
    let (mut total, mut value, mut seen_digit) = (0u64, 0, false);
    let mut rest = text;

    while let Some((&byte, tail)) = rest.split_first() {
        rest = tail;
        if byte.is_ascii_digit() {
            value = push_digit(value, byte)?;
            seen_digit = true;
            continue;
        }
        let is_msec = byte == b'm' && rest.first() == Some(&b's');
        let (next, seconds) = if is_msec { (Step::Msec, 1) } else { unit(byte)? };
        let limit = if next == Step::Last { Step::Sec } else { next };
        if step >= limit || (is_msec && resolution == Resolution::Sec) {
            return None;
        }
        if is_msec {
            rest = &rest[1..];
        }
        step = next;
        let per_second = if is_msec || resolution == Resolution::Sec { 1 } else { 1000 };
        total = sum(total, scaled(value, seconds * per_second)?)?;
        value = 0;
        while let Some((b' ', tail)) = rest.split_first() {
            rest = tail;
        }
    }

    let per_second = if resolution == Resolution::Sec { 1 } else { 1000 };
    sum(total, scaled(value, per_second)?).filter(|_| seen_digit)
}

fn unit(byte: u8) -> Option<(Step, u64)> {
    const DAY: u64 = 24 * 60 * 60;
    Some(match byte {
        b'y' => (Step::Year, 365 * DAY),
        b'M' => (Step::Month, 30 * DAY),
        b'w' => (Step::Week, 7 * DAY),
        b'd' => (Step::Day, DAY),
        b'h' => (Step::Hour, 60 * 60),
        b'm' => (Step::Min, 60),
        b's' => (Step::Sec, 1),
        b' ' => (Step::Last, 1),
        _ => return None,
    })
}

fn push_digit(value: u64, byte: u8) -> Option<u64> {
    if !byte.is_ascii_digit() {
        return None;
    }
    sum(value.checked_mul(10)?, u64::from(byte - b'0'))
}

fn scaled(value: u64, scale: u64) -> Option<u64> {
    value.checked_mul(scale).filter(|&v| v <= MAX)
}

fn sum(a: u64, b: u64) -> Option<u64> {
    a.checked_add(b).filter(|&v| v <= MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers() {
        assert_eq!(parse_int(b"0"), Some(0));
        assert_eq!(parse_int(b"9223372036854775807"), Some(MAX));
        for bad in
            ["", "-1", "+1", " 1", "1 ", "0x1", "9223372036854775808", "99999999999999999999"]
        {
            assert_eq!(parse_int(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(parse_hex(b"fF"), Some(255));
        assert_eq!(parse_hex(b"7fffffffffffffff"), Some(MAX));
        assert_eq!(parse_hex(b"8000000000000000"), None);
        assert_eq!(parse_hex(b""), None);
    }

    #[test]
    fn fixed_point() {
        assert_eq!(parse_fixed(b"10.5", 2), Some(1050));
        assert_eq!(parse_fixed(b"10", 2), Some(1000));
        assert_eq!(parse_fixed(b"10.", 2), Some(1000));
        assert_eq!(parse_fixed(b".25", 2), Some(25));
        assert_eq!(parse_fixed(b"1.255", 2), None);
        assert_eq!(parse_fixed(b"1.2.5", 3), None);
        assert_eq!(parse_fixed(b"", 2), None);
        assert_eq!(parse_fixed(b"1x", 2), None);
        assert_eq!(parse_fixed(b"9223372036854775807", 1), None);
    }

    #[test]
    fn sizes() {
        assert_eq!(parse_size(b"10"), Some(10));
        assert_eq!(parse_size(b"10k"), Some(10 << 10));
        assert_eq!(parse_size(b"10M"), Some(10 << 20));
        assert_eq!(parse_size(b"1g"), None);
        assert_eq!(parse_size(b"k"), None);
        assert_eq!(parse_size(b""), None);
        assert_eq!(parse_size(b"9007199254740991k"), Some(9_007_199_254_740_991 << 10));
        assert_eq!(parse_size(b"9007199254740992k"), None);
        assert_eq!(parse_offset(b"2G"), Some(2 << 30));
        assert_eq!(parse_offset(b"2K"), Some(2 << 10));
        assert_eq!(parse_offset(b"8589934592g"), None);
    }

    #[test]
    fn flags() {
        assert_eq!(parse_flag(b"On"), Some(true));
        assert_eq!(parse_flag(b"OFF"), Some(false));
        assert_eq!(parse_flag(b"yes"), None);
    }

    #[test]
    fn times() {
        let day = 24 * 3600;
        for (text, sec, msec) in [
            ("1", Some(1), Some(1000)),
            ("0", Some(0), Some(0)),
            ("10s", Some(10), Some(10_000)),
            ("500ms", None, Some(500)),
            ("1s500ms", None, Some(1500)),
            ("1h30m", Some(5400), Some(5_400_000)),
            ("1d 2h", Some(day + 7200), Some((day + 7200) * 1000)),
            ("1y", Some(365 * day), None),
            ("1M", Some(30 * day), None),
            ("1y1M1w1d1h1m1s", Some(365 * day + 30 * day + 8 * day + 3661), None),
            ("1w", Some(7 * day), Some(7 * day * 1000)),
            ("1m1h", None, None),
            ("1h1h", None, None),
            ("1y1y", None, None),
            ("1 2", Some(3), Some(3000)),
            ("1 2s", None, None),
            ("1s 2", Some(3), Some(3000)),
            ("1s ", Some(1), Some(1000)),
            ("1hm", Some(3600), Some(3_600_000)),
            ("h", None, None),
            ("", None, None),
            ("-1", None, None),
            ("1.5s", None, None),
            ("1ms1ms", None, None),
            ("9223372036854775807", Some(MAX), None),
            ("9223372036854775808", None, None),
            ("9223372036854775807s1", None, None),
        ] {
            assert_eq!(parse_sec(text.as_bytes()), sec, "sec {text}");
            assert_eq!(parse_msec(text.as_bytes()), msec, "msec {text}");
        }
    }
}
