//! The zone of keys: a table in shards, each behind its own lock, with nginx's rules for uses,
//! inactivity, locks and remembered errors.
//!
//! Invariants: the number of entries times [`ENTRY_BYTES`] never exceeds the zone's size; an entry
//! that is counted by a handle is never removed; no two shard locks are held at once.

use crate::key::{BuildKeyHasher, Key};
use crate::served::{Evicted, Evictions};
use crate::store::Stored;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use tokio::sync::watch;

const NONE: u32 = u32::MAX;
/// An entry and its place in the table, which may be half empty after growing.
pub const ENTRY_BYTES: u64 = (size_of::<Node>() + 2 * (size_of::<(Key, u32)>() + 1)) as u64;
/// Smaller zones have one shard, and with it one exact order of use.
const SHARDED_ENTRIES: usize = 4096;
const SHARDS: usize = 16;
/// Entries in use that are passed over when room is sought.
const TRIES: usize = 20;

/// Entries looked at behind one lock where all of them are.
const KEYS_AT_ONCE: usize = 512;

/// The two orders an entry may stand in.
const USE: usize = 0;
const MEMORY: usize = 1;

struct Node {
    key: Key,
    memory: Option<Arc<Stored>>,
    /// Dropped to wake those who wait for the entry to be filled.
    waiters: Option<watch::Sender<()>>,
    expire_sec: i64,
    error_until_sec: i64,
    lock_until_ms: u64,
    file_bytes: u64,
    /// Newer and older, in each order.
    links: [[u32; 2]; 2],
    count: u32,
    uses: u32,
    error: u16,
    exists: bool,
    updating: bool,
}

struct Order {
    newest: u32,
    oldest: u32,
}

struct Shard {
    numbers: HashMap<Key, u32, BuildKeyHasher>,
    nodes: Vec<Option<Node>>,
    free: Vec<u32>,
    orders: [Order; 2],
    file_bytes: u64,
}

impl Default for Shard {
    fn default() -> Shard {
        let order = || Order { newest: NONE, oldest: NONE };
        Shard {
            numbers: HashMap::default(),
            nodes: Vec::new(),
            free: Vec::new(),
            orders: [order(), order()],
            file_bytes: 0,
        }
    }
}

impl Shard {
    fn node(&mut self, n: u32) -> Option<&mut Node> {
        self.nodes.get_mut(n as usize).and_then(Option::as_mut)
    }

    fn find(&mut self, key: &Key) -> Option<(u32, &mut Node)> {
        let n = *self.numbers.get(key)?;
        self.node(n).map(|node| (n, node))
    }

    fn unlink(&mut self, n: u32, order: usize) {
        let Some([newer, older]) = self.node(n).map(|node| node.links[order]) else { return };
        match self.node(newer) {
            Some(node) => node.links[order][1] = older,
            None => self.orders[order].newest = older,
        }
        match self.node(older) {
            Some(node) => node.links[order][0] = newer,
            None => self.orders[order].oldest = newer,
        }
    }

    fn link(&mut self, n: u32, order: usize) {
        let second = self.orders[order].newest;
        if let Some(node) = self.node(n) {
            node.links[order] = [NONE, second];
        }
        match self.node(second) {
            Some(node) => node.links[order][0] = n,
            None => self.orders[order].oldest = n,
        }
        self.orders[order].newest = n;
    }

    /// Behind all others.
    fn link_last(&mut self, n: u32, order: usize) {
        let last = self.orders[order].oldest;
        if let Some(node) = self.node(n) {
            node.links[order] = [last, NONE];
        }
        match self.node(last) {
            Some(node) => node.links[order][1] = n,
            None => self.orders[order].newest = n,
        }
        self.orders[order].oldest = n;
    }

    fn renew_turn(&mut self, n: u32, order: usize) {
        if self.orders[order].newest != n {
            self.unlink(n, order);
            self.link(n, order);
        }
    }

    fn insert(&mut self, key: Key) -> u32 {
        let node = Node {
            key,
            memory: None,
            waiters: None,
            expire_sec: 0,
            error_until_sec: 0,
            lock_until_ms: 0,
            file_bytes: 0,
            links: [[NONE; 2]; 2],
            count: 0,
            uses: 0,
            error: 0,
            exists: false,
            updating: false,
        };
        let n = match self.free.pop() {
            Some(n) => n,
            None => {
                self.nodes.push(None);
                (self.nodes.len() - 1) as u32
            }
        };
        self.nodes[n as usize] = Some(node);
        self.numbers.insert(key, n);
        self.link(n, USE);
        n
    }

