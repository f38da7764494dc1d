//! What the workers count.

use crate::counts::{self, Fields, Keeps, Known};
use std::cell::Cell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::Arc;
use weir_runtime::clock;

/// Workers may be added by a reload up to this many. The privileged agent's number is behind theirs.
pub const WORKERS_MAX: usize = 1024;

/// How often the master had to start the serving process again, which is forked with it.
pub static RESPAWNED: AtomicU64 = AtomicU64::new(0);

/// A worker's counters, on a cache line of their own; read by all, written by one.
#[repr(align(128))]
#[derive(Default)]
pub struct Counters {
    /// Connections that were accepted since the start.
    pub accepted: AtomicU64,
    /// Those of them that were served: not closed at once for want of room.
    pub handled: AtomicU64,
    /// Begun since the start; a stream of HTTP/2 is one.
    pub requests: AtomicU64,
    /// Buffers of relays that were made for a slow reader, and are gone.
    pub released: AtomicU64,
    /// Connections now, waiting ones with them: `$connections_active`.
    pub active: AtomicU64,
    /// Those whose request's head is being read: `$connections_reading`.
    pub reading: AtomicU64,
    /// Those that are answered: `$connections_writing`.
    pub writing: AtomicU64,
    /// Those that wait for a request: `$connections_waiting`.
    pub waiting: AtomicU64,
    /// The heartbeat: monotonic ms since when the event loop has had something to do; 0 while it
    /// waits.
    pub busy_since_ms: AtomicU64,
    /// The system's number of the thread; 0 before it begins.
    pub thread: AtomicU64,
    /// The number of the last question of whether it still comes back that it has answered.
    pub answered: AtomicU64,
}

impl Counters {
    /// The event loop has something to do, or (0) begins to wait.
    pub fn beat(&self, busy_since_ms: u64) {
        self.busy_since_ms.store(busy_since_ms, Ordering::Relaxed);
    }

    /// Adds to a counter that only this worker writes: a load and a store, no locked instruction.
    pub fn add(counter: &AtomicU64, n: i64) {
        let now = counter.load(Ordering::Relaxed);
        counter.store(now.wrapping_add_signed(n), Ordering::Relaxed);
    }
}

/// All workers' counters.
#[derive(Default)]
pub struct AllCounters {
    /// By the worker's number; a worker that rests keeps its own, for it may have connections.
    pub each: Vec<Arc<Counters>>,
    working: AtomicUsize,
    /// What processes before this one have counted: none of their connections are there now.
    before: Counters,
}

impl AllCounters {
    /// Those that are kept over the end of a process, by name.
    fn kept(counters: &Counters) -> [(&'static str, &AtomicU64); 3] {
        [
            ("accepted", &counters.accepted),
            ("handled", &counters.handled),
            ("requests", &counters.requests),
        ]
    }
}

impl Keeps for AllCounters {
    fn read(&self, out: &mut String) {
        for counters in self.each.iter().map(|c| &**c).chain([&self.before]) {
            for (name, n) in AllCounters::kept(counters) {
                Fields::Read(out).number(name, n.load(Ordering::Relaxed), &mut |_| {});
            }
        }
    }

    fn add(&self, known: &Known) {
        for (name, n) in AllCounters::kept(&self.before) {
            let add = &mut |more| {
                n.fetch_add(more, Ordering::Relaxed);
            };
            Fields::Add(known).number(name, 0, add);
        }
    }
}

impl AllCounters {
    /// For as many workers as there may ever be; none works yet.
    pub fn new(workers_max: usize) -> AllCounters {
        let each = (0..workers_max).map(|_| Arc::default()).collect();
        AllCounters { each, ..AllCounters::default() }
    }

    /// How many workers accept connections.
    pub fn workers(&self) -> usize {
        self.working.load(Ordering::Relaxed)
    }

    /// Those that rest are the last ones.
    pub fn set_workers(&self, working: usize) {
        self.working.store(working, Ordering::Relaxed);
    }

    /// Has what only grows kept over the end of the process.
    pub fn keep(self: &Arc<Self>) {
        counts::keep("connections", self);
    }

    /// One counter over all workers, also those that rest, and processes before. They are read one after the other.
    pub fn sum(&self, pick: impl Fn(&Counters) -> &AtomicU64) -> u64 {
        let all = self.each.iter().map(|c| &**c).chain([&self.before]);
        all.map(|c| pick(c).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// Counts what happens too often for a line in the log each time.
#[derive(Default)]
pub struct Tally {
    untold: Cell<u64>,
    told_secs: Cell<i64>,
}

impl Tally {
    /// Counts one more; how many there were since the last that was told, if none was told within
    /// this second.
    pub fn one_more(&self) -> Option<u64> {
        let (now, untold) = (clock::wall_secs(), self.untold.get() + 1);
        let tell = self.told_secs.replace(now) != now;
        self.untold.set(if tell { 0 } else { untold });
        tell.then_some(untold)
    }
}
