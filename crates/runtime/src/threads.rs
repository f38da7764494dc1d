//! Work that blocks, done beside the event loop: on the threads of the worker's own pool, which are started
//! by need.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use tokio::task::{spawn_blocking, JoinHandle};

/// The result of work that another thread does. Work that has not begun when this is dropped is not done;
/// what has begun ends by itself, and nobody is told.
struct Working<T>(JoinHandle<T>);

impl<T> Future for Working<T> {
    type Output = io::Result<T>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<T>> {
        Pin::new(&mut self.0).poll(cx).map_err(io::Error::other)
    }
}

impl<T> Drop for Working<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// Does work that may block, such as reading a file, on a thread of the pool.
///
/// # Errors
///
/// The work panicked, or the worker ends.
pub fn in_thread<T: Send + 'static>(
    work: impl FnOnce() -> T + Send + 'static,
) -> impl Future<Output = io::Result<T>> {
    Working(spawn_blocking(work))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;
    use std::sync::Arc;

    fn one_thread() -> tokio::runtime::Runtime {
        tokio::runtime::Builder::new_current_thread().max_blocking_threads(1).build().unwrap()
    }

    #[test]
    fn what_nobody_waits_for_any_more_is_not_begun() {
        let done = Arc::new(());
        let (go, wait) = mpsc::channel::<()>();
        one_thread().block_on(async {
            let first = in_thread(move || wait.recv().is_ok());
            let kept = Arc::clone(&done);
            let second = in_thread(move || drop(kept));
            drop(second);
            go.send(()).unwrap();
            assert!(first.await.unwrap());
            // Behind it in the queue, so it has been looked at.
            in_thread(|| ()).await.unwrap();
        });
        assert_eq!(Arc::strong_count(&done), 1);
    }

    #[test]
    fn a_panic_is_an_error() {
        let done = one_thread().block_on(async { in_thread(|| panic!("on purpose")).await });
        assert!(done.is_err());
    }
}
