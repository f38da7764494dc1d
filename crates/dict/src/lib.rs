//! Shared dictionaries, `ngx.shared.DICT` of OpenResty: values, lists and counters by key in a fixed
//! amount of memory, with the least recently used given up for new ones.
//!
//! A [`Dict`] is used through `&self` by all workers; it has one lock. Nothing here reads a clock: `now_ms`
//! is milliseconds since any fixed moment, the same for all calls; what is called most takes a function that
//! reads it as well, and has no use for it as long as nothing has had a time to live.
//!
//! Memory is ours, its size is counted by the rules of nginx's page allocator
//! (`slab.rs`), so that "no memory" and evictions come at the very entry at which they come there.
//!
//! The lock is held for one operation, as in OpenResty. What goes through all entries (`flush_expired`,
//! `get_keys`, `snapshot`, `restore`, `drop_oldest`) gives the lock back after 1000 entries, or fewer if they
//! are long, and lets those go first who wait: with two million entries, which no cache holds, that is some
//! hundred microseconds. One list is never cut: what it holds is counted, copied or freed in one go.

mod dict;
mod lists;
mod slab;
mod snapshot;
mod state;
mod table;
mod value;
mod walk;

#[cfg(test)]
mod tests;

pub use dict::Dict;
pub use snapshot::BadSnapshot;
pub use state::Now;
pub use value::{
    IncrError, IsList, Mode, NotList, PushError, Refused, Stored, Value, ValueRef, MAX_KEY_BYTES,
};
