//! Figures that outlive the process that has counted them (`core::counts` has the form):
//!
//! * a serving process that dies has left them with its master a few seconds before at most ([`LEAVE_MS`]), and when they
//!   were last shown: the one that is started in its place goes on from there, and shows nobody less than it has seen;
//! * one whose place another takes (an upgrade, a change of user, a new master) gives them to that once it is ready and,
//!   when it ends, what has come since: nothing is lost or counted twice;
//! * without a master nobody keeps those of a process that is killed.
//!
//! What is being answered, open or waiting now ends with its process and is none of it.
//!
//! What checks have found out of servers (`upstream::health`) goes the same ways, but before the other process serves: it must
//! know whom to ask.

use crate::heirs::Successor;
use std::fs::File;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;
use weir_base::crc32c::crc32c;
use weir_core::counters::AllCounters;
use weir_core::counts;
use weir_runtime::left::Left;
use weir_runtime::{clock, process};
use weir_upstream::health;

/// Messages with figures begin so; a program that does not know it passes them over.
const MARK: &str = "weir figures 1\n";
/// So much of a text in a message.
const MESSAGE_BYTES: usize = 60_000;
/// How often they are left with the master.
const LEAVE_MS: u64 = 2000;
/// Leaving them takes no more than one part of so many of the time, however many things are counted.
const SHARE: u64 = 500;
/// The process that takes them over reads; it is not waited for longer when this one ends.
const PATIENCE: Duration = Duration::from_secs(2);

/// The same of what checks have found out.
const STANDINGS_MARK: &str = "weir standings 1\n";
const STANDINGS_MAX_BYTES: usize = 4 << 20;

/// What the files that are handed to a serving process are called.
const FIGURES: &str = "figures";
const CHECKS: &str = "standings";

/// With the master, of all its serving processes.
static LEFT: OnceLock<Left> = OnceLock::new();
/// The same, what checks have found out.
static STANDINGS: OnceLock<Left> = OnceLock::new();
/// Whether the serving process that begins goes on where the one before was.
static GOES_ON: AtomicBool = AtomicBool::new(false);
static NEXT_MS: AtomicU64 = AtomicU64::new(0);
/// Who leaves them, and from when on it is done again when they are shown, in monotonic microseconds.
static LEAVES: Mutex<u64> = Mutex::new(0);
/// What was given to a successor already.
static GIVEN: Mutex<Option<String>> = Mutex::new(None);
/// The counters of the workers, where figures come that have no name.
static COUNTERS: OnceLock<Arc<AllCounters>> = OnceLock::new();

/// Figures are left when they are shown, too: whoever has seen them sees no less after a process that is killed. Where
/// that takes longer than [`SHORT_US`] it takes no more than one part of so many of the time.
const SHOWN_SHARE: u64 = 4;
const SHORT_US: u64 = 20_000;

/// Called by a master before its first serving process. Without memory for it figures begin anew.
pub fn keep() {
    if let Ok(left) = Left::new() {
        let _ = LEFT.set(left);
    }
    if let Ok(left) = Left::new() {
        let _ = STANDINGS.set(left);
    }
}

/// What a serving process that is started rather than forked has to be handed: the files, and what they are.
pub fn files() -> impl Iterator<Item = (&'static str, &'static File)> {
    let of = |name, left: &'static OnceLock<Left>| {
        left.get().into_iter().flat_map(Left::files).map(move |file| (name, file))
    };
    of(FIGURES, &LEFT).chain(of(CHECKS, &STANDINGS))
}

/// Takes them in such a process.
pub fn have(name: &str, files: [File; 2]) {
    match name {
        FIGURES => drop(LEFT.set(Left::of(files))),
        CHECKS => drop(STANDINGS.set(Left::of(files))),
        _ => {}
    }
}

/// What checks have found out, as messages: with a master, what its serving process has left.
pub fn standings() -> Vec<Vec<u8>> {
    let text = match STANDINGS.get() {
        Some(left) => left_in(left, STANDINGS_MAX_BYTES).unwrap_or_default(),
        None => health::read_all(),
    };
    let mut pieces: Vec<String> = Vec::new();
    for line in text.lines() {
        match pieces.last_mut() {
            Some(piece) if piece.len() + line.len() < MESSAGE_BYTES => piece.push_str(line),
            _ => pieces.push(format!("{STANDINGS_MARK}{line}")),
        }
        pieces.iter_mut().last().into_iter().for_each(|piece| piece.push('\n'));
    }
    pieces.into_iter().map(String::into_bytes).collect()
}

