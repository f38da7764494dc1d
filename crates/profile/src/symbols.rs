//! The program and its libraries, as they are in memory: callers of a sample, and names.

use crate::elf::{Elf, Symbols};
use crate::maps::{self, Mapping};
use framehop::{
    CacheNative, ExplicitModuleSectionInfo, Module, UnwindRegsNative, Unwinder, UnwinderNative,
};
use std::fs::File;
use std::path::Path;
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
fn open(path: &str) -> Option<Elf<File>> {
    let own = std::fs::read_link("/proc/self/exe").ok();
    let is_own = own.is_some_and(|p| p == Path::new(path));
    let file = File::open(if is_own { "/proc/self/exe" } else { path }).ok()?;
    Elf::open(file).ok()
}

impl Images {
    /// Of this process as it is now.
    pub fn load() -> Images {
        let text = std::fs::read_to_string("/proc/self/maps").unwrap_or_default();
        let mut images =
            Images { all: Vec::new(), unwinder: UnwinderNative::new(), cache: CacheNative::new() };
        maps::parse(&text).into_iter().for_each(|m| images.add(m));
        images.all.sort_by_key(|i| i.mapping.start);
        images
    }

    fn add(&mut self, mapping: Mapping) {
        let Some(mut elf) = open(&mapping.path) else { return };
        let Some(base) = elf.base(mapping.start, mapping.offset) else { return };
        let (frame, head) = (elf.section(".eh_frame"), elf.section(".eh_frame_hdr"));
        let info = ExplicitModuleSectionInfo {
            base_svma: 0,
            text_svma: elf.range(".text"),
            got_svma: elf.range(".got"),
            eh_frame_svma: frame.as_ref().map(|s| s.range.clone()),
            eh_frame: frame.map(|s| s.bytes),
            eh_frame_hdr_svma: head.as_ref().map(|s| s.range.clone()),
            eh_frame_hdr: head.map(|s| s.bytes),
            ..ExplicitModuleSectionInfo::default()
        };
        let range = mapping.start..mapping.end;
        self.unwinder.add_module(Module::new(mapping.path.clone(), range, base, info));
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
            open(&image.mapping.path).map(|mut elf| elf.symbols()).unwrap_or_default()
        });
        let inside = at.wrapping_sub(image.base);
        match symbols.name(inside) {
            Some(name) => demangled(&String::from_utf8_lossy(name)),
            None => {
                let file = image.mapping.path.rsplit('/').next().unwrap_or_default();
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
