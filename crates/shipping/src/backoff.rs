//! How long is waited before another try: twice as long each time, up to a bound, and not all at the same moment.

/// A receiver may ask for more than the bound, but not for a day.
const ASKED_MAX_MS: u64 = 10 * 60 * 1000;

/// The waits of one receiver.
#[derive(Debug)]
pub struct Backoff {
    first_ms: u64,
    most_ms: u64,
    tries: u32,
}

impl Backoff {
    pub fn new(first_ms: u64, most_ms: u64) -> Backoff {
        Backoff { first_ms, most_ms, tries: 0 }
    }

    /// It went well.
    pub fn reset(&mut self) {
        self.tries = 0;
    }

    /// It did not: how long is waited, by what the receiver asked for and any 64 bits. Between half of the step and all
    /// of it, so that many servers do not come back at once.
    pub fn next_ms(&mut self, asked_ms: Option<u64>, random: u64) -> u64 {
        let step = self.first_ms.saturating_mul(1 << self.tries.min(20)).min(self.most_ms);
        self.tries = self.tries.saturating_add(1);
        let jittered = step / 2 + random % (step / 2 + 1);
        asked_ms.map_or(jittered, |ms| ms.min(ASKED_MAX_MS).max(jittered))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_to_the_bound_and_begin_anew() {
        let mut backoff = Backoff::new(100, 1000);
        let most: Vec<u64> = (0..6).map(|_| backoff.next_ms(None, u64::MAX / 2 * 2)).collect();
        for (ms, step) in most.iter().zip([100, 200, 400, 800, 1000, 1000]) {
            assert!((step / 2..=step).contains(ms), "{ms} of {step}");
        }
        assert_eq!(backoff.next_ms(Some(5000), 0), 5000);
        assert_eq!(backoff.next_ms(Some(1), 0), 500);
        assert_eq!(backoff.next_ms(Some(u64::MAX), 0), ASKED_MAX_MS);
        backoff.reset();
        assert_eq!(backoff.next_ms(None, 0), 50);
    }
}
