//! Header blocks from the peer.

use super::static_table::{LEN as STATIC_LEN, STATIC};
use super::table::Table;
use crate::http2::huffman;
use crate::http2::ErrorCode;
use crate::scan::Range32;

/// Continuation bytes of an integer; more than this is no length anyone needs.
const INTEGER_MORE_MAX_BYTES: usize = 3;
/// The table the peer may use: the protocol's default.
const TABLE_MAX_BYTES: usize = 4096;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Field {
    pub name: Range32,
    pub value: Range32,
}

/// A decoded block: names and values are ranges of `text`.
#[derive(Default, Debug)]
pub struct Fields {
    pub text: Vec<u8>,
    pub list: Vec<Field>,
}

impl Fields {
    pub fn clear(&mut self) {
        self.text.clear();
        self.list.clear();
    }

    pub fn iter(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.list.iter().map(|f| (f.name.of(&self.text), f.value.of(&self.text)))
    }

    fn keep(&mut self, text: &[u8]) -> Range32 {
        let start = self.text.len();
        self.text.extend_from_slice(text);
        Range32::new(start, self.text.len())
    }
}

#[derive(Clone, Copy, Debug)]
pub struct HpackLimits {
    /// Of one string as sent.
    pub string_max_bytes: usize,
    /// Of all names and values of one block.
    pub block_max_bytes: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HpackError {
    /// A block that ends within a field.
    Truncated,
    IntegerTooLong,
    BadIndex,
    BadTableSize,
    BadHuffman,
    EmptyName,
    StringTooLarge,
    BlockTooLarge,
}

impl HpackError {
    /// All of them end the connection: the tables no longer agree.
    pub fn code(self) -> ErrorCode {
        match self {
            HpackError::Truncated => ErrorCode::FRAME_SIZE_ERROR,
            HpackError::EmptyName => ErrorCode::PROTOCOL_ERROR,
            HpackError::StringTooLarge | HpackError::BlockTooLarge => ErrorCode::ENHANCE_YOUR_CALM,
            _ => ErrorCode::COMPRESSION_ERROR,
        }
    }

    pub fn text(self) -> &'static str {
        match self {
            HpackError::Truncated => "client sent header block with incorrect length",
            HpackError::IntegerTooLong => "client sent header block with too long value",
            HpackError::BadIndex => "client sent invalid header index",
            HpackError::BadTableSize => "client sent invalid table size update",
            HpackError::BadHuffman => "client sent invalid encoded header field",
            HpackError::EmptyName => "client sent zero header name length",
            HpackError::StringTooLarge => "client sent too large header field",
            HpackError::BlockTooLarge => "client sent too large header",
        }
    }
}

pub struct Decoder {
    table: Table,
}

impl Default for Decoder {
    fn default() -> Self {
        Decoder { table: Table::new(TABLE_MAX_BYTES) }
    }
}

/// What is left of a block.
struct Block<'a>(&'a [u8]);

impl<'a> Block<'a> {
    /// An integer whose first byte has so many bits of it.
    fn integer(&mut self, prefix_bits: u32) -> Result<usize, HpackError> {
        let (first, rest) = self.0.split_first().ok_or(HpackError::Truncated)?;
        let mask = (1u32 << prefix_bits) - 1;
        let mut value = u32::from(*first) & mask;
        self.0 = rest;
        if value < mask {
            return Ok(value as usize);
        }
        for (i, b) in rest.iter().take(INTEGER_MORE_MAX_BYTES).enumerate() {
            value += u32::from(b & 0x7f) << (7 * i);
            if b & 0x80 == 0 {
                self.0 = rest.get(i + 1..).unwrap_or_default();
                return Ok(value as usize);
            }
        }
        match rest.len() < INTEGER_MORE_MAX_BYTES {
            true => Err(HpackError::Truncated),
            false => Err(HpackError::IntegerTooLong),
        }
    }

    fn string(&mut self, limits: &HpackLimits, out: &mut Fields) -> Result<Range32, HpackError> {
        let coded = self.0.first().is_some_and(|b| b & 0x80 != 0);
        let len = self.integer(7)?;
        if len > limits.string_max_bytes {
            return Err(HpackError::StringTooLarge);
        }
        let (text, rest) = self.0.split_at_checked(len).ok_or(HpackError::Truncated)?;
        self.0 = rest;
        if !coded {
            return Ok(out.keep(text));
        }
        let start = out.text.len();
        huffman::decode(text, &mut out.text).map_err(|_| HpackError::BadHuffman)?;
        Ok(Range32::new(start, out.text.len()))
    }
}

impl Decoder {
    /// For a peer that was told to keep no table.
    pub fn without_table() -> Decoder {
        Decoder { table: Table::new(0) }
    }

    /// Decodes a whole block into `out`, which is cleared first.
    pub fn decode(
        &mut self,
        block: &[u8],
        limits: &HpackLimits,
        out: &mut Fields,
    ) -> Result<(), HpackError> {
        out.clear();
        let mut block = Block(block);
        let mut left = limits.block_max_bytes;
        while let Some(&first) = block.0.first() {
            if first & 0xe0 == 0x20 {
                let max = block.integer(5)?;
                // A change of size stands before the first field (RFC 7541 section 4.2).
                if !out.list.is_empty() || !self.table.resize(max) {
                    return Err(HpackError::BadTableSize);
                }
                continue;
            }
            let field = self.field(first, &mut block, limits, out)?;
            let len = field.name.len() + field.value.len();
            left = left.checked_sub(len).ok_or(HpackError::BlockTooLarge)?;
            if first & 0xc0 == 0x40 {
                self.table.insert(field.name.of(&out.text), field.value.of(&out.text));
            }
            out.list.push(field);
        }
        Ok(())
    }

    #[inline]
    fn field(
        &self,
        first: u8,
        block: &mut Block,
        limits: &HpackLimits,
        out: &mut Fields,
    ) -> Result<Field, HpackError> {
        if first & 0x80 != 0 {
            let (name, value) = self.entry(block.integer(7)?)?;
            return Ok(Field { name: out.keep(name), value: out.keep(value) });
        }
        let index = block.integer(if first & 0x40 != 0 { 6 } else { 4 })?;
        let name = match index {
            0 => block.string(limits, out)?,
            _ => out.keep(self.entry(index)?.0),
        };
        if name.is_empty() {
            return Err(HpackError::EmptyName);
        }
        Ok(Field { name, value: block.string(limits, out)? })
    }

    fn entry(&self, index: usize) -> Result<(&[u8], &[u8]), HpackError> {
        let index = index.checked_sub(1).ok_or(HpackError::BadIndex)?;
        if let Some((name, value)) = STATIC.get(index) {
            return Ok((name, value));
        }
        self.table.get(index - STATIC_LEN).ok_or(HpackError::BadIndex)
    }

    #[cfg(test)]
    pub(super) fn table_size(&self) -> usize {
        self.table.size()
    }
}
