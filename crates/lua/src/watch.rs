//! Code that runs for long without waiting holds its worker, and all who are served by it.
//!
//! A worker's thread has a [`Seat`], on which it counts its entries into Lua and its returns. One thread of the process
//! looks at the seats: an entry that it still finds there after `lua_max_run_time` is accused, and its thread
//! interrupted (`border`). Code then looks at itself before its next instruction, also in a compiled loop, says where
//! it is, and ends if that is wanted. An entry pays two stores to memory of its own thread.
//!
//! What C does for code (a pattern that tries for ever, a call by the FFI) has no next instruction until it returns;
//! then the watch itself says so, without a place.

use crate::conf::LuaLoc;
use crate::machine::State;
use std::cell::OnceCell;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, Once, PoisonError, Weak};
use std::time::Duration;
use weir_core::generation::Generation;
use weir_core::logger::LogLevel;
use weir_runtime::clock;
use weir_runtime::interrupt::Thread;

/// How long code may run without waiting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RunTime {
    /// 0: for ever.
    pub ms: u64,
    /// Whether it ends then, and is not only told of.
    pub ends: bool,
}

impl Default for RunTime {
    fn default() -> RunTime {
        RunTime { ms: 1000, ends: false }
    }
}

/// What becomes of code that has run for long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    GoesOn,
    Ends,
}

/// The shortest time of all configurations, in milliseconds; `u64::MAX` where none has any.
static LEAST_MS: AtomicU64 = AtomicU64::new(u64::MAX);
/// Seats are looked at so many times within it, and neither more nor less often than this.
const LOOKS: u64 = 4;
const LOOK_MS: std::ops::RangeInclusive<u64> = 10..=250;
/// After so many samples that were not taken the thread is interrupted again.
const ASK_AGAIN: u64 = 8;
/// Who has not looked at itself after so many questions is in a function of C's.
const QUESTIONS: u64 = 4;

static SEATS: Mutex<Vec<Weak<Seat>>> = Mutex::new(Vec::new());
/// Where the watch logs.
static LOGS: Mutex<Weak<Generation>> = Mutex::new(Weak::new());

thread_local! {
    static OWN: OnceCell<Arc<Seat>> = const { OnceCell::new() };
}

/// Of one thread.
pub(crate) struct Seat {
    thread: Thread,
    /// The entry that runs, by an odd number; an even one while none does. Written by the thread alone.
    entries: AtomicU64,
    /// The last number that an entry was given.
    given: AtomicU64,
    /// The entry that nothing more is to be said of.
    settled: AtomicU64,
    /// Written by the watch alone: the entry that it has seen, since when, and how often it was asked; the entry that
    /// is accused, and for how long it has run.
    seen: AtomicU64,
    since_ms: AtomicU64,
    asked: AtomicU64,
    accused: AtomicU64,
    accused_ms: AtomicU64,
    /// Samples that a profile wants of an entry, and of which.
    turns: AtomicU64,
    turns_of: AtomicU64,
}

impl Seat {
    /// The one of the thread that calls.
    pub(crate) fn of_thread() -> Arc<Seat> {
        OWN.with(|own| Arc::clone(own.get_or_init(Seat::new)))
    }

