//! Files as the static modules see them: looked up, kept in memory when small, and checked again
//! by one `stat` per request (less often where `open_file_cache` says so).
//!
//! Difference from nginx: small files are answered from memory even without `open_file_cache`. The
//! same `stat` keeps the answer the file's own, and as hard to get: it asks the system for the way
//! through the directories, as `open` does, and the time of the last change (ctime) moves with the
//! text, the owner, the mode, access lists and labels, so that what has changed is opened again.

use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use weir_cache::memory::{charged, Budget};
use weir_core::forms::{Forms, Room};
use weir_http::conf::{CoreLoc, OpenFileCache};
use weir_http::symlinks::{metadata, Guard};
use weir_http::Request;
use weir_runtime::clock;
use weir_runtime::files::{look_up, Named, Stamp};
use weir_runtime::paths;

/// Files up to this size are kept in memory.
pub const MEMORY_MAX_BYTES: u64 = 64 * 1024;
/// Entries per half, for trees of very many small files.
const HALF_MAX_ENTRIES: usize = 16 * 1024;
/// What an entry costs besides its text.
const ENTRY_BYTES: usize = 256;

/// The kernel's clock for files moves in steps of up to 10 ms: a file that has changed this shortly
/// before it is looked at may change once more without a trace.
const SETTLED_MS: i128 = 20;

/// Whether a later change will show.
fn is_settled(stamp: &Stamp) -> bool {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let now_ms = now.map_or(0, |t| t.as_millis() as i128);
    (now_ms - stamp.changed_ms()).abs() > SETTLED_MS
}

/// nginx's entity tag: modification time and size.
fn etag(stamp: &Stamp) -> Vec<u8> {
    format!("\"{:x}-{:x}\"", stamp.mtime, stamp.size).into_bytes()
}

/// A regular file.
pub struct Entry {
    pub stamp: Stamp,
    pub etag: Vec<u8>,
    /// The whole content, when small enough.
    pub memory: Option<Bytes>,
    /// Kept open under `open_file_cache`.
    file: Option<Rc<File>>,
    pub forms: Arc<Forms>,
    /// Its stamp tells of every change since it was read.
    settled: bool,
    checked_ms: Cell<u64>,
    /// For `open_file_cache`: how often, and when last.
    uses: Cell<u64>,
    used_ms: Cell<u64>,
}

impl Entry {
    /// The same without its file, which is then closed after this use.
    fn closed(&self) -> Entry {
        Entry {
            stamp: self.stamp,
            etag: self.etag.clone(),
            memory: self.memory.clone(),
            file: None,
            forms: Arc::clone(&self.forms),
            settled: self.settled,
            checked_ms: self.checked_ms.clone(),
            uses: self.uses.clone(),
            used_ms: self.used_ms.clone(),
        }
    }

    fn cost(&self) -> usize {
        self.memory.as_ref().map_or(0, Bytes::len) + ENTRY_BYTES
    }

    /// The open file, for sending what is not in memory.
    pub fn open(&self, path: &[u8]) -> io::Result<Rc<File>> {
        match &self.file {
            Some(f) => Ok(Rc::clone(f)),
            None => File::open(paths::path(path)).map(Rc::new),
        }
    }
}

/// What a path names.
pub enum Found {
    File(Rc<Entry>),
    Directory,
    /// A device, a socket, a pipe.
    Other,
}

/// A remembered failure (`open_file_cache_errors`).
struct Failure {
    code: Option<i32>,
    kind: io::ErrorKind,
    at_ms: u64,
}

#[derive(Default)]
struct Half {
    entries: HashMap<Vec<u8>, Rc<Entry>, foldhash::fast::RandomState>,
    bytes: usize,
}

/// The memory of a worker's files (`open_file_memory`): their text and its compressed forms are
/// charged to it until the last holder lets go.
#[derive(Default)]
struct Memory {
    budget: Arc<Budget>,
    /// A compressed form has found no room.
    full: AtomicBool,
}

struct FormRoom(Arc<Memory>);

impl Room for FormRoom {
    fn keep(&self, form: &Bytes) -> Option<Bytes> {
        let charge = self.0.budget.charge(form.len() as u64);
        if charge.is_none() {
            self.0.full.store(true, Ordering::Relaxed);
        }
        Some(charged(form.to_vec(), charge?))
    }
}

/// A worker's files, in two halves: the older is dropped whole when room is needed.
#[derive(Default)]
pub struct FileCache {
    memory: Arc<Memory>,
    young: RefCell<Half>,
    old: RefCell<Half>,
    failures: RefCell<HashMap<Vec<u8>, Failure>>,
    /// Those of each `open_file_cache`, and its bounds.
    own: RefCell<Vec<(OpenFileCache, Rc<FileCache>)>>,
    swept_ms: Cell<u64>,
    /// Entries per half; 0 for the most there may be.
    most: Cell<usize>,
}

