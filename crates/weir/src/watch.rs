//! Finds workers that are stuck: whose event loop has not come back for long, because something in
//! it blocks the thread (a file on a slow disk, a script that computes). With `reuseport` the
//! kernel goes on giving such a worker its part of the new connections, so the others are to accept
//! from its sockets until it is back. nginx leaves them waiting.
//!
//! The heartbeat alone would accuse a worker that is only busy: one that always has something to do
//! never waits. One that is suspect is therefore asked, and a loop that comes back answers.

use crate::workers::{Command, WorkerHandle};
use std::sync::atomic::Ordering;
use weir_core::counters::{AllCounters, Counters};
use weir_runtime::clock;

/// How often the workers are looked at.
pub const LOOK_MS: u64 = 50;
/// A worker that has been busy for so long is asked.
const SUSPECT_MS: u64 = 50;
/// One that does not answer for so long is stuck.
const STUCK_MS: u64 = 50;

/// What is known of one worker.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// The number of the last question.
    asked: u64,
    asked_at_ms: u64,
    /// Since when it has been busy, if it is stuck.
    stuck_since_ms: Option<u64>,
}

#[derive(Default)]
pub struct Watch(Vec<Seen>);

impl Watch {
    /// The workers that are stuck.
    pub fn stuck(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().filter(|(_, s)| s.stuck_since_ms.is_some()).map(|(id, _)| id)
    }

    /// The worker has been started anew.
    pub fn forget(&mut self, id: usize) {
        if let Some(seen) = self.0.get_mut(id) {
            *seen = Seen::default();
        }
    }

    /// Looks at the workers; what is to be told of those that are newly stuck or back.
    pub fn look(&mut self, workers: &[WorkerHandle], all: &AllCounters) -> Vec<String> {
        let now = clock::mono_ms();
        let mut told = Vec::new();
        for (id, w) in workers.iter().enumerate() {
            if self.0.len() <= id {
                self.0.push(Seen::default());
            }
            told.extend(self.0[id].look(id, w, &all.each[id], now));
        }
        told
    }
}

impl Seen {
    fn look(&mut self, id: usize, w: &WorkerHandle, c: &Counters, now: u64) -> Option<String> {
        let busy_since = c.busy_since_ms.load(Ordering::Relaxed);
        let waits_for_answer = c.answered.load(Ordering::Relaxed) < self.asked;
        match self.stuck_since_ms {
            Some(since) if !waits_for_answer => {
                self.stuck_since_ms = None;
                let ms = now.saturating_sub(since);
                Some(format!("worker {id} is back in its event loop after {ms} ms"))
            }
            None if waits_for_answer && now >= self.asked_at_ms + STUCK_MS => {
                let since = if busy_since == 0 { self.asked_at_ms } else { busy_since };
                self.stuck_since_ms = Some(since);
                let ms = now.saturating_sub(since);
                let text = format!("worker {id} has not come back to its event loop for {ms} ms");
                Some(text + ", others take its connections")
            }
            None if !waits_for_answer && busy_since != 0 && now >= busy_since + SUSPECT_MS => {
                self.ask(w, c, now);
                None
            }
            _ => None,
        }
    }

    fn ask(&mut self, w: &WorkerHandle, c: &Counters, now: u64) {
        // A worker started anew under this number goes on counting where the old one was.
        self.asked = self.asked.max(c.answered.load(Ordering::Relaxed)) + 1;
        self.asked_at_ms = now;
        // One that has ended does not answer, and is as good as stuck.
        let _ = w.commands.send(Command::Answer(self.asked));
    }
}
