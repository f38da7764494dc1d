//! One thread for all queues: it makes segments ahead, tells of events that found no room, and notes the figures that
//! are shipped. It is woken by who takes a segment.

use crate::running::{self, lock, Ship};
use crate::{errors, metrics};
use std::collections::HashMap;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::{self, Thread};
use std::time::Duration;
use weir_core::logger::LogLevel;
use weir_core::os_text;

/// It looks at least so often, and tells of what was dropped no more often.
const LOOK: Duration = Duration::from_secs(1);

static KEEPER: OnceLock<Thread> = OnceLock::new();
static BEGUN: Mutex<bool> = Mutex::new(false);

/// Starts it, once; makes the first segments in any case.
pub fn begin() {
    for ship in running::all() {
        fill(&ship);
    }
    let mut begun = lock(&BEGUN);
    if *begun {
        return;
    }
    let started = thread::Builder::new().name("ship keeper".into()).spawn(keep);
    if let Ok(handle) = started {
        *begun = true;
        // It is started once.
        let _ = KEEPER.set(handle.thread().clone());
    }
}

/// There is something to do.
pub fn wake() {
    if let Some(keeper) = KEEPER.get() {
        keeper.unpark();
    }
}

fn keep() {
    errors::quietly(|| {
        let mut told = HashMap::new();
        loop {
            let all = running::all();
            for ship in &all {
                fill(ship);
                tell(ship, &mut told);
            }
            metrics::ship(&all);
            thread::park_timeout(metrics::idle().map_or(LOOK, |idle| idle.min(LOOK)));
        }
    });
}

fn fill(ship: &Ship) {
    if ship.is_finishing.load(Ordering::Acquire) || ship.has_ended.load(Ordering::Acquire) {
        return;
    }
    if let Err(e) = ship.queue.fill() {
        let text = format!("no room in \"{}\": {}", ship.queue.dir.display(), os_text(&e));
        ship.counts.failed(&text);
        ship.say(LogLevel::Error, &text);
    }
}

/// Tells of events that were dropped, at most once a second for each receiver.
fn tell(ship: &Arc<Ship>, told: &mut HashMap<usize, (u64, std::time::Instant)>) {
    let dropped = ship.queue.dropped.load(Ordering::Relaxed);
    let now = std::time::Instant::now();
    let (before, at) = *told.entry(Arc::as_ptr(ship) as usize).or_insert((0, now - LOOK));
    if dropped == before || now - at < LOOK {
        return;
    }
    told.insert(Arc::as_ptr(ship) as usize, (dropped, now));
    let why = match ship.queue.is_full.load(Ordering::Relaxed) {
        true => "the queue is full",
        false => "no segment was at hand",
    };
    let n = dropped.saturating_sub(before);
    ship.log(LogLevel::Alert, &format!("{n} events were dropped, {why}"));
}
