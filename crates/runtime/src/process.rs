//! Processes: fork, daemon, identity, limits, affinity.
//!
//! Windows: nobody is root and nothing forks: a master starts the program again, and tells it what a fork would have;
//! limits are without end.

use crate::sockets::{AsRawFd, OwnedFd, RawFd, UnixStream};
use std::ffi::CString;
use std::io;

fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

/// Where relative names begin if nobody says, other than the program was built with: nowhere. Windows: in the current
/// directory, as in nginx there, or in the program's if that has the configuration and the current one has none.
pub fn home(_: &std::path::Path, _: &str) -> Option<std::path::PathBuf> {
    None
}

/// Whether a process may become another user.
pub const HAS_USERS: bool = true;

pub fn is_root() -> bool {
    // SAFETY: reads a number.
    unsafe { libc::geteuid() == 0 }
}

/// The effective user.
pub fn uid() -> u32 {
    // SAFETY: reads a number.
    unsafe { libc::geteuid() }
}

/// The user of the process at the other end.
#[cfg(target_os = "linux")]
pub fn peer_uid(link: &UnixStream) -> io::Result<u32> {
    let mut who = libc::ucred { pid: 0, uid: 0, gid: 0 };
    let mut len = std::mem::size_of_val(&who) as libc::socklen_t;
    let (fd, value) = (link.as_raw_fd(), (&raw mut who).cast());
    // SAFETY: the value and its length are valid for the call.
    check(unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_PEERCRED, value, &mut len) })?;
    Ok(who.uid)
}

/// Whether it is a socket that was made with root's rights.
pub fn is_roots_socket(fd: &OwnedFd) -> bool {
    use rustix::fs::{fstat, FileType};
    let is_socket = |mode| FileType::from_raw_mode(mode) == FileType::Socket;
    fstat(fd).is_ok_and(|s| s.st_uid == 0 && is_socket(s.st_mode))
}

pub fn pid() -> u32 {
    std::process::id()
}

/// The process that started this one, or the one that has taken over its children.
pub fn parent_pid() -> u32 {
    std::os::unix::process::parent_id()
}

/// This machine's name.
pub fn hostname() -> String {
    std::fs::read_to_string("/proc/sys/kernel/hostname")
        .map(|s| s.trim().to_string())
        .unwrap_or_else(|_| "localhost".into())
}

/// Sets a variable of the environment, also for what is written in C.
pub fn set_variable(name: &str, value: &str) {
    std::env::set_var(name, value);
}

/// Takes a variable out of the environment, also for what is written in C.
pub fn remove_variable(name: &std::ffi::OsStr) {
    std::env::remove_var(name);
}

enum Fork {
    Parent { child: i32 },
    Child,
}

/// Forks. Only while the process has one thread; the caller is the master, which starts none.
fn fork() -> io::Result<Fork> {
    // SAFETY: the process has a single thread, so the child may do everything the parent may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent { child }),
    }
}

/// Whether a master may have another process serve: it has root's rights then, which that gives up.
pub fn may_be_master() -> bool {
    is_root()
}

/// Whether a serving process goes on after its master has died.
pub const OUTLIVES_MASTER: bool = true;

/// A serving process that was started.
pub enum Started {
    /// It is this one, and has this way from its master.
    This(UnixStream),
    Other(i32),
}

/// The call that starts one.
pub const START: &str = "fork()";

/// Whether a process that was started is to be told all that it needs.
pub const IS_TOLD: bool = false;

/// Starts a serving process with this end of its way from its master. Windows: another process.
///
/// # Errors
///
/// The system's.
pub fn start_serving(link: UnixStream) -> io::Result<Started> {
    Ok(match fork()? {
        Fork::Parent { child } => Started::Other(child),
        Fork::Child => Started::This(link),
    })
}

/// The way from its master, in a process that the master has started rather than forked: on Windows.
pub fn own_link() -> Option<UnixStream> {
    None
}

