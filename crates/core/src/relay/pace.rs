//! Rates, as nginx holds to them: what was read is paid for with a pause, and from the first second on no
//! more is read than the seconds that have begun allow.
//!
//! It asks no clock. Who is told not to read now waits for nothing but the time that [`Pace::held_until`]
//! answers: were it asked at a later time than the one by which reading was refused, nobody would wait for it.

/// How fast each of two sides may be read from.
pub struct Pace {
    /// Bytes a second; 0 for no limit.
    rates: [u64; 2],
    /// Until when nothing is read from a side.
    until_ms: [u64; 2],
    start_ms: u64,
    /// By which all is decided until it is set again.
    now_ms: u64,
}

impl Pace {
    /// Begins at that time (monotonic ms); nothing if neither of the two has a rate, in bytes a second.
    pub fn new(rates: [u64; 2], now_ms: u64) -> Option<Pace> {
        let is_limited = rates != [0; 2];
        is_limited.then_some(Pace { rates, until_ms: [0; 2], start_ms: now_ms, now_ms })
    }

    /// It is that time (monotonic ms) until this is called again.
    pub fn set_now(&mut self, now_ms: u64) {
        self.now_ms = now_ms;
    }

    /// Whether that side has a rate.
    pub fn limits(&self, from: usize) -> bool {
        self.rates[from] > 0
    }

    /// How many bytes may be read now from a side of which so many were received, and at most.
    pub fn allowed(&mut self, from: usize, received: u64, most: usize) -> usize {
        let rate = self.rates[from];
        if rate == 0 {
            return most;
        }
        if self.until_ms[from] > self.now_ms {
            return 0;
        }
        // Seconds of the clock, as nginx counts them.
        let secs = (self.now_ms / 1000).saturating_sub(self.start_ms / 1000);
        let due = rate.saturating_mul(secs + 1);
        if received >= due {
            self.until_ms[from] = self.now_ms + (received - due) * 1000 / rate + 1;
            return 0;
        }
        most.min(usize::try_from(due - received).unwrap_or(most))
    }

    /// So many bytes were read from a side.
    pub fn pay(&mut self, from: usize, n: u64) {
        if let Some(pause_ms) = n.saturating_mul(1000).checked_div(self.rates[from]) {
            self.until_ms[from] = self.now_ms + pause_ms;
        }
    }

    #[cfg(test)]
    pub(super) fn hold(&mut self, from: usize, until_ms: u64) {
        self.until_ms[from] = until_ms;
    }

    /// When (monotonic ms) the first of those may be read again that may not be now.
    pub fn held_until(&self) -> Option<u64> {
        self.until_ms.into_iter().filter(|at| *at > self.now_ms).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_read_is_paid_for_and_no_more_is_read_than_is_due() {
        let mut pace = Pace::new([1000, 0], 5_500).expect("one side has a rate");
        assert_eq!((pace.allowed(0, 0, 4096), pace.allowed(1, 0, 4096)), (1000, 4096));
        pace.pay(0, 400);
        assert_eq!((pace.allowed(0, 400, 4096), pace.held_until()), (0, Some(5_900)));
        pace.set_now(5_900);
        assert_eq!((pace.held_until(), pace.allowed(0, 400, 4096)), (None, 600));
        // More than is due was there from the beginning.
        assert_eq!((pace.allowed(0, 1_500, 4096), pace.held_until()), (0, Some(6_401)));
        pace.set_now(6_401);
        assert_eq!(pace.allowed(0, 1_500, 4096), 500);
    }

    #[test]
    fn who_has_no_rate_has_no_pace() {
        assert!(Pace::new([0; 2], 0).is_none());
    }
}
