//! Entries by key, in the order of their use.
//!
//! Entries and buckets are in pieces that never move, and buckets are added one by one: no insertion stops
//! to copy or hash what is there already.

use std::collections::VecDeque;
use std::ops::{Index, IndexMut};

use crate::value::ValueRef;

pub const NONE: u32 = u32::MAX;
const PIECE: usize = 1024;

#[derive(Clone, Copy)]
pub struct Key<'a> {
    pub bytes: &'a [u8],
    pub hash: u32,
}

pub enum Item {
    Number(f64),
    Text(Box<[u8]>),
}

pub struct Listed {
    pub item: Item,
    pub page: u32,
}

pub type List = VecDeque<Listed>;

pub enum Body {
    Vacant,
    Boolean(bool),
    Number(f64),
    /// Behind the key.
    Text,
    List(Box<List>),
}

impl Body {
    pub fn of(value: ValueRef<'_>) -> Body {
        match value {
            ValueRef::Boolean(b) => Body::Boolean(b),
            ValueRef::Number(n) => Body::Number(n),
            ValueRef::Text(_) => Body::Text,
        }
    }
}

pub struct Entry {
    /// The key, and the text if the value is one.
    data: Box<[u8]>,
    pub body: Body,
    /// 0: never.
    pub expires_ms: u64,
    /// Where the allocator counts it.
    pub page: u32,
    pub flags: u32,
    /// The dictionary's when it was last given a value or a time; older ones have been flushed.
    pub epoch: u32,
    key_len: u16,
    hash: u32,
    /// The next of the bucket, or of the vacant ones.
    chain: u32,
    newer: u32,
    older: u32,
}

impl Entry {
    pub fn new(key: Key<'_>, body: Body, text: &[u8], page: u32) -> Entry {
        Entry {
            data: joined(key.bytes, text),
            body,
            expires_ms: 0,
            page,
            flags: 0,
            epoch: 0,
            key_len: key.bytes.len() as u16,
            hash: key.hash,
            chain: NONE,
            newer: NONE,
            older: NONE,
        }
    }

    pub fn key(&self) -> &[u8] {
        &self.data[..usize::from(self.key_len)]
    }

    fn text(&self) -> &[u8] {
        &self.data[usize::from(self.key_len)..]
    }

    /// None of a list.
    pub fn value(&self) -> Option<ValueRef<'_>> {
        match &self.body {
            Body::Boolean(b) => Some(ValueRef::Boolean(*b)),
            Body::Number(n) => Some(ValueRef::Number(*n)),
            Body::Text => Some(ValueRef::Text(self.text())),
            Body::List(_) | Body::Vacant => None,
        }
    }

    pub fn list(&self) -> Option<&List> {
        match &self.body {
            Body::List(list) => Some(list),
            _ => None,
        }
    }

    pub fn list_mut(&mut self) -> Option<&mut List> {
        match &mut self.body {
            Body::List(list) => Some(list),
            _ => None,
        }
    }

    pub fn set_value(&mut self, value: ValueRef<'_>) {
        let text = match value {
            ValueRef::Text(text) => text,
            _ => b"",
        };
        if self.text().len() == text.len() {
            self.data[usize::from(self.key_len)..].copy_from_slice(text);
        } else {
            self.data = joined(self.key(), text);
        }
        self.body = Body::of(value);
    }
}

fn joined(key: &[u8], text: &[u8]) -> Box<[u8]> {
    let mut data = Vec::with_capacity(key.len() + text.len());
    data.extend_from_slice(key);
    data.extend_from_slice(text);
    data.into_boxed_slice()
}

/// Grows at its end, and what is in it stays where it is.
struct Pieces<T> {
    pieces: Vec<Vec<T>>,
    len: usize,
}

impl<T> Pieces<T> {
    fn push(&mut self, item: T) {
        if self.len.is_multiple_of(PIECE) {
            self.pieces.push(Vec::with_capacity(PIECE));
        }
        if let Some(last) = self.pieces.last_mut() {
            last.push(item);
            self.len += 1;
        }
    }
}

impl<T> Index<u32> for Pieces<T> {
    type Output = T;
    fn index(&self, n: u32) -> &T {
        &self.pieces[n as usize / PIECE][n as usize % PIECE]
    }
}

impl<T> IndexMut<u32> for Pieces<T> {
    fn index_mut(&mut self, n: u32) -> &mut T {
        &mut self.pieces[n as usize / PIECE][n as usize % PIECE]
    }
}

/// Somebody's place in the order of use while the table changes.
struct Mark {
    id: u64,
    at: u32,
}

pub struct Table {
    entries: Pieces<Entry>,
    buckets: Pieces<u32>,
    vacant: u32,
    live: usize,
    newest: u32,
    oldest: u32,
    marks: Vec<Mark>,
    next_mark: u64,
    /// How often an entry has become the newest.
    uses: u64,
}

impl Table {
    pub fn new() -> Table {
        let mut buckets = Pieces { pieces: Vec::new(), len: 0 };
        buckets.push(NONE);
        Table {
            entries: Pieces { pieces: Vec::new(), len: 0 },
            buckets,
            vacant: NONE,
            live: 0,
            newest: NONE,
            oldest: NONE,
            marks: Vec::new(),
            next_mark: 0,
            uses: 0,
        }
    }

    pub fn len(&self) -> usize {
        self.live
    }

    pub fn uses(&self) -> u64 {
        self.uses
    }

    pub fn oldest(&self) -> u32 {
        self.oldest
    }

    pub fn newer(&self, n: u32) -> u32 {
        self.entries[n].newer
    }

