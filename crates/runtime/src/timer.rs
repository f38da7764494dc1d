//! A lazy timer: moving its deadline is a store. At most one tokio timer is armed per owner; when
//! it fires early because the deadline has moved on, it is armed again.

use crate::clock;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
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
                // The armed timer knows the task already, and wakes it when its time has come.
                if self.polled && now < self.armed_at {
                    return Poll::Pending;
                }
                self.polled = true;
                let sleep = self.sleep.as_mut().expect("an armed timer exists");
                if sleep.as_mut().poll(cx).is_pending() {
                    return Poll::Pending;
                }
                self.armed_at = 0;
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
