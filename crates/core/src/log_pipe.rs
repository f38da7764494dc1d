//! Logs that somebody else reads from a pipe (a fifo, `/dev/stdout` of a container): a reader that
//! stalls must not stall a worker. A thread writes them, from a queue with an end; what does not fit
//! is dropped and counted.
//!
//! Regular files are written by the worker itself: handing each line to a thread would cost every
//! request a lock, a copy and a wake-up for what the page cache takes at once.

use std::collections::VecDeque;
use std::fs::File;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};
use weir_runtime::{clock, process};

/// What may wait for a reader, besides what the kernel's pipe holds.
const QUEUE_MAX_BYTES: usize = 1024 * 1024;
/// A thread with nothing to write ends after this.
const IDLE: Duration = Duration::from_secs(10);

/// Whether this process serves: one that only starts others forks, and threads do not survive that.
static SERVES: AtomicBool = AtomicBool::new(false);

/// Whether there may be threads. Where nothing forks there may at any time.
fn may_have_threads() -> bool {
    process::IS_TOLD || has_threads()
}

/// From now on pipes are written by threads.
pub fn begin_threads() {
    SERVES.store(true, Ordering::Relaxed);
}

pub(crate) fn has_threads() -> bool {
    SERVES.load(Ordering::Relaxed)
}

#[derive(Default)]
pub(crate) struct Pipe {
    queue: Mutex<Queue>,
    changed: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<(Arc<File>, Vec<u8>)>,
    bytes: usize,
    /// There is a thread, and whether it is in a write.
    runs: bool,
    writes: bool,
    /// Lines that were dropped and not told of.
    dropped: u64,
    told_secs: i64,
}

fn lines(text: &[u8]) -> u64 {
    memchr::memchr_iter(b'\n', text).count() as u64
}

impl Pipe {
    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Has text written in its turn, or counts its lines as dropped.
    pub(crate) fn write(self: &Arc<Self>, file: Arc<File>, text: &[u8]) -> std::io::Result<()> {
        if !may_have_threads() {
            // A pipe that the master has opened does not wait: a line fits whole, or is lost.
            let written = (&*file).write_all(text);
            return written.inspect_err(|_| self.lock().dropped += lines(text));
        }
        let mut queue = self.lock();
        if !queue.runs {
            let pipe = Arc::clone(self);
            let thread = std::thread::Builder::new().name("log".into());
            queue.runs = thread.spawn(move || pipe.run()).is_ok();
        }
        if !queue.runs || queue.bytes + text.len() > QUEUE_MAX_BYTES {
            queue.dropped += lines(text);
            return Ok(());
        }
        queue.bytes += text.len();
        queue.jobs.push_back((file, text.to_vec()));
        drop(queue);
        self.changed.notify_all();
        Ok(())
    }

    /// Lines that were dropped since this was last asked, once a second.
    pub(crate) fn dropped(&self) -> Option<u64> {
        let mut queue = self.lock();
        let now = clock::wall_secs();
        if queue.dropped == 0 || queue.told_secs == now {
            return None;
        }
        queue.told_secs = now;
        Some(std::mem::take(&mut queue.dropped))
    }

    fn run(&self) {
        while let Some((file, text)) = self.next() {
            let written = weir_runtime::files::write_waiting(&file, &text);
            let mut queue = self.lock();
            queue.bytes -= text.len();
            queue.writes = false;
            if written.is_err() {
                queue.dropped += lines(&text);
            }
            drop(queue);
            self.changed.notify_all();
        }
    }

    fn next(&self) -> Option<(Arc<File>, Vec<u8>)> {
        let is_empty = |queue: &mut Queue| queue.jobs.is_empty();
        let waited = self.changed.wait_timeout_while(self.lock(), IDLE, is_empty);
        let (mut queue, _) = waited.unwrap_or_else(|e| e.into_inner());
        let job = queue.jobs.pop_front();
        queue.writes = job.is_some();
        queue.runs = queue.writes;
        job
    }

    /// Waits until all is written, or for so long.
    pub(crate) fn settle(&self, deadline: Instant) {
        let left = deadline.saturating_duration_since(Instant::now());
        let busy = |queue: &mut Queue| queue.runs && (queue.writes || !queue.jobs.is_empty());
        drop(self.changed.wait_timeout_while(self.lock(), left, busy));
    }
}
