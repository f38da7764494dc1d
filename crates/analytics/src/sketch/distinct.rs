//! How many different things there were: exact while they are few, then HyperLogLog with Ertl's estimator
//! (arXiv:1702.01284), which needs no table of corrections.
//!
//! What it is in the end depends on what was added alone, not on the order nor on how it was spread over several
//! that were merged.

/// When a set stops being exact, and how exact it is then.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Shape {
    /// So many are counted exactly.
    pub exact_max: u32,
    /// Then there are 2 to the power of this of registers, a byte each.
    pub bits: u32,
}

impl Shape {
    /// For each of very many.
    pub const ITEM: Shape = Shape { exact_max: 64, bits: 10 };
    /// For each of some ten or hundred: days, browsers.
    pub const GROUP: Shape = Shape { exact_max: 1024, bits: 14 };
    /// For a whole report.
    pub const TOTAL: Shape = Shape { exact_max: 131_072, bits: 16 };

    /// The standard error of a count that is not exact, as a part of it.
    pub fn error(&self) -> f64 {
        1.04 / f64::from(1_u32 << self.bits).sqrt()
    }
}

/// A set that can only be counted, of hashes.
#[derive(Clone, Debug)]
pub struct Distinct {
    state: State,
    shape: Shape,
}

#[derive(Clone, Debug)]
enum State {
    None,
    One(u64),
    /// Open addressing; a power of two of places, of which at most half are taken, and 0 is an empty one.
    Exact(Box<[u64]>, u32),
    Registers(Box<[u8]>),
}

const FIRST_PLACES: usize = 4;

impl Distinct {
    pub fn new(shape: Shape) -> Distinct {
        Distinct { state: State::None, shape }
    }

    pub fn add(&mut self, hash: u64) {
        // 0 marks an empty place.
        let hash = hash | u64::from(hash == 0);
        match &mut self.state {
            State::None => self.state = State::One(hash),
            State::One(first) if *first == hash => {}
            State::One(first) => {
                let mut places = vec![0; FIRST_PLACES].into_boxed_slice();
                put(&mut places, *first);
                put(&mut places, hash);
                self.state = State::Exact(places, 2);
            }
            State::Exact(places, len) => {
                if put(places, hash) {
                    *len += 1;
                    if *len as usize * 2 > places.len() {
                        self.grow();
                    }
                }
            }
            State::Registers(registers) => note(registers, self.shape.bits, hash),
        }
    }

    fn grow(&mut self) {
        let State::Exact(places, len) = &self.state else { return };
        let kept = places.iter().filter(|hash| **hash != 0);
        if *len > self.shape.exact_max {
            let mut registers = vec![0; 1 << self.shape.bits].into_boxed_slice();
            kept.for_each(|hash| note(&mut registers, self.shape.bits, *hash));
            self.state = State::Registers(registers);
            return;
        }
        let mut more = vec![0; places.len() * 2].into_boxed_slice();
        kept.for_each(|hash| {
            put(&mut more, *hash);
        });
        self.state = State::Exact(more, *len);
    }

    /// Takes in what another has; both have the same shape.
    pub fn merge(&mut self, other: &Distinct) {
        debug_assert_eq!(self.shape, other.shape);
        match &other.state {
            State::None => {}
            State::One(hash) => self.add(*hash),
            State::Exact(places, _) => {
                places.iter().filter(|hash| **hash != 0).for_each(|hash| self.add(*hash));
            }
            State::Registers(theirs) => {
                let mut registers = theirs.clone();
                match &self.state {
                    State::None => {}
                    State::One(hash) => note(&mut registers, self.shape.bits, *hash),
                    State::Exact(places, _) => places
                        .iter()
                        .filter(|hash| **hash != 0)
                        .for_each(|hash| note(&mut registers, self.shape.bits, *hash)),
                    State::Registers(ours) => {
                        for (register, our) in registers.iter_mut().zip(ours) {
                            *register = (*register).max(*our);
                        }
                    }
                }
                self.state = State::Registers(registers);
            }
        }
    }