    fn new() -> Arc<Seat> {
        let none = || AtomicU64::new(0);
        let seat = Arc::new(Seat {
            thread: Thread::own(),
            entries: none(),
            given: AtomicU64::new(u64::MAX),
            settled: none(),
            seen: none(),
            since_ms: none(),
            asked: none(),
            accused: AtomicU64::new(u64::MAX),
            accused_ms: none(),
            turns: none(),
            turns_of: none(),
        });
        let mut all = SEATS.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|seat| seat.strong_count() > 0);
        all.push(Arc::downgrade(&seat));
        seat
    }

    /// Lua begins to run on this thread.
    #[inline]
    pub(crate) fn begin(&self) {
        let number = self.given.load(Ordering::Relaxed).wrapping_add(2);
        self.given.store(number, Ordering::Relaxed);
        self.entries.store(number, Ordering::Relaxed);
    }

    /// It has returned.
    #[inline]
    pub(crate) fn end(&self) {
        self.entries.store(self.given.load(Ordering::Relaxed).wrapping_add(1), Ordering::Relaxed);
    }

    /// What runs asks for something that is not on its account, until it comes back by that number.
    pub(crate) fn leave(&self) -> u64 {
        let number = self.entries.load(Ordering::Relaxed);
        self.end();
        number
    }

    pub(crate) fn come_back(&self, number: u64) {
        self.entries.store(number, Ordering::Relaxed);
    }

    /// Whether nothing runs on its own account.
    #[inline]
    pub(crate) fn is_left(&self) -> bool {
        self.entries.load(Ordering::Relaxed).is_multiple_of(2)
    }

    /// For how long the entry at hand has run, if it is the one that is accused.
    pub(crate) fn accused_ms(&self) -> Option<u64> {
        let entry = self.entries.load(Ordering::Relaxed);
        let is_meant = self.accused.load(Ordering::Acquire) == entry;
        is_meant.then(|| self.accused_ms.load(Ordering::Relaxed))
    }

    /// So many samples are due if Lua runs: they are taken before its next instruction.
    pub(crate) fn want_samples(&self, turns: u64) {
        let entry = self.entries.load(Ordering::Relaxed);
        if entry.is_multiple_of(2) {
            return;
        }
        if self.turns_of.load(Ordering::Relaxed) != entry {
            self.turns.store(0, Ordering::Relaxed);
            self.turns_of.store(entry, Ordering::Release);
        }
        // What waits in C is interrupted once, and not at each turn; the hook of one interrupt in many is lost.
        let waiting = self.turns.fetch_add(turns, Ordering::Relaxed);
        if waiting == 0 || waiting / ASK_AGAIN != (waiting + turns) / ASK_AGAIN {
            self.thread.interrupt();
        }
    }

    /// What an earlier profile has wanted and not been given is no sample of the next one's.
    pub(crate) fn want_none(&self) {
        self.turns.store(0, Ordering::Relaxed);
    }

    /// How many samples that were wanted have not been taken, though Lua still runs.
    pub(crate) fn waiting_turns(&self) -> u64 {
        let entry = self.entries.load(Ordering::Relaxed);
        match self.turns_of.load(Ordering::Relaxed) == entry {
            true => self.turns.load(Ordering::Relaxed),
            false => 0,
        }
    }

    /// How many samples of the entry at hand are due; there are none then.
    pub(crate) fn take_turns(&self) -> u64 {
        let entry = self.entries.load(Ordering::Relaxed);
        match self.turns_of.load(Ordering::Acquire) == entry {
            true => self.turns.swap(0, Ordering::Relaxed),
            false => 0,
        }
    }

    fn settle(&self) {
        self.settled.store(self.entries.load(Ordering::Relaxed), Ordering::Relaxed);
    }

    /// Looks at the thread, by the watch; how long it has not answered, where that is to be told.
    fn look(&self, now_ms: u64, least_ms: u64) -> Option<u64> {
        let entry = self.entries.load(Ordering::Relaxed);
        if self.seen.swap(entry, Ordering::Relaxed) != entry {
            self.since_ms.store(now_ms, Ordering::Relaxed);
            self.asked.store(0, Ordering::Relaxed);
            return None;
        }
        let ms = now_ms.saturating_sub(self.since_ms.load(Ordering::Relaxed));
        let is_settled = self.settled.load(Ordering::Relaxed) == entry;
        if entry.is_multiple_of(2) || is_settled || ms < least_ms {
            return None;
        }
        self.accused_ms.store(ms, Ordering::Relaxed);
        self.accused.store(entry, Ordering::Release);
        self.thread.interrupt();
        (self.asked.fetch_add(1, Ordering::Relaxed) == QUESTIONS).then_some(ms)
    }
}

/// Those of all threads that have run Lua.
pub(crate) fn seats() -> Vec<Arc<Seat>> {
    let seats = SEATS.lock().unwrap_or_else(PoisonError::into_inner);
    seats.iter().filter_map(Weak::upgrade).collect()
}

