//! Threads that have something which never leaves them, and do one piece of work after the other with it.

use crate::stack;
use std::future::Future;
use std::io;
use std::sync::mpsc;
use tokio::sync::oneshot;

/// A thread of its own. It ends when nobody can ask it any more, after the work at hand.
pub struct OwnThread<W, T> {
    work: mpsc::Sender<(W, oneshot::Sender<T>)>,
}

impl<W: Send + 'static, T: Send + 'static> OwnThread<W, T> {
    /// Starts one of that name. `begin` makes there what does the work.
    ///
    /// # Errors
    ///
    /// The system has no further thread.
    pub fn start<F: FnMut(W) -> T>(
        name: &str,
        begin: impl FnOnce() -> F + Send + 'static,
    ) -> io::Result<OwnThread<W, T>> {
        let (work, asked) = mpsc::channel::<(W, oneshot::Sender<T>)>();
        let thread = std::thread::Builder::new().name(name.to_owned()).stack_size(stack::BYTES);
        thread.spawn(move || {
            let mut does = begin();
            while let Ok((work, done)) = asked.recv() {
                // Whoever has asked may have gone.
                let _ = done.send(does(work));
            }
        })?;
        Ok(OwnThread { work })
    }

    /// What it makes of a piece of work; nothing if the thread has broken off in it.
    pub fn ask(&self, work: W) -> impl Future<Output = Option<T>> {
        let (done, made) = oneshot::channel();
        let asked = self.work.send((work, done)).is_ok();
        async move {
            match asked {
                true => made.await.ok(),
                false => None,
            }
        }
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::rc::Rc;

    #[test]
    fn what_a_thread_has_stays_there_and_one_that_panics_says_nothing_more() {
        let thread = OwnThread::start("own", || {
            let sum = Rc::new(std::cell::Cell::new(0));
            move |n: i32| {
                assert!(n >= 0, "on purpose");
                sum.set(sum.get() + n);
                sum.get()
            }
        });
        let thread = thread.unwrap();
        let test = async {
            assert_eq!(thread.ask(1).await, Some(1));
            assert_eq!(thread.ask(2).await, Some(3));
            assert_eq!(thread.ask(-1).await, None);
            assert_eq!(thread.ask(1).await, None);
        };
        tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(test);
    }
}
