//! The signal is SIGURG: the system leaves it unheeded where nobody handles it, so that one that comes late does no
//! harm, and sends it by itself only to those who have asked for it, which nobody here does. Calls that wait are begun
//! again by the system (`SA_RESTART`), and the event loop takes an interrupted `epoll_wait` for a turn without events.

use super::{Called, Place, CALLED, PLACE};
use std::io;
use std::ptr;
use std::sync::atomic::Ordering;

pub(super) type Own = Place;

pub(super) const fn own() -> Own {
    Place::new()
}

extern "C" fn on_signal(_: libc::c_int) {
    PLACE.with(Place::call);
}

/// Has threads that are interrupted call this.
///
/// # Safety
///
/// The function may be called between any two instructions of a thread, also of those that it looks at itself: it
/// takes no lock, allocates nothing, looks at no thread-local and does only what is safe in the handler of a signal.
///
/// # Errors
///
/// The system's.
pub unsafe fn install(called: Called) -> io::Result<()> {
    CALLED.store(called as usize, Ordering::Release);
    // SAFETY: the action is plain data, its set is initialised, and its handler reads a thread-local that is there from
    // the thread's beginning, and calls what the caller answers for.
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

/// A thread that may be interrupted.
#[derive(Debug)]
pub struct Thread(i32);

impl Thread {
    /// The one that calls.
    pub fn own() -> Thread {
        // SAFETY: takes nothing and answers a number.
        Thread(unsafe { libc::gettid() })
    }

    /// Interrupts it. One that has ended is not; a thread of this process that has its number since is.
    pub fn interrupt(&self) {
        // SAFETY: numbers are given to the system; a wrong one is refused.
        unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), self.0, libc::SIGURG) };
    }
}
