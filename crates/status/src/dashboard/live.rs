//! What a dashboard's viewers see: a thread looks at the figures once a second, notes the second in the
//! history, and while anybody views it makes of them what all are sent, once for all.
//!
//! The thread is the process's; it begins with the first configuration that has a dashboard and ends when
//! none has one any more. A viewer that is slow misses looks and is sent all values then, so that nothing
//! waits for it but the one message that it is being sent.

use super::flat::Flat;
use super::history::{History, Second};
use super::recent;
use crate::gather;
use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;
use weir_core::counters::AllCounters;
use weir_core::counts::Times;
use weir_core::figures::{Figure, Figures};
use weir_core::generation::Generation;
use weir_runtime::clock;

const LOOK: Duration = Duration::from_secs(1);
/// A look at all figures is to take so small a part of the time, which leaves the history its part of a hundredth: with very many it
/// comes less often, but so often.
const SHARE: u32 = 150;
const LOOK_MAX: Duration = Duration::from_secs(5);
/// What a look may come early.
const JITTER: Duration = Duration::from_millis(100);
/// Viewers at the same time, of all dashboards.
const VIEWERS_MAX: usize = 64;

/// One look, as viewers are sent it.
pub(super) struct Look {
    pub number: u64,
    at_ms: u64,
    /// The history's last, in JSON.
    second: Vec<u8>,
    /// How much there had been of [`recent`] by then.
    recent: u64,
    flat: Arc<Flat>,
    /// What has changed since the look before, where that has the same names.
    pub changes: Option<Bytes>,
    all: OnceLock<Bytes>,
}

impl Look {
    /// Names and values, for who has not seen the look before.
    pub(super) fn all(&self) -> Bytes {
        self.all
            .get_or_init(|| self.flat.all(self.at_ms, &self.second, &recent::since(0).0).into())
            .clone()
    }
}

/// The process's.
pub(super) struct Live {
    state: Mutex<State>,
    /// A viewer has come, and is not to wait for the next second.
    hurry: Condvar,
    viewers: AtomicUsize,
    looks: watch::Sender<Option<Arc<Look>>>,
}

#[derive(Default)]
struct State {
    runs: bool,
    wanted: bool,
    seen: Option<(Weak<Generation>, Arc<AllCounters>)>,
    history: History,
}

/// What the seconds are differences of.
struct Totals {
    counts: [u64; 10],
    times: Times,
}

pub(super) fn live() -> &'static Live {
    static LIVE: OnceLock<Live> = OnceLock::new();
    LIVE.get_or_init(|| Live {
        state: Mutex::default(),
        hurry: Condvar::new(),
        viewers: AtomicUsize::new(0),
        looks: watch::Sender::new(None),
    })
}

impl Live {
    /// A generation with a dashboard is served from now on.
    pub(super) fn serve(&'static self, gen: &Arc<Generation>, all: &Arc<AllCounters>) {
        let mut state = self.lock();
        state.seen = Some((Arc::downgrade(gen), Arc::clone(all)));
        if !state.runs {
            let thread = std::thread::Builder::new().name("status".into());
            state.runs = thread.spawn(|| self.run()).is_ok();
        }
    }

    /// A viewer's place, if there is one.
    pub(super) fn view(&'static self) -> Option<Viewer> {
        if self.viewers.fetch_add(1, Ordering::Relaxed) >= VIEWERS_MAX {
            self.viewers.fetch_sub(1, Ordering::Relaxed);
            return None;
        }
        let viewer = Viewer { looks: self.looks.subscribe(), number: None };
        self.lock().wanted = true;
        self.hurry.notify_all();
        Some(viewer)
    }

