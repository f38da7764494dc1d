//! Programs that code starts and talks to: children with pipes as their standard input and outputs.
//!
//! Children are reaped in one place of a process ([`process::reap`], [`reap`]), by its main thread. Each one that was
//! started here has an entry in a table, under whose lock it is started, reaped and sent signals: its number is
//! nobody else's meanwhile, and no end is missed. An entry is there until its child is reaped, so that they are
//! counted by it.
//!
//! Windows has others of the same face (`windows/children.rs`), which nobody reaps.

use crate::event_loop::{Watch, Way};
use crate::process::Exit;
use crate::program::End;
pub use crate::program::{NotSent, NotStarted, Program, MAX};
use std::cell::OnceCell;
use std::collections::HashMap;
use std::ffi::{CStr, CString, OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::{ready, Context, Poll};

/// Where programs are looked for if the environment does not say.
const USUAL_PATH: &str = "/bin:/usr/bin";
const SHELL: &str = "/bin/sh";

type Ended = Arc<End>;
type Table = HashMap<i32, Ended>;

static TABLE: Mutex<Option<Table>> = Mutex::new(None);

fn table() -> MutexGuard<'static, Option<Table>> {
    TABLE.lock().unwrap_or_else(|e| e.into_inner())
}

/// A child, and this side's ends of its pipes.
pub struct Started {
    pub child: Child,
    pub stdin: PipeEnd,
    pub stdout: PipeEnd,
    /// Not where it is merged with the other.
    pub stderr: Option<PipeEnd>,
}

/// A child. One that is still there is killed when this is dropped.
pub struct Child {
    pid: i32,
    ended: Ended,
}

/// Starts a program. Its signals are as the system has them, and of this process's descriptors it has none.
///
/// # Errors
///
/// It was not started, and nothing is left of the attempt.
pub fn start(program: &Program<'_>) -> Result<Started, NotStarted> {
    let (input, stdin) = io::pipe().map_err(NotStarted::Pipe)?;
    let (stdout, output) = io::pipe().map_err(NotStarted::Pipe)?;
    let stderr = match program.merges {
        true => None,
        false => Some(io::pipe().map_err(NotStarted::Pipe)?),
    };
    let (stderr, errors) = match stderr {
        Some((reader, writer)) => (Some(reader), Some(writer)),
        None => (None, None),
    };
    let stdin = PipeEnd::new(stdin.into()).map_err(NotStarted::Pipe)?;
    let stdout = PipeEnd::new(stdout.into()).map_err(NotStarted::Pipe)?;
    let stderr = stderr.map(|end| PipeEnd::new(end.into())).transpose();
    let stderr = stderr.map_err(NotStarted::Pipe)?;
    let errors = errors.as_ref().map_or(output.as_fd(), AsFd::as_fd);
    let child = begin(program, [input.as_fd(), output.as_fd(), errors])?;
    Ok(Started { child, stdin, stdout, stderr })
}

fn begin(program: &Program<'_>, ends: [BorrowedFd<'_>; 3]) -> Result<Child, NotStarted> {
    let execute = NotStarted::Execute;
    let mut file = found(program.file).map_err(execute)?;
    let mut arguments = texts(program.arguments.iter().copied()).map_err(execute)?;
    let environment = environment(program).map_err(execute)?;
    let mut all = table();
    let known = all.get_or_insert_default();
    if known.len() >= MAX {
        return Err(NotStarted::TooMany);
    }
    let pid = crate::process::unpinned(|| {
        let pid = spawn(&file, &arguments, &environment, ends);
        if pid.as_ref().is_err_and(|e| e.raw_os_error() == Some(libc::ENOEXEC)) {
            // A script that does not say whose it is is the shell's.
            let script = std::mem::replace(&mut file, CString::from(c"/bin/sh"));
            arguments.splice(0..1.min(arguments.len()), [file.clone(), script]);
            return spawn(&file, &arguments, &environment, ends);
        }
        pid
    });
    let pid = pid.map_err(of_start)?;
    let ended = Ended::default();
    known.insert(pid, Arc::clone(&ended));
    Ok(Child { pid, ended })
}

