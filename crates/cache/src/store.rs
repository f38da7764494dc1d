//! One store: the zone, the memory tier and the files under one directory.

use crate::entry::{self, Bad, Meta};
use crate::fills::{Filling, Fills};
use crate::forgotten::Forgotten;
use crate::memory::{charged, Budget, Charge};
use crate::parts::Parts;
use crate::purger::Purger;
use crate::served::{ByStatus, Evictions};
use crate::spool::{self, Spool};
use crate::warm::Warm;
use crate::zone::{self, Found, Handle, Removed, Zone};
use crate::Key;
use bytes::Bytes;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::UNIX_EPOCH;
use weir_core::counts::{Counted, Near};
use weir_core::forms::{Forms, Room};
use weir_core::Worker;
use weir_runtime::files::Identity;
use weir_runtime::{clock, files};
use weir_wire::http1::response::ResponseHead;

/// Read at first from a file; most headers fit.
const FIRST_READ_BYTES: usize = 4096;
/// Longer bodies are sent from their files.
pub const BODY_MAX_BYTES: u64 = 256 * 1024;
/// What a copy in memory costs besides its texts: itself, its metadata, its parsed head.
const COPY_BYTES: u64 = 1024;
/// A copy in memory is compared with its file when it has not been for so long.
const CHECK_MS: u64 = 1000;
/// Sizes of files are counted in blocks of this.
const BLOCK_BYTES: u64 = 4096;

/// Parameters of a store that a reload may change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Params {
    pub use_temp_path: bool,
    pub inactive_secs: u64,
    pub max_bytes: u64,
    pub min_free_bytes: u64,
    pub memory_bytes: u64,
    pub manager: Pace,
    pub loader: Pace,
    /// How fast the files of a wildcard purge go; without it they go at once.
    pub purger: Option<Pace>,
}

/// How much a background thread does before it rests.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    pub files: u64,
    pub sleep_ms: u64,
    pub threshold_ms: u64,
}

/// Where the body is.
pub enum Body {
    Memory(Bytes),
    File { file: Arc<File>, start: u64 },
}

/// A stored answer, opened.
pub struct Stored {
    pub meta: Meta,
    pub key_text: Bytes,
    /// The answer's head as its server sent it.
    pub head: Bytes,
    /// The head as read, once somebody has.
    pub parsed: OnceLock<ResponseHead>,
    pub body: Body,
    pub body_len: u64,
    /// What of the body is there, where that is not all.
    pub parts: Option<Parts>,
    pub forms: Arc<Forms>,
    stamp: Stamp,
    checked_ms: AtomicU64,
}

impl Stored {
    /// When its file was written, in nanoseconds of Unix time.
    pub(crate) fn written_ns(&self) -> u64 {
        self.parts.as_ref().map_or(self.stamp.written_ns, |parts| parts.begun_ns)
    }

    /// Whether its file is this one.
    pub(crate) fn is_in(&self, file: &File) -> bool {
        let Body::File { file: own, .. } = &self.body else { return false };
        matches!((Identity::of_open(own), Identity::of_open(file)), (Ok(a), Ok(b)) if a == b)
    }

    /// What a copy in memory takes.
    fn memory_bytes(&self) -> u64 {
        self.body_len + (self.head.len() + self.key_text.len()) as u64 + COPY_BYTES
    }

    /// What its file takes.
    fn file_bytes(&self) -> u64 {
        match (&self.parts, &self.body) {
            (Some(parts), Body::File { start, .. }) => start + parts.bytes(),
            _ => self.stamp.len,
        }
    }
}

impl std::fmt::Debug for Stored {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Stored({:?}, {} bytes)", self.meta, self.body_len)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct Stamp {
    inode: u64,
    len: u64,
    /// When the file was written last, as found when it was opened.
    written_ns: u64,
}

/// Two stamps are of the same file; one that was renewed in place since is.
impl PartialEq for Stamp {
    fn eq(&self, other: &Stamp) -> bool {
        (self.inode, self.len) == (other.inode, other.len)
    }
}

