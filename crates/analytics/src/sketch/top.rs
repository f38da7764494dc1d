//! The keys that come most often, of any number of keys, in bounded memory (Misra and Gries, in the form of
//! "frequent items": Anderson et al., arXiv:1705.07001).
//!
//! As long as nothing had to be dropped, every count is exact. When there are too many keys, or their texts take
//! too much, the smaller half goes, and `floor` is the largest count that went: no key that is not there came more
//! often, and a key that comes (again) later may have come so often before, which is its `error`. With `n` in all
//! and room for `m` keys the floor is at most `8 n / 3 m`. A few are kept because they are heavy: bytes have a floor
//! of their own, and half the number of keys decides what `m` is there (`8 n / m`).

use super::distinct::{Few, Total};
use super::hash::ByHash;
use std::collections::hash_map::Entry;

/// Longer keys are shown cut off; they are told apart by all of their bytes.
pub const KEY_MAX_BYTES: usize = 512;
/// What a key costs beside its text and its visitors, in a table that is half full.
const ITEM_BYTES: usize = 2 * (size_of::<Item>() + 16);

/// What a request, or several that are alike, add to a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// The hash of who asked; `None` if the request makes nobody a visitor.
    pub visitor: Option<u64>,
    /// Of requests that are alike: how many.
    pub hits: u64,
    pub bytes: u64,
    /// How long they took, those whose time is known: all, and the longest.
    pub timed: u64,
    pub time_us: u64,
    pub longest_us: u32,
    /// So many visits begin with it.
    pub entries: u64,
}

/// What keys are ranked by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    Hits,
    Bytes,
    Entries,
}

#[derive(Clone, Debug)]
pub struct Item {
    /// Its first bytes.
    pub key: Box<[u8]>,
    /// What else is to be shown of it.
    pub tag: u16,
    pub hits: u64,
    pub bytes: u64,
    /// Visits that began with it.
    pub entries: u64,
    /// How many more hits and bytes it may have had.
    pub error: u64,
    pub bytes_error: u64,
    pub visitors: Few,
    /// In microseconds: all, and the longest.
    pub time_us: u64,
    pub longest_us: u32,
    /// Requests whose time is known.
    pub timed: u64,
}

impl Item {
    fn new(key: &[u8], tag: u16, floor: Floor) -> Item {
        Item {
            key: key[..key.len().min(KEY_MAX_BYTES)].into(),
            tag,
            hits: 0,
            bytes: 0,
            entries: 0,
            error: floor.hits,
            bytes_error: floor.bytes,
            visitors: Few::default(),
            time_us: 0,
            longest_us: 0,
            timed: 0,
        }
    }

    fn add(&mut self, sample: &Sample) {
        self.hits += sample.hits;
        self.bytes = self.bytes.saturating_add(sample.bytes);
        self.entries += sample.entries;
        self.timed += sample.timed;
        self.time_us = self.time_us.saturating_add(sample.time_us);
        self.longest_us = self.longest_us.max(sample.longest_us);
    }

    pub fn weight(&self, by: Weight) -> u64 {
        match by {
            Weight::Hits => self.hits,
            Weight::Bytes => self.bytes,
            Weight::Entries => self.entries,
        }
    }

    fn most(&self) -> Floor {
        Floor { hits: self.hits + self.error, bytes: self.bytes.saturating_add(self.bytes_error) }
    }

    fn is_above(&self, cut: Floor) -> bool {
        let most = self.most();
        most.hits > cut.hits || most.bytes > cut.bytes
    }

    fn may_have_more(&mut self, floor: Floor) {
        self.error += floor.hits;
        self.bytes_error = self.bytes_error.saturating_add(floor.bytes);
    }

    fn merge(&mut self, other: &Item) {
        self.may_have_more(Floor { hits: other.error, bytes: other.bytes_error });
        self.hits += other.hits;
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.entries += other.entries;
        self.visitors.merge(&other.visitors);
        self.time_us += other.time_us;
        self.longest_us = self.longest_us.max(other.longest_us);
        self.timed += other.timed;
    }

    fn heap_bytes(&self) -> usize {
        self.key.len() + self.visitors.heap_bytes()
    }
}

/// How much a table may hold.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    pub keys: usize,
    /// Of texts and visitors.
    pub bytes: usize,
}

impl Room {
    /// What a table in it takes at most.
    pub fn total_bytes(&self) -> usize {
        self.keys * ITEM_BYTES + self.bytes
    }
}

/// The most that a key may have had that is not there.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Floor {
    pub hits: u64,
    pub bytes: u64,
}

#[derive(Clone)]
pub struct Top {
    items: ByHash<Item>,
    room: Room,
    /// Of `room.bytes`.
    used: usize,
    floor: Floor,
    /// All keys there ever were; from when some were dropped.
    keys: Option<Total>,
}

impl Top {
    pub fn new(room: Room) -> Top {
        Top { items: ByHash::default(), room, used: 0, floor: Floor::default(), keys: None }
    }

