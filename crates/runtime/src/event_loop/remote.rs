//! Tasks that are woken by other threads.

use super::system::Bell;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// A loop's side that other threads see.
pub(super) struct Remote {
    id: u16,
    /// Tasks to be woken, by their numbers.
    woken: Mutex<Vec<usize>>,
    /// Rung when the first of them comes.
    bell: Bell,
}

/// The loops of this process by their numbers, the first of which is 1.
static LOOPS: Mutex<Vec<Option<Arc<Remote>>>> = Mutex::new(Vec::new());

/// Nothing that is done with the lock panics half way.
fn lock<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Remote {
    pub(super) fn new(bell: Bell) -> io::Result<Arc<Remote>> {
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
            self.bell.ring();
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