impl Stamp {
    fn of(m: &std::fs::Metadata) -> Stamp {
        let since = m.modified().ok().and_then(|t| t.duration_since(UNIX_EPOCH).ok());
        let written_ns = since.map_or(0, |t| u64::try_from(t.as_nanos()).unwrap_or(u64::MAX));
        Stamp { inode: Identity::of(m).inode(), len: m.len(), written_ns }
    }
}

/// What opening an entry gave.
#[derive(Debug)]
pub enum Opened {
    Fresh(Arc<Stored>),
    /// Its time is over; whether somebody else is renewing it.
    Stale {
        stored: Arc<Stored>,
        elsewhere: bool,
    },
    Error(u16),
    /// Parts of it are there, fresh or not; only for who takes them.
    Incomplete(Arc<Stored>),
    /// Not asked for often enough to be kept.
    Scarce,
    Missing,
}

/// How to open.
pub struct Request<'a> {
    pub key: Key,
    pub key_text: &'a [u8],
    pub min_uses: u32,
    /// Parts of an answer will do.
    pub parts: bool,
    /// The variant that the request's own fields make of these names.
    pub variant: &'a dyn Fn(&[u8]) -> Key,
    /// Told what nginx would log, with its level's name.
    pub log: &'a dyn Fn(&str, &str),
}

pub struct Store {
    pub name: Vec<u8>,
    pub dir: PathBuf,
    pub levels: [u8; 3],
    pub zone: Arc<Zone>,
    pub budget: Arc<Budget>,
    pub fills: Arc<Fills>,
    /// What its answers are counted in.
    pub served: Near<ByStatus>,
    evicted: Arc<Counted<Evictions>>,
    pub(crate) purger: Purger,
    pub(crate) forgotten: Forgotten,
    pub(crate) warm: Warm,
    /// Of the zone.
    size: u64,
    params: Mutex<Arc<Params>>,
    pub(crate) inactive_secs: AtomicI64,
    /// The loader is not through: what the zone does not know may be on disk.
    pub(crate) cold: AtomicBool,
    pub(crate) started: AtomicBool,
}

impl Store {
    pub fn new(name: &[u8], size: u64, dir: &Path, levels: [u8; 3], params: Params) -> Store {
        let evicted = Counted::<Evictions>::named("cache evictions", name);
        let mut zone = Zone::new(size);
        zone.evictions = evicted.part(0);
        Store {
            evicted,
            size,
            name: name.to_vec(),
            dir: dir.to_path_buf(),
            levels,
            zone: Arc::new(zone),
            budget: Arc::new(Budget::new(params.memory_bytes)),
            fills: Arc::default(),
            served: Near::named("cache", name),
            purger: Purger::default(),
            forgotten: Forgotten::default(),
            warm: Warm::default(),
            inactive_secs: AtomicI64::new(params.inactive_secs as i64),
            params: Mutex::new(Arc::new(params)),
            cold: AtomicBool::new(true),
            started: AtomicBool::new(false),
        }
    }

    /// How many had to go, for the reason of that number in [`crate::served::EVICTED`].
    pub fn evicted(&self, n: usize) -> u64 {
        self.evicted.sum(|part| part.get(n))
    }

    /// A request has waited so long for another that fills an entry.
    pub fn waited(&self, worker: &Worker, ms: u64) {
        if let Some(part) = self.served.part(worker) {
            part.lock_waits.add(ms.saturating_mul(1000));
        }
    }

    /// What the keys take of the zone, and what it was given.
    pub fn key_bytes(&self) -> (u64, u64) {
        (self.zone.entries() as u64 * zone::ENTRY_BYTES, self.size)
    }

    pub fn params(&self) -> Arc<Params> {
        Arc::clone(&self.params.lock().unwrap_or_else(|e| e.into_inner()))
    }

    /// Takes a new generation's parameters.
    pub fn set_params(&self, params: &Params) {
        self.budget.set_limit(params.memory_bytes);
        self.inactive_secs.store(params.inactive_secs as i64, Ordering::Relaxed);
        *self.params.lock().unwrap_or_else(|e| e.into_inner()) = Arc::new(params.clone());
        while self.budget.used() > self.budget.limit() && self.zone.evict_memory().is_some() {}
    }

