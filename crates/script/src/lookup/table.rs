//! A hash table of byte strings.
//!
//! The hash is quick and not keyed: keys come from the configuration alone, a request can
//! only ask.

const EMPTY: u32 = u32::MAX;

/// Values by name, the case of ASCII letters not counting.
#[derive(Clone, Debug)]
pub struct StrMap<T> {
    entries: Vec<(Box<[u8]>, T)>,
    /// Indices of `entries`, open addressing; the length is a power of two, or 0.
    buckets: Box<[u32]>,
    longest: usize,
}

impl<T> Default for StrMap<T> {
    fn default() -> Self {
        StrMap { entries: Vec::new(), buckets: Box::default(), longest: 0 }
    }
}

impl<T> StrMap<T> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn len(&self) -> usize {
        self.entries.len()
    }

    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The length of the longest key.
    pub fn longest(&self) -> usize {
        self.longest
    }

    /// Puts a new name in; when there is one already its value is given and kept.
    pub fn insert(&mut self, name: &[u8], value: T) -> Result<(), &T> {
        if let Some(at) = self.find(name) {
            return Err(&self.entries[at].1);
        }
        self.longest = self.longest.max(name.len());
        self.entries.push((name.to_ascii_lowercase().into(), value));
        if self.entries.len() * 2 > self.buckets.len() {
            self.grow();
        } else {
            let at = self.entries.len() - 1;
            place(&mut self.buckets, hash(name), at);
        }
        Ok(())
    }

    #[inline]
    pub fn get(&self, name: &[u8]) -> Option<&T> {
        self.find(name).map(|at| &self.entries[at].1)
    }

    pub fn get_mut(&mut self, name: &[u8]) -> Option<&mut T> {
        self.find(name).map(|at| &mut self.entries[at].1)
    }

    pub fn contains(&self, name: &[u8]) -> bool {
        self.find(name).is_some()
    }

    /// Names in lower case and values, in order of insertion.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &T)> {
        self.entries.iter().map(|(name, value)| (&**name, value))
    }

    fn find(&self, name: &[u8]) -> Option<usize> {
        if self.buckets.is_empty() || name.len() > self.longest {
            return None;
        }
        let mask = self.buckets.len() - 1;
        let mut at = hash(name) as usize & mask;
        loop {
            let index = self.buckets[at];
            if index == EMPTY {
                return None;
            }
            if self.entries[index as usize].0.eq_ignore_ascii_case(name) {
                return Some(index as usize);
            }
            at = (at + 1) & mask;
        }
    }

    /// Keeps the table at most half full, so that a probe always ends at a free bucket.
    fn grow(&mut self) {
        let len = (self.entries.len() * 4).next_power_of_two().max(8);
        let mut buckets = vec![EMPTY; len].into_boxed_slice();
        for (at, (name, _)) in self.entries.iter().enumerate() {
            place(&mut buckets, hash(name), at);
        }
        self.buckets = buckets;
    }
}

fn place(buckets: &mut [u32], hash: u64, entry: usize) {
    let mask = buckets.len() - 1;
    let mut at = hash as usize & mask;
    while buckets[at] != EMPTY {
        at = (at + 1) & mask;
    }
    // Four thousand million names do not fit into memory.
    buckets[at] = u32::try_from(entry).unwrap_or(EMPTY);
}

/// FNV-1a over lower case, with its upper bits folded in.
#[inline]
fn hash(name: &[u8]) -> u64 {
    let hash = name.iter().fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| {
        (hash ^ u64::from(byte.to_ascii_lowercase())).wrapping_mul(0x0100_0000_01b3)
    });
    hash ^ hash >> 32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        let mut map = StrMap::new();
        assert_eq!(map.get(b"x"), None);
        assert_eq!(map.insert(b"Content-Type", 1), Ok(()));
        assert_eq!(map.insert(b"", 2), Ok(()));
        assert_eq!(map.insert(b"CONTENT-type", 3), Err(&1));
        assert_eq!(map.get(b"content-TYPE"), Some(&1));
        assert_eq!(map.get(b""), Some(&2));
        assert_eq!(map.get(b"content"), None);
        assert_eq!((map.len(), map.longest()), (2, 12));
        *map.get_mut(b"").unwrap() = 5;
        let all: Vec<_> = map.iter().collect();
        assert_eq!(all, [(&b"content-type"[..], &1), (b"", &5)]);
        assert!(map.contains(b"") && !map.contains(b"x") && !map.is_empty());
    }

    #[test]
    fn many() {
        let mut map = StrMap::new();
        for n in 0..5000 {
            assert_eq!(map.insert(format!("Name-{n}").as_bytes(), n), Ok(()));
        }
        for n in 0..5000 {
            assert_eq!(map.get(format!("nAME-{n}").as_bytes()), Some(&n));
        }
        assert_eq!(map.get(b"name-5000"), None);
    }
}
