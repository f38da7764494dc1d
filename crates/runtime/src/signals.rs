//! Signals as nginx has them, waited for by the main thread; worker threads have them blocked.
//!
//! Windows: events with names, as nginx has them there.

pub use crate::signal::Signal;
use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

/// What a server leaves to the system.
const MORE: [(Signal, i32, &str); 3] = [
    (Signal::Tstp, libc::SIGTSTP, "SIGTSTP"),
    (Signal::Cont, libc::SIGCONT, "SIGCONT"),
    (Signal::Stop, libc::SIGSTOP, "SIGSTOP"),
];

fn all() -> impl Iterator<Item = &'static (Signal, i32, &'static str)> {
    NUMBERS.iter().chain(&MORE)
}

const NUMBERS: [(Signal, i32, &str); 8] = [
    (Signal::Hup, libc::SIGHUP, "SIGHUP"),
    (Signal::Quit, libc::SIGQUIT, "SIGQUIT"),
    (Signal::Term, libc::SIGTERM, "SIGTERM"),
    (Signal::Int, libc::SIGINT, "SIGINT"),
    (Signal::Usr1, libc::SIGUSR1, "SIGUSR1"),
    (Signal::Usr2, libc::SIGUSR2, "SIGUSR2"),
    (Signal::Winch, libc::SIGWINCH, "SIGWINCH"),
    (Signal::Chld, libc::SIGCHLD, "SIGCHLD"),
];

impl Signal {
    pub fn number(self) -> i32 {
        all().find(|(s, ..)| *s == self).map_or(libc::SIGKILL, |(_, n, _)| *n)
    }

    /// As the system calls it.
    pub fn name(self) -> &'static str {
        all().find(|(s, ..)| *s == self).map_or("SIGKILL", |(.., name)| name)
    }
}

/// A descriptor that becomes readable when one of the signals arrives.
pub struct Waiter {
    fd: OwnedFd,
    sender: Cell<Option<u32>>,
}

/// What ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    Signal(Signal),
    /// The other descriptor is ready, or its peer has gone.
    Ready,
    Timeout,
}

impl Waiter {
    /// Blocks the signals in this thread and those it starts later, and watches them.
    /// To be called before any thread is started.
    pub fn new() -> io::Result<Waiter> {
        Waiter::of(&NUMBERS.map(|(signal, ..)| signal))
    }

    /// The same for some of them.
    pub fn of(signals: &[Signal]) -> io::Result<Waiter> {
        // SAFETY: the set is initialised by sigemptyset before use; every pointer is valid for
        // its call; the new descriptor is owned by nobody else.
        unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            for signal in signals {
                libc::sigaddset(&mut set, signal.number());
            }
            libc::sigprocmask(libc::SIG_BLOCK, &set, std::ptr::null_mut());
            let fd = libc::signalfd(-1, &set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            Ok(Waiter { fd: OwnedFd::from_raw_fd(fd), sender: Cell::new(None) })
        }
    }

    /// Waits for a signal, for the other descriptor to have something to read, or for the time to
    /// pass.
    pub fn wait(&self, other: Option<RawFd>, timeout_ms: Option<u64>) -> Wake {
        self.wait_for(other.into_iter(), libc::POLLIN, timeout_ms)
    }

    /// The same, until something can be written to one of the other descriptors.
    pub fn wait_writable(
        &self,
        others: impl Iterator<Item = RawFd>,
        timeout_ms: Option<u64>,
    ) -> Wake {
        self.wait_for(others, libc::POLLOUT, timeout_ms)
    }

    /// The process that has sent the signal which was waited for last; the kernel has no number.
    pub fn sender(&self) -> Option<u32> {
        self.sender.get()
    }

    fn wait_for(
        &self,
        others: impl Iterator<Item = RawFd>,
        events: i16,
        timeout_ms: Option<u64>,
    ) -> Wake {
        let own = libc::pollfd { fd: self.fd.as_raw_fd(), events: libc::POLLIN, revents: 0 };
        let others = others.map(|fd| libc::pollfd { fd, events, revents: 0 });
        let mut fds: Vec<libc::pollfd> = std::iter::once(own).chain(others).collect();
        loop {
            if let Some(s) = self.take() {
                return Wake::Signal(s);
            }
            let ms = timeout_ms.map_or(-1, |t| t.min(i32::MAX as u64) as i32);
            // SAFETY: the array is valid and its length is given.
            let n = unsafe { libc::poll(fds.as_mut_ptr(), fds.len() as libc::nfds_t, ms) };
            if n == 0 {
                return Wake::Timeout;
            }
            if n > 0 && fds[1..].iter().any(|other| other.revents != 0) {
                return Wake::Ready;
            }
        }
    }

    fn take(&self) -> Option<Signal> {
        // SAFETY: `info` is plain data of exactly the size that is read into it.
        let info = unsafe {
            let mut info: libc::signalfd_siginfo = std::mem::zeroed();
            let size = std::mem::size_of_val(&info);
            let n = libc::read(self.fd.as_raw_fd(), (&raw mut info).cast(), size);
            if n != size as isize {
                return None;
            }
            info
        };
        self.sender.set(Some(info.ssi_pid).filter(|pid| *pid > 0));
        all().find(|(_, n, _)| *n as u32 == info.ssi_signo).map(|(s, ..)| *s)
    }
}

/// Whether a signal that ends the process waits to be taken. Without a [`Waiter`] none ever waits:
/// it is acted on as it arrives.
pub fn end_is_pending() -> bool {
    // SAFETY: the set is initialised before use, and valid for each call.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigpending(&mut set) == 0
            && [libc::SIGTERM, libc::SIGINT, libc::SIGQUIT]
                .iter()
                .any(|n| libc::sigismember(&set, *n) == 1)
    }
}

/// Undoes the blocking, for a program that is to be executed.
pub fn unblock_all() {
    // SAFETY: the set is initialised before use.
    unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        libc::sigemptyset(&mut set);
        libc::sigprocmask(libc::SIG_SETMASK, &set, std::ptr::null_mut());
    }
}

/// The system's call by which a signal is sent, as errors name it.
pub fn call(pid: i32, signal: Signal) -> String {
    format!("kill({pid}, {})", signal.number())
}

/// Sends a signal to a process.
pub fn send(pid: i32, signal: Signal) -> io::Result<()> {
    // SAFETY: kill takes two numbers and touches no memory of ours.
    if unsafe { libc::kill(pid, signal.number()) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
