//! Generations that a newer one has replaced, until nothing uses them any more.
//!
//! The main thread keeps them so that it is the one to drop them: it has allocated them, and an
//! allocator gives a thread's memory back only by that thread's doing.

use std::sync::Arc;
use weir_core::generation::Generation;

/// How soon after a reload it is looked whether the old generation is still in use; then ever less
/// often.
const LOOK_MIN_MS: u64 = 20;
const LOOK_MAX_MS: u64 = 1000;

#[derive(Default)]
pub struct Retired {
    all: Vec<Arc<Generation>>,
    look_ms: u64,
}

impl Retired {
    pub fn add(&mut self, generation: Arc<Generation>) {
        self.all.push(generation);
        self.look_ms = LOOK_MIN_MS;
    }

    /// Those that nobody else holds.
    pub fn take_unused(&mut self) -> Vec<Arc<Generation>> {
        self.look_ms = (self.look_ms * 2).min(LOOK_MAX_MS);
        // The last holder besides this one cannot come back, for nothing gives out new handles.
        self.all.extract_if(.., |g| Arc::strong_count(g) == 1).collect()
    }

    /// After how long to look again, at the latest.
    pub fn look_in_ms(&self) -> u64 {
        match self.all.is_empty() {
            true => u64::MAX,
            false => self.look_ms.max(LOOK_MIN_MS),
        }
    }
}
