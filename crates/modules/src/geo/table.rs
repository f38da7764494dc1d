//! Values by address: what a block says, and the sorted table that it becomes.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use weir_base::addr::{unmapped, Cidr};

/// Where a value is in the list of values.
type Number = u32;

/// The values of a block, each kept once.
#[derive(Default)]
struct Values {
    list: Vec<Box<[u8]>>,
    numbers: HashMap<Box<[u8]>, Number>,
}

impl Values {
    fn number(&mut self, value: &[u8]) -> Number {
        if let Some(n) = self.numbers.get(value) {
            return *n;
        }
        let n = self.list.len() as Number;
        self.list.push(value.into());
        self.numbers.insert(value.into(), n);
        n
    }

    fn get(&self, n: Number) -> Vec<u8> {
        self.list[n as usize].to_vec()
    }
}

/// Every address has a value: each entry holds from its address to the next entry's.
pub struct Table {
    v4: Box<[(u32, Number)]>,
    v6: Box<[(u128, Number)]>,
    values: Box<[Box<[u8]>]>,
    /// Ranges are of IPv4 alone; other addresses count as the broadcast address.
    only_v4: bool,
}

impl Table {
    pub fn find(&self, addr: IpAddr) -> &[u8] {
        let n = match unmapped(addr) {
            IpAddr::V4(a) => look_up(&self.v4, u32::from(a)),
            IpAddr::V6(_) if self.only_v4 => look_up(&self.v4, u32::MAX),
            IpAddr::V6(a) => look_up(&self.v6, u128::from(a)),
        };
        n.and_then(|n| self.values.get(n as usize)).map_or(b"", |v| v)
    }
}

fn look_up<T: Copy + Ord>(entries: &[(T, Number)], addr: T) -> Option<Number> {
    let after = entries.partition_point(|(start, _)| *start <= addr);
    entries.get(after.checked_sub(1)?).map(|(_, n)| *n)
}

/// Entries in order of address.
struct Entries(Vec<(u128, Number)>);

impl Entries {
    fn push(&mut self, start: u128, n: Number) {
        match self.0.last_mut() {
            Some(last) if last.0 == start => last.1 = n,
            Some(last) if last.1 == n => {}
            _ => self.0.push((start, n)),
        }
    }
}

/// Makes entries of ranges that are nested or apart, sorted by start and the wider first.
fn flatten(
    ranges: impl Iterator<Item = (u128, u128, Number)>,
    outside: Number,
    max: u128,
) -> Vec<(u128, Number)> {
    let mut entries = Entries(vec![(0, outside)]);
    let mut open: Vec<(u128, Number)> = Vec::new();
    let close = |entries: &mut Entries, open: &mut Vec<(u128, Number)>, before: u128| {
        while let Some((end, _)) = open.last().copied().filter(|(end, _)| *end < before) {
            open.pop();
            entries.push(end + 1, open.last().map_or(outside, |(_, n)| *n));
        }
    };
    for (start, end, n) in ranges {
        close(&mut entries, &mut open, start);
        entries.push(start, n);
        open.push((end, n));
    }
    close(&mut entries, &mut open, max);
    entries.0
}

fn narrow(entries: Vec<(u128, Number)>) -> Box<[(u32, Number)]> {
    entries.into_iter().map(|(start, n)| (start as u32, n)).collect()
}

/// Networks: the longest that holds an address counts.
#[derive(Default)]
pub struct Networks {
    values: Values,
    /// By first address and length of the prefix.
    v4: BTreeMap<(u128, u8), Number>,
    v6: BTreeMap<(u128, u8), Number>,
}

impl Networks {
    fn place(&mut self, net: Cidr) -> (&mut BTreeMap<(u128, u8), Number>, (u128, u8)) {
        match net.base() {
            IpAddr::V4(a) => (&mut self.v4, (u128::from(u32::from(a)), net.prefix())),
            IpAddr::V6(a) => (&mut self.v6, (u128::from(a), net.prefix())),
        }
    }

    /// Answers the value that was there before.
    pub fn insert(&mut self, net: Cidr, value: &[u8]) -> Option<Vec<u8>> {
        let n = self.values.number(value);
        let (map, key) = self.place(net);
        let old = map.insert(key, n);
        old.map(|n| self.values.get(n))
    }

