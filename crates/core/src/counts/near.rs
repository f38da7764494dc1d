//! Parts of workers, at hand for who has no place of its own for each worker.

use super::{Counted, Part};
use crate::worker::Worker;
use std::sync::{Arc, OnceLock};

/// What is counted of something that the workers share, each in its part: a look into a table finds it.
pub struct Near<T> {
    all: Arc<Counted<T>>,
    parts: OnceLock<Box<[OnceLock<Arc<T>>]>>,
}

impl<T: Part> Near<T> {
    /// What is counted under that name of that kind, as [`Counted::named`] has it.
    pub fn named(kind: &'static str, name: &[u8]) -> Near<T> {
        Near { all: Counted::named(kind, name), parts: OnceLock::new() }
    }

    /// For sums.
    pub fn all(&self) -> &Counted<T> {
        &self.all
    }

    /// The worker's own.
    #[inline]
    pub fn part(&self, worker: &Worker) -> Option<&T> {
        let none = || worker.all.each.iter().map(|_| OnceLock::new()).collect();
        let part = self.parts.get_or_init(none).get(worker.id)?;
        Some(part.get_or_init(|| self.all.part(worker.id)))
    }
}
