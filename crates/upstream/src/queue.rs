//! `queue`: sessions that no server has room for wait for one, in the order in which they came.
//!
//! Invariant: whoever leaves the queue, with a server or without, has the next one look, so that room is never
//! left while somebody waits for it. Servers that were counted out come back with time, which nobody tells: the
//! first looks again now and then.

use crate::balance::Key;
use crate::group::{Lease, WorkerGroup};
use crate::peers::Choice;
use std::collections::VecDeque;
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
    /// The longest wait.
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
    /// By their numbers, and how to tell them; no longer there once they have been told.
    list: VecDeque<(u64, Option<Waker>)>,
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
        let waker = self.lock().list.front_mut().and_then(|(_, waker)| waker.take());
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
        waiting.list.push_back((number, None));
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
        let first = waiting.list.front().map(|(number, _)| *number);
        if let Some((_, waker)) = waiting.list.iter_mut().find(|(n, _)| *n == self.number) {
            *waker = Some(cx.waker().clone());
        }
        first == Some(self.number)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut waiting = self.queue.lock();
        waiting.list.retain(|(number, _)| *number != self.number);
        self.queue.count.store(waiting.list.len(), Ordering::Relaxed);
        drop(waiting);
        self.queue.wake();
    }
}

impl WorkerGroup {
    /// Waits for a server, where [`WorkerGroup::lets_wait`] says so; nothing if too many do, or it has taken too long.
    pub async fn wait(self: &Rc<Self>, choice: &mut Choice, key: &mut Key) -> Option<Lease> {
        let queue = self.queue.as_ref()?;
        let place = queue.join()?;
        // Those that are no backups are asked for again.
        if std::mem::take(&mut choice.on_backup) {
            choice.tried.clear();
        }
        let until_ms = clock::mono_ms() + queue.rule.timeout_ms;
        let mut timer = LazyTimer::new();
        poll_fn(|cx| loop {
            if place.is_first(cx) {
                let (mut choice_now, mut key_now) = (choice.clone(), key.clone());
                if let Some(lease) = self.pick_now(&mut choice_now, &mut key_now) {
                    (*choice, *key) = (choice_now, key_now);
                    return Poll::Ready(Some(lease));
                }
            }
            let now_ms = clock::mono_ms();
            if now_ms >= until_ms {
                return Poll::Ready(None);
            }
            ready!(timer.poll_until(cx, until_ms.min(now_ms + LOOK_AGAIN_MS)));
        })
        .await
    }
}
