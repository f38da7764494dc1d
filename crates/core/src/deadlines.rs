//! The deadlines of a worker's connections, kept in one list and looked at by one task: three words
//! for each, where a timer of the event loop takes a dozen. Moving a deadline on is not even a store,
//! for the list's is only the earliest at which to look again (as in `runtime::timer`).
//!
//! Looking costs in proportion to the list, so a long one is looked at less often: with n entries a
//! deadline is found at most n / 1024 ms late.

use std::cell::{Cell, RefCell};
use std::task::{Context, Poll, Waker};
use tokio::sync::Notify;
use weir_runtime::clock;
use weir_runtime::timer::sleep_until_ms;

/// No deadline.
const NEVER: u64 = u64::MAX;
/// No place in the list.
const NOWHERE: u32 = u32::MAX;
/// Entries for which a millisecond passes before they are looked at again.
const ENTRIES_PER_MS: u64 = 1024;

struct Entry {
    /// Monotonic ms; `NEVER` when free or already woken.
    deadline: u64,
    waker: Option<Waker>,
}

const FREE: Entry = Entry { deadline: NEVER, waker: None };

#[derive(Default)]
struct List {
    entries: Vec<Entry>,
    free: Vec<u32>,
}

/// What a worker's connections wait for.
pub struct Deadlines {
    list: RefCell<List>,
    /// When the list is to be looked at next.
    planned: Cell<u64>,
    /// It is not to be looked at before.
    rests_until: Cell<u64>,
    changed: Notify,
}

impl Default for Deadlines {
    fn default() -> Deadlines {
        Deadlines {
            list: RefCell::default(),
            planned: Cell::new(NEVER),
            rests_until: Cell::new(0),
            changed: Notify::new(),
        }
    }
}

/// A connection's place in the list, from its first wait until [`Alarm::end`]. It belongs to one task.
pub(crate) struct Alarm {
    /// When the task is woken, in monotonic ms; 0 when it is not.
    at: Cell<u64>,
    place: Cell<u32>,
}

impl Default for Alarm {
    fn default() -> Alarm {
        Alarm { at: Cell::new(0), place: Cell::new(NOWHERE) }
    }
}

impl Alarm {
    /// Ready once the deadline (monotonic ms) has passed; otherwise wakes the task when it may have.
    pub(crate) fn poll_until(&self, list: &Deadlines, cx: &Context<'_>, deadline: u64) -> Poll<()> {
        let (now, at) = (clock::mono_ms(), self.at.get());
        if now >= deadline {
            return Poll::Ready(());
        }
        // What has fired, or is about to, is set again.
        if at <= now || at > deadline {
            list.set(&self.place, deadline, cx.waker());
            self.at.set(deadline);
        }
        Poll::Pending
    }

    /// Wakes the task that waits, now.
    pub(crate) fn wake(&self, list: &Deadlines) {
        if self.at.replace(0) != 0 {
            list.take(self.place.get()).into_iter().for_each(Waker::wake);
        }
    }

    /// Leaves the list.
    pub(crate) fn end(&self, list: &Deadlines) {
        let place = self.place.replace(NOWHERE);
        self.at.set(0);
        if place != NOWHERE {
            // Outside the list, for it may be a task's last.
            drop(list.take(place));
            list.list.borrow_mut().free.push(place);
        }
    }
}

impl Deadlines {
    /// Has the task woken once the deadline has passed, instead of what was set before.
    fn set(&self, place: &Cell<u32>, deadline: u64, waker: &Waker) {
        let mut list = self.list.borrow_mut();
        let entry = Entry { deadline, waker: Some(waker.clone()) };
        match place.get() {
            NOWHERE => match list.free.pop() {
                Some(at) => {
                    list.entries[at as usize] = entry;
                    place.set(at);
                }
                None => {
                    list.entries.push(entry);
                    place.set(list.entries.len() as u32 - 1);
                }
            },
            at => list.entries[at as usize] = entry,
        }
        let look = deadline.max(self.rests_until.get());
        if look < self.planned.get() {
            self.planned.set(look);
            self.changed.notify_one();
        }
    }

