//! Requests that have come before word for word: the text of a head is compared with those that are known, as a whole,
//! and none of its fields is looked for.
//!
//! What is known here only leads to what is gathered: a head that is not found is looked up by what is counted, and is
//! known once that was found, so that what comes once costs no room. Clients that never say the same twice (a
//! number of its own in each request, say) are not asked about for a while.

use super::{eight, spread, Once, PLACES};

/// Longer ones are not known.
const TEXT_MAX_BYTES: usize = 2048;
/// What is known takes no more: beyond that all is forgotten.
pub(super) const MAX_BYTES: usize = 512 * 1024;
/// So many more that were made known than were found again are enough.
const IN_VAIN_MAX: u32 = 512;
/// Then so many are not asked about.
const REST: u32 = 8192;
const WORD: usize = size_of::<u64>();

/// A request as it came. Two that have all of this in common are alike in all that is counted.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// From its first line to the end of a field; what is compared with is taken in with all fields that anything is
    /// counted by ([`super::Gathered::add`]).
    pub text: &'a [u8],
    /// Where in it ends what is asked for.
    pub target_end: usize,
    /// Which of those fields it has, in the text or behind it.
    pub fields: u64,
    pub address: u128,
    /// What else there is: family, status, method.
    pub kind: u64,
}

/// The highest bit of a kind.
const TIMED: u64 = 1 << 63;

#[derive(Clone, Copy, PartialEq, Eq)]
struct Key {
    address: [u64; 2],
    kind: u64,
    fields: u64,
    /// Of the text, and of what is asked for.
    ends: u64,
}

struct Known {
    key: Key,
    start: u32,
    entry: u32,
}

/// The heads that are known.
pub(super) struct Again {
    known: Vec<Known>,
    texts: Vec<u8>,
    /// Numbers of what is known, more by one; 0: none.
    places: Box<[u32]>,
    in_vain: u32,
    rest: u32,
}

impl Default for Again {
    fn default() -> Again {
        let places = vec![0; PLACES].into();
        Again { known: Vec::new(), texts: Vec::new(), places, in_vain: 0, rest: 0 }
    }
}

impl Head<'_> {
    #[inline]
    fn key(&self, once: &Once) -> Key {
        let timed = if once.took_ms.is_some() { TIMED } else { 0 };
        Key {
            address: [self.address as u64, (self.address >> 64) as u64],
            kind: self.kind | timed,
            fields: self.fields,
            ends: (self.text.len() as u64) << 32 | self.target_end as u64,
        }
    }

    /// By who asks and what for, and a little of the fields.
    #[inline]
    fn place(&self, key: &Key) -> usize {
        let [low, high] = key.address;
        let mut hash = spread(low ^ high.rotate_left(29), key.kind ^ key.ends.rotate_left(16));
        // A head goes on behind what is asked for: no word is cut short.
        let (words, _) = self.text.as_chunks::<{ 2 * WORD }>();
        for word in words.iter().take(self.target_end / (2 * WORD) + 1) {
            let word = u128::from_le_bytes(*word);
            hash = spread(hash ^ word as u64, (word >> 64) as u64);
        }
        let last = self.text.last_chunk().map_or(0, |last| u64::from_le_bytes(*last));
        let beside = eight(self.text, self.text.len() / 2) ^ last.rotate_left(32);
        (spread(hash, beside) >> (u64::BITS - PLACES.ilog2())) as usize
    }
}

impl Again {
    /// What was gathered of one like it.
    #[inline]
    pub(super) fn find(&mut self, head: &Head<'_>, once: &Once) -> Option<usize> {
        if self.rest > 0 {
            self.rest -= 1;
            return None;
        }
        let key = head.key(once);
        let place = head.place(&key);
        let found = match self.at(place, &key, head.text) {
            None => self.at(place ^ 1, &key, head.text)?,
            Some(found) => found,
        };
        self.in_vain = self.in_vain.saturating_sub(1);
        Some(found)
    }

    #[inline]
    fn at(&self, place: usize, key: &Key, text: &[u8]) -> Option<usize> {
        let known = self.known.get(self.places.get(place)?.checked_sub(1)? as usize)?;
        if known.key != *key {
            return None;
        }
        let start = known.start as usize;
        let its = self.texts.get(start..start + text.len())?;
        (its == text).then_some(known.entry as usize)
    }

    /// It has come a second time.
    pub(super) fn learn(&mut self, head: &Head<'_>, once: &Once, entry: usize) {
        if self.rest > 0 || head.text.len() > TEXT_MAX_BYTES {
            return;
        }
        self.in_vain += 1;
        if self.in_vain > IN_VAIN_MAX {
            (self.in_vain, self.rest) = (0, REST);
            return self.forget();
        }
        if self.bytes() + size_of::<Known>() + head.text.len() > MAX_BYTES {
            self.forget();
        }
        let key = head.key(once);
        let place = head.place(&key);
        let start = self.texts.len() as u32;
        self.texts.extend_from_slice(head.text);
        self.known.push(Known { key, start, entry: entry as u32 });
        super::put(&mut self.places, place, self.known.len());
    }

    pub(super) fn bytes(&self) -> usize {
        self.texts.len() + self.known.len() * size_of::<Known>()
    }

    #[cfg(test)]
    pub(super) fn rests(&self) -> bool {
        self.rest > 0
    }

    /// Nothing is known any more: what it led to is not there.
    pub(super) fn forget(&mut self) {
        if !self.known.is_empty() {
            self.known.clear();
            self.texts.clear();
            self.places.fill(0);
        }
    }
}
