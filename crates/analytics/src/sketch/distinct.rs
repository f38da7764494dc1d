//! How many different things there were: exact while they are few, then HyperLogLog with Ertl's estimator
//! (arXiv:1702.01284), which needs no table of corrections.
//!
//! What it is in the end depends on what was added alone, not on the order nor on how it was spread over several
//! that were merged.

/// What a set keeps of a hash: all of it, or half where there are very many sets.
pub trait Word: Copy + Eq + Default + std::fmt::Debug {
    const BITS: u32;
    /// Never 0, which marks an empty place.
    fn of(hash: u64) -> Self;
    /// In the upper bits.
    fn wide(self) -> u64;
}

impl Word for u32 {
    const BITS: u32 = 32;

    fn of(hash: u64) -> u32 {
        ((hash >> 32) as u32).max(1)
    }

    fn wide(self) -> u64 {
        u64::from(self) << 32
    }
}

impl Word for u64 {
    const BITS: u32 = 64;

    fn of(hash: u64) -> u64 {
        hash.max(1)
    }

    fn wide(self) -> u64 {
        self
    }
}

/// A set that can only be counted, of hashes: exact up to `EXACT`, then 2 to the power of `BITS` of registers, a
/// byte each.
#[derive(Clone, Debug)]
pub struct Distinct<W, const EXACT: u32, const BITS: u32>(State<W>);

/// For each of very many.
pub type Few = Distinct<u32, 128, 10>;
/// For each of some ten or hundred: days, browsers.
pub type Group = Distinct<u64, 1024, 14>;
/// For a whole report.
pub type Total = Distinct<u64, 65_536, 16>;

#[derive(Clone, Debug)]
enum State<W> {
    None,
    One(W),
    /// Open addressing; a power of two of places, of which at most half are taken, and 0 is an empty one.
    Exact(Box<[W]>, u32),
    Registers(Box<[u8]>),
}

const FIRST_PLACES: usize = 4;

impl<W, const EXACT: u32, const BITS: u32> Default for Distinct<W, EXACT, BITS> {
    fn default() -> Self {
        Distinct(State::None)
    }
}

impl<W: Word, const EXACT: u32, const BITS: u32> Distinct<W, EXACT, BITS> {
    /// The standard error of a count that is not exact, as a part of it.
    pub fn standard_error() -> f64 {
        1.04 / f64::from(1_u32 << BITS).sqrt()
    }

    #[inline]
    pub fn add(&mut self, hash: u64) {
        match &mut self.0 {
            State::Registers(registers) => note(registers, BITS, W::of(hash)),
            State::Exact(places, len) => {
                if put(places, W::of(hash)) {
                    *len += 1;
                    if *len as usize * 2 > places.len() {
                        self.grow();
                    }
                }
            }
            _ => self.begin(W::of(hash)),
        }
    }

    fn begin(&mut self, word: W) {
        match self.0 {
            State::None => self.0 = State::One(word),
            State::One(first) if first != word => {
                let mut places = vec![W::default(); FIRST_PLACES].into_boxed_slice();
                put(&mut places, first);
                put(&mut places, word);
                self.0 = State::Exact(places, 2);
            }
            _ => {}
        }
    }

    #[cold]
    fn grow(&mut self) {
        let State::Exact(places, len) = &self.0 else { return };
        let kept = places.iter().filter(|word| **word != W::default());
        if *len > EXACT {
            let mut registers = vec![0; 1 << BITS].into_boxed_slice();
            kept.for_each(|word| note(&mut registers, BITS, *word));
            self.0 = State::Registers(registers);
            return;
        }
        let mut more = vec![W::default(); places.len() * 2].into_boxed_slice();
        kept.for_each(|word| {
            put(&mut more, *word);
        });
        self.0 = State::Exact(more, *len);
    }

    /// Takes in what another has.
    pub fn merge(&mut self, other: &Self) {
        let State::Registers(theirs) = &other.0 else {
            other.words().for_each(|word| self.add(word.wide()));
            return;
        };
        let mut registers = theirs.clone();
        match &self.0 {
            State::Registers(ours) => {
                for (register, our) in registers.iter_mut().zip(ours) {
                    *register = (*register).max(*our);
                }
            }
            _ => self.words().for_each(|word| note(&mut registers, BITS, word)),
        }
        self.0 = State::Registers(registers);
    }

    /// What an exact one has.
    fn words(&self) -> impl Iterator<Item = W> + '_ {
        let one = if let State::One(word) = self.0 { Some(word) } else { None };
        let places = if let State::Exact(places, _) = &self.0 { &places[..] } else { &[] };
        one.into_iter().chain(places.iter().copied().filter(|word| *word != W::default()))
    }

    pub fn count(&self) -> u64 {
        match &self.0 {
            State::None => 0,
            State::One(_) => 1,
            State::Exact(_, len) => u64::from(*len),
            State::Registers(registers) => estimate(registers, W::BITS - BITS).round() as u64,
        }
    }

    pub fn is_exact(&self) -> bool {
        !matches!(self.0, State::Registers(_))
    }

    /// The standard error of its count, as a part of it; 0 while it is exact.
    pub fn error(&self) -> f64 {
        match self.is_exact() {
            true => 0.0,
            false => Self::standard_error(),
        }
    }

    /// What it takes beside itself.
    pub fn heap_bytes(&self) -> usize {
        match &self.0 {
            State::None | State::One(_) => 0,
            State::Exact(places, _) => places.len() * size_of::<W>(),
            State::Registers(registers) => registers.len(),
        }
    }
}

