//! Tasks that are woken by other threads.

use rustix::event::EventfdFlags;
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A loop's side that other threads see.
pub(super) struct Remote {
    id: u16,
    /// Tasks to be woken, by their numbers.
    woken: Mutex<Vec<usize>>,
    /// Written to when the first of them comes. It is watched for edges, so that it need not be read.
    bell: OwnedFd,
}

/// The loops of this process by their numbers, the first of which is 1.
static LOOPS: Mutex<Vec<Option<Arc<Remote>>>> = Mutex::new(Vec::new());

/// Nothing that is done with the lock panics half way.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    pub(super) fn new() -> io::Result<Arc<Remote>> {
        let bell = rustix::event::eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
        let mut loops = lock(&LOOPS);
        let at = loops.iter().position(Option::is_none).unwrap_or(loops.len());
        let id = u16::try_from(at + 1).map_err(|_| io::Error::other("too many event loops"))?;
        let this = Arc::new(Remote { id, woken: Mutex::default(), bell });
        if at == loops.len() {
            loops.push(None);
        }
        loops[at] = Some(Arc::clone(&this));
        Ok(this)
    }

    pub(super) fn id(&self) -> u16 {
        self.id
    }

    pub(super) fn descriptor(&self) -> BorrowedFd<'_> {
        self.bell.as_fd()
    }

    /// Those that have been woken since.
    pub(super) fn take(&self) -> Vec<usize> {
        std::mem::take(&mut *lock(&self.woken))
    }

    fn wake(&self, number: usize) {
        let mut woken = lock(&self.woken);
        let is_first = woken.is_empty();
        woken.push(number);
        drop(woken);
        if is_first {
            // It fails when it has been written to 2^64 times.
            let _ = rustix::io::write(&self.bell, &1u64.to_ne_bytes());
        }
    }

    /// The loop is no more: nobody of it is woken.
    pub(super) fn end(&self) {
        lock(&LOOPS)[usize::from(self.id) - 1] = None;
    }
}

/// Wakes a task of another thread's loop, if that still runs.
#[cold]
pub(super) fn wake(id: u16, number: usize) {
    let found = lock(&LOOPS).get(usize::from(id).wrapping_sub(1)).cloned().flatten();
    if let Some(remote) = found {
        remote.wake(number);
    }
}
