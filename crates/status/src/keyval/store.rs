//! The pairs of a zone: looked up by whole keys, by the subnet that an address is in, or by how a text begins.

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::Bound::{Excluded, Included, Unbounded};
use weir_core::zones::{chunk_bytes, usable_bytes, Chunks};

/// What a pair takes besides key and value.
const ENTRY_BYTES: usize = 80;
/// Of those that are shown together: nothing is changed meanwhile.
const PAGE_PAIRS: usize = 512;
const PAGE_BYTES: usize = 256 * 1024;
/// Keys and values are not longer.
pub(crate) const TEXT_MAX_BYTES: usize = 64 * 1024;

/// `type=`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Text,
    Ip,
    Prefix,
}

/// Why a pair is not taken.
#[derive(Debug, PartialEq)]
pub(crate) enum Fault {
    /// It is no address and no subnet, or too long.
    Key,
    Exists,
    Missing,
    /// The zone is full.
    Full,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Entry {
    pub value: Vec<u8>,
    /// On the monotonic clock.
    pub until_ms: Option<u64>,
}

impl Entry {
    fn is_there(&self, now_ms: u64) -> bool {
        self.until_ms.is_none_or(|until| until > now_ms)
    }
}

/// A subnet: whether it is of IPv6, how many bits say which, and these.
type Net = (bool, u8, u128);

fn bits(ip: IpAddr) -> (bool, u128) {
    match ip {
        IpAddr::V4(ip) => (false, u128::from(ip.to_bits()) << 96),
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(ip) => (false, u128::from(ip.to_bits()) << 96),
            None => (true, ip.to_bits()),
        },
    }
}

fn masked(bits: u128, len: u8) -> u128 {
    match len {
        0 => 0,
        len => bits & (u128::MAX << (128 - u32::from(len))),
    }
}

fn net(key: &[u8]) -> Option<Net> {
    let text = std::str::from_utf8(key).ok()?;
    let (ip, len) = text.split_once('/').map_or((text, None), |(ip, len)| (ip, Some(len)));
    let ip: IpAddr = match ip.contains(':') {
        true => ip.parse::<Ipv6Addr>().ok()?.into(),
        false => ip.parse::<Ipv4Addr>().ok()?.into(),
    };
    let (is_v6, all) = bits(ip);
    let max = if is_v6 { 128 } else { 32 };
    let len = match len {
        None => max,
        Some(len) => len.parse().ok().filter(|len| *len <= max)?,
    };
    Some((is_v6, len, masked(all, len)))
}

/// All pairs.
#[derive(Debug)]
pub(crate) struct Store {
    kind: Kind,
    pairs: BTreeMap<Vec<u8>, Entry>,
    /// For addresses: the key of each subnet.
    nets: BTreeMap<Net, Vec<u8>>,
    used: u64,
    chunks: Chunks,
    size: u64,
    /// When the first of them has had its time, or before that.
    next_ms: u64,
    /// How many have come since those were swept.
    added: usize,
}

impl Store {
    pub(crate) fn new(kind: Kind, size: u64) -> Store {
        let (pairs, nets) = (BTreeMap::new(), BTreeMap::new());
        let (size, next_ms, added) = (usable_bytes(size), u64::MAX, 0);
        Store { kind, pairs, nets, used: 0, chunks: Chunks::default(), size, next_ms, added }
    }

    /// One of the same kind and size that has nothing.
    pub(crate) fn empty(&self) -> Store {
        let (pairs, nets) = (BTreeMap::new(), BTreeMap::new());
        let chunks = Chunks::default();
        Store { pairs, nets, used: 0, chunks, next_ms: u64::MAX, added: 0, ..*self }
    }

    /// What is taken of the zone.
    pub(crate) fn chunks(&self) -> &Chunks {
        &self.chunks
    }

    /// What is allocated for a pair: for itself, and for where an address is found.
    fn lens(&self, key: &[u8], value: &[u8]) -> impl Iterator<Item = usize> {
        let index = (self.kind == Kind::Ip).then_some(key.len() + ENTRY_BYTES);
        std::iter::once(key.len() + value.len() + ENTRY_BYTES).chain(index)
    }

    fn cost(&self, key: &[u8], value: &[u8]) -> u64 {
        self.lens(key, value).map(chunk_bytes).sum()
    }

    /// What a text that is searched for has.
    pub(crate) fn find(&self, text: &[u8], now_ms: u64) -> Option<&[u8]> {
        let there = |key: &[u8]| self.get(key, now_ms);
        match self.kind {
            Kind::Text => there(text),
            Kind::Ip => {
                let (is_v6, len, all) = net(text)?;
                (0..=len)
                    .rev()
                    .find_map(|len| there(self.nets.get(&(is_v6, len, masked(all, len)))?))
            }
            Kind::Prefix => self.longest(text, now_ms),
        }
    }

