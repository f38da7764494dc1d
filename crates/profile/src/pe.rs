//! What of a program or library of Windows' (PE, 64 bits) a profile needs: the sections for unwinding, and names. Addresses
//! are as far from the file's first as its own tables say. Lengths that a file states are believed up to bounds.

use crate::elf::{
    half, invalid, read_at, text, word, Symbol, Symbols, HEADERS_MAX_BYTES, SECTION_MAX_BYTES,
};
use std::io::{self, Read, Seek};
use std::ops::Range;

const HEADER_BYTES: u64 = 24;
const SECTION_BYTES: usize = 40;
const SYMBOL_BYTES: usize = 18;
const UNWIND_BYTES: usize = 12;
/// Of the optional header: that the file is of 64 bits, and the place of the exported names.
const MAGIC: u16 = 0x20b;
const EXPORTS_AT: usize = 112;
/// And how much memory it takes.
const IMAGE_AT: usize = 56;
/// Of a section: it may be executed.
const CODE: u32 = 0x2000_0000;
/// Of a symbol: it is a function, and others may see it.
const FUNCTION: u16 = 0x20;
const EXTERNAL: u8 = 2;
const STATIC: u8 = 3;
/// An exported function without a table for unwinding is no longer: a call of the system's.
const CALL_BYTES: u64 = 32;

struct Header {
    name: [u8; 8],
    address: u64,
    bytes: u64,
    offset: u64,
    is_code: bool,
}

pub struct Pe<F> {
    file: F,
    sections: Vec<Header>,
    /// Where the linker's table is, and how many symbols it has.
    symbols: (u64, u64),
    exports: u64,
    image_bytes: u64,
}

fn section(bytes: &[u8]) -> Option<Header> {
    let size = |at| word(bytes, at).map(u64::from);
    Some(Header {
        name: bytes.get(..8)?.try_into().ok()?,
        // What is filled up to whole blocks, and what is not in the file, is left away.
        bytes: size(8)?.min(size(16)?),
        address: size(12)?,
        offset: size(20)?,
        is_code: word(bytes, 36)? & CODE != 0,
    })
}

impl<F: Read + Seek> Pe<F> {
    /// Reads the headers.
    ///
    /// # Errors
    ///
    /// Of the file, or it is of another kind.
    pub fn open(mut file: F) -> io::Result<Pe<F>> {
        let dos = read_at(&mut file, 0, 64)?;
        let at = word(&dos, 60).filter(|_| dos.starts_with(b"MZ")).ok_or_else(invalid)?.into();
        let head = read_at(&mut file, at, HEADER_BYTES)?;
        let sizes = half(&head, 6).zip(half(&head, 20)).filter(|_| head.starts_with(b"PE\0\0"));
        let (sections, optional_bytes) = sizes.ok_or_else(invalid)?;
        let symbols = word(&head, 12).zip(word(&head, 16)).ok_or_else(invalid)?;
        let at = at + HEADER_BYTES;
        let optional = read_at(&mut file, at, optional_bytes.into())?;
        if half(&optional, 0) != Some(MAGIC) {
            return Err(invalid());
        }
        let bytes = u64::from(sections) * SECTION_BYTES as u64;
        let table =
            read_at(&mut file, at + u64::from(optional_bytes), bytes.min(HEADERS_MAX_BYTES))?;
        Ok(Pe {
            file,
            sections: table.chunks_exact(SECTION_BYTES).filter_map(section).collect(),
            symbols: (symbols.0.into(), symbols.1.into()),
            exports: word(&optional, EXPORTS_AT).unwrap_or(0).into(),
            image_bytes: word(&optional, IMAGE_AT).unwrap_or(0).into(),
        })
    }

    /// Whether what takes so much memory was loaded from it: another file may have its name since.
    pub fn takes(&self, bytes: u64) -> bool {
        self.image_bytes == bytes
    }

    fn find(&self, name: &str) -> Option<&Header> {
        self.sections.iter().find(|s| text(&s.name, 0) == Some(name.as_bytes()))
    }

    /// Where a section is in memory.
    pub fn range(&self, name: &str) -> Option<Range<u64>> {
        self.find(name).map(Header::range)
    }

    /// Reads a section; `None` if there is none, or it is too long, or not all of it can be read.
    pub fn section(&mut self, name: &str) -> Option<Vec<u8>> {
        let s = self.find(name).filter(|s| s.bytes <= SECTION_MAX_BYTES)?;
        let (offset, wanted) = (s.offset, s.bytes);
        let bytes = read_at(&mut self.file, offset, wanted).ok()?;
        (bytes.len() as u64 == wanted).then_some(bytes)
    }