impl FileCache {
    /// Looks a path up for a request: from memory when it is unchanged, else from disk.
    pub fn find(&self, core: &CoreLoc, path: &[u8], guard: Option<Guard>) -> io::Result<Found> {
        self.memory.budget.set_limit(*core.open_file_memory);
        match (*core.open_file_cache, guard) {
            (None, None) => self.look(core, path, 0),
            (Some(bounds), None) => {
                let own = self.of(bounds);
                let now = clock::mono_ms();
                own.sweep(bounds, now);
                if let Some(found) = own.trusted(core, bounds, path, now) {
                    return found;
                }
                let found = own.look(core, path, now);
                if let Err(e) = &found {
                    own.remember_failure(core, bounds, path, e, now);
                }
                found
            }
            (_, Some(guard)) => self.look_guarded(path, guard),
        }
    }

    /// The files of one `open_file_cache`.
    fn of(&self, bounds: OpenFileCache) -> Rc<FileCache> {
        let mut own = self.own.borrow_mut();
        if let Some((_, cache)) = own.iter().find(|(b, _)| *b == bounds) {
            return Rc::clone(cache);
        }
        let memory = Arc::clone(&self.memory);
        let fresh = Rc::new(FileCache { memory, ..FileCache::default() });
        fresh.most.set(bounds.max.div_ceil(2).min(HALF_MAX_ENTRIES));
        own.push((bounds, Rc::clone(&fresh)));
        fresh
    }

    /// Forgets what has not been used for long.
    fn sweep(&self, bounds: OpenFileCache, now: u64) {
        let inactive_ms = bounds.inactive_secs * 1000;
        if now.saturating_sub(self.swept_ms.get()) < inactive_ms.max(1000) {
            return;
        }
        self.swept_ms.set(now);
        for half in [&self.young, &self.old] {
            let mut half = half.borrow_mut();
            half.entries.retain(|_, e| now.saturating_sub(e.used_ms.get()) <= inactive_ms);
            half.bytes = half.entries.iter().map(|(path, e)| e.cost() + path.len()).sum();
        }
    }

    /// What need not be looked at on disk.
    fn trusted(
        &self,
        core: &CoreLoc,
        bounds: OpenFileCache,
        path: &[u8],
        now: u64,
    ) -> Option<io::Result<Found>> {
        let valid_ms = *core.open_file_cache_valid * 1000;
        let Some(e) = self.lookup(path) else { return self.failed(path, now, valid_ms).map(Err) };
        if now.saturating_sub(e.used_ms.replace(now)) > bounds.inactive_secs * 1000 {
            e.uses.set(0);
        }
        e.uses.set(e.uses.get() + 1);
        let usable = e.memory.is_some() || e.file.is_some();
        let known = usable && e.uses.get() > *core.open_file_cache_min_uses;
        (known && now.saturating_sub(e.checked_ms.get()) < valid_ms).then(|| Ok(Found::File(e)))
    }

    /// Links in the path are refused: nothing of it is taken as known but a small file's text.
    fn look_guarded(&self, path: &[u8], guard: Guard) -> io::Result<Found> {
        let file = guard.open(path)?;
        let meta = file.metadata()?;
        if !meta.is_file() {
            return Ok(if meta.is_dir() { Found::Directory } else { Found::Other });
        }
        let stamp = Stamp::of(&meta);
        let same = |e: &Rc<Entry>| e.settled && e.stamp == stamp && e.memory.is_some();
        match self.lookup(path).filter(same) {
            Some(e) => Ok(Found::File(e)),
            None => self.take(file, &meta, 0, 0).map(Found::File),
        }
    }

    /// Looks a path up on disk; `now` is 0 without `open_file_cache`.
    fn look(&self, core: &CoreLoc, path: &[u8], now: u64) -> io::Result<Found> {
        let kept = self.lookup(path);
        let stamp = match look_up(&paths::path(path))? {
            Named::File(stamp) => stamp,
            Named::Directory => return Ok(Found::Directory),
            Named::Other => return Ok(Found::Other),
        };
        let uses = kept.as_ref().map_or(1, |e| e.uses.get());
        let usable = |e: &Rc<Entry>| e.settled && e.memory.is_some() || e.file.is_some();
        let same = kept.filter(|e| e.stamp == stamp && usable(e));
        if let Some(e) = same {
            e.checked_ms.set(now);
            return Ok(Found::File(e));
        }
        let file = File::open(paths::path(path))?;
        let meta = file.metadata()?;
        let e = self.take(file, &meta, now, uses)?;
        if now > 0 && e.memory.is_none() {
            match uses >= *core.open_file_cache_min_uses {
                true => self.insert(path, &e),
                false => self.insert(path, &Rc::new(e.closed())),
            }
        } else if now > 0 || e.memory.is_some() {
            self.insert(path, &e);
        }
        Ok(Found::File(e))
    }

    fn lookup(&self, path: &[u8]) -> Option<Rc<Entry>> {
        if let Some(e) = self.young.borrow().entries.get(path) {
            return Some(Rc::clone(e));
        }
        let e = self.old.borrow_mut().entries.remove(path)?;
        self.insert(path, &e);
        Some(e)
    }

