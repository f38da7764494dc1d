//! Threads for password hashes that are slow on purpose: few, for the workers need the processors
//! as well, and with a queue that has an end. A hash is computed for a request that waits for it:
//! when its client goes before its turn, it is left out.

use std::collections::VecDeque;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::{Condvar, Mutex, MutexGuard};
use tokio::sync::oneshot;

/// Passwords that wait to be checked, of all workers.
pub const WAITING_MAX: usize = 256;
const THREADS_MAX: usize = 8;

type Work = Box<dyn FnOnce() -> bool + Send>;

struct Job {
    work: Work,
    answer: oneshot::Sender<bool>,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    threads: usize,
    /// Threads that wait for a job.
    idle: usize,
}

static QUEUE: Mutex<Option<Queue>> = Mutex::new(None);
static FRESH: Condvar = Condvar::new();

fn lock() -> MutexGuard<'static, Option<Queue>> {
    QUEUE.lock().unwrap_or_else(|e| e.into_inner())
}

/// Half of the processors.
fn threads_max() -> usize {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    (all / 2).clamp(1, THREADS_MAX)
}

/// Has work done in turn; whoever drops the receiver takes it back. `None` when too many wait, or no
/// thread can be had.
pub fn submit(work: impl FnOnce() -> bool + Send + 'static) -> Option<oneshot::Receiver<bool>> {
    let (answer, receiver) = oneshot::channel();
    let mut guard = lock();
    let queue = guard.get_or_insert_default();
    if queue.jobs.len() >= WAITING_MAX {
        queue.jobs.retain(|job| !job.answer.is_closed());
        if queue.jobs.len() >= WAITING_MAX {
            return None;
        }
    }
    if queue.jobs.len() >= queue.idle && queue.threads < threads_max() {
        let thread = std::thread::Builder::new().name("passwords".into()).spawn(run);
        queue.threads += usize::from(thread.is_ok());
    }
    if queue.threads == 0 {
        return None;
    }
    queue.jobs.push_back(Job { work: Box::new(work), answer });
    drop(guard);
    FRESH.notify_one();
    Some(receiver)
}

fn run() {
    loop {
        let Job { work, answer } = next();
        if answer.is_closed() {
            continue;
        }
        // Without an answer the request learns that something went wrong.
        if let Ok(right) = catch_unwind(AssertUnwindSafe(work)) {
            let _ = answer.send(right);
        }
    }
}

fn next() -> Job {
    let mut guard = lock();
    loop {
        let queue = guard.get_or_insert_default();
        if let Some(job) = queue.jobs.pop_front() {
            return job;
        }
        queue.idle += 1;
        guard = FRESH.wait(guard).unwrap_or_else(|e| e.into_inner());
        guard.get_or_insert_default().idle -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::{mpsc, Arc};

    #[test]
    fn what_nobody_waits_for_is_left_out_and_the_queue_has_an_end() {
        let (go, gate) = mpsc::channel::<()>();
        let gate = Arc::new(Mutex::new(gate));
        let busy: Vec<_> = (0..threads_max())
            .map(|_| {
                let gate = Arc::clone(&gate);
                submit(move || gate.lock().unwrap().recv().is_ok()).unwrap()
            })
            .collect();
        while !lock().as_ref().unwrap().jobs.is_empty() {
            std::thread::yield_now();
        }
        let done = Arc::new(AtomicUsize::new(0));
        let count = |done: &Arc<AtomicUsize>| {
            let done = Arc::clone(done);
            submit(move || done.fetch_add(1, Ordering::SeqCst) < usize::MAX)
        };
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| count(&done).unwrap()).collect();
        assert!(count(&done).is_none());
        waiting.truncate(10);
        waiting.push(count(&done).expect("places of those that have gone"));
        busy.iter().for_each(|_| go.send(()).unwrap());
        waiting.into_iter().for_each(|w| assert!(w.blocking_recv().unwrap()));
        assert_eq!(done.load(Ordering::SeqCst), 11);
        let wrong = submit(|| panic!("as a hash never does")).unwrap();
        assert!(wrong.blocking_recv().is_err());
        busy.into_iter().for_each(|b| assert!(b.blocking_recv().unwrap()));
    }
}