/// The system's call: of the child there is nothing if it fails. The process is not copied for it, however large.
fn spawn(
    file: &CStr,
    arguments: &[CString],
    environment: &[CString],
    ends: [BorrowedFd<'_>; 3],
) -> io::Result<i32> {
    let list = |texts: &[CString]| -> Vec<*mut libc::c_char> {
        let all = texts.iter().map(|text| text.as_ptr().cast_mut());
        all.chain([std::ptr::null_mut()]).collect()
    };
    let (arguments, environment) = (list(arguments), list(environment));
    let check = |rc: libc::c_int| match rc {
        0 => Ok(()),
        rc => Err(io::Error::from_raw_os_error(rc)),
    };
    let flags = libc::POSIX_SPAWN_SETSIGMASK | libc::POSIX_SPAWN_SETSIGDEF;
    // SAFETY: attributes, actions and sets are made by their own calls before they are used, and the first two undone
    // once; the texts and lists outlive the call, which only reads them, and each list ends in a null pointer.
    unsafe {
        let mut attributes = std::mem::zeroed();
        check(libc::posix_spawnattr_init(&mut attributes))?;
        let mut actions = std::mem::zeroed();
        let made = check(libc::posix_spawn_file_actions_init(&mut actions));
        let done = made.and_then(|()| {
            let mut none: libc::sigset_t = std::mem::zeroed();
            let mut every: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut none);
            libc::sigfillset(&mut every);
            check(libc::posix_spawnattr_setsigmask(&mut attributes, &none))?;
            check(libc::posix_spawnattr_setsigdefault(&mut attributes, &every))?;
            check(libc::posix_spawnattr_setflags(&mut attributes, flags as libc::c_short))?;
            for (end, number) in ends.iter().zip(0..) {
                let end = end.as_raw_fd();
                check(libc::posix_spawn_file_actions_adddup2(&mut actions, end, number))?;
            }
            let mut pid = 0;
            let (arguments, environment) = (arguments.as_ptr(), environment.as_ptr());
            let file = file.as_ptr();
            check(libc::posix_spawn(
                &mut pid,
                file,
                &actions,
                &attributes,
                arguments,
                environment,
            ))?;
            Ok(pid)
        });
        libc::posix_spawn_file_actions_destroy(&mut actions);
        libc::posix_spawnattr_destroy(&mut attributes);
        done
    }
}

/// What has gone wrong: making the process, or executing it.
fn of_start(e: io::Error) -> NotStarted {
    use rustix::io::Errno;
    match Errno::from_io_error(&e) {
        Some(Errno::AGAIN | Errno::NOMEM | Errno::MFILE | Errno::NFILE) => NotStarted::Fork(e),
        _ => NotStarted::Execute(e),
    }
}

fn texts<'a>(all: impl Iterator<Item = &'a [u8]>) -> io::Result<Vec<CString>> {
    all.map(|text| CString::new(text).map_err(io::Error::other)).collect()
}

fn environment(program: &Program<'_>) -> io::Result<Vec<CString>> {
    if let Some(own) = &program.environment {
        return texts(own.iter().copied());
    }
    let text =
        |(name, value): (OsString, OsString)| [name.as_bytes(), b"=", value.as_bytes()].concat();
    std::env::vars_os()
        .map(|variable| CString::new(text(variable)).map_err(io::Error::other))
        .collect()
}

/// The file of that name. It is looked for by this process's own environment, whatever the child's is.
fn found(name: &[u8]) -> io::Result<CString> {
    let none = || io::Error::from(rustix::io::Errno::NOENT);
    let path = match name {
        [] => None,
        name if name.contains(&b'/') => Some(PathBuf::from(OsStr::from_bytes(name))),
        name => {
            let path = std::env::var_os("PATH").unwrap_or_else(|| OsString::from(USUAL_PATH));
            let mut files = std::env::split_paths(&path).map(|at| at.join(OsStr::from_bytes(name)));
            files.find(|path| {
                path.is_file() && rustix::fs::access(path, rustix::fs::Access::EXEC_OK).is_ok()
            })
        }
    };
    CString::new(path.ok_or_else(none)?.as_os_str().as_bytes()).map_err(|_| none())
}

