//! The bytes that cut a header block into lines and names, found sixty-four at a time.

use crate::scan::CR;
use wide::u8x16;

const BLOCK_BYTES: usize = 64;

/// Which bytes of a block are marks, a bit for each, the first byte's in the lowest place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Marks {
    colons: u64,
    /// CR and all bytes below it: line ends, NUL, and some that mean nothing.
    ends: u64,
}

#[inline(always)]
fn marks(block: &[u8; BLOCK_BYTES]) -> Marks {
    let (colon, cr) = (u8x16::splat(b':'), u8x16::splat(CR));
    let mut marks = Marks { colons: 0, ends: 0 };
    for (i, part) in block.as_chunks().0.iter().enumerate() {
        let bytes = u8x16::new(*part);
        marks.colons |= u64::from(bytes.simd_eq(colon).to_bitmask()) << (16 * i);
        marks.ends |= u64::from(bytes.min(cr).simd_eq(bytes).to_bitmask()) << (16 * i);
    }
    marks
}

/// The marks of the block that begins at `base`; behind the buffer's end stands a line's end.
#[inline(always)]
fn marks_from(buf: &[u8], base: usize) -> Marks {
    if let Some(block) = buf.get(base..).and_then(|rest| rest.first_chunk()) {
        return marks(block);
    }
    let left = buf.len().saturating_sub(base);
    match buf.last_chunk::<BLOCK_BYTES>() {
        _ if left == 0 => Marks { colons: 0, ends: 1 },
        Some(block) => {
            let before = BLOCK_BYTES - left;
            let Marks { colons, ends } = marks(block);
            Marks { colons: colons >> before, ends: ends >> before | 1 << left }
        }
        None => {
            let mut block = [0; BLOCK_BYTES];
            let rest = buf.get(base..).unwrap_or_default();
            block.iter_mut().zip(rest).for_each(|(to, from)| *to = *from);
            marks(&block)
        }
    }
}

/// Where a header line with nothing odd about it but, it may be, its name has its colon, and its CR.
#[derive(Clone, Copy)]
pub(crate) struct PlainLine {
    pub(crate) colon: usize,
    pub(crate) end: usize,
}

/// Where the marks are that come next.
#[derive(Clone, Copy)]
struct Block {
    base: usize,
    marks: Marks,
}

/// Walks over the lines of a buffer.
pub(crate) struct Lines<'b> {
    buf: &'b [u8],
    block: Block,
}

impl<'b> Lines<'b> {
    /// Those of that buffer.
    #[inline(always)]
    pub(crate) fn of(buf: &'b [u8]) -> Lines<'b> {
        Lines { buf, block: Block { base: 0, marks: Marks { colons: 0, ends: 0 } } }
    }

    /// The line that begins at `start`, right behind the one before, if it is whole and `Name: value`
    /// with a value, single spaces and a CR LF.
    #[inline(always)]
    pub(crate) fn plain(&mut self, start: usize) -> Option<PlainLine> {
        let Block { base, marks } = self.block;
        let line = match marks.ends != 0 {
            true if marks.colons.trailing_zeros() > marks.ends.trailing_zeros() => return None,
            true => PlainLine {
                colon: base + marks.colons.trailing_zeros() as usize,
                end: base + marks.ends.trailing_zeros() as usize,
            },
            false => {
                let (block, line) = in_blocks(self.buf, start)?;
                self.block = block;
                line
            }
        };
        let [_, b' ', first] = *self.buf.get(line.colon..)?.first_chunk()? else { return None };
        let [last, end @ ..]: [u8; 3] = *self.buf.get(line.end.wrapping_sub(1)..)?.first_chunk()?;
        if end != *b"\r\n" || line.colon == start || first == b' ' || last == b' ' {
            return None;
        }
        let Block { base, marks } = &mut self.block;
        marks.colons &= u64::MAX << ((line.end - *base) % BLOCK_BYTES);
        // The line's CR and LF; where the LF is not of this block there is nothing behind it either.
        marks.ends &= marks.ends.wrapping_sub(1);
        marks.ends &= marks.ends.wrapping_sub(1);
        Some(line)
    }
}

/// The first marks of the line that begins at `start`, and the block where its end is; `None`: it has no
/// colon, or a long name.
#[inline(never)]
fn in_blocks(buf: &[u8], start: usize) -> Option<(Block, PlainLine)> {
    let mut block = Block { base: start, marks: marks_from(buf, start) };
    let at = block.marks.colons.trailing_zeros();
    if at == u64::BITS || at > block.marks.ends.trailing_zeros() {
        return None;
    }
    while block.marks.ends == 0 {
        block.base += BLOCK_BYTES;
        block.marks = marks_from(buf, block.base);
    }
    let end = block.base + block.marks.ends.trailing_zeros() as usize;
    Some((block, PlainLine { colon: start + at as usize, end }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_those_of_every_byte() {
        for b in 0..=255u8 {
            for at in 0..BLOCK_BYTES {
                let mut block =
                    *b"sixty-four bytes of text, of which none is any mark: that is not";
                block[51] = b' ';
                block[at] = b;
                let bit = |is: bool| u64::from(is) << at;
                let want = Marks { colons: bit(b == b':'), ends: bit(b <= CR) };
                assert_eq!(marks(&block), want, "{b} at {at}");
            }
        }
    }

    #[test]
    fn lines_of_every_length_are_found() {
        for name in 1..70 {
            for value in 1..140 {
                let line =
                    [&b"n".repeat(name)[..], b": ", &b":".repeat(value)[..], b"\r\n"].concat();
                let text = [&line[..], b"Second: line\r\n", b"\r\n"].concat();
                let mut lines = Lines::of(&text);
                let first = lines.plain(0);
                assert_eq!(first.is_some(), name < BLOCK_BYTES, "{name}");
                let Some(first) = first else { continue };
                assert_eq!((first.colon, first.end), (name, line.len() - 2));
                let second = lines.plain(line.len()).unwrap();
                assert_eq!(&text[second.colon + 2..second.end], b"line");
                assert!(lines.plain(second.end + 2).is_none());
                let cut = &text[..line.len() - 1];
                assert!(Lines::of(cut).plain(0).is_none(), "{name} and {value}");
            }
        }
    }

    #[test]
    fn odd_lines_are_left_to_others() {
        let odd =
            ["a\r\nb: c", ": a", "a:b", "a:  b", "a: ", "a: b ", "a: b\nc", "a: b\rc", "a: b\0c"];
        for line in odd {
            for before in 0..70 {
                let text = format!("x: {}\r\n{line}\r\n\r\n", "y".repeat(before + 1));
                let mut lines = Lines::of(text.as_bytes());
                assert!(lines.plain(0).is_some());
                assert!(lines.plain(before + 6).is_none(), "{line:?}");
            }
        }
    }
}