/// Whether there is a process of that number, as far as that can be told.
pub fn runs(pid: i32) -> bool {
    // SAFETY: kill takes two numbers, and sends nothing.
    let is_there = unsafe { libc::kill(pid, 0) } == 0;
    is_there || io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}

/// Has [`reap`] tell of the end of a process that is no child. Windows alone has services, for which that is.
///
/// # Errors
///
/// In any case.
pub fn watch(_: i32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

/// Whether this process was started by another of its program to be part of the same server. Nobody is told so here.
pub fn is_started() -> bool {
    false
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// The next child that has ended, without waiting. Those of [`crate::children`] are told to who waits for them.
pub fn reap() -> Option<(i32, Exit)> {
    #[cfg(target_os = "linux")]
    return crate::children::reap_any(reap_one);
    #[cfg(not(target_os = "linux"))]
    reap_one(-1)
}

/// Whether that child, or any by -1, has ended, without waiting.
pub(crate) fn reap_one(pid: i32) -> Option<(i32, Exit)> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    let pid = unsafe { libc::waitpid(pid, &mut status, libc::WNOHANG) };
    if pid <= 0 {
        return None;
    }
    let exit = if libc::WIFSIGNALED(status) {
        Exit::Signal(libc::WTERMSIG(status))
    } else {
        Exit::Code(libc::WEXITSTATUS(status))
    };
    Some((pid, exit))
}

/// Becomes a daemon: forks, starts a session, closes the terminal. Returns in the child alone.
pub fn daemonize() -> io::Result<()> {
    if let Fork::Parent { .. } = fork()? {
        std::process::exit(0);
    }
    // SAFETY: plain system calls on numbers; the path is a constant C string.
    unsafe {
        check(libc::setsid())?;
        let null = check(libc::open(c"/dev/null".as_ptr(), libc::O_RDWR))?;
        check(libc::dup2(null, 0))?;
        check(libc::dup2(null, 1))?;
        if null > 2 {
            libc::close(null);
        }
    }
    Ok(())
}

/// Points standard error at another file (the error log), as nginx does.
pub fn redirect_stderr(fd: RawFd) {
    // SAFETY: both are descriptors of this process.
    unsafe {
        libc::dup2(fd, 2);
    }
}

/// A user and group by name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    pub name: String,
    pub uid: u32,
    pub gid: u32,
}

/// Looks a user up, and a group when one is named; otherwise the user's name is the group's.
pub fn lookup(user: &str, group: Option<&str>) -> Result<Identity, String> {
    let c = CString::new(user).map_err(|_| "a NUL byte in a user name".to_string())?;
    // SAFETY: single-threaded at load time; the result is copied before the next call.
    let uid = unsafe {
        let p = libc::getpwnam(c.as_ptr());
        if p.is_null() {
            return Err(format!("getpwnam(\"{user}\") failed"));
        }
        (*p).pw_uid
    };
    let group = group.unwrap_or(user);
    let c = CString::new(group).map_err(|_| "a NUL byte in a group name".to_string())?;
    // SAFETY: as above.
    let gid = unsafe {
        let g = libc::getgrnam(c.as_ptr());
        if g.is_null() {
            return Err(format!("getgrnam(\"{group}\") failed"));
        }
        (*g).gr_gid
    };
    Ok(Identity { name: user.to_string(), uid, gid })
}

/// Drops root for good: groups, group, user; keeps core dumps possible. `any_source` keeps what a
/// connection from an address of others takes (`CAP_NET_RAW`).
pub fn become_user(who: &Identity, any_source: bool) -> io::Result<()> {
    let name = CString::new(who.name.as_str()).map_err(io::Error::other)?;
    // SAFETY: plain system calls; the name outlives the call.
    unsafe {
        check(libc::setgid(who.gid))?;
        check(libc::initgroups(name.as_ptr(), who.gid))?;
        #[cfg(target_os = "linux")]
        if any_source && who.uid != 0 {
            check(libc::prctl(libc::PR_SET_KEEPCAPS, 1, 0, 0, 0))?;
        }
        check(libc::setuid(who.uid))?;
        #[cfg(target_os = "linux")]
        if any_source && who.uid != 0 {
            keep_net_raw()?;
        }
        #[cfg(target_os = "linux")]
        libc::prctl(libc::PR_SET_DUMPABLE, 1, 0, 0, 0);
    }
    Ok(())
}

