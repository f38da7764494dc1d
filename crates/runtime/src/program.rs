//! What programs are started by, and why they are not, on every system.

#[cfg(any(windows, test))]
pub(crate) mod words;

use crate::process::Exit;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

/// So many of a process's are there at a time, those included that have ended and are not reaped yet.
pub const MAX: usize = 1024;

/// What is to be started.
pub struct Program<'a> {
    /// Looked for as a shell would, if it is a name alone.
    pub file: &'a [u8],
    /// Its own name first.
    pub arguments: Vec<&'a [u8]>,
    /// It is the system's shell, and the last argument a line for that, which takes it as it is.
    pub is_line: bool,
    /// `NAME=value`; this process's where there are none.
    pub environment: Option<Vec<&'a [u8]>>,
    /// Both its outputs are one.
    pub merges: bool,
}

/// Why there is no child.
#[derive(Debug)]
pub enum NotStarted {
    TooMany,
    Pipe(io::Error),
    /// The system makes no further process.
    Fork(io::Error),
    /// It cannot be executed.
    Execute(io::Error),
}

/// Why no signal was sent.
#[derive(Debug)]
pub enum NotSent {
    Ended,
    System(io::Error),
}

/// What is known of a child's end, and who waits for it.
#[derive(Default)]
pub(crate) struct End(Mutex<Known>);

#[derive(Default)]
struct Known {
    exit: Option<Exit>,
    waker: Option<Waker>,
}

impl End {
    fn lock(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How it has ended, if it has.
    pub(crate) fn exit(&self) -> Option<Exit> {
        self.lock().exit
    }

    /// Only who has asked last is told.
    pub(crate) fn poll(&self, cx: &Context<'_>) -> Poll<Exit> {
        let mut known = self.lock();
        match known.exit {
            Some(exit) => Poll::Ready(exit),
            None => {
                known.waker = Some(cx.waker().clone());
                Poll::Pending
            }
        }
    }

    /// It has ended so.
    pub(crate) fn tell(&self, exit: Exit) {
        let waker = {
            let mut known = self.lock();
            known.exit = Some(exit);
            known.waker.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}
