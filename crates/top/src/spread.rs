//! How long things took in a while: by buckets, which add up, or as percentiles that were told, which do not.

use crate::document::{at, number, Value};
use std::sync::Arc;
use weir_core::counts::Times;

/// What is shown of it: shares, and how an API names them.
const TOLD: [(f64, &str); 3] = [(0.5, "p50"), (0.95, "p95"), (0.99, "p99")];

#[derive(Clone, Debug, PartialEq)]
pub enum Spread {
    Counted(Arc<Times>),
    /// Microseconds of [`TOLD`], since the server's start. Of several servers it is the worst.
    Told([u64; 3]),
}

impl Spread {
    /// Of a server's times, as they are now and as they were.
    pub fn of(now: &Value, before: Option<&Value>) -> Option<Spread> {
        let Some(times) = counted(now) else { return told(now) };
        let times = match before.and_then(counted) {
            Some(before) => times.since(&before),
            None => times,
        };
        (times.count() > 0).then(|| Spread::Counted(Arc::new(times)))
    }

    pub fn merge(&mut self, other: &Spread) {
        match (&mut *self, other) {
            (Spread::Counted(mine), Spread::Counted(theirs)) => Arc::make_mut(mine).merge(theirs),
            _ => {
                let theirs = other.told_us();
                let mut worst = self.told_us();
                worst.iter_mut().zip(theirs).for_each(|(mine, theirs)| *mine = (*mine).max(theirs));
                *self = Spread::Told(worst);
            }
        }
    }

    /// Microseconds that such a share did not exceed.
    pub fn us(&self, share: f64) -> u64 {
        match self {
            Spread::Counted(times) => times.percentile_us(share),
            Spread::Told(told) => {
                let at = TOLD.iter().position(|(s, _)| *s >= share).unwrap_or(TOLD.len() - 1);
                told[at]
            }
        }
    }

    /// Whether it is of the whole time since the start, or the worst of several servers'.
    pub fn is_told(&self) -> bool {
        matches!(self, Spread::Told(_))
    }

    fn told_us(&self) -> [u64; 3] {
        TOLD.map(|(share, _)| self.us(share))
    }
}

fn counted(times: &Value) -> Option<Times> {
    let list = at(times, "buckets")?.as_array()?;
    let numbers = || list.iter().map(|n| n.as_u64().unwrap_or(0));
    let buckets = numbers().step_by(2).zip(numbers().skip(1).step_by(2));
    Some(Times::of_buckets(buckets, number(times, "sum_us")?, number(times, "max_us")?))
}

fn told(times: &Value) -> Option<Spread> {
    if number(times, "count")? == 0 {
        return None;
    }
    let mut told = [0; 3];
    for (us, (_, name)) in told.iter_mut().zip(TOLD) {
        *us = (at(times, name)?.as_f64()? * 1000.0) as u64;
    }
    Some(Spread::Told(told))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn buckets(list: &[u64]) -> Value {
        json!({"count": 1, "sum_us": 1, "max_us": 1 << 20, "buckets": list})
    }

    #[test]
    fn percentiles_are_of_the_while_and_of_all() {
        let before = buckets(&[17, 100]);
        let now = buckets(&[17, 100, 1056, 1]);
        let mut spread = Spread::of(&now, Some(&before)).unwrap();
        assert!((992..=1056).contains(&spread.us(0.5)), "{}", spread.us(0.5));
        assert!(Spread::of(&now, Some(&now)).is_none());
        spread.merge(&Spread::of(&buckets(&[17, 99]), None).unwrap());
        assert_eq!((spread.us(0.5), spread.is_told()), (16, false));
        assert!(spread.us(1.0) > 900);
    }

    #[test]
    fn without_buckets_it_is_the_worst() {
        let of = |p99: f64| json!({"count": 3, "p50": 0.5, "p95": 1.0, "p99": p99});
        let mut spread = Spread::of(&of(2.0), None).unwrap();
        spread.merge(&Spread::of(&of(7.5), None).unwrap());
        assert_eq!((spread.us(0.5), spread.us(0.99), spread.is_told()), (500, 7500, true));
        spread.merge(&Spread::of(&buckets(&[16_000, 9]), None).unwrap());
        assert_eq!(spread.us(0.99), 16_128);
        assert!(Spread::of(&json!({"count": 0, "p50": 0, "p95": 0, "p99": 0}), None).is_none());
    }
}
