//! How long things took, by a histogram that parts of any number of workers and machines are added up in.
//!
//! Log-linear, as HDR histograms are: each power of two of microseconds has 16 equal buckets, so that a
//! percentile is off by at most [`ERROR`] of its value, whatever the distribution. A bucket that one of the bounds
//! lies in by which histograms are shown ([`BOUNDS_US`]) is two, of what is not longer and of what is, so that `le` is
//! exact. The crates for it
//! (`hdrhistogram`, `histogram`) either are not to be read while they are written, or take a locked instruction for
//! each value and 4 to 16 KB for each histogram from the start; here a value is two stores, and a power of two that
//! nothing took has no memory.

use super::exemplars::{Exemplar, Exemplars, BOUNDS_US, BUCKETS};
use super::Count;
use crate::figures::Figures;
use std::sync::OnceLock;

/// A bucket's middle differs from any value in it by at most so much of the value.
pub const ERROR: f64 = 1.0 / 32.0;

const SUBS: usize = 16;
/// Microseconds below 16 have a bucket each; what takes longer than 2^36 us (19 hours) is counted as that.
const PAGES: usize = 33;
const MAX_US: u64 = (1 << 36) - 1;
/// A power of two may have one of the bounds by which histograms are shown: one bucket more.
const WIDTH: usize = SUBS + 1;

type Page = [Count; WIDTH];

/// Counted by one thread, read by any.
#[derive(Debug)]
pub struct Histogram {
    pages: [OnceLock<Box<Page>>; PAGES],
    sum_us: Count,
    max_us: Count,
    /// Where there was one.
    exemplars: OnceLock<Box<Exemplars>>,
}

impl Default for Histogram {
    fn default() -> Histogram {
        Histogram {
            pages: [const { OnceLock::new() }; PAGES],
            sum_us: Count::default(),
            max_us: Count::default(),
            exemplars: OnceLock::new(),
        }
    }
}

/// Of each power of two that bound, and the bucket that it parts.
const BOUND_OF: [(u64, usize); PAGES] = {
    let mut all = [(u64::MAX, SUBS); PAGES];
    let mut n = 0;
    while n < BOUNDS_US.len() {
        let (page, sub) = equal_place(BOUNDS_US[n]);
        assert!(all[page].0 == u64::MAX, "two bounds within a power of two");
        all[page] = (BOUNDS_US[n], sub);
        n += 1;
    }
    all
};

/// Page and place of a value.
#[inline]
fn place(us: u64) -> (usize, usize) {
    let us = us.min(MAX_US);
    let (page, sub) = equal_place(us);
    (page, sub + usize::from(us > BOUND_OF[page].0))
}

/// The same if no bucket were parted, of what is no more than the most.
#[inline]
const fn equal_place(us: u64) -> (usize, usize) {
    if us < SUBS as u64 {
        return (0, us as usize);
    }
    let power = 63 - us.leading_zeros() as usize;
    (power - 3, (us >> (power - 4)) as usize & (SUBS - 1))
}

/// The smallest value of a bucket, and the first behind it.
fn bounds(bucket: usize) -> (u64, u64) {
    let (page, sub) = (bucket / WIDTH, bucket % WIDTH);
    let (bound, parted) = BOUND_OF[page];
    let (low, end) = equal_bounds(page, if sub > parted { sub - 1 } else { sub });
    match sub {
        _ if sub == parted => (low, bound.saturating_add(1).min(end)),
        _ if sub == parted + 1 => (bound.saturating_add(1).max(low), end),
        _ => (low, end),
    }
}

fn equal_bounds(page: usize, sub: usize) -> (u64, u64) {
    match page {
        0 => (sub as u64, sub as u64 + 1),
        _ => {
            let low = ((SUBS + sub) as u64) << (page - 1);
            (low, low + (1 << (page - 1)))
        }
    }
}

/// A time, and where histograms count it: looked for once for however many.
#[derive(Clone, Copy, Debug)]
pub struct Took {
    us: u64,
    page: usize,
    sub: usize,
}

impl Took {
    /// In microseconds.
    #[inline]
    pub fn new(us: u64) -> Took {
        let (page, sub) = place(us);
        Took { us: us.min(MAX_US), page, sub }
    }
}

