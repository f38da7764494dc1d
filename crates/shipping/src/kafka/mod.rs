//! Kafka as a producer sees it: its messages, batches of records, signing in, and what is kept so that no record is
//! there twice, or not at all, after a process has died in the middle of a request.
//!
//! Own code, as the clients that there are cannot keep a producer's state over a restart (none lets its producer id,
//! epoch and sequences be set), and need an asynchronous runtime or the C library: six messages are enough here.

pub mod codec;
pub mod fault;
pub mod message;
pub mod records;
pub mod scram;
pub mod state;

/// An answer is no longer, whatever it says: as much as the description of 100,000 partitions needs.
pub const ANSWER_MAX_BYTES: usize = 8 << 20;
/// No more partitions of a topic are used: what is kept of each has to fit.
pub const PARTITIONS_MAX: usize = 1500;
