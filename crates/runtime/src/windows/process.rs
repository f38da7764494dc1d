//! Processes: nobody is root and nothing forks; a master starts the program again to serve ([`super::family`]).

pub use super::family::{is_started, own_link, runs, start_serving, watch};
use super::handover::End;
use super::sockets::{OwnedFd, RawFd, UnixStream};
use super::{family, unsupported};
use std::io;
use windows_sys::Win32::Foundation::{CloseHandle, FILETIME, HANDLE};
use windows_sys::Win32::System::SystemInformation::{ComputerNameDnsHostname, GetComputerNameExW};
use windows_sys::Win32::System::Threading::{
    GetCurrentThread, GetCurrentThreadId, GetThreadTimes, OpenProcess, OpenThread,
    SetThreadAffinityMask, SetThreadPriority, TerminateProcess, WaitForSingleObject,
    PROCESS_SYNCHRONIZE, PROCESS_TERMINATE, THREAD_PRIORITY_ABOVE_NORMAL,
    THREAD_PRIORITY_BELOW_NORMAL, THREAD_PRIORITY_HIGHEST, THREAD_PRIORITY_LOWEST,
    THREAD_PRIORITY_NORMAL, THREAD_QUERY_INFORMATION,
};

/// Where relative names begin if nobody says: in the current directory, as in nginx, or in the program's if that has
/// the configuration and the current one has none.
pub fn home(current: &std::path::Path, conf: &str) -> Option<std::path::PathBuf> {
    let program = std::env::current_exe().ok();
    let beside = program.as_deref().and_then(std::path::Path::parent);
    let beside = beside.filter(|dir| !current.join(conf).exists() && dir.join(conf).exists());
    Some(beside.unwrap_or(current).to_path_buf())
}

/// Whether a process may become another user.
pub const HAS_USERS: bool = false;

pub fn is_root() -> bool {
    false
}

/// Ends a process, which need not be of this program's, and waits until it has ended.
pub(super) fn end_at_once(pid: i32) -> io::Result<()> {
    const WITHIN_MS: u32 = 10_000;
    // SAFETY: the handle, if there is one, is closed again, and used by these calls alone.
    unsafe {
        let process = OpenProcess(PROCESS_TERMINATE | PROCESS_SYNCHRONIZE, 0, pid.unsigned_abs());
        if process.is_null() {
            return Err(io::Error::last_os_error());
        }
        let told = match TerminateProcess(process, 1) {
            0 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        };
        if told.is_ok() {
            WaitForSingleObject(process, WITHIN_MS);
        }
        CloseHandle(process);
        told
    }
}

/// The effective user: there are no numbers for them.
pub fn uid() -> u32 {
    0
}

/// The user of the process at the other end.
pub fn peer_uid(_: &UnixStream) -> io::Result<u32> {
    unsupported()
}

/// Whether it is a socket that was made with root's rights.
pub fn is_roots_socket(_: &OwnedFd) -> bool {
    false
}

pub fn pid() -> u32 {
    std::process::id()
}

/// The process of this program that has started this one, while it runs.
pub fn parent_pid() -> u32 {
    family::parent_pid()
}

/// Whether a master may have another process serve: any may.
pub fn may_be_master() -> bool {
    true
}

/// Whether a serving process goes on after its master has died: a job ends it.
pub const OUTLIVES_MASTER: bool = false;

/// This machine's name, as nginx has it in lower case.
pub fn hostname() -> String {
    let (mut name, mut len) = ([0u16; 256], 256);
    // SAFETY: the buffer has the length that is passed, and the call tells how much of it is filled.
    match unsafe { GetComputerNameExW(ComputerNameDnsHostname, name.as_mut_ptr(), &mut len) } {
        0 => "localhost".into(),
        _ => String::from_utf16_lossy(&name[..(len as usize).min(name.len())]).to_lowercase(),
    }
}

/// Sets a variable of the environment, also for what is written in C, which has a list of its own there.
pub fn set_variable(name: &str, value: &str) {
    unsafe extern "C" {
        fn _putenv_s(name: *const std::ffi::c_char, value: *const std::ffi::c_char) -> i32;
    }
    std::env::set_var(name, value);
    if let (Ok(name), Ok(value)) = (std::ffi::CString::new(name), std::ffi::CString::new(value)) {
        // SAFETY: both end in a zero and outlive the call, which copies them.
        unsafe { _putenv_s(name.as_ptr(), value.as_ptr()) };
    }
}

/// Takes a variable out of the environment, and out of that list.
pub fn remove_variable(name: &std::ffi::OsStr) {
    use std::os::windows::ffi::OsStrExt;
    unsafe extern "C" {
        fn _wputenv_s(name: *const u16, value: *const u16) -> i32;
    }
    std::env::remove_var(name);
    let name: Vec<u16> = name.encode_wide().chain([0]).collect();
    // What the system keeps of drives (`=C:`) is in no other list.
    if !name.contains(&u16::from(b'=')) {
        // SAFETY: both end in a zero and outlive the call, which copies them.
        unsafe { _wputenv_s(name.as_ptr(), [0].as_ptr()) };
    }
}

