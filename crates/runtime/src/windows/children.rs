//! Programs that code starts and talks to: children with pipes as their standard input and outputs.
//!
//! Each is in a job of its own, by which it is ended with all that it has started in its turn: nothing of it outlives who
//! has it, or this process. A thread of the system's own pool tells of its end, so that nobody reaps. There are no
//! signals: one that ends a process elsewhere ends it here.

use super::pipes::{self, Way};
use super::process::Exit;
use super::start::{self, Launch};
use crate::program::words;
use crate::program::End;
pub use crate::program::{NotSent, NotStarted, Program, MAX};
use std::ffi::c_void;
use std::io;
use std::os::windows::io::{AsRawHandle, OwnedHandle};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll};
use windows_sys::Win32::System::JobObjects::TerminateJobObject;
use windows_sys::Win32::System::Threading::{
    CloseThreadpoolWait, CreateThreadpoolWait, GetExitCodeProcess, SetThreadpoolWait,
    CREATE_NO_WINDOW, PTP_CALLBACK_INSTANCE, PTP_WAIT,
};

pub use super::pipes::PipeEnd;

/// Those that end a process that does nothing about them; the last of them is for killing.
const ENDING: [i32; 7] = [1, 2, 3, 6, 14, 15, KILL];
const KILL: i32 = 9;
const LAST_SIGNAL: i32 = 64;
/// What one that is ended by a signal ends with, beside its number.
const BY_SIGNAL: i32 = 128;

static RUNNING: AtomicUsize = AtomicUsize::new(0);

struct Process {
    handle: OwnedHandle,
    job: OwnedHandle,
    end: End,
    /// What was to end it; held while that is done.
    sent: Mutex<Option<i32>>,
}

impl Process {
    fn sent(&self) -> MutexGuard<'_, Option<i32>> {
        self.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }
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
    pid: u32,
    process: Arc<Process>,
}

/// Starts a program. Of this process's handles it has none.
///
/// # Errors
///
/// It was not started, and nothing is left of the attempt.
pub fn start(program: &Program<'_>) -> Result<Started, NotStarted> {
    let pipe = |way| pipes::pair(way).map_err(NotStarted::Pipe);
    let (stdin, input) = pipe(Way::ToProgram)?;
    let (stdout, output) = pipe(Way::FromProgram)?;
    let (stderr, errors) = match program.merges {
        true => (None, None),
        false => pipe(Way::FromProgram).map(|(ours, theirs)| (Some(ours), Some(theirs)))?,
    };
    let errors = errors.as_ref().unwrap_or(&output);
    let place = Place::take()?;
    let child = begin(program, [&input, &output, errors], place)?;
    Ok(Started { child, stdin, stdout, stderr })
}

/// One of those that there may be.
struct Place(());

