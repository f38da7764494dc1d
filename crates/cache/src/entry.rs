//! The file of an entry: a header of our own, the answer's head as it came, the body.
//!
//! An incomplete answer's file has a mark of its own, and behind the head the list of the parts that are there;
//! the body has holes where the others are not. When the last has come its header is written anew, as that of any
//! other: the head has the list's room in spaces. So the body stays where it is, whoever reads it meanwhile.
//!
//! All numbers are little-endian. The checksum covers everything from behind itself to the body, so
//! a header that is torn, foreign or of another version is never believed; the length of the file
//! must be the header's and the body's together.

use crate::parts::{self, Parts};
use crate::Key;

const MAGIC: [u8; 8] = *b"weircch1";
/// Of an incomplete answer: who does not know it takes the file for one of another version.
const MAGIC_PARTS: [u8; 8] = *b"weircch2";
/// What stands in front of the texts.
pub const FIXED_BYTES: usize = 112;
/// No time.
const NONE: i64 = i64::MIN;
/// As in nginx, longer ones are not kept.
pub const ETAG_MAX_BYTES: usize = 128;
pub const VARY_MAX_BYTES: usize = 128;
/// Keys and heads are bounded by the request's and the answer's buffers; more is no header of ours.
pub const HEADER_MAX_BYTES: usize = 16 * 1024 * 1024;

/// What is known of a stored answer besides its bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Meta {
    pub status: u16,
    /// Until when it is fresh, in Unix seconds, and for how many seconds after that it may be
    /// served while it is updated, or when its server fails.
    pub valid_sec: i64,
    pub updating_sec: i64,
    pub error_sec: i64,
    pub last_modified: Option<i64>,
    /// When it was stored or last confirmed.
    pub date: i64,
    pub etag: Vec<u8>,
    /// The names of the fields the answer varies by, and the key of this variant.
    pub vary: Vec<u8>,
    pub variant: Option<Key>,
}

impl Meta {
    /// May still be served while it is updated.
    pub fn stale_updating(&self, now: i64) -> bool {
        self.valid_sec.saturating_add(self.updating_sec) >= now
    }

    /// May still be served when its server fails.
    pub fn stale_error(&self, now: i64) -> bool {
        self.valid_sec.saturating_add(self.error_sec) >= now
    }
}

/// A header as read.
#[derive(Debug, PartialEq, Eq)]
pub struct Header {
    pub meta: Meta,
    pub key_text: Vec<u8>,
    pub head: Vec<u8>,
    pub body_len: u64,
    /// Where the body begins.
    pub body_at: u64,
    /// What of it is there, where that is not all.
    pub parts: Option<Parts>,
}

/// Why a file is not an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bad {
    /// So many bytes of header are needed to tell.
    NeedMore(usize),
    TooSmall,
    Version,
    Checksum,
    /// The file is not as long as its header says.
    Length,
}

impl Bad {
    pub fn words(self) -> &'static str {
        match self {
            Bad::NeedMore(_) | Bad::TooSmall => "is too small",
            Bad::Version => "version mismatch",
            Bad::Checksum => "has a wrong checksum",
            Bad::Length => "is not as long as its header says",
        }
    }
}

/// Where the texts and the body begin.
pub fn header_len(meta: &Meta, key_text: &[u8], head: &[u8]) -> usize {
    FIXED_BYTES + meta.etag.len() + meta.vary.len() + key_text.len() + head.len()
}

pub fn encode(meta: &Meta, key_text: &[u8], head: &[u8], body_len: u64) -> Vec<u8> {
    encode_as(MAGIC, meta, key_text, head, body_len, &[])
}

/// The header of an incomplete answer, longer by [`parts::BYTES`].
pub fn encode_parts(
    meta: &Meta,
    key_text: &[u8],
    head: &[u8],
    body_len: u64,
    parts: &Parts,
) -> Vec<u8> {
    encode_as(MAGIC_PARTS, meta, key_text, head, body_len, &parts.encode())
}

