//! Files as the static modules see them: looked up, kept in memory when small, and checked again
//! by one `stat` per request (less often where `open_file_cache` says so).
//!
//! Difference from nginx: small files are answered from memory even without `open_file_cache`;
//! the check by modification time, size and inode keeps the answer the file's own.

use bytes::Bytes;
use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io::{self, Read};
use std::path::Path;
use std::rc::Rc;
use weir_http::conf::CoreLoc;
use weir_http::forms::Forms;
use weir_http::location::bytes_path;
use weir_runtime::clock;

/// Files up to this size are kept in memory.
pub const MEMORY_MAX_BYTES: u64 = 64 * 1024;
/// Memory for files per worker; two halves, of which the older is dropped whole.
const HALF_MAX_BYTES: usize = 32 * 1024 * 1024;
/// Entries per half, for trees of very many small files.
const HALF_MAX_ENTRIES: usize = 16 * 1024;
/// What an entry costs besides its text.
const ENTRY_BYTES: usize = 256;

/// What identifies a file's content.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Stamp {
    pub size: u64,
    pub mtime: i64,
    mtime_nsec: i64,
    inode: u64,
    device: u64,
}

impl Stamp {
    #[cfg(unix)]
    fn of(m: &Metadata) -> Stamp {
        use std::os::unix::fs::MetadataExt;
        Stamp {
            size: m.size(),
            mtime: m.mtime(),
            mtime_nsec: m.mtime_nsec(),
            inode: m.ino(),
            device: m.dev(),
        }
    }

    #[cfg(not(unix))]
    fn of(m: &Metadata) -> Stamp {
        let since = m.modified().ok().and_then(|t| t.duration_since(std::time::UNIX_EPOCH).ok());
        let since = since.unwrap_or_default();
        Stamp {
            size: m.len(),
            mtime: since.as_secs() as i64,
            mtime_nsec: i64::from(since.subsec_nanos()),
            inode: 0,
            device: 0,
        }
    }

    /// nginx's entity tag: modification time and size.
    fn etag(&self) -> Vec<u8> {
        format!("\"{:x}-{:x}\"", self.mtime, self.size).into_bytes()
    }
}

/// A regular file.
pub struct Entry {
    pub stamp: Stamp,
    pub etag: Vec<u8>,
    /// The whole content, when small enough.
    pub memory: Option<Bytes>,
    /// Kept open under `open_file_cache`.
    file: Option<Rc<File>>,
    pub forms: Rc<Forms>,
    checked_ms: Cell<u64>,
}

impl Entry {
    fn cost(&self) -> usize {
        self.memory.as_ref().map_or(0, Bytes::len) + self.forms.bytes() + ENTRY_BYTES
    }

    /// The open file, for sending what is not in memory.
    pub fn open(&self, path: &[u8]) -> io::Result<Rc<File>> {
        match &self.file {
            Some(f) => Ok(Rc::clone(f)),
            None => File::open(bytes_path(path)).map(Rc::new),
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

/// A worker's files.
#[derive(Default)]
pub struct FileCache {
    young: RefCell<Half>,
    old: RefCell<Half>,
    failures: RefCell<HashMap<Vec<u8>, Failure>>,
}

impl FileCache {
    /// Looks a path up for a request: from memory when it is unchanged, else from disk.
    pub fn find(&self, core: &CoreLoc, path: &[u8]) -> io::Result<Found> {
        let valid_ms = match core.open_file_cache.is_some() {
            true => *core.open_file_cache_valid * 1000,
            false => 0,
        };
        let now = if valid_ms > 0 { clock::mono_ms() } else { 0 };
        let kept = self.lookup(path);
        if let Some(e) = kept.as_ref().filter(|_| valid_ms > 0) {
            if now.saturating_sub(e.checked_ms.get()) < valid_ms {
                return Ok(Found::File(Rc::clone(e)));
            }
        }
        if valid_ms > 0 {
            if let Some(e) = self.failed(path, now, valid_ms) {
                return Err(e);
            }
        }
        let meta = match std::fs::metadata(bytes_path(path)) {
            Ok(m) => m,
            Err(e) => {
                self.remember_failure(core, path, &e, now);
                return Err(e);
            }
        };
        if meta.is_dir() {
            return Ok(Found::Directory);
        }
        if !meta.is_file() {
            return Ok(Found::Other);
        }
        let stamp = Stamp::of(&meta);
        if let Some(e) = kept.filter(|e| e.stamp == stamp) {
            e.checked_ms.set(now);
            return Ok(Found::File(e));
        }
        self.load(core, path, now).map(Found::File)
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
        let mut young = self.young.borrow_mut();
        young.bytes += e.cost() + path.len();
        if let Some(replaced) = young.entries.insert(path.to_vec(), Rc::clone(e)) {
            young.bytes = young.bytes.saturating_sub(replaced.cost() + path.len());
        }
        if young.bytes > HALF_MAX_BYTES || young.entries.len() > HALF_MAX_ENTRIES {
            *self.old.borrow_mut() = std::mem::take(&mut *young);
        }
    }

    /// Opens the file; what is kept is what the open descriptor says, not what the name said before.
    fn load(&self, core: &CoreLoc, path: &[u8], now: u64) -> io::Result<Rc<Entry>> {
        let mut file = File::open(bytes_path(path))?;
        let meta = file.metadata()?;
        let stamp = Stamp::of(&meta);
        let small = stamp.size <= MEMORY_MAX_BYTES;
        let memory = match small {
            true => read_whole(&mut file, stamp.size)?,
            false => None,
        };
        let keep_open = core.open_file_cache.is_some() && memory.is_none();
        let keep = memory.is_some() || keep_open;
        let e = Rc::new(Entry {
            etag: stamp.etag(),
            stamp,
            memory,
            file: Some(Rc::new(file)).filter(|_| keep_open || !small),
            forms: Rc::default(),
            checked_ms: Cell::new(now),
        });
        if keep {
            self.insert(path, &e);
        }
        Ok(e)
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

    fn remember_failure(&self, core: &CoreLoc, path: &[u8], e: &io::Error, now: u64) {
        let Some(cache) = *core.open_file_cache else { return };
        if !*core.open_file_cache_errors {
            return;
        }
        let mut failures = self.failures.borrow_mut();
        if failures.len() >= cache.max {
            failures.clear();
        }
        let f = Failure { code: e.raw_os_error(), kind: e.kind(), at_ms: now };
        failures.insert(path.to_vec(), f);
    }
}

/// The content of a small file; `None` when it is not as long as its metadata say (it is being
/// written), so that it is sent from the file instead.
fn read_whole(file: &mut File, size: u64) -> io::Result<Option<Bytes>> {
    let mut text = Vec::with_capacity(size as usize + 1);
    let got = file.take(size + 1).read_to_end(&mut text)?;
    Ok((got as u64 == size).then(|| Bytes::from(text)))
}

/// Whether a path exists, as a file or as a directory (`try_files`, `index`).
pub fn test(path: &[u8]) -> Option<bool> {
    std::fs::metadata(Path::new(&bytes_path(path))).ok().map(|m| m.is_dir())
}
