//! What of an ELF file (64 bits, little end first) a profile needs: the sections for unwinding, and the symbols.
//! Lengths that a file states are believed up to bounds, and never beyond the file.

use std::io::{self, Read, Seek, SeekFrom};
use std::ops::Range;

/// No table of sections or segments is longer.
pub(crate) const HEADERS_MAX_BYTES: u64 = 1 << 20;
/// No section that is read is longer.
pub(crate) const SECTION_MAX_BYTES: u64 = 128 << 20;

const SEGMENT_BYTES: usize = 56;
const SECTION_BYTES: usize = 64;
const SYMBOL_BYTES: usize = 24;
const LOAD: u32 = 1;
const FUNCTION: u8 = 2;

/// A piece of the file that is put into memory.
#[derive(Clone, Copy)]
struct Segment {
    offset: u64,
    address: u64,
    bytes: u64,
}

struct Header {
    name: u32,
    address: u64,
    offset: u64,
    bytes: u64,
    link: u32,
}

pub struct Elf<F> {
    file: F,
    segments: Vec<Segment>,
    sections: Vec<Header>,
    names: Vec<u8>,
}

/// A function: from where to where, and its name's place among [`Symbols::names`].
pub(crate) struct Symbol {
    pub at: u64,
    pub end: u64,
    pub name: u32,
}

/// Functions by their addresses.
#[derive(Default)]
pub struct Symbols {
    pub all: Vec<Symbol>,
    pub names: Vec<u8>,
}

pub(crate) fn invalid() -> io::Error {
    io::ErrorKind::InvalidData.into()
}

pub(crate) fn half(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..at + 2)?.try_into().ok().map(u16::from_le_bytes)
}

pub(crate) fn word(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.try_into().ok().map(u32::from_le_bytes)
}

fn long(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes)
}

fn segment(bytes: &[u8]) -> Option<Segment> {
    let (kind, flags) = (word(bytes, 0)?, word(bytes, 4)?);
    let found =
        Segment { offset: long(bytes, 8)?, address: long(bytes, 16)?, bytes: long(bytes, 32)? };
    (kind == LOAD && flags & 1 != 0).then_some(found)
}

fn section(bytes: &[u8]) -> Option<Header> {
    Some(Header {
        name: word(bytes, 0)?,
        address: long(bytes, 16)?,
        offset: long(bytes, 24)?,
        bytes: long(bytes, 32)?,
        link: word(bytes, 40)?,
    })
}

/// A text that ends with a zero.
pub(crate) fn text(names: &[u8], at: u32) -> Option<&[u8]> {
    names.get(at as usize..)?.split(|b| *b == 0).next()
}

impl<F: Read + Seek> Elf<F> {
    /// Reads the headers.
    ///
    /// # Errors
    ///
    /// Of the file, or it is of another kind.
    pub fn open(mut file: F) -> io::Result<Elf<F>> {
        let head = read_at(&mut file, 0, 64)?;
        if !head.starts_with(b"\x7fELF\x02\x01") {
            return Err(invalid());
        }
        let table = |at: usize, count: usize, each: usize| {
            let bytes = u64::from(half(&head, count)?) * each as u64;
            Some((long(&head, at)?, bytes)).filter(|(_, bytes)| *bytes <= HEADERS_MAX_BYTES)
        };
        let (at, bytes) = table(32, 56, SEGMENT_BYTES).ok_or_else(invalid)?;
        let segments = read_at(&mut file, at, bytes)?;
        let segments = segments.chunks_exact(SEGMENT_BYTES).filter_map(segment).collect();
        let (at, bytes) = table(40, 60, SECTION_BYTES).ok_or_else(invalid)?;
        let sections = read_at(&mut file, at, bytes)?;
        let sections: Vec<Header> =
            sections.chunks_exact(SECTION_BYTES).filter_map(section).collect();
        let names =
            half(&head, 62).and_then(|n| sections.get(usize::from(n))).map(|s| (s.offset, s.bytes));
        let (at, bytes) =
            names.filter(|(_, bytes)| *bytes <= HEADERS_MAX_BYTES).ok_or_else(invalid)?;
        let names = read_at(&mut file, at, bytes)?;
        Ok(Elf { file, segments, sections, names })
    }

