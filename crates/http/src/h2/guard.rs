//! What all connections together may cost: a thousand polite-looking connections are one attack.

use std::sync::atomic::{AtomicU64, Ordering};
use weir_runtime::clock;

/// Streams that ended before their answer was complete, in one second, on all connections;
/// beyond this a connection's own credit buys a tenth.
const RESETS_PER_SECOND_MAX: u64 = 20_000;
/// Bytes of bodies that have come and are not read, on all connections; beyond this new streams
/// that bring a body are refused.
const UNREAD_MAX_BYTES: u64 = 512 * 1024 * 1024;

static SECOND: AtomicU64 = AtomicU64::new(0);
static RESETS: AtomicU64 = AtomicU64::new(0);
static UNREAD_BYTES: AtomicU64 = AtomicU64::new(0);

/// A stream was reset.
pub(crate) fn count_reset() {
    let second = clock::mono_ms() / 1000;
    if SECOND.swap(second, Ordering::Relaxed) != second {
        RESETS.store(0, Ordering::Relaxed);
    }
    RESETS.fetch_add(1, Ordering::Relaxed);
}

/// The server sees more resets than usual clients cause.
pub(crate) fn is_under_attack() -> bool {
    RESETS.load(Ordering::Relaxed) > RESETS_PER_SECOND_MAX
        && SECOND.load(Ordering::Relaxed) + 1 >= clock::mono_ms() / 1000
}

pub(crate) fn unread_grew(bytes: u64) {
    UNREAD_BYTES.fetch_add(bytes, Ordering::Relaxed);
}

pub(crate) fn unread_shrank(bytes: u64) {
    // Most streams bring no body: nothing is taken from the other workers for them.
    if bytes > 0 {
        UNREAD_BYTES.fetch_sub(bytes, Ordering::Relaxed);
    }
}

pub(super) fn is_full() -> bool {
    UNREAD_BYTES.load(Ordering::Relaxed) > UNREAD_MAX_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Half a gigabyte is too much for a black-box test.
    #[test]
    fn unread_bodies_have_a_bound_together() {
        unread_grew(UNREAD_MAX_BYTES);
        assert!(!is_full());
        unread_grew(1);
        assert!(is_full());
        unread_shrank(UNREAD_MAX_BYTES + 1);
        assert!(!is_full());
    }
}
