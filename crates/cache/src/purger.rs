//! Wildcard purges whose files go little by little (`purger=on`): what a purge is about is never
//! served again from the moment it is known here, and a thread removes the files behind that.
//!
//! A purge that is answered is never forgotten: what it is about is written below [`DIR`] first, a file for each,
//! and that goes when the last entry has. A process that starts reads them before it serves; one that runs looks
//! for those of another that serves from the same directory. What cannot be read, or is more than is kept in mind,
//! is taken for a purge of everything: too much goes rather than too little.

use crate::entry::crc32;
use crate::manager::{Log, Work};
use crate::spool;
use crate::store::{Pace, Store, Stored};
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use weir_runtime::files;

/// Purges that are being done; each is a comparison for every hit.
const JOBS_MAX: usize = 64;
/// Below the store's directory.
pub(crate) const DIR: &str = "purges";
const MAGIC: [u8; 8] = *b"weirprg1";
/// In front of the prefix: mark, checksum, time.
const FIXED_BYTES: usize = 20;
/// A longer one is done at once.
const PREFIX_MAX_BYTES: usize = 8192;
/// Files looked at, at a time.
const FILES_MAX: usize = 1024;
/// For those of an earlier process, where the configuration has no purger any more.
const PACE: Pace = Pace { files: 10, sleep_ms: 50, threshold_ms: 50 };

/// Those of one store.
#[derive(Default)]
pub struct Purger {
    /// Whether there are any: all that a hit costs without them.
    any: AtomicBool,
    jobs: Mutex<Vec<Arc<Job>>>,
    /// Files that could not be removed, and are done.
    done: Mutex<Vec<OsString>>,
}

/// Everything whose key begins so and that was written until then.
struct Job {
    prefix: Box<[u8]>,
    at_ns: u64,
    /// Which files say so.
    files: Vec<OsString>,
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

    fn lock_done(&self) -> MutexGuard<'_, Vec<OsString>> {
        self.done.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Whether an answer is about to be removed.
    #[inline]
    pub(crate) fn reaches(&self, stored: &Stored) -> bool {
        self.any.load(Ordering::Acquire) && self.lock().iter().any(|job| job.reaches(stored))
    }

    fn has_room(&self) -> bool {
        self.lock().len() < JOBS_MAX
    }

    fn add(&self, job: &Arc<Job>) {
        self.lock().push(Arc::clone(job));
        self.any.store(true, Ordering::Release);
    }

    fn remove(&self, job: &Arc<Job>) {
        let mut jobs = self.lock();
        jobs.retain(|j| !Arc::ptr_eq(j, job));
        self.any.store(!jobs.is_empty(), Ordering::Release);
    }

    fn knows(&self, name: &OsString) -> bool {
        self.lock().iter().any(|job| job.files.contains(name)) || self.lock_done().contains(name)
    }
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

fn encode(prefix: &[u8], at_ns: u64) -> Vec<u8> {
    let rest = [&at_ns.to_le_bytes()[..], prefix].concat();
    [&MAGIC[..], &crc32(&rest).to_le_bytes(), &rest].concat()
}

/// Prefix and time; `None`: it is no such file.
fn decode(bytes: &[u8]) -> Option<(&[u8], u64)> {
    let (magic, rest) = bytes.split_first_chunk()?;
    let (sum, rest) = rest.split_first_chunk()?;
    let (at_ns, prefix) = rest.split_first_chunk()?;
    let is_good = *magic == MAGIC && u32::from_le_bytes(*sum) == crc32(rest);
    (is_good && prefix.len() <= PREFIX_MAX_BYTES).then_some((prefix, u64::from_le_bytes(*at_ns)))
}

/// Writes what a purge is about, so that it is there whatever happens from now on.
fn write(dir: &Path, prefix: &[u8], at_ns: u64) -> io::Result<OsString> {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let n = NEXT.fetch_add(1, Ordering::Relaxed);
    let name = format!("{at_ns:020}-{}-{n}", std::process::id());
    let path = dir.join(&name);
    let temp = path.with_extension("new");
    let mut file = spool::create_private(&temp)?;
    let written = file.write_all(&encode(prefix, at_ns)).and_then(|()| file.sync_all());
    if let Err(e) = written.and_then(|()| files::replace(&temp, &path)) {
        let _ = std::fs::remove_file(&temp);
        return Err(e);
    }
    // Where a directory cannot be synced, a crash of the system is what it always was.
    let _ = File::open(dir).and_then(|dir| dir.sync_all());
    Ok(name.into())
}

impl Store {
    fn purges(&self) -> PathBuf {
        self.dir.join(DIR)
    }

