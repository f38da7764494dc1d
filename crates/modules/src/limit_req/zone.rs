//! The zone of `limit_req`: one leaky bucket per key, the least recently used forgotten first.
//!
//! Large zones are split into shards by the key's hash, each with its own lock, order and share
//! of the memory, so that workers seldom wait for each other.

use crate::limits::Outcomes;
use std::collections::hash_map::RandomState;
use std::hash::BuildHasher;
use std::sync::{Mutex, MutexGuard};
use weir_core::counts::Near;

use weir_base::lru::Lru;
use weir_core::zones;

/// nginx's tree node without the key.
const NODE_BYTES: usize = 80;
/// A shard has at least room for so many entries.
const SHARD_MIN_ENTRIES: u64 = 512;
const SHARDS_MAX: u64 = 16;
/// A bucket that has not been used for so long may be forgotten once it is empty.
const FORGET_MS: u64 = 60_000;

struct Bucket {
    /// Monotonic ms of the last charge.
    last: u64,
    /// Thousandths of requests.
    excess: u64,
    /// Reservations: the entry must stay.
    count: u32,
}

#[derive(Default)]
struct Shard {
    buckets: Lru<Bucket>,
    used: u64,
}

pub struct Zone {
    pub key: Vec<u8>,
    hasher: RandomState,
    shards: Box<[Mutex<Shard>]>,
    /// Bytes each shard may use.
    share: u64,
    pub outcomes: Near<Outcomes>,
}

/// A bucket that a request waits to be charged in.
#[derive(Clone, Copy)]
pub struct Reserved {
    shard: usize,
    bucket: u32,
}

pub enum Verdict {
    /// The request was counted.
    Charged { excess: u64 },
    /// It will be, by [`Zone::charge`], unless another zone refuses.
    Reserved(Reserved),
    /// Too much, by that excess; or there was no room to remember the key.
    Refused { excess: Option<u64> },
}

impl Bucket {
    /// The excess with one more request at that time.
    fn with_one_more(&self, rate: u64, now: u64) -> u64 {
        let leaked = rate.saturating_mul(now.saturating_sub(self.last)) / 1000;
        (self.excess + 1000).saturating_sub(leaked)
    }

    fn charge(&mut self, excess: u64, now: u64) {
        self.excess = excess;
        self.last = self.last.max(now);
    }
}

impl Zone {
    /// What its buckets take.
    pub fn used_bytes(&self) -> u64 {
        let used = |shard: &Mutex<Shard>| shard.lock().unwrap_or_else(|e| e.into_inner()).used;
        self.shards.iter().map(used).sum()
    }

    pub fn new(kind: &'static str, name: &[u8], key: &[u8], size: u64) -> Zone {
        let usable = zones::usable_bytes(size);
        let entries = usable / zones::chunk_bytes(NODE_BYTES + 4);
        let count = (entries / SHARD_MIN_ENTRIES).clamp(1, SHARDS_MAX);
        Zone {
            key: key.to_vec(),
            hasher: RandomState::new(),
            shards: (0..count).map(|_| Mutex::default()).collect(),
            share: usable / count,
            outcomes: Near::named(kind, name),
        }
    }

    fn lock(&self, n: usize) -> MutexGuard<'_, Shard> {
        self.shards[n].lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Looks the key up; with `charge` the request is counted at once, otherwise reserved.
    pub fn ask(&self, key: &[u8], rate: u64, burst: u64, now: u64, charge: bool) -> Verdict {
        let n = (self.hasher.hash_one(key) % self.shards.len() as u64) as usize;
        let mut shard = self.lock(n);
        if let Some(id) = shard.buckets.touch(key) {
            let Some(bucket) = shard.buckets.get_mut(id) else {
                return Verdict::Refused { excess: None };
            };
            let excess = bucket.with_one_more(rate, now);
            if excess > burst {
                return Verdict::Refused { excess: Some(excess) };
            }
            if charge {
                bucket.charge(excess, now);
                return Verdict::Charged { excess };
            }
            bucket.count += 1;
            return Verdict::Reserved(Reserved { shard: n, bucket: id });
        }
        let bytes = zones::chunk_bytes(NODE_BYTES + key.len());
        shard.expire(rate, now);
        while shard.used + bytes > self.share {
            if !shard.drop_oldest() {
                return Verdict::Refused { excess: None };
            }
        }
        shard.used += bytes;
        let (last, count) = if charge { (now, 0) } else { (0, 1) };
        let id = shard.buckets.insert(key, Bucket { last, excess: 0, count });
        match charge {
            true => Verdict::Charged { excess: 0 },
            false => Verdict::Reserved(Reserved { shard: n, bucket: id }),
        }
    }

