//! Servers that stand in a `state` file, over a reload: those in memory are newer than what a configuration has read of
//! the file, and requests of the configuration before may still change them. The newer upstream takes them over with
//! their numbers when it is made and once more when it begins to serve; from then on it is changed instead of the older
//! one. A file that somebody else has written counts as it was read.

use super::{Entry, Live, ALL};
use std::collections::VecDeque;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError, Weak};
use weir_base::crc32c::crc32c;

/// So many of the texts that a file has had are known again.
const TEXTS_MAX: usize = 4096;

pub(crate) struct StateFile {
    pub path: PathBuf,
    /// The check sum of what was read.
    read: u32,
    /// Those of what was read and written, by the configurations before, too.
    texts: Texts,
}

type Texts = Arc<Mutex<VecDeque<u32>>>;

impl StateFile {
    /// `text`: the check sum of what was read.
    pub(crate) fn new(path: PathBuf, text: u32) -> StateFile {
        StateFile { path, read: text, texts: Arc::new(Mutex::new(VecDeque::from([text]))) }
    }

    /// Such a text is about to be written.
    pub(super) fn writes(&self, text: &[u8]) {
        let mut texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        if texts.len() >= TEXTS_MAX {
            texts.pop_front();
        }
        texts.push_back(crc32c(text));
    }

    /// Whether what the other was read from is a text of this one's own.
    fn knows(&self, other: &StateFile) -> bool {
        let texts = self.texts.lock().unwrap_or_else(PoisonError::into_inner);
        self.path == other.path && texts.contains(&other.read)
    }
}

impl Live {
    /// Its servers and the next number, if the file is read as this one knows it; otherwise the number alone, so
    /// that none means another server than before.
    pub(super) fn kept_for(&self, state: &mut StateFile) -> (Option<Vec<Entry>>, u64) {
        let current = self.lock();
        let known = self.state.as_ref().filter(|own| own.knows(state));
        let entries = known.map(|own| {
            state.texts = Arc::clone(&own.texts);
            set_entries(&current.entries)
        });
        (entries, current.next_id)
    }

    /// It begins to serve: what has changed since it was made is taken over, and what changes comes here.
    pub(super) fn succeeds(self: &Arc<Self>) {
        let Some(state) = &self.state else { return };
        let before = {
            let all = ALL.lock().unwrap_or_else(PoisonError::into_inner);
            let own = all.iter().position(|l| std::ptr::eq(l.as_ptr(), Arc::as_ptr(self)));
            let older = all.iter().take(own.unwrap_or(0)).rev().filter_map(Weak::upgrade);
            let is_it = |l: &Arc<Live>| {
                l.state.as_ref().is_some_and(|s| s.path == state.path)
                    && super::zone_of(&l.plan) == super::zone_of(&self.plan)
            };
            older.filter(is_it).find(|l| l.lock().successor.is_none())
        };
        let Some(before) = before else { return };
        // The older one first, here and nowhere else both.
        let mut older = before.lock();
        let mut current = self.lock();
        if before.state.as_ref().is_some_and(|own| own.knows(state)) {
            let mut entries = set_entries(&older.entries);
            entries.extend(current.entries.iter().filter(|e| e.host.is_some()).cloned());
            current.next_id = current.next_id.max(older.next_id);
            self.publish(&mut current, entries);
        }
        older.successor = Some(Arc::clone(self));
    }
}

/// Those that come from no name.
fn set_entries(entries: &[Entry]) -> Vec<Entry> {
    entries.iter().filter(|e| e.host.is_none()).cloned().collect()
}
