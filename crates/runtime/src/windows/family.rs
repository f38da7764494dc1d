//! Processes that this one has started of its own program: what a master's fork is elsewhere. A serving process ends with
//! its master (a job object of that, and the end of the pipe between them); a new program that takes this one's place does
//! not. Each knows by a variable what it is there for, and hears of the rest by its standard input.

use super::handover::{self, End, Inbox, Outbox};
use super::signals::{self, Signal};
use super::sockets::{OwnedFd, UnixStream};
use super::start::{self, Launch};
use crate::paths;
use crate::process::{Exit, Started};
use crate::program::words;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, PipeReader};
use std::os::windows::io::{AsRawHandle, FromRawHandle, OwnedHandle};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use windows_sys::Win32::Foundation::{INVALID_HANDLE_VALUE, WAIT_TIMEOUT};
use windows_sys::Win32::System::Console::{
    GetStdHandle, SetStdHandle, STD_ERROR_HANDLE, STD_INPUT_HANDLE, STD_OUTPUT_HANDLE,
};
use windows_sys::Win32::System::Diagnostics::ToolHelp::{
    CreateToolhelp32Snapshot, Process32FirstW, Process32NextW, PROCESSENTRY32W, TH32CS_SNAPPROCESS,
};
use windows_sys::Win32::System::JobObjects::IsProcessInJob;
use windows_sys::Win32::System::Threading::{
    GetExitCodeProcess, OpenProcess, TerminateProcess, WaitForSingleObject,
    CREATE_NEW_PROCESS_GROUP, INFINITE, PROCESS_QUERY_INFORMATION, PROCESS_SYNCHRONIZE,
};

/// What a process of this program was started for, and by whom: `serves 123`.
const VARIABLE: &str = "WEIR_PROCESS";
const SERVES: &str = "serves";
const SUCCEEDS: &str = "succeeds";
/// What one that is killed has ended with.
const KILLED: u32 = 137;

/// What this process was started for.
struct Origin {
    serves: bool,
    parent: u32,
    /// By which it is seen whether that still runs.
    handle: Option<OwnedHandle>,
}

static ORIGIN: OnceLock<Option<Origin>> = OnceLock::new();

/// It is found out once, before there is a second thread, and no program that this one starts is to think it of itself.
fn origin() -> Option<&'static Origin> {
    let find = || {
        let text = std::env::var(VARIABLE).ok()?;
        std::env::remove_var(VARIABLE);
        let (what, parent) = text.split_once(' ')?;
        let parent = parent.parse().ok()?;
        // SAFETY: numbers; the handle, if there is one, is nobody else's.
        let handle = unsafe {
            match OpenProcess(PROCESS_SYNCHRONIZE, 0, parent) {
                none if none.is_null() => None,
                handle => Some(OwnedHandle::from_raw_handle(handle)),
            }
        };
        Some(Origin { serves: what == SERVES, parent, handle })
    };
    ORIGIN.get_or_init(find).as_ref()
}

/// The process of this program that has started this one, while it runs; otherwise 0.
pub(super) fn parent_pid() -> u32 {
    let runs = |o: &&Origin| o.handle.as_ref().is_some_and(|h| !has_ended(h));
    origin().filter(runs).map_or(0, |o| o.parent)
}

/// The number by which the server that this process is part of is told something.
pub(super) fn main_pid() -> u32 {
    origin().filter(|o| o.serves).map_or_else(std::process::id, |o| o.parent)
}

/// Who has started a process, if it runs and that is known.
pub(super) fn parent_of(pid: u32) -> io::Result<Option<u32>> {
    // SAFETY: the entry says its own size, and has room; the handle is nobody else's.
    unsafe {
        let all = match CreateToolhelp32Snapshot(TH32CS_SNAPPROCESS, 0) {
            INVALID_HANDLE_VALUE => return Err(io::Error::last_os_error()),
            all => OwnedHandle::from_raw_handle(all),
        };
        let size = size_of::<PROCESSENTRY32W>() as u32;
        let mut one = PROCESSENTRY32W { dwSize: size, ..std::mem::zeroed() };
        let mut is_there = Process32FirstW(all.as_raw_handle(), &mut one);
        while is_there != 0 {
            if one.th32ProcessID == pid {
                return Ok(Some(one.th32ParentProcessID));
            }
            is_there = Process32NextW(all.as_raw_handle(), &mut one);
        }
    }
    Ok(None)
}

