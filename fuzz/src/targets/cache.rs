//! Headers of stored answers: what is written is read, what is read may be written again, and
//! nothing that is cut, torn or of another length is believed.

use super::Target;
use crate::random::Random;
use weir_cache::entry::{decode, encode, header_len, Bad, Meta, FIXED_BYTES, HEADER_MAX_BYTES};
use weir_cache::Key;

/// Whether `decode` has to find the checksum right is the driver's to choose.
pub const TARGET: Target = Target {
    name: "cache entry",
    seeds: &[
        b"weircch1\0\0\0\0\x76\0\0\0\x01\0\0\0\0\0\0\0\x02\0\0\0\0\0\0\0\x03\0\0\0\0\0\0\0\0\0\0\0\0\
          \0\0\x80\x09\0\0\0\0\0\0\0\x04\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\x01\
          \0\0\0\x01\0\0\0\x03\0\0\0\xc8\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0eakGET",
        b"weircch1\0\0\0\0\x70\0\0\0\xff\xff\xff\xff\xff\xff\xff\x7f\xff\xff\xff\xff\xff\xff\xff\x7f\
          \x03\0\0\0\0\0\0\0\xfb\xff\xff\xff\xff\xff\xff\xff\x09\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0vvvvvvvv\
          vvvvvvvv\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\xf4\x01\x01\0\0\0\0\0\0\0\0\0\0\0\0\0",
    ],
    pieces: &[
        b"\0\0\0\0",
        b"\xff\xff\xff\xff",
        b"\0\0\0\0\0\0\0\x80",
        b"\x01",
        b"\x70\0\0\0",
        b"HTTP/1.1 200 OK\r\n\r\n",
    ],
    check,
};

fn check(input: &[u8], random: &mut Random) {
    let mut bytes = input.to_vec();
    if random.below(4) > 0 {
        mend(&mut bytes);
    }
    let total = bytes.get(12..16).map_or(0, |b| u32_of(b) as usize);
    let body_len = bytes.get(56..64).map_or(0, |b| u32_of(b).into());
    let file_len = match random.below(4) {
        0 => random.below(bytes.len() + 9) as u64,
        _ => total as u64 + body_len,
    };
    read(&bytes, file_len, random);
    made(input, random);
}

fn u32_of(bytes: &[u8]) -> u32 {
    bytes.iter().take(4).rev().fold(0, |n, b| n << 8 | u32::from(*b))
}

/// Puts in the checksum that belongs to the bytes.
fn mend(bytes: &mut [u8]) {
    let Some(total) = bytes.get(12..16).map(|b| u32_of(b) as usize) else { return };
    let Some(covered) = bytes.get(12..total) else { return };
    let sum = covered.iter().fold(!0u32, |crc, byte| {
        (0..8).fold(crc ^ u32::from(*byte), |crc, _| {
            if crc & 1 == 1 {
                0xedb8_8320 ^ (crc >> 1)
            } else {
                crc >> 1
            }
        })
    });
    bytes[8..12].copy_from_slice(&(!sum).to_le_bytes());
}

fn read(bytes: &[u8], file_len: u64, random: &mut Random) {
    let cut = random.below(bytes.len() + 1);
    let of_cut = decode(&bytes[..cut], file_len);
    let header = match decode(bytes, file_len) {
        Ok(header) => header,
        Err(Bad::NeedMore(n)) => {
            assert!(n > bytes.len() && n <= HEADER_MAX_BYTES && n as u64 <= file_len);
            return;
        }
        Err(_) => return assert!(of_cut.is_err()),
    };
    let len = header_len(&header.meta, &header.key_text, &header.head);
    assert_eq!(len as u64 + header.body_len, file_len);
    match of_cut {
        // What stands behind the header is the body's.
        Ok(same) => assert!(cut >= len && same == header),
        Err(Bad::NeedMore(n)) => assert!(cut >= FIXED_BYTES && n == len),
        Err(e) => assert!(e == Bad::TooSmall && cut < FIXED_BYTES),
    }
    let again = encode(&header.meta, &header.key_text, &header.head, header.body_len);
    assert_eq!(decode(&again, file_len), Ok(header));
}

/// Whatever an answer is, its header says it, and no bit of that may change.
fn made(input: &[u8], random: &mut Random) {
    let mut texts = [&input[..0]; 4];
    let mut rest = input;
    for text in &mut texts {
        let len = random.below(rest.len() + 1);
        (*text, rest) = rest.split_at(len);
    }
    let meta = Meta {
        status: random.next() as u16,
        valid_sec: random.next() as i64,
        updating_sec: random.next() as i64,
        error_sec: random.next() as i64,
        last_modified: random.coin().then(|| random.next() as i64 >> 1),
        date: random.next() as i64,
        etag: texts[0].to_vec(),
        vary: texts[1].to_vec(),
        variant: random.coin().then(|| Key::of(input)),
    };
    let now = random.next() as i64;
    let _ = (meta.stale_updating(now), meta.stale_error(now));
    let body_len = random.next() >> 1;
    let mut bytes = encode(&meta, texts[2], texts[3], body_len);
    let file_len = bytes.len() as u64 + body_len;
    let header = decode(&bytes, file_len).expect("what was written");
    assert_eq!((&header.meta, header.body_len), (&meta, body_len));
    assert_eq!((&header.key_text[..], &header.head[..]), (texts[2], texts[3]));
    let at = random.below(bytes.len());
    bytes[at] ^= 1 << random.below(8);
    assert!(decode(&bytes, file_len).is_err(), "a bit of byte {at}");
    let key = Key::of(input);
    assert_eq!(Key::from_hex(&key.hex()), Some(key));
}
