//! Of the buckets that histograms are shown in, the last request of each whose trace somebody has: exemplars of
//! OpenMetrics and OTLP.
//!
//! One thread notes, any reads: a number that is odd while an exemplar is being changed tells readers that what they have
//! read is none. A histogram that no sampled request was counted in has no memory for them.

use std::sync::atomic::{fence, AtomicU64, Ordering};

/// Up to how many microseconds is counted in each bucket that is shown; the last has no bound.
pub const BOUNDS_US: [u64; 14] = [
    500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 500_000, 1_000_000,
    2_500_000, 5_000_000, 10_000_000,
];
/// With the last.
pub const BUCKETS: usize = BOUNDS_US.len() + 1;
const WORDS: usize = 5;

/// A request that took so long, by its trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exemplar {
    /// Its id.
    pub trace: [u8; 16],
    /// The request's own.
    pub span: [u8; 8],
    /// Microseconds.
    pub us: u64,
    /// When it ended, since 1970.
    pub wall_ms: u64,
}

impl Exemplar {
    /// In which bucket it is.
    pub fn bucket(&self) -> usize {
        BOUNDS_US.iter().position(|bound| self.us <= *bound).unwrap_or(BOUNDS_US.len())
    }

    fn words(&self) -> [u64; WORDS] {
        let trace = u128::from_be_bytes(self.trace);
        let span = u64::from_be_bytes(self.span);
        [(trace >> 64) as u64, trace as u64, span, self.us, self.wall_ms]
    }

    fn of([high, low, span, us, wall_ms]: [u64; WORDS]) -> Exemplar {
        let trace = (u128::from(high) << 64 | u128::from(low)).to_be_bytes();
        Exemplar { trace, span: span.to_be_bytes(), us, wall_ms }
    }
}

#[derive(Debug, Default)]
struct Place {
    /// 0: there is none yet.
    turn: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// One for each bucket.
#[derive(Debug, Default)]
pub(super) struct Exemplars([Place; BUCKETS]);

impl Exemplars {
    /// By the one thread that does.
    pub(super) fn note(&self, exemplar: &Exemplar) {
        let place = &self.0[exemplar.bucket()];
        let turn = place.turn.load(Ordering::Relaxed);
        place.turn.store(turn + 1, Ordering::Relaxed);
        fence(Ordering::Release);
        for (word, value) in place.words.iter().zip(exemplar.words()) {
            word.store(value, Ordering::Relaxed);
        }
        place.turn.store(turn + 2, Ordering::Release);
    }

    /// Those that are there and not being changed.
    pub(super) fn all(&self) -> impl Iterator<Item = Exemplar> + '_ {
        self.0.iter().filter_map(Place::read)
    }
}

impl Place {
    fn read(&self) -> Option<Exemplar> {
        let turn = self.turn.load(Ordering::Acquire);
        if turn == 0 || turn % 2 == 1 {
            return None;
        }
        let words = std::array::from_fn(|n| self.words[n].load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (self.turn.load(Ordering::Relaxed) == turn).then(|| Exemplar::of(words))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exemplar(n: u8, us: u64) -> Exemplar {
        Exemplar { trace: [n; 16], span: [n; 8], us, wall_ms: u64::from(n) }
    }

    #[test]
    fn the_last_of_each_bucket_is_there() {
        let all = Exemplars::default();
        for (n, us) in [(1, 3), (2, 500), (3, 501), (4, 20_000_000)] {
            all.note(&exemplar(n, us));
        }
        let found: Vec<Exemplar> = all.all().collect();
        assert_eq!(found, [exemplar(2, 500), exemplar(3, 501), exemplar(4, 20_000_000)]);
        assert_eq!(found.iter().map(Exemplar::bucket).collect::<Vec<_>>(), [0, 1, 14]);
    }

    #[test]
    fn nobody_reads_half_of_one() {
        let all = std::sync::Arc::new(Exemplars::default());
        let writes = std::sync::Arc::clone(&all);
        let writer = std::thread::spawn(move || {
            (0..200_000u32).for_each(|n| writes.note(&exemplar(n as u8, 1)));
        });
        while !writer.is_finished() {
            for e in all.all() {
                assert!(e.trace.iter().chain(&e.span).all(|b| u64::from(*b) == e.wall_ms));
            }
        }
        writer.join().unwrap();
    }
}
