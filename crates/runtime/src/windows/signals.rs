//! Signals as nginx has them on Windows: events with names, which another program sets (`-s`), and the console's own.

use super::sockets::RawFd;
use super::{family, owned};
pub use crate::signal::Signal;
use std::io;
use std::os::windows::io::{IntoRawHandle, OwnedHandle};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windows_sys::Win32::Foundation::{CloseHandle, HANDLE, WAIT_OBJECT_0};
use windows_sys::Win32::System::Console::{
    SetConsoleCtrlHandler, CTRL_BREAK_EVENT, CTRL_CLOSE_EVENT, CTRL_C_EVENT, CTRL_LOGOFF_EVENT,
    CTRL_SHUTDOWN_EVENT,
};
use windows_sys::Win32::System::Threading::{
    CreateEventW, OpenEventW, ResetEvent, SetEvent, WaitForMultipleObjects, EVENT_MODIFY_STATE,
    INFINITE,
};

/// As nginx calls their events there.
const EVENTS: [(Signal, &str); 6] = [
    (Signal::Term, "stop"),
    (Signal::Quit, "quit"),
    (Signal::Usr1, "reopen"),
    (Signal::Hup, "reload"),
    // Not nginx's, which has neither there.
    (Signal::Usr2, "upgrade"),
    (Signal::Winch, "winch"),
];

impl Signal {
    /// Unix's.
    pub fn number(self) -> i32 {
        match self {
            Signal::Hup => 1,
            Signal::Int => 2,
            Signal::Quit => 3,
            Signal::Kill => 9,
            Signal::Usr1 => 10,
            Signal::Usr2 => 12,
            Signal::Term => 15,
            Signal::Chld => 17,
            Signal::Cont => 18,
            Signal::Stop => 19,
            Signal::Tstp => 20,
            Signal::Winch => 28,
        }
    }

    pub fn name(self) -> &'static str {
        match self {
            Signal::Hup => "SIGHUP",
            Signal::Int => "SIGINT",
            Signal::Quit => "SIGQUIT",
            Signal::Kill => "SIGKILL",
            Signal::Usr1 => "SIGUSR1",
            Signal::Usr2 => "SIGUSR2",
            Signal::Term => "SIGTERM",
            Signal::Chld => "SIGCHLD",
            Signal::Cont => "SIGCONT",
            Signal::Stop => "SIGSTOP",
            Signal::Tstp => "SIGTSTP",
            Signal::Winch => "SIGWINCH",
        }
    }
}

/// More than the system gives a process that is to end with its window, or with the machine.
const CLOSING: Duration = Duration::from_secs(30);

/// What has come and was not taken yet.
static COME: Mutex<Vec<Signal>> = Mutex::new(Vec::new());
static BELL: Condvar = Condvar::new();

fn come() -> MutexGuard<'static, Vec<Signal>> {
    COME.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A signal has come: once, however often that was before it is taken.
pub(super) fn tell(signal: Signal) {
    let mut all = come();
    if !all.contains(&signal) {
        all.push(signal);
    }
    BELL.notify_all();
}

/// The next to be taken: what nginx's master looks at first.
fn first(all: &mut Vec<Signal>) -> Option<Signal> {
    const ORDER: [Signal; 4] = [Signal::Chld, Signal::Term, Signal::Int, Signal::Quit];
    let rank = |s: &Signal| ORDER.iter().position(|o| o == s).unwrap_or(ORDER.len());
    let at = (0..all.len()).min_by_key(|at| rank(&all[*at]))?;
    Some(all.remove(at))
}

/// Whoever waits looks at what he waits for.
pub(super) fn ring() {
    let _all = come();
    BELL.notify_all();
}

/// Called in a thread of the system's.
unsafe extern "system" fn on_console(event: u32) -> i32 {
    match event {
        // Its master hears it too, and says what is to be done.
        _ if family::is_serving() => {}
        CTRL_C_EVENT | CTRL_BREAK_EVENT | CTRL_CLOSE_EVENT | CTRL_SHUTDOWN_EVENT => {
            tell(Signal::Term);
        }
        // Somebody logs off, who need not be who has started it: services alone are told.
        CTRL_LOGOFF_EVENT => {}
        _ => return 0,
    }
    if matches!(event, CTRL_CLOSE_EVENT | CTRL_SHUTDOWN_EVENT) {
        // Upon the answer the system ends the process, which it also does when that takes too long.
        std::thread::sleep(CLOSING);
    }
    1
}

fn event_text(what: &str, pid: u32) -> String {
    format!("Global\\ngx_{what}_{pid}")
}

fn event_name(what: &str, pid: u32) -> Vec<u16> {
    event_text(what, pid).encode_utf16().chain([0]).collect()
}

/// Hears of the signals.
pub struct Waiter(());

/// Makes the events of a process, or finds those that it, or who has started it, has made. Of another program's nobody
/// hears: who has made it could end this one by it, or set it for ever.
pub(super) fn events_of(pid: u32) -> io::Result<Vec<OwnedHandle>> {
    let make = |(_, what): &(Signal, &str)| {
        let name = event_text(what, pid);
        own_event(&name).map_err(|e| io::Error::new(e.kind(), format!("the event \"{name}\": {e}")))
    };
    EVENTS.iter().map(make).collect()
}

