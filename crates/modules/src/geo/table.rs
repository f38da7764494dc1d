//! Values by network, longest prefix first, and by range.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use weir_base::addr::Cidr;

/// The networks of one length. Few lengths occur, so that a look-up is a few probes.
struct SameLength {
    prefix: u8,
    values: HashMap<u128, u32>,
}

/// Of one address family, the longest networks first.
struct Family {
    bits: u8,
    lengths: Vec<SameLength>,
}

impl Family {
    fn key(&self, ip: IpAddr) -> u128 {
        match ip {
            IpAddr::V4(v4) => u128::from(u32::from(v4)),
            IpAddr::V6(v6) => v6.into(),
        }
    }

    fn find(&self, ip: IpAddr) -> Option<u32> {
        let key = self.key(ip);
        self.lengths.iter().find_map(|l| {
            let low = u32::from(self.bits - l.prefix);
            let base = key.checked_shr(low).and_then(|k| k.checked_shl(low)).unwrap_or(0);
            l.values.get(&base).copied()
        })
    }

    fn insert(&mut self, net: Cidr, value: u32) -> Option<u32> {
        let at = self.lengths.partition_point(|l| l.prefix > net.prefix());
        if self.lengths.get(at).is_none_or(|l| l.prefix != net.prefix()) {
            let fresh = SameLength { prefix: net.prefix(), values: HashMap::new() };
            self.lengths.insert(at, fresh);
        }
        let key = self.key(net.base());
        self.lengths[at].values.insert(key, value)
    }

    fn remove(&mut self, net: Cidr) -> bool {
        let key = self.key(net.base());
        let same = self.lengths.iter_mut().find(|l| l.prefix == net.prefix());
        same.is_some_and(|l| l.values.remove(&key).is_some())
    }
}

pub struct Networks {
    v4: Family,
    v6: Family,
}

impl Default for Networks {
    fn default() -> Self {
        let family = |bits| Family { bits, lengths: Vec::new() };
        Networks { v4: family(32), v6: family(128) }
    }
}

impl Networks {
    fn family(&mut self, net: Cidr) -> &mut Family {
        match net.base() {
            IpAddr::V4(_) => &mut self.v4,
            IpAddr::V6(_) => &mut self.v6,
        }
    }

    /// Answers the value that the network had.
    pub fn insert(&mut self, net: Cidr, value: u32) -> Option<u32> {
        self.family(net).insert(net, value)
    }

    pub fn remove(&mut self, net: Cidr) -> bool {
        self.family(net).remove(net)
    }

