//! Entries that are no longer true, by their key texts: not served from the moment that is known, and removed by a
//! thread behind that. There is one thread and one walk at a time for a store, for all that has come together
//! meanwhile, and it rests longer than it works: clients can bring about as many as they like.

use crate::store::{Store, Stored};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Key texts that are kept in mind; behind that everything that varies goes.
const KEYS_MAX: usize = 1024;
const BYTES_MAX: usize = 1024 * 1024;
/// Files between two rests.
const FILES: usize = 32;
/// How much longer it rests than it has worked.
const REST: u32 = 4;

/// Those of one store.
#[derive(Default)]
pub(crate) struct Forgotten {
    /// Whether there are any: all that a hit costs without them.
    any: AtomicBool,
    list: Mutex<List>,
}

#[derive(Clone, Default)]
struct List {
    /// Until when what was written is meant.
    keys: BTreeMap<Box<[u8]>, u64>,
    bytes: usize,
    /// The same for all that varies.
    varying: Option<u64>,
    runs: bool,
}

impl List {
    fn add(&mut self, key_text: &[u8], at_ns: u64) {
        if let Some(at) = self.keys.get_mut(key_text) {
            *at = at_ns;
        } else if self.keys.len() < KEYS_MAX && self.bytes + key_text.len() <= BYTES_MAX {
            self.bytes += key_text.len();
            self.keys.insert(key_text.into(), at_ns);
        } else {
            self.varying = Some(at_ns);
        }
    }

    fn reaches(&self, stored: &Stored) -> bool {
        let written = stored.written_ns();
        let by_key = self.keys.get(&stored.key_text[..]).is_some_and(|at| written <= *at);
        by_key || !stored.meta.vary.is_empty() && self.varying.is_some_and(|at| written <= at)
    }

    /// What was there before a walk is done, unless it has come again.
    fn take_off(&mut self, done: &List) {
        self.keys.retain(|key, at| done.keys.get(key) != Some(at));
        self.bytes = self.keys.keys().map(|key| key.len()).sum();
        if self.varying == done.varying {
            self.varying = None;
        }
    }

    fn is_empty(&self) -> bool {
        self.keys.is_empty() && self.varying.is_none()
    }
}

impl Forgotten {
    fn lock(&self) -> MutexGuard<'_, List> {
        self.list.lock().unwrap_or_else(|e| e.into_inner())
    }

    #[inline]
    pub(crate) fn reaches(&self, stored: &Stored) -> bool {
        self.any.load(Ordering::Acquire) && self.lock().reaches(stored)
    }
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

impl Store {
    /// Nothing of this key text that has been written is served any more; its files go behind that.
    pub fn forget(self: &Arc<Self>, key_text: &[u8]) {
        let mut list = self.forgotten.lock();
        list.add(key_text, now_ns());
        self.forgotten.any.store(true, Ordering::Release);
        if list.runs {
            return;
        }
        let weak = Arc::downgrade(self);
        let thread = std::thread::Builder::new().name("cache forgets".into());
        // Without a thread nothing of it is served either, and the next one tries again.
        list.runs = thread.spawn(move || run(&weak)).is_ok();
    }

    /// What is to be removed now; `None`: nothing more, and the thread ends.
    fn to_forget(&self) -> Option<List> {
        let mut list = self.forgotten.lock();
        if list.is_empty() {
            list.runs = false;
            self.forgotten.any.store(false, Ordering::Release);
            return None;
        }
        Some(list.clone())
    }
}

fn run(store: &Weak<Store>) {
    while let Some(live) = store.upgrade() {
        let Some(list) = live.to_forget() else { return };
        let mut began = Instant::now();
        let keys = live.all_keys();
        drop(live);
        for some in keys.chunks(FILES) {
            // What was begun with counts for the rest too: to read the directory is the greater part.
            std::thread::sleep(began.elapsed() * REST);
            began = Instant::now();
            let Some(live) = store.upgrade() else { return };
            some.iter().for_each(|key| live.purge_if(key, |stored| list.reaches(stored)));
        }
        if let Some(live) = store.upgrade() {
            live.forgotten.lock().take_off(&list);
        }
        // Short walks are not to follow each other without end.
        std::thread::sleep((began.elapsed() * REST).max(Duration::from_millis(20)));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_list_is_bounded_and_loses_nothing() {
        let mut list = List::default();
        for n in 0..KEYS_MAX {
            list.add(n.to_string().as_bytes(), 1);
        }
        assert!(list.varying.is_none());
        let done = list.clone();
        list.add(b"0", 2);
        list.add(b"more", 3);
        assert_eq!((list.keys.len(), list.varying), (KEYS_MAX, Some(3)));
        list.take_off(&done);
        assert_eq!((list.keys.len(), list.bytes, list.varying), (1, 1, Some(3)));
        list.take_off(&list.clone());
        assert!(list.is_empty());
        list.add(&vec![b'x'; BYTES_MAX + 1], 4);
        assert_eq!((list.keys.len(), list.varying), (0, Some(4)));
    }
}
