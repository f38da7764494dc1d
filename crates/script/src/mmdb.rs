//! Databases that are asked by addresses, in the format of MaxMind's (`.mmdb`, its version 2.0): a binary tree over
//! an address's bits whose leaves lead to values, among which those of a map or an array are found by a path.
//!
//! The file may be anybody's: whatever it holds, nothing panics, no look-up goes round in circles, and none takes
//! more than [`STEPS_MAX`] values.

use std::net::IpAddr;
use std::ops::Range;

/// Behind it, near the file's end, stands what the file says of itself.
const MARKER: &[u8] = b"\xab\xcd\xefMaxMind.com";
/// No further from the end than this.
const METADATA_MAX_BYTES: usize = 128 * 1024;
/// Zeros between the tree and the values.
const GAP_BYTES: usize = 16;
/// Values that a look-up goes past; a country's record has some fifty, a city's some hundred.
const STEPS_MAX: u32 = 20_000;

const POINTER: u8 = 1;
const TEXT: u8 = 2;
const DOUBLE: u8 = 3;
const BYTES: u8 = 4;
const UINT16: u8 = 5;
const UINT32: u8 = 6;
const MAP: u8 = 7;
const INT32: u8 = 8;
const UINT64: u8 = 9;
const UINT128: u8 = 10;
const ARRAY: u8 = 11;
const BOOL: u8 = 14;
const FLOAT: u8 = 15;

/// Why a file is none of these databases.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MmdbError {
    /// It does not end as they do.
    NotOne,
    /// Of another version of the format.
    Version,
    /// What it says of itself is no sense, or it was cut off.
    Broken,
}

impl std::fmt::Display for MmdbError {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        f.write_str(match self {
            MmdbError::NotOne => "it is no MaxMind DB file",
            MmdbError::Version => "its version of the format is not known",
            MmdbError::Broken => "it is broken",
        })
    }
}

/// A file in memory.
pub struct Mmdb {
    bytes: Box<[u8]>,
    nodes: u32,
    /// Of one of a node's two records: 24, 28 or 32.
    record_bits: u32,
    is_v6: bool,
    /// Where addresses of IPv4 begin in a tree of IPv6's.
    v4_start: u32,
    data: Range<usize>,
    /// Seconds since 1970.
    build_epoch: u64,
    kind: Box<[u8]>,
}

/// A value as the file has it.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Value<'a> {
    Text(&'a [u8]),
    Bytes(&'a [u8]),
    Double(f64),
    Float(f32),
    Unsigned(u64),
    Signed(i32),
    Wide(u128),
    Bool(bool),
    /// With so many entries, found by their names.
    Map(usize),
    /// With so many values, found by their numbers.
    Array(usize),
}

/// What the tree has led to.
#[derive(Clone, Copy)]
pub struct Entry<'a> {
    section: Section<'a>,
    at: usize,
}

impl Mmdb {
    /// # Errors
    ///
    /// What it says of itself is wrong. The rest is looked at when it is asked for.
    pub fn new(bytes: Vec<u8>) -> Result<Mmdb, MmdbError> {
        let from = bytes.len().saturating_sub(METADATA_MAX_BYTES);
        let marker = memchr::memmem::rfind(&bytes[from..], MARKER).ok_or(MmdbError::NotOne)? + from;
        let about = Entry { section: Section(&bytes[marker + MARKER.len()..]), at: 0 };
        let number = |name: &[u8]| match about.get(&[name]) {
            Some(Value::Unsigned(n)) => Ok(n),
            _ => Err(MmdbError::Broken),
        };
        if number(b"binary_format_major_version")? != 2 {
            return Err(MmdbError::Version);
        }
        let nodes = u32::try_from(number(b"node_count")?).map_err(|_| MmdbError::Broken)?;
        let record_bits = match number(b"record_size")? {
            bits @ (24 | 28 | 32) => bits as u32,
            _ => return Err(MmdbError::Broken),
        };
        let is_v6 = match number(b"ip_version")? {
            4 => false,
            6 => true,
            _ => return Err(MmdbError::Broken),
        };
        let tree_bytes = u64::from(nodes) * u64::from(record_bits) / 4;
        let data_start = usize::try_from(tree_bytes).ok().and_then(|n| n.checked_add(GAP_BYTES));
        let data_start = data_start.filter(|start| *start <= marker).ok_or(MmdbError::Broken)?;
        let build_epoch = number(b"build_epoch").unwrap_or(0);
        let kind = match about.get(&[b"database_type"]) {
            Some(Value::Text(text)) => text.into(),
            _ => Box::default(),
        };
        let data = data_start..marker;
        let bytes = bytes.into_boxed_slice();
        let mut made =
            Mmdb { bytes, nodes, record_bits, is_v6, v4_start: 0, data, build_epoch, kind };
        if is_v6 {
            made.v4_start = made.walk(0, 0, 96);
        }
        Ok(made)
    }

