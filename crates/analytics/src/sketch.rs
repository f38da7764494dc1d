//! Counting in bounded memory. Each of them says how far off it may be, and merges.

mod distinct;
mod hash;
mod histogram;
mod slowest;
mod top;

pub use distinct::{Few, Group as GroupSet, Total};
pub use hash::{mix, ByHash, Seed};
pub use histogram::Histogram;
pub use slowest::{Slow, Slowest};
pub use top::{first, Item, Room, Sample, Top, Weight};
