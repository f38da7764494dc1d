//! The pools of threads that the configuration names.

use weir_module::{slot, Cf, ConfType, Level, Slots};

/// Their names, and how many threads each may have.
#[derive(Default)]
struct ThreadPools(Vec<(String, usize)>);

impl ConfType for ThreadPools {
    const LEVEL: Level = Level::Global;
    slot!();
}

/// A directive names one; whether none has that name yet.
pub fn declare(cf: &mut Cf, name: &str, threads: usize) -> bool {
    let pools = &mut cf.get::<ThreadPools>().0;
    if pools.iter().any(|(known, _)| known == name) {
        return false;
    }
    pools.push((name.to_owned(), threads));
    true
}

/// How many threads the one of that name may have, if there is one.
pub fn threads_of(global: &Slots, name: &[u8]) -> Option<usize> {
    let pools = &global.find::<ThreadPools>()?.0;
    pools.iter().find(|(known, _)| known.as_bytes() == name).map(|(_, threads)| *threads)
}
