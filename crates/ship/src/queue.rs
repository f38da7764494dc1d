//! A receiver's queue: segments in a folder, into which workers write and from which the receiver's thread reads.
//!
//! A worker has a segment of its own for as long as it has room; the next one is at hand, made by the keeper
//! ([`crate::keeper`]). What is neither is dropped and counted: nothing here ever waits for a disk or a receiver.

mod reading;
mod state;
#[cfg(test)]
mod tests;

pub use reading::{Range, Reading, Taken};
pub use state::State;

use std::cell::RefCell;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, TryLockError};
use weir_runtime::mapped::{self, Appender, Reader, LABEL_BYTES};
use weir_shipping::event::{Kind, Severity};
use weir_shipping::record;

/// What begins the label of a segment: the name and version of the format.
const MAGIC: &[u8; 8] = b"weirseg1";
/// A segment is so large a part of the queue, within bounds.
const PARTS: u64 = 64;
/// Each has a descriptor open, of which a process has a thousand: a large queue has large ones.
const SEGMENT_BYTES: std::ops::RangeInclusive<u64> = 128 * 1024..=64 * 1024 * 1024;
/// The least a queue has: a few segments.
pub const MIN_BYTES: u64 = 8 * 128 * 1024;
/// Segments at hand; one more each time that was too few.
const SPARE: usize = 2;
const SPARE_MAX: usize = 24;

/// A segment that was made: its number, its name's random part, and what reads it.
pub struct Made {
    pub number: u64,
    pub random: u64,
    pub reader: Reader,
    pub path: PathBuf,
}

/// The writing side, and what both sides know.
pub struct Queue {
    pub dir: PathBuf,
    /// The number of this queue in the process.
    place: usize,
    most_bytes: AtomicU64,
    /// Of all segments in the folder that this process has or has seen.
    pub held_bytes: AtomicU64,
    next: AtomicU64,
    spare: Mutex<Vec<Appender>>,
    spare_wanted: AtomicUsize,
    made: Mutex<Vec<Made>>,
    /// For threads that are no workers.
    shared: Mutex<Option<Appender>>,
    /// Events that found no room.
    pub dropped: AtomicU64,
    /// Events of segments that another program has cut short.
    pub cut: AtomicU64,
    /// No segment can be made, for the bound is reached.
    pub is_full: AtomicBool,
    /// None could be made, for the bound or the disk: more at hand would not have helped.
    is_short: AtomicBool,
}

thread_local! {
    /// This thread's segments, by the queues' places.
    static HELD: RefCell<Vec<Option<Appender>>> = const { RefCell::new(Vec::new()) };
}

/// Of queues that begin.
static AT_HAND: AtomicUsize = AtomicUsize::new(SPARE);

/// Each of so many workers may want a segment at the same moment, and so may all other threads together.
pub fn want_at_hand(workers: usize) {
    AT_HAND.store((workers + 1).clamp(SPARE, SPARE_MAX), Ordering::Relaxed);
}

static PLACES: AtomicUsize = AtomicUsize::new(0);
/// The places of queues that are there.
static ACTIVE: Mutex<Vec<usize>> = Mutex::new(Vec::new());

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(|e| e.into_inner())
}

impl Queue {
    pub fn new(dir: &Path, most_bytes: u64) -> Queue {
        let place = PLACES.fetch_add(1, Ordering::Relaxed);
        lock(&ACTIVE).push(place);
        Queue {
            dir: dir.to_path_buf(),
            place,
            most_bytes: AtomicU64::new(most_bytes),
            held_bytes: AtomicU64::new(0),
            next: AtomicU64::new(1),
            spare: Mutex::default(),
            spare_wanted: AtomicUsize::new(AT_HAND.load(Ordering::Relaxed)),
            made: Mutex::default(),
            shared: Mutex::default(),
            dropped: AtomicU64::new(0),
            cut: AtomicU64::new(0),
            is_full: AtomicBool::new(false),
            is_short: AtomicBool::new(false),
        }
    }

    pub fn most_bytes(&self) -> u64 {
        self.most_bytes.load(Ordering::Relaxed)
    }

    /// A reload has another bound. Segments that are there stay as they are.
    pub fn set_most_bytes(&self, bytes: u64) {
        self.most_bytes.store(bytes, Ordering::Relaxed);
    }

    fn segment_bytes(&self) -> u64 {
        let part = self.most_bytes() / PARTS;
        part.clamp(*SEGMENT_BYTES.start(), *SEGMENT_BYTES.end()) / 4096 * 4096
    }

    /// Writes an event into this worker's segment: a copy, and a word that says how far it goes.
    pub fn push(&self, json: &[u8], time_ms: u64, kind: Kind, severity: Severity) {
        HELD.with_borrow_mut(|held| {
            if held.len() <= self.place {
                held.resize_with(self.place + 1, || None);
            }
            self.push_into(&mut held[self.place], json, time_ms, kind, severity);
        });
    }

    /// The same for a thread that writes seldom: such threads share a segment.
    pub fn push_shared(&self, json: &[u8], time_ms: u64, kind: Kind, severity: Severity) {
        self.push_into(&mut lock(&self.shared), json, time_ms, kind, severity);
    }