impl Histogram {
    /// Counts a time in microseconds.
    #[inline]
    pub fn add(&self, us: u64) {
        self.add_one(&Took::new(us));
    }

    /// The same.
    #[inline]
    pub fn add_one(&self, took: &Took) {
        if let Some(page) = self.pages.get(took.page) {
            if let Some(count) = page.get_or_init(Box::default).get(took.sub) {
                count.add(1);
            }
        }
        self.sum_us.add(took.us);
        self.max_us.raise(took.us);
    }

    /// Notes whose trace shows what took so long; by the one thread that counts.
    pub fn note(&self, exemplar: &Exemplar) {
        self.exemplars.get_or_init(Box::default).note(exemplar);
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.pages
            .iter()
            .filter_map(OnceLock::get)
            .flat_map(|page| page.iter())
            .for_each(Count::reset);
        self.sum_us.reset();
        self.max_us.reset();
    }
}

/// For what is kept over the end of a process.
impl Histogram {
    /// How many are in each bucket that something is in.
    pub(super) fn filled(&self) -> Vec<(u32, u64)> {
        let pages = (0..).zip(&self.pages).filter_map(|(n, page)| Some((n, page.get()?)));
        let buckets = pages.flat_map(|(n, page)| {
            (n * WIDTH as u32..).zip(page.iter()).map(|(bucket, count)| (bucket, count.get()))
        });
        buckets.filter(|(_, count)| *count > 0).collect()
    }

    pub(super) fn sum_us(&self) -> u64 {
        self.sum_us.get()
    }

    pub(super) fn max_us(&self) -> u64 {
        self.max_us.get()
    }

    /// Adds so many to a bucket; the other two say what else is to be known of them.
    pub(super) fn add_many(&self, bucket: u32, n: u64) {
        let (page, sub) = (bucket as usize / WIDTH, bucket as usize % WIDTH);
        if let Some(page) = self.pages.get(page) {
            page.get_or_init(Box::default)[sub].add(n);
        }
    }

    pub(super) fn add_sum(&self, us: u64) {
        self.sum_us.add(us);
    }

    pub(super) fn raise_max(&self, us: u64) {
        self.max_us.raise(us.min(MAX_US));
    }
}

/// What histograms held when they were read, added up.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Times {
    buckets: Vec<u64>,
    sum_us: u64,
    max_us: u64,
    /// The newest of each bucket that has one.
    exemplars: Vec<Exemplar>,
}

impl Times {
    /// Adds what a histogram holds.
    pub fn add(&mut self, h: &Histogram) {
        for (page, counts) in h.pages.iter().enumerate().filter_map(|(n, p)| Some((n, p.get()?))) {
            let end = (page + 1) * WIDTH;
            if self.buckets.len() < end {
                self.buckets.resize(end, 0);
            }
            for (bucket, count) in self.buckets[end - WIDTH..].iter_mut().zip(&**counts) {
                *bucket += count.get();
            }
        }
        self.sum_us += h.sum_us.get();
        self.max_us = self.max_us.max(h.max_us.get());
        h.exemplars.get().into_iter().flat_map(|all| all.all()).for_each(|e| self.show(e));
    }

    /// Keeps an exemplar if it is the newest of its bucket.
    fn show(&mut self, exemplar: Exemplar) {
        let same = self.exemplars.iter_mut().find(|e| e.bucket() == exemplar.bucket());
        match same {
            Some(old) if old.wall_ms <= exemplar.wall_ms => *old = exemplar,
            Some(_) => {}
            None => self.exemplars.push(exemplar),
        }
    }

    /// Of the bucket that is shown as the nth.
    pub fn exemplar(&self, bucket: usize) -> Option<&Exemplar> {
        self.exemplars.iter().find(|e| e.bucket() == bucket)
    }

