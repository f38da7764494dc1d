//! The memory that answers take on their way into the cache, which a server that reads nothing would have grow
//! with every request: what a worker holds is bounded together, from an answer's first byte to the end of the
//! request that stores it. So is what clients that read nothing have it hold of answers that were found.

use std::cell::Cell;
use std::rc::Rc;
use weir_core::counters::Tally;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::Request;

/// The most that a worker holds of answers that are collected or being stored. Where `srcache_store_max_size`
/// says more, it may be one such answer.
pub(super) const HELD_MAX_BYTES: u64 = 64 * 1024 * 1024;
/// Added to a body for the head before it.
const HEAD_BYTES: u64 = 64 * 1024;

/// What a worker holds.
#[derive(Default)]
pub(super) struct Ledger {
    held_bytes: Cell<u64>,
    not_stored: Tally,
}

/// What a worker holds of answers that were found, until their clients have them.
#[derive(Default)]
struct Found(Rc<Ledger>);

impl Ledger {
    /// Of answers that were found.
    pub(super) fn of_hits(r: &Request) -> Rc<Ledger> {
        Rc::clone(&r.conn().worker.local::<Found>().0)
    }

    /// Logs that an answer that was found is not taken, at most once a second.
    pub(super) fn tell_hit(&self, r: &Request) {
        if let Some(count) = self.not_stored.one_more() {
            let held = self.held_bytes.get();
            let text = format!(
                "srcache_fetch: {held} bytes of found answers are on their way to clients: {count} more were made anew"
            );
            r.log(LogLevel::Error, &text);
        }
    }

    pub(super) fn of(r: &Request) -> Rc<Ledger> {
        r.conn().worker.local::<Ledger>()
    }

    /// Logs that an answer is not stored, at most once a second.
    pub(super) fn tell(&self, r: &Request) {
        if let Some(count) = self.not_stored.one_more() {
            let held = self.held_bytes.get();
            let text = format!(
                "srcache_store: {held} bytes of answers are under way to the cache: {count} more were not stored"
            );
            r.log(LogLevel::Error, &text);
        }
    }
}

/// An answer's part of that, until it is dropped.
pub(super) struct Held {
    ledger: Rc<Ledger>,
    bytes: u64,
    max_bytes: u64,
}

impl Held {
    /// Nothing yet, of an answer whose body has so many bytes at most.
    pub(super) fn new(ledger: &Rc<Ledger>, body_max_bytes: u64) -> Held {
        let max_bytes = body_max_bytes.saturating_add(HEAD_BYTES).max(HELD_MAX_BYTES);
        Held { ledger: Rc::clone(ledger), bytes: 0, max_bytes }
    }

    /// Whether there is room for so many bytes more.
    pub(super) fn has_room(&self, more: u64) -> bool {
        self.ledger.held_bytes.get().saturating_add(more) <= self.max_bytes
    }

    /// Counts so many bytes from now on; `false`, and nothing is changed: they are too many.
    pub(super) fn grow_to(&mut self, bytes: usize) -> bool {
        let more = (bytes as u64).saturating_sub(self.bytes);
        if !self.has_room(more) {
            return false;
        }
        self.ledger.held_bytes.set(self.ledger.held_bytes.get() + more);
        self.bytes += more;
        true
    }

    /// Counts fewer.
    pub(super) fn shrink_to(&mut self, bytes: usize) {
        let fewer = self.bytes.saturating_sub(bytes as u64);
        self.ledger.held_bytes.set(self.ledger.held_bytes.get() - fewer);
        self.bytes -= fewer;
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.shrink_to(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_held_is_bounded_together() {
        let ledger = Rc::new(Ledger::default());
        let most = HELD_MAX_BYTES as usize;
        let (mut one, mut other) = (Held::new(&ledger, 1), Held::new(&ledger, 1));
        assert!(one.grow_to(most - 10) && other.grow_to(10) && !other.grow_to(11));
        assert_eq!(ledger.held_bytes.get(), HELD_MAX_BYTES);
        one.shrink_to(100);
        assert!(other.grow_to(most - 100) && !other.grow_to(most));
        drop(other);
        assert_eq!(ledger.held_bytes.get(), 100);
        drop(one);
        assert_eq!(ledger.held_bytes.get(), 0);
        // One that the configuration allows has room, if it is alone.
        let mut large = Held::new(&ledger, 2 * HELD_MAX_BYTES);
        assert!(large.grow_to(2 * most) && !Held::new(&ledger, 1).grow_to(1));
    }
}