    /// What `history` answers.
    pub(super) fn history(&self) -> Vec<u8> {
        self.lock().history.json()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn run(&self) {
        let mut before: Option<Totals> = None;
        let mut due = Instant::now();
        let mut full_due = due;
        while let Some((gen, all)) = self.served() {
            if Instant::now() >= due {
                due = (due + LOOK).max(Instant::now());
                self.note(&gen, &all, &mut before);
            }
            match self.viewers.load(Ordering::Relaxed) {
                0 => drop(self.looks.send_replace(None)),
                _ => {
                    let began = Instant::now();
                    let is_full = began + JITTER >= full_due || self.looks.borrow().is_none();
                    self.look(&gen, &all, is_full);
                    if is_full {
                        full_due = began + (began.elapsed() * SHARE).clamp(LOOK, LOOK_MAX);
                    }
                }
            }
            drop((gen, all));
            self.wait(due);
        }
    }

    /// The generation to look at; none ends the thread.
    fn served(&self) -> Option<(Arc<Generation>, Arc<AllCounters>)> {
        let mut state = self.lock();
        let seen =
            state.seen.as_ref().and_then(|(gen, all)| Some((gen.upgrade()?, Arc::clone(all))));
        if seen.is_none() {
            state.runs = false;
            recent::end();
            state.seen = None;
        }
        seen
    }

    fn wait(&self, until: Instant) {
        let left = until.saturating_duration_since(Instant::now());
        let waited = self.hurry.wait_timeout_while(self.lock(), left, |state| !state.wanted);
        let (mut state, _) = waited.unwrap_or_else(|e| e.into_inner());
        state.wanted = false;
    }

    /// Notes the last second.
    fn note(&self, gen: &Generation, all: &AllCounters, before: &mut Option<Totals>) {
        let now = Totals::of(gen, all);
        if let Some(before) = before {
            self.lock().history.add(clock::wall().0.unsigned_abs(), &now.since(before));
        }
        *before = Some(now);
    }

    /// `is_full`: of all figures; or else of what the history has noted, only.
    fn look(&self, gen: &Generation, all: &AllCounters, is_full: bool) {
        let before = self.looks.borrow().clone();
        let before = before.as_deref();
        let (secs, ms) = clock::wall();
        let at_ms = secs.unsigned_abs() * 1000 + u64::from(ms);
        let second = self.lock().history.last();
        let (news, recent) = recent::since(before.map_or(0, |look| look.recent));
        let (flat, changes) = match before.filter(|_| !is_full) {
            Some(before) => {
                (Arc::clone(&before.flat), Some(Flat::second(at_ms, &second, &news).into()))
            }
            None => {
                let flat = Flat::new(gather(gen, all, ""), before.map(|look| &*look.flat));
                let same = before.filter(|look| look.flat.shape == flat.shape);
                let changes =
                    same.map(|look| flat.changes(&look.flat, at_ms, &second, &news).into());
                (Arc::new(flat), changes)
            }
        };
        let number = before.map_or(0, |look| look.number + 1);
        let all = OnceLock::new();
        let look = Look { number, at_ms, second, recent, flat, changes, all };
        self.looks.send_replace(Some(Arc::new(look)));
    }
}

impl Totals {
    fn of(gen: &Generation, all: &AllCounters) -> Totals {
        let mut totals = Totals { counts: [0; 10], times: Times::default() };
        let counts = &mut totals.counts;
        counts[0] = all.sum(|c| &c.accepted);
        counts[1] = all.sum(|c| &c.active);
        counts[2] = all.sum(|c| &c.requests);
        let tree = gather(gen, all, "/http/server_zones");
        for zone in groups(&tree, &["http", "server_zones"]) {
            if let Some(Figure::Group(responses)) = zone.get("responses") {
                for (n, class) in ["1xx", "2xx", "3xx", "4xx", "5xx"].into_iter().enumerate() {
                    counts[3 + n] += responses.number(class);
                }
            }
            counts[8] += zone.number("received");
            counts[9] += zone.number("sent");
            if let Some(Figure::Times(times)) = zone.get("latency") {
                totals.times.merge(times);
            }
        }
        totals
    }

    fn since(&self, before: &Totals) -> Second {
        let mut second = Second { times: self.times.since(&before.times), ..Second::default() };
        for (n, (now, before)) in self.counts.iter().zip(&before.counts).enumerate() {
            second.counts[n] = if n == 1 { *now } else { now.saturating_sub(*before) };
        }
        second
    }
}

/// The groups at a place.
fn groups<'a>(tree: &'a Figures, place: &[&str]) -> impl Iterator<Item = &'a Figures> {
    let mut at = Some(tree);
    for name in place {
        at = at.and_then(|group| match group.get(name) {
            Some(Figure::Group(group)) => Some(group),
            _ => None,
        });
    }
    at.into_iter().flat_map(Figures::iter).filter_map(|(_, figure)| match figure {
        Figure::Group(group) => Some(group),
        _ => None,
    })
}

/// One that is sent each look.
pub(super) struct Viewer {
    looks: watch::Receiver<Option<Arc<Look>>>,
    /// Of the look that it was sent last.
    number: Option<u64>,
}

impl Viewer {
    /// What it is to be sent next, once there is something.
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        loop {
            let look = self.looks.borrow_and_update().clone();
            if let Some(look) = look.filter(|look| self.number != Some(look.number)) {
                let follows = self.number.is_some_and(|number| number + 1 == look.number);
                self.number = Some(look.number);
                let changes = look.changes.clone().filter(|_| follows);
                return Some(changes.unwrap_or_else(|| look.all()));
            }
            self.looks.changed().await.ok()?;
        }
    }
}

impl Drop for Viewer {
    fn drop(&mut self) {
        live().viewers.fetch_sub(1, Ordering::Relaxed);
    }
}
