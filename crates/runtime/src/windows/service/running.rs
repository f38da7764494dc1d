//! The process as a service: the system calls [`service_main`] in a thread of its own, which serves, and tells it what to
//! do by [`on_control`], in another. What takes long (a start, the last requests) is told every second, or the system
//! takes it for stuck; what takes too long is ended.

use super::{events, wide, REOPEN, UPGRADE};
use crate::service::Work;
use crate::windows::signals::{self, Signal};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use windows_sys::Win32::Foundation::{
    ERROR_CALL_NOT_IMPLEMENTED, ERROR_FAILED_SERVICE_CONTROLLER_CONNECT,
    ERROR_SERVICE_SPECIFIC_ERROR, NO_ERROR,
};
use windows_sys::Win32::System::Services::{
    RegisterServiceCtrlHandlerExW, SetServiceStatus, StartServiceCtrlDispatcherW,
    SERVICE_ACCEPT_PARAMCHANGE, SERVICE_ACCEPT_PRESHUTDOWN, SERVICE_ACCEPT_STOP,
    SERVICE_CONTROL_INTERROGATE, SERVICE_CONTROL_PARAMCHANGE, SERVICE_CONTROL_PRESHUTDOWN,
    SERVICE_CONTROL_STOP, SERVICE_RUNNING, SERVICE_START_PENDING, SERVICE_STATUS,
    SERVICE_STATUS_HANDLE, SERVICE_STOPPED, SERVICE_STOP_PENDING, SERVICE_TABLE_ENTRYW,
    SERVICE_WIN32_OWN_PROCESS,
};
use windows_sys::Win32::System::Threading::{GetCurrentProcess, TerminateProcess};

/// How often it is told that something still goes on, and how long that is believed.
const PULSE: Duration = Duration::from_secs(1);
const HINT_MS: u32 = 10_000;
/// A start that has taken so long is told of no more.
const START_MAX: Duration = Duration::from_secs(180);
/// What is served may be served to its end for so long; what has not ended so long after it was ended is killed.
const QUIT_MAX: Duration = Duration::from_secs(30);
const TERM_MAX: Duration = Duration::from_secs(5);

/// How long it takes to end at the most, with something to spare.
pub fn ends_within_ms() -> u32 {
    (QUIT_MAX + TERM_MAX + 5 * PULSE).as_millis() as u32
}

static IS_ONE: AtomicBool = AtomicBool::new(false);

/// Whether this process is a service.
pub fn is_one() -> bool {
    IS_ONE.load(Ordering::Relaxed)
}

/// This process is part of that service: a serving process of it, or one that has taken over.
pub fn speak_as(name: &str) {
    IS_ONE.store(true, Ordering::Relaxed);
    events::begin(name);
}

/// Whether the system started this process as a service, and hears from it how it is.
pub fn is_main() -> bool {
    told().is_some()
}

/// What the system was told last.
struct Told {
    handle: SERVICE_STATUS_HANDLE,
    state: u32,
    checkpoint: u32,
    /// Since when it is in that state.
    since: Instant,
    code: u8,
}

// SAFETY: the handle is a number that the system knows in all threads of the process.
unsafe impl Send for Told {}

static TOLD: Mutex<Option<Told>> = Mutex::new(None);
/// The state is another.
static BELL: Condvar = Condvar::new();
/// The service's name, and what it does, until it does it.
static GIVEN: Mutex<Option<(String, Work)>> = Mutex::new(None);

fn told() -> MutexGuard<'static, Option<Told>> {
    TOLD.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Told {
    fn is_pending(&self) -> bool {
        matches!(self.state, SERVICE_START_PENDING | SERVICE_STOP_PENDING)
    }

    fn go(&mut self, state: u32) {
        self.state = state;
        self.checkpoint = u32::from(self.is_pending());
        self.since = Instant::now();
        self.tell();
        BELL.notify_all();
    }

    fn tell(&self) {
        let accepted = match self.state {
            SERVICE_RUNNING => {
                SERVICE_ACCEPT_STOP | SERVICE_ACCEPT_PRESHUTDOWN | SERVICE_ACCEPT_PARAMCHANGE
            }
            _ => 0,
        };
        let status = SERVICE_STATUS {
            dwServiceType: SERVICE_WIN32_OWN_PROCESS,
            dwCurrentState: self.state,
            dwControlsAccepted: accepted,
            dwWin32ExitCode: match self.code {
                0 => NO_ERROR,
                _ => ERROR_SERVICE_SPECIFIC_ERROR,
            },
            dwServiceSpecificExitCode: self.code.into(),
            dwCheckPoint: self.checkpoint,
            dwWaitHint: if self.is_pending() { HINT_MS } else { 0 },
        };
        // SAFETY: the handle is the system's own, which is never closed. A system that does not listen cannot be helped.
        unsafe { SetServiceStatus(self.handle, &status) };
    }
}