    /// When it was made, in seconds since 1970.
    pub fn build_epoch(&self) -> u64 {
        self.build_epoch
    }

    /// What it calls itself, such as `GeoLite2-Country`.
    pub fn kind(&self) -> &[u8] {
        &self.kind
    }

    /// What it has of an address.
    pub fn find(&self, addr: IpAddr) -> Option<Entry<'_>> {
        let found = match (addr, self.is_v6) {
            (IpAddr::V4(v4), false) => self.walk(0, u128::from(v4.to_bits()) << 96, 32),
            (IpAddr::V4(v4), true) => self.walk(self.v4_start, u128::from(v4.to_bits()) << 96, 32),
            (IpAddr::V6(v6), true) => self.walk(0, v6.to_bits(), 128),
            (IpAddr::V6(_), false) => return None,
        };
        let at = found.checked_sub(self.nodes)?.checked_sub(GAP_BYTES as u32)? as usize;
        let section = Section(self.bytes.get(self.data.clone())?);
        Some(Entry { section, at })
    }

    /// Goes down by the first of the bits, to a record that is no node.
    fn walk(&self, from: u32, bits: u128, count: u32) -> u32 {
        let mut node = from;
        for n in 0..count {
            if node >= self.nodes {
                break;
            }
            node = self.record(node, bits << n >> 127 == 1);
        }
        node
    }

    /// One of a node's records. The tree is in the file as a whole.
    fn record(&self, node: u32, right: bool) -> u32 {
        let bytes = self.record_bits as usize / 4;
        let start = node as usize * bytes;
        // What is not there is no node and leads nowhere.
        let Some(b) = self.bytes.get(start..start + bytes) else { return u32::MAX };
        let number = |b: &[u8]| b.iter().fold(0, |n: u32, b| n << 8 | u32::from(*b));
        match (self.record_bits, right) {
            (28, false) => u32::from(b[3] >> 4) << 24 | number(&b[..3]),
            (28, true) => u32::from(b[3] & 15) << 24 | number(&b[4..]),
            (_, false) => number(&b[..bytes / 2]),
            (_, true) => number(&b[bytes / 2..]),
        }
    }
}

/// Values one behind the other; pointers in it count from its beginning.
#[derive(Clone, Copy)]
struct Section<'a>(&'a [u8]);

/// A value's head.
#[derive(Clone, Copy)]
struct Item {
    kind: u8,
    /// Bytes, entries, where a pointer leads, or what is true.
    size: usize,
    /// Behind the head.
    at: usize,
}

impl Section<'static> {
    /// Of a long size: how many bytes say it, and what is added to that.
    const LONG: [(usize, usize); 3] = [(1, 29), (2, 285), (3, 65_821)];
    /// Of a pointer: how many bytes besides three bits, and what is added.
    const FAR: [(usize, usize); 4] = [(1, 0), (2, 2048), (3, 526_336), (4, 0)];
}

impl<'a> Section<'a> {
    fn number(&self, at: usize, bytes: usize) -> Option<usize> {
        let text = self.0.get(at..at.checked_add(bytes)?)?;
        Some(text.iter().fold(0, |n, b| n << 8 | usize::from(*b)))
    }

    fn item(&self, at: usize) -> Option<Item> {
        let control = *self.0.get(at)?;
        let (mut kind, low) = (control >> 5, usize::from(control & 31));
        let mut at = at + 1;
        if kind == POINTER {
            let (bytes, more) = Section::FAR[low >> 3];
            let high = if bytes == 4 { 0 } else { (low & 7) << (8 * bytes) };
            let size = (high | self.number(at, bytes)?) + more;
            return Some(Item { kind, size, at: at + bytes });
        }
        if kind == 0 {
            kind = self.0.get(at)?.checked_add(7)?;
            at += 1;
        }
        let Some(long) = low.checked_sub(29) else { return Some(Item { kind, size: low, at }) };
        let (bytes, more) = Section::LONG[long];
        let size = self.number(at, bytes)? + more;
        Some(Item { kind, size, at: at + bytes })
    }

    /// The value itself, where a pointer may stand; none points to another.
    fn resolved(&self, at: usize) -> Option<Item> {
        let item = self.item(at)?;
        if item.kind != POINTER {
            return Some(item);
        }
        self.item(item.size).filter(|item| item.kind != POINTER)
    }

