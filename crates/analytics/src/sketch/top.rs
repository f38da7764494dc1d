//! The keys that come most often, of any number of keys, in bounded memory (Misra and Gries, in the form of
//! "frequent items": Anderson et al., arXiv:1705.07001).
//!
//! As long as nothing had to be dropped, every count is exact. When there are too many keys, or their texts take
//! too much, the smaller half goes, and `floor` is the largest count that went: no key that is not there came more
//! often, and a key that comes (again) later may have come so often before, which is its `error`. With `n` in all
//! and room for `m` keys the floor is at most `2 n / m`.

use super::distinct::{Distinct, Shape};
use super::hash::ByHash;
use std::collections::hash_map::Entry;

/// Longer keys are shown cut off; they are told apart by all of their bytes.
pub const KEY_MAX_BYTES: usize = 512;
/// What a key costs beside its text and its visitors, in a table that is half full.
const ITEM_BYTES: usize = 2 * (size_of::<Item>() + 16);

/// What a request adds to a key.
#[derive(Clone, Copy, Debug, Default)]
pub struct Sample {
    /// The hash of who asked; `None` if the request makes nobody a visitor.
    pub visitor: Option<u64>,
    pub bytes: u64,
    /// How long it took, in microseconds.
    pub time_us: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Weight {
    Hits,
    Bytes,
}

#[derive(Clone, Debug)]
pub struct Item {
    /// Its first bytes.
    pub key: Box<[u8]>,
    /// What else is to be shown of it.
    pub tag: u16,
    pub hits: u64,
    pub bytes: u64,
    /// How much more of what it is ranked by it may have had.
    pub error: u64,
    pub visitors: Distinct,
    /// In microseconds: all, and the longest.
    pub time_us: u64,
    pub longest_us: u32,
    /// Requests whose time is known.
    pub timed: u64,
}

impl Item {
    fn new(key: &[u8], tag: u16, error: u64) -> Item {
        Item {
            key: key[..key.len().min(KEY_MAX_BYTES)].into(),
            tag,
            hits: 0,
            bytes: 0,
            error,
            visitors: Distinct::new(Shape::ITEM),
            time_us: 0,
            longest_us: 0,
            timed: 0,
        }
    }

    fn add(&mut self, sample: &Sample) {
        self.hits += 1;
        self.bytes += sample.bytes;
        if let Some(visitor) = sample.visitor {
            self.visitors.add(visitor);
        }
        if let Some(us) = sample.time_us {
            self.time_us += u64::from(us);
            self.longest_us = self.longest_us.max(us);
            self.timed += 1;
        }
    }

