//! A lazy timer: moving its deadline is a store. At most one tokio timer is armed per owner; when
//! it fires early because the deadline has moved on, it is armed again.

use crate::clock;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::time::Sleep;

#[derive(Default)]
pub struct LazyTimer {
    sleep: Option<Pin<Box<Sleep>>>,
    /// When the armed timer fires, in coarse monotonic ms; 0 when none is armed.
    armed_at: u64,
}

impl LazyTimer {
    pub fn new() -> LazyTimer {
        LazyTimer::default()
    }

    /// Ready once the deadline (coarse monotonic ms) has passed; otherwise wakes the task when it
    /// may have.
    pub fn poll_until(&mut self, cx: &mut Context<'_>, deadline: u64) -> Poll<()> {
        loop {
            if self.armed_at != 0 && self.armed_at <= deadline {
                let sleep = self.sleep.as_mut().expect("an armed timer exists");
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.armed_at = 0;
            }
            let now = clock::coarse_ms();
            if now >= deadline {
                return Poll::Ready(());
            }
            self.arm(now, deadline);
        }
    }

    fn arm(&mut self, now: u64, deadline: u64) {
        // A few ms more: the coarse clock lags, and a timer that fires early only costs a turn.
        let at = tokio::time::Instant::now() + Duration::from_millis(deadline - now + 4);
        match &mut self.sleep {
            Some(s) => s.as_mut().reset(at),
            None => self.sleep = Some(Box::pin(tokio::time::sleep_until(at))),
        }
        self.armed_at = deadline;
    }
}

/// Waits that many milliseconds.
pub async fn sleep_ms(ms: u64) {
    tokio::time::sleep(Duration::from_millis(ms)).await;
}