    #[inline]
    fn push_into(
        &self,
        held: &mut Option<Appender>,
        json: &[u8],
        time_ms: u64,
        kind: Kind,
        severity: Severity,
    ) {
        let (head, fill) = record::frame(json, time_ms, kind, severity);
        let parts = [&head[..], json, fill];
        if held.as_mut().is_some_and(|segment| segment.append(&parts)) {
            return;
        }
        self.push_into_next(held, &parts);
    }

    #[cold]
    fn push_into_next(&self, held: &mut Option<Appender>, parts: &[&[u8]; 3]) {
        let next = match self.spare.try_lock() {
            Ok(mut spare) => spare.pop(),
            Err(TryLockError::Poisoned(e)) => e.into_inner().pop(),
            // Whoever has it is making room: at most a moment.
            Err(TryLockError::WouldBlock) => lock(&self.spare).pop(),
        };
        let Some(mut next) = next else {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            if !self.is_short.load(Ordering::Relaxed) {
                let more = (self.spare_wanted.load(Ordering::Relaxed) + 1).min(SPARE_MAX);
                self.spare_wanted.store(more, Ordering::Relaxed);
            }
            return crate::keeper::wake();
        };
        if !next.append(parts) {
            self.dropped.fetch_add(1, Ordering::Relaxed);
        }
        *held = Some(next);
        crate::keeper::wake();
    }

    /// Has as many segments at hand as are wanted, if the bound and the disk allow it. For the keeper.
    ///
    /// # Errors
    ///
    /// A segment cannot be made, because of the folder or the disk.
    pub fn fill(&self) -> io::Result<()> {
        let bytes = self.segment_bytes();
        // They are part of the queue: no more than a quarter of it.
        let most = (self.most_bytes() / 4 / bytes).max(SPARE as u64) as usize;
        while lock(&self.spare).len() < self.spare_wanted.load(Ordering::Relaxed).min(most) {
            let fits = self.held_bytes.load(Ordering::Relaxed) + bytes <= self.most_bytes();
            self.is_full.store(!fits, Ordering::Relaxed);
            self.is_short.store(true, Ordering::Relaxed);
            if !fits {
                return Ok(());
            }
            let (appender, made) = self.make(bytes as usize)?;
            self.is_short.store(false, Ordering::Relaxed);
            self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
            // Who reads knows of it before anybody can write.
            lock(&self.made).push(made);
            lock(&self.spare).insert(0, appender);
        }
        Ok(())
    }

    fn make(&self, bytes: usize) -> io::Result<(Appender, Made)> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let random = random();
            let path = self.dir.join(format!("{number:016x}.seg"));
            match mapped::create(&path, bytes, &label(number, random)) {
                Ok((appender, reader)) => {
                    return Ok((appender, Made { number, random, reader, path }))
                }
                // Another process's.
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Numbers from there on are free.
    fn number_from(&self, next: u64) {
        self.next.fetch_max(next, Ordering::Relaxed);
    }

    /// Segments that were made since the last time. For the thread that reads.
    fn take_made(&self) -> Vec<Made> {
        std::mem::take(&mut *lock(&self.made))
    }

    /// What is at hand is given up, and what threads share is sealed: nothing more will be written.
    pub fn seal(&self) {
        self.spare_wanted.store(0, Ordering::Relaxed);
        lock(&self.spare).clear();
        *lock(&self.shared) = None;
    }
}

/// Seals this thread's segments of queues that are no more.
pub fn let_go_of_ended() {
    HELD.with_borrow_mut(|held| {
        if held.iter().any(Option::is_some) {
            let active = lock(&ACTIVE);
            let is_ended = |place: usize| !active.contains(&place);
            let held = held.iter_mut().enumerate();
            held.filter(|(place, _)| is_ended(*place)).for_each(|(_, segment)| *segment = None);
        }
    });
}

impl Drop for Queue {
    fn drop(&mut self) {
        lock(&ACTIVE).retain(|place| *place != self.place);
    }
}

/// 64 bits of the system's.
pub fn random() -> u64 {
    use std::hash::{BuildHasher, Hasher, RandomState};
    // Keys of the system's and a counter; with the process's number, which a fork changes.
    let mut hasher = RandomState::new().build_hasher();
    hasher.write_u32(std::process::id());
    hasher.write_u64(weir_runtime::clock::now_us());
    hasher.finish()
}

fn label(number: u64, random: u64) -> [u8; LABEL_BYTES] {
    let mut label = [0; LABEL_BYTES];
    label[..8].copy_from_slice(MAGIC);
    label[8..16].copy_from_slice(&number.to_le_bytes());
    label[16..24].copy_from_slice(&random.to_le_bytes());
    label
}

/// Number and random part, if it is a segment's.
fn read_label(label: &[u8; LABEL_BYTES]) -> Option<(u64, u64)> {
    let number = |at: usize| u64::from_le_bytes(label[at..at + 8].try_into().unwrap_or_default());
    label.starts_with(MAGIC).then(|| (number(8), number(16)))
}
