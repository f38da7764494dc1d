//! CRC-32C (Castagnoli), the checksum of RFC 3309, a byte at a time: it is taken of short headers.

const POLYNOMIAL: u32 = 0x82f6_3b78;
const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = byte as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = if crc & 1 == 1 { crc >> 1 ^ POLYNOMIAL } else { crc >> 1 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

pub fn crc32c(bytes: &[u8]) -> u32 {
    let step = |crc: u32, byte: &u8| TABLE[(crc as u8 ^ byte) as usize] ^ crc >> 8;
    !bytes.iter().fold(u32::MAX, step)
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
}