    /// All functions: the linker's table, or what others are shown where there is none.
    pub fn symbols(&mut self) -> Symbols {
        let all = self.linkers().filter(|s| !s.is_empty());
        all.or_else(|| self.exported()).unwrap_or_default()
    }

    fn linkers(&mut self) -> Option<Symbols> {
        let (at, count) = self.symbols;
        let bytes = count * SYMBOL_BYTES as u64;
        if count == 0 || bytes > SECTION_MAX_BYTES {
            return None;
        }
        let table = read_at(&mut self.file, at, bytes).ok()?;
        let size = word(&read_at(&mut self.file, at + bytes, 4).ok()?, 0)?;
        let names_bytes = u64::from(size).min(SECTION_MAX_BYTES);
        let mut names = read_at(&mut self.file, at + bytes, names_bytes).ok()?;
        // The last name of a file that was cut off, too.
        names.push(0);
        let mut all = Vec::new();
        let mut rest = table.chunks_exact(SYMBOL_BYTES);
        while let Some(symbol) = rest.next() {
            let (class, more) = (symbol[16], symbol[17]);
            // What belongs to it is in as many places of the table.
            if more > 0 {
                rest.nth(usize::from(more) - 1);
            }
            let is_meant =
                class == EXTERNAL || class == STATIC && half(symbol, 14) == Some(FUNCTION);
            let (Some(value), Some(place), true) = (word(symbol, 8), half(symbol, 12), is_meant)
            else {
                continue;
            };
            let section = usize::from(place).checked_sub(1).and_then(|n| self.sections.get(n));
            let Some(section) = section.filter(|s| s.is_code) else { continue };
            let name = match word(symbol, 0) {
                Some(0) => word(symbol, 4).unwrap_or(0),
                _ => {
                    let name = names.len() as u32;
                    names.extend_from_slice(&symbol[..8]);
                    names.push(0);
                    name
                }
            };
            let at = section.address + u64::from(value);
            all.push(Symbol { at, end: section.range().end, name });
        }
        // Nothing says where one ends but the next one.
        all.sort_by_key(|s| s.at);
        Some(Symbols { all, names })
    }

    /// What a library is for. Its other functions have no names: which ones they are the tables for unwinding say.
    fn exported(&mut self) -> Option<Symbols> {
        let holds = |s: &&Header| s.range().contains(&self.exports);
        let s = self.sections.iter().find(holds).filter(|s| s.bytes <= SECTION_MAX_BYTES)?;
        let (from, offset, bytes) = (s.address, s.offset, s.bytes);
        let names = read_at(&mut self.file, offset, bytes).ok()?;
        let ends = self.section(".pdata").unwrap_or_default();
        let mut ends: Vec<(u64, u64)> = ends
            .chunks_exact(UNWIND_BYTES)
            .filter_map(|b| Some((word(b, 0)?.into(), word(b, 4)?.into())))
            .collect();
        ends.sort_unstable();
        let inside = |at: u64| usize::try_from(at.checked_sub(from)?).ok();
        let number = |at: u64| word(&names, inside(at)?).map(u64::from);
        let head = |n: u64| number(self.exports + n);
        let (count, functions, texts, places) = (head(24)?, head(28)?, head(32)?, head(36)?);
        let of = |n: u64| {
            let name = inside(number(texts + n * 4)?)? as u32;
            let place = half(&names, inside(places + n * 2)?)?;
            let at = number(functions + u64::from(place) * 4)?;
            let known = ends.partition_point(|e| e.0 <= at).checked_sub(1).map(|n| ends[n]);
            let end = known.filter(|e| e.0 == at).map_or(at + CALL_BYTES, |e| e.1);
            Some(Symbol { at, end, name })
        };
        let mut all: Vec<Symbol> = (0..count.min(HEADERS_MAX_BYTES)).map_while(of).collect();
        all.sort_by_key(|s| s.at);
        Some(Symbols { all, names })
    }
}