    /// Where what is behind a value begins, whatever is within it.
    fn behind(&self, at: usize, steps: &mut u32) -> Option<usize> {
        let (mut at, mut left) = (at, 1_usize);
        while left > 0 {
            *steps = steps.checked_sub(1)?;
            let item = self.item(at)?;
            left -= 1;
            at = item.at;
            match item.kind {
                MAP => left = left.checked_add(item.size.checked_mul(2)?)?,
                ARRAY => left = left.checked_add(item.size)?,
                POINTER | BOOL => {}
                _ => at = at.checked_add(item.size)?,
            }
        }
        Some(at)
    }

    /// Where the value of that name, or number, is.
    fn child(&self, of: Item, key: &[u8], steps: &mut u32) -> Option<usize> {
        let mut at = of.at;
        match of.kind {
            MAP => {
                for _ in 0..of.size {
                    let value = self.behind(at, steps)?;
                    let name = self.resolved(at).filter(|item| item.kind == TEXT)?;
                    if self.0.get(name.at..name.at.checked_add(name.size)?)? == key {
                        return Some(value);
                    }
                    at = self.behind(value, steps)?;
                }
                None
            }
            ARRAY => {
                let number: i64 = std::str::from_utf8(key).ok()?.parse().ok()?;
                let place = if number < 0 { number.checked_add(of.size as i64)? } else { number };
                let place = usize::try_from(place).ok().filter(|place| *place < of.size)?;
                for _ in 0..place {
                    at = self.behind(at, steps)?;
                }
                Some(at)
            }
            _ => None,
        }
    }

    fn value(&self, item: Item) -> Option<Value<'a>> {
        let size = item.size;
        match item.kind {
            MAP => return Some(Value::Map(size)),
            ARRAY => return Some(Value::Array(size)),
            BOOL => return Some(Value::Bool(size != 0)),
            _ => {}
        }
        let text = self.0.get(item.at..item.at.checked_add(size)?)?;
        let number = |most: usize| {
            (size <= most).then(|| text.iter().fold(0, |n: u128, b| n << 8 | u128::from(*b)))
        };
        Some(match item.kind {
            TEXT => Value::Text(text),
            BYTES => Value::Bytes(text),
            DOUBLE => Value::Double(f64::from_be_bytes(text.try_into().ok()?)),
            FLOAT => Value::Float(f32::from_be_bytes(text.try_into().ok()?)),
            UINT16 => Value::Unsigned(number(2)? as u64),
            UINT32 => Value::Unsigned(number(4)? as u64),
            UINT64 => Value::Unsigned(number(8)? as u64),
            UINT128 => Value::Wide(number(16)?),
            INT32 => Value::Signed(number(4)? as u32 as i32),
            _ => return None,
        })
    }
}

