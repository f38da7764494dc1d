//! The threads that keep a store in bounds and read what an earlier process left in it.
//!
//! They are started by the serving process alone, hold the store weakly, and end with it.

use crate::purger;
use crate::served::Evicted;
use crate::store::{blocks, Pace, Store};
use crate::warm;
use crate::zone::Kept;
use crate::{entry, Key};
use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;
use weir_runtime::{clock, files};

/// The longest rest of the manager.
const REST_MS: u64 = 10_000;
/// Temporary files that a killed process left behind are deleted when older than this.
const LEFTOVER_SECS: u64 = 3600;

/// What a thread has to say to the error log, with its level's name.
pub type Log = Arc<dyn Fn(&str, &str) + Send + Sync>;

/// Starts the store's threads unless they run already.
pub fn start(store: &Arc<Store>, log: &Log) -> std::io::Result<()> {
    if store.started.swap(true, Ordering::Relaxed) {
        return Ok(());
    }
    // What was purged before is not served from the first request on.
    store.resume_purges(log);
    let (weak, theirs) = (Arc::downgrade(store), Arc::clone(log));
    let manager = std::thread::Builder::new().name("cache manager".into());
    manager.spawn(move || manage(&weak, &theirs))?;
    let (weak, log) = (Arc::downgrade(store), Arc::clone(log));
    std::thread::Builder::new().name("cache loader".into()).spawn(move || load(&weak, &log))?;
    Ok(())
}

fn manage(store: &Weak<Store>, log: &Log) {
    loop {
        let Some(live) = store.upgrade() else { return };
        let rest = live.manage();
        live.resume_purges(log);
        live.note_memory_now_and_then(log);
        drop(live);
        std::thread::sleep(Duration::from_millis(rest.min(REST_MS)));
    }
}

/// Counts what was done, and says when to rest.
pub(crate) struct Work {
    pace: Pace,
    files: u64,
    begun_ms: u64,
}

impl Work {
    pub(crate) fn new(pace: Pace) -> Work {
        Work { pace, files: 0, begun_ms: clock::mono_ms() }
    }

    pub(crate) fn is_enough(&mut self) -> bool {
        self.files += 1;
        let took = clock::mono_ms().saturating_sub(self.begun_ms);
        self.files >= self.pace.files || took >= self.pace.threshold_ms
    }
}

impl Store {
    /// One round of the manager: what is inactive goes, then what is too much. Answers how long to
    /// rest, in ms.
    pub fn manage(&self) -> u64 {
        let params = self.params();
        let mut work = Work::new(params.manager);
        let rest_secs = loop {
            match self.zone.remove_oldest(Some(clock::mono_secs() as i64)) {
                Ok(removed) => self.delete(removed, Evicted::Inactive),
                // Nothing that comes now is inactive before that.
                Err(Kept::Empty) => break (params.inactive_secs as i64).clamp(1, 10),
                Err(Kept::For(secs)) => break secs.clamp(1, 10),
                Err(Kept::InUse) => break 1,
            }
            if work.is_enough() {
                return params.manager.sleep_ms;
            }
        };
        loop {
            let full = self.zone.file_bytes() >= params.max_bytes || self.zone.over_watermark();
            let tight = || {
                let min = params.min_free_bytes;
                min > 0 && files::free_bytes(&self.dir).is_ok_and(|free| free <= min)
            };
            if !full && !tight() {
                return rest_secs as u64 * 1000;
            }
            let why = if self.zone.over_watermark() { Evicted::Keys } else { Evicted::Size };
            match self.zone.remove_oldest(None) {
                Ok(removed) => self.delete(removed, why),
                Err(Kept::Empty | Kept::For(_)) => return rest_secs as u64 * 1000,
                Err(Kept::InUse) => return 1000,
            }
            if work.is_enough() {
                return params.manager.sleep_ms;
            }
        }
    }

    fn delete(&self, removed: crate::zone::Removed, why: Evicted) {
        self.zone.evictions.add(why);
        if removed.had_file {
            // Removed by hand: as wanted.
            let _ = std::fs::remove_file(self.path(&removed.key));
        }
    }
}

pub(crate) fn load(store: &Weak<Store>, log: &Log) {
    let hot = warm::begin(store, log);
    let Some(live) = store.upgrade() else { return };
    let dir = live.dir.clone();
    let mut work = Work::new(live.params().loader);
    drop(live);
    let whole = walk(&dir, &mut |path, metadata| {
        let Some(live) = store.upgrade() else { return false };
        live.take_in(path, metadata);
        if work.is_enough() {
            let pace = live.params().loader;
            drop(live);
            std::thread::sleep(Duration::from_millis(pace.sleep_ms));
            work = Work::new(pace);
        }
        true
    });
    let Some(live) = store.upgrade().filter(|_| whole) else { return };
    // Those that were found were taken for newer ones.
    hot.iter().rev().for_each(|key| live.zone.touch(key, live.expire_sec()));
    live.cold.store(false, Ordering::Relaxed);
    let mib = live.zone.file_bytes() as f64 / 1_048_576.0;
    log("notice", &format!("http file cache: {} {mib:.3}M, bsize: 4096", dir.display()));
}

impl Store {
    /// Takes a file into the zone, or removes what is none of ours.
    fn take_in(&self, path: &Path, metadata: &std::fs::Metadata) {
        let name = path.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
        if name == warm::NAME {
            return;
        }
        if is_temporary(&name) || warm::is_temporary(&name) {
            let age = metadata.modified().ok().and_then(|t| t.elapsed().ok());
            if age.is_some_and(|age| age.as_secs() > LEFTOVER_SECS) {
                let _ = std::fs::remove_file(path);
            }
            return;
        }
        let key = Key::from_hex(&name).filter(|_| metadata.len() >= entry::FIXED_BYTES as u64);
        let bytes = blocks(files::held_bytes(metadata));
        let taken = key.is_some_and(|key| self.zone.adopt(key, bytes, self.expire_sec()));
        if !taken {
            let _ = std::fs::remove_file(path);
        }
    }
}

/// A dot and ten digits behind the name.
fn is_temporary(name: &str) -> bool {
    name.len() == 32 + 11 && name.as_bytes()[32] == b'.'
}

pub(crate) fn key_of(path: &Path) -> Option<Key> {
    Key::from_hex(&path.file_name()?.to_string_lossy())
}

/// Visits every file below a directory until the visitor has enough; whether it saw all.
pub(crate) fn walk(dir: &Path, visit: &mut dyn FnMut(&Path, &std::fs::Metadata) -> bool) -> bool {
    let Ok(entries) = std::fs::read_dir(dir) else { return true };
    for entry in entries.flatten() {
        // Gone since the directory was read.
        let Ok(metadata) = entry.metadata() else { continue };
        let path = entry.path();
        let go_on = match metadata.is_dir() {
            true if path.ends_with("temp") || path.ends_with(purger::DIR) => true,
            true => walk(&path, visit),
            false => visit(&path, &metadata),
        };
        if !go_on {
            return false;
        }
    }
    true
}
