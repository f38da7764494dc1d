//! Requests on their way from a worker to a report: what has come before in all that is counted by is there once, with
//! the number of times that it came.
//!
//! A worker adds what it has answered, another thread takes what has come. Of a request that is like an earlier one
//! only numbers grow; texts are compared and not hashed, so that this is exact: a report that is told of many at once
//! ([`Report::add_many`]) has counted what it would have counted one by one. Memory has a bound; what has no room is
//! refused, and its owner says so.

use crate::event::{Event, Method, Moment, Protocol};
use crate::report::{Many, Report};
use crate::sketch::Histogram;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Longer texts are cut: URIs, then links, user agents and hosts.
const URI_MAX_BYTES: usize = 1024;
const TEXT_MAX_BYTES: usize = 512;
/// What may wait.
const MAX_BYTES: usize = 2 * 1024 * 1024;
/// What is kept to be compared with.
const KEPT_MAX_BYTES: usize = 384 * 1024;
/// A power of two.
const PLACES: usize = 4096;
/// Whose lock is had while these are taken waits no longer.
const AT_ONCE: usize = 64;
/// Time zones differ by quarters of an hour: within one, all is of one day and one hour.
const QUARTER_SECS: i64 = 15 * 60;

/// A request, by all that is counted. The family is 4 or 6, or 0 for this machine's Unix sockets.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    pub family: u8,
    pub address: u128,
    pub method: Method,
    pub protocol: Protocol,
    pub status: u16,
    pub uri: &'a [u8],
    pub referrer: &'a [u8],
    pub agent: &'a [u8],
    pub host: &'a [u8],
    /// When it ended, since 1970.
    pub secs: i64,
    pub bytes: u64,
    /// `None`: not known.
    pub took_ms: Option<u32>,
}

/// What two requests must have in common, beside their texts.
#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    address: [u64; 2],
    /// Of the texts, 16 bits each.
    lens: u64,
    /// Status, method, protocol, family; whether the time is known.
    kind: u64,
}

/// Requests that are alike.
#[derive(Clone)]
struct Entry {
    key: Key,
    /// Of the first.
    secs: i64,
    /// Where its texts begin.
    start: u32,
    longest_ms: u32,
    /// Since they were taken.
    hits: u64,
    bytes: u64,
    ms: u64,
}

/// The texts of a request, in the order in which they are kept.
type Texts<'a> = [&'a [u8]; 4];

/// What has come.
pub struct Gathered {
    entries: Vec<Entry>,
    texts: Vec<u8>,
    /// Numbers of entries, more by one, by what they are looked up by; 0: none.
    places: Box<[u32]>,
    /// Entries before it were taken once; what has come since may be in them all the same.
    taken: usize,
    /// Entries are looked up that are of it.
    quarter: std::ops::Range<i64>,
    last_secs: i64,
    /// Of those whose time is known, those that took less than a millisecond, and all others.
    at_once: u64,
    times: Histogram,
}

impl Default for Gathered {
    fn default() -> Gathered {
        Gathered {
            entries: Vec::new(),
            texts: Vec::new(),
            places: vec![0; PLACES].into(),
            taken: 0,
            quarter: 0..0,
            last_secs: i64::MIN,
            at_once: 0,
            times: Histogram::default(),
        }
    }
}

#[inline]
fn is_any_long([uri, referrer, agent, host]: &Texts<'_>) -> bool {
    uri.len() > TEXT_MAX_BYTES || referrer.len().max(agent.len()).max(host.len()) > TEXT_MAX_BYTES
}

fn cut(text: &[u8], max: usize) -> &[u8] {
    text.get(..max).unwrap_or(text)
}

/// Spreads, and is no secret: what falls together is compared, and costs a place.
#[inline]
fn spread(hash: u64, word: u64) -> u64 {
    (hash.rotate_left(5) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)
}

/// The eight bytes from there on; of a shorter text, nothing.
#[inline]
fn eight(text: &[u8], at: usize) -> u64 {
    text.get(at..).and_then(|rest| rest.first_chunk()).map_or(0, |eight| u64::from_le_bytes(*eight))
}

impl Key {
    #[inline]
    fn of(facts: &Facts<'_>, texts: &Texts<'_>) -> Key {
        let [uri, referrer, agent, host] = texts.map(|text| text.len() as u64);
        let lens = uri << 48 | referrer << 32 | agent << 16 | host;
        let kind = u64::from(facts.status) << 32
            | u64::from(facts.took_ms.is_some()) << 24
            | u64::from(facts.family) << 16
            | (facts.method as u64) << 8
            | facts.protocol as u64;
        Key { address: [facts.address as u64, (facts.address >> 64) as u64], lens, kind }
    }