    /// How many are in each bucket that is shown, by [`BOUNDS_US`].
    pub fn shown(&self) -> [u64; BUCKETS] {
        let (mut shown, mut rest) = ([0; BUCKETS], &self.buckets[..]);
        let mut before = 0;
        for (n, shown) in shown.iter_mut().enumerate() {
            let end = BOUNDS_US.get(n).map_or(usize::MAX, |us| {
                let (page, sub) = place(*us);
                page * WIDTH + sub + 1
            });
            let (these, behind) = rest.split_at((end - before).min(rest.len()));
            *shown = these.iter().sum();
            (rest, before) = (behind, end);
        }
        shown
    }

    /// Adds others.
    pub fn merge(&mut self, others: &Times) {
        if self.buckets.len() < others.buckets.len() {
            self.buckets.resize(others.buckets.len(), 0);
        }
        self.buckets.iter_mut().zip(&others.buckets).for_each(|(mine, theirs)| *mine += theirs);
        self.sum_us += others.sum_us;
        self.max_us = self.max_us.max(others.max_us);
        others.exemplars.iter().for_each(|e| self.show(*e));
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// The buckets that have any, by their numbers.
    pub fn filled(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        (0..).zip(self.buckets.iter().copied()).filter(|(_, n)| *n > 0)
    }

    /// Adds so many to the bucket of that number.
    pub fn add_many(&mut self, bucket: u32, n: u64) {
        let at = bucket as usize;
        if at >= PAGES * WIDTH {
            return;
        }
        if self.buckets.len() <= at {
            self.buckets.resize(at + 1, 0);
        }
        self.buckets[at] = self.buckets[at].saturating_add(n);
    }

    /// Adds to the sum of all times.
    pub fn add_sum(&mut self, us: u64) {
        self.sum_us = self.sum_us.saturating_add(us);
    }

    /// All of them together.
    pub fn sum_us(&self) -> u64 {
        self.sum_us
    }

    /// The longest.
    pub fn max_us(&self) -> u64 {
        self.max_us
    }

    /// What that share of them (0 to 1) was not longer than, within [`ERROR`]; 0 for none.
    pub fn percentile_us(&self, share: f64) -> u64 {
        let wanted = ((self.count() as f64 * share).ceil() as u64).max(1);
        let mut seen = 0;
        for (n, count) in self.buckets.iter().enumerate() {
            seen += count;
            if seen >= wanted {
                let (low, end) = bounds(n);
                return (low + (end - low) / 2).min(self.max_us);
            }
        }
        0
    }

    /// How many were not longer than that, within the bucket that it is in.
    pub fn up_to_us(&self, us: u64) -> u64 {
        let (page, sub) = place(us);
        self.buckets.iter().take(page * WIDTH + sub + 1).sum()
    }

    /// Buckets that something is in: the first microsecond behind each, and how many.
    pub fn buckets(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let filled = self.buckets.iter().enumerate().filter(|(_, count)| **count > 0);
        filled.map(|(n, count)| (bounds(n).1, *count))
    }

    /// What has come since it stood as `before`; all of it if it has begun anew meanwhile.
    pub fn since(&self, before: &Times) -> Times {
        let mut after = self.clone();
        let zero = std::iter::repeat(&0);
        for (mine, theirs) in after.buckets.iter_mut().zip(before.buckets.iter().chain(zero)) {
            match mine.checked_sub(*theirs) {
                Some(rest) => *mine = rest,
                None => return self.clone(),
            }
        }
        after.sum_us = self.sum_us.saturating_sub(before.sum_us);
        let last = after.buckets.iter().rposition(|count| *count > 0);
        after.max_us = last.map_or(0, |n| bounds(n).1.saturating_sub(1)).min(self.max_us);
        after
    }

    /// What another program has told by [`Times::buckets`], its sum and its longest.
    pub fn of_buckets(
        buckets: impl Iterator<Item = (u64, u64)>,
        sum_us: u64,
        max_us: u64,
    ) -> Times {
        let mut times = Times { sum_us, max_us, ..Times::default() };
        for (end, count) in buckets {
            let (page, sub) = place(end.saturating_sub(1));
            let n = page * WIDTH + sub;
            if times.buckets.len() <= n {
                times.buckets.resize(n + 1, 0);
            }
            times.buckets[n] = times.buckets[n].saturating_add(count);
        }
        times
    }

    /// For JSON, with all that adding up or taking off needs: as other times, and beside them the sum and the longest
    /// in microseconds and a list of buckets: the first microsecond behind one, how many are in it, and so on.
    pub fn as_whole_figures(&self) -> Figures {
        let mut figures = self.as_figures();
        figures.put_all(&[("sum_us", self.sum_us), ("max_us", self.max_us)]);
        let numbers = self.buckets().flat_map(|(end, count)| [end, count]);
        figures
            .put("buckets", super::super::figures::Figure::List(numbers.map(Into::into).collect()));
        figures
    }

    /// For JSON: milliseconds.
    pub(crate) fn as_figures(&self) -> Figures {
        let mut figures = Figures::default();
        let count = self.count();
        let ms = |us: u64| super::super::figures::Figure::Real(us as f64 / 1000.0);
        figures.put("count", count);
        figures.put("mean", ms(self.sum_us.checked_div(count).unwrap_or(0)));
        for (name, share) in
            [("p50", 0.5), ("p90", 0.9), ("p95", 0.95), ("p99", 0.99), ("p999", 0.999)]
        {
            figures.put(name, ms(self.percentile_us(share)));
        }
        figures.put("max", ms(self.max_us));
        figures
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_and_bounds_agree_and_their_error_is_as_stated() {
        let mut us = 0;
        while us < MAX_US {
            let (page, sub) = place(us);
            let (low, end) = bounds(page * WIDTH + sub);
            assert!(low <= us && us < end, "{us}: {low} to {end}");
            let middle = low + (end - low) / 2;
            assert!(middle.abs_diff(us) as f64 <= us as f64 * ERROR, "{us}: {middle}");
            us += 1 + us / 50;
        }
        assert_eq!(place(u64::MAX), (PAGES - 1, SUBS - 1));
    }

    #[test]
    fn what_is_shown_by_bounds_is_exact() {
        for (n, bound) in BOUNDS_US.into_iter().enumerate() {
            let histogram = Histogram::default();
            [bound - 1, bound, bound + 1, bound + bound / 40]
                .iter()
                .for_each(|us| histogram.add(*us));
            let mut times = Times::default();
            times.add(&histogram);
            let shown = times.shown();
            assert_eq!((shown[n], shown[n + 1]), (2, 2), "{bound}");
            let told = Times::of_buckets(times.buckets(), times.sum_us(), times.max_us());
            assert_eq!(told.shown(), shown);
            assert_eq!(times.up_to_us(bound), 2);
        }
    }

    #[test]
    fn parts_add_up_and_percentiles_are_within_the_error() {
        let parts = [Histogram::default(), Histogram::default()];
        for us in 1..=10_000 {
            parts[us as usize % 2].add(us);
        }
        let mut times = Times::default();
        times.add(&parts[0]);
        let mut second = Times::default();
        second.add(&parts[1]);
        times.merge(&second);
        assert_eq!((times.count(), times.sum_us(), times.max_us()), (10_000, 50_005_000, 10_000));
        for (share, exact) in [(0.5, 5_000.0), (0.99, 9_900.0), (0.001, 10.0), (1.0, 10_000.0)] {
            let told = times.percentile_us(share) as f64;
            assert!((told - exact).abs() <= exact * ERROR + 1.0, "{share}: {told}");
        }
        assert_eq!(times.up_to_us(15), 15);
        let told = Times::of_buckets(times.buckets(), times.sum_us(), times.max_us());
        assert_eq!(told.buckets().collect::<Vec<_>>(), times.buckets().collect::<Vec<_>>());
        assert_eq!(told.percentile_us(0.99), times.percentile_us(0.99));
        assert_eq!(times.buckets().map(|(_, count)| count).sum::<u64>(), 10_000);
        parts[0].reset();
        let mut empty = Times::default();
        empty.add(&parts[0]);
        assert_eq!((empty.count(), empty.percentile_us(0.5)), (0, 0));
        let mut out = Vec::new();
        crate::figures::Figure::from(times).write_json(&mut out);
        assert!(
            out.starts_with(b"{\"count\":10000,\"mean\":5,"),
            "{}",
            String::from_utf8_lossy(&out)
        );
    }
}