impl Place {
    fn take() -> Result<Place, NotStarted> {
        let is_one = |n| (n < MAX).then_some(n + 1);
        match RUNNING.fetch_update(Ordering::Relaxed, Ordering::Relaxed, is_one) {
            Ok(_) => Ok(Place(())),
            Err(_) => Err(NotStarted::TooMany),
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        RUNNING.fetch_sub(1, Ordering::Relaxed);
    }
}

fn begin(
    program: &Program<'_>,
    ends: [&OwnedHandle; 3],
    place: Place,
) -> Result<Child, NotStarted> {
    let execute = NotStarted::Execute;
    let file = start::found(program.file).map_err(execute)?;
    let own = program.environment.as_deref();
    let variables = start::variables(own.is_none(), own.unwrap_or_default()).map_err(execute)?;
    let line = match program.is_line {
        true => words::shell_line(&program.arguments),
        false => words::line(&program.arguments),
    };
    let line = line.map_err(execute)?;
    let job = start::job().map_err(NotStarted::Fork)?;
    let launch = Launch {
        file: &file,
        line,
        variables,
        ends: ends.map(AsRawHandle::as_raw_handle),
        flags: CREATE_NO_WINDOW,
        job: Some(&job),
    };
    let (pid, handle) = launch.start().map_err(execute)?;
    let process = Arc::new(Process { handle, job, end: End::default(), sent: Mutex::default() });
    let child = Child { pid, process };
    watch(&child.process, place).map_err(NotStarted::Fork)?;
    Ok(child)
}

/// What the thread is lent that tells of an end.
struct Watched {
    process: Arc<Process>,
    _place: Place,
}

fn watch(process: &Arc<Process>, place: Place) -> io::Result<()> {
    let watched = Box::new(Watched { process: Arc::clone(process), _place: place });
    let lent = Box::into_raw(watched);
    // SAFETY: a function that stays, and what it takes back; the process' handle stays open as long.
    unsafe {
        let wait = CreateThreadpoolWait(Some(ended), lent.cast(), std::ptr::null());
        if wait == 0 {
            let e = io::Error::last_os_error();
            drop(Box::from_raw(lent));
            return Err(e);
        }
        SetThreadpoolWait(wait, process.handle.as_raw_handle(), std::ptr::null());
    }
    Ok(())
}

/// A child has ended. Called in a thread of the system's.
unsafe extern "system" fn ended(
    _: PTP_CALLBACK_INSTANCE,
    lent: *mut c_void,
    wait: PTP_WAIT,
    _: u32,
) {
    let mut code = 0;
    // SAFETY: what `watch` has lent, which is told once; the wait is over, and its process' handle open.
    let watched = unsafe {
        let watched = Box::from_raw(lent.cast::<Watched>());
        GetExitCodeProcess(watched.process.handle.as_raw_handle(), &mut code);
        CloseThreadpoolWait(wait);
        watched
    };
    let code = code as i32;
    let Watched { process, _place: place } = *watched;
    // There is room for another before anybody is told.
    drop(place);
    let signal = process.sent().filter(|signal| code == BY_SIGNAL + signal);
    process.end.tell(signal.map_or(Exit::Code(code), Exit::Signal));
}

/// A line for the system's own shell.
pub fn of_shell(line: &[u8]) -> (&'static [u8], Vec<&[u8]>) {
    static SHELL: OnceLock<Vec<u8>> = OnceLock::new();
    let path = || start::system_folder().join("cmd.exe").into_os_string().into_encoded_bytes();
    let shell = SHELL.get_or_init(path);
    (shell, vec![shell, words::SHELL_WORDS, line])
}

impl Child {
    pub fn pid(&self) -> i32 {
        self.pid as i32
    }

    /// How it has ended, if it has.
    pub fn exit(&self) -> Option<Exit> {
        self.process.end.exit()
    }

    /// Its end. Only who has asked last is told.
    pub fn poll_exit(&self, cx: &Context<'_>) -> Poll<Exit> {
        self.process.end.poll(cx)
    }

    /// Does what the signal of that number would have done to it.
    ///
    /// # Errors
    ///
    /// It has ended, or the system refuses, or has nothing of the kind.
    pub fn send(&self, signal: i32) -> Result<(), NotSent> {
        let mut sent = self.process.sent();
        match signal {
            _ if self.exit().is_some() => Err(NotSent::Ended),
            0 => Ok(()),
            signal if ENDING.contains(&signal) => {
                let before = sent.replace(signal);
                let code = (BY_SIGNAL + signal).unsigned_abs();
                // SAFETY: an open handle.
                match unsafe { TerminateJobObject(self.process.job.as_raw_handle(), code) } {
                    0 => {
                        *sent = before;
                        Err(NotSent::System(io::Error::last_os_error()))
                    }
                    _ => Ok(()),
                }
            }
            1..=LAST_SIGNAL => Err(NotSent::System(io::ErrorKind::Unsupported.into())),
            _ => Err(NotSent::System(io::ErrorKind::InvalidInput.into())),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        // It may just have ended.
        let _ = self.send(KILL);
    }
}

/// Nobody waits to be reaped.
pub fn reap() {}

/// This process ends: their jobs end with it.
pub fn end() {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;
    use crate::event_loop;
    use std::future::poll_fn;
    use std::os::windows::fs::OpenOptionsExt;
    use windows_sys::Win32::Foundation::{SetHandleInformation, HANDLE_FLAG_INHERIT};

    fn line(text: &str) -> Program<'_> {
        let (file, arguments) = of_shell(text.as_bytes());
        Program { file, arguments, is_line: true, environment: None, merges: false }
    }

