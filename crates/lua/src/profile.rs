//! Profiles of Lua: which functions its time goes to.
//!
//! Who makes one looks at the [seats](crate::watch) of all workers, so many times a second. Where Lua runs, the thread
//! is interrupted as one that runs for too long is: code counts where it is before its next instruction, also in a
//! compiled loop, and what C does for it counts for the line that has called. What waits does not run, and is not
//! counted. As long as nobody makes a profile this costs nothing.
//!
//! A compiled loop looks up where it begins anew: what it calls and has compiled into itself counts for the loop.

use crate::border::install_interrupts;
use crate::crossing::Call;
use crate::machine::State;
use crate::run::context;
use crate::site::Block;
use crate::watch::seats;
use std::collections::HashMap;
use std::fmt::Write;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use weir_core::counters::WORKERS_MAX;

/// More different stacks, or more of their text, are counted as one for each worker and phase.
const STACKS_MAX: usize = 20_000;
const STACKS_MAX_BYTES: usize = 16 << 20;
/// Whose samples are waited for at the end, who has been in one function of C's for long, and how often it is looked.
const PATIENCE: Duration = Duration::from_millis(250);
const LOOK: Duration = Duration::from_millis(10);
/// Of a longer time in which nobody could look, the rest is not counted: where code is afterwards would stand for all.
const LATE_MOST: Duration = Duration::from_millis(20);
/// And what stands for it if that does not return.
const UNRETURNED: &str = "(a function of C's that has not returned)";
const MORE: &str = "(more stacks)";

/// What is counted.
#[derive(Default)]
struct Counts {
    only: Option<usize>,
    turns: HashMap<String, u64>,
    bytes: usize,
}

static COUNTS: Mutex<Option<Counts>> = Mutex::new(None);

fn counts() -> MutexGuard<'static, Option<Counts>> {
    COUNTS.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Counts {
    fn add(&mut self, root: &str, stack: &str, turns: u64) {
        let mut key = format!("{root};{stack}");
        if let Some(known) = self.turns.get_mut(&key) {
            *known += turns;
            return;
        }
        if self.turns.len() >= STACKS_MAX || self.bytes + key.len() > STACKS_MAX_BYTES {
            key = format!("{root};{MORE}");
        } else {
            self.bytes += key.len();
        }
        *self.turns.entry(key).or_default() += turns;
    }

    fn folded(self) -> Vec<u8> {
        let mut all: Vec<(String, u64)> = self.turns.into_iter().collect();
        all.sort();
        let mut out = String::with_capacity(self.bytes);
        for (stack, turns) in all {
            let _ = writeln!(out, "{stack} {turns}");
        }
        out.into_bytes()
    }
}

/// A profile that is being made; there is one at a time.
pub struct Profile {
    every: Duration,
    next: Instant,
}

impl Profile {
    /// Begins one of all workers, or of one.
    ///
    /// # Errors
    ///
    /// `AlreadyExists`: one is being made. `Unsupported`: not on this system.
    pub fn begin(frequency_hz: u32, only: Option<usize>) -> io::Result<Profile> {
        install_interrupts()?;
        let mut counts = counts();
        if counts.is_some() {
            return Err(io::ErrorKind::AlreadyExists.into());
        }
        seats().iter().for_each(|seat| seat.want_none());
        *counts = Some(Counts { only, ..Counts::default() });
        let every = Duration::from_secs(1) / frequency_hz.max(1);
        Ok(Profile { every, next: Instant::now() + every })
    }

    /// Waits until samples are due, and has them taken. One counts for all that were due meanwhile.
    pub fn turn(&mut self) {
        std::thread::sleep(self.next.saturating_duration_since(Instant::now()));
        let turns = self.due(Instant::now());
        seats().iter().for_each(|seat| seat.want_samples(turns));
    }

    /// How many samples are due by then. The next one is later.
    fn due(&mut self, now: Instant) -> u64 {
        let most = (LATE_MOST.as_nanos() / self.every.as_nanos().max(1)).max(1);
        let mut turns = 0;
        while self.next <= now && turns < most {
            self.next += self.every;
            turns += 1;
        }
        if self.next <= now {
            self.next = now + self.every;
        }
        u64::try_from(turns).unwrap_or(u64::MAX)
    }

