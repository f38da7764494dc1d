//! Finds workers that are stuck: whose event loop has not come back for long, because something in
//! it blocks the thread (a file on a slow disk, a script that computes). With `reuseport` the
//! kernel goes on giving such a worker its part of the new connections, so the others are to accept
//! from its sockets until it is back. nginx leaves them waiting.
//!
//! The heartbeat alone would accuse a worker that is only busy: one that always has something to do
//! never waits. One that is suspect is therefore asked, and a loop that comes back answers. What is told
//! counts from the question, before which the loop may have come back any number of times.

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

/// Only longer ones are worth a line of the log: on a busy machine short ones are usual.
const TELL_MS: u64 = 500;
/// Of one worker not more is told in this time; what was left out is counted.
const TELL_EVERY_MS: u64 = 3000;

/// What is known of one worker.
#[derive(Clone, Copy, Default)]
struct Seen {
    /// The number of the last question.
    asked: u64,
    asked_at_ms: u64,
    is_stuck: bool,
    /// It was told that it is stuck.
    is_told: bool,
    told_at_ms: u64,
    /// How often it was stuck without a word, and how long at the most.
    untold: u64,
    untold_max_ms: u64,
}

#[derive(Default)]
pub struct Watch(Vec<Seen>);

/// What a look has found.
#[derive(Default)]
pub struct Found {
    /// Other workers are stuck than before.
    pub is_news: bool,
    /// What is to be told.
    pub lines: Vec<String>,
}

impl Watch {
    /// The workers that are stuck.
    pub fn stuck(&self) -> impl Iterator<Item = usize> + '_ {
        self.0.iter().enumerate().filter(|(_, s)| s.is_stuck).map(|(id, _)| id)
    }

    /// The worker has been started anew.
    pub fn forget(&mut self, id: usize) {
        if let Some(seen) = self.0.get_mut(id) {
            *seen = Seen::default();
        }
    }

    /// Looks at the workers.
    pub fn look(&mut self, workers: &[WorkerHandle], all: &AllCounters) -> Found {
        let now = clock::mono_ms();
        let mut found = Found::default();
        for (id, w) in workers.iter().enumerate() {
            if self.0.len() <= id {
                self.0.push(Seen::default());
            }
            let seen = &mut self.0[id];
            let was_stuck = seen.is_stuck;
            let told = seen.look(&all.each[id], now, |number| {
                // One that has ended does not answer, and is as good as stuck.
                let _ = w.commands.send(Command::Answer(number));
            });
            found.is_news |= seen.is_stuck != was_stuck;
            found.lines.extend(told.map(|text| format!("worker {id} {text}")));
        }
        found
    }
}

impl Seen {
    /// Asks what is to be asked; answers what is to be told.
    fn look(&mut self, c: &Counters, now: u64, ask: impl FnOnce(u64)) -> Option<String> {
        let busy_since = c.busy_since_ms.load(Ordering::Relaxed);
        let answered = c.answered.load(Ordering::Relaxed);
        let took_ms = now.saturating_sub(self.asked_at_ms);
        if answered < self.asked {
            self.is_stuck |= took_ms >= STUCK_MS;
            return self.tell_of_stop(now, took_ms);
        }
        if std::mem::take(&mut self.is_stuck) {
            return self.tell_of_return(now, took_ms);
        }
        if busy_since != 0 && now >= busy_since + SUSPECT_MS {
            // A worker started anew under this number goes on counting where the old one was.
            self.asked = self.asked.max(answered) + 1;
            self.asked_at_ms = now;
            ask(self.asked);
        }
        self.tell_of_untold(now)
    }

    fn may_tell(&self, now: u64) -> bool {
        self.told_at_ms == 0 || now >= self.told_at_ms + TELL_EVERY_MS
    }

    fn tell_of_stop(&mut self, now: u64, took_ms: u64) -> Option<String> {
        if self.is_told || took_ms < TELL_MS || !self.may_tell(now) {
            return None;
        }
        (self.is_told, self.told_at_ms) = (true, now);
        let text = format!("has not come back to its event loop for {took_ms} ms");
        Some(text + ", others take its connections")
    }

    fn tell_of_return(&mut self, now: u64, took_ms: u64) -> Option<String> {
        if std::mem::take(&mut self.is_told) {
            self.told_at_ms = now;
            return Some(format!("is back in its event loop after {took_ms} ms"));
        }
        self.untold += 1;
        self.untold_max_ms = self.untold_max_ms.max(took_ms);
        None
    }

    fn tell_of_untold(&mut self, now: u64) -> Option<String> {
        if self.untold_max_ms < TELL_MS || !self.may_tell(now) {
            return None;
        }
        self.told_at_ms = now;
        let (times, ms) =
            (std::mem::take(&mut self.untold), std::mem::take(&mut self.untold_max_ms));
        Some(format!("was away from its event loop {times} more times, for up to {ms} ms"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is told of a worker whose loop never rests, is asked whenever it is looked at, and answers
    /// so many ms later, each time.
    fn told_of(stops_ms: &[u64]) -> Vec<String> {
        let (mut seen, counters, mut lines) = (Seen::default(), Counters::default(), Vec::new());
        counters.beat(1);
        let (mut now, mut stops) = (1000, stops_ms.iter());
        let mut answer = None;
        while stops.len() > 0 || answer.is_some() {
            if let Some((number, _)) = answer.take_if(|(_, at)| *at <= now) {
                counters.answered.store(number, Ordering::Relaxed);
            }
            let ask = |number| answer = stops.next().map(|ms| (number, now + ms));
            lines.extend(seen.look(&counters, now, ask));
            now += LOOK_MS;
        }
        lines
    }

    #[test]
    fn a_busy_machine_fills_no_log() {
        assert_eq!(told_of(&[60, 150, 10, 0, 170, 90].repeat(200)), [""; 0]);
    }

    #[test]
    fn a_stop_is_told_of_from_the_question_on() {
        let told = told_of(&[0, 20, 0, 1000, 0, 0]);
        let begun = "has not come back to its event loop for 500 ms, others take its connections";
        assert_eq!(told, [begun, "is back in its event loop after 1000 ms"]);
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let told = told_of(&[vec![1000, 600, 0, 100, 800], vec![0; 100]].concat());
        assert_eq!(told[2..], ["was away from its event loop 3 more times, for up to 800 ms"]);
    }
}