/// Leaves this thread, and those it starts, the one capability.
#[cfg(target_os = "linux")]
fn keep_net_raw() -> io::Result<()> {
    const VERSION_3: u32 = 0x2008_0522;
    const CAP_NET_RAW: u32 = 13;
    // As in linux/capability.h: version and process; effective, permitted, inheritable, twice.
    let header = [VERSION_3, 0];
    let data = [1 << CAP_NET_RAW, 1 << CAP_NET_RAW, 0u32, 0, 0, 0];
    // SAFETY: both are plain words of this frame in the layout the call reads.
    let rc = unsafe { libc::syscall(libc::SYS_capset, header.as_ptr(), data.as_ptr()) };
    match rc {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// What a resource is limited to now, and how far that may be raised without root's rights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    pub soft: u64,
    pub hard: u64,
}

/// This process's limit of open files.
pub fn nofile() -> Limit {
    limit(libc::RLIMIT_NOFILE as _)
}

/// This process's limit of core files, in bytes.
pub fn core() -> Limit {
    limit(libc::RLIMIT_CORE as _)
}

fn limit(which: libc::c_uint) -> Limit {
    let mut l = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `l` is valid for the call, which cannot fail for a resource there is.
    unsafe { libc::getrlimit(which as _, &mut l) };
    Limit { soft: l.rlim_cur, hard: l.rlim_max }
}

/// Limits the open files of a process; 0 is this one.
pub fn set_nofile(pid: i32, limit: Limit) -> io::Result<()> {
    set_limit(pid, libc::RLIMIT_NOFILE as _, limit)
}

/// Limits the core files of a process; 0 is this one.
pub fn set_core(pid: i32, limit: Limit) -> io::Result<()> {
    set_limit(pid, libc::RLIMIT_CORE as _, limit)
}

fn set_limit(pid: i32, which: libc::c_uint, limit: Limit) -> io::Result<()> {
    let l = libc::rlimit { rlim_cur: limit.soft, rlim_max: limit.hard };
    // SAFETY: `l` is valid for the call, and nothing is asked for.
    #[cfg(target_os = "linux")]
    let rc = unsafe { libc::prlimit(pid, which as _, &l, std::ptr::null_mut()) };
    // SAFETY: `l` is valid for the call.
    #[cfg(not(target_os = "linux"))]
    let rc = match pid {
        0 => unsafe { libc::setrlimit(which as _, &l) },
        _ => return Err(io::ErrorKind::Unsupported.into()),
    };
    check(rc).map(|_| ())
}

/// Scheduling priority of this thread (Linux) or process.
pub fn set_priority(nice: i32) -> io::Result<()> {
    // SAFETY: numbers only.
    check(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, nice) }).map(|_| ())
}

/// Pins this thread to the CPUs of the mask.
#[cfg(target_os = "linux")]
pub fn set_affinity(cpus: &[usize]) -> io::Result<()> {
    // SAFETY: `set` is plain data, all zeroes is the empty set; CPU_SET checks its bounds here.
    unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        for &c in cpus.iter().filter(|c| **c < libc::CPU_SETSIZE as usize) {
            libc::CPU_SET(c, &mut set);
        }
        check(libc::sched_setaffinity(0, std::mem::size_of_val(&set), &set)).map(|_| ())
    }
}

