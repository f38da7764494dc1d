//! The queue's records: a head of 24 bytes, one JSON document, and what fills up to a multiple of 8.
//!
//! A record is whole if its process said so (the segment's committed length). The check sum is for what a power cut
//! leaves of that: pages that were never written. It is no protection against who writes the folder.

use crate::event::{Kind, Severity};

/// No event is longer: what writes it leaves fields out.
pub const EVENT_MAX_BYTES: usize = 64 * 1024;
pub const HEAD_BYTES: usize = 24;
const ALIGN_BYTES: usize = 8;

/// Where in a segment something begins.
pub type At = usize;

/// One event of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Record<'a> {
    pub time_ms: u64,
    pub kind: Kind,
    pub severity: Severity,
    pub json: &'a [u8],
}

/// What stands in front of a document and what fills up behind it.
pub fn frame(
    json: &[u8],
    time_ms: u64,
    kind: Kind,
    severity: Severity,
) -> ([u8; HEAD_BYTES], &'static [u8]) {
    let mut head = [0; HEAD_BYTES];
    head[..4].copy_from_slice(&(json.len() as u32).to_le_bytes());
    head[4] = kind as u8;
    head[5] = severity as u8;
    head[8..16].copy_from_slice(&time_ms.to_le_bytes());
    let check = Check::of(&head[..16]).with(json);
    head[16..].copy_from_slice(&check.0.to_le_bytes());
    (head, &[0; ALIGN_BYTES][..json.len().next_multiple_of(ALIGN_BYTES) - json.len()])
}

/// How many bytes of a segment a document of so many takes.
pub fn framed_bytes(len: usize) -> usize {
    HEAD_BYTES + len.next_multiple_of(ALIGN_BYTES)
}

/// The records of a segment from a place on, each with its place.
pub struct Records<'a> {
    data: &'a [u8],
    at: At,
}

/// What stands there is no record, and so it cannot be told where the next one begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub At);

impl<'a> Records<'a> {
    pub fn new(data: &'a [u8], at: At) -> Records<'a> {
        Records { data, at }
    }

    /// Where the next one would begin.
    pub fn at(&self) -> At {
        self.at
    }
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<(At, Record<'a>), Broken>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.data.get(self.at..).filter(|rest| !rest.is_empty())?;
        let at = self.at;
        match read(rest) {
            Some(record) => {
                self.at += framed_bytes(record.json.len());
                Some(Ok((at, record)))
            }
            None => {
                self.at = self.data.len();
                Some(Err(Broken(at)))
            }
        }
    }
}

fn read(rest: &[u8]) -> Option<Record<'_>> {
    let (head, rest) = rest.split_first_chunk::<HEAD_BYTES>()?;
    let number =
        |from: usize| u64::from_le_bytes(head[from..from + 8].try_into().unwrap_or_default());
    let len = (number(0) & u64::from(u32::MAX)) as usize;
    if len > EVENT_MAX_BYTES || rest.len() < len.next_multiple_of(ALIGN_BYTES) {
        return None;
    }
    let json = &rest[..len];
    let is_whole = Check::of(&head[..16]).with(json).0 == number(16);
    let (kind, severity) = (Kind::of(head[4])?, Severity::of(head[5])?);
    is_whole.then_some(Record { time_ms: number(8), kind, severity, json })
}

/// A sum of eight bytes at a time. Zeros do not leave it as it is.
struct Check(u64);

impl Check {
    const FACTOR: u64 = 0x9e37_79b9_7f4a_7c15;

    fn of(bytes: &[u8]) -> Check {
        Check(Self::FACTOR).with(bytes)
    }

    #[inline]
    fn with(self, bytes: &[u8]) -> Check {
        let step = |sum: u64, word: u64| (sum ^ word).wrapping_mul(Self::FACTOR).rotate_left(29);
        let (words, rest) = bytes.as_chunks::<8>();
        let sum = words.iter().fold(self.0, |sum, word| step(sum, u64::from_le_bytes(*word)));
        let mut last = [0; 8];
        last[..rest.len()].copy_from_slice(rest);
        Check(step(sum, u64::from_le_bytes(last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn segment(documents: &[&[u8]]) -> Vec<u8> {
        let mut data = Vec::new();
        for (n, json) in documents.iter().enumerate() {
            let (head, fill) = frame(json, n as u64, Kind::Error, Severity::Warning);
            [&head[..], json, fill].iter().for_each(|part| data.extend_from_slice(part));
        }
        data
    }

    #[test]
    fn what_was_written_is_read() {
        let documents: [&[u8]; 4] = [b"{}", b"", b"{\"a\":12345}", &[b'x'; 1000]];
        let data = segment(&documents);
        let mut records = Records::new(&data, 0);
        let mut at = 0;
        for (n, json) in documents.into_iter().enumerate() {
            let record =
                Record { time_ms: n as u64, kind: Kind::Error, severity: Severity::Warning, json };
            assert_eq!(records.next(), Some(Ok((at, record))));
            at += framed_bytes(json.len());
            assert_eq!(records.at(), at);
        }
        assert_eq!((records.next(), at), (None, data.len()));
        // From a place on.
        assert_eq!(Records::new(&data, framed_bytes(2)).count(), 3);
    }

    #[test]
    fn any_byte_that_is_not_what_it_was_is_noticed() {
        let good = segment(&[b"{\"a\":1}", b"{}"]);
        // The bytes that fill up are nobody's.
        for at in (0..framed_bytes(7)).filter(|at| !(HEAD_BYTES + 7..HEAD_BYTES + 8).contains(at)) {
            let mut bad = good.clone();
            bad[at] ^= 0x20;
            let mut records = Records::new(&bad, 0);
            assert_eq!(records.next(), Some(Err(Broken(0))), "{at}");
            assert_eq!(records.next(), None);
        }
        // Pages that were never written.
        assert_eq!(Records::new(&[0; 64], 0).next(), Some(Err(Broken(0))));
        // Cut off.
        for end in 1..framed_bytes(7) {
            assert_eq!(Records::new(&good[..end], 0).next(), Some(Err(Broken(0))), "{end}");
        }
    }
}
