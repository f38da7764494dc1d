//! A zone: what workers have seen, and the reports that it is counted in.
//!
//! A worker notes what it has seen in a place of its own ([`Gathered`]) and goes on: of a request like an earlier one, that it came
//! once more. A thread takes what is new, some times in a second, and counts; of what has only come again, it does when
//! somebody looks, and at least every minute. Everything has a bound: a place that is full takes no more, a report has
//! [`weir_analytics::report::Limits::live`], and of more requests than `rate` a worker notes every second, fourth, eighth one.

use super::facts;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::{Duration, Instant};
use weir_analytics::gather::{Batch, Gathered};
use weir_analytics::render::{self, Shown};
use weir_analytics::report::{Options, Report};
use weir_http::Request;
use weir_runtime::{clock, tz};

/// How often buffers are emptied.
const LOOKS_A_SECOND: u64 = 4;
/// After so many looks what has come again is counted, too.
const LOOKS_FOR_ALL: u32 = 60 * LOOKS_A_SECOND as u32;
/// A report that is shown is no older.
const SHOWN: Duration = Duration::from_secs(1);
/// Rows of each panel that are shown.
const ROWS: usize = 50;

pub(crate) struct Zone {
    options: Options,
    days: i32,
    rate: u64,
    reports: Mutex<Reports>,
    /// One for each worker that there may be; most never are.
    parts: OnceLock<Box<[OnceLock<Box<Part>>]>>,
    is_started: AtomicBool,
    /// The report's text, and when it was made: whoever looks within a while is told the same.
    shown: Mutex<Option<(Instant, Arc<str>)>>,
}

struct Reports {
    now: Report,
    /// The day it began, by the local clock.
    began: i32,
    /// The one before it: there is always as much to be seen as was asked for.
    before: Option<Report>,
    /// What was taken of a worker's last.
    batch: Batch,
}

/// A worker's, in lines of the processor's caches that are no other worker's.
#[derive(Default)]
#[repr(align(64))]
struct Part {
    waiting: Mutex<Gathered>,
    seen: AtomicU64,
    /// As the thread that counts saw it last.
    seen_before: AtomicU64,
    left_out: AtomicU64,
    /// Of so many requests one is handed on, less one; a power of two before that.
    mask: AtomicU64,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn offset_secs(secs: i64) -> i64 {
    i64::from(tz::offset_minutes(secs)) * 60
}

/// The same for many times in a row, which mostly are of one quarter of an hour: no clock is set in between.
fn offsets() -> impl FnMut(i64) -> i64 {
    const QUARTER_SECS: i64 = 15 * 60;
    let mut known = (i64::MIN, 0);
    move |secs| {
        let quarter = secs.div_euclid(QUARTER_SECS);
        if known.0 != quarter {
            known = (quarter, offset_secs(secs));
        }
        known.1
    }
}

fn today() -> i32 {
    let now = clock::wall_secs();
    weir_analytics::event::Moment::from_unix(now + offset_secs(now)).day
}

impl Zone {
    pub(super) fn new(options: Options, days: i32, rate: u64) -> Zone {
        let now = Report::new(options.clone());
        let batch = Batch::default();
        let reports = Mutex::new(Reports { now, began: today(), before: None, batch });
        let (parts, is_started) = (OnceLock::new(), AtomicBool::new(false));
        Zone { options, days, rate, reports, parts, is_started, shown: Mutex::default() }
    }

    /// A request has been answered.
    #[inline]
    pub(super) fn add(&self, r: &Request) {
        let worker = &r.conn().worker;
        let make = || worker.all.each.iter().map(|_| OnceLock::new()).collect();
        if let Some(part) = self.parts.get_or_init(make).get(worker.id) {
            part.get_or_init(Box::default).add(r);
        }
    }

    fn parts(&self) -> impl Iterator<Item = &Part> {
        self.parts.get().into_iter().flatten().filter_map(|part| part.get().map(|part| &**part))
    }

    /// Begins to count, once.
    pub(super) fn start(self: &Arc<Self>) -> std::io::Result<()> {
        if self.is_started.swap(true, Ordering::Relaxed) {
            return Ok(());
        }
        let zone = Arc::downgrade(self);
        std::thread::Builder::new().name("analytics".into()).spawn(move || work(&zone))?;
        Ok(())
    }