    fn insert(&self, path: &[u8], e: &Rc<Entry>) {
        let most = match self.most.get() {
            0 => HALF_MAX_ENTRIES,
            most => most,
        };
        let mut young = self.young.borrow_mut();
        young.bytes += e.cost() + path.len();
        if let Some(replaced) = young.entries.insert(path.to_vec(), Rc::clone(e)) {
            young.bytes = young.bytes.saturating_sub(replaced.cost() + path.len());
        }
        // A quarter each for the text of both halves; the rest is for compressed forms.
        let half_bytes = self.memory.budget.limit() / 4;
        if young.bytes as u64 > half_bytes || young.entries.len() > most {
            *self.old.borrow_mut() = std::mem::take(&mut *young);
        }
    }

    /// Drops the older half, and the younger becomes it.
    fn make_room(&self) {
        *self.old.borrow_mut() = self.young.take();
    }

    /// A small file's text, if there is room for it.
    fn read(&self, file: &mut File, size: u64) -> io::Result<Option<Bytes>> {
        let budget = &self.memory.budget;
        if size > MEMORY_MAX_BYTES || size > budget.limit() / 4 {
            return Ok(None);
        }
        if self.memory.full.swap(false, Ordering::Relaxed) {
            self.make_room();
        }
        let charge = budget.charge(size).or_else(|| {
            self.make_room();
            budget.charge(size)
        });
        let Some(charge) = charge else { return Ok(None) };
        Ok(read_whole(file, size)?.map(|text| charged(text, charge)))
    }

    /// An open file as an entry; what is kept is what the descriptor says, not what the name said
    /// before.
    fn take(&self, mut file: File, meta: &Metadata, now: u64, uses: u64) -> io::Result<Rc<Entry>> {
        let stamp = Stamp::of(meta);
        let settled = is_settled(&stamp);
        let memory = self.read(&mut file, stamp.size)?;
        Ok(Rc::new(Entry {
            etag: etag(&stamp),
            stamp,
            settled,
            file: memory.is_none().then(|| Rc::new(file)),
            memory,
            forms: Arc::new(Forms::bounded(Box::new(FormRoom(Arc::clone(&self.memory))))),
            checked_ms: Cell::new(now),
            uses: Cell::new(uses),
            used_ms: Cell::new(now),
        }))
    }

    fn failed(&self, path: &[u8], now: u64, valid_ms: u64) -> Option<io::Error> {
        let failures = self.failures.borrow();
        let f = failures.get(path)?;
        if now.saturating_sub(f.at_ms) >= valid_ms {
            return None;
        }
        Some(match f.code {
            Some(code) => io::Error::from_raw_os_error(code),
            None => f.kind.into(),
        })
    }

    fn remember_failure(
        &self,
        core: &CoreLoc,
        bounds: OpenFileCache,
        path: &[u8],
        e: &io::Error,
        now: u64,
    ) {
        if !*core.open_file_cache_errors {
            return;
        }
        let mut failures = self.failures.borrow_mut();
        if failures.len() >= bounds.max {
            failures.clear();
        }
        let f = Failure { code: e.raw_os_error(), kind: e.kind(), at_ms: now };
        failures.insert(path.to_vec(), f);
    }
}

/// The content of a small file; `None` when it is not as long as its metadata say (it is being
/// written), so that it is sent from the file instead.
fn read_whole(file: &mut File, size: u64) -> io::Result<Option<Vec<u8>>> {
    let mut text = Vec::with_capacity(size as usize + 1);
    let got = file.take(size + 1).read_to_end(&mut text)?;
    Ok((got as u64 == size).then_some(text))
}

/// Whether a path exists, as a file or as a directory (`try_files`, `index`).
pub fn test(r: &mut Request, path: &[u8]) -> Option<bool> {
    metadata(r, path).ok().map(|m| m.is_dir())
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use weir_module::ConfType;

    #[test]
    fn text_and_compressed_forms_stay_within_the_bound() {
        const LIMIT: u64 = 40_000;
        let dir = std::env::temp_dir().join(format!("weir-files-{}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let cache = FileCache::default();
        let budget = &cache.memory.budget;
        budget.set_limit(LIMIT);
        let mut core = CoreLoc::default();
        core.open_file_memory.set(LIMIT);
        core.merge(&CoreLoc::default()).unwrap();
        let mut kept = 0;
        for round in 0..3 {
            for n in 0..50 {
                let path = dir.join(n.to_string());
                if round == 0 {
                    std::fs::write(&path, vec![b'x'; 1000 + n * 10]).unwrap();
                }
                let found = cache.find(&core, paths::bytes(&path), None).unwrap();
                let Found::File(e) = found else { panic!("{n} is a file") };
                assert_eq!(e.stamp.size, 1000 + n as u64 * 10);
                e.forms.keep(1, &Bytes::from(vec![n as u8; 700]));
                assert!(e.forms.find(1).is_none_or(|form| form == vec![n as u8; 700]));
                assert!(budget.used() <= LIMIT);
                kept = kept.max(budget.used());
            }
        }
        assert!(kept > LIMIT / 2, "{kept}");
        drop(cache.young.take());
        drop(cache.old.take());
        assert_eq!(budget.used(), 0);
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
