//! A dictionary as its users see it.

use std::hash::BuildHasher;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};

use crate::state::{Found, Now, State, Timing};
use crate::table::Key;
use crate::value::{
    IncrError, IsList, Mode, NotList, PushError, Refused, Stored, Value, ValueRef, MAX_KEY_BYTES,
};

pub struct Dict {
    capacity: u64,
    hasher: foldhash::fast::RandomState,
    state: Mutex<State>,
    /// Threads that wait for the lock.
    waiting: AtomicUsize,
}

/// Whoever meets somebody else looks again after one, two, four … pauses, so many at most, before it sleeps: an operation
/// takes less time than being woken does, and all who look at a lock keep its owner from what it protects.
const PAUSES: u32 = 1024;
/// So often whoever is between two slices lets others run that wait, and then goes on.
const PATIENCE: usize = 2000;

impl Dict {
    /// Of so many bytes, counted as those of an OpenResty zone with a name of four letters or fewer.
    pub fn new(size_bytes: u64) -> Dict {
        Dict::named(size_bytes, 0)
    }

    /// There the zone's name takes memory too, which may make a page's difference.
    pub fn named(size_bytes: u64, name_len: usize) -> Dict {
        Dict {
            capacity: size_bytes,
            hasher: foldhash::fast::RandomState::default(),
            state: Mutex::new(State::new(size_bytes, name_len)),
            waiting: AtomicUsize::new(0),
        }
    }

    /// The bytes that it was made with.
    pub fn capacity(&self) -> u64 {
        self.capacity
    }

    /// Bytes of wholly free pages: 0 may leave room for small entries in pages that are in use.
    pub fn free_space(&self) -> u64 {
        self.with(|state| state.slab.free_bytes())
    }

    /// Value and flags; None if there is none or it has expired.
    pub fn get(&self, key: &[u8], now_ms: u64) -> Result<Option<(Value, u32)>, IsList> {
        self.get_with(key, now_ms, |value, flags| (value.into(), flags))
    }