impl<'a> Entry<'a> {
    /// The value at the end of a path of names, and numbers where there is an array (from its end below 0).
    pub fn get<K: AsRef<[u8]>>(&self, path: &[K]) -> Option<Value<'a>> {
        let mut steps = STEPS_MAX;
        let mut item = self.section.resolved(self.at)?;
        for key in path {
            let at = self.section.child(item, key.as_ref(), &mut steps)?;
            item = self.section.resolved(at)?;
        }
        self.section.value(item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(s: &str) -> Vec<u8> {
        [&[TEXT << 5 | s.len() as u8], s.as_bytes()].concat()
    }

    fn number(n: u32) -> Vec<u8> {
        [&[UINT32 << 5 | 4][..], &n.to_be_bytes()].concat()
    }

    fn file(nodes: &[u8], count: u32, bits: u32, ip_version: u32, data: &[u8]) -> Vec<u8> {
        let mut about = vec![MAP << 5 | 6];
        for (name, value) in [
            ("binary_format_major_version", number(2)),
            ("node_count", number(count)),
            ("record_size", number(bits)),
            ("ip_version", number(ip_version)),
            ("build_epoch", number(1_700_000_000)),
            ("database_type", text("Test")),
        ] {
            about.extend(text(name));
            about.extend(value);
        }
        [nodes, &[0; 16], data, MARKER, &about].concat()
    }

    /// One node: what is below 128.0.0.0 leads to the first value, the rest nowhere.
    fn small(data: &[u8]) -> Mmdb {
        Mmdb::new(file(&[0, 0, 17, 0, 0, 1], 1, 24, 4, data)).unwrap()
    }

    #[test]
    fn values_of_every_kind_by_their_paths() {
        let mut data = vec![MAP << 5 | 9];
        for (name, value) in [
            ("t", text("some text")),
            ("d", [&[DOUBLE << 5 | 8][..], &1.5_f64.to_be_bytes()].concat()),
            ("f", [&[4, FLOAT - 7][..], &(-2.5_f32).to_be_bytes()].concat()),
            ("i", [&[4, INT32 - 7][..], &(-7_i32).to_be_bytes()].concat()),
            ("w", vec![3, UINT128 - 7, 1, 2, 3]),
            ("b", vec![1, BOOL - 7]),
            ("a", [&[2, ARRAY - 7][..], &text("zero"), &number(1)].concat()),
            ("m", [&[MAP << 5 | 1][..], &text("x"), &text("deep")].concat()),
            // To "some text", which is the fourth byte.
            ("p", vec![POINTER << 5, 3]),
        ] {
            data.extend(text(name));
            data.extend(value);
        }
        let db = small(&data);
        assert_eq!((db.kind(), db.build_epoch()), (&b"Test"[..], 1_700_000_000));
        let entry = db.find("127.0.0.1".parse().unwrap()).unwrap();
        let get = |path: &str| entry.get(&path.split('.').collect::<Vec<_>>());
        assert_eq!(get("t"), Some(Value::Text(b"some text")));
        assert_eq!(get("d"), Some(Value::Double(1.5)));
        assert_eq!(get("f"), Some(Value::Float(-2.5)));
        assert_eq!(get("i"), Some(Value::Signed(-7)));
        assert_eq!(get("w"), Some(Value::Wide(0x10203)));
        assert_eq!(get("b"), Some(Value::Bool(true)));
        assert_eq!(get("a"), Some(Value::Array(2)));
        assert_eq!(get("a.0"), Some(Value::Text(b"zero")));
        assert_eq!(get("a.-1"), Some(Value::Unsigned(1)));
        assert_eq!(get("m.x"), Some(Value::Text(b"deep")));
        assert_eq!(get("p"), Some(Value::Text(b"some text")));
        for path in ["x", "a.2", "a.-3", "a.x", "m.y", "t.x", "m.x.y"] {
            assert_eq!(get(path), None, "{path}");
        }
        assert!(db.find("128.0.0.1".parse().unwrap()).is_none());
        assert!(db.find("::1".parse().unwrap()).is_none());
    }

    #[test]
    fn records_of_every_size_and_addresses_of_both_versions() {
        for (bits, node) in [
            (24, vec![0, 0, 17, 0, 0, 1]),
            (28, vec![0, 0, 17, 0, 0, 0, 1]),
            (32, vec![0, 0, 0, 17, 0, 0, 0, 1]),
        ] {
            let db = Mmdb::new(file(&node, 1, bits, 6, &text("v"))).unwrap();
            for (addr, is_there) in [("::1", true), ("8000::", false), ("255.1.1.1", true)] {
                let entry = db.find(addr.parse().unwrap());
                assert_eq!(entry.is_some(), is_there, "{bits} {addr}");
                let value = entry.and_then(|e| e.get::<&str>(&[]));
                assert_eq!(value.is_some(), is_there);
            }
        }
    }

    #[test]
    fn what_goes_round_ends() {
        // A node that leads to itself, a pointer to itself, maps without end.
        let db = Mmdb::new(file(&[0; 6], 1, 24, 6, b"")).unwrap();
        assert!(db.find("::1".parse().unwrap()).is_none());
        for data in [
            vec![POINTER << 5, 0],
            vec![MAP << 5 | 31, 255, 255, 255],
            [vec![MAP << 5 | 31, 255, 255, 255], vec![MAP << 5 | 1; 1000]].concat(),
            vec![2, ARRAY - 7, POINTER << 5, 0],
            vec![0, 255],
        ] {
            let db = small(&data);
            let entry = db.find("1.1.1.1".parse().unwrap()).unwrap();
            assert_eq!(entry.get(&["1", "1"]), None);
        }
        let whole = file(&[0, 0, 17, 0, 0, 1], 1, 24, 4, &text("v"));
        assert_eq!(Mmdb::new(Vec::new()).err(), Some(MmdbError::NotOne));
        for cut in 0..whole.len() {
            let _ = Mmdb::new(whole[..cut].to_vec())
                .map(|db| db.find("1.1.1.1".parse().unwrap()).is_some());
        }
        let huge = file(&[0; 6], 1000, 24, 4, b"");
        assert_eq!(Mmdb::new(huge).err(), Some(MmdbError::Broken));
    }
}
