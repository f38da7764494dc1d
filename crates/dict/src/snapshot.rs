//! A dictionary as bytes: what has not expired, the least recently used first, with the time it has left.
//!
//! Numbers are little endian. A head (magic, version, the records' length in 64 bits), records, and a check sum
//! of all before it, which finds damage and not malice. A record: kind, length of the key (16 bits), flags (32),
//! milliseconds left (64, 0 for ever), key, value. A boolean's value is in its kind, a number has 64 bits, a
//! text 32 bits of length before it; a list has 32 bits of length, and for each element kind and value.

use crate::dict::Dict;
use crate::lists::{element_bytes, list_bytes};
use crate::state::{State, Timing};
use crate::table::{Body, Entry, Item, Key, List, Listed};
use crate::value::{Mode, ValueRef};
use crate::walk::{cost, cost_of_bytes, Step, SLICE_COST};

const MAGIC: &[u8; 8] = b"weirdict";
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 8 + 1 + 8;
const SUM_BYTES: usize = 8;
const FALSE: u8 = 0;
const TRUE: u8 = 1;
const NUMBER: u8 = 2;
const TEXT: u8 = 3;
const LIST: u8 = 4;

/// Bytes that are no snapshot of this version, or not a whole one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadSnapshot;

impl std::fmt::Display for BadSnapshot {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("not a dictionary's snapshot")
    }
}

impl std::error::Error for BadSnapshot {}

impl Dict {
    /// What is set or used meanwhile may be in it or not, and may be in it twice: the later one counts.
    pub fn snapshot(&self, now_ms: u64) -> Vec<u8> {
        let mut out = MAGIC.to_vec();
        out.push(VERSION);
        out.extend_from_slice(&[0; 8]);
        let visit = |state: &mut State, n: u32, part: &mut Vec<u8>| {
            if state.is_expired(n, now_ms) {
                return Step::On(0);
            }
            let entry = &state.table[n];
            put_entry(entry, now_ms, part);
            Step::On(cost(entry) + cost_of_bytes(entry.key().len()))
        };
        self.walk(visit, |part| out.extend_from_slice(&part));
        let length = (out.len() - HEAD_BYTES) as u64;
        out[HEAD_BYTES - 8..HEAD_BYTES].copy_from_slice(&length.to_le_bytes());
        let sum = check_sum(&out);
        out.extend_from_slice(&sum.to_le_bytes());
        out
    }

    /// Puts in what a snapshot has, over what is there; where room is short the least recently used are given
    /// up. Answers how many entries were put in, with those given up again for later ones. Nothing is changed
    /// by bytes that are refused.
    pub fn restore(&self, bytes: &[u8], now_ms: u64) -> Result<usize, BadSnapshot> {
        self.put_all(bytes, now_ms, Mode::Set)
    }

    /// The same, but of keys that are here nothing is changed.
    pub fn restore_missing(&self, bytes: &[u8], now_ms: u64) -> Result<usize, BadSnapshot> {
        self.put_all(bytes, now_ms, Mode::Add)
    }

    fn put_all(&self, bytes: &[u8], now_ms: u64, mode: Mode) -> Result<usize, BadSnapshot> {
        let records = checked(bytes).ok_or(BadSnapshot)?;
        let mut rest = Reader(records);
        let mut restored = 0;
        while !rest.0.is_empty() {
            self.with(|state| {
                let mut spent = 0;
                while spent < SLICE_COST && !rest.0.is_empty() {
                    let record = rest.record().ok_or(BadSnapshot)?;
                    spent += 1 + record.body.cost();
                    let key = self.key(record.key);
                    restored += usize::from(put_back(state, key, &record, mode, now_ms));
                }
                Ok(())
            })?;
            self.let_others();
        }
        Ok(restored)
    }
}

fn put_entry(entry: &Entry, now_ms: u64, out: &mut Vec<u8>) {
    let kind = match &entry.body {
        Body::Boolean(false) => FALSE,
        Body::Boolean(true) => TRUE,
        Body::Number(_) => NUMBER,
        Body::Text => TEXT,
        Body::List(_) => LIST,
        Body::Vacant => return,
    };
    out.push(kind);
    out.extend_from_slice(&(entry.key().len() as u16).to_le_bytes());
    out.extend_from_slice(&entry.flags.to_le_bytes());
    out.extend_from_slice(&entry.expires_ms.saturating_sub(now_ms).to_le_bytes());
    out.extend_from_slice(entry.key());
    match (entry.value(), entry.list()) {
        (Some(ValueRef::Number(n)), _) => put_number(n, out),
        (Some(ValueRef::Text(text)), _) => put_text(text, out),
        (_, Some(list)) => put_list(list, out),
        _ => {}
    }
}

fn put_number(number: f64, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_bits().to_le_bytes());
}