/// A command line of the shell's, as its arguments.
pub fn of_shell(line: &[u8]) -> (&'static [u8], Vec<&[u8]>) {
    (SHELL.as_bytes(), vec![SHELL.as_bytes(), b"-c", line])
}

impl Child {
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// How it has ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        self.ended.exit()
    }

    /// Its end. Only who has asked last is told.
    pub fn poll_exit(&self, cx: &Context<'_>) -> Poll<Exit> {
        self.ended.poll(cx)
    }

    /// Sends it the signal of that number.
    ///
    /// # Errors
    ///
    /// It has ended, or the system refuses.
    pub fn send(&self, signal: i32) -> Result<(), NotSent> {
        // As long as the table is held nobody reaps it, and its number is nobody else's.
        let all = table();
        if all.as_ref().is_none_or(|all| !all.contains_key(&self.pid)) || self.exit().is_some() {
            return Err(NotSent::Ended);
        }
        // SAFETY: two numbers, of which the first is that of a child.
        match unsafe { libc::kill(self.pid, signal) } {
            0 => Ok(()),
            _ => Err(NotSent::System(io::Error::last_os_error())),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may just have ended.
        let _ = self.send(libc::SIGKILL);
    }
}

/// The next child that has ended, of all but those that were started here, which are told to who waits for them.
pub(crate) fn reap_any(mut wait: impl FnMut(i32) -> Option<(i32, Exit)>) -> Option<(i32, Exit)> {
    loop {
        let mut all = table();
        let (pid, exit) = wait(-1)?;
        let Some(ended) = all.as_mut().and_then(|all| all.remove(&pid)) else {
            return Some((pid, exit));
        };
        drop(all);
        ended.tell(exit);
    }
}

/// Reaps those that were started here and no others: whoever else has children waits for them itself.
pub fn reap() {
    let mut told = Vec::new();
    if let Some(all) = table().as_mut() {
        all.retain(|pid, ended| match crate::process::reap_one(*pid) {
            None => true,
            Some((_, exit)) => {
                told.push((Arc::clone(ended), exit));
                false
            }
        });
    }
    told.iter().for_each(|(ended, exit)| ended.tell(*exit));
}

/// This process ends: none of them outlives it.
pub fn end() {
    if let Some(all) = table().as_ref() {
        for pid in all.keys() {
            // SAFETY: two numbers, of which the first is that of a child that nobody has reaped.
            unsafe { libc::kill(*pid, libc::SIGKILL) };
        }
    }
}

/// This side's end of a pipe. A call does not wait.
pub struct PipeEnd {
    /// Made when it is first waited for.
    watch: OnceCell<Watch>,
    fd: OwnedFd,
}

impl PipeEnd {
    fn new(fd: OwnedFd) -> io::Result<PipeEnd> {
        let flags = rustix::fs::fcntl_getfl(&fd)?;
        rustix::fs::fcntl_setfl(&fd, flags | rustix::fs::OFlags::NONBLOCK)?;
        Ok(PipeEnd { watch: OnceCell::new(), fd })
    }

    fn watch(&self, way: Way) -> io::Result<&Watch> {
        let watch = match self.watch.get() {
            Some(watch) => watch,
            None => {
                let fresh = Watch::new(self.fd.as_raw_fd())?;
                self.watch.get_or_init(|| fresh)
            }
        };
        if matches!(way, Way::Write) {
            watch.add_writes(self.fd.as_raw_fd())?;
        }
        Ok(watch)
    }

    fn poll<T>(
        &self,
        cx: &Context<'_>,
        way: Way,
        mut call: impl FnMut(&OwnedFd) -> rustix::io::Result<T>,
    ) -> Poll<io::Result<T>> {
        use rustix::io::Errno;
        loop {
            if let Some(watch) = self.watch.get() {
                ready!(watch.poll_ready(way, cx));
            }
            match call(&self.fd) {
                Ok(done) => return Poll::Ready(Ok(done)),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => match self.watch(way) {
                    Ok(watch) => watch.clear(way),
                    Err(e) => return Poll::Ready(Err(e)),
                },
                Err(e) => return Poll::Ready(Err(e.into())),
            }
        }
    }

