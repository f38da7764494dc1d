//! What ends a loop's wait when the first of its timers is due: on Linux a descriptor of the system's (timerfd), on
//! Windows the wait itself, which has an end.

#[cfg(target_os = "linux")]
use crate::event_loop::{Watch, Way};
#[cfg(target_os = "linux")]
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec};
#[cfg(windows)]
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io;
#[cfg(target_os = "linux")]
use std::os::fd::{AsRawFd, OwnedFd};
#[cfg(windows)]
use std::task::{Poll, Waker};

/// Rings once at a time, in the thread whose loop it was made in.
#[cfg(target_os = "linux")]
pub(super) struct Alarm {
    /// Declared before the descriptor, which is closed after it.
    watch: Watch,
    fd: OwnedFd,
}

#[cfg(target_os = "linux")]
impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let fd = rustix::time::timerfd_create(TimerfdClockId::Monotonic, flags)?;
        Ok(Alarm { watch: Watch::new(fd.as_raw_fd())?, fd })
    }

    /// Rings at that time (monotonic ms), even if it has passed, and not at the one said before.
    pub(super) fn set(&self, at_ms: u64) {
        let at =
            Timespec { tv_sec: (at_ms / 1000) as i64, tv_nsec: (at_ms % 1000 * 1_000_000) as i64 };
        let spec = Itimerspec { it_interval: Timespec { tv_sec: 0, tv_nsec: 0 }, it_value: at };
        // It fails for a descriptor that is none and times that are none.
        let set = rustix::time::timerfd_settime(&self.fd, TimerfdTimerFlags::ABSTIME, &spec);
        debug_assert!(set.is_ok());
    }

    /// Waits until it rings.
    pub(super) async fn rings(&self) {
        poll_fn(|cx| self.watch.poll_ready(Way::Read, cx)).await;
        // How often it was due: that it was is known. Reading it makes it wait for the next.
        let _ = rustix::io::read(&self.fd, &mut [0u8; 8]);
        self.watch.clear(Way::Read);
    }
}

/// Rings once at a time, in the thread whose loop it was made in.
#[cfg(windows)]
#[derive(Default)]
pub(super) struct Alarm {
    at_ms: Cell<Option<u64>>,
    who: RefCell<Option<Waker>>,
}

#[cfg(windows)]
impl Alarm {
    pub(super) fn new() -> io::Result<Alarm> {
        Ok(Alarm::default())
    }

    /// Rings at that time (monotonic ms), even if it has passed, and not at the one said before.
    pub(super) fn set(&self, at_ms: u64) {
        self.at_ms.set(Some(at_ms));
        if let Some(who) = &*self.who.borrow() {
            crate::event_loop::set_alarm(at_ms, who);
        }
    }

    /// Waits until it rings.
    pub(super) async fn rings(&self) {
        poll_fn(|cx| {
            drop(self.who.replace(Some(cx.waker().clone())));
            match self.at_ms.get() {
                Some(at_ms) if crate::clock::mono_ms() >= at_ms => {
                    self.at_ms.set(None);
                    Poll::Ready(())
                }
                Some(at_ms) => {
                    crate::event_loop::set_alarm(at_ms, cx.waker());
                    Poll::Pending
                }
                None => Poll::Pending,
            }
        })
        .await;
    }
}
