//! Turns: what has much to do lets others have theirs in between.

use std::future::Future;
use std::pin::pin;
use std::task::Context;

/// Has the task woken once all others that can go on have done so, and the event loop has been asked for
/// more of them: for one that has had its turn and could go on at once. A task that only wakes itself goes
/// on some sixty times before the event loop is asked.
pub fn let_others(cx: &mut Context<'_>) {
    let _ = pin!(tokio::task::yield_now()).poll(cx);
}