    /// Begins to remove every entry whose key text begins so; `false` when too much is being removed
    /// already, or it could not be written down.
    pub fn purge_slowly(self: &Arc<Self>, prefix: &[u8], pace: Pace) -> bool {
        if prefix.len() > PREFIX_MAX_BYTES || !self.purger.has_room() {
            return false;
        }
        let at_ns = now_ns();
        let Ok(name) = write(&self.purges(), prefix, at_ns) else { return false };
        let job = Arc::new(Job { prefix: prefix.into(), at_ns, files: vec![name] });
        self.purger.add(&job);
        let started = self.start_purge(&job, pace);
        if !started {
            self.end_purge(&job);
        }
        started
    }

    fn start_purge(self: &Arc<Self>, job: &Arc<Job>, pace: Pace) -> bool {
        let (weak, theirs) = (Arc::downgrade(self), Arc::clone(job));
        let thread = std::thread::Builder::new().name("cache purger".into());
        thread.spawn(move || run(&weak, &theirs, pace)).is_ok()
    }

    fn end_purge(&self, job: &Arc<Job>) {
        let dir = self.purges();
        for name in &job.files {
            match std::fs::remove_file(dir.join(name)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => {
                    self.purger.lock_done().push(name.clone());
                }
                _ => {}
            }
        }
        self.purger.remove(job);
    }

    /// Goes on with purges that are written down and that nobody here does: those of a process that has
    /// ended, or that serves from here too.
    pub fn resume_purges(self: &Arc<Self>, log: &Log) {
        // None was ever begun, as a rule.
        let Ok(entries) = std::fs::read_dir(self.purges()) else { return };
        let names: Vec<OsString> = entries
            .flatten()
            .map(|entry| entry.file_name())
            .filter(|name| !self.purger.knows(name))
            .take(FILES_MAX)
            .collect();
        let pace = self.params().purger.unwrap_or(PACE);
        let begin = |job: Job| {
            let job = Arc::new(job);
            self.purger.add(&job);
            // Without a thread it is not served either; the next process goes on.
            self.start_purge(&job, pace);
        };
        let (dir, now) = (self.dir.display(), now_ns());
        if self.purger.lock().len() + names.len() > JOBS_MAX {
            let text = "has more purges to finish than it can keep in mind: all that it has goes";
            log("warn", &format!("cache \"{dir}\" {text}"));
            return begin(Job { prefix: Box::default(), at_ns: now, files: names });
        }
        for name in names {
            let path = self.purges().join(&name);
            if is_unfinished(&path) {
                continue;
            }
            let mut text = Vec::new();
            let most = (FIXED_BYTES + PREFIX_MAX_BYTES + 1) as u64;
            let read = open_plain(&path).and_then(|file| file.take(most).read_to_end(&mut text));
            let job = match (read, decode(&text)) {
                (Err(e), _) if e.kind() == io::ErrorKind::NotFound => continue,
                (Ok(_), Some((prefix, at_ns))) => {
                    Job { prefix: prefix.into(), at_ns: at_ns.min(now), files: vec![name] }
                }
                _ => {
                    let text = "does not say what was purged: all that the cache has goes";
                    log("warn", &format!("\"{}\" {text}", path.display()));
                    Job { prefix: Box::default(), at_ns: now, files: vec![name] }
                }
            };
            begin(job);
        }
    }
}

/// A purge that was not answered: whoever wrote it has ended before, or is at it.
fn is_unfinished(path: &Path) -> bool {
    if path.extension().is_none_or(|e| e != "new") {
        return false;
    }
    let age = path.metadata().and_then(|m| m.modified()).ok().and_then(|t| t.elapsed().ok());
    if age.is_some_and(|age| age.as_secs() > 60) {
        let _ = std::fs::remove_file(path);
    }
    true
}

/// Nothing but a file is waited for.
pub(crate) fn open_plain(path: &Path) -> io::Result<File> {
    match std::fs::symlink_metadata(path)?.is_file() {
        true => File::open(path),
        false => Err(io::ErrorKind::InvalidInput.into()),
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
        live.end_purge(job);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read_and_nothing_else() {
        let text = encode(b"/a/", 7);
        assert_eq!(decode(&text), Some((&b"/a/"[..], 7)));
        assert_eq!(text.len(), FIXED_BYTES + 3);
        for at in 0..text.len() {
            let mut torn = text.clone();
            torn[at] ^= 1;
            assert_eq!(decode(&torn), None, "byte {at}");
            assert_eq!(decode(&text[..at]), None, "{at} bytes");
        }
        assert_eq!(decode(&encode(&[b'x'; PREFIX_MAX_BYTES + 1], 7)), None);
    }
}
