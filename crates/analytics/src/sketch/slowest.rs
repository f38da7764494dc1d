//! The keys with the longest single request: exact, because what is dropped can only come back by being longer
//! than what is kept.

use super::hash::ByHash;

/// One key and its longest.
#[derive(Clone, Debug)]
pub struct Slow {
    pub key: Box<[u8]>,
    pub tag: u16,
    pub longest_us: u32,
}

#[derive(Clone)]
pub struct Slowest {
    keys: ByHash<Slow>,
    max: usize,
    /// What is not longer is not among them.
    least_us: u32,
}

impl Slowest {
    /// Keeps at least the first `max` keys.
    pub fn new(max: usize) -> Slowest {
        Slowest { keys: ByHash::default(), max, least_us: 0 }
    }

    pub fn add(&mut self, hash: u64, tag: u16, key: &[u8], us: u32) {
        if us <= self.least_us {
            return;
        }
        match self.keys.get_mut(&hash) {
            Some(slow) => slow.longest_us = slow.longest_us.max(us),
            None => {
                let key = key[..key.len().min(super::top::KEY_MAX_BYTES)].into();
                self.keys.insert(hash, Slow { key, tag, longest_us: us });
                if self.keys.len() > 2 * self.max {
                    self.purge();
                }
            }
        }
    }

    #[cold]
    fn purge(&mut self) {
        let mut all: Vec<u32> = self.keys.values().map(|slow| slow.longest_us).collect();
        let (_, cut, _) = all.select_nth_unstable_by(self.max, |a, b| b.cmp(a));
        let cut = *cut;
        self.least_us = self.least_us.max(cut);
        self.keys.retain(|_, slow| slow.longest_us > cut);
    }

    pub fn merge(&mut self, other: &Slowest) {
        for (hash, slow) in &other.keys {
            self.add(*hash, slow.tag, &slow.key, slow.longest_us);
        }
    }

    pub fn first(&self, n: usize) -> Vec<&Slow> {
        let mut all: Vec<&Slow> = self.keys.values().collect();
        all.sort_unstable_by(|a, b| {
            b.longest_us.cmp(&a.longest_us).then_with(|| a.key.cmp(&b.key))
        });
        all.truncate(n.min(self.max));
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_longest_stay() {
        let mut parts = [Slowest::new(10), Slowest::new(10)];
        for n in 0..1000_u32 {
            let us = n.wrapping_mul(7919) % 1009;
            parts[n as usize % 2].add(u64::from(n % 500), 0, format!("{}", n % 500).as_bytes(), us);
        }
        let [mut all, other] = parts;
        all.merge(&other);
        let mut real: Vec<u32> = (0..500_u32)
            .map(|k| [k, k + 500].map(|n| n.wrapping_mul(7919) % 1009).into_iter().max().unwrap())
            .collect();
        real.sort_unstable_by(|a, b| b.cmp(a));
        let found: Vec<u32> = all.first(10).iter().map(|slow| slow.longest_us).collect();
        // Equal ones at the edge may be fewer; there are none here.
        assert_eq!(found, real[..10]);
    }
}