impl Header {
    fn range(&self) -> Range<u64> {
        self.address..self.address + self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Cursor;

    /// A library: a section of code from 0x1000 on with two functions, and one of exported names from 0x2000 on.
    fn library(symbols: &[u8]) -> Vec<u8> {
        let mut out = vec![0; 0x400];
        let mut put = |at: usize, bytes: &[u8]| out[at..at + bytes.len()].copy_from_slice(bytes);
        put(0, b"MZ");
        put(60, &0x80u32.to_le_bytes());
        put(0x80, b"PE\0\0\x64\x86\x03\0");
        put(0x8c, &0x400u32.to_le_bytes());
        put(0x90, &((symbols.len() / SYMBOL_BYTES) as u32).to_le_bytes());
        put(0x94, &120u16.to_le_bytes());
        put(0x98, &MAGIC.to_le_bytes());
        put(0x98 + EXPORTS_AT, &0x2000u32.to_le_bytes());
        put(0x98 + IMAGE_AT, &0x4000u32.to_le_bytes());
        let mut section = |n: usize, name: &[u8], numbers: [u32; 4], how: u32| {
            let at = 0x110 + n * SECTION_BYTES;
            put(at, name);
            numbers.iter().enumerate().for_each(|(n, v)| put(at + 8 + n * 4, &v.to_le_bytes()));
            put(at + 36, &how.to_le_bytes());
        };
        section(0, b".text", [0x80, 0x1000, 0x200, 0x200], CODE);
        section(1, b".edata", [0x60, 0x2000, 0x60, 0x300], 0);
        section(2, b".pdata", [12, 0x3000, 12, 0x3f0], 0);
        // Exported: "one" of 0x1010, which has a table for unwinding, and "two" of 0x1040.
        let numbers =
            [(24, 2), (28, 0x2028), (32, 0x2030), (36, 0x2038), (40, 0x1010), (44, 0x1040)];
        let names = [(48, 0x203c), (52, 0x2040)];
        numbers
            .iter()
            .chain(&names)
            .for_each(|(at, v): &(usize, u32)| put(0x300 + at, &v.to_le_bytes()));
        put(0x338, &[0, 0, 1, 0]);
        put(0x33c, b"one\0two\0");
        put(0x3f0, &0x1010u32.to_le_bytes());
        put(0x3f4, &0x1038u32.to_le_bytes());
        out.extend_from_slice(symbols);
        let names = b"a_long_function\0";
        out.extend_from_slice(&(4 + names.len() as u32).to_le_bytes());
        out.extend_from_slice(names);
        out
    }

    fn symbol(name: [u8; 8], value: u32, section: u16, kind: u16, class: u8, more: u8) -> Vec<u8> {
        let mut out = name.to_vec();
        out.extend_from_slice(&value.to_le_bytes());
        out.extend_from_slice(&section.to_le_bytes());
        out.extend_from_slice(&kind.to_le_bytes());
        out.extend_from_slice(&[class, more]);
        out
    }

    #[test]
    fn functions_of_the_linkers_table() {
        let table = [
            symbol(*b".text\0\0\0", 0, 1, 0, STATIC, 1),
            // What belongs to it, and is no symbol.
            symbol([0xff; 8], 0x20, 1, FUNCTION, EXTERNAL, 0),
            symbol([0, 0, 0, 0, 4, 0, 0, 0], 0x10, 1, FUNCTION, STATIC, 0),
            symbol(*b"eight_ch", 0x40, 1, 0, EXTERNAL, 0),
            symbol(*b"data\0\0\0\0", 0x18, 2, 0, EXTERNAL, 0),
        ];
        let mut pe = Pe::open(Cursor::new(library(&table.concat()))).unwrap();
        let symbols = pe.symbols();
        let name = |at| symbols.name(at).map(|n| String::from_utf8_lossy(n).into_owned());
        assert_eq!(name(0x100f), None);
        assert_eq!(name(0x1010).as_deref(), Some("a_long_function"));
        assert_eq!(name(0x103f).as_deref(), Some("a_long_function"));
        assert_eq!(name(0x1040).as_deref(), Some("eight_ch"));
        assert_eq!((name(0x1080), name(0x2018)), (None, None));
        assert_eq!(pe.range(".text"), Some(0x1000..0x1080));
        assert!(pe.takes(0x4000) && !pe.takes(0x5000));
        assert_eq!(pe.section(".text").map(|s| s.len()), Some(0x80));
        assert!(pe.section(".none").is_none());
    }

    #[test]
    fn what_a_library_shows() {
        let symbols = Pe::open(Cursor::new(library(&[]))).unwrap().symbols();
        let name = |at| symbols.name(at).map(|n| String::from_utf8_lossy(n).into_owned());
        assert_eq!(name(0x1010).as_deref(), Some("one"));
        assert_eq!(name(0x1038), None);
        assert_eq!(name(0x1040).as_deref(), Some("two"));
        assert_eq!(name(0x1040 + CALL_BYTES), None);
    }

    #[test]
    fn files_that_are_cut_off() {
        let whole = library(&symbol(*b"eight_ch", 0x40, 1, 0, EXTERNAL, 9));
        for len in 0..whole.len() {
            let Ok(mut pe) = Pe::open(Cursor::new(whole[..len].to_vec())) else { continue };
            pe.symbols();
            pe.section(".text");
        }
        assert!(Pe::open(Cursor::new(b"MZ".repeat(100))).is_err());
        assert!(Pe::open(std::fs::File::open("/proc/self/exe").unwrap()).is_err());
    }
}
