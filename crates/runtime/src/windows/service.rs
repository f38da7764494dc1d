//! What the service control manager is asked for: a service made, started, told something, removed.

mod events;
mod running;

use crate::service::{words, New};
use std::io;
use std::os::windows::ffi::OsStrExt;
use std::time::{Duration, Instant};
use windows_sys::Win32::Foundation::{
    ERROR_ACCESS_DENIED, ERROR_DUPLICATE_SERVICE_NAME, ERROR_INVALID_SERVICE_CONTROL,
    ERROR_SERVICE_ALREADY_RUNNING, ERROR_SERVICE_CANNOT_ACCEPT_CTRL, ERROR_SERVICE_DISABLED,
    ERROR_SERVICE_DOES_NOT_EXIST, ERROR_SERVICE_EXISTS, ERROR_SERVICE_MARKED_FOR_DELETE,
    ERROR_SERVICE_NOT_ACTIVE, ERROR_SERVICE_REQUEST_TIMEOUT, ERROR_SERVICE_SPECIFIC_ERROR,
};
use windows_sys::Win32::Storage::FileSystem::DELETE;
use windows_sys::Win32::System::Services::{
    ChangeServiceConfig2W, CloseServiceHandle, ControlService, CreateServiceW, DeleteService,
    OpenSCManagerW, OpenServiceW, QueryServiceConfigW, QueryServiceStatusEx, StartServiceW,
    QUERY_SERVICE_CONFIGW, SC_ACTION, SC_ACTION_RESTART, SC_HANDLE, SC_MANAGER_CONNECT,
    SC_MANAGER_CREATE_SERVICE, SC_STATUS_PROCESS_INFO, SERVICE_ALL_ACCESS, SERVICE_AUTO_START,
    SERVICE_CONFIG, SERVICE_CONFIG_DESCRIPTION, SERVICE_CONFIG_FAILURE_ACTIONS,
    SERVICE_CONFIG_PRESHUTDOWN_INFO, SERVICE_CONFIG_REQUIRED_PRIVILEGES_INFO,
    SERVICE_CONFIG_SERVICE_SID_INFO, SERVICE_CONTROL_PARAMCHANGE, SERVICE_CONTROL_STOP,
    SERVICE_DESCRIPTIONW, SERVICE_ERROR_NORMAL, SERVICE_FAILURE_ACTIONSW, SERVICE_PAUSE_CONTINUE,
    SERVICE_PRESHUTDOWN_INFO, SERVICE_QUERY_CONFIG, SERVICE_QUERY_STATUS,
    SERVICE_REQUIRED_PRIVILEGES_INFOW, SERVICE_RUNNING, SERVICE_SID_INFO,
    SERVICE_SID_TYPE_UNRESTRICTED, SERVICE_START, SERVICE_STATUS, SERVICE_STATUS_PROCESS,
    SERVICE_STOP, SERVICE_STOPPED, SERVICE_USER_DEFINED_CONTROL, SERVICE_WIN32_OWN_PROCESS,
};

pub use events::report;
pub use running::{is_ending, is_main, is_one, is_ready, run, speak_as};

/// Whether the system has services.
pub const IS_THERE: bool = true;

/// Who it is: an account with next to no rights, which has no password and is nobody elsewhere in the network.
const ACCOUNT: &str = "NT AUTHORITY\\LocalService";
/// What must be there before: sockets. (It is not started late, as the system offers, which is minutes after the others.)
const NEEDS: &str = "Tcpip\0Afd\0";
/// All that it may do by right: go through folders, and give its signals a name that other users' programs find.
const PRIVILEGES: &str = "SeChangeNotifyPrivilege\0SeCreateGlobalPrivilege\0";
/// After so many ms a server that died is started again; the last stands for all that follow.
const RESTARTS_MS: [u32; 3] = [1000, 5000, 30_000];
/// Without a death for so long it counts from the first again.
const FORGOTTEN_SECS: u32 = 86_400;
/// Opens logs again: the first number that is a program's own.
const REOPEN: u32 = 128;
/// Hands over to the program that is there now.
const UPGRADE: u32 = 129;
/// How long who waits for it is without a sign of it, whatever it says itself.
const SILENCE: Duration = Duration::from_secs(15);
const LOOK: Duration = Duration::from_millis(100);

/// With a zero at its end.
fn wide(text: &str) -> Vec<u16> {
    text.encode_utf16().chain([0]).collect()
}

/// One of the manager's handles.
struct Handle(SC_HANDLE);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: the handle is open, and nobody has it any more.
        unsafe { CloseServiceHandle(self.0) };
    }
}

