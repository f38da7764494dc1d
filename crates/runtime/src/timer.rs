//! A lazy timer: moving its deadline is a store. At most one tokio timer is armed per owner; when
//! it fires early because the deadline has moved on, it is armed again.

use crate::clock;
use std::future::Future;
use std::pin::{pin, Pin};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::task::coop::unconstrained;
use tokio::time::Sleep;

/// Belongs to one task: it is always polled with that task's waker.
#[derive(Default)]
pub struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// When the armed timer fires, in monotonic ms; 0 when none is armed.
    armed_at: u64,
    /// The armed timer has been polled, so it knows the task to wake.
    polled: bool,
}

impl LazyTimer {
    pub fn new() -> LazyTimer {
        LazyTimer::default()
    }

    /// Ready once the deadline (monotonic ms) has passed; otherwise wakes the task when it
    /// may have.
    pub fn poll_until(&mut self, cx: &mut Context<'_>, deadline: u64) -> Poll<()> {
        loop {
            let now = clock::mono_ms();
            if self.armed_at != 0 && self.armed_at <= deadline {
                let sleep = self.sleep.as_mut().expect("an armed timer exists");
                // The armed timer knows the task already, and wakes it when its time has come. What
                // has fired is not asked of the clock: that may be the turn's, from before.
                if self.polled && now < self.armed_at && !sleep.is_elapsed() {
                    return Poll::Pending;
                }
                self.polled = true;
                // A task that has used up its turn must be known to the timer too.
                if pin!(unconstrained(sleep.as_mut())).poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.armed_at = 0;
                clock::renew();
                continue;
            }
            if now >= deadline {
                return Poll::Ready(());
            }
            self.arm(now, deadline);
        }
    }

    /// Wakes the task that has polled it, now.
    pub fn wake(&mut self) {
        if let Some(sleep) = self.sleep.as_mut().filter(|_| self.armed_at != 0) {
            sleep.as_mut().reset(tokio::time::Instant::now());
        }
    }

    fn arm(&mut self, now: u64, deadline: u64) {
        // One more for the part of a millisecond that `now` lacks.
        let at = tokio::time::Instant::now() + Duration::from_millis(deadline - now + 1);
        match &mut self.sleep {
            Some(s) => s.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
        self.armed_at = deadline;
        self.polled = false;
    }
}

/// Waits that many milliseconds. The timer is large and aligned to two cache lines: on its own it does
/// not make every future so that may wait somewhere in it.
pub async fn sleep_ms(ms: u64) {
    Box::pin(tokio::time::sleep(Duration::from_millis(ms))).await;
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    /// Longer than any of the deadlines.
    const PATIENCE: Duration = Duration::from_secs(5);

    fn run<F: Future>(test: F) -> F::Output {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(test)
    }

    /// Whether somebody is woken, and not only found ready when patience ends.
    async fn comes(due: impl Future<Output = ()>) -> bool {
        let start = std::time::Instant::now();
        tokio::time::timeout(PATIENCE, due).await.is_ok() && start.elapsed() < PATIENCE
    }

    #[test]
    fn what_fires_while_the_clock_of_the_turn_stands_still_is_not_lost() {
        run(async {
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
        run(async {
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
    fn one_that_was_woken_early_comes_at_its_time() {
        run(async {
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
}