    /// By the whole path, and a little of what mostly goes with it.
    #[inline]
    fn place(&self, [uri, referrer, agent, _]: &Texts<'_>) -> usize {
        let mut hash = spread(spread(self.lens, self.address[0]), self.address[1] ^ self.kind);
        let (words, rest) = uri.as_chunks();
        for word in words {
            hash = spread(hash, u64::from_le_bytes(*word));
        }
        let last = match uri.last_chunk() {
            Some(last) => u64::from_le_bytes(*last),
            None => rest.iter().fold(0, |word, b| word << 8 | u64::from(*b)),
        };
        let beside =
            eight(referrer, referrer.len() / 2) ^ eight(agent, agent.len() / 2).rotate_left(32);
        // The upper bits are the product of all.
        (spread(spread(hash, last), beside) >> (u64::BITS - PLACES.ilog2())) as usize
    }

    fn lens(&self) -> [usize; 4] {
        std::array::from_fn(|n| (self.lens >> (48 - 16 * n)) as usize & 0xffff)
    }

    fn text_bytes(&self) -> usize {
        self.lens().iter().sum()
    }
}

impl Entry {
    #[inline]
    fn add(&mut self, facts: &Facts<'_>) {
        let ms = facts.took_ms.unwrap_or(0);
        self.hits += 1;
        self.bytes = self.bytes.saturating_add(facts.bytes);
        self.ms += u64::from(ms);
        self.longest_ms = self.longest_ms.max(ms);
    }

    /// What has come; from now on nothing has.
    fn taken(&mut self) -> Entry {
        let taken = self.clone();
        (self.hits, self.bytes, self.ms, self.longest_ms) = (0, 0, 0, 0);
        taken
    }

    fn is_timed(&self) -> bool {
        self.key.kind >> 24 & 1 == 1
    }

    fn many(&self) -> Many {
        let timed = if self.is_timed() { self.hits } else { 0 };
        Many { hits: self.hits, timed, time_us: self.ms.saturating_mul(1000) }
    }
}

impl Gathered {
    /// Adds a request; `false`: there is no room.
    #[inline]
    pub fn add(&mut self, facts: &Facts<'_>) -> bool {
        let mut texts = [facts.uri, facts.referrer, facts.agent, facts.host];
        if is_any_long(&texts) {
            texts = [
                cut(facts.uri, URI_MAX_BYTES),
                cut(facts.referrer, TEXT_MAX_BYTES),
                cut(facts.agent, TEXT_MAX_BYTES),
                cut(facts.host, TEXT_MAX_BYTES),
            ];
        }
        let key = Key::of(facts, &texts);
        let place = key.place(&texts);
        let there = match self.at(place, &key, &texts, facts.secs) {
            None => self.at(place ^ 1, &key, &texts, facts.secs),
            there => there,
        };
        match there.and_then(|there| self.entries.get_mut(there)) {
            Some(entry) => entry.add(facts),
            None => {
                if !self.insert(facts, key, place, &texts) {
                    return false;
                }
            }
        }
        self.last_secs = self.last_secs.max(facts.secs);
        match facts.took_ms {
            Some(0) => self.at_once += 1,
            Some(ms) => self.times.add(ms.saturating_mul(1000)),
            None => {}
        }
        true
    }

    /// The entry of a place, if it is such a request's.
    #[inline]
    fn at(&self, place: usize, key: &Key, texts: &Texts<'_>, secs: i64) -> Option<usize> {
        let there = self.places.get(place)?.checked_sub(1)? as usize;
        let entry = self.entries.get(there)?;
        let is_it = entry.key == *key
            && self.quarter.contains(&secs)
            && are_same(&self.texts, entry.start as usize, texts);
        is_it.then_some(there)
    }

    fn insert(&mut self, facts: &Facts<'_>, key: Key, place: usize, texts: &Texts<'_>) -> bool {
        if self.bytes() + size_of::<Entry>() + key.text_bytes() > MAX_BYTES {
            return false;
        }
        if !self.quarter.contains(&facts.secs) {
            self.places.fill(0);
            let from = facts.secs.div_euclid(QUARTER_SECS).saturating_mul(QUARTER_SECS);
            self.quarter = from..from.saturating_add(QUARTER_SECS);
        }
        let start = self.texts.len() as u32;
        texts.iter().for_each(|text| self.texts.extend_from_slice(text));
        let secs = facts.secs;
        let mut entry = Entry { key, secs, start, longest_ms: 0, hits: 0, bytes: 0, ms: 0 };
        entry.add(facts);
        self.entries.push(entry);
        // Two have two places together; of three the first is not found again.
        self.places[place ^ 1] = match (self.places[place], self.places[place ^ 1]) {
            (0, other) => other,
            (there, _) => there,
        };
        self.places[place] = self.entries.len() as u32;
        true
    }