    /// Clears a place; answers who waited there.
    fn take(&self, place: u32) -> Option<Waker> {
        let entry = self
            .list
            .borrow_mut()
            .entries
            .get_mut(place as usize)
            .map(|e| std::mem::replace(e, FREE));
        entry?.waker
    }

    /// Wakes whose deadline has passed, and plans the next look.
    fn sweep(&self, now: u64) {
        let mut next = NEVER;
        let list = &mut *self.list.borrow_mut();
        for entry in &mut list.entries {
            if entry.deadline > now {
                next = next.min(entry.deadline);
                continue;
            }
            entry.deadline = NEVER;
            if let Some(waker) = entry.waker.take() {
                waker.wake();
            }
        }
        if list.free.len() == list.entries.len() {
            *list = List::default();
        }
        let rests_until = now + list.entries.len() as u64 / ENTRIES_PER_MS;
        self.rests_until.set(rests_until);
        self.planned.set(next.max(rests_until));
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
                    () = sleep_until_ms(planned) => {}
                }
            }
        }
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

    fn wait(alarm: &Alarm, list: &Deadlines, deadline: u64, waker: &Waker) -> bool {
        alarm.poll_until(list, &Context::from_waker(waker), deadline).is_pending()
    }

    #[test]
    fn wakes_once_those_whose_time_has_come_and_plans_for_the_rest() {
        let (list, now) = (Deadlines::default(), clock::mono_ms());
        let counts: [Arc<Count>; 3] = Default::default();
        let alarms: [Alarm; 3] = Default::default();
        for ((ms, count), alarm) in [30_000, 10_000, 20_000].iter().zip(&counts).zip(&alarms) {
            assert!(wait(alarm, &list, now + ms, &Waker::from(Arc::clone(count))));
        }
        let woken = || counts.each_ref().map(|c| c.0.load(Ordering::Relaxed));
        assert_eq!(list.planned.get(), now + 10_000);
        list.sweep(now + 20_000);
        assert_eq!((woken(), list.planned.get()), ([0, 1, 1], now + 30_000));
        list.sweep(now + 25_000);
        assert_eq!(woken(), [0, 1, 1]);
        alarms.iter().for_each(|a| a.end(&list));
        list.sweep(now + 40_000);
        assert_eq!((woken(), list.planned.get()), ([0, 1, 1], NEVER));
        assert!(list.list.borrow().entries.is_empty());
    }

    #[test]
    fn a_deadline_that_moves_on_touches_nothing_and_one_that_comes_nearer_is_heard_of() {
        let (list, now, alarm) = (Deadlines::default(), clock::mono_ms(), Alarm::default());
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        assert!(wait(&alarm, &list, now + 20_000, &waker));
        assert!(wait(&alarm, &list, now + 30_000, &waker));
        assert_eq!(list.list.borrow().entries[0].deadline, now + 20_000);
        assert!(wait(&alarm, &list, now + 10_000, &waker));
        assert_eq!(
            (list.list.borrow().entries[0].deadline, list.planned.get()),
            (now + 10_000, now + 10_000)
        );
        alarm.wake(&list);
        alarm.wake(&list);
        assert_eq!(count.0.load(Ordering::Relaxed), 1);
        assert!(wait(&alarm, &list, now + 40_000, &waker));
        assert_eq!(
            (list.list.borrow().entries.len(), list.list.borrow().entries[0].deadline),
            (1, now + 40_000)
        );
        assert!(!wait(&alarm, &list, now, &waker));
    }

    #[test]
    fn a_place_that_is_left_is_used_again() {
        let (list, now) = (Deadlines::default(), clock::mono_ms());
        let waker = Waker::from(Arc::new(Count::default()));
        for _ in 0..10 {
            let (a, b) = (Alarm::default(), Alarm::default());
            assert!(wait(&a, &list, now + 50_000, &waker) && wait(&b, &list, now + 60_000, &waker));
            a.end(&list);
            b.end(&list);
        }
        assert_eq!(list.list.borrow().entries.len(), 2);
    }
}