    /// `get` without a copy. The lock is held while `read` runs: it must be quick, and not use this dictionary.
    pub fn get_with<R>(
        &self,
        key: &[u8],
        now: impl Now,
        read: impl FnOnce(ValueRef<'_>, u32) -> R,
    ) -> Result<Option<R>, IsList> {
        let key = self.key(key);
        self.with(|state| {
            let now_ms = state.timing(now, 0).now_ms;
            state.tidy(now_ms);
            let Found::Live(n) = state.lookup(key, now_ms) else { return Ok(None) };
            let entry = &state.table[n];
            Ok(Some(read(entry.value().ok_or(IsList)?, entry.flags)))
        })
    }

    /// Value, flags, and whether it has expired; one that has stays as old as it is.
    pub fn get_stale(&self, key: &[u8], now_ms: u64) -> Result<Option<(Value, u32, bool)>, IsList> {
        let key = self.key(key);
        self.with(|state| {
            let (n, is_stale) = match state.lookup(key, now_ms) {
                Found::Nothing => return Ok(None),
                Found::Expired(n) => (n, true),
                Found::Live(n) => (n, false),
            };
            let entry = &state.table[n];
            Ok(Some((entry.value().ok_or(IsList)?.into(), entry.flags, is_stale)))
        })
    }

    /// `exptime_ms` is how long it lives, 0 for ever. What was under the key goes before there is room for the
    /// new value: after `NoMemory` it is gone.
    pub fn set(
        &self,
        key: &[u8],
        value: ValueRef<'_>,
        exptime_ms: u64,
        flags: u32,
        mode: Mode,
        now: impl Now,
    ) -> Result<Stored, Refused> {
        if key.len() > MAX_KEY_BYTES {
            return Err(Refused::KeyTooLong);
        }
        if is_too_long(value) {
            return Err(Refused::NoMemory { forcible: false });
        }
        let key = self.key(key);
        self.with(|state| {
            let timing = state.timing(now, exptime_ms);
            state.set(key, value, timing, flags, mode)
        })
    }

    /// Whatever it is, a list too.
    pub fn delete(&self, key: &[u8], now_ms: u64) {
        let key = self.key(key);
        self.with(|state| {
            state.tidy(now_ms);
            if let Some(n) = state.table.find(key) {
                state.remove(n);
            }
        });
    }

    /// The new number, and whether others were given up for it. Where there is none, or an expired one, it
    /// becomes `init + by` and lives `init_ttl_ms` (0: for ever); one that is there keeps its time.
    pub fn incr(
        &self,
        key: &[u8],
        by: f64,
        init: Option<f64>,
        init_ttl_ms: u64,
        now: impl Now,
    ) -> Result<(f64, bool), IncrError> {
        if key.len() > MAX_KEY_BYTES {
            return Err(IncrError::KeyTooLong);
        }
        let key = self.key(key);
        self.with(|state| {
            let timing = state.timing(now, init_ttl_ms);
            state.incr(key, by, init, timing)
        })
    }

    /// Adds at one end of a list, which is made if there is none; answers its length.
    pub fn push(
        &self,
        key: &[u8],
        value: ValueRef<'_>,
        left: bool,
        now_ms: u64,
    ) -> Result<usize, PushError> {
        if key.len() > MAX_KEY_BYTES {
            return Err(PushError::KeyTooLong);
        }
        if is_too_long(value) {
            return Err(PushError::NoMemory);
        }
        let key = self.key(key);
        self.with(|state| state.push(key, value, left, now_ms))
    }

    /// Takes from one end; an empty list is no more.
    pub fn pop(&self, key: &[u8], left: bool, now_ms: u64) -> Result<Option<Value>, NotList> {
        let key = self.key(key);
        self.with(|state| state.pop(key, left, now_ms))
    }

    /// 0 where there is none.
    pub fn llen(&self, key: &[u8], now_ms: u64) -> Result<usize, NotList> {
        let key = self.key(key);
        self.with(|state| state.llen(key, now_ms))
    }

    /// Milliseconds that are left, 0 for ever, less than 0 since it has expired; None if there is none. Once it
    /// has been flushed: as if it had expired at 1.
    pub fn ttl(&self, key: &[u8], now_ms: u64) -> Option<i64> {
        let key = self.key(key);
        self.with(|state| {
            let entry = &state.table[state.table.find(key)?];
            match entry.expires_ms {
                _ if entry.epoch != state.epoch => Some(1i64.saturating_sub_unsigned(now_ms)),
                0 => Some(0),
                at => Some(at.wrapping_sub(now_ms) as i64),
            }
        })
    }

    /// A new time to live, 0 for ever, whatever is there; one that has expired and is still there lives again.
    /// False if there is none.
    pub fn expire(&self, key: &[u8], exptime_ms: u64, now_ms: u64) -> bool {
        let key = self.key(key);
        self.with(|state| {
            let Some(n) = state.table.find(key) else { return false };
            state.set_expiry(n, Timing { now_ms, for_ms: exptime_ms });
            true
        })
    }

    /// All expire at once; the memory is free when others need it, or after `flush_expired`. Takes no longer
    /// for a large dictionary.
    pub fn flush_all(&self) {
        self.with(State::flush_all);
    }

    pub(crate) fn key<'a>(&self, bytes: &'a [u8]) -> Key<'a> {
        Key { bytes, hash: self.hasher.hash_one(bytes) as u32 }
    }

    /// With the lock. Lists that went are dropped without it.
    pub(crate) fn with<R>(&self, f: impl FnOnce(&mut State) -> R) -> R {
        let mut state = self.lock();
        let result = f(&mut state);
        if !state.trash.is_empty() {
            let trash = std::mem::take(&mut state.trash);
            drop(state);
            drop(trash);
        }
        result
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        match self.state.try_lock() {
            Ok(state) => return state,
            Err(TryLockError::Poisoned(state)) => return state.into_inner(),
            Err(TryLockError::WouldBlock) => {}
        }
        self.waiting.fetch_add(1, Relaxed);
        let state = self.lock_in_time();
        self.waiting.fetch_sub(1, Relaxed);
        state
    }

    fn lock_in_time(&self) -> MutexGuard<'_, State> {
        let mut pauses = 1;
        while pauses <= PAUSES {
            (0..pauses).for_each(|_| std::hint::spin_loop());
            match self.state.try_lock() {
                Ok(state) => return state,
                Err(TryLockError::Poisoned(state)) => return state.into_inner(),
                Err(TryLockError::WouldBlock) => pauses *= 2,
            }
        }
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Between two slices. The lock goes to whoever asks first, which without this is the same one again and
    /// again: those that sleep take longer to ask.
    pub(crate) fn let_others(&self) {
        for _ in 0..PATIENCE {
            if self.waiting.load(Relaxed) == 0 {
                return;
            }
            std::thread::yield_now();
        }
    }
}

/// Lengths have 32 bits.
fn is_too_long(value: ValueRef<'_>) -> bool {
    u32::try_from(value.bytes()).is_err()
}