/// The entry at hand was asked, and has come to its next instruction.
pub(crate) fn overdue(state: &mut State<'_>, ms: u64, place: &str) -> Verdict {
    let seat = Seat::of_thread();
    seat.asked.store(0, Ordering::Relaxed);
    if state.run.context == crate::run::context::APART {
        // It holds no worker.
        seat.settle();
        return Verdict::GoesOn;
    }
    let limit = limit_of(state);
    if limit.ms > 0 && ms < limit.ms {
        return Verdict::GoesOn;
    }
    seat.settle();
    if limit.ms == 0 {
        return Verdict::GoesOn;
    }
    // A worker that could not begin would be worse.
    let ends = limit.ends && state.run.context != crate::run::context::INIT;
    let (level, then) = match ends {
        true => (LogLevel::Error, "and is ended"),
        false => (LogLevel::Warn, "and holds its worker as long as it does"),
    };
    let text = format!(
        "lua code has run for {ms} ms without waiting, longer than lua_max_run_time ({} ms), {then}",
        limit.ms
    );
    crate::api::control::write_lines(state, level, text.as_bytes(), place.as_bytes());
    match ends {
        true => Verdict::Ends,
        false => Verdict::GoesOn,
    }
}

fn limit_of(state: &State<'_>) -> RunTime {
    state.setting(|conf| *conf.max_run_time).unwrap_or_default()
}

/// Watches code of that configuration, for the least of the times that its places have.
pub(crate) fn begin<'a>(gen: &Arc<Generation>, places: impl Iterator<Item = &'a LuaLoc>) {
    let times = places.map(|loc| loc.max_run_time.ms).filter(|ms| *ms > 0);
    let Some(least_ms) = times.min() else { return };
    *LOGS.lock().unwrap_or_else(PoisonError::into_inner) = Arc::downgrade(gen);
    LEAST_MS.fetch_min(least_ms, Ordering::Relaxed);
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let installed = crate::border::install_interrupts();
        let begun = installed
            .and_then(|()| std::thread::Builder::new().name("lua watch".into()).spawn(watch));
        if let Err(e) = begun {
            log(LogLevel::Alert, &format!("lua code is not watched: {e}"));
        }
    });
}

fn log(level: LogLevel, text: &str) {
    let gen = LOGS.lock().unwrap_or_else(PoisonError::into_inner).upgrade();
    if let Some(gen) = gen {
        gen.error_log.log(level, None, text.as_bytes());
    }
}

fn watch() {
    loop {
        let least_ms = LEAST_MS.load(Ordering::Relaxed);
        let look_ms = (least_ms / LOOKS).clamp(*LOOK_MS.start(), *LOOK_MS.end());
        std::thread::sleep(Duration::from_millis(look_ms));
        let seats = seats();
        let now_ms = clock::mono_ms();
        for ms in seats.iter().filter_map(|seat| seat.look(now_ms, least_ms)) {
            let text = "lua code has run for";
            let why = "without waiting, and is in a function of C's that does not return: a pattern, or a call by the FFI";
            log(LogLevel::Warn, &format!("{text} {ms} ms {why}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_of_the_entry_that_they_were_wanted_of() {
        let seat = Seat::new();
        seat.want_samples(3);
        assert_eq!(seat.take_turns(), 0, "Lua does not run");
        seat.begin();
        seat.want_samples(1);
        seat.want_samples(2);
        assert_eq!(seat.waiting_turns(), 3);
        assert_eq!((seat.take_turns(), seat.take_turns()), (3, 0));
        seat.want_samples(1);
        seat.end();
        seat.begin();
        assert_eq!((seat.waiting_turns(), seat.take_turns()), (0, 0));
        seat.want_samples(1);
        assert_eq!(seat.take_turns(), 1);
        seat.end();
    }

    #[test]
    fn an_entry_is_accused_once_it_has_been_there_for_long() {
        let seat = Seat::of_thread();
        assert_eq!(seat.accused_ms(), None);
        seat.begin();
        assert_eq!((seat.look(1000, 100), seat.accused_ms()), (None, None));
        seat.end();
        seat.begin();
        assert_eq!((seat.look(1200, 100), seat.accused_ms()), (None, None));
        assert_eq!((seat.look(1300, 100), seat.accused_ms()), (None, Some(100)));
        let told: Vec<_> = (0..6).map(|n| seat.look(1400 + n, 100)).collect();
        assert_eq!(told, [None, None, None, Some(203), None, None]);
        seat.settle();
        seat.end();
        assert_eq!(seat.accused_ms(), None);
        seat.begin();
        assert_eq!((seat.look(2000, 100), seat.accused_ms()), (None, None));
        seat.end();
    }
}