    /// Counts what is new, or all that has come.
    fn count(&self, all: bool) {
        let mut reports = lock(&self.reports);
        let Reports { now, began, before, batch } = &mut *reports;
        let day = today();
        let is_over = day - *began >= self.days;
        let mut offset = offsets();
        for part in self.parts() {
            if all || is_over {
                lock(&part.waiting).rewind();
            }
            loop {
                let is_more = lock(&part.waiting).take(batch);
                batch.tell(now, &mut offset);
                if !is_more {
                    break;
                }
            }
        }
        if is_over {
            let fresh = Report::new(self.options.clone());
            *before = Some(std::mem::replace(now, fresh));
            *began = day;
        }
    }

    /// The same, or as it was a moment ago: many who look on cost as much as one. Those who come while it is made wait for it.
    pub(crate) fn shown(&self) -> Arc<str> {
        let mut shown = lock(&self.shown);
        if let Some((at, text)) = &*shown {
            if at.elapsed() < SHOWN {
                return Arc::clone(text);
            }
        }
        let text: Arc<str> = self.json().into();
        *shown = Some((Instant::now(), Arc::clone(&text)));
        text
    }

    /// What has been counted, as JSON. It may take some milliseconds.
    pub(crate) fn json(&self) -> String {
        self.count(true);
        let (now, before) = {
            let reports = lock(&self.reports);
            (reports.now.clone(), reports.before.clone())
        };
        let report = match before {
            None => now,
            Some(mut all) => {
                all.merge(now);
                all
            }
        };
        let (summary, panels) = (report.summary(), report.panels(ROWS));
        let text = render::json(&Shown { sources: &[], summary: &summary, panels: &panels });
        let (requests, left_out) = self.figures();
        let more = format!("{{\"requests\":{requests},\"left_out\":{left_out},");
        [&more, text.trim_end().strip_prefix('{').unwrap_or_default()].concat()
    }

    /// All requests so far, and those that were not handed on.
    pub(super) fn figures(&self) -> (u64, u64) {
        let sum = |of: fn(&Part) -> &AtomicU64| {
            self.parts().map(|part| of(part).load(Ordering::Relaxed)).sum()
        };
        (sum(|part| &part.seen), sum(|part| &part.left_out))
    }

    /// Everything begins anew.
    pub(crate) fn clear(&self) {
        *lock(&self.shown) = None;
        self.count(true);
        let mut reports = lock(&self.reports);
        let (now, batch) = (Report::new(self.options.clone()), Batch::default());
        *reports = Reports { now, began: today(), before: None, batch };
    }
}

impl Part {
    #[inline]
    fn add(&self, r: &Request) {
        // The worker alone writes these.
        let seen = self.seen.load(Ordering::Relaxed) + 1;
        self.seen.store(seen, Ordering::Relaxed);
        if seen & self.mask.load(Ordering::Relaxed) != 0 || !self.look_at(r) {
            self.left_out.store(self.left_out.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// `false`: there is no room.
    #[inline(never)]
    fn look_at(&self, r: &Request) -> bool {
        lock(&self.waiting).add(&facts::of(r))
    }
}

fn work(zone: &Weak<Zone>) {
    let mut looks = 0_u32;
    while let Some(zone) = zone.upgrade() {
        looks = looks.wrapping_add(1);
        zone.count(looks.is_multiple_of(LOOKS_FOR_ALL));
        for part in zone.parts() {
            let seen = part.seen.load(Ordering::Relaxed);
            let before = part.seen_before.swap(seen, Ordering::Relaxed);
            let a_second = (seen - before) * LOOKS_A_SECOND;
            part.mask.store(
                a_second.div_ceil(zone.rate).max(1).next_power_of_two() - 1,
                Ordering::Relaxed,
            );
        }
        drop(zone);
        std::thread::sleep(Duration::from_millis(1000 / LOOKS_A_SECOND));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_analytics::report::Limits;
    use weir_analytics::sketch::Seed;

    #[test]
    fn who_looks_again_at_once_is_told_the_same() {
        let zone = Zone::new(Options::new(Limits::live(), Seed::new(1)), 1, 100);
        let first = zone.shown();
        assert!(first.starts_with("{\"requests\":0,"), "{first}");
        assert!(Arc::ptr_eq(&first, &zone.shown()));
        zone.clear();
        assert!(!Arc::ptr_eq(&first, &zone.shown()));
        // What was shown long ago is made anew.
        let old = Instant::now().checked_sub(SHOWN).unwrap();
        *lock(&zone.shown) = Some((old, Arc::clone(&first)));
        assert!(!Arc::ptr_eq(&first, &zone.shown()));
    }
}
