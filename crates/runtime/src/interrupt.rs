//! One thread interrupts another: a function is called between two instructions of that other thread, if something runs
//! there that has said so.
//!
//! On Linux a signal has the thread itself call it (`interrupt/signal.rs`). On Windows, where nothing of the kind reaches a thread
//! that works, the one that interrupts calls it, while the other stands still (`interrupt/held.rs`). For what runs there that is
//! the same. Elsewhere [`install`] says that there is no such thing.

use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering};

#[cfg(windows)]
#[path = "interrupt/held.rs"]
mod here;
#[cfg(target_os = "linux")]
#[path = "interrupt/signal.rs"]
mod here;
#[cfg(not(any(target_os = "linux", windows)))]
#[path = "interrupt/nowhere.rs"]
mod here;

pub use here::{install, Thread};

/// What is called for a thread that is interrupted, with what runs there.
pub type Called = extern "C" fn(*mut c_void);

/// What is called; 0 as long as nothing is.
static CALLED: AtomicUsize = AtomicUsize::new(0);

/// What an interrupt finds of a thread.
#[derive(Debug, Default)]
struct Place {
    /// Null where nothing runs.
    runs: AtomicPtr<c_void>,
    /// What runs was interrupted. Written by who interrupts, too.
    is_told: AtomicBool,
}

impl Place {
    const fn new() -> Place {
        Place { runs: AtomicPtr::new(std::ptr::null_mut()), is_told: AtomicBool::new(false) }
    }

    /// Calls the function if something runs. The thread whose place this is does so itself, or stands still.
    fn call(&self) {
        let (runs, called) = (self.runs.load(Ordering::Acquire), CALLED.load(Ordering::Acquire));
        if runs.is_null() || called == 0 {
            return;
        }
        self.is_told.store(true, Ordering::Relaxed);
        // SAFETY: only `install` puts something there, which is a function of this kind.
        let called = unsafe { std::mem::transmute::<usize, Called>(called) };
        called(runs);
    }
}

thread_local! {
    static PLACE: here::Own = const { here::own() };
}

/// From now on that runs on this thread, and is what the function is called with.
#[inline]
pub fn begin(what: *mut c_void) {
    PLACE.with(|place| place.runs.store(what, Ordering::Release));
}

/// Nothing runs here any more.
#[inline]
pub fn end() {
    PLACE.with(|place| place.runs.store(std::ptr::null_mut(), Ordering::Release));
}

/// Whether something runs on this thread.
#[inline]
pub fn runs_here() -> bool {
    PLACE.with(|place| !place.runs.load(Ordering::Relaxed).is_null())
}

/// Whether this thread was interrupted since it was [`forgotten`](forget).
#[inline]
pub fn is_told() -> bool {
    PLACE.with(|place| place.is_told.load(Ordering::Relaxed))
}

/// What this thread was interrupted for is done.
pub fn forget() {
    PLACE.with(|place| place.is_told.store(false, Ordering::Relaxed));
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use std::ptr;
    use std::sync::mpsc;

    /// What runs is the place to note it.
    extern "C" fn note(runs: *mut c_void) {
        // SAFETY: it is such a number, which outlives the thread.
        unsafe { &*runs.cast::<AtomicUsize>() }.fetch_add(1, Ordering::Relaxed);
    }

    #[test]
    fn the_function_is_called_for_what_runs_in_the_thread_that_is_meant() {
        static NOTED: AtomicUsize = AtomicUsize::new(0);
        // SAFETY: the function adds to a number.
        unsafe { install(note) }.unwrap();
        let (tell, hear) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            assert!(!runs_here() && !is_told());
            begin(ptr::from_ref(&NOTED).cast_mut().cast());
            tell.send(Thread::own()).unwrap();
            while NOTED.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
            }
            end();
            assert!(!runs_here() && is_told());
            forget();
            Thread::own().interrupt();
            assert!(!is_told());
        });
        hear.recv().unwrap().interrupt();
        thread.join().unwrap();
        assert_eq!(NOTED.load(Ordering::Relaxed), 1);
        assert!(!is_told());
    }
}