    fn bytes(&self) -> usize {
        self.texts.len() + self.entries.len() * size_of::<Entry>()
    }

    /// From now on all is taken that has come. Otherwise [`Gathered::take`] takes what is new, and what has come again waits until
    /// there is much to be compared with, or somebody wants to know.
    pub fn rewind(&mut self) {
        self.taken = 0;
    }

    /// Takes some; whether there is more. Between two calls more may be added.
    pub fn take(&mut self, batch: &mut Batch) -> bool {
        batch.clear();
        batch.last_secs = self.last_secs;
        batch.at_once = std::mem::take(&mut self.at_once);
        if self.times.total() > 0 {
            std::mem::swap(&mut batch.times, &mut self.times);
        }
        if self.bytes() > KEPT_MAX_BYTES {
            // All goes, and nothing is copied.
            std::mem::swap(&mut batch.entries, &mut self.entries);
            std::mem::swap(&mut batch.texts, &mut self.texts);
            self.places.fill(0);
            self.taken = 0;
            return false;
        }
        let end = (self.taken + AT_ONCE).min(self.entries.len());
        for entry in &mut self.entries[self.taken..end] {
            if entry.hits > 0 {
                let from = entry.start as usize;
                let text = self.texts.get(from..from + entry.key.text_bytes());
                let start = batch.texts.len() as u32;
                batch.texts.extend_from_slice(text.unwrap_or_default());
                batch.entries.push(Entry { start, ..entry.taken() });
            }
        }
        self.taken = end;
        end < self.entries.len()
    }
}

#[inline]
fn are_same(kept: &[u8], start: usize, [uri, referrer, agent, host]: &Texts<'_>) -> bool {
    let Some((its_uri, rest)) = kept.get(start..).and_then(|k| k.split_at_checked(uri.len()))
    else {
        return false;
    };
    let Some((its_referrer, rest)) = rest.split_at_checked(referrer.len()) else { return false };
    let Some((its_agent, rest)) = rest.split_at_checked(agent.len()) else { return false };
    let Some(its_host) = rest.get(..host.len()) else { return false };
    its_uri == *uri && its_agent == *agent && its_referrer == *referrer && its_host == *host
}

/// What was taken at once.
#[derive(Default)]
pub struct Batch {
    entries: Vec<Entry>,
    texts: Vec<u8>,
    last_secs: i64,
    at_once: u64,
    times: Histogram,
}

impl Batch {
    fn clear(&mut self) {
        if self.texts.capacity() > 2 * KEPT_MAX_BYTES {
            (self.entries, self.texts) = Default::default();
        }
        self.entries.clear();
        self.texts.clear();
        if self.times.total() > 0 {
            self.times = Histogram::default();
        }
    }

    /// Counts it in a report. `offset_secs` is by how much the local clock is ahead then.
    pub fn tell(&self, report: &mut Report, mut offset_secs: impl FnMut(i64) -> i64) {
        let mut moment = |secs: i64| Moment::from_unix(secs.saturating_add(offset_secs(secs)));
        for entry in self.entries.iter().filter(|entry| entry.hits > 0) {
            let event = self.event(entry, moment(entry.secs));
            report.add_many(&event, &entry.many());
        }
        if self.last_secs != i64::MIN {
            report.add_times(&self.times, self.at_once, moment(self.last_secs));
        }
    }

    fn event(&self, entry: &Entry, time: Moment) -> Event<'_> {
        let mut rest = self.texts.get(entry.start as usize..).unwrap_or_default();
        let [uri, referrer, agent, host] = entry.key.lens().map(|len| {
            let (text, behind) = rest.split_at_checked(len).unwrap_or_default();
            rest = behind;
            text
        });
        let Key { address: [low, high], kind, .. } = entry.key;
        let byte = |n: u32| (kind >> n) as u8;
        let address = match byte(16) {
            6 => IpAddr::V6(Ipv6Addr::from_bits(u128::from(high) << 64 | u128::from(low))),
            0 => IpAddr::V4(Ipv4Addr::LOCALHOST),
            _ => IpAddr::V4(Ipv4Addr::from_bits(low as u32)),
        };
        Event {
            address,
            time,
            method: Method::ALL.get(usize::from(byte(8))).copied().unwrap_or(Method::Other),
            protocol: Protocol::ALL.get(usize::from(byte(0))).copied().unwrap_or(Protocol::Other),
            uri,
            status: (kind >> 32) as u16,
            bytes: entry.bytes,
            referrer,
            agent,
            host,
            time_us: entry.is_timed().then(|| entry.longest_ms.saturating_mul(1000)),
        }
    }
}

#[cfg(test)]
mod tests;