    pub fn find(&self, key: Key<'_>) -> Option<u32> {
        let mut n = self.buckets[self.bucket(key.hash)];
        while n != NONE {
            let entry = &self.entries[n];
            if entry.hash == key.hash && entry.key() == key.bytes {
                return Some(n);
            }
            n = entry.chain;
        }
        None
    }

    /// The key must be new; the entry is the newest then.
    pub fn insert(&mut self, entry: Entry) -> u32 {
        if self.live >= self.buckets.len {
            self.split();
        }
        let hash = entry.hash;
        let n = self.vacant;
        let n = if n == NONE {
            self.entries.push(entry);
            (self.entries.len - 1) as u32
        } else {
            self.vacant = self.entries[n].chain;
            self.entries[n] = entry;
            n
        };
        let bucket = self.bucket(hash);
        self.entries[n].chain = self.buckets[bucket];
        self.buckets[bucket] = n;
        self.live += 1;
        self.link(n);
        n
    }

    /// Where the allocator counts what is removed, and what it was.
    pub fn remove(&mut self, n: u32) -> (u32, Body) {
        self.unlink(n);
        let Entry { hash, chain, page, .. } = self.entries[n];
        let bucket = self.bucket(hash);
        let mut before = self.buckets[bucket];
        if before == n {
            self.buckets[bucket] = chain;
        } else {
            while self.entries[before].chain != n {
                before = self.entries[before].chain;
            }
            self.entries[before].chain = chain;
        }
        let vacant = self.vacant;
        let entry = &mut self.entries[n];
        entry.chain = vacant;
        entry.data = Box::default();
        let body = std::mem::replace(&mut entry.body, Body::Vacant);
        self.vacant = n;
        self.live -= 1;
        (page, body)
    }

    pub fn touch(&mut self, n: u32) {
        if self.newest != n {
            self.unlink(n);
            self.link(n);
        }
    }

    /// Keeps a place; it moves on to the next newer entry when its own goes elsewhere.
    pub fn mark(&mut self, at: u32) -> u64 {
        self.next_mark += 1;
        self.marks.push(Mark { id: self.next_mark, at });
        self.next_mark
    }

    pub fn take_mark(&mut self, id: u64) -> u32 {
        match self.marks.iter().position(|mark| mark.id == id) {
            Some(i) => self.marks.swap_remove(i).at,
            None => NONE,
        }
    }

    /// As many buckets are in use as the table has; those from the half on are halves of those before.
    fn bucket(&self, hash: u32) -> u32 {
        let mask = self.buckets.len.next_power_of_two() as u32 - 1;
        let bucket = hash & mask;
        if (bucket as usize) < self.buckets.len {
            return bucket;
        }
        bucket & (mask >> 1)
    }

    /// One more bucket, with its share of the one that it is split from.
    fn split(&mut self) {
        let new = self.buckets.len as u32;
        self.buckets.push(NONE);
        let old = new & (self.buckets.len.next_power_of_two() as u32 / 2 - 1);
        let mut n = self.buckets[old];
        self.buckets[old] = NONE;
        while n != NONE {
            let Entry { chain, hash, .. } = self.entries[n];
            let bucket = self.bucket(hash);
            self.entries[n].chain = self.buckets[bucket];
            self.buckets[bucket] = n;
            n = chain;
        }
    }

    fn unlink(&mut self, n: u32) {
        let Entry { newer, older, .. } = self.entries[n];
        for mark in self.marks.iter_mut().filter(|mark| mark.at == n) {
            mark.at = newer;
        }
        match newer {
            NONE => self.newest = older,
            newer => self.entries[newer].older = older,
        }
        match older {
            NONE => self.oldest = newer,
            older => self.entries[older].newer = newer,
        }
    }

    fn link(&mut self, n: u32) {
        let second = self.newest;
        let entry = &mut self.entries[n];
        (entry.newer, entry.older) = (NONE, second);
        match second {
            NONE => self.oldest = n,
            second => self.entries[second].newer = n,
        }
        self.newest = n;
        self.uses += 1;
    }
}

impl Index<u32> for Table {
    type Output = Entry;
    fn index(&self, n: u32) -> &Entry {
        &self.entries[n]
    }
}

impl IndexMut<u32> for Table {
    fn index_mut(&mut self, n: u32) -> &mut Entry {
        &mut self.entries[n]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(bytes: &[u8], hash: u32) -> Key<'_> {
        Key { bytes, hash }
    }

    #[test]
    fn found_by_key_whatever_the_hash() {
        let mut table = Table::new();
        for i in 0..5000u32 {
            let text = i.to_le_bytes();
            table.insert(Entry::new(
                key(&text, i.wrapping_mul(2654435761) % 977),
                Body::Text,
                b"",
                0,
            ));
        }
        let find = |table: &Table, i: u32| {
            table.find(key(&i.to_le_bytes(), i.wrapping_mul(2654435761) % 977))
        };
        assert!((0..5000).all(|i| find(&table, i) == Some(i)));
        for i in (0..5000).step_by(3) {
            table.remove(i);
        }
        assert!((0..5000).all(|i| find(&table, i).is_none() == (i % 3 == 0)));
        assert_eq!((table.len(), table.oldest()), (3333, 1));
    }

    #[test]
    fn marks_move_on() {
        let mut table = Table::new();
        for i in 0..3u8 {
            table.insert(Entry::new(key(&[i], i.into()), Body::Text, b"", 0));
        }
        let (a, b, c) = (table.mark(0), table.mark(1), table.mark(2));
        table.touch(0);
        table.remove(1);
        table.touch(2);
        assert_eq!((table.take_mark(a), table.take_mark(b), table.take_mark(c)), (0, 0, 0));
        assert_eq!(table.take_mark(a), NONE);
    }
}