/// A serving process that was started.
pub enum Started {
    /// It is this one, and has this way from its master.
    This(UnixStream),
    /// It is to be told all that it needs.
    Other(i32),
}

/// The call that starts one.
pub const START: &str = "CreateProcess()";

/// Whether a process that was started is to be told all that it needs.
pub const IS_TOLD: bool = true;

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// The next child that has ended, without waiting.
pub fn reap() -> Option<(i32, Exit)> {
    family::reap()
}

/// A program stays at its console, or is started as a service.
pub fn daemonize() -> io::Result<()> {
    Ok(())
}

/// Standard error stays where it is.
pub fn redirect_stderr(_: RawFd) {}

/// A user and group by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

/// Nobody is looked up: no process becomes another user.
pub fn lookup(user: &str, _: Option<&str>) -> Result<Identity, String> {
    Ok(Identity { name: user.to_string(), uid: 0, gid: 0 })
}

/// Stays who it is.
pub fn become_user(_: &Identity, _: bool) -> io::Result<()> {
    Ok(())
}

/// What a resource is limited to now, and how far that may be raised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub soft: u64,
    pub hard: u64,
}

/// Sockets and files are limited by memory alone.
pub fn nofile() -> Limit {
    Limit { soft: 1 << 24, hard: 1 << 24 }
}

/// There are no core files.
pub fn core() -> Limit {
    Limit { soft: 0, hard: 0 }
}

/// There is no limit to be set.
pub fn set_nofile(_: i32, _: Limit) -> io::Result<()> {
    unsupported()
}

/// There is no limit to be set.
pub fn set_core(_: i32, _: Limit) -> io::Result<()> {
    unsupported()
}

/// Scheduling priority of this thread, by nice's numbers.
pub fn set_priority(nice: i32) -> io::Result<()> {
    let priority = match nice {
        ..=-10 => THREAD_PRIORITY_HIGHEST,
        -9..=-1 => THREAD_PRIORITY_ABOVE_NORMAL,
        0 => THREAD_PRIORITY_NORMAL,
        1..=9 => THREAD_PRIORITY_BELOW_NORMAL,
        10.. => THREAD_PRIORITY_LOWEST,
    };
    // SAFETY: the thread's own pseudo handle, and a number.
    match unsafe { SetThreadPriority(GetCurrentThread(), priority) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// Pins this thread to the CPUs of the mask, of which the system takes the first 64.
pub fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    let mask = cpus.iter().filter(|c| **c < 64).fold(0usize, |mask, c| mask | 1 << c);
    // SAFETY: the thread's own pseudo handle, and a number.
    match unsafe { SetThreadAffinityMask(GetCurrentThread(), mask) } {
        0 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// The way to a process that is about to be started, and its end of it.
pub fn socket_pair() -> io::Result<(UnixStream, UnixStream)> {
    let (theirs, ours) = io::pipe()?;
    let ours = End::Sends(std::sync::Mutex::new(Some(ours)));
    Ok((UnixStream(ours), UnixStream(End::Lies(theirs))))
}

/// The system's number of the thread that asks.
pub fn thread_id() -> u64 {
    // SAFETY: it takes nothing and cannot fail.
    unsafe { GetCurrentThreadId() }.into()
}

/// What a thread's time has gone into.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadTimes {
    /// It had a processor.
    pub busy_us: u64,
    /// It could have gone on, and had none: the system does not tell.
    pub queued_us: u64,
}

/// Since it began, of a thread of this process by its number; nothing if there is none.
pub fn thread_times(id: u64) -> Option<ThreadTimes> {
    let id = u32::try_from(id).ok()?;
    // SAFETY: a number is given; a handle that comes back is closed again, and not used behind that.
    let busy_100ns = unsafe {
        let thread = OpenThread(THREAD_QUERY_INFORMATION, 0, id);
        if thread.is_null() {
            return None;
        }
        let busy = busy_100ns(thread);
        CloseHandle(thread);
        busy
    };
    busy_100ns.map(|n| ThreadTimes { busy_us: n / 10, queued_us: 0 })
}

/// What a thread has used of the processor, in hundreds of nanoseconds; nothing if its handle is none or may not be asked.
pub(crate) fn busy_100ns(thread: HANDLE) -> Option<u64> {
    let mut times = [FILETIME { dwLowDateTime: 0, dwHighDateTime: 0 }; 4];
    let [begun, ended, kernel, user] = &mut times;
    // SAFETY: four values of this frame that the call fills; a wrong handle is refused.
    let is_known = unsafe { GetThreadTimes(thread, begun, ended, kernel, user) != 0 };
    let number = |t: &FILETIME| u64::from(t.dwHighDateTime) << 32 | u64::from(t.dwLowDateTime);
    is_known.then(|| number(&times[2]) + number(&times[3]))
}
