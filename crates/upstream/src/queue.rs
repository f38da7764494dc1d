//! `queue`: sessions that no server has room for wait for one, in the order in which they came.
//!
//! Invariant: whoever leaves the queue, with a server or without, has the next one look, so that room is never
//! left while somebody waits for it. Servers that were counted out come back with time, which nobody tells: the
//! first looks again now and then.

use crate::balance::Key;
use crate::counted::Uses;
use crate::group::{Lease, WorkerGroup};
use crate::peers::Choice;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{ready, Context, Poll, Waker};
use weir_runtime::clock;
use weir_runtime::timer::LazyTimer;

/// How often the first looks whether a server has come back.
const LOOK_AGAIN_MS: u64 = 1000;

/// What the directive says.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rule {
    /// Sessions that wait at most.
    pub max: usize,
    /// How long a session waits at most, all its tries together.
    pub timeout_ms: u64,
}

/// Sessions that wait for a server of one upstream: of all workers, if these share what they know of the servers.
pub(crate) struct Queue {
    pub(crate) rule: Rule,
    /// How many they are, for those who only look.
    count: AtomicUsize,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    next: u64,
    /// By their numbers, and how to tell them; no longer there once they have been told. There may be very many:
    /// nothing here goes through all of them.
    list: BTreeMap<u64, Option<Waker>>,
}

impl Queue {
    pub(crate) fn new(rule: Rule) -> Arc<Queue> {
        Arc::new(Queue { rule, count: AtomicUsize::new(0), waiting: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether nobody waits.
    pub(crate) fn is_empty(&self) -> bool {
        self.count.load(Ordering::Relaxed) == 0
    }

    /// A server may have room: the first looks.
    pub(crate) fn wake(&self) {
        if self.is_empty() {
            return;
        }
        let waker = self.lock().list.first_entry().and_then(|mut first| first.get_mut().take());
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// A place behind the others; nothing if there are too many.
    fn join(self: &Arc<Self>) -> Option<Place> {
        let mut waiting = self.lock();
        if waiting.list.len() >= self.rule.max {
            return None;
        }
        let number = waiting.next;
        waiting.next += 1;
        waiting.list.insert(number, None);
        self.count.store(waiting.list.len(), Ordering::Relaxed);
        Some(Place { queue: Arc::clone(self), number })
    }
}

/// A session's place in the queue, which it leaves when this is dropped.
struct Place {
    queue: Arc<Queue>,
    number: u64,
}

impl Place {
    /// Whether it is its turn; the task is woken when it may be, or when a server may have room.
    fn is_first(&self, cx: &Context<'_>) -> bool {
        let mut waiting = self.queue.lock();
        if let Some(told) = waiting.list.get_mut(&self.number) {
            if !told.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *told = Some(cx.waker().clone());
            }
        }
        waiting.is_first(self.number)
    }
}

impl Waiting {
    fn is_first(&self, number: u64) -> bool {
        self.list.first_key_value().is_some_and(|(first, _)| *first == number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.queue.lock();
        let was_first = waiting.is_first(self.number);
        waiting.list.remove(&self.number);
        self.queue.count.store(waiting.list.len(), Ordering::Relaxed);
        drop(waiting);
        // For the first nothing has changed when one behind it leaves.
        if was_first {
            self.queue.wake();
        }
    }
}

/// Counts a session that waits, until it does no more.
struct Waits<'a>(&'a Uses, u64);

impl<'a> Waits<'a> {
    fn begin(uses: &'a Uses) -> Waits<'a> {
        uses.queued.add(1);
        Waits(uses, clock::mono_us())
    }
}

impl Drop for Waits<'_> {
    fn drop(&mut self) {
        self.0.left.add(1);
        self.0.waited.add(clock::mono_us().saturating_sub(self.1));
    }
}

/// Why who would have waited has no server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// As many wait as may.
    Full,
    /// It has waited as long as it may.
    Late,
}

impl WorkerGroup {
    /// Waits for a server, where [`WorkerGroup::lets_wait`] says so.
    ///
    /// # Errors
    ///
    /// Too many do, or it has taken too long.
    pub async fn wait(self: &Rc<Self>, choice: &mut Choice, key: &mut Key) -> Result<Lease, Why> {
        let queue = self.queue.as_ref().ok_or(Why::Full)?;
        let uses = self.parts.uses();
        let Some(place) = queue.join() else {
            uses.overflows.add(1);
            return Err(Why::Full);
        };
        let _counted = Waits::begin(uses);
        // Those that are no backups are asked for again.
        if std::mem::take(&mut choice.on_backup) {
            choice.tried.clear();
        }
        let since_ms = clock::mono_ms();
        let until_ms = since_ms + queue.rule.timeout_ms.saturating_sub(choice.waited_ms);
        let mut timer = LazyTimer::new();
        poll_fn(|cx| loop {
            let is_first = place.is_first(cx);
            if is_first {
                let (mut choice_now, mut key_now) = (choice.clone(), key.clone());
                if let Some(lease) = self.pick_now(&mut choice_now, &mut key_now) {
                    choice_now.waited_ms += clock::mono_ms().saturating_sub(since_ms);
                    (*choice, *key) = (choice_now, key_now);
                    return Poll::Ready(Ok(lease));
                }
            }
            let now_ms = clock::mono_ms();
            if now_ms >= until_ms {
                return Poll::Ready(Err(Why::Late));
            }
            let look_ms = if is_first { until_ms.min(now_ms + LOOK_AGAIN_MS) } else { until_ms };
            ready!(timer.poll_until(cx, look_ms));
        })
        .await
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::task::Wake;
    use std::time::{Duration, Instant};

    #[derive(Default)]
    struct Told(AtomicUsize);

    impl Wake for Told {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// How often any of very many is woken when they leave in that order of their numbers; each is told of the same way.
    fn woken(many: u64, leaves: impl Fn(u64) -> u64) -> usize {
        let queue = Queue::new(Rule { max: many as usize, timeout_ms: 1000 });
        let told = Arc::new(Told::default());
        let waker = Waker::from(Arc::clone(&told));
        let mut places: Vec<_> = (0..many).map(|_| queue.join()).collect();
        assert!(queue.join().is_none());
        for place in places.iter().flatten() {
            assert_eq!(place.is_first(&Context::from_waker(&waker)), place.number == 0);
        }
        (0..many).for_each(|n| places[leaves(n) as usize] = None);
        assert!(queue.is_empty() && queue.lock().list.is_empty());
        told.0.load(Ordering::Relaxed)
    }

    #[test]
    fn very_many_come_and_leave_at_little_cost() {
        const MANY: u64 = 50_000;
        let start = Instant::now();
        // Prime to the number, so each leaves once.
        let scattered = woken(MANY, |n| n * 7919 % MANY);
        assert!(scattered < 100, "{scattered}");
        assert_eq!(woken(MANY, |n| MANY - 1 - n), 0);
        assert_eq!(woken(MANY, |n| n), MANY as usize - 1);
        let took = start.elapsed();
        assert!(took < Duration::from_secs(5), "{took:?}");
    }
}
