//! Processes: fork, daemon, identity, limits, affinity.

use std::ffi::CString;
use std::io;
use std::os::fd::RawFd;

fn check(rc: libc::c_int) -> io::Result<libc::c_int> {
    if rc < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(rc)
    }
}

pub fn is_root() -> bool {
    // SAFETY: reads a number.
    unsafe { libc::geteuid() == 0 }
}

pub fn pid() -> u32 {
    std::process::id()
}

pub enum Fork {
    Parent { child: i32 },
    Child,
}

/// Forks. Only while the process has one thread; the caller is the master, which starts none.
pub fn fork() -> io::Result<Fork> {
    // SAFETY: the process has a single thread, so the child may do everything the parent may.
    match unsafe { libc::fork() } {
        -1 => Err(io::Error::last_os_error()),
        0 => Ok(Fork::Child),
        child => Ok(Fork::Parent { child }),
    }
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    Code(i32),
    Signal(i32),
}

/// The next child that has ended, without waiting.
pub fn reap() -> Option<(i32, Exit)> {
    let mut status = 0;
    // SAFETY: `status` is valid for the call.
    let pid = unsafe { libc::waitpid(-1, &mut status, libc::WNOHANG) };
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

pub fn set_nofile(limit: u64) -> io::Result<()> {
    set_limit(libc::RLIMIT_NOFILE as _, limit)
}

pub fn set_core(limit: u64) -> io::Result<()> {
    set_limit(libc::RLIMIT_CORE as _, limit)
}

fn set_limit(which: libc::c_uint, limit: u64) -> io::Result<()> {
    let l = libc::rlimit { rlim_cur: limit, rlim_max: limit };
    // SAFETY: `l` is valid for the call.
    check(unsafe { libc::setrlimit(which as _, &l) }).map(|_| ())
}

/// The soft limit of open files.
pub fn nofile() -> Option<u64> {
    let mut l = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `l` is valid for the call.
    let rc = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut l) };
    (rc == 0).then_some(l.rlim_cur)
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

pub fn chown(path: &std::path::Path, who: &Identity) -> io::Result<()> {
    std::os::unix::fs::chown(path, Some(who.uid), Some(who.gid))
}

/// Lets a descriptor live through exec (a binary upgrade), or not.
pub fn set_cloexec(fd: RawFd, on: bool) -> io::Result<()> {
    let flag = if on { libc::FD_CLOEXEC } else { 0 };
    // SAFETY: numbers only.
    check(unsafe { libc::fcntl(fd, libc::F_SETFD, flag) }).map(|_| ())
}

/// A connected pair of sockets between the master and the serving process.
pub fn socket_pair() -> io::Result<(std::os::unix::net::UnixStream, std::os::unix::net::UnixStream)>
{
    std::os::unix::net::UnixStream::pair()
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
