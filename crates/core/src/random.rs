//! Numbers that nobody can guess and that cost no call of the system's: keyed hashes of a counter.

use std::cell::Cell;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;

thread_local! {
    /// Keys from the operating system, and a counter.
    static NUMBERS: (RandomState, Cell<u64>) = (RandomState::new(), const { Cell::new(0) });
}

/// Another one each time; never 0.
pub fn number() -> u64 {
    NUMBERS.with(|(keys, counter)| {
        counter.set(counter.get() + 1);
        keys.hash_one(counter.get()).max(1)
    })
}

/// The id of a span, or half a trace's. W3C: an id of zeros is none.
pub fn id() -> [u8; 8] {
    number().to_be_bytes()
}

/// A trace's.
pub fn long_id() -> [u8; 16] {
    (u128::from(number()) << 64 | u128::from(number())).to_be_bytes()
}
