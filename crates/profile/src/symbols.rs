//! The program and its libraries, as they are in memory: callers of a sample, and names.

use crate::elf::{Elf, Symbols};
use crate::pe::Pe;
use framehop::{
    CacheNative, Module, ModuleSectionInfo, UnwindRegsNative, Unwinder, UnwinderNative,
};
use std::fs::File;
use std::ops::Range;
use std::path::Path;
use weir_runtime::mappings::{self, Mapping};
use weir_runtime::sampling::Sample;

/// No stack has more calls here; what is further out is left away.
const CALLS_MAX: usize = 192;

/// A file with code, and where it is.
pub struct Image {
    pub mapping: Mapping,
    base: u64,
    symbols: Option<Symbols>,
}

/// All of them.
pub struct Images {
    all: Vec<Image>,
    unwinder: UnwinderNative<Vec<u8>, framehop::MayAllocateDuringUnwind>,
    cache: CacheNative<framehop::MayAllocateDuringUnwind>,
}

/// The program itself is read by a name that holds when its file has been replaced.
fn open(path: &str) -> Option<Code> {
    let own = std::fs::read_link("/proc/self/exe").ok();
    let is_own = own.is_some_and(|p| p == Path::new(path));
    let file = File::open(if is_own { "/proc/self/exe" } else { path }).ok()?;
    Code::of(file)
}

/// What a file with code is.
enum Code {
    Elf(Elf<File>),
    Pe(Pe<File>),
}

impl Code {
    fn of(file: File) -> Option<Code> {
        let again = file.try_clone().ok()?;
        Elf::open(file).map(Code::Elf).or_else(|_| Pe::open(again).map(Code::Pe)).ok()
    }

    /// How far the file's addresses are from those in memory.
    fn base(&self, mapping: &Mapping) -> Option<u64> {
        match self {
            Code::Elf(elf) => elf.base(mapping.start, mapping.offset),
            Code::Pe(pe) => pe.takes(mapping.end - mapping.start).then_some(mapping.start),
        }
    }

    fn range(&self, name: &str) -> Option<Range<u64>> {
        match self {
            Code::Elf(elf) => elf.range(name),
            Code::Pe(pe) => pe.range(name),
        }
    }

    fn section(&mut self, name: &str) -> Option<Vec<u8>> {
        match self {
            Code::Elf(elf) => elf.section(name),
            Code::Pe(pe) => pe.section(name),
        }
    }

    fn symbols(&mut self) -> Symbols {
        match self {
            Code::Elf(elf) => elf.symbols(),
            Code::Pe(pe) => pe.symbols(),
        }
    }
}

/// The sections that unwinding is by.
impl ModuleSectionInfo<Vec<u8>> for &mut Code {
    fn base_svma(&self) -> u64 {
        0
    }

    fn section_svma_range(&mut self, name: &[u8]) -> Option<Range<u64>> {
        self.range(std::str::from_utf8(name).ok()?)
    }

    fn section_data(&mut self, name: &[u8]) -> Option<Vec<u8>> {
        // What is for debuggers is large, and not there in what is packed.
        let name = std::str::from_utf8(name).ok().filter(|name| *name != ".debug_frame")?;
        self.section(name)
    }
}

impl Images {
    /// Of this process as it is now.
    pub fn load() -> Images {
        let mut images =
            Images { all: Vec::new(), unwinder: UnwinderNative::new(), cache: CacheNative::new() };
        mappings::all().into_iter().for_each(|m| images.add(m));
        images.all.sort_by_key(|i| i.mapping.start);
        images
    }

    fn add(&mut self, mapping: Mapping) {
        let Some(mut code) = open(&mapping.path) else { return };
        let Some(base) = code.base(&mapping) else { return };
        let range = mapping.start..mapping.end;
        self.unwinder.add_module(Module::new(mapping.path.clone(), range, base, &mut code));
        self.all.push(Image { mapping, base, symbols: None });
    }

    /// The addresses of a sample's calls, from the innermost outwards. Of callers they are within the call.
    pub fn calls(&mut self, sample: &Sample<'_>, calls: &mut Vec<u64>) {
        calls.clear();
        #[cfg(target_arch = "aarch64")]
        let registers = UnwindRegsNative::new(sample.lr, sample.sp, sample.fp);
        #[cfg(not(target_arch = "aarch64"))]
        let registers = UnwindRegsNative::new(sample.ip, sample.sp, sample.fp);
        let mut read = |at: u64| sample.word(at).ok_or(());
        let mut frames =
            self.unwinder.iter_frames(sample.ip, registers, &mut self.cache, &mut read);
        // An error is the end of what can be told.
        while let Ok(Some(frame)) = frames.next() {
            calls.push(frame.address_for_lookup());
            if calls.len() >= CALLS_MAX {
                break;
            }
        }
    }

    /// The files, in the order of their addresses.
    pub fn mappings(&self) -> impl Iterator<Item = &Mapping> {
        self.all.iter().map(|i| &i.mapping)
    }

    /// The place of the file that an address is in.
    pub fn place(&self, at: u64) -> Option<usize> {
        let behind = self.all.partition_point(|i| i.mapping.start <= at);
        behind.checked_sub(1).filter(|n| at < self.all[*n].mapping.end)
    }

    /// A call as people read it: the function, or where it is.
    pub fn name(&mut self, at: u64) -> String {
        let Some(place) = self.place(at) else { return format!("{at:#x}") };
        let image = &mut self.all[place];
        let symbols = image.symbols.get_or_insert_with(|| {
            open(&image.mapping.path).map(|mut code| code.symbols()).unwrap_or_default()
        });
        let inside = at.wrapping_sub(image.base);
        match symbols.name(inside) {
            Some(name) => demangled(&String::from_utf8_lossy(name)),
            None => {
                let file = image.mapping.path.rsplit(['/', '\\']).next().unwrap_or_default();
                format!("{file}+{inside:#x}")
            }
        }
    }
}

/// Without the hash that tells versions apart, and in one word of a line.
fn demangled(name: &str) -> String {
    format!("{:#}", rustc_demangle::demangle(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn functions_of_this_program_are_named() {
        let mut images = Images::load();
        let at = functions_of_this_program_are_named as *const () as usize as u64;
        assert!(
            images.name(at).contains("functions_of_this_program_are_named"),
            "{}",
            images.name(at)
        );
        assert_eq!(images.name(1), "0x1");
        assert!(images.place(at).is_some() && images.mappings().count() > 0);
    }
}