    pub fn remove(&mut self, net: Cidr) -> bool {
        let (map, key) = self.place(net);
        map.remove(&key).is_some()
    }

    pub fn finish(mut self) -> Table {
        let none = self.values.number(b"");
        let ranges = |map: &BTreeMap<(u128, u8), Number>, width: u8| {
            let max = u128::MAX >> (128 - u32::from(width));
            let list: Vec<_> = map
                .iter()
                .map(|((base, prefix), n)| {
                    let rest = max.checked_shr(u32::from(*prefix)).unwrap_or(0);
                    (*base, base | rest, *n)
                })
                .collect();
            flatten(list.into_iter(), none, max)
        };
        Table {
            v4: narrow(ranges(&self.v4, 32)),
            v6: ranges(&self.v6, 128).into(),
            values: self.values.list.into(),
            only_v4: false,
        }
    }
}

/// Ranges of IPv4 addresses: a later one may cut a piece out of an earlier one.
#[derive(Default)]
pub struct Ranges {
    values: Values,
    default: Option<Number>,
    /// Ends and values by start. No range crosses a multiple of 65536: nginx judges overlaps
    /// piece by piece, and what it accepts depends on that.
    map: BTreeMap<u32, (u32, Number)>,
}

/// The parts of a range between multiples of 65536.
fn pieces(start: u32, end: u32) -> impl Iterator<Item = (u32, u32)> {
    (start >> 16..=end >> 16).map(move |high| {
        let first = high << 16;
        (start.max(first), end.min(first | 0xffff))
    })
}

impl Ranges {
    pub fn set_default(&mut self, value: &[u8]) -> Option<Vec<u8>> {
        let n = self.values.number(value);
        self.default.replace(n).map(|n| self.values.get(n))
    }

    /// Answers the value that a range with the same ends had, or the range that this one overlaps.
    pub fn insert(
        &mut self,
        start: u32,
        end: u32,
        value: &[u8],
    ) -> Result<Option<Vec<u8>>, (u32, u32)> {
        let n = self.values.number(value);
        let mut old = None;
        for (s, e) in pieces(start, end) {
            old = self.insert_piece(s, e, n)?.or(old);
        }
        Ok(old.map(|n| self.values.get(n)))
    }

    fn insert_piece(&mut self, s: u32, e: u32, n: Number) -> Result<Option<Number>, (u32, u32)> {
        let met = self.map.range(..=e).next_back().map(|(s, (e, n))| (*s, *e, *n));
        let mut old = None;
        if let Some((start, end, value)) = met.filter(|(_, end, _)| *end >= s) {
            if s < start || e > end {
                return Err((start, end));
            }
            if (s, e) == (start, end) {
                old = Some(value);
            }
            if s > start {
                self.map.insert(start, (s - 1, value));
            }
            if e < end {
                self.map.insert(e + 1, (end, value));
            }
        }
        self.map.insert(s, (e, n));
        Ok(old)
    }

    /// Takes ranges away that have exactly these ends; `false` when there is one missing.
    pub fn remove(&mut self, start: u32, end: u32) -> bool {
        let mut found = true;
        for (s, e) in pieces(start, end) {
            match self.map.get(&s) {
                Some((end, _)) if *end == e => drop(self.map.remove(&s)),
                _ => found = false,
            }
        }
        found
    }

    pub fn finish(mut self) -> Table {
        let none = match self.default {
            Some(n) => n,
            None => self.values.number(b""),
        };
        let ranges = self.map.iter().map(|(s, (e, n))| (u128::from(*s), u128::from(*e), *n));
        Table {
            v4: narrow(flatten(ranges, none, u128::from(u32::MAX))),
            v6: Box::default(),
            values: self.values.list.into(),
            only_v4: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find<'t>(table: &'t Table, addr: &str) -> &'t str {
        std::str::from_utf8(table.find(addr.parse().unwrap())).unwrap()
    }

    fn networks(list: &[(&str, &str)]) -> Networks {
        let mut networks = Networks::default();
        for (net, value) in list {
            networks.insert(Cidr::parse(net.as_bytes()).unwrap().0, value.as_bytes());
        }
        networks
    }