    async fn all_of(end: &PipeEnd) -> String {
        let mut text = Vec::new();
        while poll_fn(|cx| end.poll_read(cx, &mut text, 64)).await.unwrap() > 0 {}
        String::from_utf8(text).unwrap().replace("\r\n", "\n")
    }

    async fn end_of(child: &Child) -> Exit {
        poll_fn(|cx| child.poll_exit(cx)).await
    }

    #[test]
    fn children_are_written_to_read_and_waited_for() {
        let test = async {
            let started = start(&line("find \"x\" & echo error>&2 & exit 3")).unwrap();
            let Started { child, stdin, stdout, stderr } = started;
            // More than a pipe holds, in both.
            let text = "x\r\n".repeat(50_000);
            event_loop::spawn(async move {
                let mut rest = text.as_bytes();
                while !rest.is_empty() {
                    rest = &rest[poll_fn(|cx| stdin.poll_write(cx, rest)).await.unwrap()..];
                }
            });
            assert_eq!(all_of(&stdout).await.matches('x').count(), 50_000);
            assert_eq!(all_of(&stderr.unwrap()).await.trim(), "error");
            assert_eq!(end_of(&child).await, Exit::Code(3));
            assert!(matches!(child.send(0), Err(NotSent::Ended)));

            let mut own = line("echo %A%-%USERNAME%-& echo b>&2");
            own.environment = Some(vec![b"A=1=2", b"no"]);
            own.merges = true;
            let started = start(&own).unwrap();
            let text = all_of(&started.stdout).await;
            assert!(text.starts_with("1=2-") && text.ends_with("b\n"), "{text}");
        };
        event_loop::run(&(), 1, test).unwrap();
    }

    /// With what it has started itself, of which the pipe would know no end otherwise.
    #[test]
    fn who_is_killed_is_gone() {
        let test = async {
            let Started { child, stdout, .. } = start(&line("ping -n 1000 127.0.0.1")).unwrap();
            assert!(child.send(0).is_ok() && child.send(17).is_err());
            assert!(child.send(15).is_ok());
            all_of(&stdout).await;
            assert_eq!(end_of(&child).await, Exit::Signal(15));
            let Started { child, stdout, .. } = start(&line("ping -n 1000 127.0.0.1")).unwrap();
            drop(child);
            all_of(&stdout).await;
        };
        event_loop::run(&(), 1, test).unwrap();
    }

    #[test]
    fn nothing_else_is_inherited() {
        let name = std::env::temp_dir().join(format!("weir-inherited-{}", std::process::id()));
        let open = || {
            let mut options = std::fs::File::options();
            options.create(true).truncate(false).write(true).share_mode(0).open(&name)
        };
        let file = open().unwrap();
        let raw = file.as_raw_handle();
        // SAFETY: an open handle.
        unsafe { SetHandleInformation(raw, HANDLE_FLAG_INHERIT, HANDLE_FLAG_INHERIT) };
        let started = start(&line("set /p x=")).unwrap();
        assert!(open().is_err());
        drop(file);
        assert!(open().is_ok() && started.child.exit().is_none());
        std::fs::remove_file(&name).unwrap();
    }

    #[test]
    fn what_cannot_be_executed() {
        let batch = std::env::temp_dir().join(format!("weir-batch-{}.bat", std::process::id()));
        std::fs::write(&batch, "exit 1").unwrap();
        let batch = batch.to_str().unwrap();
        for name in ["no-such-program", "/no/such/program", "", batch] {
            let mut program = line("");
            program.file = name.as_bytes();
            assert!(matches!(start(&program), Err(NotStarted::Execute(_))), "{name}");
        }
        std::fs::remove_file(batch).unwrap();
    }
}