fn left_in(left: &Left, max_bytes: usize) -> Option<String> {
    left.read(max_bytes, crc32c).and_then(|body| String::from_utf8(body).ok())
}

/// A message that was there at once.
pub fn told(body: &[u8]) {
    let text = std::str::from_utf8(body).ok();
    let Some(text) = text.and_then(|t| t.strip_prefix(STANDINGS_MARK)) else { return };
    health::know(text);
    if process::IS_TOLD {
        TOLD.lock().unwrap_or_else(PoisonError::into_inner).push_str(text);
    }
}

/// What such messages have said, for a serving process that does not know it by a fork.
static TOLD: Mutex<String> = Mutex::new(String::new());

pub fn all_told() -> String {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner).clone()
}

/// This process is about to serve: it knows what the one before it under the same master knew of servers.
pub fn know() {
    STANDINGS
        .get()
        .and_then(|left| left_in(left, STANDINGS_MAX_BYTES))
        .iter()
        .for_each(|t| health::know(t));
}

/// Says, in a serving process that has just been forked, whether there is none before it that will give its figures.
pub fn goes_on(yes: bool) {
    GOES_ON.store(yes, Ordering::Relaxed);
}

/// The serving process begins.
pub fn begin(all: &Arc<AllCounters>) {
    let _ = COUNTERS.set(Arc::clone(all));
    counts::when_shown(shown);
    all.keep();
    if GOES_ON.load(Ordering::Relaxed) {
        let left = LEFT.get().and_then(|left| left_in(left, counts::KEPT_MAX_BYTES));
        left.iter().for_each(|text| counts::add_all(text));
    }
}

/// Leaves them with the master when it is time; from the main thread.
pub fn tend() {
    let now_ms = clock::mono_ms();
    if LEFT.get().is_none() || now_ms < NEXT_MS.load(Ordering::Relaxed) {
        return;
    }
    let took_ms = leave() / 1000;
    NEXT_MS.store(now_ms + LEAVE_MS.max(took_ms * SHARE), Ordering::Relaxed);
}

/// Leaves them with the master; how many microseconds that took.
pub fn leave() -> u64 {
    leave_by(&LEAVES.lock().unwrap_or_else(PoisonError::into_inner))
}

/// By one thread at a time: who holds the lock.
fn leave_by(_: &u64) -> u64 {
    let Some(left) = LEFT.get() else { return 0 };
    let begun_us = clock::now_us();
    // What was left before stays where there is no memory for more.
    let _ = left.write(counts::read_all().as_bytes(), crc32c);
    if let Some(left) = STANDINGS.get() {
        let _ = left.write(health::read_all().as_bytes(), crc32c);
    }
    clock::now_us().saturating_sub(begun_us)
}

/// They are about to be shown to somebody.
fn shown() {
    let mut again_us = LEAVES.lock().unwrap_or_else(PoisonError::into_inner);
    if clock::now_us() >= *again_us {
        let took_us = leave_by(&again_us);
        let pause_us = if took_us > SHORT_US { took_us * SHOWN_SHARE } else { 0 };
        *again_us = clock::now_us() + pause_us;
    }
}

/// A message of the process whose place this one takes.
pub fn take(body: &[u8]) {
    let text = std::str::from_utf8(body).ok().and_then(|text| text.strip_prefix(MARK));
    text.into_iter().for_each(counts::add_all);
}

/// Gives what is not given yet to the process that takes this one's place, if it reads; `at_end`: it is waited for.
pub fn give(to: &Successor, at_end: bool) {
    let mut given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner);
    if given.is_some() && !at_end {
        return;
    }
    let now = counts::read_all();
    let more = match &*given {
        Some(before) => counts::since(&now, before),
        None => now.clone(),
    };
    let pieces = counts::pieces(&more, MESSAGE_BYTES);
    let patience = if at_end || given.is_none() { PATIENCE } else { Duration::ZERO };
    let mut all = pieces.into_iter().map(|piece| format!("{MARK}{piece}").into_bytes());
    if to.tell(&mut all, patience) {
        *given = Some(now);
    }
}
