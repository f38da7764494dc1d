//! What is counted of a receiver; its thread counts, anybody reads.

use crate::running::{self, lock, Ship};
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::Mutex;
use weir_core::figures::{Figure, Figures, Served};
use weir_module::Slots;
use weir_runtime::clock;

#[derive(Default)]
pub struct Counts {
    pub sent: AtomicU64,
    pub sent_bytes: AtomicU64,
    pub batches: AtomicU64,
    /// Batches that were not taken, or not as a whole.
    pub retries: AtomicU64,
    /// Events that the receiver will never take.
    pub refused: AtomicU64,
    /// Bytes of segments that could not be read as events.
    pub lost_bytes: AtomicU64,
    pub queued_bytes: AtomicU64,
    pub queued_events: AtomicU64,
    /// When the oldest event that waits was written, in milliseconds since 1970.
    pub oldest_ms: AtomicU64,
    pub last_error: Mutex<Option<(String, i64, u32)>>,
    /// When the first of the tries failed that have failed in a row; none while it takes what it is sent.
    failing: Mutex<Option<(i64, u32)>>,
}

impl Counts {
    pub fn add(count: &AtomicU64, n: u64) {
        count.fetch_add(n, Relaxed);
    }

    pub fn failed(&self, why: &str) {
        let (secs, ms) = clock::wall();
        *lock(&self.last_error) = Some((why.to_owned(), secs, ms));
    }

    /// The receiver has not taken a batch, or not all of it.
    pub fn took_not_all(&self, why: &str) {
        self.failed(why);
        lock(&self.failing).get_or_insert_with(clock::wall);
    }

    /// It has.
    pub fn took_all(&self) {
        *lock(&self.failing) = None;
    }
}

/// Those of all receivers at work.
pub fn all_figures() -> Figures {
    let mut figures = Figures::default();
    for ship in running::all() {
        put(&ship, figures.entry(ship.plan().name.as_bytes()));
    }
    figures
}

/// A receiver's for a person.
pub fn in_words(name: &str, figure: &Figure) -> String {
    let Figure::Group(figures) = figure else { return String::new() };
    let mut text = format!("{name}\n");
    for (name, figure) in figures.iter() {
        let value = match figure {
            Figure::Text(text) => text.clone(),
            Figure::Number(n) if ["oldest_age", "failing_for"].contains(&name) => {
                format!("{}.{:03} s", n / 1000, n % 1000)
            }
            Figure::Number(n) => n.to_string(),
            _ => continue,
        };
        text += &format!("  {:<16} {value}\n", name.replace('_', " "));
    }
    text
}

/// Notes the figures of all receivers at work, by their names.
pub fn put_all(_: &Served, _: &Slots, figures: &mut Figures) {
    for ship in running::all() {
        put(&ship, figures.entry(ship.plan().name.as_bytes()));
    }
}

/// Notes the figures of a receiver.
fn put(ship: &Ship, figures: &mut Figures) {
    let (counts, plan) = (&ship.counts, ship.plan());
    figures.put("kind", plan.kind);
    let get = |count: &AtomicU64| count.load(Relaxed);
    figures.put_all(&[
        ("events_sent", get(&counts.sent)),
        ("bytes_sent", get(&counts.sent_bytes)),
        ("batches", get(&counts.batches)),
        ("retries", get(&counts.retries)),
        ("events_dropped", get(&ship.queue.dropped) + get(&ship.queue.cut)),
        ("events_refused", get(&counts.refused)),
        ("lost_bytes", get(&counts.lost_bytes)),
        ("queued_events", get(&counts.queued_events)),
        ("queued_bytes", get(&counts.queued_bytes)),
        ("held_bytes", get(&ship.queue.held_bytes)),
        ("max_bytes", ship.queue.most_bytes()),
    ]);
    let (secs, ms) = clock::wall();
    let now = secs as u64 * 1000 + u64::from(ms);
    let oldest = get(&counts.oldest_ms);
    figures.put("oldest_age", if oldest == 0 { 0 } else { now.saturating_sub(oldest) });
    let failing = *lock(&counts.failing);
    let since = failing.map(|(secs, ms)| secs as u64 * 1000 + u64::from(ms));
    figures.put("failing_for", since.map_or(0, |since| now.saturating_sub(since).max(1)));
    if let Some((secs, ms)) = failing {
        figures.put("failing_since", Figure::date(secs, ms));
    }
    if let Some((why, secs, ms)) = lock(&counts.last_error).clone() {
        figures.put("last_error", why);
        figures.put("last_error_time", Figure::date(secs, ms));
    }
}
