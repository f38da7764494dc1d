//! What is behind a dictionary's lock, and the rules of who is given up for whom.

use crate::slab::Slab;
use crate::table::{Body, Entry, Key, List, Table, NONE};
use crate::value::{IncrError, Mode, Refused, Stored, ValueRef};

/// What OpenResty's entry takes beside key and value: a node of nginx's tree, and its own header.
pub const ENTRY_BYTES: usize = 32 + 36;
/// What OpenResty keeps in the zone itself: the tree with its sentinel, and the queue.
const ROOT_BYTES: usize = 80;
/// The end of messages about a full zone, with its last byte; the zone's name comes to it.
const MESSAGE_BYTES: usize = 28;
/// So often entries are given up for a new one.
const TRIES: usize = 30;

#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Found {
    Nothing,
    Expired(u32),
    Live(u32),
}

impl Found {
    fn any(self) -> Option<u32> {
        match self {
            Found::Nothing => None,
            Found::Expired(n) | Found::Live(n) => Some(n),
        }
    }
}

pub struct State {
    pub table: Table,
    pub slab: Slab,
    /// Entries of another one have been flushed.
    pub epoch: u32,
    /// Lists that are to be dropped without the lock.
    pub trash: Vec<Body>,
    /// Whether an entry has ever had a time to live. Where none has, nobody needs to know what time it is.
    is_timed: bool,
}

/// Milliseconds, known or read where they are needed.
pub trait Now {
    fn ms(self) -> u64;
}

impl Now for u64 {
    fn ms(self) -> u64 {
        self
    }
}

impl Now for fn() -> u64 {
    fn ms(self) -> u64 {
        self()
    }
}

impl State {
    pub fn new(size_bytes: u64, name_len: usize) -> State {
        let mut slab = Slab::new(size_bytes);
        // Where these find no room, nothing does.
        slab.alloc(ROOT_BYTES);
        slab.alloc(MESSAGE_BYTES + name_len);
        State { table: Table::new(), slab, epoch: 0, trash: Vec::new(), is_timed: false }
    }

    /// What time it is for an operation that makes an entry live so long.
    pub fn timing(&self, now: impl Now, for_ms: u64) -> Timing {
        let now_ms = if self.is_timed || for_ms != 0 { now.ms() } else { 0 };
        Timing { now_ms, for_ms }
    }

    pub fn is_expired(&self, n: u32, now_ms: u64) -> bool {
        let entry = &self.table[n];
        entry.epoch != self.epoch || (entry.expires_ms != 0 && entry.expires_ms <= now_ms)
    }

    /// What is found alive becomes the newest.
    pub fn lookup(&mut self, key: Key<'_>, now_ms: u64) -> Found {
        match self.table.find(key) {
            None => Found::Nothing,
            Some(n) if self.is_expired(n, now_ms) => Found::Expired(n),
            Some(n) => {
                self.table.touch(n);
                Found::Live(n)
            }
        }
    }

    pub fn remove(&mut self, n: u32) {
        let (page, body) = self.table.remove(n);
        if let Body::List(list) = &body {
            list.iter().for_each(|listed| self.slab.free(listed.page));
            self.trash.push(body);
        }
        self.slab.free(page);
    }

    /// Two of the oldest at most, as long as they have expired.
    pub fn tidy(&mut self, now_ms: u64) -> usize {
        for removed in 0..2 {
            let oldest = self.table.oldest();
            if oldest == NONE || !self.is_expired(oldest, now_ms) {
                return removed;
            }
            self.remove(oldest);
        }
        2
    }

    /// The oldest, expired or not, and what is tidied up behind it.
    pub fn give_up(&mut self, now_ms: u64) -> usize {
        let oldest = self.table.oldest();
        if oldest == NONE {
            return 0;
        }
        self.remove(oldest);
        1 + self.tidy(now_ms)
    }

    /// Room for an allocation, and whether entries were given up for it.
    pub fn make_room(&mut self, bytes: usize, now_ms: u64) -> (Option<u32>, bool) {
        let mut page = self.slab.alloc(bytes);
        let mut forcible = false;
        for _ in 0..TRIES {
            if page.is_some() || self.give_up(now_ms) == 0 {
                break;
            }
            forcible = true;
            page = self.slab.alloc(bytes);
        }
        (page, forcible)
    }