/// Whether this process serves under a master that has started it.
pub(super) fn is_serving() -> bool {
    origin().is_some_and(|o| o.serves)
}

/// Whether this process was started by another of its program.
pub fn is_started() -> bool {
    origin().is_some()
}

fn has_ended(process: &OwnedHandle) -> bool {
    // SAFETY: an open handle, and no waiting.
    unsafe { WaitForSingleObject(process.as_raw_handle(), 0) != WAIT_TIMEOUT }
}

/// Standard input, which is nobody's from now on.
fn standard_input() -> io::Result<File> {
    // SAFETY: the handle is this process' alone once the system has none under that name any more.
    unsafe {
        let handle = GetStdHandle(STD_INPUT_HANDLE);
        if handle.is_null() || SetStdHandle(STD_INPUT_HANDLE, std::ptr::null_mut()) == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        Ok(File::from(OwnedHandle::from_raw_handle(handle)))
    }
}

/// The way from the master, in a process that serves under one. To be called once.
pub fn own_link() -> Option<UnixStream> {
    origin().filter(|o| o.serves)?;
    let inbox = Inbox::begin(standard_input().ok()?).ok()?;
    let _ = INBOX.set(Arc::clone(&inbox));
    Some(UnixStream(End::Receives(inbox)))
}

/// What its master says to this process.
static INBOX: OnceLock<Arc<Inbox>> = OnceLock::new();

/// Whether the master has said something, or is gone.
pub(super) fn has_word() -> bool {
    INBOX.get().is_some_and(|inbox| inbox.is_ready())
}

/// What a program that takes another's place was handed by that, to be called once.
pub(crate) fn handed() -> Option<(Vec<u8>, Vec<OwnedFd>)> {
    origin().filter(|o| !o.serves)?;
    handover::read_one(&mut standard_input().ok()?).ok()
}

/// A process that this one has started.
struct Child {
    pid: u32,
    process: OwnedHandle,
    /// It is another program, which knows of no events.
    is_other: bool,
    /// What it is told by is there before it is, so that nothing said early is lost.
    _events: Vec<OwnedHandle>,
}

static CHILDREN: Mutex<Vec<Child>> = Mutex::new(Vec::new());

fn children() -> MutexGuard<'static, Vec<Child>> {
    CHILDREN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What ends with this process.
fn job() -> Option<&'static OwnedHandle> {
    static JOB: OnceLock<Option<OwnedHandle>> = OnceLock::new();
    JOB.get_or_init(|| start::job().ok()).as_ref()
}

/// Starts this program again with the same words.
fn start(what: &str, input: PipeReader) -> io::Result<i32> {
    let program = std::env::current_exe()?;
    let name = paths::bytes(&program);
    let own = super::title::arguments().iter().skip(1).map(paths::bytes);
    let arguments: Vec<&[u8]> = std::iter::once(name).chain(own).collect();
    let origin = format!("{VARIABLE}={what} {}", std::process::id());
    let launch = Launch {
        file: &program,
        line: words::line(&arguments)?,
        variables: start::variables(true, &[origin.as_bytes()])?,
        ends: [
            input.as_raw_handle(),
            start::standard(STD_OUTPUT_HANDLE),
            start::standard(STD_ERROR_HANDLE),
        ],
        flags: 0,
        // Without it a serving process still sees the end of its pipe.
        job: if what == SERVES || crate::service::is_main() { job() } else { None },
    };
    let (pid, process) = launch.start()?;
    keep(pid, process, false)?;
    i32::try_from(pid).map_err(io::Error::other)
}

/// Starts a program that reads that pipe; it goes on as long as it likes. Its error output goes nowhere, and of the console's
/// signals it hears none.
pub(crate) fn start_reader(
    input: &PipeReader,
    program: &Path,
    arguments: &[OsString],
) -> io::Result<i32> {
    let file = start::found(paths::bytes(program))?;
    let nowhere = File::options().read(true).write(true).open(crate::files::NOWHERE)?;
    let output = match start::standard(STD_OUTPUT_HANDLE) {
        none if none.is_null() => nowhere.as_raw_handle(),
        output => output,
    };
    let words = arguments.iter().map(|word| paths::bytes(word));
    let words: Vec<&[u8]> = std::iter::once(paths::bytes(program)).chain(words).collect();
    let launch = Launch {
        file: &file,
        line: words::line(&words)?,
        variables: start::variables(true, &[])?,
        ends: [input.as_raw_handle(), output, nowhere.as_raw_handle()],
        flags: CREATE_NEW_PROCESS_GROUP,
        job: None,
    };
    let (pid, process) = launch.start()?;
    keep(pid, process, true)?;
    i32::try_from(pid).map_err(io::Error::other)
}

