//! What modules note on a request with a yes: a bit each, which costs a request nothing to have. What
//! needs more than a bit is a module's own context.

use std::sync::atomic::{AtomicU32, Ordering};

/// Bits below this are a request's own, those above are its parts' too.
const FOR_PARTS: u32 = u64::BITS / 2;
const NONE: u32 = u32::MAX;

/// Numbers given out, of both kinds.
static OWN: AtomicU32 = AtomicU32::new(0);
static SHARED: AtomicU32 = AtomicU32::new(FOR_PARTS);

/// A module's mark: a `static` of its own. Its bit is given out at first use.
pub struct Mark {
    number: AtomicU32,
    is_shared: bool,
}

impl Mark {
    /// One of the request's own.
    #[allow(clippy::new_without_default)]
    pub const fn new() -> Mark {
        Mark { number: AtomicU32::new(NONE), is_shared: false }
    }

    /// A subrequest begins with it where its request has it.
    pub const fn for_parts() -> Mark {
        Mark { number: AtomicU32::new(NONE), is_shared: true }
    }

    #[inline]
    fn bit(&self) -> u64 {
        match self.number.load(Ordering::Relaxed) {
            NONE => 1 << self.take_number(),
            number => 1 << number,
        }
    }

    #[cold]
    fn take_number(&self) -> u32 {
        let (next, end) = match self.is_shared {
            false => (&OWN, FOR_PARTS),
            true => (&SHARED, u64::BITS),
        };
        let number = next.fetch_add(1, Ordering::Relaxed);
        assert!(number < end, "there are more marks of modules than bits for them");
        // Another thread may have been quicker; both then have the same.
        match self.number.compare_exchange(NONE, number, Ordering::Relaxed, Ordering::Relaxed) {
            Ok(_) => number,
            Err(taken) => taken,
        }
    }
}

/// The marks that a request has.
#[derive(Clone, Copy, Default)]
pub(crate) struct Marks(u64);

impl Marks {
    #[inline]
    pub(crate) fn has(self, mark: &Mark) -> bool {
        self.0 & mark.bit() != 0
    }

    pub(crate) fn add(&mut self, mark: &Mark) {
        self.0 |= mark.bit();
    }

    /// What a part of the request begins with.
    pub(crate) fn for_parts(self) -> Marks {
        Marks(self.0 & (u64::MAX << FOR_PARTS))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_apart_and_some_go_on_to_parts() {
        static A: Mark = Mark::new();
        static B: Mark = Mark::new();
        static C: Mark = Mark::for_parts();
        let mut marks = Marks::default();
        marks.add(&A);
        assert!(marks.has(&A) && !marks.has(&B) && !marks.has(&C));
        marks.add(&C);
        let part = marks.for_parts();
        assert!(!part.has(&A) && !part.has(&B) && part.has(&C));
    }
}
