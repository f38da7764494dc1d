//! Spans on their way from workers to the thread that sends them.
//!
//! A worker has two trays, so that one is free whenever the thread empties the other. Both sides only try the locks: nobody
//! ever waits for one, so that none has a waiter who would have to be woken by a call of the system.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};

/// The bound in bytes has so many for each span, and so many at least.
const SPAN_BYTES: usize = 2048;
const LEAST_BYTES: usize = 1 << 20;
/// A worker looks so often for a tray that nobody has, and never waits.
const TRIES: usize = 8;
/// What has been larger is not kept.
const SPARE_MAX_BYTES: usize = 1 << 20;

/// Spans one behind the other, and where each ends.
#[derive(Default)]
pub struct Tray {
    pub bytes: Vec<u8>,
    pub ends: Vec<usize>,
}

pub struct Trays {
    of_workers: Box<[[Mutex<Tray>; 2]]>,
    /// Of those the first so many have been put to.
    used: AtomicUsize,
    /// Of one tray.
    most: [usize; 2],
    most_bytes: usize,
}

fn lock(tray: &Mutex<Tray>) -> Option<MutexGuard<'_, Tray>> {
    match tray.try_lock() {
        Ok(tray) => Some(tray),
        Err(TryLockError::Poisoned(e)) => Some(e.into_inner()),
        Err(TryLockError::WouldBlock) => None,
    }
}

impl Trays {
    /// For so many workers, of which each may have so many spans.
    pub fn new(workers: usize, most: usize) -> Trays {
        Trays {
            of_workers: (0..workers).map(|_| Default::default()).collect(),
            used: AtomicUsize::new(0),
            most: [most.div_ceil(2), most / 2],
            most_bytes: (most * SPAN_BYTES).max(LEAST_BYTES) / 2,
        }
    }

    /// Has a worker write a span; `false`: there was no room.
    pub fn put(&self, worker: usize, write: impl FnOnce(&mut Vec<u8>)) -> bool {
        let Some(trays) = self.of_workers.get(worker) else { return false };
        if self.used.load(Ordering::Relaxed) <= worker {
            self.used.fetch_max(worker + 1, Ordering::Relaxed);
        }
        // The thread may let go of one just to take the other.
        for _ in 0..TRIES {
            let mut is_busy = false;
            for (tray, most) in trays.iter().zip(self.most) {
                let Some(mut tray) = lock(tray) else {
                    is_busy = true;
                    continue;
                };
                if tray.ends.len() < most && tray.bytes.len() < self.most_bytes {
                    write(&mut tray.bytes);
                    let end = tray.bytes.len();
                    tray.ends.push(end);
                    return true;
                }
            }
            if !is_busy {
                return false;
            }
        }
        false
    }

    /// Empties all trays into another. What a worker is writing to stays for the next time: `false`.
    pub fn empty(&self, into: &mut Tray) -> bool {
        let mut is_all = true;
        let mut spare = Tray::default();
        let used = self.used.load(Ordering::Acquire);
        for tray in self.of_workers.iter().take(used).flatten() {
            let Some(mut tray) = lock(tray) else {
                is_all = false;
                continue;
            };
            if tray.ends.is_empty() {
                continue;
            }
            // The worker gets other memory at once, and has its tray again before anything is copied.
            let mut full = std::mem::replace(&mut *tray, std::mem::take(&mut spare));
            drop(tray);
            into.add(&full);
            full.ends.clear();
            full.bytes.clear();
            if full.bytes.capacity() <= SPARE_MAX_BYTES {
                spare = full;
            }
        }
        is_all
    }
}

impl Tray {
    fn add(&mut self, other: &Tray) {
        let at = self.bytes.len();
        self.bytes.extend_from_slice(&other.bytes);
        self.ends.extend(other.ends.iter().map(|end| at + end));
    }

    /// The first spans: at most so many, and one or at most so many bytes.
    pub fn first(&self, most: usize, most_bytes: usize) -> (usize, &[u8]) {
        let fits = self.ends.iter().take(most).take_while(|end| **end <= most_bytes).count();
        let count = fits.max(1).min(self.ends.len());
        let end = count.checked_sub(1).map_or(0, |last| self.ends[last]);
        (count, &self.bytes[..end])
    }

    /// Takes so many away.
    pub fn done(&mut self, count: usize) {
        let Some(end) = count.checked_sub(1).and_then(|last| self.ends.get(last)).copied() else {
            return;
        };
        self.bytes.drain(..end);
        self.ends.drain(..count);
        self.ends.iter_mut().for_each(|at| *at -= end);
        if self.ends.is_empty() && self.bytes.capacity() > SPARE_MAX_BYTES {
            *self = Tray::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_over_the_bound_finds_no_room() {
        let trays = Trays::new(2, 3);
        let put = |worker, text: &[u8]| trays.put(worker, |out| out.extend_from_slice(text));
        assert!(put(0, b"a") && put(0, b"bc") && put(0, b"d") && !put(0, b"e"));
        assert!(put(1, b"f") && !put(2, b"g"));
        let mut all = Tray::default();
        assert!(trays.empty(&mut all));
        assert_eq!((&all.bytes[..], &all.ends[..]), (&b"abcdf"[..], &[1, 3, 4, 5][..]));
        assert!(put(0, b"e"));
        assert_eq!(all.first(2, 100), (2, &b"abc"[..]));
        assert_eq!(all.first(9, 2), (1, &b"a"[..]));
        assert_eq!(all.first(9, 0), (1, &b"a"[..]), "one is never too much");
        all.done(2);
        assert_eq!((&all.bytes[..], &all.ends[..]), (&b"df"[..], &[1, 2][..]));
        all.done(2);
        assert_eq!(all.first(9, 9), (0, &b""[..]));
    }

    #[test]
    fn nothing_is_dropped_because_the_thread_is_at_it() {
        let trays = Trays::new(1, 1 << 20);
        let is_over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut all = Tray::default();
                while !is_over.load(Ordering::Relaxed) {
                    trays.empty(&mut all);
                    all.done(all.ends.len());
                }
            });
            let dropped = (0..300_000).filter(|_| !trays.put(0, |out| out.push(b'x'))).count();
            is_over.store(true, Ordering::Relaxed);
            assert_eq!(dropped, 0);
        });
    }

    #[test]
    fn bytes_are_bounded_and_nobody_waits() {
        let trays = Trays::new(1, 4);
        let large = vec![0; LEAST_BYTES / 2];
        let put = || trays.put(0, |out| out.extend_from_slice(&large));
        assert!(put() && put() && !put());
        let held = trays.of_workers[0][0].lock().unwrap();
        assert!(!trays.empty(&mut Tray::default()), "what is being written stays");
        assert!(put(), "the other tray is empty by now");
        drop(held);
    }
}