    /// `hash` stands for the key.
    pub fn add(&mut self, hash: u64, tag: u16, key: &[u8], sample: &Sample) {
        if !self.hit(hash, sample) {
            self.insert(hash, tag, key, sample);
        }
    }

    /// Adds to a key that is there; whether it is.
    pub fn hit(&mut self, hash: u64, sample: &Sample) -> bool {
        let Some(item) = self.items.get_mut(&hash) else { return false };
        item.add(sample);
        let Some(visitor) = sample.visitor else { return true };
        let before = item.visitors.heap_bytes();
        item.visitors.add(visitor);
        let grown = item.visitors.heap_bytes() as isize - before as isize;
        if grown != 0 {
            self.used = self.used.saturating_add_signed(grown);
            self.make_room();
        }
        true
    }

    /// A key that is not there.
    pub fn insert(&mut self, hash: u64, tag: u16, key: &[u8], sample: &Sample) {
        let mut item = Item::new(key, tag, self.floor);
        item.add(sample);
        sample.visitor.into_iter().for_each(|visitor| item.visitors.add(visitor));
        self.used += item.heap_bytes();
        if let Some(keys) = &mut self.keys {
            keys.add(hash);
        }
        self.items.insert(hash, item);
        self.make_room();
    }

    fn make_room(&mut self) {
        if self.items.len() > self.room.keys || self.used > self.room.bytes {
            self.purge();
        }
    }

    /// Keeps half at most: what came most often, and some that were heaviest. Fewer, if they take more than half
    /// of the room.
    #[cold]
    fn purge(&mut self) {
        if self.keys.is_none() {
            self.keys = Some(self.key_set());
        }
        let mut hits: Vec<u64> = self.items.values().map(|item| item.most().hits).collect();
        let mut bytes: Vec<u64> = self.items.values().map(|item| item.most().bytes).collect();
        let mut part = self.room.keys.min(self.items.len());
        let mut cut;
        loop {
            cut = Floor {
                hits: ranked(&mut hits, part * 3 / 8),
                bytes: ranked(&mut bytes, part / 8),
            };
            let kept = self.items.values().filter(|item| item.is_above(cut));
            if part == 0 || kept.map(Item::heap_bytes).sum::<usize>() <= self.room.bytes / 2 {
                break;
            }
            part /= 2;
        }
        let floor = &mut self.floor;
        self.items.retain(|_, item| {
            let is_kept = item.is_above(cut);
            if !is_kept {
                let most = item.most();
                floor.hits = floor.hits.max(most.hits);
                floor.bytes = floor.bytes.max(most.bytes);
            }
            is_kept
        });
        self.used = self.items.values().map(Item::heap_bytes).sum();
    }

    /// Afterwards it has room for what both had.
    pub fn merge(&mut self, other: Top) {
        self.room.keys += other.room.keys;
        self.room.bytes += other.room.bytes;
        if other.keys.is_some() || self.keys.is_some() {
            let mut keys = self.key_set();
            keys.merge(&other.key_set());
            self.keys = Some(keys);
        }
        // What one has and the other not may have come as often there as what that one dropped.
        let floor = self.floor;
        for (hash, item) in &mut self.items {
            if !other.items.contains_key(hash) {
                item.may_have_more(other.floor);
            }
        }
        for (hash, mut theirs) in other.items {
            match self.items.entry(hash) {
                Entry::Occupied(place) => place.into_mut().merge(&theirs),
                Entry::Vacant(place) => {
                    theirs.may_have_more(floor);
                    place.insert(theirs);
                }
            }
        }
        self.floor.hits += other.floor.hits;
        self.floor.bytes = self.floor.bytes.saturating_add(other.floor.bytes);
        self.used = self.items.values().map(Item::heap_bytes).sum();
        self.make_room();
    }

    fn key_set(&self) -> Total {
        self.keys.clone().unwrap_or_else(|| {
            let mut keys = Total::default();
            self.items.keys().for_each(|hash| keys.add(*hash));
            keys
        })
    }

    /// How many different keys there were, and the standard error of that as a part of it.
    pub fn distinct(&self) -> (u64, f64) {
        match &self.keys {
            None => (self.items.len() as u64, 0.0),
            Some(keys) => (keys.count(), keys.error()),
        }
    }

    /// Zeros if all keys are there.
    pub fn floor(&self) -> Floor {
        self.floor
    }

    pub fn items(&self) -> impl Iterator<Item = (u64, &Item)> {
        self.items.iter().map(|(hash, item)| (*hash, item))
    }

    /// The first `n`.
    pub fn first(&self, n: usize) -> Vec<&Item> {
        first(self.items.values(), Weight::Hits, n)
    }

    /// About what it takes now.
    pub fn heap_bytes(&self) -> usize {
        self.items.capacity() * (size_of::<Item>() + 16)
            + self.used
            + self.keys.as_ref().map_or(0, Total::heap_bytes)
    }
}

/// The nth largest; 0 if there are not so many.
fn ranked(numbers: &mut [u64], n: usize) -> u64 {
    match n < numbers.len() {
        true => *numbers.select_nth_unstable_by(n, |a, b| b.cmp(a)).1,
        false => 0,
    }
}