    fn set_memory(&mut self, n: u32, stored: Option<Arc<Stored>>) -> Option<Arc<Stored>> {
        let (had, has) = match self.node(n) {
            Some(node) => (node.memory.is_some(), stored.is_some()),
            None => return stored,
        };
        if had {
            self.unlink(n, MEMORY);
        }
        if has {
            self.link(n, MEMORY);
        }
        self.node(n).and_then(|node| std::mem::replace(&mut node.memory, stored))
    }

    fn set_file(&mut self, n: u32, exists: bool, bytes: u64) {
        let Some(node) = self.node(n) else { return };
        let before = std::mem::replace(&mut node.file_bytes, bytes);
        node.exists = exists;
        self.file_bytes = self.file_bytes + bytes - before;
    }

    fn remove(&mut self, n: u32) -> Option<Node> {
        self.set_file(n, false, 0);
        drop(self.set_memory(n, None));
        self.unlink(n, USE);
        let node = self.nodes.get_mut(n as usize)?.take()?;
        self.numbers.remove(&node.key);
        self.free.push(n);
        Some(node)
    }
}

pub struct Zone {
    shards: Box<[Mutex<Shard>]>,
    entries_max: usize,
    entries: AtomicUsize,
    /// As nginx's: once the zone was full, the manager keeps an eighth of it free.
    watermark: AtomicUsize,
    next_memory: AtomicUsize,
    pub(crate) evictions: Arc<Evictions>,
}

/// What entering an entry found.
#[derive(Debug)]
pub enum Found {
    /// Known; whether a file is there.
    Known {
        exists: bool,
        memory: Option<Arc<Stored>>,
    },
    /// Known by an error that is remembered.
    Error(u16),
    /// Not asked for often enough.
    TooFew,
    Fresh,
}

/// A place in an entry: it counts there, may own the right to fill it, and gives both back.
pub struct Handle {
    zone: Arc<Zone>,
    key: Key,
    node: u32,
    min_uses: u32,
    updating: bool,
    lock_until_ms: u64,
    /// An error to be remembered, and until when.
    error: Option<(u16, i64)>,
}

/// The right to fill an entry, or who to wait for.
pub enum Lock {
    Owned,
    Wait { filled: watch::Receiver<()>, until_ms: u64 },
}

/// An entry that has left the zone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Removed {
    pub key: Key,
    pub had_file: bool,
}

/// Why nothing was removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    Empty,
    /// The oldest entry stays for so many seconds more.
    For(i64),
    InUse,
}

impl Zone {
    pub fn new(size: u64) -> Zone {
        let entries_max = (size / ENTRY_BYTES).max(1) as usize;
        let shards = if entries_max >= SHARDED_ENTRIES { SHARDS } else { 1 };
        Zone {
            shards: (0..shards).map(|_| Mutex::default()).collect(),
            entries_max,
            entries: AtomicUsize::new(0),
            watermark: AtomicUsize::new(usize::MAX),
            next_memory: AtomicUsize::new(0),
            evictions: Arc::default(),
        }
    }

    pub fn entries(&self) -> usize {
        self.entries.load(Ordering::Relaxed)
    }

    pub fn entries_max(&self) -> usize {
        self.entries_max
    }

    pub fn over_watermark(&self) -> bool {
        self.entries() >= self.watermark.load(Ordering::Relaxed)
    }

    /// Bytes of all files.
    pub fn file_bytes(&self) -> u64 {
        (0..self.shards.len()).map(|i| self.lock(i).file_bytes).sum()
    }

