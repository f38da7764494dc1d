//! Clocks. Durations come from the monotonic clock, dates from the wall clock.

#[cfg(unix)]
fn read(id: libc::clockid_t) -> (u64, u32) {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec that outlives the call; the ids are constants the
    // kernel knows, so the call cannot fail.
    unsafe { libc::clock_gettime(id, &mut ts) };
    (ts.tv_sec as u64, ts.tv_nsec as u32)
}

/// Milliseconds of the monotonic clock, exact.
#[cfg(unix)]
#[inline]
pub fn mono_ms() -> u64 {
    let (s, ns) = read(libc::CLOCK_MONOTONIC);
    s * 1000 + u64::from(ns / 1_000_000)
}

/// Milliseconds of the monotonic clock as of the last timer tick (a few ms behind); for timeouts.
#[cfg(target_os = "linux")]
#[inline]
pub fn coarse_ms() -> u64 {
    let (s, ns) = read(libc::CLOCK_MONOTONIC_COARSE);
    s * 1000 + u64::from(ns / 1_000_000)
}

/// Wall-clock seconds as of the last timer tick; for the Date header.
#[cfg(target_os = "linux")]
#[inline]
pub fn coarse_wall_secs() -> i64 {
    read(libc::CLOCK_REALTIME_COARSE).0 as i64
}

/// Wall clock, exact: seconds and milliseconds.
#[cfg(unix)]
pub fn wall() -> (i64, u32) {
    let (s, ns) = read(libc::CLOCK_REALTIME);
    (s as i64, ns / 1_000_000)
}

#[cfg(not(unix))]
mod portable {
    use std::sync::OnceLock;
    use std::time::{Instant, SystemTime, UNIX_EPOCH};

    pub fn mono_ms() -> u64 {
        static START: OnceLock<Instant> = OnceLock::new();
        START.get_or_init(Instant::now).elapsed().as_millis() as u64
    }
    pub fn wall() -> (i64, u32) {
        let d = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (d.as_secs() as i64, d.subsec_millis())
    }
}
#[cfg(not(unix))]
pub use portable::{mono_ms, wall};

#[cfg(not(target_os = "linux"))]
pub fn coarse_ms() -> u64 {
    mono_ms()
}

#[cfg(not(target_os = "linux"))]
pub fn coarse_wall_secs() -> i64 {
    wall().0
}
