//! How far it is, on standard error.

use crate::source::Source;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

const EVERY: Duration = Duration::from_millis(200);

pub struct Progress {
    is_shown: bool,
    done: AtomicU64,
    /// `None`: not known of all.
    all: Option<u64>,
    start: Instant,
    is_over: Mutex<bool>,
    changed: Condvar,
}

impl Progress {
    pub fn new(is_shown: bool, sources: &[Source]) -> Progress {
        Progress {
            is_shown,
            done: AtomicU64::new(0),
            all: sources.iter().map(Source::len).sum(),
            start: Instant::now(),
            is_over: Mutex::new(false),
            changed: Condvar::new(),
        }
    }

    /// Bytes that were read.
    pub fn done(&self) -> &AtomicU64 {
        &self.done
    }

    pub fn add(&self, bytes: u64) {
        self.done.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Until [`Progress::end`].
    pub fn run(&self) {
        if !self.is_shown {
            return;
        }
        let mut is_over = self.is_over.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            // What is seen before the line is made: the last line tells the end.
            let last = *is_over;
            let line = self.line(self.start.elapsed());
            let _ = write!(std::io::stderr(), "\r{line:<60}");
            if last {
                break;
            }
            let waited = self.changed.wait_timeout(is_over, EVERY);
            is_over = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
        let _ = writeln!(std::io::stderr());
    }

    pub fn end(&self) {
        *self.is_over.lock().unwrap_or_else(PoisonError::into_inner) = true;
        self.changed.notify_all();
    }

    fn line(&self, elapsed: Duration) -> String {
        let done = self.done.load(Ordering::Relaxed);
        let secs = elapsed.as_secs_f64().max(0.001);
        let rate = done as f64 / 1e6 / secs;
        let mb = done / 1_000_000;
        match self.all.filter(|all| *all > 0) {
            Some(all) => {
                let part = (done as f64 / all as f64).min(1.0);
                let left = secs / part.max(1e-6) - secs;
                format!("{:.1} %, {mb} MB, {rate:.0} MB/s, {left:.0} s left", part * 100.0)
            }
            None => format!("{mb} MB, {rate:.0} MB/s"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        let mut bar = Progress::new(true, &[]);
        bar.add(50_000_000);
        bar.all = Some(200_000_000);
        let second = Duration::from_secs(1);
        assert_eq!(bar.line(second), "25.0 %, 50 MB, 50 MB/s, 3 s left");
        bar.all = None;
        assert_eq!(bar.line(second), "50 MB, 50 MB/s");
    }
}