    /// The longest key that a text begins with. Each look makes what is searched for shorter.
    fn longest(&self, text: &[u8], now_ms: u64) -> Option<&[u8]> {
        let mut rest = text;
        loop {
            let (key, entry) =
                self.pairs.range::<[u8], _>((Unbounded, Included(rest))).next_back()?;
            let common = key.iter().zip(rest).take_while(|(a, b)| a == b).count();
            if common == key.len() && entry.is_there(now_ms) {
                return Some(&entry.value);
            }
            rest = match (common == key.len(), common) {
                // It is gone: a shorter one may be there.
                (true, 0) => return None,
                (true, n) => &text[..n - 1],
                (false, n) => &text[..n],
            };
        }
    }

    pub(crate) fn get(&self, key: &[u8], now_ms: u64) -> Option<&[u8]> {
        self.pairs.get(key).filter(|e| e.is_there(now_ms)).map(|e| &e.value[..])
    }

    pub(crate) fn iter(&self, now_ms: u64) -> impl Iterator<Item = (&[u8], &Entry)> {
        self.pairs.iter().filter(move |(_, e)| e.is_there(now_ms)).map(|(key, e)| (&key[..], e))
    }

    /// Some of them behind a key, all that are there now; where to go on, if there are more.
    pub(crate) fn page(
        &self,
        behind: Option<&[u8]>,
        now_ms: u64,
        mut put: impl FnMut(&[u8], &Entry),
    ) -> Option<Vec<u8>> {
        let from = behind.map_or(Unbounded, Excluded);
        let mut pairs = self.pairs.range::<[u8], _>((from, Unbounded));
        let (mut last, mut bytes) = (None, 0);
        for (key, entry) in pairs.by_ref().take(PAGE_PAIRS) {
            if entry.is_there(now_ms) {
                put(key, entry);
            }
            last = Some(key);
            bytes += entry.value.len();
            if bytes > PAGE_BYTES {
                break;
            }
        }
        pairs.next().and(last).cloned()
    }

    /// Forgets what has had its time.
    pub(crate) fn sweep(&mut self, now_ms: u64) {
        if self.next_ms > now_ms {
            return;
        }
        let gone = |(key, e): (&Vec<u8>, &Entry)| (!e.is_there(now_ms)).then(|| key.clone());
        let gone: Vec<Vec<u8>> = self.pairs.iter().filter_map(gone).collect();
        gone.iter().for_each(|key| self.drop_one(key));
        self.next_ms = self.pairs.values().filter_map(|e| e.until_ms).min().unwrap_or(u64::MAX);
        self.added = 0;
    }

    /// The same where it is worth it: something has had its time, and room is wanted or much has come since.
    fn sweep_if_due(&mut self, now_ms: u64, wants_room: bool) {
        self.added += 1;
        if self.next_ms <= now_ms && (wants_room || self.added * 2 >= self.pairs.len()) {
            self.sweep(now_ms);
        }
    }

    fn drop_one(&mut self, key: &[u8]) {
        if let Some(entry) = self.pairs.remove(key) {
            self.used = self.used.saturating_sub(self.cost(key, &entry.value));
            self.lens(key, &entry.value).for_each(|len| self.chunks.remove(len));
            if self.kind == Kind::Ip {
                if let Some(net) = net(key) {
                    self.nets.remove(&net);
                }
            }
        }
    }

    pub(crate) fn add(&mut self, key: &[u8], entry: Entry, now_ms: u64) -> Result<(), Fault> {
        if self.pairs.get(key).is_some_and(|e| !e.is_there(now_ms)) {
            self.drop_one(key);
        }
        if self.pairs.contains_key(key) {
            return Err(Fault::Exists);
        }
        if key.is_empty() || key.len().max(entry.value.len()) > TEXT_MAX_BYTES {
            return Err(Fault::Key);
        }
        let cost = self.cost(key, &entry.value);
        let net = if self.kind == Kind::Ip { Some(net(key).ok_or(Fault::Key)?) } else { None };
        // Another key of the same subnet may have had its time.
        let is_taken = net.is_some_and(|net| self.nets.contains_key(&net));
        self.sweep_if_due(now_ms, is_taken || self.used + cost > self.size);
        if self.used + cost > self.size {
            return Err(Fault::Full);
        }
        if let Some(net) = net {
            if self.nets.contains_key(&net) {
                return Err(Fault::Exists);
            }
            self.nets.insert(net, key.to_vec());
        }
        self.used += cost;
        self.lens(key, &entry.value).for_each(|len| self.chunks.add(len, 1));
        self.next_ms = self.next_ms.min(entry.until_ms.unwrap_or(u64::MAX));
        self.pairs.insert(key.to_vec(), entry);
        Ok(())
    }

