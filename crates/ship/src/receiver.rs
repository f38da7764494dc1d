//! The interface between a receiver's thread, which has the queue, and the clients, which know what is said to whom.
//!
//! A client blocks, in the thread of its receiver alone. Whatever it waits for has a time, whatever it is answered a
//! bound in bytes, and once [`Stop::is_set`] it gives up within a quarter of a second: what it was sending stays in the
//! queue.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::time::Duration;
use weir_core::logger::LogLevel;
pub use weir_shipping::event::{EventId, Kind, Severity};

/// One event as it stands in the queue.
#[derive(Clone, Copy, Debug)]
pub struct Entry<'a> {
    pub id: EventId,
    /// Since 1970.
    pub time_ms: u64,
    pub kind: Kind,
    pub severity: Severity,
    /// One JSON document, without a line's end.
    pub json: &'a [u8],
}

/// What is to be sent at once; never empty.
pub struct Batch<'a> {
    pub entries: Vec<Entry<'a>>,
    /// What the client keeps over the death of the process.
    pub kept: &'a mut dyn Kept,
    /// The same batch was given before, perhaps to the client of a process that is gone. Only where
    /// [`Client::repeats`].
    pub is_repeated: bool,
}

/// Bytes that a client keeps with the queue: what they were when the process was killed the next one finds.
pub trait Kept {
    fn bytes(&self) -> &[u8];
    /// Puts others in their place: all of them or none.
    ///
    /// # Errors
    ///
    /// They could not be written, or are more than [`KEPT_MAX_BYTES`].
    fn keep(&mut self, bytes: &[u8]) -> std::io::Result<()>;
}

pub const KEPT_MAX_BYTES: usize = 32 * 1024;

/// What became of a batch.
#[derive(Debug)]
pub enum Outcome {
    /// The receiver has all of it.
    All,
    /// Of each entry whether the receiver has it. Those that are neither done nor refused are given again.
    Some {
        done: Vec<bool>,
        /// Those that it will never take, with its words: they are counted and dropped.
        refused: Vec<(usize, String)>,
        again_after: Option<Duration>,
    },
    /// Nothing is known to have arrived; all of it is given again.
    Later { why: String, after: Option<Duration> },
}

/// A connection, or several, to a receiver.
pub trait Client: Send {
    fn send(&mut self, batch: &mut Batch<'_>) -> Outcome;

    /// A batch that is not done is given again just as it was, entry by entry, also by a process that is started
    /// later; what is refused is still counted once. Otherwise batches are made anew of what is left.
    fn repeats(&self) -> bool {
        false
    }
}

/// What a configuration makes of a `ship` block; it makes clients.
pub trait Target: Send + Sync {
    fn client(&self, ground: Ground) -> Box<dyn Client>;

    /// Puts in place what the receiver needs to make sense of events (`weir ship install`), and dashboards where they
    /// are looked at by that URL; what was done, for a person.
    ///
    /// # Errors
    ///
    /// The receiver cannot be reached, or refuses.
    fn install(&self, _ground: Ground, _dashboards: Option<&str>) -> Result<String, String> {
        Err("there is nothing to install at such a receiver".into())
    }
}

/// Takes a line of the error log.
pub type Say = Arc<dyn Fn(LogLevel, &str) + Send + Sync>;

/// What a client stands on.
#[derive(Clone)]
pub struct Ground {
    /// The word behind `ship`.
    pub name: Arc<str>,
    pub stop: Arc<Stop>,
    /// Writes a line of the error log, the block's name in front. A line that says what the last one has said is left
    /// out for a minute.
    pub say: Say,
}

/// Told to a thread that is to end.
#[derive(Default)]
pub struct Stop(AtomicBool);

impl Stop {
    pub fn is_set(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }

    pub fn set(&self) {
        self.0.store(true, Ordering::Relaxed);
    }
}
