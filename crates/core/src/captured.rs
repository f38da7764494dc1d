//! Lines of the error log that a worker keeps for code of its own to read (OpenResty's `lua_capture_error_log`).
//!
//! Each block of the configuration may have a ring in each worker, of so many bytes: what finds no room pushes out the
//! oldest. Lines are those that the log in force has taken, whichever that is; threads that are no workers keep none.
//! Where nobody wants them a line costs one look at a flag.

use crate::logger::LogLevel;
use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use weir_runtime::clock;

/// What a line takes besides its text, as OpenResty counts it.
const LINE_BYTES: usize = 16;

/// A line without its end.
#[derive(Clone, PartialEq, Debug)]
pub struct Line {
    /// Its level.
    pub level: LogLevel,
    /// Seconds since 1970.
    pub time: f64,
    /// With time and level in front, as the log has it.
    pub text: Box<[u8]>,
}

/// Which ring: of which block of the configuration.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Of {
    /// `http`
    Http,
    /// `stream`
    Stream,
}

struct Ring {
    generation: u64,
    max_bytes: usize,
    /// Graver lines are kept, and those of this level, by its number in nginx.
    least: i32,
    bytes: usize,
    lines: VecDeque<Line>,
}

/// Whether any thread has ever had a ring.
static ANY: AtomicBool = AtomicBool::new(false);

thread_local! {
    static RINGS: RefCell<[Option<Ring>; 2]> = const { RefCell::new([None, None]) };
}

impl Ring {
    fn keep(&mut self, level: LogLevel, text: &[u8]) {
        let bytes = text.len() + LINE_BYTES;
        if level as i32 > self.least || bytes > self.max_bytes {
            return;
        }
        while self.bytes + bytes > self.max_bytes {
            self.take();
        }
        let (secs, ms) = clock::wall();
        let time = secs as f64 + f64::from(ms) / 1000.0;
        self.bytes += bytes;
        self.lines.push_back(Line { level, time, text: text.into() });
    }

    fn take(&mut self) -> Option<Line> {
        let line = self.lines.pop_front()?;
        self.bytes -= line.text.len() + LINE_BYTES;
        Some(line)
    }
}

/// The worker that calls serves by that generation, whose block keeps so many bytes or nothing.
pub fn begin(of: Of, generation: u64, max_bytes: Option<usize>) {
    RINGS.with_borrow_mut(|rings| {
        let ring = &mut rings[of as usize];
        if ring.as_ref().is_some_and(|ring| ring.generation == generation) {
            return;
        }
        *ring = max_bytes.map(|max_bytes| Ring {
            generation,
            max_bytes,
            least: LogLevel::Debug as i32,
            bytes: 0,
            lines: VecDeque::new(),
        });
        if ring.is_some() {
            ANY.store(true, Ordering::Relaxed);
        }
    });
}

/// Whether a line may have to be kept.
#[inline]
pub(crate) fn is_wanted() -> bool {
    ANY.load(Ordering::Relaxed)
}

/// Keeps a line where there is a ring.
pub(crate) fn keep(level: LogLevel, line: &[u8]) {
    RINGS.with(|rings| {
        // Nothing in here logs.
        let Ok(mut rings) = rings.try_borrow_mut() else { return };
        rings.iter_mut().flatten().for_each(|ring| ring.keep(level, line));
    });
}

/// The oldest line, which is kept no more; an error if none are kept.
///
/// # Errors
///
/// There is no such ring here.
pub fn take(of: Of) -> Result<Option<Line>, NoRing> {
    RINGS.with_borrow_mut(|rings| Ok(rings[of as usize].as_mut().ok_or(NoRing)?.take()))
}

/// Lines of that number of a level and graver ones are kept from now on.
///
/// # Errors
///
/// There is no such ring here.
pub fn set_least(of: Of, level: i32) -> Result<(), NoRing> {
    RINGS.with_borrow_mut(|rings| {
        rings[of as usize].as_mut().ok_or(NoRing)?.least = level;
        Ok(())
    })
}

/// Lines are not kept here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NoRing;

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(of: Of) -> Vec<String> {
        std::iter::from_fn(|| take(of).unwrap())
            .map(|line| String::from_utf8_lossy(&line.text).into_owned())
            .collect()
    }

    #[test]
    fn the_oldest_lines_give_way() {
        assert_eq!(take(Of::Http), Err(NoRing));
        begin(Of::Http, 1, Some(100));
        for n in 0..10 {
            keep(LogLevel::Error, format!("line {n}, 20 bytes....").as_bytes());
        }
        keep(LogLevel::Error, &[b'x'; 100]);
        assert_eq!(texts(Of::Http), ["line 8, 20 bytes....", "line 9, 20 bytes...."]);
        set_least(Of::Http, LogLevel::Warn as i32).unwrap();
        keep(LogLevel::Notice, b"notice");
        keep(LogLevel::Warn, b"warn");
        begin(Of::Http, 1, Some(100));
        assert_eq!(texts(Of::Http), ["warn"]);
        assert_eq!(set_least(Of::Stream, 4), Err(NoRing));
        begin(Of::Http, 2, None);
        assert_eq!(take(Of::Http), Err(NoRing));
    }
}