    /// Another value for a key; `None`: none any more.
    pub(crate) fn change(
        &mut self,
        key: &[u8],
        entry: Option<Entry>,
        now_ms: u64,
    ) -> Result<(), Fault> {
        let Some(old) = self.pairs.get(key).filter(|e| e.is_there(now_ms)).cloned() else {
            return Err(Fault::Missing);
        };
        self.drop_one(key);
        let Some(entry) = entry else { return Ok(()) };
        self.add(key, entry, now_ms).inspect_err(|_| {
            // It had room before.
            let _ = self.add(key, old, now_ms);
        })
    }

    pub(crate) fn clear(&mut self) {
        self.pairs.clear();
        self.nets.clear();
        self.chunks = Chunks::default();
        self.used = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn store(kind: Kind, keys: &[&str]) -> Store {
        let mut store = Store::new(kind, 1 << 20);
        for key in keys {
            let entry = Entry { value: key.as_bytes().to_vec(), until_ms: None };
            assert_eq!(store.add(key.as_bytes(), entry, 0), Ok(()), "{key}");
        }
        store
    }

    fn found(store: &Store, text: &str) -> String {
        let found = store.find(text.as_bytes(), 0).unwrap_or(b"-");
        String::from_utf8_lossy(found).into_owned()
    }

    #[test]
    fn addresses_are_found_in_the_smallest_subnet() {
        let keys = ["10.0.0.0/8", "10.1.0.0/16", "10.1.2.3", "2001:db8::/32", "::1"];
        let store = store(Kind::Ip, &keys);
        for (text, expected) in [
            ("10.1.2.3", "10.1.2.3"),
            ("10.1.2.4", "10.1.0.0/16"),
            ("10.2.0.0", "10.0.0.0/8"),
            ("10.1.0.0/16", "10.1.0.0/16"),
            ("10.1.0.0/12", "10.0.0.0/8"),
            ("::ffff:10.1.2.3", "10.1.2.3"),
            ("2001:db8:1::1", "2001:db8::/32"),
            ("::1", "::1"),
            ("::2", "-"),
            ("11.0.0.1", "-"),
            ("none", "-"),
            ("", "-"),
        ] {
            assert_eq!(found(&store, text), expected, "{text}");
        }
    }

    #[test]
    fn the_longest_beginning_is_found() {
        let store = store(Kind::Prefix, &["/a", "/a/b", "/a/b/cc", "/ab", "x"]);
        for (text, expected) in [
            ("/a/b/c", "/a/b"),
            ("/a/b/ccd", "/a/b/cc"),
            ("/a/z", "/a"),
            ("/abc", "/ab"),
            ("/", "-"),
            ("xyz", "x"),
            ("w", "-"),
            ("", "-"),
        ] {
            assert_eq!(found(&store, text), expected, "{text}");
        }
    }

    #[test]
    fn what_has_had_its_time_is_gone_and_its_room_is_free() {
        let mut store = Store::new(Kind::Prefix, 64 * 1024);
        let entry = |until_ms| Entry { value: vec![b'v'; 4000], until_ms };
        let mut n = 0;
        while store.add(format!("k{n}").as_bytes(), entry(Some(10)), 0) == Ok(()) {
            n += 1;
        }
        assert!((5..16).contains(&n), "{n}");
        assert_eq!(store.add(b"more", entry(None), 9), Err(Fault::Full));
        assert_eq!(store.find(b"k0", 10), None);
        assert_eq!(store.add(b"more", entry(None), 10), Ok(()));
        assert_eq!(
            (store.iter(10).count(), store.add(b"more", entry(None), 10)),
            (1, Err(Fault::Exists))
        );
        assert_eq!(store.change(b"k0", None, 10), Err(Fault::Missing));
        assert_eq!(store.change(b"more", None, 10), Ok(()));
        assert_eq!((store.used, *store.chunks()), (0, Chunks::default()));
    }

    #[test]
    fn many_take_no_longer_than_they_must() {
        let mut store = Store::new(Kind::Text, 256 << 20);
        let begun = std::time::Instant::now();
        for n in 0..200_000_u64 {
            let entry = Entry { value: b"value".to_vec(), until_ms: (n % 2 == 0).then_some(n) };
            assert_eq!(store.add(format!("key{n}").as_bytes(), entry, n / 4), Ok(()));
        }
        assert!(begun.elapsed().as_secs() < 20, "{:?}", begun.elapsed());
        assert_eq!(store.iter(200_000).count(), 100_000);
    }

    #[test]
    fn keys_of_addresses_are_addresses() {
        let mut store = Store::new(Kind::Ip, 64 * 1024);
        let entry = || Entry { value: b"v".to_vec(), until_ms: None };
        for key in ["x", "", "10.0.0.1/33", "10.0.0", "::/129", "10.0.0.0/8/8"] {
            assert_eq!(store.add(key.as_bytes(), entry(), 0), Err(Fault::Key), "{key}");
        }
        assert_eq!(store.add(b"10.0.0.0/8", entry(), 0), Ok(()));
        assert_eq!(store.add(b"10.9.0.0/8", entry(), 0), Err(Fault::Exists));
    }
}
