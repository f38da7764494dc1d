//! Wildcard purges whose files go little by little (`purger=on`): what a purge is about is never
//! served again from the moment it is known here, and a thread removes the files behind that.

use crate::manager::Work;
use crate::store::{Pace, Store, Stored};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Purges that are being done; each is a comparison for every hit.
const JOBS_MAX: usize = 64;

/// Those of one store.
#[derive(Default)]
pub struct Purger {
    /// Whether there are any: all that a hit costs without them.
    any: AtomicBool,
    jobs: Mutex<Vec<Arc<Job>>>,
}

/// Everything whose key begins so and that was written until then.
struct Job {
    prefix: Box<[u8]>,
    at_ns: u64,
}

impl Job {
    fn reaches(&self, stored: &Stored) -> bool {
        stored.written_ns() <= self.at_ns && stored.key_text.starts_with(&self.prefix)
    }
}

impl Purger {
    fn lock(&self) -> MutexGuard<'_, Vec<Arc<Job>>> {
        self.jobs.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether an answer is about to be removed.
    #[inline]
    pub(crate) fn reaches(&self, stored: &Stored) -> bool {
        self.any.load(Ordering::Acquire) && self.lock().iter().any(|job| job.reaches(stored))
    }

    fn add(&self, job: &Arc<Job>) -> bool {
        let mut jobs = self.lock();
        let has_room = jobs.len() < JOBS_MAX;
        if has_room {
            jobs.push(Arc::clone(job));
            self.any.store(true, Ordering::Release);
        }
        has_room
    }

    fn remove(&self, job: &Arc<Job>) {
        let mut jobs = self.lock();
        jobs.retain(|j| !Arc::ptr_eq(j, job));
        self.any.store(!jobs.is_empty(), Ordering::Release);
    }
}

impl Store {
    /// Begins to remove every entry whose key text begins so; `false` when too much is being removed
    /// already.
    pub fn purge_slowly(self: &Arc<Self>, prefix: &[u8], pace: Pace) -> bool {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        let job = Arc::new(Job { prefix: prefix.into(), at_ns });
        if !self.purger.add(&job) {
            return false;
        }
        let (weak, theirs) = (Arc::downgrade(self), Arc::clone(&job));
        let thread = std::thread::Builder::new().name("cache purger".into());
        let started = thread.spawn(move || run(&weak, &theirs, pace)).is_ok();
        if !started {
            self.purger.remove(&job);
        }
        started
    }
}

fn run(store: &Weak<Store>, job: &Arc<Job>, pace: Pace) {
    let Some(keys) = store.upgrade().map(|s| s.all_keys()) else { return };
    let mut work = Work::new(pace);
    for key in &keys {
        let Some(live) = store.upgrade() else { return };
        live.purge_if(key, |stored| job.reaches(stored));
        drop(live);
        if work.is_enough() {
            std::thread::sleep(Duration::from_millis(pace.sleep_ms));
            work = Work::new(pace);
        }
    }
    if let Some(live) = store.upgrade() {
        live.purger.remove(job);
    }
}