    pub fn is_cold(&self) -> bool {
        self.cold.load(Ordering::Relaxed)
    }

    pub fn path(&self, key: &Key) -> PathBuf {
        key.path(&self.dir, &self.levels)
    }

    /// When what is used now is inactive, by the monotonic clock: a wall clock that is set must not
    /// empty the cache.
    pub(crate) fn expire_sec(&self) -> i64 {
        clock::mono_secs() as i64 + self.inactive_secs.load(Ordering::Relaxed)
    }

    /// A fresh answer from memory, if there is one: the hot path.
    pub fn hit(&self, r: &Request) -> Option<(Key, Arc<Stored>)> {
        let now = clock::wall_secs();
        let mut key = r.key;
        let mut stored = self.zone.memory(&key, self.expire_sec())?;
        if !stored.meta.vary.is_empty() {
            let variant = (r.variant)(&stored.meta.vary);
            if stored.meta.variant != Some(variant) {
                key = variant;
                stored = self.zone.memory(&key, self.expire_sec())?;
                if stored.meta.variant != Some(variant) {
                    return None;
                }
            }
        }
        let good = stored.meta.valid_sec >= now
            && stored.key_text == r.key_text
            && !self.is_going(&stored);
        (good && self.is_true(&key, &stored)).then_some((key, stored))
    }

    /// Whether a copy in memory still is what its file says.
    fn is_true(&self, key: &Key, stored: &Arc<Stored>) -> bool {
        let (now, checked) = (clock::mono_ms(), stored.checked_ms.load(Ordering::Relaxed));
        if checked > 0 && now.saturating_sub(checked) < CHECK_MS {
            return true;
        }
        let same = std::fs::metadata(self.path(key)).is_ok_and(|m| Stamp::of(&m) == stored.stamp);
        match same {
            true => stored.checked_ms.store(now, Ordering::Relaxed),
            false => self.zone.drop_memory(key, stored),
        }
        same
    }

    /// Opens an entry, or one of its variants, and takes a place in it.
    pub fn open(&self, r: &Request) -> io::Result<(Opened, Option<Handle>)> {
        let main = self.open_one(r, r.key, false)?;
        let (stored, variant) = match main {
            One::Is(opened, handle) => return Ok((opened, handle)),
            One::Varies(stored, variant) => (stored, variant),
        };
        drop(stored);
        match self.open_one(r, variant, true)? {
            One::Is(opened, handle) => Ok((opened, handle)),
            One::Varies(..) => Ok((Opened::Missing, None)),
        }
    }

    /// A place in an entry that is to be filled whatever it holds.
    pub fn enter(&self, key: Key, min_uses: u32) -> Option<Handle> {
        let now = clock::wall_secs();
        let mut room = |removed: Removed| self.remove_file(removed);
        let entered = self.zone.enter(key, min_uses, now, self.expire_sec(), &mut room);
        entered.map(|(handle, _)| handle)
    }

    fn remove_file(&self, removed: Removed) {
        if removed.had_file {
            // Gone already: as wanted.
            let _ = std::fs::remove_file(self.path(&removed.key));
        }
    }

