//! The local time zone, for logs.

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

#[cfg(not(unix))]
pub fn offset_minutes(_secs: i64) -> i32 {
    0
}
