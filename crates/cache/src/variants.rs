//! Variants of answers that have changed: they are found by their heads alone, all of which have to be read. From the
//! moment that they are known here they are not served, and one thread removes them behind that, however many there
//! are: a client that changes things in a loop has it look once for all.

use crate::manager::Work;
use crate::store::{Store, Stored};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Keys' texts that wait, together: with more of them everything goes.
const TEXTS_MAX_BYTES: usize = 16 * 1024 * 1024;
/// What a text costs besides.
const TEXT_BYTES: usize = 64;

type Changed = HashMap<Box<[u8]>, u64, foldhash::fast::RandomState>;

/// Those of one store.
#[derive(Default)]
pub(crate) struct Variants {
    /// Whether there are any: all that a hit costs without them.
    any: AtomicBool,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Until when what was written of a key is not true any more, in nanoseconds of Unix time.
    changed: Changed,
    bytes: usize,
    /// Until when nothing is.
    all_ns: u64,
    is_running: bool,
}

impl State {
    fn reaches(&self, stored: &Stored) -> bool {
        let of_key = self.changed.get(&stored.key_text[..]).copied().unwrap_or(0);
        stored.written_ns() <= of_key.max(self.all_ns)
    }
}

impl Variants {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether an answer is no longer true.
    #[inline]
    pub(crate) fn reach(&self, stored: &Stored) -> bool {
        self.any.load(Ordering::Acquire) && self.lock().reaches(stored)
    }

    /// Whether a thread is to be begun for it.
    fn add(&self, key_text: &[u8], at_ns: u64) -> bool {
        let mut state = self.lock();
        if state.changed.insert(key_text.into(), at_ns).is_none() {
            state.bytes += key_text.len() + TEXT_BYTES;
        }
        if state.bytes > TEXTS_MAX_BYTES {
            state.changed.clear();
            state.bytes = 0;
            state.all_ns = at_ns;
        }
        self.any.store(true, Ordering::Release);
        !std::mem::replace(&mut state.is_running, true)
    }

    /// What is to be looked for now; `None`: there is nothing more, and the thread ends.
    fn next(&self) -> Option<State> {
        let mut state = self.lock();
        let is_over = state.changed.is_empty() && state.all_ns == 0;
        state.is_running = !is_over;
        self.any.store(!is_over, Ordering::Release);
        (!is_over).then(|| State {
            changed: state.changed.clone(),
            all_ns: state.all_ns,
            ..State::default()
        })
    }

    /// All of it has been removed.
    fn done(&self, looked_for: &State) {
        let mut state = self.lock();
        state.changed.retain(|text, at_ns| looked_for.changed.get(text) != Some(at_ns));
        state.bytes = state.changed.keys().map(|text| text.len() + TEXT_BYTES).sum();
        if state.all_ns == looked_for.all_ns {
            state.all_ns = 0;
        }
    }
}

impl Store {
    /// Nothing that was kept under this key's text is true any more, whatever it varies by.
    pub fn forget_variants(self: &Arc<Self>, key_text: &[u8]) {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let at_ns = u64::try_from(now.as_nanos()).unwrap_or(u64::MAX);
        if !self.variants.add(key_text, at_ns) {
            return;
        }
        let weak = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("cache variants".into());
        if thread.spawn(move || run(&weak)).is_err() {
            // They are not served, and the next one that changes tries again.
            self.variants.lock().is_running = false;
        }
    }
}

fn run(store: &Weak<Store>) {
    loop {
        let Some(live) = store.upgrade() else { return };
        let Some(looked_for) = live.variants.next() else { return };
        let (keys, pace) = (live.all_keys(), live.params().manager);
        drop(live);
        let mut work = Work::new(pace);
        for key in &keys {
            let Some(live) = store.upgrade() else { return };
            live.purge_if(key, |stored| looked_for.reaches(stored));
            drop(live);
            if work.is_enough() {
                std::thread::sleep(Duration::from_millis(pace.sleep_ms));
                work = Work::new(pace);
            }
        }
        if let Some(live) = store.upgrade() {
            live.variants.done(&looked_for);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_looked_for_together_and_never_too_many() {
        let variants = Variants::default();
        assert!(variants.add(b"/a", 1), "the first begins a thread");
        assert!(!variants.add(b"/a", 2) && !variants.add(b"/b", 3));
        let first = variants.next().expect("two of them");
        assert_eq!(first.changed.len(), 2);
        assert!(!variants.add(b"/b", 4), "changed again meanwhile");
        variants.done(&first);
        let second = variants.next().expect("that one");
        assert_eq!(second.changed.get(&b"/b"[..]), Some(&4));
        variants.done(&second);
        assert!(variants.next().is_none() && variants.lock().bytes == 0);
        assert!(!variants.any.load(Ordering::Relaxed));
        let long = vec![b'x'; TEXTS_MAX_BYTES];
        assert!(variants.add(&long, 5));
        let all = variants.next().expect("everything");
        assert_eq!((all.changed.len(), all.all_ns), (0, 5));
        variants.done(&all);
        assert!(variants.next().is_none());
    }
}
