//! Gives memory back when a worker has become quiet. The allocator does that by itself only along with
//! further work, and pools keep what the last burst has needed.
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
}

impl Done {
    fn of(c: &Counters) -> Done {
        let all = [&c.accepted, &c.requests, &c.released];
        let count = all.map(|n| n.load(Ordering::Relaxed)).iter().sum();
        Done { count, active: c.active.load(Ordering::Relaxed) }
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
        loop {
            self.rests.store(true, Ordering::Relaxed);
            self.over.notified().await;
            let (mut seen, mut looks) = (Done::of(counters), 0);
            while seen != given {
                timer::sleep_ms(LOOK_MS).await;
                let now = Done::of(counters);
                looks = if now == seen { looks + 1 } else { 0 };
                seen = now;
                let is_little = now.count - given.count < LITTLE;
                if looks >= if is_little { LOOKS_AFTER_LITTLE } else { LOOKS } {
                    give_back();
                    memory::give_back();
                    given = now;
                }
            }
        }
    }
}
