//! The local time zone, and times in the C library's words (SSI's `timefmt`).

/// Minutes east of UTC that local time has at that moment.
#[cfg(unix)]
pub fn offset_minutes(secs: i64) -> i32 {
    let time = secs as libc::time_t;
    // SAFETY: `tm` is plain data for which all zeroes is a valid value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call; localtime_r is the thread-safe form.
    let ok = unsafe { !libc::localtime_r(&time, &mut tm).is_null() };
    if ok {
        (tm.tm_gmtoff / 60) as i32
    } else {
        0
    }
}

#[cfg(windows)]
pub fn offset_minutes(secs: i64) -> i32 {
    let Some(tm) = broken_down(secs, false) else { return 0 };
    let (month, day) = ((tm.tm_mon + 1).unsigned_abs(), tm.tm_mday.unsigned_abs());
    let days = weir_base::date::days_from_civil(i64::from(tm.tm_year) + 1900, month, day);
    let minutes = (days * 24 + i64::from(tm.tm_hour)) * 60 + i64::from(tm.tm_min);
    i32::try_from(minutes - secs.div_euclid(60)).unwrap_or(0)
}

/// A moment in the parts that the library knows.
#[cfg(windows)]
fn broken_down(secs: i64, gmt: bool) -> Option<libc::tm> {
    // SAFETY: `tm` is plain data for which all zeroes is a valid value; both pointers are valid for the call.
    unsafe {
        let mut tm: libc::tm = std::mem::zeroed();
        let failed = match gmt {
            true => libc::gmtime_s(&mut tm, &secs),
            false => libc::localtime_s(&mut tm, &secs),
        };
        (failed == 0).then_some(tm)
    }
}

/// Longer results are no result, as in nginx.
const TEXT_MAX_BYTES: usize = 2048;

/// A moment in Unix seconds in `strftime`'s words; `None` when it comes to nothing or too much.
#[cfg(unix)]
pub fn strftime(secs: i64, gmt: bool, format: &[u8]) -> Option<Vec<u8>> {
    let format = std::ffi::CString::new(format).ok()?;
    let time = secs as libc::time_t;
    // SAFETY: `tm` is plain data for which all zeroes is a valid value.
    let mut tm: libc::tm = unsafe { std::mem::zeroed() };
    // SAFETY: both pointers are valid for the call; the `_r` forms are the thread-safe ones.
    let converted = unsafe {
        match gmt {
            true => libc::gmtime_r(&time, &mut tm),
            false => libc::localtime_r(&time, &mut tm),
        }
    };
    if converted.is_null() {
        return None;
    }
    let mut text = vec![0u8; TEXT_MAX_BYTES];
    // SAFETY: the buffer has the length that is passed, the format ends with NUL, and `tm` was
    // filled in by the library itself.
    let len = unsafe { libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &tm) };
    text.truncate(len);
    (len > 0).then_some(text)
}

#[cfg(windows)]
unsafe extern "C" {
    #[link_name = "strftime"]
    fn library(to: *mut i8, room: usize, format: *const i8, tm: *const libc::tm) -> usize;
}

/// The same. What is no conversion of the library's ends the program there: it is no text here.
#[cfg(windows)]
pub fn strftime(secs: i64, gmt: bool, format: &[u8]) -> Option<Vec<u8>> {
    let format = std::ffi::CString::new(spelled_out(secs, gmt, format)?).ok()?;
    let tm = broken_down(secs, gmt)?;
    let mut text = vec![0u8; TEXT_MAX_BYTES];
    // SAFETY: the buffer has the length that is passed, the format ends with NUL, and `tm` was
    // filled in by the library itself.
    let len = unsafe { library(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &tm) };
    text.truncate(len);
    (len > 0).then_some(text)
}

/// A format in conversions that Windows' library knows: others of POSIX' are put together of those, and what is another
/// thing to it, or its own for UTC, is written.
#[cfg(any(windows, test))]
fn spelled_out(secs: i64, gmt: bool, format: &[u8]) -> Option<Vec<u8>> {
    const KNOWN: &[u8] = b"aAbBcdHIjmMpSUwWxXyYZ%";
    let (mut out, mut rest) = (Vec::with_capacity(format.len()), format);
    while let Some(at) = memchr::memchr(b'%', rest) {
        out.extend_from_slice(&rest[..at]);
        let (conversion, behind) = rest[at + 1..].split_first()?;
        rest = behind;
        match conversion {
            b'Z' if gmt => out.extend_from_slice(b"GMT"),
            b'z' => {
                let minutes = if gmt { 0 } else { offset_minutes(secs) };
                let (sign, east) = (if minutes < 0 { '-' } else { '+' }, minutes.unsigned_abs());
                out.extend_from_slice(format!("{sign}{:02}{:02}", east / 60, east % 60).as_bytes());
            }
            b's' => out.extend_from_slice(secs.to_string().as_bytes()),
            b'D' => out.extend_from_slice(b"%m/%d/%y"),
            b'F' => out.extend_from_slice(b"%Y-%m-%d"),
            b'R' => out.extend_from_slice(b"%H:%M"),
            b'T' => out.extend_from_slice(b"%H:%M:%S"),
            b'h' => out.extend_from_slice(b"%b"),
            b'n' => out.push(b'\n'),
            b't' => out.push(b'\t'),
            known if KNOWN.contains(known) => out.extend_from_slice(&[b'%', *known]),
            _ => return None,
        }
    }
    out.extend_from_slice(rest);
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_in_words() {
        let text = |format: &[u8]| strftime(1_000_000_000, true, format);
        let usual = text(b"%A, %d-%b-%Y %H:%M:%S %Z");
        assert_eq!(usual.as_deref(), Some(&b"Sunday, 09-Sep-2001 01:46:40 GMT"[..]));
        assert_eq!(text(b""), None);
        assert_eq!(text(b"a\0b"), None);
        assert_eq!(text(b"%c".repeat(200).as_slice()), None);
        assert!(strftime(1_000_000_000, false, b"%Z").is_some());
        let spelled = |gmt, format: &[u8]| spelled_out(1_000_000_000, gmt, format);
        let usual = spelled(true, b"%F at %T %Z%z, %s%%");
        assert_eq!(usual.as_deref(), Some(&b"%Y-%m-%d at %H:%M:%S GMT+0000, 1000000000%%"[..]));
        assert_eq!(spelled(false, b"%Z %d").as_deref(), Some(&b"%Z %d"[..]));
        assert_eq!((spelled(true, b"%Q"), spelled(true, b"%")), (None, None));
    }
}