    fn lock(&self, i: usize) -> MutexGuard<'_, Shard> {
        self.shards[i].lock().unwrap_or_else(|e| e.into_inner())
    }

    fn shard(&self, key: &Key) -> MutexGuard<'_, Shard> {
        self.lock(key.word(8) as usize % self.shards.len())
    }

    /// The hot path: an entry's copy in memory, its turn renewed.
    pub fn memory(&self, key: &Key, expire_sec: i64) -> Option<Arc<Stored>> {
        let mut shard = self.shard(key);
        let (n, node) = shard.find(key)?;
        let stored = Arc::clone(node.memory.as_ref().filter(|_| node.error == 0)?);
        node.expire_sec = expire_sec;
        node.uses = node.uses.saturating_add(1);
        shard.renew_turn(n, USE);
        shard.renew_turn(n, MEMORY);
        Some(stored)
    }

    /// Enters an entry, made when there is none. `make_room` removes the files of entries that had
    /// to go for it, and one that an error has taken the place of. `None`: the zone is full of entries in use.
    pub fn enter(
        self: &Arc<Self>,
        key: Key,
        min_uses: u32,
        now: i64,
        expire_sec: i64,
        make_room: &mut dyn FnMut(Removed),
    ) -> Option<(Handle, Found)> {
        let mut shard = self.shard(&key);
        let known = shard.find(&key).map(|(n, _)| n);
        let n = match known {
            Some(n) => n,
            None => {
                drop(shard);
                self.reserve(make_room)?;
                shard = self.shard(&key);
                // Another request may have made it meanwhile.
                match shard.find(&key).map(|(n, _)| n) {
                    Some(n) => {
                        self.entries.fetch_sub(1, Ordering::Relaxed);
                        n
                    }
                    None => shard.insert(key),
                }
            }
        };
        shard.renew_turn(n, USE);
        let node = shard.node(n)?;
        node.expire_sec = expire_sec;
        node.count += 1;
        node.uses = node.uses.saturating_add(1);
        let fresh = node.uses == 1 && !node.exists;
        let mut untracked = None;
        let found = if node.error != 0 && node.error_until_sec >= now {
            Found::Error(node.error)
        } else if node.error != 0 {
            node.error = 0;
            untracked = node.exists.then_some(Removed { key, had_file: true });
            shard.set_file(n, false, 0);
            drop(shard.set_memory(n, None));
            Found::Fresh
        } else if fresh {
            Found::Fresh
        } else if node.exists || node.uses >= min_uses {
            Found::Known { exists: node.exists, memory: node.memory.clone() }
        } else {
            Found::TooFew
        };
        drop(shard);
        // Nobody would count it, nor ever remove it.
        if let Some(untracked) = untracked {
            make_room(untracked);
        }
        let zone = Arc::clone(self);
        let handle =
            Handle { zone, key, node: n, min_uses, updating: false, lock_until_ms: 0, error: None };
        Some((handle, found))
    }

    /// Counts one more entry, for which others may have to go.
    fn reserve(&self, make_room: &mut dyn FnMut(Removed)) -> Option<()> {
        loop {
            let add = |n: usize| (n < self.entries_max).then_some(n + 1);
            if self.entries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok() {
                return Some(());
            }
            self.watermark.store(self.entries_max - self.entries_max / 8, Ordering::Relaxed);
            let removed = self.remove_oldest(None).ok()?;
            self.evictions.add(Evicted::Keys);
            make_room(removed);
        }
    }

    /// Adds what the loader found; `false` when there is no room for it.
    pub fn adopt(&self, key: Key, file_bytes: u64, expire_sec: i64) -> bool {
        let add = |n: usize| (n < self.entries_max).then_some(n + 1);
        let mut shard = self.shard(&key);
        if let Some((n, node)) = shard.find(&key) {
            if !node.exists {
                shard.set_file(n, true, file_bytes);
            }
            return true;
        }
        if self.entries.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_err() {
            self.watermark.store(self.entries_max - self.entries_max / 8, Ordering::Relaxed);
            return false;
        }
        let n = shard.insert(key);
        if let Some(node) = shard.node(n) {
            node.uses = 1;
            node.expire_sec = expire_sec;
        }
        shard.set_file(n, true, file_bytes);
        true
    }

    /// Removes the entry that has not been used for longest: at any age, or only when its time is
    /// up by `now`.
    pub fn remove_oldest(&self, now: Option<i64>) -> Result<Removed, Kept> {
        let oldest = (0..self.shards.len())
            .filter_map(|i| {
                let mut shard = self.lock(i);
                let n = shard.orders[USE].oldest;
                shard.node(n).map(|node| (node.expire_sec, i))
            })
            .min();
        let (expire_sec, i) = oldest.ok_or(Kept::Empty)?;
        if let Some(now) = now.filter(|now| expire_sec > *now) {
            return Err(Kept::For(expire_sec - now));
        }
        let mut shard = self.lock(i);
        for _ in 0..TRIES {
            let n = shard.orders[USE].oldest;
            let Some(node) = shard.node(n) else { return Err(Kept::InUse) };
            if node.count == 0 {
                return self.take(&mut shard, n).ok_or(Kept::InUse);
            }
            // In use, so it is not the oldest after all.
            shard.renew_turn(n, USE);
        }
        Err(Kept::InUse)
    }

    fn take(&self, shard: &mut Shard, n: u32) -> Option<Removed> {
        let had_file = shard.node(n)?.exists;
        let node = shard.remove(n)?;
        self.entries.fetch_sub(1, Ordering::Relaxed);
        Some(Removed { key: node.key, had_file })
    }

    /// Forgets an entry whose file is to go; one that is in use is emptied only.
    pub fn purge(&self, key: &Key) -> bool {
        let mut shard = self.shard(key);
        let Some((n, node)) = shard.find(key) else { return false };
        let (count, known) = (node.count, node.exists || node.error != 0);
        node.error = 0;
        match count {
            0 => drop(self.take(&mut shard, n)),
            _ => {
                shard.set_file(n, false, 0);
                drop(shard.set_memory(n, None));
            }
        }
        known
    }

    /// The keys of all entries that have a file. No lock is held for more than a few of them, so that no
    /// request waits for it.
    pub fn keys(&self) -> Vec<Key> {
        let mut keys = Vec::new();
        for i in 0..self.shards.len() {
            let mut from = 0;
            loop {
                let shard = self.lock(i);
                let Some(rest) = shard.nodes.get(from..).filter(|rest| !rest.is_empty()) else {
                    break;
                };
                let live = rest.iter().take(KEYS_AT_ONCE).flatten().filter(|n| n.exists);
                keys.extend(live.map(|n| n.key));
                from += KEYS_AT_ONCE;
            }
        }
        keys
    }

    /// Puts a copy beside an entry that exists, replacing `old` when that is given.
    pub fn keep_memory(&self, key: &Key, stored: Arc<Stored>, old: Option<&Arc<Stored>>) {
        let mut shard = self.shard(key);
        let Some((n, node)) = shard.find(key) else { return };
        let same = match (old, &node.memory) {
            (Some(old), Some(now)) => Arc::ptr_eq(old, now),
            (None, None) => true,
            _ => false,
        };
        if node.exists && same {
            let before = shard.set_memory(n, Some(stored));
            drop(shard);
            drop(before);
        }
    }

    /// Puts a copy beside an entry that exists and has none, as the one that was not used for longest.
    pub fn keep_memory_last(&self, key: &Key, stored: Arc<Stored>) {
        let mut shard = self.shard(key);
        let Some((n, node)) = shard.find(key) else { return };
        if node.exists && node.memory.is_none() {
            node.memory = Some(stored);
            shard.link_last(n, MEMORY);
        }
    }

    /// The keys of the copies in memory, no more than `most`: of each shard the last used first, shards in turn.
    /// Each lock is held for its shard's part of them, some tens of microseconds where there are many.
    pub fn memory_keys(&self, most: usize) -> Vec<Key> {
        let each = most / self.shards.len();
        let lists: Vec<Vec<Key>> = (0..self.shards.len())
            .map(|i| {
                let mut shard = self.lock(i);
                let mut keys = Vec::new();
                let mut n = shard.orders[MEMORY].newest;
                while let Some(node) = shard.node(n).filter(|_| keys.len() < each) {
                    keys.push(node.key);
                    n = node.links[MEMORY][1];
                }
                keys
            })
            .collect();
        let longest = lists.iter().map(Vec::len).max().unwrap_or(0);
        (0..longest).flat_map(|at| lists.iter().filter_map(move |l| l.get(at).copied())).collect()
    }

    /// As if an entry had been used.
    pub fn touch(&self, key: &Key, expire_sec: i64) {
        let mut shard = self.shard(key);
        let Some((n, node)) = shard.find(key) else { return };
        node.expire_sec = expire_sec;
        shard.renew_turn(n, USE);
    }

    /// Lets go of an entry's copy in memory, if it is this one.
    pub fn drop_memory(&self, key: &Key, stored: &Arc<Stored>) {
        let mut shard = self.shard(key);
        let Some((n, node)) = shard.find(key) else { return };
        if node.memory.as_ref().is_some_and(|m| Arc::ptr_eq(m, stored)) {
            drop(shard.set_memory(n, None));
        }
    }

    /// Lets go of the copy in memory that was used least recently in one of the shards, in turn;
    /// answers what it was.
    pub fn evict_memory(&self) -> Option<Arc<Stored>> {
        let first = self.next_memory.fetch_add(1, Ordering::Relaxed);
        let found = (0..self.shards.len()).find_map(|i| {
            let mut shard = self.lock((first + i) % self.shards.len());
            let n = shard.orders[MEMORY].oldest;
            shard.set_memory(n, None)
        });
        if found.is_some() {
            self.evictions.add(Evicted::Memory);
        }
        found
    }
}

