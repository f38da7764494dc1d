//! Batches of records (message format 2, KIP-98): what a producer sends for one partition.

use super::codec::{varint, varint_bytes, Writer};
use std::io::Write;
use weir_base::crc32c::crc32c;

/// A batch's bytes before its first record.
pub const HEAD_BYTES: usize = 61;
/// Where that begins which the checksum is of.
const SUMMED_FROM: usize = 21;
/// What of the length field's value stands before and in itself.
const LENGTH_FROM: usize = 12;
const FORMAT: u8 = 2;
const ZSTD_LEVEL: i32 = 3;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Compression {
    #[default]
    None,
    Gzip,
    Zstd,
}

impl Compression {
    /// The word that means it in a configuration.
    pub fn named(word: &str) -> Option<Compression> {
        match word {
            "none" => Some(Compression::None),
            "gzip" => Some(Compression::Gzip),
            "zstd" => Some(Compression::Zstd),
            _ => None,
        }
    }

    /// Brokers take it in messages of this version and later ones.
    pub fn least_version(self) -> i16 {
        if self == Compression::Zstd {
            7
        } else {
            3
        }
    }

    fn bits(self) -> i16 {
        match self {
            Compression::None => 0,
            Compression::Gzip => 1,
            Compression::Zstd => 4,
        }
    }

    fn pack(self, records: Vec<u8>) -> Result<Vec<u8>, String> {
        match self {
            Compression::None => Ok(records),
            Compression::Gzip => {
                let mut coder =
                    flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
                coder.write_all(&records).and_then(|()| coder.finish()).map_err(|e| e.to_string())
            }
            Compression::Zstd => {
                let mut out = Vec::with_capacity(zstd_safe::compress_bound(records.len()));
                zstd_safe::compress(&mut out, &records, ZSTD_LEVEL)
                    .map_err(|code| zstd_safe::get_error_name(code).to_owned())?;
                Ok(out)
            }
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    pub time_ms: i64,
    pub key: Option<&'a [u8]>,
    pub value: &'a [u8],
    /// A header that says which event it is, for those who read after a loss of the producer's state.
    pub id: &'a [u8],
}

const ID_HEADER: &[u8] = b"event.id";

impl Record<'_> {
    /// How long it is without what stands before it: no less than it will be.
    pub fn most_bytes(&self) -> usize {
        const NUMBERS_BYTES: usize = 40;
        let texts = self.key.map_or(0, <[u8]>::len) + self.value.len() + self.id.len();
        texts + ID_HEADER.len() + NUMBERS_BYTES
    }

    fn write(&self, number: i64, first_ms: i64, out: &mut Vec<u8>) {
        let after_ms = self.time_ms - first_ms;
        let text = |text: &[u8]| varint_bytes(text.len() as i64) + text.len();
        let len = 1
            + varint_bytes(after_ms)
            + varint_bytes(number)
            + self.key.map_or(1, text)
            + text(self.value)
            + 1
            + text(ID_HEADER)
            + text(self.id);
        varint(len as i64, out);
        out.push(0);
        varint(after_ms, out);
        varint(number, out);
        let mut push = |text: &[u8]| {
            varint(text.len() as i64, out);
            out.extend_from_slice(text);
        };
        match self.key {
            Some(key) => push(key),
            None => varint(-1, out),
        }
        let mut push = |text: &[u8]| {
            varint(text.len() as i64, out);
            out.extend_from_slice(text);
        };
        push(self.value);
        varint(1, out);
        let mut push = |text: &[u8]| {
            varint(text.len() as i64, out);
            out.extend_from_slice(text);
        };
        push(ID_HEADER);
        push(self.id);
    }
}

/// Who sends a batch, and the number of its first record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub producer: i64,
    pub epoch: i16,
    pub first: i32,
}