/// Does the work as that service, until it has ended.
///
/// # Errors
///
/// The system has not started this process as a service.
pub fn run(name: &str, work: Work) -> Result<(), String> {
    let mut wide_name = wide(name);
    *GIVEN.lock().unwrap_or_else(PoisonError::into_inner) = Some((name.to_string(), work));
    let entry = SERVICE_TABLE_ENTRYW {
        lpServiceName: wide_name.as_mut_ptr(),
        lpServiceProc: Some(service_main),
    };
    let table = [entry, SERVICE_TABLE_ENTRYW::default()];
    // SAFETY: the table ends in an empty entry; it and the name outlive the call.
    if unsafe { StartServiceCtrlDispatcherW(table.as_ptr()) } != 0 {
        return Ok(());
    }
    let e = std::io::Error::last_os_error();
    match e.raw_os_error().map(i32::unsigned_abs) {
        Some(ERROR_FAILED_SERVICE_CONTROLLER_CONNECT) => {
            Err("\"service run\" is how the system starts a service; write \"service start\""
                .into())
        }
        _ => Err(format!("the system does not hear of the service: {e}")),
    }
}

/// Called by the system, in a thread of its own.
unsafe extern "system" fn service_main(_: u32, _: *mut windows_sys::core::PWSTR) {
    let given = GIVEN.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some((name, work)) = given else { return };
    let nothing = std::ptr::null();
    let name_z = wide(&name);
    // SAFETY: the name ends in a zero; the function stays as long as the program.
    let handle =
        unsafe { RegisterServiceCtrlHandlerExW(name_z.as_ptr(), Some(on_control), nothing) };
    if handle.is_null() {
        // Nobody can be told.
        std::process::exit(1);
    }
    let (state, since) = (SERVICE_START_PENDING, Instant::now());
    *told() = Some(Told { handle, state, checkpoint: 1, since, code: 0 });
    IS_ONE.store(true, Ordering::Relaxed);
    events::begin(&name);
    if let Some(told) = told().as_ref() {
        told.tell();
    }
    // Without it long starts and ends look as if it were stuck, which is no reason not to serve.
    let _ = std::thread::Builder::new().name("service".into()).spawn(pulse);
    let code = work();
    if let Some(told) = told().as_mut() {
        told.code = code;
        told.go(SERVICE_STOPPED);
    }
}

/// It serves.
pub fn is_ready() {
    if let Some(told) = told().as_mut().filter(|t| t.state == SERVICE_START_PENDING) {
        told.go(SERVICE_RUNNING);
    }
}

/// It ends by itself, in the time that it has when it is told to.
pub fn is_ending() {
    if let Some(told) = told().as_mut().filter(|t| t.state == SERVICE_RUNNING) {
        told.go(SERVICE_STOP_PENDING);
    }
}

/// Called by the system, in the thread that has called [`run`].
unsafe extern "system" fn on_control(
    code: u32,
    _: u32,
    _: *mut core::ffi::c_void,
    _: *mut core::ffi::c_void,
) -> u32 {
    match code {
        SERVICE_CONTROL_STOP | SERVICE_CONTROL_PRESHUTDOWN => {
            if let Some(told) = told().as_mut().filter(|t| t.state == SERVICE_RUNNING) {
                told.go(SERVICE_STOP_PENDING);
                signals::tell(Signal::Quit);
            }
        }
        SERVICE_CONTROL_PARAMCHANGE => signals::tell(Signal::Hup),
        REOPEN => signals::tell(Signal::Usr1),
        UPGRADE => signals::tell(Signal::Usr2),
        SERVICE_CONTROL_INTERROGATE => {}
        _ => return ERROR_CALL_NOT_IMPLEMENTED,
    }
    NO_ERROR
}

/// Tells that a start or an end goes on, and sees to it that an end comes to its end.
fn pulse() {
    let mut is_ended = false;
    let mut guard = told();
    loop {
        let Some(told) = guard.as_mut().filter(|t| t.state != SERVICE_STOPPED) else { return };
        if !told.is_pending() {
            guard = BELL.wait(guard).unwrap_or_else(PoisonError::into_inner);
            continue;
        }
        let (state, since) = (told.state, told.since);
        guard = match BELL.wait_timeout(guard, PULSE) {
            Ok((guard, _)) => guard,
            Err(e) => e.into_inner().0,
        };
        let Some(told) = guard.as_mut().filter(|t| t.state == state) else { continue };
        let taken = since.elapsed();
        if state == SERVICE_STOP_PENDING && taken >= QUIT_MAX && !is_ended {
            is_ended = true;
            signals::tell(Signal::Term);
        }
        if state == SERVICE_STOP_PENDING && taken >= QUIT_MAX + TERM_MAX {
            told.code = 1;
            told.go(SERVICE_STOPPED);
            // SAFETY: this process, which has not ended by itself.
            unsafe { TerminateProcess(GetCurrentProcess(), 1) };
        }
        if state == SERVICE_STOP_PENDING || taken < START_MAX {
            told.checkpoint += 1;
            told.tell();
        }
    }
}
