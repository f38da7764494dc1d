//! What became of spans, of all configurations of this process.

use crate::running::lock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;
use weir_core::figures::{Figure, Figures, Served};
use weir_module::Slots;
use weir_runtime::clock;

pub struct Counts {
    sent: AtomicU64,
    dropped: AtomicU64,
    refused: AtomicU64,
    batches: AtomicU64,
    retries: AtomicU64,
    last_error: Mutex<Option<(String, i64, u32)>>,
}

pub static COUNTS: Counts = Counts {
    sent: AtomicU64::new(0),
    dropped: AtomicU64::new(0),
    refused: AtomicU64::new(0),
    batches: AtomicU64::new(0),
    retries: AtomicU64::new(0),
    last_error: Mutex::new(None),
};

impl Counts {
    /// The collector has a batch, but for so many that it will never take.
    pub fn send(&self, spans: usize, refused: usize) {
        let refused = refused.min(spans);
        self.batches.fetch_add(1, Relaxed);
        self.sent.fetch_add((spans - refused) as u64, Relaxed);
        self.refused.fetch_add(refused as u64, Relaxed);
    }

    /// There was no room for so many.
    pub fn drop(&self, spans: usize) {
        self.dropped.fetch_add(spans as u64, Relaxed);
    }

    pub fn dropped(&self) -> u64 {
        self.dropped.load(Relaxed)
    }

    pub fn retry(&self) {
        self.retries.fetch_add(1, Relaxed);
    }

    pub fn failed(&self, why: &str) {
        let (secs, ms) = clock::wall();
        *lock(&self.last_error) = Some((why.to_owned(), secs, ms));
    }
}

/// Notes the figures, where the configuration has an exporter.
pub fn put(_: &Served, main: &Slots, figures: &mut Figures) {
    if !main.get::<super::conf::OtelMain>().has_exporter() {
        return;
    }
    figures.put_all(&[
        ("spans_sent", COUNTS.sent.load(Relaxed)),
        ("spans_dropped", COUNTS.dropped()),
        ("spans_refused", COUNTS.refused.load(Relaxed)),
        ("batches", COUNTS.batches.load(Relaxed)),
        ("retries", COUNTS.retries.load(Relaxed)),
    ]);
    if let Some((why, secs, ms)) = lock(&COUNTS.last_error).clone() {
        figures.put("last_error", why);
        figures.put("last_error_time", Figure::date(secs, ms));
    }
}