/// The first `n`, by what they have at least, and then by name.
pub fn first<'a>(items: impl Iterator<Item = &'a Item>, by: Weight, n: usize) -> Vec<&'a Item> {
    let mut items: Vec<&Item> = items.filter(|item| item.weight(by) > 0).collect();
    items.sort_unstable_by(|a, b| {
        let order = b.weight(by).cmp(&a.weight(by));
        order.then_with(|| a.key.cmp(&b.key)).then(a.tag.cmp(&b.tag))
    });
    items.truncate(n);
    items
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::Seed;
    use std::collections::HashMap;

    const ROOM: Room = Room { keys: 64, bytes: 1 << 20 };

    fn add(top: &mut Top, name: &str, bytes: u64) {
        let sample = Sample {
            visitor: Some(bytes),
            hits: 1,
            bytes,
            timed: 1,
            time_us: bytes,
            longest_us: bytes as u32,
            entries: u64::from(bytes == 5),
        };
        top.add(Seed::new(1).text(name.as_bytes()), 0, name.as_bytes(), &sample);
    }

    /// Keys of which the nth comes about 1/n as often as the first.
    fn names(count: u64, from: u64) -> impl Iterator<Item = String> {
        let mut state = from | 1;
        (0..count).map(move |_| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let unit = (state >> 40) as f64 / (1_u64 << 24) as f64;
            format!("key{}", 2000_f64.powf(unit) as u64)
        })
    }

    fn truth(all: &[String]) -> HashMap<&str, u64> {
        let mut counts = HashMap::new();
        all.iter().for_each(|name| *counts.entry(name.as_str()).or_default() += 1);
        counts
    }

    fn holds(top: &Top, counts: &HashMap<&str, u64>) {
        for item in top.items.values() {
            let name = std::str::from_utf8(&item.key).unwrap();
            let real = counts[name];
            assert!(item.hits <= real && real <= item.hits + item.error, "{name} {real} {item:?}");
        }
        for (name, real) in counts {
            let is_there = top.items.values().any(|item| &*item.key == name.as_bytes());
            assert!(is_there || *real <= top.floor.hits, "{name}: {real}, {}", top.floor.hits);
        }
    }

    #[test]
    fn few_keys_are_exact() {
        let mut top = Top::new(ROOM);
        for _ in 0..3 {
            ["a", "b", "a"].iter().for_each(|name| add(&mut top, name, 5));
        }
        let first = top.first(9);
        assert_eq!(
            first.iter().map(|i| (&*i.key, i.hits, i.bytes)).collect::<Vec<_>>(),
            [(&b"a"[..], 6, 30), (&b"b"[..], 3, 15)]
        );
        assert_eq!((top.floor(), top.distinct(), first[0].error), (Floor::default(), (2, 0.0), 0));
        assert_eq!((first[0].time_us, first[0].longest_us, first[0].visitors.count()), (30, 5, 1));
    }

    #[test]
    fn the_error_is_what_it_says() {
        let all: Vec<String> = names(50_000, 3).collect();
        let counts = truth(&all);
        let mut top = Top::new(ROOM);
        all.iter().for_each(|name| add(&mut top, name, 1));
        holds(&top, &counts);
        let floor = top.floor().hits;
        assert!(floor > 0 && floor <= 8 * 50_000 / 3 / 64, "{floor}");
        assert!(top.items.len() <= 64);
        assert_eq!(top.distinct().0, counts.len() as u64);
    }

    #[test]
    fn merged_ones_hold_too() {
        for keys in [64, 5000] {
            let all: Vec<String> = names(40_000, 5).collect();
            let counts = truth(&all);
            let room = Room { keys, ..ROOM };
            let mut parts: Vec<Top> = (0..3).map(|_| Top::new(room)).collect();
            all.iter().enumerate().for_each(|(n, name)| add(&mut parts[n % 3], name, 1));
            let mut merged = Top::new(room);
            parts.into_iter().for_each(|part| merged.merge(part));
            holds(&merged, &counts);
            assert_eq!(merged.floor().hits == 0, keys == 5000);
            assert!(merged.items.len() <= 4 * keys);
            assert_eq!(merged.distinct().0, counts.len() as u64);
        }
    }

    #[test]
    fn bytes_are_bounded_whatever_comes() {
        let room = Room { keys: 100, bytes: 10_000 };
        let mut top = Top::new(room);
        for n in 0..20_000_u64 {
            add(&mut top, &format!("{n:0600}"), n);
            // One key with ever more visitors.
            add(&mut top, "same", n);
            assert!(top.heap_bytes() < room.total_bytes() + 2_200_000, "{}", top.heap_bytes());
            assert!(top.used <= room.bytes);
        }
        assert_eq!(top.first(1)[0].key.len(), 4);
        let heaviest = first(top.items.values(), Weight::Bytes, 1)[0];
        assert_eq!(&*heaviest.key, b"same");
    }
}
