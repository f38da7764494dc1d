//! HPACK's Huffman code (RFC 7541 section 5.2 and appendix B).
//!
//! The code is canonical, so the symbols' lengths say all of it; the tables are made from them
//! while compiling. Most symbols have at most eight bits and are decoded by one look-up.

/// Bits of each symbol, and at the end those of EOS.
#[rustfmt::skip]
const BITS: [u8; 257] = [
    13, 23, 28, 28, 28, 28, 28, 28, 28, 24, 30, 28, 28, 30, 28, 28,
    28, 28, 28, 28, 28, 28, 30, 28, 28, 28, 28, 28, 28, 28, 28, 28,
    6, 10, 10, 12, 13, 6, 8, 11, 10, 10, 8, 11, 8, 6, 6, 6,
    5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7, 8, 15, 6, 12, 10,
    13, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7,
    7, 7, 7, 7, 7, 7, 7, 7, 8, 7, 8, 13, 19, 13, 14, 6,
    15, 5, 6, 5, 6, 5, 6, 6, 6, 5, 7, 7, 6, 6, 6, 5,
    6, 7, 6, 5, 5, 6, 7, 7, 7, 7, 7, 15, 11, 14, 13, 28,
    20, 22, 20, 20, 22, 22, 22, 23, 22, 23, 23, 23, 23, 23, 24, 23,
    24, 24, 22, 23, 24, 23, 23, 23, 23, 21, 22, 23, 22, 23, 23, 24,
    22, 21, 20, 22, 22, 23, 23, 21, 23, 22, 22, 24, 21, 22, 23, 23,
    21, 21, 22, 21, 23, 22, 23, 23, 20, 22, 22, 22, 23, 22, 22, 23,
    26, 26, 20, 19, 22, 23, 22, 25, 26, 26, 26, 27, 27, 26, 24, 25,
    19, 21, 26, 27, 27, 26, 27, 24, 21, 21, 26, 26, 28, 27, 27, 27,
    20, 24, 20, 21, 22, 21, 21, 23, 22, 22, 25, 25, 24, 24, 26, 23,
    26, 27, 26, 26, 27, 27, 27, 27, 27, 28, 27, 27, 27, 27, 27, 26,
    30,
];

const EOS: usize = 256;
const LONGEST: usize = 30;
const PADDING_MAX_BITS: u32 = 8;

struct Code {
    /// Each symbol's code, right-aligned.
    of: [u32; 257],
    /// The symbols in the order of their codes.
    order: [u16; 257],
    /// Per length: the first code of that length, and where its symbol stands in `order`.
    first: [(u32, u16); LONGEST + 1],
    /// How many codes have that length.
    count: [u16; LONGEST + 1],
}

const fn canonical() -> Code {
    let mut c = Code {
        of: [0; 257],
        order: [0; 257],
        first: [(0, 0); LONGEST + 1],
        count: [0; LONGEST + 1],
    };
    let (mut code, mut placed, mut bits) = (0u32, 0usize, 1);
    while bits <= LONGEST {
        code <<= 1;
        c.first[bits] = (code, placed as u16);
        let mut symbol = 0;
        while symbol < 257 {
            if BITS[symbol] as usize == bits {
                c.of[symbol] = code;
                c.order[placed] = symbol as u16;
                c.count[bits] += 1;
                code += 1;
                placed += 1;
            }
            symbol += 1;
        }
        bits += 1;
    }
    c
}

static CODE: Code = canonical();

/// By the next eight bits: the symbol, and its length when it is not longer; otherwise 0.
static SHORT: [(u8, u8); 256] = short();

