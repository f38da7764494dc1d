//! The memory tier's budget: bytes are charged before they are kept and given back when the last
//! holder has let go of them, be it a slow client's output queue.

use bytes::Bytes;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

#[derive(Default, Debug)]
pub struct Budget {
    limit: AtomicU64,
    used: AtomicU64,
}

/// A part of the budget, given back when dropped.
#[derive(Debug)]
pub struct Charge {
    budget: Arc<Budget>,
    bytes: u64,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.budget.used.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Budget {
    pub fn new(limit: u64) -> Budget {
        Budget { limit: AtomicU64::new(limit), used: AtomicU64::new(0) }
    }

    pub fn set_limit(&self, limit: u64) {
        self.limit.store(limit, Ordering::Relaxed);
    }

    pub fn limit(&self) -> u64 {
        self.limit.load(Ordering::Relaxed)
    }

    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// So many bytes, if they are still free: never more than the limit is given out.
    pub fn charge(self: &Arc<Self>, bytes: u64) -> Option<Charge> {
        let limit = self.limit();
        let add = |used: u64| used.checked_add(bytes).filter(|n| *n <= limit);
        self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).ok()?;
        Some(Charge { budget: Arc::clone(self), bytes })
    }
}

struct Charged {
    text: Vec<u8>,
    _charge: Charge,
}

impl AsRef<[u8]> for Charged {
    fn as_ref(&self) -> &[u8] {
        &self.text
    }
}

/// Shared bytes that hold their charge as long as anybody holds them.
pub fn charged(text: Vec<u8>, charge: Charge) -> Bytes {
    Bytes::from_owner(Charged { text, _charge: charge })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_charged_until_the_last_holder_lets_go() {
        let budget = Arc::new(Budget::new(10));
        let a = charged(vec![1; 6], budget.charge(6).expect("free"));
        let part = a.slice(1..3);
        assert!(budget.charge(5).is_none());
        drop(a);
        assert_eq!(budget.used(), 6);
        drop(part);
        assert_eq!(budget.used(), 0);
        assert!(budget.charge(u64::MAX).is_none() && budget.charge(10).is_some());
    }
}