impl Handle {
    fn of(handle: SC_HANDLE) -> io::Result<Handle> {
        match handle.is_null() {
            true => Err(io::Error::last_os_error()),
            false => Ok(Handle(handle)),
        }
    }
}

fn done(answer: i32) -> io::Result<()> {
    match answer {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Why a service is not what was wanted.
fn why(name: &str, e: &io::Error) -> String {
    let code = e.raw_os_error().unwrap_or(0).unsigned_abs();
    let text = match code {
        ERROR_ACCESS_DENIED => return "access is denied: only an administrator may do that (a command prompt that was started with \"Run as administrator\")".into(),
        ERROR_SERVICE_EXISTS => "exists already; \"service remove\" removes it, and -n gives another name",
        ERROR_DUPLICATE_SERVICE_NAME => "is what another service is shown as; -n gives another name",
        ERROR_SERVICE_DOES_NOT_EXIST => "does not exist; \"service install\" makes it",
        ERROR_SERVICE_MARKED_FOR_DELETE => "is being removed: it is gone when no program looks at it any more (close the list of services)",
        ERROR_SERVICE_ALREADY_RUNNING => "is running already",
        ERROR_SERVICE_NOT_ACTIVE => "is not running",
        ERROR_SERVICE_CANNOT_ACCEPT_CTRL | ERROR_INVALID_SERVICE_CONTROL => "is just starting or ending, and hears nothing; \"service remove\" ends it at once",
        ERROR_SERVICE_DISABLED => "is disabled",
        ERROR_SERVICE_REQUEST_TIMEOUT => "was started, and did not say so in time",
        _ => return format!("the service \"{name}\": {e}"),
    };
    format!("the service \"{name}\" {text}")
}

fn manager(rights: u32) -> io::Result<Handle> {
    // SAFETY: no names are this machine's, and its services.
    Handle::of(unsafe { OpenSCManagerW(std::ptr::null(), std::ptr::null(), rights) })
}

/// A service of this program's: others have their own programs to be told something by.
fn open(name: &str, rights: u32) -> Result<Handle, String> {
    let failed = |e: io::Error| why(name, &e);
    let manager = manager(SC_MANAGER_CONNECT).map_err(failed)?;
    let rights = rights | SERVICE_QUERY_CONFIG | SERVICE_QUERY_STATUS;
    // SAFETY: the manager's handle is open, and the name ends in a zero.
    let service = unsafe { OpenServiceW(manager.0, wide(name).as_ptr(), rights) };
    let service = Handle::of(service).map_err(failed)?;
    match words::is_ours(&command_line(&service).map_err(failed)?) {
        true => Ok(service),
        false => Err(format!("the service \"{name}\" is another program's")),
    }
}

fn command_line(service: &Handle) -> io::Result<Vec<u16>> {
    let mut needed = 0;
    // SAFETY: without room the call says how much it needs.
    unsafe { QueryServiceConfigW(service.0, std::ptr::null_mut(), 0, &mut needed) };
    let words = (needed as usize).div_ceil(size_of::<usize>()).max(1);
    let mut room = vec![0usize; words];
    let config: *mut QUERY_SERVICE_CONFIGW = room.as_mut_ptr().cast();
    let bytes = u32::try_from(words * size_of::<usize>()).unwrap_or(0);
    // SAFETY: the room has that many bytes, is aligned for pointers, and outlives what points into it.
    unsafe {
        done(QueryServiceConfigW(service.0, config, bytes, &mut needed))?;
        let text = (*config).lpBinaryPathName;
        let len = (0..).take_while(|at| *text.add(*at) != 0).count();
        Ok(std::slice::from_raw_parts(text, len).to_vec())
    }
}

/// Makes a service that starts with the machine. Answers what of its settings the system did not take.
///
/// # Errors
///
/// There is none then.
pub fn install(new: &New<'_>) -> Result<Vec<String>, String> {
    if let Some(text) = words::bad_name(new.name) {
        return Err(text);
    }
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let program: Vec<u16> = program.as_os_str().encode_wide().collect();
    let behind: Vec<Vec<u16>> = new.words.iter().map(|w| w.encode_wide().collect()).collect();
    let mut line = words::command_line(&program, &behind);
    if let Some(text) = words::refused(&line) {
        return Err(format!(
            "the command line would have {text}: {}",
            String::from_utf16_lossy(&line)
        ));
    }
    line.push(0);
    let failed = |e: io::Error| why(new.name, &e);
    let manager = manager(SC_MANAGER_CONNECT | SC_MANAGER_CREATE_SERVICE).map_err(failed)?;
    let service = create(&manager, new, &line).map_err(failed)?;
    if let Err(text) = events::add(new.name) {
        // SAFETY: the handle is open, with all rights.
        unsafe { DeleteService(service.0) };
        return Err(text);
    }
    let settled = settle(&service, new.description);
    let untold = settled.into_iter().filter_map(|(what, done)| done.err().map(|e| (what, e)));
    Ok(untold.map(|(what, e)| format!("{what} could not be set: {e}")).collect())
}

fn create(manager: &Handle, new: &New<'_>, line: &[u16]) -> io::Result<Handle> {
    let (name, title) = (wide(new.name), wide(new.title));
    let (needs, account) = (wide(NEEDS), wide(ACCOUNT));
    // SAFETY: the manager's handle is open; all texts end in a zero, the list in two, and they outlive the call.
    Handle::of(unsafe {
        CreateServiceW(
            manager.0,
            name.as_ptr(),
            title.as_ptr(),
            SERVICE_ALL_ACCESS,
            SERVICE_WIN32_OWN_PROCESS,
            SERVICE_AUTO_START,
            SERVICE_ERROR_NORMAL,
            line.as_ptr(),
            std::ptr::null(),
            std::ptr::null_mut(),
            needs.as_ptr(),
            account.as_ptr(),
            std::ptr::null(),
        )
    })
}

/// All that a service has besides its name and its program.
fn settle(service: &Handle, description: &str) -> [(&'static str, io::Result<()>); 5] {
    let (mut description, mut privileges) = (wide(description), wide(PRIVILEGES));
    let mut actions = RESTARTS_MS.map(|ms| SC_ACTION { Type: SC_ACTION_RESTART, Delay: ms });
    let described = SERVICE_DESCRIPTIONW { lpDescription: description.as_mut_ptr() };
    // Only of a process that is gone without a word: what it says itself, of a configuration above all, a further start
    // does not mend.
    let recovery = SERVICE_FAILURE_ACTIONSW {
        dwResetPeriod: FORGOTTEN_SECS,
        lpRebootMsg: std::ptr::null_mut(),
        lpCommand: std::ptr::null_mut(),
        cActions: actions.len() as u32,
        lpsaActions: actions.as_mut_ptr(),
    };
    let shutdown = SERVICE_PRESHUTDOWN_INFO { dwPreshutdownTimeout: running::ends_within_ms() };
    // A name for it alone, by which files may be given to it and to no other service.
    let own = SERVICE_SID_INFO { dwServiceSidType: SERVICE_SID_TYPE_UNRESTRICTED };
    let rights =
        SERVICE_REQUIRED_PRIVILEGES_INFOW { pmszRequiredPrivileges: privileges.as_mut_ptr() };
    [
        ("the description", set(service, SERVICE_CONFIG_DESCRIPTION, &described)),
        ("restarts after a crash", set(service, SERVICE_CONFIG_FAILURE_ACTIONS, &recovery)),
        ("the time to end in", set(service, SERVICE_CONFIG_PRESHUTDOWN_INFO, &shutdown)),
        ("an identity of its own", set(service, SERVICE_CONFIG_SERVICE_SID_INFO, &own)),
        ("few privileges", set(service, SERVICE_CONFIG_REQUIRED_PRIVILEGES_INFO, &rights)),
    ]
}

fn set<T>(service: &Handle, what: SERVICE_CONFIG, value: &T) -> io::Result<()> {
    // SAFETY: the handle is open; the value is what that setting takes, and what it points to lives in the caller.
    done(unsafe { ChangeServiceConfig2W(service.0, what, std::ptr::from_ref(value).cast()) })
}

fn status(service: &Handle) -> io::Result<SERVICE_STATUS_PROCESS> {
    let mut status = SERVICE_STATUS_PROCESS::default();
    let (bytes, mut needed) = (size_of::<SERVICE_STATUS_PROCESS>() as u32, 0);
    let to = std::ptr::from_mut(&mut status).cast();
    // SAFETY: there is room for what the call writes.
    done(unsafe {
        QueryServiceStatusEx(service.0, SC_STATUS_PROCESS_INFO, to, bytes, &mut needed)
    })?;
    Ok(status)
}

/// Waits for that state as long as the service shows that it gets on.
fn wait(name: &str, service: &Handle, wanted: u32) -> Result<(), String> {
    let mut seen = (0, 0);
    let mut since = Instant::now();
    loop {
        let now = status(service).map_err(|e| why(name, &e))?;
        if now.dwCurrentState == wanted {
            return Ok(());
        }
        if now.dwCurrentState == SERVICE_STOPPED {
            return Err(ended(name, &now));
        }
        let sign = (now.dwCurrentState, now.dwCheckPoint);
        if sign != seen {
            (seen, since) = (sign, Instant::now());
        }
        if since.elapsed() > SILENCE.max(Duration::from_millis(now.dwWaitHint.into())) {
            let what = if wanted == SERVICE_STOPPED { "end" } else { "start" };
            return Err(format!(
                "the service \"{name}\" does not {what}: it shows no progress; its process is {} \
                 (taskkill /F /PID {} ends it)",
                now.dwProcessId, now.dwProcessId
            ));
        }
        std::thread::sleep(LOOK);
    }
}

/// What is to be said of a service that was to run.
fn ended(name: &str, status: &SERVICE_STATUS_PROCESS) -> String {
    let code = match status.dwWin32ExitCode {
        ERROR_SERVICE_SPECIFIC_ERROR => status.dwServiceSpecificExitCode,
        code => code,
    };
    format!(
        "the service \"{name}\" has ended with code {code}; why is in the event log \
         (Windows Logs, Application, source \"{name}\") and in its error log"
    )
}

/// Starts a service, and waits until it listens.
///
/// # Errors
///
/// It does not.
pub fn start(name: &str) -> Result<(), String> {
    let service = open(name, SERVICE_START)?;
    // SAFETY: the handle is open; there are no arguments.
    let started = done(unsafe { StartServiceW(service.0, 0, std::ptr::null()) });
    started.map_err(|e| why(name, &e))?;
    wait(name, &service, SERVICE_RUNNING)
}

fn control(name: &str, service: &Handle, code: u32) -> Result<(), String> {
    tell(service, code).map_err(|e| why(name, &e))
}

fn tell(service: &Handle, code: u32) -> io::Result<()> {
    let mut status = SERVICE_STATUS::default();
    // SAFETY: the handle is open, and there is room for the answer.
    done(unsafe { ControlService(service.0, code, &mut status) })
}

/// Whether a service just starts or ends. Wine has the second code for it.
fn hears_nothing(e: &io::Error) -> bool {
    let code = e.raw_os_error().unwrap_or(0).unsigned_abs();
    matches!(code, ERROR_SERVICE_CANNOT_ACCEPT_CTRL | ERROR_INVALID_SERVICE_CONTROL)
}

/// Has a service end when it has served what it serves, and waits until it has ended.
///
/// # Errors
///
/// It runs still, or did not run.
pub fn stop(name: &str) -> Result<(), String> {
    let service = open(name, SERVICE_STOP)?;
    control(name, &service, SERVICE_CONTROL_STOP)?;
    wait(name, &service, SERVICE_STOPPED)
}

/// Has a service read its configuration again.
///
/// # Errors
///
/// It was not told.
pub fn reload(name: &str) -> Result<(), String> {
    let service = open(name, SERVICE_PAUSE_CONTINUE)?;
    control(name, &service, SERVICE_CONTROL_PARAMCHANGE)
}

/// Has a service open its logs again.
///
/// # Errors
///
/// It was not told.
pub fn reopen(name: &str) -> Result<(), String> {
    let service = open(name, SERVICE_USER_DEFINED_CONTROL)?;
    control(name, &service, REOPEN)
}

/// Has a service hand over to the program that is there now.
///
/// # Errors
///
/// It was not told.
pub fn upgrade(name: &str) -> Result<(), String> {
    let service = open(name, SERVICE_USER_DEFINED_CONTROL)?;
    control(name, &service, UPGRADE)
}

/// Removes a service; one that runs is stopped first.
///
/// # Errors
///
/// It is there still, or its source of events is.
pub fn remove(name: &str) -> Result<(), String> {
    let service = open(name, SERVICE_STOP | DELETE)?;
    let now = status(&service).map_err(|e| why(name, &e))?;
    // Of a process that has died unseen the system says what it said last.
    let pid = i32::try_from(now.dwProcessId).ok().filter(|pid| *pid != 0);
    let has_died = pid.is_some_and(|pid| !super::process::runs(pid));
    if now.dwCurrentState != SERVICE_STOPPED && !has_died {
        match (tell(&service, SERVICE_CONTROL_STOP), pid) {
            // It has not come so far that it would hear, and may never.
            (Err(e), Some(pid)) if hears_nothing(&e) => super::process::end_at_once(pid)
                .map_err(|e| format!("process {pid} of the service \"{name}\": {e}"))?,
            (told, _) => {
                told.map_err(|e| why(name, &e))?;
                wait(name, &service, SERVICE_STOPPED)?;
            }
        }
    }
    // SAFETY: the handle is open, with that right.
    done(unsafe { DeleteService(service.0) }).map_err(|e| why(name, &e))?;
    events::remove(name)
}