fn encode_as(
    magic: [u8; 8],
    meta: &Meta,
    key_text: &[u8],
    head: &[u8],
    body_len: u64,
    list: &[u8],
) -> Vec<u8> {
    let total = header_len(meta, key_text, head) + list.len();
    let mut out = Vec::with_capacity(total);
    out.extend_from_slice(&magic);
    out.extend_from_slice(&[0; 4]);
    out.extend_from_slice(&(total as u32).to_le_bytes());
    for n in [
        meta.valid_sec,
        meta.updating_sec,
        meta.error_sec,
        meta.last_modified.unwrap_or(NONE),
        meta.date,
    ] {
        out.extend_from_slice(&n.to_le_bytes());
    }
    out.extend_from_slice(&body_len.to_le_bytes());
    out.extend_from_slice(&meta.variant.map_or([0; 16], |k| k.0));
    for n in [meta.etag.len(), meta.vary.len(), key_text.len(), head.len()] {
        out.extend_from_slice(&(n as u32).to_le_bytes());
    }
    out.extend_from_slice(&meta.status.to_le_bytes());
    out.push(u8::from(meta.variant.is_some()));
    out.resize(FIXED_BYTES, 0);
    for text in [&meta.etag, &meta.vary, key_text, head, list] {
        out.extend_from_slice(text);
    }
    let sum = checksum(&out);
    out[8..12].copy_from_slice(&sum.to_le_bytes());
    out
}

/// What an incomplete answer is, is covered too: no bit makes it a whole one.
fn checksum(header: &[u8]) -> u32 {
    let sum = crc32(&header[12..]);
    if header.starts_with(&MAGIC_PARTS) {
        !sum
    } else {
        sum
    }
}

/// Reads a header from the beginning of a file; `file_len` is the whole file's length.
pub fn decode(bytes: &[u8], file_len: u64) -> Result<Header, Bad> {
    if bytes.len() < FIXED_BYTES {
        return Err(Bad::TooSmall);
    }
    let has_parts = bytes[..8] == MAGIC_PARTS;
    if !has_parts && bytes[..8] != MAGIC {
        return Err(Bad::Version);
    }
    let word = |at: usize| {
        u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]) as usize
    };
    let long = |at: usize| {
        let mut n = [0; 8];
        n.copy_from_slice(&bytes[at..at + 8]);
        i64::from_le_bytes(n)
    };
    let total = word(12);
    if !(FIXED_BYTES..=HEADER_MAX_BYTES).contains(&total) {
        return Err(Bad::Checksum);
    }
    if bytes.len() < total {
        return Err(match file_len < total as u64 {
            true => Bad::TooSmall,
            false => Bad::NeedMore(total),
        });
    }
    if checksum(&bytes[..total]) as usize != word(8) {
        return Err(Bad::Checksum);
    }
    let body_len = long(56) as u64;
    let (body_at, in_file) = (total as u64, file_len.checked_sub(total as u64));
    if !has_parts && in_file != Some(body_len) {
        return Err(Bad::Length);
    }
    let mut variant = [0; 16];
    variant.copy_from_slice(&bytes[64..80]);
    let mut rest = &bytes[FIXED_BYTES..total];
    let mut text = |at: usize| -> Result<Vec<u8>, Bad> {
        let (text, after) = rest.split_at_checked(word(at)).ok_or(Bad::Checksum)?;
        rest = after;
        Ok(text.to_vec())
    };
    let (etag, vary, key_text, head) = (text(80)?, text(84)?, text(88)?, text(92)?);
    let parts = match has_parts {
        false if rest.is_empty() => None,
        true if rest.len() == parts::BYTES => {
            let parts = Parts::decode(rest, body_len).ok_or(Bad::Checksum)?;
            if in_file.is_none_or(|len| len < parts.end()) {
                return Err(Bad::Length);
            }
            Some(parts)
        }
        _ => return Err(Bad::Checksum),
    };
    let meta = Meta {
        status: u16::from_le_bytes([bytes[96], bytes[97]]),
        valid_sec: long(16),
        updating_sec: long(24),
        error_sec: long(32),
        last_modified: Some(long(40)).filter(|n| *n != NONE),
        date: long(48),
        etag,
        vary,
        variant: (bytes[98] == 1).then_some(Key(variant)),
    };
    Ok(Header { meta, key_text, head, body_len, body_at, parts })
}