/// Does something, such as starting a program, on the CPUs of the process's first thread, which is pinned to none.
#[cfg(target_os = "linux")]
pub(crate) fn unpinned<T>(work: impl FnOnce() -> T) -> T {
    let of = |pid| {
        // SAFETY: `set` is plain data, and valid for the call with its size.
        unsafe {
            let mut set: libc::cpu_set_t = std::mem::zeroed();
            let rc = libc::sched_getaffinity(pid, std::mem::size_of_val(&set), &mut set);
            (rc == 0).then_some(set)
        }
    };
    let (Some(all), Some(own)) = (of(pid() as i32), of(0)) else { return work() };
    // SAFETY: it compares two sets of this frame.
    if unsafe { libc::CPU_EQUAL(&all, &own) } {
        return work();
    }
    // SAFETY: both sets are valid for their calls; where one is refused the thread stays where it is.
    unsafe { libc::sched_setaffinity(0, std::mem::size_of_val(&all), &all) };
    let done = work();
    // SAFETY: as above.
    unsafe { libc::sched_setaffinity(0, std::mem::size_of_val(&own), &own) };
    done
}

/// Lets a descriptor live through exec (a binary upgrade), or not.
pub fn set_cloexec(fd: RawFd, on: bool) -> io::Result<()> {
    let flag = if on { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: numbers only.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, flag) }).map(|_| ())
}

/// A connected pair of sockets between the master and the serving process.
pub fn socket_pair() -> io::Result<(UnixStream, UnixStream)> {
    UnixStream::pair()
}

/// Starts a program; `prepare` runs in it before it is executed and must not allocate.
pub fn spawn_with<F>(command: &mut std::process::Command, prepare: F) -> io::Result<i32>
where
    F: FnMut() -> io::Result<()> + Send + Sync + 'static,
{
    use std::os::unix::process::CommandExt;
    // SAFETY: the closure makes system calls on numbers only, as its callers promise.
    unsafe { command.pre_exec(prepare) };
    Ok(command.spawn()?.id() as i32)
}

/// The system's number of the thread that asks.
pub fn thread_id() -> u64 {
    // SAFETY: it takes nothing and cannot fail.
    let id = unsafe { libc::gettid() };
    id.unsigned_abs().into()
}

/// What a thread's time has gone into.
#[derive(Clone, Copy, Debug, Default)]
pub struct ThreadTimes {
    /// It had a processor.
    pub busy_us: u64,
    /// It could have gone on, and had none; 0 where the system does not tell.
    pub queued_us: u64,
}

/// Since it began, of a thread of this process by its number; nothing if there is none, or the system does not tell.
pub fn thread_times(id: u64) -> Option<ThreadTimes> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{id}/schedstat")).ok()?;
    let mut ns = text.split_ascii_whitespace().map_while(|word| word.parse::<u64>().ok());
    let (busy_us, queued_us) = (ns.next()? / 1000, ns.next().unwrap_or(0) / 1000);
    if busy_us > 0 {
        return Some(ThreadTimes { busy_us, queued_us });
    }
    // Where the system does not count it there, it counts ticks.
    let stat = std::fs::read_to_string(format!("/proc/self/task/{id}/stat")).ok()?;
    let busy_us = ticks_of(&stat)? * (1_000_000 / TICKS_A_SECOND);
    Some(ThreadTimes { busy_us, queued_us })
}

/// Linux's for programs, whatever its own is.
const TICKS_A_SECOND: u64 = 100;

/// `utime` and `stime` of a line of `/proc/…/stat`; the name in it may have anything.
fn ticks_of(stat: &str) -> Option<u64> {
    let mut behind = stat.rsplit_once(')')?.1.split_ascii_whitespace().skip(11);
    Some(behind.next()?.parse::<u64>().ok()? + behind.next()?.parse::<u64>().ok()?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_that_works_is_busy() {
        let begun = thread_times(thread_id()).unwrap();
        let mut rounds = 0u64;
        while thread_times(thread_id()).unwrap().busy_us < begun.busy_us + 20_000 {
            rounds += 1;
            assert!(rounds < 10_000_000);
        }
        assert!(thread_times(u64::from(u32::MAX)).is_none());
        let stat = "7 (a) b) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14";
        assert_eq!(ticks_of(stat), Some(11 + 12));
    }
}