impl Handle {
    pub fn key(&self) -> Key {
        self.key
    }

    pub fn is_updating(&self) -> bool {
        self.updating
    }

    fn with<T>(&self, f: impl FnOnce(&mut Shard, u32) -> T) -> T {
        f(&mut self.zone.shard(&self.key), self.node)
    }

    /// A file was found that the zone did not know of.
    pub fn found_file(&self, file_bytes: u64) {
        self.with(|shard, n| {
            if shard.node(n).is_some_and(|node| !node.exists) {
                shard.set_file(n, true, file_bytes);
            }
        });
    }

    /// The file that was known is not there.
    pub fn lost_file(&self) {
        self.with(|shard, n| {
            shard.set_file(n, false, 0);
            drop(shard.set_memory(n, None));
        });
    }

    /// Takes over the renewal of a stale entry; `false` when somebody else has it.
    pub fn begin_update(&mut self) -> bool {
        let owned = self.with(|shard, n| {
            let node = shard.node(n)?;
            (!std::mem::replace(&mut node.updating, true)).then_some(node.lock_until_ms)
        });
        if let Some(until) = owned {
            self.updating = true;
            self.lock_until_ms = until;
        }
        owned.is_some()
    }

    /// Told once another request has renewed the entry, or has given that up; `None`: none is at it.
    pub fn renewed_elsewhere(&self) -> Option<watch::Receiver<()>> {
        self.with(|shard, n| {
            let node = shard.node(n).filter(|node| node.updating)?;
            Some(node.waiters.get_or_insert_with(|| watch::channel(()).0).subscribe())
        })
    }