fn own_event(name: &str) -> io::Result<OwnedHandle> {
    let (event, is_old) = named_event(name)?;
    if is_old {
        let (own, _) = named_event(&format!("Global\\{}", owned::fresh_name()))?;
        owned::check(&event, &own)?;
    }
    Ok(event)
}

/// An event, and whether it was there. Without a descriptor the owner and the system may use it.
fn named_event(name: &str) -> io::Result<(OwnedHandle, bool)> {
    let name: Vec<u16> = name.encode_utf16().chain([0]).collect();
    // SAFETY: the name ends in a zero and outlives the call; the handle is nobody else's.
    unsafe { owned::made(CreateEventW(std::ptr::null(), 0, 0, name.as_ptr())) }
}

/// What ended a wait.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Wake {
    Signal(Signal),
    /// The master has said something, or is gone.
    Ready,
    Timeout,
}

/// Handles, which any thread may wait for.
struct Handles([HANDLE; EVENTS.len()]);

// SAFETY: a handle is a number that the system knows in all threads of the process.
unsafe impl Send for Handles {}

impl Waiter {
    /// Makes the events and hears the console.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn new() -> io::Result<Waiter> {
        let events = events_of(std::process::id())?;
        let mut handles = Handles([std::ptr::null_mut(); EVENTS.len()]);
        for (handle, event) in handles.0.iter_mut().zip(events) {
            *handle = event.into_raw_handle();
        }
        std::thread::Builder::new().name("signals".into()).spawn(move || hear(&handles))?;
        Waiter::of(&[])
    }

    /// Hears the console alone.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn of(_: &[Signal]) -> io::Result<Waiter> {
        // SAFETY: a function of this program's, which stays.
        match unsafe { SetConsoleCtrlHandler(Some(on_console), 1) } {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(Waiter(())),
        }
    }

    /// Waits for a signal, for what the master says where that is to be heard, or for the time to pass.
    pub fn wait(&self, link: Option<RawFd>, timeout_ms: Option<u64>) -> Wake {
        let end = timeout_ms.map(|ms| Instant::now() + Duration::from_millis(ms));
        let mut all = come();
        loop {
            if let Some(signal) = first(&mut all) {
                return Wake::Signal(signal);
            }
            if link.is_some() && family::has_word() {
                return Wake::Ready;
            }
            let left = end.map(|end| end.saturating_duration_since(Instant::now()));
            all = match left {
                Some(Duration::ZERO) => return Wake::Timeout,
                Some(left) => match BELL.wait_timeout(all, left) {
                    Ok((all, _)) => all,
                    Err(e) => e.into_inner().0,
                },
                None => BELL.wait(all).unwrap_or_else(PoisonError::into_inner),
            };
        }
    }

    /// The same: there is nothing to be written to.
    pub fn wait_writable(&self, _: impl Iterator<Item = RawFd>, timeout_ms: Option<u64>) -> Wake {
        self.wait(None, timeout_ms)
    }

    /// The process that has sent the signal: the system does not say.
    pub fn sender(&self) -> Option<u32> {
        None
    }
}

fn hear(handles: &Handles) {
    loop {
        let count = handles.0.len() as u32;
        // SAFETY: the array has that many handles, which are never closed.
        let found = unsafe { WaitForMultipleObjects(count, handles.0.as_ptr(), 0, INFINITE) };
        match EVENTS.get(found.wrapping_sub(WAIT_OBJECT_0) as usize) {
            Some((signal, _)) => {
                if let Some(event) = handles.0.get(found as usize) {
                    // One that goes on being set (who has made it may have wanted that) is heard of once, too.
                    // SAFETY: as above.
                    unsafe { ResetEvent(*event) };
                }
                tell(*signal);
            }
            None => return,
        }
    }
}

/// Whether a signal that ends the process waits to be taken.
pub fn end_is_pending() -> bool {
    come().iter().any(|s| matches!(s, Signal::Term | Signal::Int | Signal::Quit))
}

/// There is nothing to be undone.
pub fn unblock_all() {}

/// The system's call by which a signal is sent, as errors name it.
pub fn call(pid: i32, signal: Signal) -> String {
    let known = EVENTS.iter().find(|(s, _)| *s == signal);
    let name = event_text(known.map_or("", |(_, what)| what), pid.unsigned_abs());
    format!("OpenEvent(\"{name}\")")
}

/// Sends a signal to a process: sets its event.
///
/// # Errors
///
/// There is no such event: no such server, or one of somebody else's, or it is a signal that has none.
pub fn send(pid: i32, signal: Signal) -> io::Result<()> {
    // A program that knows of no events has no other way to be told.
    if signal == Signal::Kill || signal == Signal::Term && family::is_other(pid.unsigned_abs()) {
        return family::kill(pid.unsigned_abs());
    }
    let Some((_, what)) = EVENTS.iter().find(|(s, _)| *s == signal) else {
        return Err(io::ErrorKind::Unsupported.into());
    };
    let name = event_name(what, pid.unsigned_abs());
    // SAFETY: the name ends in a zero and outlives the call; the handle is closed again.
    unsafe {
        let event = OpenEventW(EVENT_MODIFY_STATE, 0, name.as_ptr());
        if event.is_null() {
            return Err(io::Error::last_os_error());
        }
        let done = SetEvent(event);
        CloseHandle(event);
        match done {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        }
    }
}
