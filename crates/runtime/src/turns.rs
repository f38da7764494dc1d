//! Turns: what has much to do lets others have theirs in between.

use crate::event_loop;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::Instant;

/// Has the task woken once all others that can go on have done so, and the event loop has been asked for
/// more of them: for one that has had its turn and could go on at once. A task that only wakes itself goes
/// on many times before the event loop is asked.
pub fn let_others(cx: &mut Context<'_>) {
    event_loop::let_others(cx);
}

/// Does what may take milliseconds, such as compressing: the time it takes counts towards the turn's.
pub fn work<T>(work: impl FnOnce() -> T) -> T {
    let begin = Instant::now();
    let made = work();
    event_loop::worked(begin.elapsed());
    made
}

/// Whether what was done by [`work`] in this turn of the event loop is enough for one: who could go on
/// pauses, and other tasks have theirs when the system has been asked for events.
#[inline]
pub fn is_spent() -> bool {
    event_loop::is_spent()
}

/// Is over when others have had their turn ([`let_others`]), however often the task is woken before: two
/// tasks that wake each other would not let anybody else have one.
#[derive(Default)]
pub struct Pause {
    gate: Option<Arc<Gate>>,
}

struct Gate {
    is_open: AtomicBool,
    task: Waker,
}

impl Wake for Gate {
    fn wake(self: Arc<Self>) {
        self.is_open.store(true, Ordering::Relaxed);
        self.task.wake_by_ref();
    }
}

impl Future for Pause {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(gate) = &self.gate {
            if gate.is_open.load(Ordering::Relaxed) {
                return Poll::Ready(());
            }
            if gate.task.will_wake(cx.waker()) {
                return Poll::Pending;
            }
        }
        let gate = Arc::new(Gate { is_open: AtomicBool::new(false), task: cx.waker().clone() });
        let_others(&mut Context::from_waker(&Waker::from(Arc::clone(&gate))));
        self.gate = Some(gate);
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::future::poll_fn;

    #[test]
    fn a_pause_is_over_when_the_event_loop_has_turned_and_not_when_somebody_wakes_the_task() {
        let test = async {
            let mut pause = Pause::default();
            poll_fn(|cx| {
                for _ in 0..3 {
                    assert!(Pin::new(&mut pause).poll(cx).is_pending());
                }
                Poll::Ready(())
            })
            .await;
            event_loop::yield_now().await;
            poll_fn(|cx| {
                assert!(Pin::new(&mut pause).poll(cx).is_ready());
                Poll::Ready(())
            })
            .await;
        };
        event_loop::run(&(), 1, test).unwrap();
    }
}
