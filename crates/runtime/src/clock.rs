//! Clocks. Durations come from the monotonic clock, dates from the wall clock.

use std::cell::Cell;

#[cfg(unix)]
fn read(id: libc::clockid_t) -> (u64, u32) {
    let mut ts = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `ts` is a valid timespec that outlives the call; the ids are constants the
    // kernel knows, so the call cannot fail.
    unsafe { libc::clock_gettime(id, &mut ts) };
    (ts.tv_sec as u64, ts.tv_nsec as u32)
}

/// What the clocks said when the worker's event loop last had something to do: every timeout and
/// date of one turn of the loop then costs one reading, as in nginx.
#[derive(Clone, Copy)]
struct Turn {
    mono_ms: u64,
    mono_us: u64,
    wall_secs: i64,
    /// So many more answers before the clocks are read again: a loop that never rests must not
    /// stop the time. 0: this thread reads the clocks each time.
    left: u32,
}

/// Answers from one reading.
const ANSWERS_MAX: u32 = 64;

thread_local! {
    static TURN: Cell<Turn> = const { Cell::new(Turn { mono_ms: 0, mono_us: 0, wall_secs: 0, left: 0 }) };
}

/// Reads the clocks for the turn that begins; call it whenever the event loop has waited. The
/// answer is the monotonic clock's, in milliseconds.
#[inline(never)]
pub fn tick() -> u64 {
    let mono_us = now_us();
    let mono_ms = mono_us / 1000;
    TURN.set(Turn { mono_ms, mono_us, wall_secs: read_wall_secs(), left: ANSWERS_MAX });
    mono_ms
}

/// Reads the clocks again in the middle of a turn: time is known to have passed.
pub fn renew() {
    if TURN.get().left > 0 {
        tick();
    }
}

/// This thread's turn, if it has turns.
#[inline]
fn turn() -> Option<Turn> {
    let mut turn = TURN.get();
    match turn.left {
        0 => return None,
        1 => {
            tick();
            return Some(TURN.get());
        }
        _ => turn.left -= 1,
    }
    TURN.set(turn);
    Some(turn)
}

/// Milliseconds of the monotonic clock; in a worker, as of this turn of its event loop.
#[inline]
pub fn mono_ms() -> u64 {
    turn().map_or_else(read_mono_ms, |t| t.mono_ms)
}

/// Milliseconds of the monotonic clock and seconds of the wall clock; in a worker, as of this turn of its event loop.
#[inline]
pub fn mono_ms_and_wall_secs() -> (u64, i64) {
    turn().map_or_else(|| (read_mono_ms(), read_wall_secs()), |t| (t.mono_ms, t.wall_secs))
}

/// Microseconds of the monotonic clock; in a worker, as of this turn of its event loop.
#[inline]
pub fn mono_us() -> u64 {
    turn().map_or_else(now_us, |t| t.mono_us)
}

/// Whole seconds of the monotonic clock: for times that are kept in memory only, which a wall clock
/// that is set would stretch or cut.
#[inline]
pub fn mono_secs() -> u64 {
    mono_ms() / 1000
}

/// Wall-clock seconds; in a worker, as of this turn of its event loop.
#[inline]
pub fn wall_secs() -> i64 {
    turn().map_or_else(read_wall_secs, |t| t.wall_secs)
}

/// Microseconds of the monotonic clock, read now: for how long something took within a turn.
#[cfg(unix)]
#[inline(never)]
pub fn now_us() -> u64 {
    let (s, ns) = read(libc::CLOCK_MONOTONIC);
    s * 1_000_000 + u64::from(ns / 1000)
}

fn read_mono_ms() -> u64 {
    now_us() / 1000
}

/// The coarse clock, a few ms behind, is good for dates.
#[cfg(target_os = "linux")]
#[inline(never)]
fn read_wall_secs() -> i64 {
    read(libc::CLOCK_REALTIME_COARSE).0 as i64
}

#[cfg(not(target_os = "linux"))]
fn read_wall_secs() -> i64 {
    wall().0
}

/// Wall clock, exact: seconds and milliseconds.
#[cfg(unix)]
pub fn wall() -> (i64, u32) {
    let (s, ns) = read(libc::CLOCK_REALTIME);
    (s as i64, ns / 1_000_000)
}

/// The same in microseconds since 1970.
#[cfg(unix)]
pub fn wall_us() -> u64 {
    let (s, ns) = read(libc::CLOCK_REALTIME);
    s * 1_000_000 + u64::from(ns / 1000)
}

#[cfg(windows)]
mod windows {
    use std::sync::OnceLock;
    use std::time::{SystemTime, UNIX_EPOCH};

    #[link(name = "kernel32")]
    unsafe extern "system" {
        fn QueryPerformanceCounter(count: *mut i64) -> i32;
        fn QueryPerformanceFrequency(a_second: *mut i64) -> i32;
    }

    /// The same in all processes: it counts from the machine's start.
    pub fn now_us() -> u64 {
        static A_SECOND: OnceLock<u64> = OnceLock::new();
        let asked = |ask: unsafe extern "system" fn(*mut i64) -> i32| {
            let mut n = 0;
            // SAFETY: the number is there for the call, which does not fail.
            unsafe { ask(&mut n) };
            n.unsigned_abs()
        };
        let a_second = (*A_SECOND.get_or_init(|| asked(QueryPerformanceFrequency))).max(1);
        let n = asked(QueryPerformanceCounter);
        n / a_second * 1_000_000 + n % a_second * 1_000_000 / a_second
    }
    pub fn wall() -> (i64, u32) {
        let d = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        (d.as_secs() as i64, d.subsec_millis())
    }
    pub fn wall_us() -> u64 {
        let d = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        d.as_micros() as u64
    }
}
#[cfg(windows)]
pub use windows::now_us;
#[cfg(windows)]
pub use windows::{wall, wall_us};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_with_turns_sees_time_pass_even_if_it_never_rests() {
        let start = mono_ms();
        tick();
        let mut answers = 0u64;
        while mono_ms() < start + 20 {
            answers += 1;
            assert!(answers < 1 << 40, "time stands still");
        }
        assert!(TURN.get().left > 0);
    }

    #[test]
    fn a_thread_without_turns_reads_the_clock() {
        let before = mono_ms();
        std::thread::sleep(std::time::Duration::from_millis(3));
        assert!(mono_ms() >= before + 2);
        assert_eq!(TURN.get().left, 0);
    }
}
