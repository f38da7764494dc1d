//! Timers. A thread that begins with [`Timers`] has a queue of its own for them, which costs its event
//! loop nothing while none is due; others (and systems without such a queue) use tokio's.

#[cfg(any(target_os = "linux", windows))]
mod alarm;
#[cfg(any(target_os = "linux", windows))]
mod queue;

use crate::clock;
use std::future::Future;
#[cfg(any(target_os = "linux", windows))]
use std::io;
use std::pin::Pin;
#[cfg(any(target_os = "linux", windows))]
use std::rc::Rc;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::coop::unconstrained;

/// What a thread's timers are served by, from within its event loop.
#[cfg(any(target_os = "linux", windows))]
pub(crate) struct Timers {
    queue: Rc<queue::Queue>,
}

#[cfg(any(target_os = "linux", windows))]
impl Timers {
    /// Begins, in the thread whose event loop it is; fails where the system has no descriptor left.
    pub(crate) fn begin() -> io::Result<Timers> {
        Ok(Timers { queue: queue::begin()? })
    }

    /// Runs as a task of the thread for as long as it lives.
    pub(crate) async fn run(self) {
        self.queue.run().await;
    }
}

/// A timer that has been set.
enum Armed {
    /// Its place in the thread's queue. What waits in an event loop stays in its thread.
    #[cfg(any(target_os = "linux", windows))]
    Queue(u32),
    /// It is large: on its own it does not make every future so that may wait somewhere in it.
    Loop(Pin<Box<tokio::time::Sleep>>),
}

impl Armed {
    /// Due at that time (monotonic ms), when the task is woken.
    // The one place from which tokio's timers are used.
    #[allow(clippy::disallowed_methods)]
    fn new(cx: &mut Context<'_>, at_ms: u64) -> Armed {
        #[cfg(any(target_os = "linux", windows))]
        if let Some(queue) = queue::mine() {
            return Armed::Queue(queue.add(at_ms, cx.waker().clone()));
        }
        let left = Duration::from_millis(at_ms.saturating_sub(clock::mono_ms()));
        #[expect(clippy::disallowed_methods, reason = "here is where others find it")]
        let mut sleep = Box::pin(tokio::time::sleep(left));
        // A task that has used up its turn must be known to the timer too.
        let _ = Pin::new(&mut unconstrained(sleep.as_mut())).poll(cx);
        Armed::Loop(sleep)
    }

    /// Whether it is yet to come; then it is this task that is woken. Who waits may be another task than before: what is kept of a connection to a server goes from
    /// one to the other.
    fn waits_for(&mut self, cx: &mut Context<'_>) -> bool {
        match self {
            #[cfg(any(target_os = "linux", windows))]
            Armed::Queue(place) => queue::mine().is_some_and(|q| q.waits_for(*place, cx.waker())),
            Armed::Loop(sleep) => {
                Pin::new(&mut unconstrained(sleep.as_mut())).poll(cx).is_pending()
            }
        }
    }

    /// Wakes the task now.
    fn fire(&mut self) {
        match self {
            #[cfg(any(target_os = "linux", windows))]
            Armed::Queue(place) => queue::mine().into_iter().for_each(|q| q.fire(*place)),
            Armed::Loop(sleep) => sleep.as_mut().reset(tokio::time::Instant::now()),
        }
    }
}

#[cfg(any(target_os = "linux", windows))]
impl Drop for Timers {
    fn drop(&mut self) {
        queue::end();
    }
}

#[cfg(any(target_os = "linux", windows))]
impl Drop for Armed {
    fn drop(&mut self) {
        if let Armed::Queue(place) = self {
            queue::mine().into_iter().for_each(|q| q.remove(*place));
        }
    }
}

/// A lazy timer: moving its deadline is a store. At most one timer is armed per owner; when it fires
/// early because the deadline has moved on, it is armed again. The task that polled it last is woken.
#[derive(Default)]
pub struct LazyTimer {
    armed: Option<Armed>,
    /// When the armed timer fires, in monotonic ms.
    armed_at: u64,
}

impl LazyTimer {
    pub fn new() -> LazyTimer {
        LazyTimer::default()
    }

    /// Ready once the deadline (monotonic ms) has passed; otherwise wakes the task when it
    /// may have.
    pub fn poll_until(&mut self, cx: &mut Context<'_>, deadline: u64) -> Poll<()> {
        let mut now = clock::mono_ms();
        if let Some(armed) = self.armed.as_mut().filter(|_| self.armed_at <= deadline) {
            // What has fired is not asked of the clock: that may be the turn's, from before.
            if now < self.armed_at && armed.waits_for(cx) {
                return Poll::Pending;
            }
            self.armed = None;
            clock::renew();
            now = clock::mono_ms();
        }
        if now >= deadline {
            return Poll::Ready(());
        }
        self.armed = None;
        self.armed = Some(Armed::new(cx, deadline));
        self.armed_at = deadline;
        Poll::Pending
    }

    /// Wakes the task that has polled it, now.
    pub fn wake(&mut self) {
        self.armed.iter_mut().for_each(Armed::fire);
    }
}

struct Sleep {
    at_ms: u64,
    armed: Option<Armed>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = &mut *self;
        let Some(armed) = &mut this.armed else {
            this.armed = Some(Armed::new(cx, this.at_ms));
            return Poll::Pending;
        };
        if armed.waits_for(cx) {
            return Poll::Pending;
        }
        clock::renew();
        Poll::Ready(())
    }
}

