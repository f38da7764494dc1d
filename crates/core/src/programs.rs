//! Programs that logs are written to (Tengine's `pipe:COMMAND`): who has opened the logs starts them, each
//! with the end of a pipe as its standard input. That is the master, or the one process where there is none.
//!
//! The pipe is this process's and not the program's: what was written stays there while a program that has
//! died is started again. One that no configuration names any more finds its input's end once the
//! last line is written, is told to end if it does not by that, and is reaped.

use crate::logger::{ErrorLog, LogLevel};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard};
use std::time::{Duration, Instant};
use weir_runtime::process::{self, Exit};
use weir_runtime::programs::{may_be_started, pipe, Unread};
use weir_runtime::signals::{self, Signal};
use weir_runtime::{clock, files, paths};

/// What names of such logs begin with.
const PREFIX: &[u8] = b"pipe:";
/// Programs at the same time, those that are ending included.
const MAX: usize = 128;
/// A program that dies is started again after this, and after twice as long each further time …
const REST_MS: u64 = 500;
const REST_MAX_MS: u64 = 60_000;
/// … unless it has run so long.
const STEADY_MS: u64 = 60_000;
/// How long a program that shall end may read nothing.
const GRACE_MS: u64 = 5000;
/// How often one that shall end is looked at.
const LOOK_MS: u64 = 500;
/// How long the end of this process waits for programs to read what is left.
const LAST: Duration = Duration::from_secs(1);
const LAST_LOOK: Duration = Duration::from_millis(5);

/// One program and its pipe.
struct Program {
    name: PathBuf,
    unread: Unread,
    /// A configuration in force names it.
    named: bool,
    /// Its number, and since when, by the monotonic clock.
    runs: Option<(i32, u64)>,
    start_at_ms: u64,
    rest_ms: u64,
    /// What is left for it, and since when that has not become less; it has been told to end.
    left: Option<(usize, u64)>,
    told: bool,
}

static PROGRAMS: Mutex<Vec<Program>> = Mutex::new(Vec::new());
/// Another process starts them.
static LEFT: AtomicBool = AtomicBool::new(false);

fn programs() -> MutexGuard<'static, Vec<Program>> {
    PROGRAMS.lock().unwrap_or_else(|e| e.into_inner())
}

/// Whether a log of that name is a program's.
pub(crate) fn is_program(name: &Path) -> bool {
    paths::bytes(name).starts_with(PREFIX)
}

/// The log's name: the same for the same words.
pub(crate) fn name(words: &[Vec<u8>]) -> PathBuf {
    paths::word(&[PREFIX, &words.join(&b' ')].concat()).into()
}

fn words(name: &Path) -> Vec<OsString> {
    let text = paths::bytes(name).strip_prefix(PREFIX).unwrap_or_default();
    let words = text.split(|b| *b == b' ').filter(|w| !w.is_empty());
    words.map(paths::word).collect()
}

/// What a start would find, as far as may be seen.
pub(crate) fn could_run(name: &Path) -> std::io::Result<()> {
    use std::io::ErrorKind::PermissionDenied;
    let words = words(name);
    let program = words.first().ok_or(std::io::ErrorKind::InvalidInput)?;
    match std::fs::metadata(program) {
        Ok(m) if m.is_dir() => Err(files::is_a_directory()),
        Ok(m) if !may_be_started(program.as_ref(), &m) => {
            Err(std::io::Error::other("it cannot be executed"))
        }
        Err(e) if e.kind() != PermissionDenied => Err(e),
        _ => Ok(()),
    }
}

/// A new pipe for that program, which is not started before a configuration with it is in force.
pub(crate) fn open(name: &Path) -> std::io::Result<File> {
    if LEFT.load(Ordering::Relaxed) {
        return Err(std::io::Error::other("the master has not started it"));
    }
    could_run(name)?;
    let mut programs = programs();
    if programs.len() >= MAX {
        return Err(std::io::Error::other(format!("there are {MAX} programs for logs already")));
    }
    let (unread, file) = pipe()?;
    programs.push(Program {
        name: name.to_path_buf(),
        unread,
        named: false,
        runs: None,
        start_at_ms: 0,
        rest_ms: REST_MS,
        left: None,
        told: false,
    });
    Ok(file)
}

/// In a process that has been forked to serve: another starts them, and only that keeps their pipes' other
/// ends, so that who writes notices when nobody reads.
pub fn leave() {
    LEFT.store(true, Ordering::Relaxed);
    programs().clear();
}

/// A configuration is in force, or was refused: these logs are still open. What was opened for a refused
/// one, and has never run, goes with it.
pub(crate) fn forget(is_open: impl Fn(&Path) -> bool) {
    programs().retain(|p| p.named || p.runs.is_some() || is_open(&p.name));
}