    /// How far the file's addresses are from those in memory, for code that was mapped from this offset on.
    pub fn base(&self, start: u64, offset: u64) -> Option<u64> {
        let is_its = |s: &&Segment| {
            let page = s.offset & !0xfff;
            (page..s.offset.saturating_add(s.bytes)).contains(&offset)
        };
        let s = self.segments.iter().find(is_its)?;
        Some(start.wrapping_sub(s.address.wrapping_sub(s.offset).wrapping_add(offset)))
    }

    fn find(&self, name: &str) -> Option<usize> {
        self.sections.iter().position(|s| text(&self.names, s.name) == Some(name.as_bytes()))
    }

    /// Where a section is in memory, as the file has it.
    pub fn range(&self, name: &str) -> Option<Range<u64>> {
        let s = &self.sections[self.find(name)?];
        Some(s.address..s.address.saturating_add(s.bytes))
    }

    /// Reads a section; `None` if there is none, or it is too long, or cannot be read.
    pub fn section(&mut self, name: &str) -> Option<Vec<u8>> {
        self.bytes(self.find(name)?)
    }

    fn bytes(&mut self, at: usize) -> Option<Vec<u8>> {
        let s = self.sections.get(at).filter(|s| s.bytes <= SECTION_MAX_BYTES)?;
        let (offset, bytes) = (s.offset, s.bytes);
        read_at(&mut self.file, offset, bytes).ok()
    }

    /// All functions: the file's own table, or the one for the loader where it was stripped.
    pub fn symbols(&mut self) -> Symbols {
        [".symtab", ".dynsym"].iter().find_map(|n| self.symbols_of(n)).unwrap_or_default()
    }

    fn symbols_of(&mut self, name: &str) -> Option<Symbols> {
        let table = self.section(name)?;
        let link = self.sections[self.find(name)?].link;
        let names = self.bytes(link as usize)?;
        let of = |bytes: &[u8]| {
            let (name, kind) = (word(bytes, 0)?, bytes[4] & 0xf);
            let (at, size) = (long(bytes, 8)?, long(bytes, 16)?);
            let found = Symbol { at, end: at.saturating_add(size), name };
            (kind == FUNCTION && size > 0).then_some(found)
        };
        let mut all: Vec<Symbol> = table.chunks_exact(SYMBOL_BYTES).filter_map(of).collect();
        all.sort_by_key(|s| s.at);
        Some(Symbols { all, names })
    }
}

impl Symbols {
    pub fn is_empty(&self) -> bool {
        self.all.is_empty()
    }

    /// The function that an address is in, as the linker calls it.
    pub fn name(&self, at: u64) -> Option<&[u8]> {
        let behind = self.all.partition_point(|s| s.at <= at);
        let s = self.all[..behind].last().filter(|s| at < s.end)?;
        text(&self.names, s.name)
    }
}

/// So many bytes; fewer where the file ends before.
pub(crate) fn read_at<F: Read + Seek>(file: &mut F, at: u64, bytes: u64) -> io::Result<Vec<u8>> {
    let mut out = Vec::new();
    file.seek(SeekFrom::Start(at))?;
    file.take(bytes).read_to_end(&mut out)?;
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    #[test]
    fn this_program_has_its_functions() {
        let mut elf = Elf::open(std::fs::File::open("/proc/self/exe").unwrap()).unwrap();
        assert!(elf.section(".eh_frame").is_some_and(|s| !s.is_empty()));
        assert!(
            elf.range(".text").is_some_and(|r| r.end > r.start) && elf.section(".none").is_none()
        );
        let symbols = elf.symbols();
        let some = &symbols.all[symbols.all.len() / 2];
        assert!(symbols.name(some.at).is_some_and(|n| !n.is_empty()));
        assert_eq!(symbols.name(u64::MAX), None);
    }

    #[test]
    fn files_of_other_kinds_are_refused() {
        assert!(Elf::open(Cursor::new(b"#!/bin/sh".to_vec())).is_err());
        let mut whole = std::fs::read("/proc/self/exe").unwrap();
        whole.truncate(100);
        assert!(Elf::open(Cursor::new(whole.clone())).is_err());
        // Offsets beyond all files.
        whole[32..48].fill(0xff);
        whole[56..64].fill(0xff);
        assert!(Elf::open(Cursor::new(whole)).is_err());
    }
}
