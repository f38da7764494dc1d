//! The one hash of a report. Reports are merged by hashes, so those that are to be merged have the same seed;
//! clients do not know it, or they could choose what falls together: a running server's is random, that of `weir analyze` is
//! made of how the logs begin.

use std::hash::{BuildHasher, Hasher};

/// Odd numbers without a pattern, for [`mix`].
const ODD: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xd1b5_4a32_d192_ed03];

/// Hashes of texts; the same for the same seed.
#[derive(Clone, Debug)]
pub struct Seed {
    state: foldhash::quality::FixedState,
    number: u64,
}

impl Seed {
    pub fn new(seed: u64) -> Seed {
        Seed { state: foldhash::quality::FixedState::with_seed(seed), number: seed }
    }

    /// Whether the same texts have the same hashes.
    pub fn is_same(&self, other: &Seed) -> bool {
        self.number == other.number
    }

    pub fn text(&self, text: &[u8]) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write(text);
        hasher.finish()
    }

    pub fn number(&self, number: u128) -> u64 {
        let mut hasher = self.state.build_hasher();
        hasher.write_u128(number);
        hasher.finish()
    }
}

/// One hash of two.
pub fn mix(a: u64, b: u64) -> u64 {
    // For each `a` every `b` has a number of its own.
    let mut x = a.wrapping_mul(ODD[0]).rotate_left(29) ^ b.wrapping_mul(ODD[1]);
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// For tables whose keys are hashes already.
#[derive(Clone, Copy, Default)]
pub struct AsItIs(u64);

impl Hasher for AsItIs {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, bytes: &[u8]) {
        for byte in bytes {
            self.0 = self.0.rotate_left(8) ^ u64::from(*byte);
        }
    }

    fn write_u64(&mut self, hash: u64) {
        self.0 = hash;
    }
}

pub type ByHash<V> = std::collections::HashMap<u64, V, std::hash::BuildHasherDefault<AsItIs>>;
