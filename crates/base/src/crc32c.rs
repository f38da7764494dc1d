//! CRC-32C (Castagnoli), the checksum of RFC 3309, eight bytes at a time.

const POLYNOMIAL: u32 = 0x82f6_3b78;
/// What a byte does to the checksum with so many bytes behind it.
static TABLES: [[u32; 256]; 8] = tables();

const fn tables() -> [[u32; 256]; 8] {
    let mut tables = [[0; 256]; 8];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        tables[0][byte] = crc;
        byte += 1;
    }
    let mut behind = 1;
    while behind < 8 {
        let mut byte = 0;
        while byte < 256 {
            let crc = tables[behind - 1][byte];
            tables[behind][byte] = tables[0][(crc & 0xff) as usize] ^ crc >> 8;
            byte += 1;
        }
        behind += 1;
    }
    tables
}

pub fn crc32c(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    let mut crc = u32::MAX;
    for word in words {
        let mixed = u64::from_le_bytes(*word) ^ u64::from(crc);
        crc = mixed
            .to_le_bytes()
            .iter()
            .zip(TABLES.iter().rev())
            .fold(0, |crc, (byte, table)| crc ^ table[usize::from(*byte)]);
    }
    let step = |crc: u32, byte: &u8| TABLES[0][usize::from(crc as u8 ^ byte)] ^ crc >> 8;
    !rest.iter().fold(crc, step)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The samples of RFC 3720, section B.4, and the usual check text.
    #[test]
    fn samples() {
        let rising: Vec<u8> = (0..32).collect();
        for (bytes, crc) in [
            (&b""[..], 0),
            (b"123456789", 0xe306_9283),
            (&[0; 32], 0x8a91_36aa),
            (&[0xff; 32], 0x62a8_ab43),
            (&rising, 0x46dd_794e),
        ] {
            assert_eq!(crc32c(bytes), crc, "{bytes:?}");
        }
    }

    /// Bit by bit, as the polynomial says it.
    #[test]
    fn any_length() {
        let bytes: Vec<u8> = (0..100u32).map(|n| (n * 37 + 11) as u8).collect();
        for len in 0..bytes.len() {
            let mut crc = u32::MAX;
            for byte in &bytes[..len] {
                crc ^= u32::from(*byte);
                for _ in 0..8 {
                    crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
                }
            }
            assert_eq!(crc32c(&bytes[..len]), !crc, "{len}");
        }
    }
}
