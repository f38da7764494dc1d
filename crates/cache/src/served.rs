//! What a worker counts of a store's answers; what the places stand for is who counts' own.

use std::sync::atomic::{AtomicU64, Ordering};
use weir_core::counts::{Count, Fields, Histogram, Part};

/// Answers of one status.
#[derive(Default)]
pub struct Served {
    pub responses: Count,
    /// Of them: read from what is kept, or from servers.
    pub bytes: Count,
    /// Those that were kept.
    pub written: Count,
    pub bytes_written: Count,
}

/// By statuses.
#[derive(Default)]
pub struct ByStatus {
    pub by_status: [Served; 7],
    /// How long requests waited for another that filled the entry.
    pub lock_waits: Histogram,
}

impl Part for ByStatus {
    fn each(&self, fields: &mut Fields<'_>) {
        for (n, served) in self.by_status.iter().enumerate() {
            fields.count(&format!("responses{n}"), &served.responses);
            fields.count(&format!("bytes{n}"), &served.bytes);
            fields.count(&format!("written{n}"), &served.written);
            fields.count(&format!("bytes_written{n}"), &served.bytes_written);
        }
        fields.times("lock_waits", &self.lock_waits);
    }
}

/// Why entries, or their copies in memory, had to go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Evicted {
    /// Nobody has asked for so long (`inactive`).
    Inactive,
    /// There were too many bytes (`max_size`), or too few were free (`min_free`).
    Size,
    /// There was no room for another key.
    Keys,
    /// The copy in memory alone: there was no room for another.
    Memory,
}

/// The names of [`Evicted`].
pub const EVICTED: [&str; 4] = ["inactive", "size", "keys", "memory"];

/// How many of each, counted by any thread: seldom.
#[derive(Debug, Default)]
pub struct Evictions([AtomicU64; 4]);

impl Evictions {
    /// One more.
    pub fn add(&self, why: Evicted) {
        self.0[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// By the place in [`EVICTED`].
    pub fn get(&self, n: usize) -> u64 {
        self.0.get(n).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

impl Part for Evictions {
    fn each(&self, fields: &mut Fields<'_>) {
        for (name, count) in EVICTED.iter().zip(&self.0) {
            let now = count.load(Ordering::Relaxed);
            fields.number(name, now, &mut |n| {
                count.fetch_add(n, Ordering::Relaxed);
            });
        }
    }
}
