//! One thread interrupts another: a function is called in that other thread, wherever it is.
//!
//! The signal is SIGURG: the system leaves it unheeded where nobody handles it, so that one that comes late does no
//! harm, and sends it by itself only to those who have asked for it, which nobody here does. Calls that wait are begun
//! again by the system (`SA_RESTART`), and the event loop takes an interrupted `epoll_wait` for a turn without events.
//!
//! Elsewhere than on Linux [`install`] says that there is no such thing.

use std::io;

/// A thread that may be interrupted.
#[derive(Clone, Copy, Debug)]
pub struct Thread(#[cfg(target_os = "linux")] i32);

#[cfg(target_os = "linux")]
mod here {
    use super::{io, Thread};
    use std::ptr;
    use std::sync::atomic::{AtomicUsize, Ordering};

    /// What is called in a thread that is interrupted; 0 as long as nothing is.
    static CALLED: AtomicUsize = AtomicUsize::new(0);

    extern "C" fn on_signal(_: libc::c_int) {
        let called = CALLED.load(Ordering::Acquire);
        if called != 0 {
            // SAFETY: only `install` puts something there, which is a function of this kind.
            let called = unsafe { std::mem::transmute::<usize, extern "C" fn()>(called) };
            called();
        }
    }

    /// Has threads that are interrupted call this.
    ///
    /// # Safety
    ///
    /// The function may be called between any two instructions of a thread, also of those that it looks at itself: it
    /// takes no lock, allocates nothing and does only what is safe in the handler of a signal.
    ///
    /// # Errors
    ///
    /// The system's.
    pub unsafe fn install(called: extern "C" fn()) -> io::Result<()> {
        CALLED.store(called as usize, Ordering::Release);
        // SAFETY: the action is plain data, its set is initialised, and its handler calls what the caller answers for.
        let rc = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = on_signal as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigemptyset(&mut action.sa_mask);
            libc::sigaction(libc::SIGURG, &action, ptr::null_mut())
        };
        match rc {
            0 => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }

    impl Thread {
        /// The one that calls.
        pub fn own() -> Thread {
            // SAFETY: takes nothing and answers a number.
            Thread(unsafe { libc::gettid() })
        }

        /// Interrupts it. One that has ended is not; a thread of this process that has its number since is.
        pub fn interrupt(self) {
            // SAFETY: numbers are given to the system; a wrong one is refused.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGURG) };
        }
    }
}

#[cfg(target_os = "linux")]
pub use here::install;

/// See [`here::install`].
///
/// # Safety
///
/// Nothing is called.
///
/// # Errors
///
/// Always.
#[cfg(not(target_os = "linux"))]
pub unsafe fn install(_: extern "C" fn()) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
impl Thread {
    /// The one that calls.
    pub fn own() -> Thread {
        Thread()
    }

    /// Does nothing.
    pub fn interrupt(self) {}
}

#[cfg(test)]
#[cfg(unix)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicI32, Ordering};
    use std::sync::mpsc;

    static CALLED_IN: AtomicI32 = AtomicI32::new(0);

    extern "C" fn note() {
        // SAFETY: takes nothing and answers a number.
        CALLED_IN.store(unsafe { libc::gettid() }, Ordering::Relaxed);
    }

    #[test]
    fn the_function_is_called_in_the_thread_that_is_meant() {
        // SAFETY: the function stores a number.
        unsafe { install(note) }.unwrap();
        let (tell, hear) = mpsc::channel();
        let thread = std::thread::spawn(move || {
            tell.send(Thread::own()).unwrap();
            while CALLED_IN.load(Ordering::Relaxed) == 0 {
                std::hint::spin_loop();
            }
        });
        let other = hear.recv().unwrap();
        other.interrupt();
        thread.join().unwrap();
        assert_eq!(CALLED_IN.load(Ordering::Relaxed), other.0);
    }
}