    /// Ends it: a line for each stack, the calls from the outermost between semicolons, and the number of samples.
    pub fn end(self) -> Vec<u8> {
        let since = Instant::now();
        let waiting = || seats().iter().map(|seat| seat.waiting_turns()).sum::<u64>();
        while waiting() > 0 && since.elapsed() < PATIENCE {
            std::thread::sleep(LOOK);
        }
        let mut counted = counts().take();
        if let Some(counted) = counted.as_mut().filter(|counted| counted.only.is_none()) {
            match waiting() {
                0 => {}
                turns => counted.add(UNRETURNED, "?", turns),
            }
        }
        // The next one may have begun.
        std::mem::forget(self);
        counted.map_or_else(Vec::new, Counts::folded)
    }
}

impl Drop for Profile {
    fn drop(&mut self) {
        *counts() = None;
    }
}

/// Samples have found code at that place.
pub(crate) fn sampled(state: &State<'_>, turns: u64, stack: &str) {
    let mut counts = counts();
    let Some(counts) = &mut *counts else { return };
    let worker = state.vm.worker.upgrade().map_or(0, |worker| worker.id);
    if counts.only.is_none_or(|only| only == worker) {
        let stream = if state.vm.block == Block::Stream { "stream " } else { "" };
        let phase = context::name(state.run.context);
        let worker = match worker {
            WORKERS_MAX => "agent".to_owned(),
            id => format!("worker {id}"),
        };
        counts.add(&format!("{worker};{stream}{phase}"), stack, turns);
    }
}

/// The calls of a coroutine from the outermost, and the line that it is at, between semicolons; of more than so many, given
/// from the innermost, so many.
pub(crate) fn stack(mut calls: Vec<Call>, most: usize) -> String {
    let has_more = calls.len() > most;
    calls.truncate(most);
    let mut words = Vec::with_capacity(calls.len() + 2);
    if let Some(inner) = calls.first().filter(|inner| inner.line > 0) {
        let line = if inner.back_from == 0 { inner.line } else { inner.back_from };
        words.push(format!("{}:{line}", inner.file));
    }
    words.extend(calls.iter().map(|c| call(c.name.as_deref(), &c.file, c.begins)));
    if has_more {
        words.push("(more calls)".to_owned());
    }
    words.reverse();
    words.join(";")
}

/// A call as profiles name it: by what its function is called and where that begins.
fn call(name: Option<&str>, file: &str, line: i32) -> String {
    // Functions of C's have no line. The code of a directive begins where its name says.
    let is_code = line <= 1 && file.ends_with(')');
    let call = match name {
        None if is_code || line <= 0 => file.to_owned(),
        None => format!("{file}:{line}"),
        Some(name) if line < 0 => format!("{name} {file}"),
        Some(name) if is_code || line == 0 => format!("{name} ({file})"),
        Some(name) => format!("{name} ({file}:{line})"),
    };
    call.chars().map(|c| if c == ';' || c.is_control() { ':' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_have_their_names() {
        assert_eq!(call(Some("hot"), "a.lua", 12), "hot (a.lua:12)");
        assert_eq!(call(None, "a.lua", 12), "a.lua:12");
        assert_eq!(call(None, "a.lua", 0), "a.lua");
        assert_eq!(call(None, "content_by_lua(nginx.conf:5)", 1), "content_by_lua(nginx.conf:5)");
        assert_eq!(call(Some("pcall"), "[C]", -1), "pcall [C]");
        assert_eq!(call(Some("a;b\n"), "x", 2), "a:b: (x:2)");
    }

    #[test]
    fn one_sample_does_not_stand_for_a_pause() {
        let (every, begin) = (Duration::from_millis(5), Instant::now());
        let mut profile = Profile { every, next: begin + every };
        assert_eq!(profile.due(begin + Duration::from_millis(5)), 1);
        assert_eq!(profile.due(begin + Duration::from_millis(22)), 3);
        let late = begin + Duration::from_secs(3);
        assert_eq!(profile.due(late), 4);
        assert_eq!(profile.next, late + every);
        let every = Duration::from_millis(100);
        let mut profile = Profile { every, next: begin };
        assert_eq!(profile.due(begin + Duration::from_secs(1)), 1);
    }

    #[test]
    fn stacks_have_a_bound() {
        let mut counts = Counts::default();
        for n in 0..STACKS_MAX + 10 {
            counts.add("worker 0;content", &format!("f{n}"), 2);
        }
        counts.add("worker 0;content", "f1", 1);
        let folded = String::from_utf8(counts.folded()).unwrap();
        assert_eq!(folded.lines().count(), STACKS_MAX + 1);
        assert!(folded.contains("worker 0;content;f1 3\n"));
        assert!(folded.contains("worker 0;content;(more stacks) 20\n"));
        let mut counts = Counts::default();
        counts.add("w", &"x".repeat(STACKS_MAX_BYTES), 1);
        assert_eq!(counts.folded(), b"w;(more stacks) 1\n");
    }
}
