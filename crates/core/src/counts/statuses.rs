//! Answers by their status.

use super::{Count, Part};
use crate::figures::Figures;
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::Arc;

/// So many different statuses are counted by themselves; servers that make up more have the others
/// counted in their class alone.
const CODES_MAX: usize = 48;
/// No status is so large.
const OTHERS: u32 = 1 << 16;

/// Counted by one thread.
#[derive(Debug)]
pub struct Statuses {
    /// Of `1xx` to `5xx` and what is none of these: those whose status found no place below.
    others: [Count; 6],
    /// In the order in which they came first; 0 behind the last.
    codes: [AtomicU16; CODES_MAX],
    counts: [Count; CODES_MAX],
}

impl Default for Statuses {
    fn default() -> Statuses {
        Statuses {
            others: Default::default(),
            codes: [const { AtomicU16::new(0) }; CODES_MAX],
            counts: std::array::from_fn(|_| Count::default()),
        }
    }
}

/// The place of a status among the classes.
fn class(status: u16) -> usize {
    match status / 100 {
        class @ 1..=5 => usize::from(class) - 1,
        _ => 5,
    }
}

impl Statuses {
    /// Counts an answer.
    #[inline]
    pub fn add(&self, status: u16) {
        self.add_some(status, 1);
    }

    #[inline(always)]
    fn add_some(&self, status: u16, n: u64) {
        for (code, count) in self.codes.iter().zip(&self.counts) {
            match code.load(Ordering::Relaxed) {
                known if known == status => return count.add(n),
                0 => {
                    code.store(status, Ordering::Relaxed);
                    return count.add(n);
                }
                _ => {}
            }
        }
        self.others[class(status)].add(n);
    }

    /// All of them: by codes, and behind these the classes of those that have no place of their own.
    pub(super) fn all(&self) -> Vec<(u32, u64)> {
        let codes = self.codes.iter().zip(&self.counts);
        let known =
            codes.map(|(code, count)| (u32::from(code.load(Ordering::Relaxed)), count.get()));
        let others = (OTHERS..).zip(&self.others).map(|(place, count)| (place, count.get()));
        known.take_while(|(code, _)| *code != 0).chain(others).collect()
    }

    /// Adds so many under a number of [`Statuses::all`].
    pub(super) fn add_many(&self, code: u32, n: u64) {
        match u16::try_from(code) {
            Ok(0) => {}
            Ok(status) => self.add_some(status, n),
            Err(_) => {
                let other = self.others.get(code.wrapping_sub(OTHERS) as usize);
                other.into_iter().for_each(|count| count.add(n));
            }
        }
    }

    /// Those of one class.
    fn of_class(&self, wanted: usize) -> u64 {
        let codes = self.codes.iter().zip(&self.counts);
        let known = codes.map(|(code, count)| (code.load(Ordering::Relaxed), count.get()));
        let known =
            known.take_while(|(code, _)| *code != 0).filter(|(code, _)| class(*code) == wanted);
        known.map(|(_, count)| count).sum::<u64>() + self.others[wanted].get()
    }

    /// How many there were.
    pub fn total(&self) -> u64 {
        (0..self.others.len()).map(|class| self.of_class(class)).sum()
    }

    /// Begins anew.
    pub fn reset(&self) {
        self.others.iter().chain(&self.counts).for_each(Count::reset);
    }

    /// Notes all workers' parts as NGINX Plus does: by classes, by codes, and their sum.
    pub fn put<T: Part>(
        parts: &[(usize, Arc<T>)],
        of: impl Fn(&T) -> &Statuses,
        figures: &mut Figures,
    ) {
        const NAMES: [&str; 5] = ["1xx", "2xx", "3xx", "4xx", "5xx"];
        let mut classes = [0; NAMES.len() + 1];
        let mut codes: Vec<(u16, u64)> = Vec::new();
        for (_, part) in parts {
            let of = of(part);
            classes.iter_mut().zip(&of.others).for_each(|(all, others)| *all += others.get());
            for (code, count) in of.codes.iter().zip(&of.counts) {
                let (code, count) = (code.load(Ordering::Relaxed), count.get());
                if code == 0 {
                    break;
                }
                classes[class(code)] += count;
                match codes.iter_mut().find(|(known, _)| *known == code) {
                    Some((_, all)) => *all += count,
                    None => codes.push((code, count)),
                }
            }
        }
        for (name, count) in NAMES.into_iter().zip(classes) {
            figures.put(name, count);
        }
        codes.sort_unstable();
        let group = figures.group("codes");
        for (code, count) in codes.into_iter().filter(|(_, count)| *count > 0) {
            group.put(format!("{code:03}"), count);
        }
        figures.put("total", classes.iter().sum::<u64>());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::counts::{Counted, Fields};

    impl Part for Statuses {
        fn each(&self, fields: &mut Fields<'_>) {
            fields.statuses("statuses", self);
        }
    }

    #[test]
    fn classes_and_codes() {
        let all: Arc<Counted<Statuses>> = Counted::named("test statuses", b"x");
        for status in [200, 404, 200, 301, 999, 9] {
            all.part(0).add(status);
        }
        all.part(1).add(404);
        (400..499).for_each(|status| all.part(1).add(status));
        let mut figures = Figures::default();
        Statuses::put(&all.parts(), |s| s, &mut figures);
        assert_eq!(
            (figures.number("2xx"), figures.number("3xx"), figures.number("4xx")),
            (2, 1, 101)
        );
        assert_eq!(figures.number("total"), 106);
        let codes = figures.group("codes");
        assert_eq!((codes.number("200"), codes.number("404"), codes.number("009")), (2, 3, 1));
        all.part(0).reset();
        assert_eq!(all.part(0).total(), 0);
    }
}