fn put_text(text: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(&(text.len() as u32).to_le_bytes());
    out.extend_from_slice(text);
}

fn put_list(list: &List, out: &mut Vec<u8>) {
    out.extend_from_slice(&(list.len() as u32).to_le_bytes());
    for listed in list {
        match &listed.item {
            Item::Number(n) => {
                out.push(NUMBER);
                put_number(*n, out);
            }
            Item::Text(text) => {
                out.push(TEXT);
                put_text(text, out);
            }
        }
    }
}

/// FNV-1a.
fn check_sum(bytes: &[u8]) -> u64 {
    let step = |sum: u64, b: &u8| (sum ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// The records of a whole snapshot, each of which can be read.
fn checked(bytes: &[u8]) -> Option<&[u8]> {
    let (all, sum) = bytes.split_at_checked(bytes.len().checked_sub(SUM_BYTES)?)?;
    let mut head = Reader(all);
    if head.take(8)? != MAGIC || head.u8()? != VERSION || head.u64()? != head.0.len() as u64 {
        return None;
    }
    if Reader(sum).u64()? != check_sum(all) {
        return None;
    }
    let records = head.0;
    while !head.0.is_empty() {
        head.record()?;
    }
    Some(records)
}

struct Record<'a> {
    key: &'a [u8],
    flags: u32,
    left_ms: u64,
    body: RecordBody<'a>,
}

enum RecordBody<'a> {
    Plain(ValueRef<'a>),
    /// Of so many elements, which can all be read.
    List(u32, Reader<'a>),
}

impl RecordBody<'_> {
    fn cost(&self) -> usize {
        match self {
            RecordBody::Plain(value) => cost_of_bytes(value.bytes()),
            RecordBody::List(len, _) => *len as usize,
        }
    }
}

#[derive(Clone, Copy)]
struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn take(&mut self, len: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(len)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        self.take(N)?.try_into().ok()
    }

    fn u8(&mut self) -> Option<u8> {
        self.array().map(u8::from_le_bytes)
    }

    fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn value(&mut self, kind: u8) -> Option<ValueRef<'a>> {
        match kind {
            FALSE | TRUE => Some(ValueRef::Boolean(kind == TRUE)),
            NUMBER => self.u64().map(|bits| ValueRef::Number(f64::from_bits(bits))),
            TEXT => {
                let len = self.u32()?;
                self.take(len as usize).map(ValueRef::Text)
            }
            _ => None,
        }
    }

    fn element(&mut self) -> Option<ValueRef<'a>> {
        let kind = self.u8().filter(|kind| [NUMBER, TEXT].contains(kind))?;
        self.value(kind)
    }

    fn record(&mut self) -> Option<Record<'a>> {
        let kind = self.u8()?;
        let key_len = u16::from_le_bytes(self.array()?);
        let (flags, left_ms) = (self.u32()?, self.u64()?);
        let key = self.take(key_len.into())?;
        if kind != LIST {
            let body = RecordBody::Plain(self.value(kind)?);
            return Some(Record { key, flags, left_ms, body });
        }
        let len = self.u32().filter(|len| *len > 0)?;
        let elements = *self;
        for _ in 0..len {
            self.element()?;
        }
        Some(Record { key, flags, left_ms, body: RecordBody::List(len, elements) })
    }
}

/// Whether there was room, and it was wanted.
fn put_back(state: &mut State, key: Key<'_>, record: &Record<'_>, mode: Mode, now_ms: u64) -> bool {
    let is_there = |n| !state.is_expired(n, now_ms);
    if mode == Mode::Add && state.table.find(key).is_some_and(is_there) {
        return false;
    }
    let timing = Timing { now_ms, for_ms: record.left_ms };
    match &record.body {
        RecordBody::Plain(value) => state.set(key, *value, timing, record.flags, Mode::Set).is_ok(),
        RecordBody::List(len, elements) => put_list_back(state, key, *len, *elements, timing),
    }
}

fn put_list_back(
    state: &mut State,
    key: Key<'_>,
    len: u32,
    mut elements: Reader<'_>,
    timing: Timing,
) -> bool {
    if let Some(n) = state.table.find(key) {
        state.remove(n);
    }
    let (Some(page), _) = state.make_room(list_bytes(key.bytes), timing.now_ms) else {
        return false;
    };
    let mut list = List::new();
    for _ in 0..len {
        let listed = elements.element().and_then(|value| {
            let (page, _) = state.make_room(element_bytes(value), timing.now_ms);
            Some(Listed { page: page?, item: Item::of(value)? })
        });
        let Some(listed) = listed else {
            list.iter().for_each(|listed: &Listed| state.slab.free(listed.page));
            state.slab.free(page);
            return false;
        };
        list.push_back(listed);
    }
    state.insert_list(key, list, page, timing);
    true
}