/// Has [`reap`] tell of its end.
fn keep(pid: u32, process: OwnedHandle, is_other: bool) -> io::Result<()> {
    let events = if is_other { Vec::new() } else { signals::events_of(pid)? };
    let watched = process.try_clone()?;
    children().push(Child { pid, process, is_other, _events: events });
    std::thread::Builder::new().name("children".into()).spawn(move || {
        // SAFETY: a handle of this thread's own.
        unsafe { WaitForSingleObject(watched.as_raw_handle(), INFINITE) };
        signals::tell(Signal::Chld);
    })?;
    Ok(())
}

/// Whether there is a process of that number, as far as that can be told.
pub fn runs(pid: i32) -> bool {
    // SAFETY: numbers; the handle, if there is one, is nobody else's.
    unsafe {
        match OpenProcess(PROCESS_SYNCHRONIZE, 0, pid.unsigned_abs()) {
            none if none.is_null() => {
                io::Error::last_os_error().kind() == io::ErrorKind::PermissionDenied
            }
            process => !has_ended(&OwnedHandle::from_raw_handle(process)),
        }
    }
}

/// Has [`reap`] tell of the end of a process that is no child, but a child's, or one of its.
///
/// # Errors
///
/// The system's, as of one that has ended; or it is nobody's who ends with this process.
pub fn watch(pid: i32) -> io::Result<()> {
    let job = job().ok_or(io::ErrorKind::NotFound)?;
    // Wine wants more of a right than Windows for the question.
    let rights = PROCESS_SYNCHRONIZE | PROCESS_QUERY_INFORMATION;
    let mut is_ours = 0;
    // SAFETY: numbers; the handle, if there is one, is nobody else's; the job's is open, and the answer has its room.
    let process = unsafe {
        let process = match OpenProcess(rights, 0, pid.unsigned_abs()) {
            none if none.is_null() => return Err(io::Error::last_os_error()),
            process => OwnedHandle::from_raw_handle(process),
        };
        match IsProcessInJob(process.as_raw_handle(), job.as_raw_handle(), &mut is_ours) {
            0 => return Err(io::Error::last_os_error()),
            _ => process,
        }
    };
    match is_ours {
        0 => Err(io::ErrorKind::NotFound.into()),
        _ => keep(pid.unsigned_abs(), process, false),
    }
}

/// Starts a serving process that is told the rest by the other end of that link.
///
/// # Errors
///
/// The system's.
pub fn start_serving(link: UnixStream) -> io::Result<Started> {
    let End::Lies(pipe) = link.0 else { return super::unsupported() };
    start(SERVES, pipe).map(Started::Other)
}

/// Starts a program that takes this one's place, and tells it that.
pub(crate) fn start_successor(body: &[u8], fds: Vec<OwnedFd>) -> io::Result<i32> {
    let (ours, theirs) = crate::process::socket_pair()?;
    let End::Lies(pipe) = theirs.0 else { return super::unsupported() };
    let mut outbox = Outbox::new(ours)?;
    let pid = start(SUCCEEDS, pipe)?;
    outbox.goes_to(pid);
    outbox.send(body, fds, 0)?;
    Ok(pid)
}

/// The next child that has ended, without waiting.
pub(super) fn reap() -> Option<(i32, Exit)> {
    let mut all = children();
    let at = all.iter().position(|c| has_ended(&c.process))?;
    let child = all.remove(at);
    let mut code = 0;
    // SAFETY: an open handle, and room for the number.
    unsafe { GetExitCodeProcess(child.process.as_raw_handle(), &mut code) };
    Some((child.pid as i32, Exit::Code(code as i32)))
}

/// Whether that is a child that is of another program, and not told anything by events.
pub(super) fn is_other(pid: u32) -> bool {
    children().iter().any(|c| c.pid == pid && c.is_other)
}

/// Ends a child at once.
pub(super) fn kill(pid: u32) -> io::Result<()> {
    let all = children();
    let child = all.iter().find(|c| c.pid == pid).ok_or(io::ErrorKind::NotFound)?;
    // SAFETY: an open handle.
    match unsafe { TerminateProcess(child.process.as_raw_handle(), KILLED) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}