    /// Counts a reserved request; answers the excess.
    pub fn charge(&self, reserved: Reserved, rate: u64, now: u64) -> u64 {
        let mut shard = self.lock(reserved.shard);
        let Some(bucket) = shard.buckets.get_mut(reserved.bucket) else { return 0 };
        let excess = bucket.with_one_more(rate, now);
        bucket.charge(excess, now);
        bucket.count -= 1;
        excess
    }

    pub fn release(&self, reserved: Reserved) {
        let mut shard = self.lock(reserved.shard);
        if let Some(bucket) = shard.buckets.get_mut(reserved.bucket) {
            bucket.count -= 1;
        }
    }
}

impl Shard {
    /// Forgets up to two old buckets that have run empty, so that the zone shrinks in time.
    fn expire(&mut self, rate: u64, now: u64) {
        for _ in 0..2 {
            let Some((_, bucket)) = self.buckets.oldest() else { return };
            let idle = now.saturating_sub(bucket.last);
            let is_empty = bucket.excess <= rate.saturating_mul(idle) / 1000;
            if bucket.count > 0 || idle < FORGET_MS || !is_empty {
                return;
            }
            self.drop_oldest();
        }
    }

    /// Forgets the least recently used bucket, unless a request is about to be charged there.
    fn drop_oldest(&mut self) -> bool {
        if self.buckets.oldest().is_none_or(|(_, b)| b.count > 0) {
            return false;
        }
        match self.buckets.remove_oldest() {
            Some(len) => {
                self.used -= zones::chunk_bytes(NODE_BYTES + len);
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RATE: u64 = 1000;

    fn charged(v: Verdict) -> Option<u64> {
        match v {
            Verdict::Charged { excess } => Some(excess),
            _ => None,
        }
    }

    #[test]
    fn the_bucket_leaks() {
        let zone = Zone::new("test", b"", b"$k", 1 << 20);
        let ask = |now| zone.ask(b"a", RATE, 2000, now, true);
        assert_eq!(charged(ask(1000)), Some(0));
        assert_eq!(charged(ask(1000)), Some(1000));
        assert_eq!(charged(ask(1000)), Some(2000));
        assert!(matches!(ask(1000), Verdict::Refused { excess: Some(3000) }));
        assert_eq!(charged(ask(2000)), Some(2000));
        assert_eq!(charged(ask(9000)), Some(0));
    }

    #[test]
    fn reservations_are_charged_or_released() {
        let zone = Zone::new("test", b"", b"$k", 1 << 20);
        let reserve = || match zone.ask(b"a", RATE, 1000, 5000, false) {
            Verdict::Reserved(held) => held,
            _ => panic!("refused"),
        };
        let (first, second) = (reserve(), reserve());
        zone.release(second);
        assert_eq!(zone.charge(first, RATE, 5000), 0);
        assert_eq!(zone.charge(reserve(), RATE, 5000), 1000);
        assert!(matches!(zone.ask(b"a", RATE, 1000, 5000, false), Verdict::Refused { .. }));
    }

    #[test]
    fn a_full_zone_forgets_the_oldest() {
        let zone = Zone::new("test", b"", b"$k", 32 * 1024);
        let entries = (zone.share / 128) as u32;
        for i in 0..entries {
            zone.ask(&i.to_be_bytes(), RATE, 0, 1000, true);
        }
        assert!(matches!(
            zone.ask(&0u32.to_be_bytes(), RATE, 0, 1000, true),
            Verdict::Refused { excess: Some(1000) }
        ));
        assert_eq!(charged(zone.ask(b"more", RATE, 0, 1000, true)), Some(0));
        // 0 was touched, so 1 was the oldest and is new again.
        assert_eq!(charged(zone.ask(&1u32.to_be_bytes(), RATE, 0, 1000, true)), Some(0));
    }

    #[test]
    fn idle_buckets_go() {
        let zone = Zone::new("test", b"", b"$k", 32 * 1024);
        for i in 0..10u8 {
            zone.ask(&[i], RATE, 0, 1000, true);
        }
        let before = zone.lock(0).used;
        zone.ask(b"new", RATE, 0, 1000 + FORGET_MS, true);
        assert_eq!(zone.lock(0).used, before - 128);
    }
}