const fn short() -> [(u8, u8); 256] {
    let code = canonical();
    let mut table = [(0, 0); 256];
    let mut symbol = 0;
    while symbol < 256 {
        let bits = BITS[symbol];
        if bits <= 8 {
            let from = (code.of[symbol] << (8 - bits)) as usize;
            let mut i = 0;
            while i < 1 << (8 - bits) {
                table[from + i] = (symbol as u8, bits);
                i += 1;
            }
        }
        symbol += 1;
    }
    table
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadHuffman;

/// Appends the text of a coded string. Padding that is not all ones and EOS are refused, and more
/// than a byte of padding: nginx takes a whole one, where the RFC wants less.
pub fn decode(coded: &[u8], out: &mut Vec<u8>) -> Result<(), BadHuffman> {
    // The next bits are the top ones of `bits`; `held` of them are real, ones follow.
    let (mut bits, mut held) = (0u64, 0u32);
    let mut input = coded.iter();
    loop {
        while held <= 56 {
            let Some(b) = input.next() else { break };
            bits |= u64::from(*b) << (56 - held);
            held += 8;
        }
        if held == 0 {
            return Ok(());
        }
        let (symbol, length) = SHORT[(bits >> 56) as usize];
        let (symbol, length) = match length {
            0 => long_symbol(bits)?,
            _ => (symbol, u32::from(length)),
        };
        if length > held {
            return padding(bits, held);
        }
        out.push(symbol);
        bits <<= length;
        held -= length;
        if held <= PADDING_MAX_BITS && input.as_slice().is_empty() && is_padding(bits, held) {
            return Ok(());
        }
    }
}

#[cold]
fn long_symbol(bits: u64) -> Result<(u8, u32), BadHuffman> {
    for length in 9..=LONGEST {
        let code = (bits >> (64 - length)) as u32;
        let (first, at) = CODE.first[length];
        if code.wrapping_sub(first) < u32::from(CODE.count[length]) {
            let symbol = CODE.order[usize::from(at) + (code - first) as usize];
            return match usize::from(symbol) {
                EOS => Err(BadHuffman),
                _ => Ok((symbol as u8, length as u32)),
            };
        }
    }
    // What is left is shorter than any symbol it may begin.
    Ok((0, u32::MAX))
}

fn is_padding(bits: u64, held: u32) -> bool {
    held == 0 || bits >> (64 - held) == (1 << held) - 1
}

fn padding(bits: u64, held: u32) -> Result<(), BadHuffman> {
    match held <= PADDING_MAX_BITS && is_padding(bits, held) {
        true => Ok(()),
        false => Err(BadHuffman),
    }
}

/// The coded length of a text in bytes.
pub fn coded_len(text: &[u8]) -> usize {
    let bits: usize = text.iter().map(|b| usize::from(BITS[usize::from(*b)])).sum();
    bits.div_ceil(8)
}

/// Each byte's code, and its length beside it: one look-up for both.
static CODED: [(u32, u32); 256] = coded();

const fn coded() -> [(u32, u32); 256] {
    let code = canonical();
    let mut table = [(0, 0); 256];
    let mut symbol = 0;
    while symbol < 256 {
        table[symbol] = (code.of[symbol], BITS[symbol] as u32);
        symbol += 1;
    }
    table
}

/// Appends the coded text.
pub fn encode(text: &[u8], out: &mut Vec<u8>) {
    encode_as(text, coded_len(text), out);
}

/// The same, where [`coded_len`] has been asked already.
pub(super) fn encode_as(text: &[u8], coded_len: usize, out: &mut Vec<u8>) {
    let mut at = out.len();
    out.resize(at + coded_len, 0);
    let (mut bits, mut held) = (0u64, 0u32);
    for b in text {
        let (code, length) = CODED[usize::from(*b)];
        bits = bits << length | u64::from(code);
        held += length;
        if held >= 32 {
            held -= 32;
            out[at..at + 4].copy_from_slice(&((bits >> held) as u32).to_be_bytes());
            at += 4;
        }
    }
    // What is left is less than 32 bits, and filled up with ones.
    let last = (bits << (32 - held)) as u32 | u32::MAX >> held;
    let rest = &mut out[at..];
    rest.copy_from_slice(&last.to_be_bytes()[..rest.len()]);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn coded(text: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        encode(text, &mut out);
        assert_eq!(out.len(), coded_len(text));
        out
    }

    fn decoded(coded: &[u8]) -> Result<Vec<u8>, BadHuffman> {
        let mut out = Vec::new();
        decode(coded, &mut out).map(|()| out)
    }

    #[test]
    fn examples_of_the_rfc() {
        let www = [0xf1, 0xe3, 0xc2, 0xe5, 0xf2, 0x3a, 0x6b, 0xa0, 0xab, 0x90, 0xf4, 0xff];
        assert_eq!(coded(b"www.example.com"), www);
        assert_eq!(coded(b"no-cache"), [0xa8, 0xeb, 0x10, 0x64, 0x9c, 0xbf]);
        assert_eq!(decoded(&www).unwrap(), b"www.example.com");
    }

    #[test]
    fn every_byte_there_and_back() {
        let all: Vec<u8> = (0..=255).collect();
        assert_eq!(decoded(&coded(&all)).unwrap(), all);
        for b in 0..=255u8 {
            for n in 1..9 {
                let text = vec![b; n];
                assert_eq!(decoded(&coded(&text)).unwrap(), text, "{b} {n}");
            }
        }
        assert_eq!(decoded(b"").unwrap(), b"");
    }

    #[test]
    fn bad_padding_and_eos() {
        assert!(decoded(&[0xff, 0xff]).is_err(), "two bytes of padding");
        assert!(decoded(&[0x18]).is_err(), "zero bits as padding");
        assert!(decoded(&[0xff, 0xff, 0xff, 0xff]).is_err(), "EOS");
        assert!(decoded(&[0x1f, 0xff]).is_err(), "eleven bits of padding");
        assert_eq!(decoded(&[0x1f]).unwrap(), b"a");
    }
}