    #[test]
    fn longest_network() {
        let table = networks(&[
            ("10.0.0.0/8", "ten"),
            ("10.1.0.0/16", "one"),
            ("10.1.255.255", "end"),
            ("255.255.255.255", "last"),
            ("2001:db8::/32", "six"),
            ("2001:db8::1", "host"),
        ])
        .finish();
        for (addr, value) in [
            ("9.255.255.255", ""),
            ("10.0.0.0", "ten"),
            ("10.1.0.0", "one"),
            ("10.1.255.254", "one"),
            ("10.1.255.255", "end"),
            ("10.2.0.0", "ten"),
            ("10.255.255.255", "ten"),
            ("11.0.0.0", ""),
            ("255.255.255.254", ""),
            ("255.255.255.255", "last"),
            ("::ffff:10.1.2.3", "one"),
            ("2001:db8::", "six"),
            ("2001:db8::1", "host"),
            ("2001:db8::2", "six"),
            ("2001:db9::", ""),
        ] {
            assert_eq!(find(&table, addr), value, "{addr}");
        }
    }

    #[test]
    fn network_changes() {
        let mut nets = networks(&[("0.0.0.0/0", "all"), ("10.0.0.0/8", "ten")]);
        let ten = Cidr::parse(b"10.0.0.0/8").unwrap().0;
        assert_eq!(nets.insert(ten, b"new"), Some(b"ten".to_vec()));
        assert!(nets.remove(ten) && !nets.remove(ten));
        let table = nets.finish();
        assert_eq!(find(&table, "10.0.0.1"), "all");
        assert_eq!(find(&table, "255.255.255.255"), "all");
        assert_eq!(find(&table, "::1"), "");
    }

    #[test]
    fn ranges() {
        let mut ranges = Ranges::default();
        assert_eq!(ranges.set_default(b"d"), None);
        assert_eq!(ranges.insert(10, 200_000, b"a"), Ok(None));
        assert_eq!(ranges.insert(20, 30, b"b"), Ok(None));
        assert_eq!(ranges.insert(20, 30, b"c"), Ok(Some(b"b".to_vec())));
        assert_eq!(ranges.insert(25, 40, b"x"), Err((31, 65_535)));
        assert_eq!(ranges.insert(5, 15, b"x"), Err((10, 19)));
        assert!(ranges.remove(65_536, 131_071) && !ranges.remove(1, 2));
        let table = ranges.finish();
        for (addr, value) in [
            (9u32, "d"),
            (10, "a"),
            (20, "c"),
            (30, "c"),
            (31, "a"),
            (65_535, "a"),
            (65_536, "d"),
            (131_072, "a"),
            (200_000, "a"),
            (200_001, "d"),
        ] {
            let addr = std::net::Ipv4Addr::from(addr).to_string();
            assert_eq!(find(&table, &addr), value, "{addr}");
        }
        assert_eq!(find(&table, "::1"), "d");
    }

    /// Against a plain search of the list.
    #[test]
    fn random_networks() {
        let mut seed = 7u32;
        let mut next = || {
            seed ^= seed << 13;
            seed ^= seed >> 17;
            seed ^= seed << 5;
            seed
        };
        for _ in 0..200 {
            let mut nets = Networks::default();
            let mut list = Vec::new();
            for n in 0..next() % 12 {
                let addr = std::net::Ipv4Addr::from((next() & 0xff) << 24 | 0xff);
                let (net, _) = Cidr::new(addr.into(), (next() % 10) as u8).unwrap();
                list.retain(|(other, _)| *other != net);
                list.push((net, n.to_string()));
                nets.insert(net, n.to_string().as_bytes());
            }
            let table = nets.finish();
            for high in 0..=255u32 {
                let addr = IpAddr::V4(std::net::Ipv4Addr::from(high << 24 | 0x7f_ffff));
                let inside = list.iter().filter(|(net, _)| net.matches(addr));
                let best = inside.max_by_key(|(net, _)| net.prefix());
                let expected = best.map_or("", |(_, value)| value);
                assert_eq!(find(&table, &addr.to_string()), expected);
            }
        }
    }
}
