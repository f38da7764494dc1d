//! Threads for the files of certificates whose names have variables. They are few and none of a worker's own, so
//! that files which never come (a hung network drive, a pipe) hold up neither a worker's other work nor each
//! other: what is being read already is waited for together, however many ask for it.
//!
//! Invariant: a reading that has begun is found by all who ask for the same until it ends, also when nobody waits
//! for it any more; so one file that blocks holds one thread.

use super::files::Names;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError, Weak};
use tokio::sync::{watch, Semaphore, SemaphorePermit};
use weir_tls::rustls::sign::CertifiedKey;

/// Readings at once, of all workers.
const THREADS_MAX: usize = 4;
static TURNS: Semaphore = Semaphore::const_new(THREADS_MAX);

/// What tells readings apart: the directory, the files, and the key's passwords.
pub(super) type Files = (PathBuf, Names, Arc<Vec<Vec<u8>>>);

/// A pair and whether its key was encrypted, or why there is none.
pub(super) type Outcome = Result<(Arc<CertifiedKey>, bool), String>;

type Sender = watch::Sender<Option<Outcome>>;

struct Reading {
    files: Files,
    /// Until a thread has it.
    begin: Mutex<Option<Sender>>,
    done: watch::Receiver<Option<Outcome>>,
}

type Readings = HashMap<Files, Weak<Reading>>;

/// What is waited for or being read.
fn all() -> MutexGuard<'static, Readings> {
    static ALL: LazyLock<Mutex<Readings>> = LazyLock::new(Mutex::default);
    ALL.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Reading {
    fn of(files: Files) -> Arc<Reading> {
        let mut all = all();
        if let Some(reading) = all.get(&files).and_then(Weak::upgrade) {
            return reading;
        }
        let (sender, done) = watch::channel(None);
        let begin = Mutex::new(Some(sender));
        let reading = Arc::new(Reading { files, begin, done });
        all.insert(reading.files.clone(), Arc::downgrade(&reading));
        reading
    }

    fn begin(&self) -> MutexGuard<'_, Option<Sender>> {
        self.begin.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Has a thread do the work, unless one does it.
    fn start(
        self: &Arc<Self>,
        turn: SemaphorePermit<'static>,
        work: impl FnOnce() -> Outcome + Send + 'static,
    ) {
        let Some(sender) = self.begin().take() else { return };
        let reading = Arc::clone(self);
        let thread = std::thread::Builder::new().name("certificates".to_string());
        // If there is no thread for it the sender is gone, which those who wait see.
        let _ = thread.spawn(move || {
            let outcome = work();
            // Who asks from now on wants the files as they are now.
            all().remove(&reading.files);
            sender.send_replace(Some(outcome));
            drop(turn);
        });
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        let mut all = all();
        // Another may have begun since.
        if all.get(&self.files).is_some_and(|reading| reading.strong_count() == 0) {
            all.remove(&self.files);
        }
    }
}

/// What the work makes of the files, done by a thread when it is its turn; the work of another for the same files,
/// if that has been asked for and has not ended. Work that has not begun is not done when nobody waits for it.
pub(super) async fn read(files: Files, work: impl FnOnce() -> Outcome + Send + 'static) -> Outcome {
    let reading = Reading::of(files);
    let mut done = reading.done.clone();
    let has_begun = reading.begin().is_none();
    tokio::select! {
        biased;
        _ = done.wait_for(Option::is_some) => (),
        turn = TURNS.acquire(), if !has_begun => {
            if let Ok(turn) = turn {
                reading.start(turn, work);
            }
        }
    }
    let told = done.wait_for(Option::is_some).await;
    let outcome = told.ok().and_then(|outcome| outcome.clone());
    outcome.unwrap_or_else(|| Err("a thread that reads certificates has failed".to_string()))
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::future::{poll_fn, Future};
    use std::pin::pin;
    use std::sync::mpsc;
    use std::task::Poll;

    fn files(name: &str) -> Files {
        (PathBuf::new(), (name.into(), name.into()), Arc::default())
    }

    /// Work that ends with the name when it is told to, or when nobody can tell it any more.
    fn held(name: &str) -> (mpsc::Sender<()>, impl FnOnce() -> Outcome + Send + 'static) {
        let (go, wait) = mpsc::channel();
        let name = name.to_string();
        let work = move || {
            let _ = wait.recv();
            Err(name)
        };
        (go, work)
    }

    async fn is_pending<T>(future: &mut (impl Future<Output = T> + Unpin)) -> bool {
        poll_fn(|cx| Poll::Ready(std::pin::Pin::new(&mut *future).poll(cx).is_pending())).await
    }

    #[test]
    fn they_take_turns_and_none_is_left_behind() {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let mut held_up = Vec::new();
            for n in 0..THREADS_MAX {
                let (go, work) = held(&n.to_string());
                let mut reading = Box::pin(read(files(&n.to_string()), work));
                assert!(is_pending(&mut reading).await);
                held_up.push((go, reading));
            }
            let mut not_its_turn = Box::pin(read(files("late"), || Err("late".to_string())));
            let mut gone = Box::pin(read(files("gone"), || panic!("nobody waits for it")));
            assert!(is_pending(&mut not_its_turn).await && is_pending(&mut gone).await);
            drop(gone);
            // The first goes; what was begun for it is found by another, which needs no turn.
            let (go, reading) = held_up.swap_remove(0);
            drop(reading);
            let mut same = pin!(read(files("0"), || panic!("it is being read")));
            assert!(is_pending(&mut same).await);
            drop(go);
            assert_eq!(same.await.err().unwrap(), "0");
            assert_eq!(not_its_turn.await.err().unwrap(), "late");
            drop(held_up.drain(..).map(|(go, _)| go).collect::<Vec<_>>());
            let failed = read(files("failed"), || panic!("on purpose")).await;
            assert!(failed.err().unwrap().contains("has failed"));
        });
        // Threads that end are the last to let go of theirs.
        while !all().is_empty() {
            std::thread::yield_now();
        }
    }
}
