//! Stored answers: what `proxy_cache` and its like keep.
//!
//! Role: a zone of keys that all workers share, a memory tier for small answers, files on disk, the
//! locks between requests for one entry, and the threads that load a store and keep it in bounds. It
//! knows nothing of the protocol an answer came by; RFC 9111's decisions are the caller's.
//!
//! Invariants: no two shard locks at once; no lock while a file is touched; a file has what its header
//! says when it gets its name, and a part is there before the header says so; a file's body is of one
//! representation for ever; what does not check (version, checksum, key, length) is never served.
//!
//! Difference from nginx: the file format is our own; small answers are also kept in memory; waiting
//! requests are woken when the entry is filled instead of looking every half second.

pub mod entry;
mod fills;
mod forgotten;
pub mod key;
pub mod known;
pub mod manager;
pub mod memory;
mod partial;
pub mod parts;
mod purger;
pub mod served;
pub mod spool;
pub mod store;
mod warm;
pub mod zone;

pub use entry::Meta;
pub use fills::{Filling, Fills};
pub use key::Key;
pub use partial::{NewPart, PartFill, Resumable};
pub use served::{ByStatus, Served, EVICTED};
pub use spool::Spool;
pub use store::{Opened, Store, Stored};
pub use zone::Handle;