    fn open_one(&self, r: &Request, key: Key, secondary: bool) -> io::Result<One> {
        let now = clock::wall_secs();
        let mut room = |removed: Removed| self.remove_file(removed);
        let expire = self.expire_sec();
        let Some((mut handle, found)) = self.zone.enter(key, r.min_uses, now, expire, &mut room)
        else {
            let zone = String::from_utf8_lossy(&self.name).into_owned();
            (r.log)("alert", &format!("could not allocate node in cache keys zone \"{zone}\""));
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let (look, scarce, memory) = match found {
            Found::Error(status) => return Ok(One::Is(Opened::Error(status), Some(handle))),
            Found::TooFew => return Ok(One::Is(Opened::Scarce, Some(handle))),
            Found::Known { exists, memory } => (exists, false, memory),
            Found::Fresh => (self.is_cold(), r.min_uses > 1, None),
        };
        let stored = match look {
            true => self.look(r, &key, &handle, memory)?,
            false => None,
        };
        let purged = stored.as_ref().is_some_and(|stored| self.is_going(stored));
        if purged {
            handle.lost_file();
        }
        let Some(stored) = stored.filter(|_| !purged) else {
            let opened = if scarce { Opened::Scarce } else { Opened::Missing };
            return Ok(One::Is(opened, Some(handle)));
        };
        if !stored.meta.vary.is_empty() {
            let variant = (r.variant)(&stored.meta.vary);
            if stored.meta.variant != Some(variant) {
                if secondary {
                    let path = self.path(&key).display().to_string();
                    (r.log)("crit", &format!("cache file \"{path}\" has incorrect vary hash"));
                    return Ok(One::Is(Opened::Missing, Some(handle)));
                }
                return Ok(One::Varies(stored, variant));
            }
        }
        if stored.parts.is_some() {
            let opened = if r.parts { Opened::Incomplete(stored) } else { Opened::Missing };
            return Ok(One::Is(opened, Some(handle)));
        }
        let opened = match stored.meta.valid_sec < now {
            true => Opened::Stale { elsewhere: !handle.begin_update(), stored },
            false => Opened::Fresh(stored),
        };
        Ok(One::Is(opened, Some(handle)))
    }

    /// The entry's copy in memory, or its file.
    fn look(
        &self,
        r: &Request,
        key: &Key,
        handle: &Handle,
        memory: Option<Arc<Stored>>,
    ) -> io::Result<Option<Arc<Stored>>> {
        if let Some(stored) = memory.filter(|m| self.is_true(key, m)) {
            return Ok((stored.key_text == r.key_text).then_some(stored));
        }
        let path = self.path(key);
        match read(&path) {
            Ok(Ok(mut stored)) if stored.key_text == r.key_text => {
                handle.found_file(blocks(stored.file_bytes()));
                self.to_memory(&mut stored)?;
                let stored = Arc::new(stored);
                if matches!(stored.body, Body::Memory(_)) {
                    self.zone.keep_memory(key, Arc::clone(&stored), None);
                }
                Ok(Some(stored))
            }
            Ok(Ok(_)) => {
                let text = format!("cache file \"{}\" has md5 collision", path.display());
                (r.log)("crit", &text);
                Ok(None)
            }
            Ok(Err(bad)) => {
                let level = if bad == Bad::Version { "info" } else { "crit" };
                (r.log)(level, &format!("cache file \"{}\" {}", path.display(), bad.words()));
                handle.lost_file();
                let _ = std::fs::remove_file(&path);
                Ok(None)
            }
            Err(e)
                if matches!(e.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) =>
            {
                handle.lost_file();
                Ok(None)
            }
            Err(e) => {
                (r.log)("crit", &format!("open() \"{}\" failed ({e})", path.display()));
                Err(e)
            }
        }
    }

    /// Reads the body into memory when it is small and there is room for it.
    fn to_memory(&self, stored: &mut Stored) -> io::Result<()> {
        if stored.body_len > BODY_MAX_BYTES || stored.parts.is_some() {
            return Ok(());
        }
        match self.charge(stored.memory_bytes()) {
            Some(charge) => self.take_body(stored, charge),
            None => Ok(()),
        }
    }

    fn take_body(&self, stored: &mut Stored, charge: Charge) -> io::Result<()> {
        let Body::File { file, start } = &stored.body else { return Ok(()) };
        let mut text = vec![0; stored.body_len as usize];
        files::read_exact_at(file, &mut text, *start)?;
        stored.body = Body::Memory(charged(text, charge));
        stored.forms = self.forms();
        Ok(())
    }

    /// Reads an entry into memory as long as that is free; whether there may be room for more.
    pub(crate) fn warm_up(&self, key: &Key) -> io::Result<bool> {
        let path = self.path(key);
        let Ok(mut stored) = read(&path)? else { return Ok(true) };
        let fits = stored.body_len <= BODY_MAX_BYTES && stored.parts.is_none();
        if !fits || stored.meta.valid_sec < clock::wall_secs() || self.is_going(&stored) {
            return Ok(true);
        }
        let Some(charge) = self.budget.charge(stored.memory_bytes()) else { return Ok(false) };
        let bytes = blocks(stored.stamp.len);
        self.take_body(&mut stored, charge)?;
        if !self.zone.adopt(*key, bytes, self.expire_sec()) {
            return Ok(false);
        }
        self.zone.keep_memory_last(key, Arc::new(stored));
        Ok(true)
    }

    /// Room in the memory tier, for which copies that were not used for longest may have to go.
    fn charge(&self, bytes: u64) -> Option<Charge> {
        charge(&self.budget, &self.zone, bytes)
    }

    fn forms(&self) -> Arc<Forms> {
        let room = FormRoom { budget: Arc::clone(&self.budget), zone: Arc::clone(&self.zone) };
        Arc::new(Forms::bounded(Box::new(room)))
    }

    /// Completes an entry: the header gets the body's length, the file its name. Nothing is kept of
    /// what has been purged meanwhile.
    pub fn commit(
        &self,
        handle: Handle,
        meta: Meta,
        filling: &Filling,
        head: &[u8],
        mut spool: Spool,
    ) -> io::Result<()> {
        if filling.is_purged() {
            return Ok(());
        }
        let (key, key_text) = (handle.key(), filling.key_text());
        let body_len = spool.written;
        let header = entry::encode(&meta, key_text, head, body_len);
        spool.set_head(&header)?;
        let small = spool.body_in_memory().map(<[u8]>::to_vec);
        let path = self.path(&key);
        let file = spool.rename(&path, |_| Ok(()))?;
        let stamp = Stamp::of(&file.metadata()?);
        let cost = body_len + (head.len() + key_text.len()) as u64 + COPY_BYTES;
        let memory = small.and_then(|text| {
            let charge = self.charge(cost)?;
            Some(Arc::new(Stored {
                meta,
                key_text: Bytes::copy_from_slice(key_text),
                head: Bytes::copy_from_slice(head),
                parsed: OnceLock::new(),
                body: Body::Memory(charged(text, charge)),
                body_len,
                parts: None,
                forms: self.forms(),
                stamp,
                checked_ms: AtomicU64::new(clock::mono_ms()),
            }))
        });
        handle.filled(blocks(stamp.len), memory);
        // A purge that came before the file had its name has not found it.
        if filling.is_purged() {
            self.purge(&key);
        }
        Ok(())
    }

    /// A temporary file beside the entry's own.
    pub fn temp_beside(&self, key: &Key) -> spool::MakeTemp {
        let path = self.path(key);
        Box::new(move || {
            let temp = spool::beside(&path);
            Ok((spool::create_private(&temp)?, temp))
        })
    }

    /// New times for an entry whose server has confirmed it. The file is changed in place, unless it
    /// is not the one that was opened.
    pub fn renew(&self, key: &Key, stored: &Arc<Stored>, meta: Meta) -> io::Result<()> {
        let path = self.path(key);
        let file = match File::options().read(true).write(true).open(&path) {
            Ok(file) => file,
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) => return Err(e),
        };
        let is_ours = Stamp::of(&file.metadata()?) == stored.stamp && stored.parts.is_none();
        if !is_ours || self.is_going(stored) {
            return Ok(());
        }
        let header = entry::encode(&meta, &stored.key_text, &stored.head, stored.body_len);
        files::write_all_at(&file, &header, 0)?;
        if let Body::Memory(text) = &stored.body {
            let fresh = Arc::new(Stored {
                meta,
                key_text: stored.key_text.clone(),
                head: stored.head.clone(),
                parsed: stored.parsed.clone(),
                body: Body::Memory(text.clone()),
                body_len: stored.body_len,
                parts: None,
                forms: Arc::clone(&stored.forms),
                stamp: stored.stamp,
                checked_ms: AtomicU64::new(clock::mono_ms()),
            });
            self.zone.keep_memory(key, fresh, Some(stored));
        }
        // A purge that came meanwhile takes the file for a new one.
        if self.is_going(stored) {
            self.purge(key);
        }
        Ok(())
    }