    pub fn set(
        &mut self,
        key: Key<'_>,
        value: ValueRef<'_>,
        timing: Timing,
        flags: u32,
        mode: Mode,
    ) -> Result<Stored, Refused> {
        let now_ms = timing.now_ms;
        self.tidy(now_ms);
        let found = self.lookup(key, now_ms);
        match (mode, found) {
            (Mode::Replace, Found::Nothing | Found::Expired(_)) => return Err(Refused::NotFound),
            (Mode::Add | Mode::SafeAdd, Found::Live(_)) => return Err(Refused::Exists),
            _ => {}
        }
        if let Some(n) = found.any() {
            if self.overwrite(n, value, timing, flags) {
                return Ok(Stored { forcible: false });
            }
            self.remove(n);
        }
        let bytes = ENTRY_BYTES + key.bytes.len() + value.bytes();
        let (page, forcible) = match mode {
            Mode::SafeSet | Mode::SafeAdd => (self.slab.alloc(bytes), false),
            _ => self.make_room(bytes, now_ms),
        };
        let page = page.ok_or(Refused::NoMemory { forcible })?;
        self.insert(key, value, page, timing, flags);
        Ok(Stored { forcible })
    }

    /// A value as long as the one before takes its place.
    fn overwrite(&mut self, n: u32, value: ValueRef<'_>, timing: Timing, flags: u32) -> bool {
        let entry = &mut self.table[n];
        if entry.value().is_none_or(|old| old.bytes() != value.bytes()) {
            return false;
        }
        entry.set_value(value);
        entry.flags = flags;
        self.set_expiry(n, timing);
        self.table.touch(n);
        true
    }

    fn insert(&mut self, key: Key<'_>, value: ValueRef<'_>, page: u32, timing: Timing, flags: u32) {
        let text = match value {
            ValueRef::Text(text) => text,
            _ => b"",
        };
        let mut entry = Entry::new(key, Body::of(value), text, page);
        entry.flags = flags;
        let n = self.table.insert(entry);
        self.set_expiry(n, timing);
    }

    /// The key must be new.
    pub fn insert_list(&mut self, key: Key<'_>, list: List, page: u32, timing: Timing) -> u32 {
        let n = self.table.insert(Entry::new(key, Body::List(Box::new(list)), b"", page));
        self.set_expiry(n, timing);
        n
    }

    pub fn set_expiry(&mut self, n: u32, timing: Timing) {
        let epoch = self.epoch;
        self.is_timed |= timing.for_ms != 0;
        let entry = &mut self.table[n];
        (entry.expires_ms, entry.epoch) = (timing.expires_ms(), epoch);
    }

    pub fn incr(
        &mut self,
        key: Key<'_>,
        by: f64,
        init: Option<f64>,
        timing: Timing,
    ) -> Result<(f64, bool), IncrError> {
        let now_ms = timing.now_ms;
        self.tidy(now_ms);
        let found = self.lookup(key, now_ms);
        if let Found::Live(n) = found {
            let Body::Number(number) = &mut self.table[n].body else {
                return Err(IncrError::NotNumber);
            };
            *number += by;
            return Ok((*number, false));
        }
        let number = by + init.ok_or(IncrError::NotFound)?;
        let value = ValueRef::Number(number);
        if let Some(n) = found.any() {
            if self.overwrite(n, value, timing, 0) {
                return Ok((number, false));
            }
            self.remove(n);
        }
        let bytes = ENTRY_BYTES + key.bytes.len() + value.bytes();
        let (page, forcible) = self.make_room(bytes, now_ms);
        self.insert(key, value, page.ok_or(IncrError::NoMemory)?, timing, 0);
        Ok((number, forcible))
    }

    pub fn flush_all(&mut self) {
        // Whoever was not used for so many flushes that the number comes again has long been given up: each
        // takes the oldest.
        self.epoch = self.epoch.wrapping_add(1);
        self.give_up(0);
    }
}

/// When it is, and how long something lives from then on.
#[derive(Clone, Copy)]
pub struct Timing {
    pub now_ms: u64,
    /// 0: for ever.
    pub for_ms: u64,
}

impl Timing {
    fn expires_ms(self) -> u64 {
        match self.for_ms {
            0 => 0,
            ms => self.now_ms.saturating_add(ms),
        }
    }
}