    /// Appends what there is, but no more than so many bytes; 0 is the end.
    pub fn poll_read(
        &self,
        cx: &Context<'_>,
        to: &mut Vec<u8>,
        most: usize,
    ) -> Poll<io::Result<usize>> {
        to.reserve(most);
        self.poll(cx, Way::Read, |fd| {
            let room = to.spare_capacity_mut();
            let most = most.min(room.len());
            let n = rustix::io::read(fd, &mut room[..most])?.0.len();
            // SAFETY: the kernel has written `n` bytes behind what there was.
            unsafe { to.set_len(to.len() + n) };
            Ok(n)
        })
    }

    /// How many bytes it has taken.
    pub fn poll_write(&self, cx: &Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.poll(cx, Way::Write, |fd| rustix::io::write(fd, bytes))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::event_loop;
    use std::future::poll_fn;

    fn line(text: &str) -> Program<'_> {
        let (file, arguments) = of_shell(text.as_bytes());
        Program { file, arguments, is_line: true, environment: None, merges: false }
    }

    async fn all_of(end: &PipeEnd) -> Vec<u8> {
        let mut text = Vec::new();
        while poll_fn(|cx| end.poll_read(cx, &mut text, 64)).await.unwrap() > 0 {}
        text
    }

    /// Its end, by asking the system now and then: there is no main thread here.
    async fn end_of(child: &Child) -> Exit {
        loop {
            reap();
            if let Some(exit) = child.exit() {
                return exit;
            }
            crate::timer::sleep_ms(5).await;
        }
    }

    #[test]
    fn children_are_written_to_read_and_waited_for() {
        let test = async {
            let started = start(&line("cat; echo error >&2; exit 3")).unwrap();
            let n = poll_fn(|cx| started.stdin.poll_write(cx, b"text")).await.unwrap();
            assert_eq!(n, 4);
            drop(started.stdin);
            assert_eq!(all_of(&started.stdout).await, b"text");
            assert_eq!(all_of(started.stderr.as_ref().unwrap()).await, b"error\n");
            assert_eq!(end_of(&started.child).await, Exit::Code(3));
            assert!(matches!(started.child.send(0), Err(NotSent::Ended)));

            let mut merged = line("echo a; echo b >&2");
            merged.merges = true;
            let started = start(&merged).unwrap();
            assert_eq!(all_of(&started.stdout).await, b"a\nb\n");

            let mut own = line("echo $A-$HOME-$PATH");
            own.environment = Some(vec![b"A=1=2", b"no"]);
            let started = start(&own).unwrap();
            assert!(all_of(&started.stdout).await.starts_with(b"1=2--"));

            // Of this process's descriptors it has none, and of its signals none is ignored or blocked. (Two that
            // are the C library's own are.)
            let file = std::fs::File::open("/dev/null").unwrap();
            let script = format!("ls /proc/self/fd/{}; cat /proc/self/status", file.as_raw_fd());
            let started = start(&line(&script)).unwrap();
            let text = String::from_utf8(all_of(&started.stdout).await).unwrap();
            assert!(text.starts_with("Name"), "{text}");
            assert!(text.contains("SigBlk:\t0000000000000000"), "{text}");
            let ignored = text.lines().find_map(|line| line.strip_prefix("SigIgn:\t")).unwrap();
            assert_eq!(u64::from_str_radix(ignored, 16).unwrap() & 0x7fff_ffff, 0);
        };
        event_loop::run(&(), 1, test).unwrap();
    }

    #[test]
    fn who_is_dropped_is_killed() {
        let started = start(&line("sleep 1000")).unwrap();
        let ended = Arc::clone(&started.child.ended);
        drop(started);
        while ended.exit().is_none() {
            reap();
            std::thread::yield_now();
        }
        assert_eq!(ended.exit(), Some(Exit::Signal(libc::SIGKILL)));
    }

    #[test]
    fn what_cannot_be_executed() {
        for name in ["no-such-program", "/no/such/program", ""] {
            let mut program = line("");
            program.file = name.as_bytes();
            assert!(matches!(start(&program), Err(NotStarted::Execute(_))), "{name}");
        }
    }
}