    /// Another head and other times for an entry whose server has confirmed it, and what it is now. `pad` makes a
    /// head as long as the file has room for; where it cannot, the file is written anew, and goes if its body is
    /// too long for that.
    pub fn refresh(
        &self,
        key: &Key,
        stored: &Arc<Stored>,
        meta: Meta,
        head: Vec<u8>,
        pad: fn(Vec<u8>, usize) -> Option<Vec<u8>>,
    ) -> io::Result<Arc<Stored>> {
        let texts = |meta: &Meta| entry::header_len(meta, &stored.key_text, &[]);
        let whole = texts(&stored.meta) + stored.head.len();
        let padded = whole.checked_sub(texts(&meta)).and_then(|len| pad(head.clone(), len));
        let fits = padded.is_some();
        let head = Bytes::from(padded.unwrap_or(head));
        let path = self.path(key);
        let mut stamp = stored.stamp;
        let header = entry::encode(&meta, &stored.key_text, &head, stored.body_len);
        let opened = File::options().read(true).write(true).open(&path);
        let is_ours = match &opened {
            Ok(file) => Stamp::of(&file.metadata()?) == stored.stamp,
            Err(_) => false,
        } && stored.parts.is_none()
            && !self.is_going(stored);
        match (&stored.body, opened) {
            (_, Ok(file)) if is_ours && fits => files::write_all_at(&file, &header, 0)?,
            (Body::Memory(text), Ok(file)) if is_ours => {
                // Nothing takes the place of an open file there where renaming is Windows' old one.
                drop(file);
                let mut spool = Spool::new(header, self.temp_beside(key));
                spool.write(text)?;
                stamp = Stamp::of(&spool.rename(&path, |_| Ok(()))?.metadata()?);
            }
            (Body::File { .. }, Ok(_)) if is_ours => drop(self.purge(key)),
            _ => {}
        }
        let body = match &stored.body {
            Body::Memory(text) => Body::Memory(text.clone()),
            Body::File { file, start } => Body::File { file: Arc::clone(file), start: *start },
        };
        let new = Arc::new(Stored {
            meta,
            key_text: stored.key_text.clone(),
            head,
            parsed: OnceLock::new(),
            body,
            body_len: stored.body_len,
            parts: stored.parts.clone(),
            forms: Arc::clone(&stored.forms),
            stamp,
            checked_ms: AtomicU64::new(clock::mono_ms()),
        });
        if is_ours && matches!(new.body, Body::Memory(_)) {
            self.zone.keep_memory(key, Arc::clone(&new), Some(stored));
        }
        if self.is_going(stored) {
            self.purge(key);
        }
        Ok(new)
    }

