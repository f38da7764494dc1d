//! A thread's timers, without the event loop's: tokio's would look for the next of them, and read the
//! clock for it twice, whenever it waits for sockets. Here one alarm rings when the first is due, and
//! what waits costs nothing meanwhile.

use super::alarm::Alarm;
use crate::clock;
use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::rc::Rc;
use std::task::Waker;

thread_local! {
    static QUEUE: RefCell<Option<Rc<Queue>>> = const { RefCell::new(None) };
}

/// Nothing is waited for.
const NEVER: u64 = u64::MAX;

enum Entry {
    Free,
    /// Due at that time (monotonic ms).
    Waiting(u64, Waker),
    Fired,
}

#[derive(Default)]
struct List {
    entries: Vec<Entry>,
    free: Vec<u32>,
    /// Those that wait, by time.
    order: BTreeSet<(u64, u32)>,
}

pub(super) struct Queue {
    list: RefCell<List>,
    alarm: Alarm,
    /// When it rings, in monotonic ms.
    armed: Cell<u64>,
}

/// This thread's queue, if it has one.
pub(super) fn mine() -> Option<Rc<Queue>> {
    QUEUE.try_with(|q| q.borrow().clone()).ok().flatten()
}

/// Gives the thread a queue; what is answered serves it, for as long as the thread has one.
pub(super) fn begin() -> io::Result<Rc<Queue>> {
    let alarm = Alarm::new()?;
    let queue = Rc::new(Queue { list: RefCell::default(), alarm, armed: Cell::new(NEVER) });
    QUEUE.set(Some(Rc::clone(&queue)));
    Ok(queue)
}

/// Timers of this thread wake nobody any more.
pub(super) fn end() {
    let _ = QUEUE.try_with(|q| q.take());
}

impl Queue {
    /// Has a task woken at that time (monotonic ms); answers the timer's place.
    pub(super) fn add(&self, at_ms: u64, waker: Waker) -> u32 {
        let list = &mut *self.list.borrow_mut();
        let entry = Entry::Waiting(at_ms, waker);
        let place = match list.free.pop() {
            Some(place) => {
                list.entries[place as usize] = entry;
                place
            }
            None => {
                list.entries.push(entry);
                list.entries.len() as u32 - 1
            }
        };
        list.order.insert((at_ms, place));
        if at_ms < self.armed.get() {
            self.arm(at_ms);
        }
        place
    }

    /// Whether it still waits; then it is that task which will be woken.
    #[inline]
    pub(super) fn waits_for(&self, place: u32, waker: &Waker) -> bool {
        match &mut self.list.borrow_mut().entries[place as usize] {
            Entry::Waiting(_, old) => {
                old.clone_from(waker);
                true
            }
            _ => false,
        }
    }

    /// Wakes now who is to be woken later.
    pub(super) fn fire(&self, place: u32) {
        let waker = self.list.borrow_mut().fire(place);
        waker.into_iter().for_each(Waker::wake);
    }

    /// The timer is gone.
    pub(super) fn remove(&self, place: u32) {
        let list = &mut *self.list.borrow_mut();
        let waker = list.fire(place);
        list.entries[place as usize] = Entry::Free;
        list.free.push(place);
        if list.free.len() == list.entries.len() {
            list.entries.clear();
            list.free.clear();
        }
        if list.entries.is_empty() && list.entries.capacity() > EMPTY_ENTRIES_MAX {
            *list = List::default();
        }
        drop(waker);
    }

    /// Rings at that time, even if it has passed.
    fn arm(&self, at_ms: u64) {
        self.alarm.set(at_ms);
        self.armed.set(at_ms);
    }

    /// Wakes those that are due, and sees to it that the others will be.
    fn sweep(&self, now: u64) {
        self.armed.set(NEVER);
        loop {
            let first = self.list.borrow().order.first().copied();
            match first {
                Some((at_ms, place)) if at_ms <= now => self.fire(place),
                Some((at_ms, _)) => return self.arm(at_ms),
                None => return,
            }
        }
    }

    /// Places, and those that wait.
    #[cfg(test)]
    pub(super) fn kept(&self) -> (usize, usize) {
        let list = self.list.borrow();
        (list.entries.len(), list.order.len())
    }

    /// Serves the queue for as long as its thread lives.
    pub(super) async fn run(&self) {
        loop {
            self.alarm.rings().await;
            self.sweep(clock::tick());
        }
    }
}

/// An empty queue keeps memory for so many.
const EMPTY_ENTRIES_MAX: usize = 256;

impl List {
    fn fire(&mut self, place: u32) -> Option<Waker> {
        match std::mem::replace(&mut self.entries[place as usize], Entry::Fired) {
            Entry::Waiting(at_ms, waker) => {
                self.order.remove(&(at_ms, place));
                Some(waker)
            }
            _ => None,
        }
    }
}
