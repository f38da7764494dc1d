//! What `sysguard` judges by: the machine's figures, looked at by a thread, and how long requests took.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Weak;
use std::time::Duration;
use weir_core::generation::Generation;
use weir_runtime::{clock, system};

/// Of the machine, as they were seen last; the same for all configurations.
pub static LOAD: AtomicU64 = AtomicU64::new(0);
pub static SWAP_PERCENT: AtomicU64 = AtomicU64::new(0);
pub static FREE_BYTES: AtomicU64 = AtomicU64::new(u64::MAX);
/// Hundredths of a percent.
pub static CPU_USAGE: AtomicU64 = AtomicU64::new(0);

/// How often to look, in seconds: at load and memory, and at what the processors have done.
#[derive(Clone, Copy)]
pub struct Pace {
    pub interval_secs: u64,
    pub cpu_secs: u64,
}

/// Looks now, and goes on as long as the configuration that asked for it is in force. What the system does not say
/// refuses nobody.
pub fn watch(generation: Weak<Generation>, pace: Pace) {
    look();
    let thread = std::thread::Builder::new().name("sysguard".into());
    // Without the thread the figures stay what they were.
    let _ = thread.spawn(move || run(&generation, pace));
}

fn run(generation: &Weak<Generation>, pace: Pace) {
    let mut before = system::cpu_times().unwrap_or_default();
    let mut secs: u64 = 0;
    while generation.strong_count() > 0 {
        std::thread::sleep(Duration::from_secs(1));
        secs += 1;
        if secs.is_multiple_of(pace.interval_secs) {
            look();
        }
        if secs.is_multiple_of(pace.cpu_secs) {
            if let Some(now) = system::cpu_times() {
                CPU_USAGE.store(usage(before, now), Ordering::Relaxed);
                before = now;
            }
        }
    }
}

/// What the system does not say now is as it was.
fn look() {
    if let Some(load) = system::load() {
        LOAD.store(load, Ordering::Relaxed);
    }
    if let Some(memory) = system::memory() {
        SWAP_PERCENT.store(memory.swap_percent, Ordering::Relaxed);
        FREE_BYTES.store(memory.free_bytes, Ordering::Relaxed);
    }
}

fn usage(before: system::CpuTimes, now: system::CpuTimes) -> u64 {
    let busy = now.busy.saturating_sub(before.busy);
    let all = now.all.saturating_sub(before.all).max(1);
    busy.saturating_mul(10_000) / all
}

/// How long requests took within the last seconds.
pub struct Times {
    /// One for each second, over and over.
    slots: Vec<Slot>,
    interval_secs: u64,
    /// What was told last, in milliseconds, and until which second it is told.
    average_ms: AtomicU64,
    until_secs: AtomicU64,
}

#[derive(Default)]
struct Slot {
    secs: AtomicU64,
    sum_ms: AtomicU64,
    requests: AtomicU64,
}

impl Times {
    pub fn new(period_secs: u64, interval_secs: u64) -> Times {
        Times {
            slots: (0..period_secs.max(1)).map(|_| Slot::default()).collect(),
            interval_secs,
            average_ms: AtomicU64::new(0),
            until_secs: AtomicU64::new(0),
        }
    }

    pub fn add(&self, ms: u64) {
        let now = clock::mono_secs();
        let slot = &self.slots[(now % self.slots.len() as u64) as usize];
        // A request that another worker counts in the very moment that a second begins may be lost.
        if slot.secs.swap(now, Ordering::Relaxed) != now {
            slot.sum_ms.store(0, Ordering::Relaxed);
            slot.requests.store(0, Ordering::Relaxed);
        }
        slot.sum_ms.fetch_add(ms, Ordering::Relaxed);
        slot.requests.fetch_add(1, Ordering::Relaxed);
    }

    /// The average, looked at as often as the interval says.
    pub fn average_ms(&self) -> u64 {
        let now = clock::mono_secs();
        if self.until_secs.load(Ordering::Relaxed) > now {
            return self.average_ms.load(Ordering::Relaxed);
        }
        let since = (now + 1).saturating_sub(self.slots.len() as u64);
        let fresh = self.slots.iter().filter(|s| s.secs.load(Ordering::Relaxed) >= since);
        let (ms, requests) = fresh.fold((0u64, 0u64), |(ms, requests), s| {
            let more = s.sum_ms.load(Ordering::Relaxed);
            (ms.saturating_add(more), requests + s.requests.load(Ordering::Relaxed))
        });
        let average = ms.checked_div(requests).unwrap_or(0);
        self.average_ms.store(average, Ordering::Relaxed);
        self.until_secs.store(now + self.interval_secs, Ordering::Relaxed);
        average
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn averages() {
        let times = Times::new(60, 0);
        assert_eq!(times.average_ms(), 0);
        times.add(10);
        times.add(30);
        assert_eq!(times.average_ms(), 20);
    }

    #[test]
    fn shares_of_the_processors() {
        let times = |busy, all| system::CpuTimes { busy, all };
        assert_eq!(usage(times(10, 100), times(60, 200)), 5000);
        assert_eq!(usage(times(10, 100), times(10, 100)), 0);
    }
}
