//! Samples of what threads do, by the processor's time that they use: a timer of the system's for each thread
//! sends it SIGPROF, and the handler copies registers and the nearest part of the stack to where another thread
//! reads them. Callers are found out there, from the copy.
//!
//! What the handler does is safe wherever a thread may be: it reads its own stack within known bounds, writes to
//! memory that was there before, and uses atomics. It takes no lock, allocates nothing, makes no call of the
//! system's and looks at no thread-local. A thread that uses no processor gets no signal, so that calls which
//! wait are not disturbed; those that run are begun again by the system (`SA_RESTART`), and the event loop takes
//! an interrupted `epoll_wait` for a turn without events. The handler stays installed when a session is over
//! and does nothing then: a late signal must not end the process.
//!
//! Windows has no such signals: a thread looks at the others there, and has them stand still while it copies
//! (`sampling/held.rs`). Elsewhere [`Session::begin`] says that there is no such thing.

use std::io;

/// No thread is stopped more often in a second of its processor's time.
pub const FREQUENCY_MAX_HZ: u32 = 1000;
/// So much of a stack is copied, from its innermost call outwards.
pub const STACK_MAX_BYTES: usize = 32 << 10;
/// Workers with higher numbers are not sampled.
pub const THREADS_MAX: usize = 1024;

/// What a thread was doing. Its bytes are a copy of its stack from `sp` on.
#[derive(Clone, Copy)]
pub struct Sample<'a> {
    pub worker: usize,
    /// For so many turns of the timer it stands: the system looks at processor time by its own ticks (often 4 ms), and
    /// gives one signal for all turns that have passed.
    pub turns: u32,
    pub ip: u64,
    pub sp: u64,
    pub fp: u64,
    /// Where it returns to, on processors that have a register for it.
    pub lr: u64,
    pub stack: &'a [u8],
}

/// Whether a session may begin: how often it is to look, whether there is one, and whether the worker is known that it is
/// for.
#[cfg(any(target_os = "linux", windows))]
fn may_begin(frequency_hz: u32, is_busy: bool, is_known: bool) -> io::Result<()> {
    match (1..=FREQUENCY_MAX_HZ).contains(&frequency_hz) {
        false => Err(io::ErrorKind::InvalidInput.into()),
        true if is_busy => Err(io::ErrorKind::AlreadyExists.into()),
        true if !is_known => Err(io::ErrorKind::NotFound.into()),
        true => Ok(()),
    }
}

impl Sample<'_> {
    /// The word of the stack at an address; `None` outside of what was copied.
    pub fn word(&self, at: u64) -> Option<u64> {
        let from = usize::try_from(at.checked_sub(self.sp)?).ok()?;
        let bytes = self.stack.get(from..from.checked_add(8)?)?;
        bytes.try_into().map(u64::from_ne_bytes).ok()
    }
}

#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
mod here;
#[cfg(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")))]
pub use here::{enroll, Enrolled, Session};

#[cfg(all(windows, target_arch = "x86_64"))]
mod held;
#[cfg(all(windows, target_arch = "x86_64"))]
pub use held::{enroll, Enrolled, Session};

#[cfg(not(any(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    all(windows, target_arch = "x86_64")
)))]
mod nowhere {
    use super::{io, Sample};

    pub struct Enrolled(());

    pub fn enroll(_: usize) -> Enrolled {
        Enrolled(())
    }

    pub struct Session(());

    impl Session {
        pub fn begin(_: u32, _: Option<usize>) -> io::Result<Session> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub fn take(&self, _: impl FnMut(Sample<'_>)) {}

        pub fn lost(&self) -> u64 {
            0
        }
    }
}
#[cfg(not(any(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    all(windows, target_arch = "x86_64")
)))]
pub use nowhere::{enroll, Enrolled, Session};
