//! Even shares of the connections that come by a socket which workers share. All of them are woken
//! by a connection, and the quickest takes it; without more that would mostly be the same one. A
//! worker that holds more than its share therefore leaves a connection that waits to the others,
//! for as long as they do take some. (nginx's workers are woken in turn by the kernel.)

use std::cell::Cell;
use std::future::poll_fn;
use std::sync::atomic::Ordering;
use weir_core::counters::AllCounters;
use weir_core::Worker;
use weir_runtime::listen::Acceptor;
use weir_runtime::{event_loop, timer};

/// So many more than the average are no matter, and a sixteenth of it.
const SLACK: u64 = 4;
/// Accepted before the others' counters, which are in other cores' caches, are read again.
const ACCEPTS_PER_LOOK: u32 = 8;
/// Turns of the event loop in which the others may come, before the worker rests for them.
const TURNS: u32 = 8;
const REST_MS: u64 = 1;
/// Taken in a row when the others do not come, because they have something else to do.
const ALONE: u64 = 16;

/// One worker's view.
#[derive(Default)]
pub struct Share {
    /// The worker takes connections until it has so many.
    limit: Cell<u64>,
    accepts: Cell<u32>,
}

impl Share {
    /// Waits while the next connection of a shared socket is better left to the others.
    pub async fn wait(&self, worker: &Worker, acceptor: &Acceptor) {
        self.accepts.set((self.accepts.get() + 1) % ACCEPTS_PER_LOOK);
        if self.accepts.get() == 0 {
            self.limit.set(limit(&worker.all));
        }
        if self.is_over(worker) {
            poll_fn(|cx| acceptor.poll_waiting(cx)).await;
            self.leave_to_others(worker, acceptor).await;
        }
    }

    fn is_over(&self, worker: &Worker) -> bool {
        let mine = worker.connections.get() as u64;
        if mine <= self.limit.get() {
            return false;
        }
        self.limit.set(limit(&worker.all));
        mine > self.limit.get()
    }

    async fn leave_to_others(&self, worker: &Worker, acceptor: &Acceptor) {
        let mut taken = taken_by_all(&worker.all);
        let mut turn = 0;
        while self.is_over(worker) && acceptor.has_waiting() {
            if turn < TURNS {
                turn += 1;
                event_loop::yield_now().await;
                continue;
            }
            timer::sleep_ms(REST_MS).await;
            let now = taken_by_all(&worker.all);
            if now == taken {
                return self.limit.set(worker.connections.get() as u64 + ALONE);
            }
            taken = now;
        }
    }
}

fn limit(all: &AllCounters) -> u64 {
    let working = all.workers().max(1);
    let held = all.each[..working].iter().map(|c| c.active.load(Ordering::Relaxed));
    let average = held.sum::<u64>() / working as u64;
    average + average / 16 + SLACK
}

fn taken_by_all(all: &AllCounters) -> u64 {
    let workers = &all.each[..all.workers()];
    workers.iter().map(|c| c.accepted.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
}
