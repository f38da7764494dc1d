//! Counts by numbers of which there are few, and which are not known before: cipher suites, say.

use super::Count;
use std::sync::atomic::{AtomicU16, Ordering};

/// So many are told apart; what comes later is not counted by itself.
const FEW: usize = 16;

/// Counted by one thread. 0 is no number.
#[derive(Debug, Default)]
pub struct Few {
    numbers: [AtomicU16; FEW],
    counts: [Count; FEW],
}

impl Few {
    /// So many more of that number.
    pub fn add(&self, number: u16, n: u64) {
        for (known, count) in self.numbers.iter().zip(&self.counts) {
            match known.load(Ordering::Relaxed) {
                known if known == number => return count.add(n),
                0 => {
                    known.store(number, Ordering::Relaxed);
                    return count.add(n);
                }
                _ => {}
            }
        }
    }

    /// All that there are.
    pub fn all(&self) -> Vec<(u16, u64)> {
        let all = self.numbers.iter().zip(&self.counts);
        let all = all.map(|(number, count)| (number.load(Ordering::Relaxed), count.get()));
        all.take_while(|(number, _)| *number != 0).collect()
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.counts.iter().for_each(Count::reset);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_has_its_place_as_long_as_there_is_one() {
        let few = Few::default();
        (1..=20).for_each(|n| few.add(n, 1));
        few.add(3, 2);
        let all = few.all();
        assert_eq!((all.len(), all[2], all[15]), (FEW, (3, 3), (16, 1)));
        few.reset();
        assert_eq!(few.all()[0], (1, 0));
    }
}
