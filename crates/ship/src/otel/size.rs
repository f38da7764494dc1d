//! How many bytes a batch may have, by what the collector has refused as too large.
//!
//! What was too much once (a proxy between, another limit) need not be for ever, and a limit that lasts should not cost a
//! refusal now and again and again: more is tried after a pause, which doubles with each try that is refused.

use std::time::{Duration, Instant};

/// Collectors take 4 MB at once, if nobody has told them otherwise.
const MOST_BYTES: usize = 2 << 20;
const PAUSE_FIRST: Duration = Duration::from_secs(1);
const PAUSE_MOST: Duration = Duration::from_secs(600);

pub struct Size {
    most_bytes: usize,
    /// The least that was refused of late.
    refused_bytes: usize,
    pause: Duration,
    /// More is tried from then on.
    grows_at: Option<Instant>,
    /// The last batch was refused, too.
    is_shrinking: bool,
}

impl Size {
    pub fn new() -> Size {
        Size {
            most_bytes: MOST_BYTES,
            refused_bytes: usize::MAX,
            pause: PAUSE_FIRST,
            grows_at: None,
            is_shrinking: false,
        }
    }

    pub fn most_bytes(&self) -> usize {
        self.most_bytes
    }

    /// So many bytes of spans were too much.
    pub fn refused(&mut self, bytes: usize, now: Instant) {
        // Steps on the way down to what is taken are one refusal.
        if self.grows_at.is_some() && !self.is_shrinking {
            self.pause = (self.pause * 2).min(PAUSE_MOST);
        }
        self.is_shrinking = true;
        self.refused_bytes = bytes;
        self.most_bytes = bytes / 2;
        self.grows_at = Some(now + self.pause);
    }

    /// So many were taken.
    pub fn taken(&mut self, bytes: usize, now: Instant) {
        self.is_shrinking = false;
        if bytes >= self.refused_bytes {
            (self.refused_bytes, self.pause) = (usize::MAX, PAUSE_FIRST);
        }
        // Only what was filled says that there may be room for more.
        let is_full = bytes > self.most_bytes / 2;
        if is_full && self.grows_at.is_some_and(|at| now >= at) {
            self.most_bytes = self.most_bytes.max(bytes).saturating_mul(2).min(MOST_BYTES);
            if self.most_bytes == MOST_BYTES {
                *self = Size::new();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sends full batches, one each 100 ms, for so many seconds: how many were refused, and how many bytes went through.
    fn run(size: &mut Size, now: &mut Instant, limit: usize, secs: u64) -> (usize, usize) {
        let (mut refused, mut through) = (0, 0);
        let until = *now + Duration::from_secs(secs);
        while *now < until {
            let bytes = size.most_bytes().clamp(300, 1 << 20);
            match bytes > limit {
                true => {
                    refused += 1;
                    size.refused(bytes, *now);
                }
                false => {
                    through += bytes;
                    size.taken(bytes, *now);
                    *now += Duration::from_millis(100);
                }
            }
        }
        (refused, through)
    }

    #[test]
    fn a_limit_that_lasts_costs_few_refusals() {
        let (mut size, mut now) = (Size::new(), Instant::now());
        let (refused, _) = run(&mut size, &mut now, 100_000, 60);
        assert!(refused <= 4 + 6, "{refused}");
        let (refused, through) = run(&mut size, &mut now, 100_000, 3600);
        assert!(refused <= 12, "{refused}");
        assert!(through > 36_000 * 50_000, "{through}");
    }

    #[test]
    fn what_is_mended_is_found_out() {
        let (mut size, mut now) = (Size::new(), Instant::now());
        size.refused(300, now);
        run(&mut size, &mut now, 1 << 30, 5);
        assert_eq!(size.most_bytes(), MOST_BYTES);
        // Nothing is held against it later.
        size.refused(1 << 20, now);
        assert_eq!(size.pause, PAUSE_FIRST);
    }

    #[test]
    fn batches_that_are_not_full_say_nothing() {
        let (mut size, mut now) = (Size::new(), Instant::now());
        size.refused(100_000, now);
        now += Duration::from_secs(3600);
        size.taken(400, now);
        assert_eq!(size.most_bytes(), 50_000);
        size.taken(50_000, now);
        assert_eq!(size.most_bytes(), 100_000);
    }
}