    pub fn find(&self, ip: IpAddr) -> Option<u32> {
        match ip {
            IpAddr::V4(_) => self.v4.find(ip),
            IpAddr::V6(_) => self.v6.find(ip),
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Range {
    start: u16,
    end: u16,
    value: u32,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum RangeError {
    /// The same range had that value, which has been replaced.
    Duplicate(u32),
    Overlaps(u32, u32),
}

/// Ranges of IPv4 addresses, by the upper half of the address as nginx keeps them: what overlaps
/// is judged within each such part.
#[derive(Default)]
pub struct Ranges(BTreeMap<u16, Vec<Range>>);

/// The parts of a range: upper half, and first and last of the lower halves.
fn parts(start: u32, end: u32) -> impl Iterator<Item = (u16, u16, u16)> {
    (start >> 16..=end >> 16).map(move |high| {
        let first = if high == start >> 16 { start as u16 } else { 0 };
        let last = if high == end >> 16 { end as u16 } else { u16::MAX };
        (high as u16, first, last)
    })
}

impl Ranges {
    pub fn insert(&mut self, start: u32, end: u32, value: u32) -> Result<(), RangeError> {
        let mut duplicate = None;
        for (high, start, end) in parts(start, end) {
            let part = self.0.entry(high).or_default();
            match insert_part(part, Range { start, end, value }) {
                Ok(None) => {}
                Ok(old) => duplicate = old,
                Err(other) => {
                    let whole = |low: u16| u32::from(high) << 16 | u32::from(low);
                    return Err(RangeError::Overlaps(whole(other.start), whole(other.end)));
                }
            }
        }
        duplicate.map_or(Ok(()), |old| Err(RangeError::Duplicate(old)))
    }

    /// Answers whether all of it was there.
    pub fn remove(&mut self, start: u32, end: u32) -> bool {
        let mut complete = true;
        for (high, start, end) in parts(start, end) {
            let part = self.0.entry(high).or_default();
            match part.binary_search_by_key(&(start, end), |r| (r.start, r.end)) {
                Ok(at) => drop(part.remove(at)),
                Err(_) => complete = false,
            }
        }
        complete
    }

    pub fn find(&self, addr: u32) -> Option<u32> {
        let (part, low) = (self.0.get(&((addr >> 16) as u16))?, addr as u16);
        let at = part.partition_point(|r| r.end < low);
        part.get(at).filter(|r| r.start <= low).map(|r| r.value)
    }
}

/// Puts a range between or into those there; answers the old value of the same range, or the
/// range that is only partly covered.
fn insert_part(part: &mut Vec<Range>, new: Range) -> Result<Option<u32>, Range> {
    let at = part.partition_point(|r| r.end < new.start);
    let Some(old) = part.get(at).copied().filter(|r| r.start <= new.end) else {
        part.insert(at, new);
        return Ok(None);
    };
    if (old.start, old.end) == (new.start, new.end) {
        part[at] = new;
        return Ok(Some(old.value));
    }
    if old.start > new.start || old.end < new.end {
        return Err(old);
    }
    let before = (old.start < new.start).then(|| Range { end: new.start - 1, ..old });
    let after = (old.end > new.end).then(|| Range { start: new.end + 1, ..old });
    part.splice(at..=at, before.into_iter().chain([new]).chain(after));
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn networks() {
        let mut t = Networks::default();
        let net = |text: &str| Cidr::parse(text.as_bytes()).unwrap().0;
        for (text, value) in
            [("0.0.0.0/0", 0), ("10.0.0.0/8", 1), ("10.1.0.0/16", 2), ("10.1.2.3", 3), ("::/0", 4)]
        {
            assert_eq!(t.insert(net(text), value), None, "{text}");
        }
        t.insert(net("2001:db8::/32"), 5);
        let find = |t: &Networks, ip: &str| t.find(ip.parse().unwrap());
        for (ip, value) in [
            ("8.8.8.8", 0),
            ("10.2.0.1", 1),
            ("10.1.9.9", 2),
            ("10.1.2.3", 3),
            ("::1", 4),
            ("2001:db8::9", 5),
        ] {
            assert_eq!(find(&t, ip), Some(value), "{ip}");
        }
        assert_eq!(t.insert(net("10.1.0.0/16"), 9), Some(2));
        assert!(t.remove(net("10.1.0.0/16")) && !t.remove(net("10.1.0.0/16")));
        assert_eq!(find(&t, "10.1.9.9"), Some(1));
    }

    #[test]
    fn ranges() {
        let mut t = Ranges::default();
        assert_eq!(t.insert(0x0a00_0000, 0x0a02_00ff, 1), Ok(()));
        assert_eq!(t.insert(0x0a01_0010, 0x0a01_0020, 2), Ok(()));
        for (addr, value) in [
            (0x09ff_ffff, None),
            (0x0a00_0000, Some(1)),
            (0x0a01_000f, Some(1)),
            (0x0a01_0010, Some(2)),
            (0x0a01_0020, Some(2)),
            (0x0a01_0021, Some(1)),
            (0x0a02_00ff, Some(1)),
            (0x0a02_0100, None),
        ] {
            assert_eq!(t.find(addr), value, "{addr:x}");
        }
        assert_eq!(t.insert(0x0a01_0010, 0x0a01_0020, 3), Err(RangeError::Duplicate(2)));
        assert_eq!(
            t.insert(0x0a01_0018, 0x0a01_0030, 4),
            Err(RangeError::Overlaps(0x0a01_0010, 0x0a01_0020))
        );
        assert!(t.remove(0x0a01_0010, 0x0a01_0020) && !t.remove(0, 5));
        assert_eq!(t.find(0x0a01_0015), None);
        assert_eq!(t.insert(0xffff_0000, 0xffff_ffff, 5), Ok(()));
        assert_eq!(t.find(u32::MAX), Some(5));
    }
}