    fn weight(&self, by: Weight) -> u64 {
        match by {
            Weight::Hits => self.hits,
            Weight::Bytes => self.bytes,
        }
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

#[derive(Clone)]
pub struct Top {
    items: ByHash<Item>,
    by: Weight,
    room: Room,
    /// Of `room.bytes`.
    used: usize,
    floor: u64,
    /// All keys there ever were; from when some were dropped.
    keys: Option<Distinct>,
}

impl Top {
    pub fn new(by: Weight, room: Room) -> Top {
        Top { items: ByHash::default(), by, room, used: 0, floor: 0, keys: None }
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
        let before = item.visitors.heap_bytes();
        item.add(sample);
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

    /// Drops the half that came least often, and more if what is left takes more than half of the room.
    #[cold]
    fn purge(&mut self) {
        if self.keys.is_none() {
            let mut keys = Distinct::new(Shape::TOTAL);
            self.items.keys().for_each(|hash| keys.add(*hash));
            self.keys = Some(keys);
        }
        let by = self.by;
        let most = |item: &Item| item.weight(by) + item.error;
        let mut order: Vec<(u64, usize)> =
            self.items.values().map(|item| (most(item), item.heap_bytes())).collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        let mut kept_bytes = 0;
        let half = order.iter().take(self.room.keys / 2).take_while(|(_, bytes)| {
            kept_bytes += bytes;
            kept_bytes <= self.room.bytes / 2
        });
        let kept = half.count();
        let Some((cut, _)) = order.get(kept) else { return };
        self.floor = self.floor.max(*cut);
        self.items.retain(|_, item| most(item) > *cut);
        self.items.shrink_to(self.room.keys);
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
                item.error += other.floor;
            }
        }
        for (hash, theirs) in other.items {
            let ours = match self.items.entry(hash) {
                Entry::Vacant(place) => {
                    place.insert(Item { error: theirs.error + floor, ..theirs });
                    continue;
                }
                Entry::Occupied(place) => place.into_mut(),
            };
            ours.error += theirs.error;
            ours.hits += theirs.hits;
            ours.bytes += theirs.bytes;
            ours.visitors.merge(&theirs.visitors);
            ours.time_us += theirs.time_us;
            ours.longest_us = ours.longest_us.max(theirs.longest_us);
            ours.timed += theirs.timed;
        }
        self.floor += other.floor;
        self.used = self.items.values().map(Item::heap_bytes).sum();
        self.make_room();
    }

    fn key_set(&self) -> Distinct {
        self.keys.clone().unwrap_or_else(|| {
            let mut keys = Distinct::new(Shape::TOTAL);
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

    /// The most often that a key may have come that is not there; 0 if all are.
    pub fn floor(&self) -> u64 {
        self.floor
    }

    /// The first `n`, by what they have at least, and then by name.
    pub fn first(&self, n: usize) -> Vec<&Item> {
        let mut items: Vec<&Item> = self.items.values().collect();
        items.sort_unstable_by(|a, b| {
            let order = b.weight(self.by).cmp(&a.weight(self.by));
            order.then_with(|| a.key.cmp(&b.key)).then(a.tag.cmp(&b.tag))
        });
        items.truncate(n);
        items
    }

    /// About what it takes now.
    pub fn heap_bytes(&self) -> usize {
        self.items.capacity() * (size_of::<Item>() + 16)
            + self.used
            + self.keys.as_ref().map_or(0, Distinct::heap_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sketch::Seed;
    use std::collections::HashMap;

    const ROOM: Room = Room { keys: 64, bytes: 1 << 20 };

    fn add(top: &mut Top, name: &str, bytes: u64) {
        let sample = Sample { visitor: Some(bytes), bytes, time_us: Some(bytes as u32) };
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
            assert!(is_there || *real <= top.floor, "{name}: {real}, {}", top.floor);
        }
    }

    #[test]
    fn few_keys_are_exact() {
        let mut top = Top::new(Weight::Hits, ROOM);
        for _ in 0..3 {
            ["a", "b", "a"].iter().for_each(|name| add(&mut top, name, 5));
        }
        let first = top.first(9);
        assert_eq!(
            first.iter().map(|i| (&*i.key, i.hits, i.bytes)).collect::<Vec<_>>(),
            [(&b"a"[..], 6, 30), (&b"b"[..], 3, 15)]
        );
        assert_eq!((top.floor(), top.distinct(), first[0].error), (0, (2, 0.0), 0));
        assert_eq!((first[0].time_us, first[0].longest_us, first[0].visitors.count()), (30, 5, 1));
    }

    #[test]
    fn the_error_is_what_it_says() {
        let all: Vec<String> = names(50_000, 3).collect();
        let counts = truth(&all);
        let mut top = Top::new(Weight::Hits, ROOM);
        all.iter().for_each(|name| add(&mut top, name, 1));
        holds(&top, &counts);
        assert!(top.floor() > 0 && top.floor() <= 2 * 50_000 / 64, "{}", top.floor());
        assert!(top.items.len() <= 64);
        assert_eq!(top.distinct().0, counts.len() as u64);
    }

    #[test]
    fn merged_ones_hold_too() {
        for keys in [64, 5000] {
            let all: Vec<String> = names(40_000, 5).collect();
            let counts = truth(&all);
            let room = Room { keys, ..ROOM };
            let mut parts: Vec<Top> = (0..3).map(|_| Top::new(Weight::Hits, room)).collect();
            all.iter().enumerate().for_each(|(n, name)| add(&mut parts[n % 3], name, 1));
            let mut merged = Top::new(Weight::Hits, room);
            parts.into_iter().for_each(|part| merged.merge(part));
            holds(&merged, &counts);
            assert_eq!(merged.floor() == 0, keys == 5000);
            assert!(merged.items.len() <= 4 * keys);
            assert_eq!(merged.distinct().0, counts.len() as u64);
        }
    }

    #[test]
    fn bytes_are_bounded_whatever_comes() {
        let room = Room { keys: 100, bytes: 10_000 };
        let mut top = Top::new(Weight::Bytes, room);
        for n in 0..20_000_u64 {
            add(&mut top, &format!("{n:0600}"), n);
            // One key with ever more visitors.
            add(&mut top, "same", n);
            assert!(top.heap_bytes() < room.total_bytes() + 2_200_000, "{}", top.heap_bytes());
            assert!(top.used <= room.bytes);
        }
        assert_eq!(top.first(1)[0].key.len(), 4);
    }
}
