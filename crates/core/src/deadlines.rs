//! The deadlines of connections whose first request has not come: kept in one list per worker
//! and looked at by one task. Most such connections speak within a millisecond, so a timer of
//! their own would be made and taken down for nothing.

use std::cell::{Cell, RefCell};
use std::task::Waker;
use tokio::sync::Notify;
use weir_runtime::clock;
use weir_runtime::timer::sleep_ms;

/// No deadline.
const NEVER: u64 = u64::MAX;

struct Entry {
    /// Monotonic ms; `NEVER` when free or already woken.
    deadline: u64,
    waker: Option<Waker>,
}

#[derive(Default)]
struct List {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

pub struct Deadlines {
    list: RefCell<List>,
    /// When the list is to be looked at next.
    planned: Cell<u64>,
    changed: Notify,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines { list: RefCell::default(), planned: Cell::new(NEVER), changed: Notify::new() }
    }
}

/// A place in the list, left when dropped.
pub struct Waiting<'a> {
    deadlines: &'a Deadlines,
    at: u32,
}

impl Deadlines {
    /// Has the task woken once the deadline has passed.
    pub fn wait(&self, deadline: u64, waker: &Waker) -> Waiting<'_> {
        let mut list = self.list.borrow_mut();
        let entry = Entry { deadline, waker: Some(waker.clone()) };
        let at = match list.free.pop() {
            Some(at) => {
                list.entries[at as usize] = entry;
                at
            }
            None => {
                list.entries.push(entry);
                list.entries.len() as u32 - 1
            }
        };
        if deadline < self.planned.get() {
            self.planned.set(deadline);
            self.changed.notify_one();
        }
        Waiting { deadlines: self, at }
    }

    /// Wakes whose deadline has passed, and plans the next look.
    fn sweep(&self, now: u64) {
        let mut next = NEVER;
        for entry in &mut self.list.borrow_mut().entries {
            if entry.deadline > now {
                next = next.min(entry.deadline);
                continue;
            }
            entry.deadline = NEVER;
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
        self.planned.set(next);
    }

    /// Watches the list for as long as the worker lives.
    pub async fn run(&self) {
        loop {
            let (now, planned) = (clock::mono_ms(), self.planned.get());
            if planned <= now {
                self.sweep(now);
            } else if planned == NEVER {
                self.changed.notified().await;
            } else {
                tokio::select! {
                    () = self.changed.notified() => {}
                    () = sleep_ms(planned - now + 1) => {}
                }
            }
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        let mut list = self.deadlines.list.borrow_mut();
        list.entries[self.at as usize] = Entry { deadline: NEVER, waker: None };
        list.free.push(self.at);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicUsize);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn wakes_once_those_whose_time_has_come_and_plans_for_the_rest() {
        let deadlines = Deadlines::default();
        let counts: [Arc<Count>; 3] = Default::default();
        let places: Vec<_> = [30, 10, 20]
            .iter()
            .zip(&counts)
            .map(|(at, c)| deadlines.wait(*at, &Waker::from(Arc::clone(c))))
            .collect();
        let woken = || counts.each_ref().map(|c| c.0.load(Ordering::Relaxed));
        assert_eq!(deadlines.planned.get(), 10);
        deadlines.sweep(20);
        assert_eq!((woken(), deadlines.planned.get()), ([0, 1, 1], 30));
        deadlines.sweep(25);
        assert_eq!(woken(), [0, 1, 1]);
        drop(places);
        deadlines.sweep(40);
        assert_eq!((woken(), deadlines.planned.get()), ([0, 1, 1], NEVER));
    }

    #[test]
    fn a_place_that_is_left_is_used_again() {
        let deadlines = Deadlines::default();
        let waker = Waker::from(Arc::new(Count::default()));
        for _ in 0..10 {
            let _a = deadlines.wait(5, &waker);
            let _b = deadlines.wait(6, &waker);
        }
        assert_eq!(deadlines.list.borrow().entries.len(), 2);
    }
}