    /// The lock of an entry that is to be filled: owned until filled, or given up, or too old.
    pub fn lock(&mut self, now_ms: u64, age_ms: u64) -> Lock {
        let lock = self.with(|shard, n| {
            let Some(node) = shard.node(n) else { return Lock::Owned };
            if !node.updating || node.lock_until_ms <= now_ms {
                node.updating = true;
                node.lock_until_ms = now_ms + age_ms;
                return Lock::Owned;
            }
            let until_ms = node.lock_until_ms;
            let sender = node.waiters.get_or_insert_with(|| watch::channel(()).0);
            Lock::Wait { filled: sender.subscribe(), until_ms }
        });
        if matches!(lock, Lock::Owned) {
            self.updating = true;
            self.lock_until_ms = now_ms + age_ms;
        }
        lock
    }

    /// Remembers an answer without a body instead of a file.
    pub fn remember_error(&mut self, status: u16, until_sec: i64) {
        self.error = Some((status, until_sec));
    }

    /// The entry is filled: its file has its name, and maybe there is a copy for memory.
    pub fn filled(mut self, file_bytes: u64, memory: Option<Arc<Stored>>) {
        let before = self.with(|shard, n| {
            shard.set_file(n, true, file_bytes);
            let before = shard.set_memory(n, memory);
            if let Some(node) = shard.node(n) {
                node.error = 0;
                node.updating = false;
                node.waiters = None;
            }
            before
        });
        drop(before);
        self.updating = false;
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        let zone = Arc::clone(&self.zone);
        let mut shard = zone.shard(&self.key);
        let n = self.node;
        let Some(node) = shard.node(n) else { return };
        node.count -= 1;
        if self.updating && node.lock_until_ms == self.lock_until_ms {
            node.updating = false;
            node.waiters = None;
        }
        if let Some((status, until)) = self.error {
            node.error = status;
            node.error_until_sec = until;
        } else if !node.exists && node.error == 0 && node.count == 0 && self.min_uses <= 1 {
            zone.take(&mut shard, n);
        }
    }
}

#[cfg(test)]
mod tests;
