//! How long requests took: counts in classes whose width is a sixteenth of where they begin, so that a quantile is
//! off by a sixteenth at most. Merging adds.

const STEPS: u32 = 16;
/// Enough for every number of 32 bits.
const CLASSES: usize = 16 * 30;

#[derive(Clone)]
pub struct Histogram {
    counts: Box<[u64; CLASSES]>,
    total: u64,
    sum: u64,
    most: u32,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram { counts: Box::new([0; CLASSES]), total: 0, sum: 0, most: 0 }
    }
}

/// What is less than two times the steps has a class of its own.
fn class(value: u32) -> usize {
    if value < 2 * STEPS {
        return value as usize;
    }
    let shift = value.ilog2() - STEPS.ilog2();
    (shift * STEPS + (value >> shift)) as usize
}

/// The largest value of a class.
fn last(class: usize) -> u64 {
    let class = class as u64;
    let steps = u64::from(STEPS);
    if class < 2 * steps {
        return class;
    }
    let shift = class / steps - 1;
    ((class - shift * steps + 1) << shift) - 1
}

impl Histogram {
    pub fn add(&mut self, value: u32) {
        self.add_many(value, 1);
    }

    /// The same so many times.
    pub fn add_many(&mut self, value: u32, n: u64) {
        if n == 0 {
            return;
        }
        self.counts[class(value)] += n;
        self.total += n;
        self.sum = self.sum.saturating_add(u64::from(value).saturating_mul(n));
        self.most = self.most.max(value);
    }

    pub fn merge(&mut self, other: &Histogram) {
        for (count, more) in self.counts.iter_mut().zip(other.counts.iter()) {
            *count += more;
        }
        self.total += other.total;
        self.sum += other.sum;
        self.most = self.most.max(other.most);
    }

    pub fn total(&self) -> u64 {
        self.total
    }

    pub fn mean(&self) -> u64 {
        self.sum.checked_div(self.total).unwrap_or(0)
    }

    pub fn most(&self) -> u32 {
        self.most
    }

    /// What so many of a thousand are not above.
    pub fn quantile(&self, per_thousand: u64) -> u64 {
        let rank = (self.total * per_thousand).div_ceil(1000).max(1);
        let mut seen = 0;
        let found = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        found.map_or(0, |class| last(class).min(u64::from(self.most)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_cover_everything() {
        let mut before = 0;
        for value in (0..100_000).chain([1 << 20, u32::MAX / 2, u32::MAX]) {
            let class = class(value);
            assert!(class >= before && class < CLASSES, "{value}");
            before = class;
            let last = last(class);
            assert!(last >= u64::from(value), "{value}");
            assert!(last <= u64::from(value) + u64::from(value) / u64::from(STEPS), "{value}");
        }
    }

    #[test]
    fn quantiles() {
        let mut all = Histogram::default();
        let mut rest = Histogram::default();
        (1..=1000).for_each(|n| if n % 2 == 0 { all.add(n * 10) } else { rest.add(n * 10) });
        all.merge(&rest);
        assert_eq!((all.total(), all.mean(), all.most()), (1000, 5005, 10_000));
        for (q, real) in [(500, 5000), (900, 9000), (990, 9900), (1000, 10_000), (0, 10)] {
            let found = all.quantile(q);
            assert!(found >= real && found <= real + real / 16, "{q}: {found}");
        }
        assert_eq!(Histogram::default().quantile(500), 0);
    }
}