/// Whether it was not there.
#[inline]
fn put<W: Word>(places: &mut [W], word: W) -> bool {
    let mask = places.len() - 1;
    let mut at = (word.wide() >> 32) as usize & mask;
    loop {
        match places[at] {
            there if there == word => return false,
            there if there == W::default() => {
                places[at] = word;
                return true;
            }
            _ => at = (at + 1) & mask,
        }
    }
}

#[inline]
fn note<W: Word>(registers: &mut [u8], bits: u32, word: W) {
    let hash = word.wide();
    let at = (hash >> (64 - bits)) as usize;
    // A one behind the bits that count ends the run of zeros.
    let rank = ((hash << bits) | (1 << (63 + bits - W::BITS))).leading_zeros() as u8 + 1;
    if registers[at] < rank {
        registers[at] = rank;
    }
}

/// `last`: how long a run of zeros can be.
fn estimate(registers: &[u8], last: u32) -> f64 {
    let mut counts = [0_u32; 66];
    let last = last as usize;
    registers.iter().for_each(|r| counts[usize::from(*r).min(last + 1)] += 1);
    let m = registers.len() as f64;
    let mut z = m * tau(1.0 - f64::from(counts[last + 1]) / m);
    for k in (1..=last).rev() {
        z = 0.5 * (z + f64::from(counts[k]));
    }
    z += m * sigma(f64::from(counts[0]) / m);
    m * m / (2.0 * std::f64::consts::LN_2 * z)
}

fn sigma(mut x: f64) -> f64 {
    if x >= 1.0 {
        return f64::INFINITY;
    }
    let (mut y, mut z) = (1.0, x);
    loop {
        x *= x;
        let before = z;
        z += x * y;
        y += y;
        if z <= before {
            return z;
        }
    }
}

fn tau(mut x: f64) -> f64 {
    if x <= 0.0 || x >= 1.0 {
        return 0.0;
    }
    let (mut y, mut z) = (1.0, 1.0 - x);
    loop {
        x = x.sqrt();
        let before = z;
        y *= 0.5;
        z -= (1.0 - x) * (1.0 - x) * y;
        if z >= before {
            return z / 3.0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::{mix, Seed};

    fn of<W: Word, const E: u32, const B: u32>(numbers: std::ops::Range<u64>) -> Distinct<W, E, B> {
        let seed = Seed::new(7);
        let mut set = Distinct::default();
        numbers.for_each(|n| set.add(seed.number(u128::from(n))));
        set
    }

    fn is_near<W: Word, const E: u32, const B: u32>() {
        for n in [5_000, 20_000, 300_000, 1_000_000] {
            let set: Distinct<W, E, B> = of(0..n);
            let off = (set.count() as f64 - n as f64).abs() / n as f64;
            assert!(off < 4.0 * Distinct::<W, E, B>::standard_error(), "{n}: {off}");
            assert!(set.heap_bytes() <= (1 << B).max(4 * E as usize * size_of::<W>()));
        }
    }

    #[test]
    fn few_are_exact() {
        for n in [0, 1, 2, 3, 63, 127, 128] {
            let mut set: Few = of(0..n);
            set.merge(&of(0..n));
            assert!(set.is_exact());
            assert_eq!(set.count(), n);
        }
        assert!(!of::<u32, 128, 10>(0..130).is_exact());
    }

    #[test]
    fn many_are_within_the_error() {
        is_near::<u32, 128, 10>();
        is_near::<u64, 1024, 14>();
        is_near::<u64, 65_536, 16>();
    }

    #[test]
    fn the_way_there_does_not_matter() {
        for (n, at) in [(300_u64, 7_u64), (300, 150), (3000, 10), (10_000, 9_999)] {
            let whole: Few = of(0..n);
            let mut merged: Few = of(0..at);
            merged.merge(&of(at / 2..n));
            let mut turned: Few = of(at / 2..n);
            turned.merge(&of(0..at));
            assert_eq!((whole.count(), whole.is_exact()), (merged.count(), merged.is_exact()));
            assert_eq!(whole.count(), turned.count());
        }
    }

    #[test]
    fn mixed_hashes_are_hashes() {
        let mut set = Group::default();
        (0..300_u64).for_each(|a| (0..300_u64).for_each(|b| set.add(mix(a, b))));
        let off = (set.count() as f64 - 90_000.0).abs() / 90_000.0;
        assert!(off < 4.0 * Group::standard_error(), "{off}");
    }
}