/// Waits until that time (monotonic ms).
pub async fn sleep_until_ms(at_ms: u64) {
    Sleep { at_ms, armed: None }.await;
}

/// Waits that many milliseconds.
pub async fn sleep_ms(ms: u64) {
    // The turn's clock may be behind, and says whole milliseconds.
    clock::renew();
    sleep_until_ms(clock::mono_ms().saturating_add(ms).saturating_add(1)).await;
}

/// What a future answers, if it does so within that many milliseconds.
pub async fn within_ms<F: Future>(ms: u64, f: F) -> Option<F::Output> {
    tokio::select! {
        biased;
        done = f => Some(done),
        () = sleep_ms(ms) => None,
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, clippy::disallowed_methods)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// Longer than any of the deadlines.
    const PATIENCE_MS: u64 = 5000;

    /// In a thread whose timers are tokio's, and in one that has a queue of them.
    fn run<F: Future<Output = ()>>(test: impl Fn() -> F) {
        by_tokio(test());
        #[cfg(target_os = "linux")]
        crate::event_loop::run(&(), 1, test()).unwrap();
    }

    fn by_tokio(test: impl Future<Output = ()>) {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.enable_time().build().unwrap().block_on(test);
    }

    /// Whether somebody is woken, and not only found ready when patience ends.
    async fn comes(due: impl Future<Output = ()>) -> bool {
        let start = std::time::Instant::now();
        within_ms(PATIENCE_MS, due).await.is_some()
            && start.elapsed().as_millis() < u128::from(PATIENCE_MS)
    }

    #[test]
    fn what_fires_while_the_clock_of_the_turn_stands_still_is_not_lost() {
        run(|| async {
            let deadline = clock::tick() + 5;
            let mut timer = LazyTimer::new();
            let pending =
                poll_fn(|cx| Poll::Ready(timer.poll_until(cx, deadline).is_pending())).await;
            assert!(pending);
            // The task that follows in the same turn takes its time.
            std::thread::sleep(Duration::from_millis(20));
            assert!(comes(poll_fn(|cx| timer.poll_until(cx, deadline))).await);
        });
    }

    #[test]
    fn a_task_that_has_used_up_its_turn_is_woken_later() {
        by_tokio(async {
            let deadline = clock::mono_ms() + 50;
            let mut timer = LazyTimer::new();
            let mut is_first = true;
            let due = poll_fn(|cx| {
                let budget = tokio::task::coop::poll_proceed;
                while is_first && budget(cx).map(|left| left.made_progress()).is_ready() {}
                is_first = false;
                timer.poll_until(cx, deadline)
            });
            assert!(comes(due).await);
        });
    }

    #[test]
    fn the_task_that_asked_last_is_woken() {
        run(|| async {
            let deadline = clock::mono_ms() + 50;
            let mut timer = LazyTimer::new();
            // Somebody else has asked before, and has gone.
            let before = Context::from_waker(std::task::Waker::noop());
            assert!(timer.poll_until(&mut { before }, deadline).is_pending());
            assert!(comes(poll_fn(|cx| timer.poll_until(cx, deadline + 1))).await);
        });
    }

    #[test]
    fn one_that_was_woken_early_comes_at_its_time() {
        run(|| async {
            let deadline = clock::mono_ms() + 50;
            let mut timer = LazyTimer::new();
            let mut is_first = true;
            let due = poll_fn(|cx| {
                let due = timer.poll_until(cx, deadline);
                if std::mem::take(&mut is_first) {
                    timer.wake();
                }
                due
            });
            assert!(comes(due).await);
            assert!(clock::mono_ms() >= deadline);
        });
    }

    #[test]
    fn those_that_wait_are_woken_in_their_order_and_those_that_are_gone_are_not() {
        run(|| async {
            let (start, order) = (clock::mono_ms(), std::cell::RefCell::new(Vec::new()));
            let wait = |ms| {
                let order = &order;
                async move {
                    sleep_until_ms(start + ms).await;
                    order.borrow_mut().push(ms);
                    assert!(clock::mono_ms() >= start + ms);
                }
            };
            let gone = within_ms(1, wait(60_000)).await;
            tokio::join!(wait(40), wait(20), wait(60));
            assert_eq!((gone, &order.borrow()[..]), (None, &[20, 40, 60][..]));
        });
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn a_queue_keeps_nothing_of_timers_that_are_gone() {
        let test = async {
            let queue = queue::mine().unwrap();
            let cx = &mut Context::from_waker(std::task::Waker::noop());
            let mut many: Vec<_> = (0..1000).map(|_| LazyTimer::new()).collect();
            let later = clock::mono_ms() + 60_000;
            many.iter_mut().for_each(|t| assert!(t.poll_until(cx, later).is_pending()));
            assert_eq!(queue.kept(), (1000, 1000));
            many.truncate(1);
            assert_eq!(queue.kept(), (1000, 1));
            assert!(many[0].poll_until(cx, later - 1).is_pending());
            drop(many);
            assert_eq!(queue.kept(), (0, 0));
        };
        crate::event_loop::run(&(), 1, test).unwrap();
    }
}