/// The checksum of Ethernet and gzip.
pub(crate) fn crc32(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = table();
    let step = |crc: u32, b: &u8| TABLE[((crc ^ u32::from(*b)) & 0xff) as usize] ^ (crc >> 8);
    !bytes.iter().fold(!0, step)
}

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut n = 0;
    while n < 256 {
        let mut c = n as u32;
        let mut k = 0;
        while k < 8 {
            c = if c & 1 == 1 { 0xedb8_8320 ^ (c >> 1) } else { c >> 1 };
            k += 1;
        }
        table[n] = c;
        n += 1;
    }
    table
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> (Meta, Vec<u8>) {
        let meta = Meta {
            status: 200,
            valid_sec: 1,
            updating_sec: 2,
            error_sec: 3,
            last_modified: Some(-5),
            date: 9,
            etag: b"\"e\"".to_vec(),
            vary: b"accept".to_vec(),
            variant: Some(Key::of(b"v")),
        };
        let bytes = encode(&meta, b"key", b"HTTP/1.1 200 OK\r\n\r\n", 4);
        (meta, bytes)
    }

    #[test]
    fn what_is_written_is_read() {
        assert_eq!(crc32(b"123456789"), 0xcbf4_3926);
        let (meta, bytes) = sample();
        let read = decode(&bytes, bytes.len() as u64 + 4).expect("a header");
        assert_eq!((read.meta, read.body_len), (meta, 4));
        assert_eq!(read.key_text, b"key");
        assert!(read.head.starts_with(b"HTTP/1.1"));
    }

    #[test]
    fn the_texts_fill_the_header() {
        let (_, mut bytes) = sample();
        let head_len = bytes[92];
        for len in [head_len - 1, head_len + 1] {
            bytes[92] = len;
            let sum = crc32(&bytes[12..]);
            bytes[8..12].copy_from_slice(&sum.to_le_bytes());
            assert_eq!(decode(&bytes, bytes.len() as u64 + 4), Err(Bad::Checksum));
        }
    }

    #[test]
    fn parts_are_read_and_a_hole_is_never_whole() {
        let (meta, whole) = sample();
        let mut parts = Parts::new(5, 0, 2);
        assert!(parts.add(3, 4));
        let bytes = encode_parts(&meta, b"key", b"head", 100, &parts);
        let header = bytes.len() as u64;
        let read = decode(&bytes, header + 4).expect("a header");
        assert_eq!((read.meta, read.body_len, read.parts), (meta, 100, Some(parts)));
        assert_eq!(read.body_at, header);
        assert_eq!(decode(&bytes, header + 3), Err(Bad::Length), "less than it says");
        for at in 0..bytes.len() {
            for bit in 0..8 {
                let mut torn = bytes.clone();
                torn[at] ^= 1 << bit;
                assert!(decode(&torn, header + 100).is_err(), "byte {at}");
            }
        }
        // The other mark alone makes nothing of a header.
        for (bytes, mark) in [(whole, b'2'), (bytes, b'1')] {
            let (mut other, len) = (bytes.clone(), bytes.len() as u64);
            other[7] = mark;
            assert!((0..200).all(|body| decode(&other, len + body).is_err()));
        }
    }

    #[test]
    fn nothing_broken_is_believed() {
        let (_, bytes) = sample();
        let len = bytes.len() as u64 + 4;
        assert_eq!(decode(&bytes, len - 1), Err(Bad::Length));
        assert_eq!(decode(&bytes[..40], 40), Err(Bad::TooSmall));
        assert_eq!(decode(&bytes[..FIXED_BYTES], len), Err(Bad::NeedMore(bytes.len())));
        for at in 0..bytes.len() {
            let mut torn = bytes.clone();
            torn[at] ^= 0x40;
            assert!(decode(&torn, len).is_err(), "byte {at}");
        }
    }
}