    pub fn count(&self) -> u64 {
        match &self.state {
            State::None => 0,
            State::One(_) => 1,
            State::Exact(_, len) => u64::from(*len),
            State::Registers(registers) => estimate(registers, self.shape.bits).round() as u64,
        }
    }

    pub fn is_exact(&self) -> bool {
        !matches!(self.state, State::Registers(_))
    }

    /// The standard error of its count, as a part of it; 0 while it is exact.
    pub fn error(&self) -> f64 {
        match self.is_exact() {
            true => 0.0,
            false => self.shape.error(),
        }
    }

    /// What it takes beside itself.
    pub fn heap_bytes(&self) -> usize {
        match &self.state {
            State::None | State::One(_) => 0,
            State::Exact(places, _) => places.len() * size_of::<u64>(),
            State::Registers(registers) => registers.len(),
        }
    }
}

/// Whether it was not there.
fn put(places: &mut [u64], hash: u64) -> bool {
    let mask = places.len() - 1;
    let mut at = (hash >> 32) as usize & mask;
    loop {
        match places[at] {
            0 => {
                places[at] = hash;
                return true;
            }
            there if there == hash => return false,
            _ => at = (at + 1) & mask,
        }
    }
}

fn note(registers: &mut [u8], bits: u32, hash: u64) {
    let at = (hash >> (64 - bits)) as usize;
    // A one behind the bits that count ends the run of zeros.
    let rank = ((hash << bits) | (1 << (bits - 1))).leading_zeros() as u8 + 1;
    if registers[at] < rank {
        registers[at] = rank;
    }
}

fn estimate(registers: &[u8], bits: u32) -> f64 {
    let mut counts = [0_u32; 66];
    registers.iter().for_each(|r| counts[usize::from(*r).min(65)] += 1);
    let m = registers.len() as f64;
    let last = 64 - bits as usize;
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

    fn of(numbers: std::ops::Range<u64>, shape: Shape) -> Distinct {
        let seed = Seed::new(7);
        let mut set = Distinct::new(shape);
        numbers.for_each(|n| set.add(seed.number(u128::from(n))));
        set
    }

    #[test]
    fn few_are_exact() {
        for n in [0, 1, 2, 3, 63, 64] {
            let mut set = of(0..n, Shape::ITEM);
            set.merge(&of(0..n, Shape::ITEM));
            assert!(set.is_exact());
            assert_eq!(set.count(), n);
        }
        assert!(!of(0..66, Shape::ITEM).is_exact());
    }

    #[test]
    fn many_are_within_the_error() {
        for shape in [Shape::ITEM, Shape::GROUP, Shape::TOTAL] {
            for n in [5_000, 20_000, 300_000, 1_000_000] {
                let set = of(0..n, shape);
                let off = (set.count() as f64 - n as f64).abs() / n as f64;
                assert!(off < 4.0 * shape.error(), "{n}: {off} {shape:?}");
                assert!(set.heap_bytes() <= (1 << shape.bits).max(32 * shape.exact_max as usize));
            }
        }
    }

    #[test]
    fn the_way_there_does_not_matter() {
        for (n, at) in [(300_u64, 7_u64), (300, 150), (3000, 10), (10_000, 9_999)] {
            let whole = of(0..n, Shape::ITEM);
            let mut merged = of(0..at, Shape::ITEM);
            merged.merge(&of(at / 2..n, Shape::ITEM));
            let mut turned = of(at / 2..n, Shape::ITEM);
            turned.merge(&of(0..at, Shape::ITEM));
            assert_eq!((whole.count(), whole.is_exact()), (merged.count(), merged.is_exact()));
            assert_eq!(whole.count(), turned.count());
        }
    }

    #[test]
    fn mixed_hashes_are_hashes() {
        let mut set = Distinct::new(Shape::GROUP);
        (0..300_u64).for_each(|a| (0..300_u64).for_each(|b| set.add(mix(a, b))));
        let off = (set.count() as f64 - 90_000.0).abs() / 90_000.0;
        assert!(off < 4.0 * Shape::GROUP.error(), "{off}");
    }
}