/// One batch; there is at least one record.
pub fn batch(
    records: &[Record<'_>],
    sequence: Sequence,
    compression: Compression,
) -> Result<Vec<u8>, String> {
    let first_ms = records.first().map_or(0, |r| r.time_ms);
    let greatest_ms = records.iter().map(|r| r.time_ms).max().unwrap_or(first_ms);
    let mut packed = Vec::with_capacity(records.iter().map(Record::most_bytes).sum());
    for (number, record) in records.iter().enumerate() {
        record.write(number as i64, first_ms, &mut packed);
    }
    let packed = compression.pack(packed)?;
    let mut w = Writer { out: Vec::with_capacity(HEAD_BYTES + packed.len()) };
    w.i64(0);
    w.len(HEAD_BYTES - LENGTH_FROM + packed.len());
    let leader_epoch = -1;
    w.i32(leader_epoch);
    w.out.push(FORMAT);
    w.i32(0);
    w.i16(compression.bits());
    w.len(records.len().saturating_sub(1));
    w.i64(first_ms);
    w.i64(greatest_ms);
    w.i64(sequence.producer);
    w.i16(sequence.epoch);
    w.i32(sequence.first);
    w.len(records.len());
    w.out.extend_from_slice(&packed);
    let sum = crc32c(&w.out[SUMMED_FROM..]);
    w.out[SUMMED_FROM - 4..SUMMED_FROM].copy_from_slice(&sum.to_be_bytes());
    Ok(w.out)
}

/// The number behind `count` records: they go round at 2^31.
pub fn sequence_after(sequence: i32, count: usize) -> i32 {
    ((i64::from(sequence) + count as i64) & i64::from(i32::MAX)) as i32
}

/// The partition of a key, as Kafka's own clients choose it (murmur2).
pub fn partition_of(key: &[u8], partitions: i32) -> i32 {
    (murmur2(key) & 0x7fff_ffff) as i32 % partitions.max(1)
}

fn murmur2(data: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ data.len() as u32;
    let (words, rest) = data.as_chunks::<4>();
    for word in words {
        let mut k = u32::from_le_bytes(*word).wrapping_mul(M);
        k = (k ^ k >> 24).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    if !rest.is_empty() {
        let last = rest.iter().rev().fold(0, |sum, byte| sum << 8 | u32::from(*byte));
        hash = (hash ^ last).wrapping_mul(M);
    }
    hash = (hash ^ hash >> 13).wrapping_mul(M);
    hash ^ hash >> 15
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The samples of Kafka's own tests (UtilsTest.testMurmur2).
    #[test]
    fn keys_hash_as_by_kafkas_clients() {
        for (key, hash) in [
            (&b"21"[..], -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            (b"abc", 479_470_107),
        ] {
            assert_eq!(murmur2(key) as i32, hash, "{}", key.escape_ascii());
        }
    }

    #[test]
    fn a_batch_byte_by_byte() {
        let record = |time_ms, key, value| Record { time_ms, key, value, id: b"i" };
        let records = [record(1000, None, &b"ab"[..]), record(999, Some(&b"k"[..]), b"")];
        let sequence = Sequence { producer: 7, epoch: 1, first: 5 };
        let bytes = batch(&records, sequence, Compression::None).unwrap();
        let first = b"\x26\0\0\0\x01\x04ab\x02\x10event.id\x02i";
        let second = b"\x24\0\x01\x02\x02k\0\x02\x10event.id\x02i";
        assert_eq!(bytes[HEAD_BYTES..], [&first[..], second].concat());
        assert_eq!(bytes[8..12], ((bytes.len() - 12) as u32).to_be_bytes());
        assert_eq!(bytes[16], 2);
        assert_eq!(bytes[17..21], crc32c(&bytes[21..]).to_be_bytes());
        assert_eq!(bytes[23..27], 1u32.to_be_bytes(), "the last record's number");
        assert_eq!(bytes[27..35], 1000i64.to_be_bytes());
        assert_eq!(bytes[35..43], 1000i64.to_be_bytes());
        assert_eq!(bytes[43..57], [&7i64.to_be_bytes()[..], &[0, 1], &[0, 0, 0, 5]].concat());
        assert_eq!(bytes[57..61], 2u32.to_be_bytes());
    }

    #[test]
    fn compressed_records_are_the_same() {
        let value = vec![b'x'; 5000];
        let records = [Record { time_ms: 1, key: None, value: &value, id: b"id" }; 3];
        let sequence = Sequence { producer: 1, epoch: 0, first: 0 };
        let plain = batch(&records, sequence, Compression::None).unwrap();
        let gzip = batch(&records, sequence, Compression::Gzip).unwrap();
        let mut unpacked = Vec::new();
        let mut decoder = flate2::read::GzDecoder::new(&gzip[HEAD_BYTES..]);
        std::io::Read::read_to_end(&mut decoder, &mut unpacked).unwrap();
        assert_eq!(unpacked, plain[HEAD_BYTES..]);
        let zstd = batch(&records, sequence, Compression::Zstd).unwrap();
        let mut unpacked = Vec::with_capacity(plain.len());
        zstd_safe::decompress(&mut unpacked, &zstd[HEAD_BYTES..]).unwrap();
        assert_eq!(unpacked, plain[HEAD_BYTES..]);
        assert_eq!((gzip[22], zstd[22]), (1, 4));
    }

    #[test]
    fn numbers_go_round() {
        assert_eq!(sequence_after(0, 5), 5);
        assert_eq!(sequence_after(i32::MAX, 1), 0);
        assert_eq!(sequence_after(i32::MAX - 1, 5), 3);
    }
}
