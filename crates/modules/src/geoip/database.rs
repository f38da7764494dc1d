//! The databases that `geoip` and `geoip2` ask: files in memory, each once in the process, which may be read again
//! while they are asked.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use weir_core::generation::Generation;
use weir_core::logger::LogLevel;
use weir_core::os_text;
use weir_runtime::clock::wall_secs;
use weir_runtime::files::{self, Stamp};
use weir_script::mmdb::{Mmdb, MmdbError};

/// The largest that are sold have some hundred megabytes.
const FILE_MAX_BYTES: u64 = 2 << 30;

/// A file that the configuration names.
#[derive(Default)]
pub struct Source {
    pub path: PathBuf,
    /// How often it is looked at for another text; 0: never.
    pub interval_secs: u64,
    /// Put there by the build step.
    pub opened: OnceLock<Arc<Database>>,
}

/// Why a file cannot be used.
pub struct Unusable {
    pub why: String,
    /// It was read, and is something else.
    pub is_other: bool,
}

impl Source {
    /// Reads the file, unless the process has it.
    ///
    /// # Errors
    ///
    /// It cannot be read, or is none of these databases.
    pub fn open(&self) -> Result<(), Unusable> {
        let (file, stamp) = Held::get(&self.path)?;
        let now = wall_secs();
        let database = Database {
            path: self.path.clone(),
            interval_secs: self.interval_secs as i64,
            file: RwLock::new(file),
            stamp: Mutex::new(stamp),
            last_check: AtomicI64::new(now),
            last_change: AtomicI64::new(now),
            is_checking: AtomicBool::new(false),
        };
        // Only the build step opens it, once.
        let _ = self.opened.set(Arc::new(database));
        Ok(())
    }
}

/// A file that the process has read, as long as somebody uses it.
struct Held {
    path: PathBuf,
    stamp: Stamp,
    file: Weak<Mmdb>,
}

static HELD: Mutex<Vec<Held>> = Mutex::new(Vec::new());

impl Held {
    fn get(path: &Path) -> Result<(Arc<Mmdb>, Stamp), Unusable> {
        let stamp = stamp(path)?;
        let mut all = HELD.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|held| held.file.strong_count() > 0);
        let known = all.iter().find(|held| held.path == path && held.stamp == stamp);
        if let Some(file) = known.and_then(|held| held.file.upgrade()) {
            return Ok((file, stamp));
        }
        let text = files::read_at_most(path, FILE_MAX_BYTES).map_err(|e| cannot("read", &e))?;
        let file = Mmdb::new(text)
            .map_err(|e| Unusable { why: e.to_string(), is_other: e == MmdbError::NotOne })?;
        let file = Arc::new(file);
        all.push(Held { path: path.to_path_buf(), stamp, file: Arc::downgrade(&file) });
        Ok((file, stamp))
    }
}

fn stamp(path: &Path) -> Result<Stamp, Unusable> {
    let metadata = fs::metadata(path).map_err(|e| cannot("open", &e))?;
    match metadata.is_file() {
        true => Ok(Stamp::of(&metadata)),
        false => Err(Unusable { why: "it is no file".into(), is_other: false }),
    }
}

fn cannot(call: &str, e: &std::io::Error) -> Unusable {
    Unusable { why: format!("{call}() failed ({})", os_text(e)), is_other: false }
}

/// A file that is asked.
pub struct Database {
    path: PathBuf,
    interval_secs: i64,
    file: RwLock<Arc<Mmdb>>,
    stamp: Mutex<Stamp>,
    /// In seconds since 1970.
    last_check: AtomicI64,
    last_change: AtomicI64,
    is_checking: AtomicBool,
}

impl Database {
    /// Asks it as it is now. Where it is to be looked at again a thread does so, and this answer is the old one's.
    pub fn ask<T>(self: &Arc<Self>, generation: &Arc<Generation>, f: impl FnOnce(&Mmdb) -> T) -> T {
        if self.interval_secs > 0 {
            self.check(generation);
        }
        f(&self.file.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// When it was looked at last, in seconds since 1970.
    pub fn last_check(&self) -> i64 {
        self.last_check.load(Ordering::Relaxed)
    }

    /// When it was read, or of what time the file is that was read since; in seconds since 1970.
    pub fn last_change(&self) -> i64 {
        self.last_change.load(Ordering::Relaxed)
    }

    fn check(self: &Arc<Self>, generation: &Arc<Generation>) {
        let now = wall_secs();
        let is_due = now >= self.last_check().saturating_add(self.interval_secs);
        if !is_due || self.is_checking.swap(true, Ordering::Relaxed) {
            return;
        }
        self.last_check.store(now, Ordering::Relaxed);
        let (database, generation) = (Arc::clone(self), Arc::clone(generation));
        let thread = std::thread::Builder::new().name("geoip".into());
        let started = thread.spawn(move || {
            if let Some((level, text)) = database.read_again() {
                generation.error_log.log(level, None, text.as_bytes());
            }
            database.is_checking.store(false, Ordering::Relaxed);
        });
        if started.is_err() {
            self.is_checking.store(false, Ordering::Relaxed);
        }
    }

    /// Takes another text of the file, and keeps what there was if that cannot be used; what is to be logged of it.
    fn read_again(&self) -> Option<(LogLevel, String)> {
        let shown = self.path.display();
        let failed = |e: Unusable| {
            (LogLevel::Error, format!("MMDB_open(\"{shown}\") failed to reload - {}", e.why))
        };
        let mut known = self.stamp.lock().unwrap_or_else(PoisonError::into_inner);
        let found = match stamp(&self.path) {
            Ok(found) if found == *known => return None,
            Ok(_) => Held::get(&self.path),
            Err(e) => Err(e),
        };
        let (file, stamp) = match found {
            Ok(found) => found,
            Err(e) => return Some(failed(e)),
        };
        *known = stamp;
        self.last_change.store(stamp.mtime, Ordering::Relaxed);
        let old = std::mem::replace(
            &mut *self.file.write().unwrap_or_else(PoisonError::into_inner),
            file,
        );
        // A hundred megabytes are given back here, with nothing locked.
        drop(old);
        Some((LogLevel::Info, format!("Reload MMDB \"{shown}\"")))
    }
}
