//! Profiles of the processor's time: where the workers spend it.
//!
//! `runtime::sampling` copies registers and a part of the stack; everything else is done here, in a thread that
//! serves nobody. [`Recorder`] takes the copies and finds the callers by the programs' own tables for unwinding
//! (`.eh_frame`, on Windows `.pdata`), so that no register is given away for frame pointers. Names are looked up once, at the end
//! ([`symbols`]). What comes of it is [`pprof`]'s format, text ([`Profile::folded`]) or a picture ([`flame`]).
//!
//! Everything has a bound: samples that wait, different stacks, calls of one, bytes of a section.

mod elf;
pub mod flame;
mod pe;
mod pprof;
mod recorder;
mod symbols;

pub use recorder::{Profile, Recorder};

/// Names of functions of this process, by their addresses.
pub fn names(addresses: &[usize]) -> Vec<String> {
    let mut images = symbols::Images::load();
    addresses.iter().map(|at| images.name(*at as u64)).collect()
}