    /// Removes an entry; whether there was one. Its variants are found by [`Store::purge_matching`].
    pub fn purge(&self, key: &Key) -> bool {
        let known = self.zone.purge(key);
        let removed = std::fs::remove_file(self.path(key)).is_ok();
        if removed {
            // Whoever has read the file meanwhile has made it known again.
            self.zone.purge(key);
        }
        removed || known
    }

    /// Whether an answer is about to be removed.
    #[inline]
    pub(crate) fn is_going(&self, stored: &Stored) -> bool {
        self.purger.reaches(stored) || self.forgotten.reaches(stored)
    }

    /// Whether an entry has variants, as far as its file tells.
    pub fn varies(&self, key: &Key) -> bool {
        read(&self.path(key)).is_ok_and(|s| s.is_ok_and(|s| !s.meta.vary.is_empty()))
    }

    /// Removes every entry whose key text is wanted; reads all headers, so not on a worker. Answers
    /// how many there were.
    pub fn purge_matching(&self, wanted: impl Fn(&[u8]) -> bool) -> usize {
        let hit =
            |key: &&Key| read(&self.path(key)).is_ok_and(|s| s.is_ok_and(|s| wanted(&s.key_text)));
        self.all_keys().iter().filter(hit).filter(|key| self.purge(key)).count()
    }