/// These are the logs of the configuration in force. Of two programs of the same name the older one ends.
pub(crate) fn keep(names: &[PathBuf], size: Option<usize>) {
    let mut found = Vec::new();
    // The newest last.
    for p in programs().iter_mut().rev() {
        p.named = names.contains(&p.name) && !found.contains(&p.name);
        found.push(p.name.clone());
        if let Some(size) = size.filter(|_| p.named) {
            // What it holds less is in this process's memory.
            let _ = p.unread.set_size(size);
        }
    }
}

/// Starts what is to be started, and tells to end what should have.
pub fn tend(log: &ErrorLog) {
    let now = clock::mono_ms();
    let mut programs = programs();
    programs.retain(|p| p.named || p.runs.is_some());
    programs.iter_mut().filter(|p| !p.named).for_each(|p| p.hurry(now));
    let lines: Vec<_> = programs.iter_mut().filter_map(|p| p.start(now)).collect();
    // The log may be one of these.
    drop(programs);
    lines.iter().for_each(|(level, text)| log.log(*level, None, text.as_bytes()));
}

/// In how many ms something is due.
pub fn due_in_ms() -> Option<u64> {
    let now = clock::mono_ms();
    let due = |p: &Program| match p.runs {
        None => Some(p.start_at_ms.saturating_sub(now)),
        Some(_) if !p.named => Some(LOOK_MS),
        Some(_) => None,
    };
    programs().iter().filter_map(due).min()
}

/// A child has ended; whether it was one of these.
pub fn ended(pid: i32, exit: Exit, log: &ErrorLog) -> bool {
    let now = clock::mono_ms();
    let mut programs = programs();
    let Some(at) = programs.iter().position(|p| p.runs.is_some_and(|(own, _)| own == pid)) else {
        return false;
    };
    let how = match exit {
        Exit::Code(code) => format!("with code {code}"),
        Exit::Signal(signal) => format!("on signal {signal}"),
    };
    let (level, then) = match programs[at].rest(now) {
        Some(ms) => (LogLevel::Alert, format!(", starting it again in {ms} ms")),
        None => (LogLevel::Notice, String::new()),
    };
    let text = format!("\"{}\" ({pid}) exited {how}{then}", programs[at].name.display());
    if !programs[at].named {
        programs.remove(at);
    }
    drop(programs);
    log.log(level, None, text.as_bytes());
    true
}

impl Program {
    fn start(&mut self, now: u64) -> Option<(LogLevel, String)> {
        if self.runs.is_some() || now < self.start_at_ms {
            return None;
        }
        let mut words = words(&self.name);
        let program = words.drain(..1.min(words.len())).next()?;
        let shown = self.name.display();
        match self.unread.start(Path::new(&program), &words) {
            Ok(pid) => {
                let text = format!("start \"{shown}\" ({pid})");
                self.runs = Some((pid, now));
                Some((LogLevel::Notice, text))
            }
            Err(e) => {
                let why = crate::os_text(&e);
                let text = format!("starting \"{shown}\" failed ({why}), will try again");
                self.start_at_ms = now + self.rest_ms;
                self.rest_ms = (self.rest_ms * 2).min(REST_MAX_MS);
                Some((LogLevel::Alert, text))
            }
        }
    }

    /// It has ended: after how long it is started again.
    fn rest(&mut self, now: u64) -> Option<u64> {
        let (_, since) = self.runs.take()?;
        if now - since >= STEADY_MS {
            self.rest_ms = REST_MS;
        }
        let rest = self.rest_ms;
        self.start_at_ms = now + rest;
        self.rest_ms = (rest * 2).min(REST_MAX_MS);
        self.named.then_some(rest)
    }

    /// Nobody names it. One that goes on though it reads no more is told to end.
    fn hurry(&mut self, now: u64) {
        let left = self.unread.left();
        if self.left.map(|(bytes, _)| bytes) != left {
            self.left = left.map(|bytes| (bytes, now));
        }
        let is_late = self.left.is_some_and(|(_, since)| now - since >= GRACE_MS);
        if let Some((pid, _)) = self.runs.filter(|_| is_late && !self.told) {
            self.told = true;
            // It may just have ended.
            let _ = signals::send(pid, Signal::Term);
        }
    }
}

/// The end of this process, which has closed its logs: programs read what is left, but are not waited for
/// long. Those that have read nothing meanwhile are told to end; others end by themselves.
pub(crate) fn finish() {
    let deadline = Instant::now() + LAST;
    let before: Vec<_> = programs().iter().map(|p| (p.runs, p.unread.left())).collect();
    while Instant::now() < deadline && programs().iter().any(|p| p.runs.is_some()) {
        while let Some((pid, _)) = process::reap() {
            programs().retain(|p| p.runs.is_some_and(|(own, _)| own != pid));
        }
        std::thread::sleep(LAST_LOOK);
    }
    for p in programs().drain(..) {
        let reads_on = !before.contains(&(p.runs, p.unread.left()));
        if let Some((pid, _)) = p.runs.filter(|_| !reads_on) {
            let _ = signals::send(pid, Signal::Term);
        }
    }
}
