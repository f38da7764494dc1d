//! Gives memory back when a worker has become quiet, or has little to do compared with what it had. The
//! allocator does that by itself only along with further work, and pools keep what the last burst has needed.
//!
//! Nothing of it is on the way of a request: the task that looks is woken by the event loop's first
//! turn after a rest, and from then on by a timer until nothing has happened between two looks.

use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use tokio::sync::Notify;
use weir_core::counters::Counters;
use weir_core::Worker;
use weir_runtime::{memory, timer};

/// How often it is looked whether something has come or gone.
const LOOK_MS: u64 = 1000;
/// Looks that must find nothing; more when little has been done before, for what would be given back
/// would soon be asked for again.
const LOOKS: u32 = 1;
const LOOKS_AFTER_LITTLE: u32 = 10;
/// Connections, requests and buffers below which it was little.
const LITTLE: u64 = 256;
/// What a worker has had to do at its busiest falls to a part of that, and for so many looks.
const FALLEN_PARTS: u64 = 4;
const FALLEN_LOOKS: u32 = 5;
/// No pool keeps much for a load below that.
const LOAD_MIN: u64 = 64;

#[derive(Default)]
pub struct Quiet {
    /// The worker rests, until the event loop has something to do.
    rests: AtomicBool,
    over: Notify,
}

/// What has been done, and for how many there still is something to do.
#[derive(Clone, Copy, PartialEq)]
struct Done {
    count: u64,
    active: u64,
    waiting: u64,
}

impl Done {
    fn of(c: &Counters) -> Done {
        let all = [&c.accepted, &c.requests, &c.released];
        let count = all.map(|n| n.load(Ordering::Relaxed)).iter().sum();
        let [active, waiting] = [&c.active, &c.waiting].map(|n| n.load(Ordering::Relaxed));
        Done { count, active, waiting }
    }

    /// Memory was needed for no more than so many at the same time since `before`; those that wait for a request
    /// have none.
    fn load_since(self, before: Done) -> u64 {
        let begun = self.count.wrapping_sub(before.count);
        begun + self.active.saturating_sub(self.waiting)
    }
}

/// How the load has changed since memory was last given back.
#[derive(Default)]
struct Fall {
    highest: u64,
    /// Looks in a row that have found it fallen, and the highest that they have found.
    looks: u32,
    lately: u64,
}

impl Fall {
    /// A look has found that load; whether it has fallen for good.
    fn saw(&mut self, load: u64) -> bool {
        self.highest = self.highest.max(load);
        if self.highest < LOAD_MIN || load > self.highest / FALLEN_PARTS {
            (self.looks, self.lately) = (0, 0);
            return false;
        }
        self.looks += 1;
        self.lately = self.lately.max(load);
        if self.looks < FALLEN_LOOKS {
            return false;
        }
        *self = Fall { highest: self.lately, ..Fall::default() };
        true
    }
}

impl Quiet {
    /// The event loop has something to do.
    pub fn stir(&self) {
        if self.rests.load(Ordering::Relaxed) {
            self.rests.store(false, Ordering::Relaxed);
            self.over.notify_one();
        }
    }

    /// Looks for as long as the worker lives; `give_back` lets go of what is kept for connections and
    /// requests to come.
    pub async fn run(&self, worker: Rc<Worker>, give_back: impl Fn()) {
        let counters = &worker.counters;
        let mut given = Done::of(counters);
        let mut fall = Fall::default();
        loop {
            self.rests.store(true, Ordering::Relaxed);
            self.over.notified().await;
            let (mut seen, mut looks) = (Done::of(counters), 0);
            while seen != given {
                timer::sleep_ms(LOOK_MS).await;
                let now = Done::of(counters);
                looks = if now == seen { looks + 1 } else { 0 };
                let has_fallen = fall.saw(now.load_since(seen));
                seen = now;
                let is_little = now.count - given.count < LITTLE;
                let is_quiet = looks >= if is_little { LOOKS_AFTER_LITTLE } else { LOOKS };
                if is_quiet || has_fallen {
                    give_back();
                    memory::give_back();
                }
                if is_quiet {
                    given = now;
                    fall = Fall::default();
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_has_fallen_once_it_stays_far_below_its_highest() {
        let mut fall = Fall::default();
        let mut saw = |load: &[u64]| load.iter().map(|l| fall.saw(*l)).collect::<Vec<_>>();
        let five = [false, false, false, false, true];
        assert!(!saw(&[4000, 3000, 1001, 900, 900, 900, 900, 1001, 900]).contains(&true));
        saw(&[4000]);
        assert_eq!(saw(&[1000, 1, 2, 70, 900]), five);
        assert!(!saw(&[300, 200, 230, 240, 250, 260]).contains(&true), "1000 is the highest now");
        assert_eq!(saw(&[900, 3, 3, 200, 3, 3])[1..], five);
        assert!(!saw(&[51, 52, 53, 54, 55, 56]).contains(&true));
        assert_eq!(saw(&[3, 3, 3, 3, 3]), five);
        assert!(!saw(&[0; 20]).contains(&true), "too little to look after");
    }
}