    /// Removes every entry; not on a worker. Answers how many there were.
    pub fn purge_all(&self) -> usize {
        self.all_keys().iter().filter(|key| self.purge(key)).count()
    }

    /// The keys of all files, also of those that the loader has not come to, or that another process (an upgrade's)
    /// has written: the next one to start finds them.
    pub(crate) fn all_keys(&self) -> Vec<Key> {
        let mut keys = self.zone.keys();
        crate::manager::walk(&self.dir, &mut |path, _| {
            keys.extend(crate::manager::key_of(path));
            true
        });
        keys.sort();
        keys.dedup();
        keys
    }

    /// Removes an entry if its file's text and age are what a purge was about.
    pub(crate) fn purge_if(&self, key: &Key, wanted: impl Fn(&Stored) -> bool) {
        if read(&self.path(key)).is_ok_and(|s| s.is_ok_and(|s| wanted(&s))) {
            self.purge(key);
        }
    }
}

enum One {
    Is(Opened, Option<Handle>),
    /// Another variant of it is wanted.
    Varies(Arc<Stored>, Key),
}

fn charge(budget: &Arc<Budget>, zone: &Zone, bytes: u64) -> Option<Charge> {
    if bytes > budget.limit() {
        return None;
    }
    let mut freed = 0;
    loop {
        if let Some(charge) = budget.charge(bytes) {
            return Some(charge);
        }
        // What slow clients still hold is not free yet: then this one is not kept.
        if freed >= bytes {
            return None;
        }
        freed += zone.evict_memory()?.body_len + COPY_BYTES;
    }
}

/// Room for compressed forms, within the same bound.
struct FormRoom {
    budget: Arc<Budget>,
    zone: Arc<Zone>,
}

impl Room for FormRoom {
    fn keep(&self, form: &Bytes) -> Option<Bytes> {
        let charge = charge(&self.budget, &self.zone, form.len() as u64)?;
        Some(charged(form.to_vec(), charge))
    }
}

/// A file's size as counted against `max_size`.
pub fn blocks(len: u64) -> u64 {
    len.div_ceil(BLOCK_BYTES) * BLOCK_BYTES
}

/// Reads an entry's header and checks the file against it.
pub(crate) fn read_open(file: &File) -> io::Result<Result<entry::Header, Bad>> {
    let mut tries = 2;
    let mut want = FIRST_READ_BYTES;
    loop {
        let len = file.metadata()?.len();
        let mut bytes = vec![0; want.min(len as usize)];
        files::read_exact_at(file, &mut bytes, 0)?;
        match entry::decode(&bytes, len) {
            Err(Bad::NeedMore(n)) => want = n,
            // It may have been renewed, or completed, at this very moment.
            Err(Bad::Checksum | Bad::Length) if tries > 0 => tries -= 1,
            read => return Ok(read),
        }
    }
}

/// Opens an entry's file.
pub(crate) fn read(path: &Path) -> io::Result<Result<Stored, Bad>> {
    let file = File::open(path)?;
    // Of before it is read: what comes meanwhile is newer than that says.
    let stamp = Stamp::of(&file.metadata()?);
    let header = match read_open(&file)? {
        Ok(header) => header,
        Err(bad) => return Ok(Err(bad)),
    };
    Ok(Ok(Stored {
        meta: header.meta,
        key_text: header.key_text.into(),
        head: header.head.into(),
        parsed: OnceLock::new(),
        body: Body::File { file: Arc::new(file), start: header.body_at },
        body_len: header.body_len,
        parts: header.parts,
        forms: Arc::default(),
        stamp,
        // Not even now: it may have been removed since it was opened.
        checked_ms: AtomicU64::new(0),
    }))
}

#[cfg(test)]
mod tests;
