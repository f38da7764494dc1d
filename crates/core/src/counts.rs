//! What is counted of things that have a name (a server, a location, a server of an upstream), and how long
//! it took.
//!
//! Each worker counts into a part of its own, so that counting is a load and a store and no line is shared
//! between processors; who reads adds the parts up. Parts live as long as a configuration has the name:
//! a reload goes on counting where the last one stood.

mod began;
mod exemplars;
mod few;
mod handshakes;
mod histogram;
mod kept;
mod near;
mod statuses;

pub use began::{began_ms, process_began_ms};
pub use exemplars::{Exemplar, BOUNDS_US, BUCKETS};
pub use few::Few;
pub use handshakes::{Handshakes, OfTls, Unverified};
pub use histogram::{Histogram, Times, Took, ERROR};
pub use kept::{
    add_all, keep, keep_named, pieces, read_all, shown, since, when_shown, Fields, Keeps, Known,
    Part, KEPT_MAX_BYTES,
};
pub use near::Near;
pub use statuses::Statuses;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

/// A number that one thread counts and any may read.
#[derive(Debug, Default)]
pub struct Count(AtomicU64);

impl Count {
    /// Counts so many more; by the one thread that does.
    #[inline]
    pub fn add(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
    }

    /// The same the other way, for what is counted while it lasts.
    #[inline]
    pub fn sub(&self, n: u64) {
        self.0.store(self.0.load(Ordering::Relaxed).wrapping_sub(n), Ordering::Relaxed);
    }

    /// Raises it to that, if it is less.
    #[inline]
    pub fn raise(&self, n: u64) {
        if n > self.0.load(Ordering::Relaxed) {
            self.0.store(n, Ordering::Relaxed);
        }
    }

    /// Notes what is no count: when something was last, say.
    #[inline]
    pub fn set(&self, n: u64) {
        self.0.store(n, Ordering::Relaxed);
    }

    /// As it stands.
    #[inline]
    pub fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }

    /// Begins anew. What is counted in this very moment may be lost: a reader asks for it, the one thread counts.
    pub fn reset(&self) {
        self.0.store(0, Ordering::Relaxed);
    }
}

/// The parts of all workers of what is counted under a name.
pub struct Counted<T> {
    name: Box<[u8]>,
    parts: Mutex<BTreeMap<usize, Arc<T>>>,
}

/// The number of the part of processes before this one, in which no worker counts.
const BEFORE: usize = usize::MAX;

impl<T: Part> Keeps for Counted<T> {
    fn read(&self, out: &mut String) {
        self.lock().values().for_each(|part| part.each(&mut Fields::Read(out)));
    }

    fn add(&self, known: &Known) {
        // One thread at a time adds: the table of parts stays locked.
        self.lock().entry(BEFORE).or_default().each(&mut Fields::Add(known));
    }
}

impl<T: Part> Counted<T> {
    /// What is counted under that name of that kind: the same for all configurations in use that name it.
    pub fn named(kind: &'static str, name: &[u8]) -> Arc<Counted<T>> {
        kept::named(kind, name, || Counted { name: name.into(), parts: Mutex::default() })
    }

    /// As the configuration has it.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Into which a worker counts: it asks once and keeps it.
    pub fn part(&self, worker: usize) -> Arc<T> {
        Arc::clone(self.lock().entry(worker).or_default())
    }

    /// Adds up what `pick` says of each part.
    pub fn sum(&self, pick: impl Fn(&T) -> u64) -> u64 {
        self.lock().values().map(|part| pick(part)).fold(0, u64::wrapping_add)
    }

    /// How many there are now of what begins and ends, in this process. A part that is read between its two numbers does
    /// not show less than none.
    pub fn now(&self, begun: impl Fn(&T) -> u64, ended: impl Fn(&T) -> u64) -> u64 {
        let parts = self.lock();
        let own = || parts.iter().filter(|(worker, _)| **worker != BEFORE);
        let gone: u64 = own().map(|(_, part)| ended(part)).sum();
        own().map(|(_, part)| begun(part)).sum::<u64>().saturating_sub(gone)
    }

    /// Adds up the times that `pick` finds in each part.
    pub fn times(&self, pick: impl Fn(&T) -> &Histogram) -> Times {
        let mut times = Times::default();
        self.lock().values().for_each(|part| times.add(pick(part)));
        times
    }

    /// All parts, by the workers' numbers.
    pub fn parts(&self) -> Vec<(usize, Arc<T>)> {
        self.lock().iter().map(|(worker, part)| (*worker, Arc::clone(part))).collect()
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<usize, Arc<T>>> {
        self.parts.lock().unwrap_or_else(|e| e.into_inner())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    impl Part for Count {
        fn each(&self, fields: &mut Fields<'_>) {
            fields.count("n", self);
        }
    }

    #[test]
    fn a_name_is_counted_on_while_anybody_has_it() {
        let first: Arc<Counted<Count>> = Counted::named("test counts", b"a");
        first.part(0).add(2);
        first.part(7).add(3);
        let again: Arc<Counted<Count>> = Counted::named("test counts", b"a");
        drop(first);
        again.part(7).add(1);
        assert_eq!((again.sum(Count::get), again.parts().len(), again.name()), (6, 2, &b"a"[..]));
        drop(again);
        let fresh: Arc<Counted<Count>> = Counted::named("test counts", b"a");
        assert_eq!(fresh.sum(Count::get), 0);
    }
}
