//! Which parts of an incomplete answer are kept.
//!
//! Invariants: ranges are in order, not empty, and do not touch; there are at most [`MAX`] of them.

/// So many ranges of one answer at most.
const MAX: usize = 32;
/// What the list takes in a file, whatever is in it.
pub const BYTES: usize = 16 + 16 * MAX;

/// The parts of a body that are there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Parts {
    /// First byte, and the one behind the last, of each.
    list: Vec<(u64, u64)>,
    /// When its file was begun, in nanoseconds of Unix time: what a purge compares with, because every part
    /// that comes changes what the file system says.
    pub(crate) begun_ns: u64,
}

impl Parts {
    /// The first one.
    pub fn new(begun_ns: u64, from: u64, to: u64) -> Parts {
        Parts { list: vec![(from, to)], begun_ns }
    }

    /// Adds a part, which may overlap with others; `false`: there would be too many.
    pub fn add(&mut self, from: u64, to: u64) -> bool {
        if from >= to {
            return true;
        }
        let touches = |(a, b): &(u64, u64)| *a <= to && from <= *b;
        let joined = self.list.iter().filter(|p| touches(p)).count();
        if self.list.len() - joined >= MAX {
            return false;
        }
        let (mut start, mut end) = (from, to);
        self.list.retain(|p| {
            if touches(p) {
                (start, end) = (start.min(p.0), end.max(p.1));
            }
            !touches(p)
        });
        let at = self.list.partition_point(|p| p.0 < start);
        self.list.insert(at, (start, end));
        true
    }

    /// Whether there is room for it.
    pub fn takes(&self, from: u64, to: u64) -> bool {
        self.clone().add(from, to)
    }

    /// Whether all of that range is there.
    pub fn hold(&self, from: u64, to: u64) -> bool {
        self.list.iter().any(|p| p.0 <= from && to <= p.1)
    }

    /// How many bytes there are.
    pub fn bytes(&self) -> u64 {
        self.list.iter().map(|(from, to)| to - from).sum()
    }

    /// Behind the last.
    pub fn end(&self) -> u64 {
        self.list.last().map_or(0, |p| p.1)
    }

    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(BYTES);
        out.extend_from_slice(&self.begun_ns.to_le_bytes());
        out.extend_from_slice(&(self.list.len() as u64).to_le_bytes());
        for (from, to) in &self.list {
            out.extend_from_slice(&from.to_le_bytes());
            out.extend_from_slice(&to.to_le_bytes());
        }
        out.resize(BYTES, 0);
        out
    }

    /// Of a body of so many bytes; `None` where it is no such list.
    pub(crate) fn decode(bytes: &[u8], body_len: u64) -> Option<Parts> {
        let mut numbers =
            bytes.chunks_exact(8).filter_map(|n| Some(u64::from_le_bytes(n.try_into().ok()?)));
        let (begun_ns, count) = (numbers.next()?, numbers.next()?);
        let mut parts = Parts { list: Vec::new(), begun_ns };
        for _ in 0..usize::try_from(count).ok().filter(|n| (1..=MAX).contains(n))? {
            let (from, to) = (numbers.next()?, numbers.next()?);
            let is_next = parts.list.is_empty() || from > parts.end();
            if !is_next || from >= to || to > body_len {
                return None;
            }
            parts.list.push((from, to));
        }
        Some(parts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_join() {
        let mut parts = Parts::new(7, 10, 20);
        assert!(parts.add(30, 40) && parts.add(0, 5));
        assert_eq!(parts.list, [(0, 5), (10, 20), (30, 40)]);
        assert!(parts.add(20, 30), "both neighbours");
        assert_eq!(
            (parts.list.as_slice(), parts.bytes(), parts.end()),
            (&[(0, 5), (10, 40)][..], 35, 40)
        );
        assert!(
            parts.hold(12, 40) && !parts.hold(4, 6) && !parts.hold(0, 40) && !parts.hold(39, 41)
        );
        assert!(parts.add(3, 12) && parts.add(5, 5));
        assert_eq!(parts.list, [(0, 40)]);
        assert_eq!(Parts::decode(&parts.encode(), 40), Some(parts.clone()));
        assert_eq!(Parts::decode(&parts.encode(), 39), None, "more than there is");
    }

    /// Whatever comes in whatever order: the list says of every byte what is true of it.
    #[test]
    fn the_list_is_true_of_every_byte() {
        let mut seed = 1u64;
        let mut next = |n: u64| {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (seed >> 33) % n
        };
        for _ in 0..300 {
            let mut there = [false; 200];
            let (from, to) = (next(100), 100 + next(10));
            let mut parts = Parts::new(0, from, to);
            there[from as usize..to as usize].fill(true);
            for _ in 0..60 {
                let from = next(199);
                let to = (from + 1 + next(4)).min(200);
                assert_eq!(parts.takes(from, to), parts.clone().add(from, to));
                if parts.add(from, to) {
                    there[from as usize..to as usize].fill(true);
                }
                assert!(parts.list.len() <= MAX);
            }
            for at in 0..200u64 {
                assert_eq!(parts.hold(at, at + 1), there[at as usize], "{at} {parts:?}");
            }
            assert_eq!(Parts::decode(&parts.encode(), 200), Some(parts));
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let encode = |list: &[(u64, u64)]| Parts { list: list.to_vec(), begun_ns: 0 }.encode();
        for bad in
            [&[][..], &[(5, 5)], &[(6, 5)], &[(0, 5), (5, 6)], &[(7, 8), (0, 5)], &[(0, 5), (3, 9)]]
        {
            assert_eq!(Parts::decode(&encode(bad), 100), None, "{bad:?}");
        }
        let mut many = encode(&[(0, 1)]);
        many[8..16].copy_from_slice(&u64::MAX.to_le_bytes());
        assert_eq!(Parts::decode(&many, 100), None);
        assert_eq!(Parts::decode(&many[..10], 100), None);
    }

    #[test]
    fn there_is_room_for_so_many() {
        let mut parts = Parts::new(0, 0, 1);
        for n in 1..MAX as u64 {
            assert!(parts.add(n * 10, n * 10 + 1));
        }
        assert!(!parts.takes(5, 6) && !parts.add(5, 6));
        assert!(parts.add(1, 5), "what joins one needs none");
        assert!(parts.add(5, 10), "nor does what joins two");
        assert!(parts.add(1000, 1001));
    }
}
