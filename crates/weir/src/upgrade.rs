//! Binary upgrade, nginx's way: USR2 starts the new program with the listening sockets; the old one renames its pid file
//! and goes on until told.

use crate::heirs::{self, Successor};
use crate::sockets::Sockets;
use crate::{control, inquiry};
use std::io::{Error, ErrorKind};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::os_text;
use weir_runtime::listen::{self, Listener};
use weir_runtime::packets::Packets;
use weir_runtime::process::Exit;
use weir_runtime::signals::{self, Signal};
use weir_runtime::{files, process, service, succession, trusted};

/// Who has asked for an upgrade waits so long for its beginning, and for a new program that serves.
const BEGINS: Duration = Duration::from_secs(10);
const SERVES: Duration = Duration::from_secs(120);
const LOOK: Duration = Duration::from_millis(50);
/// A pid file has a number and a line feed.
const PID_MAX_BYTES: u64 = 32;

/// A new program that is running beside this one.
pub struct Upgrade {
    pid: i32,
    /// Where the pid file was moved, and from where.
    moved: Option<(PathBuf, PathBuf)>,
    /// By which kept connections go to it.
    pub link: Option<Packets>,
    /// What this program was told before that one had begun: it has read its files before, and opened its logs.
    unsaid: Vec<Signal>,
}

impl Upgrade {
    /// Where kept connections go.
    pub fn successor(&self) -> Arc<Successor> {
        Successor::new(self.link.as_ref().and_then(|l| l.try_clone().ok()))
    }

    /// The program that is to take this one's place.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// What a service is told before the new program has begun is for that, too.
    pub fn hear(&mut self, signal: Signal) {
        match signal {
            // Once is enough, however long the new program takes.
            Signal::Hup | Signal::Usr1 if self.unsaid.contains(&signal) => {}
            Signal::Hup | Signal::Usr1 => self.unsaid.push(signal),
            // If it has just ended that is told of.
            Signal::Quit | Signal::Term | Signal::Int => drop(signals::send(self.pid, signal)),
            _ => {}
        }
    }

    /// It has begun.
    pub fn say_rest(&mut self) {
        // As above.
        self.unsaid.drain(..).for_each(|signal| drop(signals::send(self.pid, signal)));
    }

    /// Whether it listens, by a configuration that it has read: it has written the pid file then.
    pub fn has_begun(&self) -> bool {
        self.moved.as_ref().is_some_and(|(_, at)| number_in(at) == Some(self.pid))
    }

    /// Where it writes its number.
    pub fn pid_file(&self) -> Option<&PathBuf> {
        self.moved.as_ref().map(|(_, at)| at)
    }

    /// Where this program's pid file is now.
    pub fn moved_to(&self) -> Option<&PathBuf> {
        self.moved.as_ref().map(|(to, _)| to)
    }
}

pub fn old_name(pid_file: &Path) -> PathBuf {
    let mut name = pid_file.as_os_str().to_os_string();
    name.push(".oldbin");
    name.into()
}

/// Starts the new program, unless there are two already.
pub fn begin(
    upgrade: &mut Option<Upgrade>,
    sockets: &Sockets,
    pid_file: &Option<PathBuf>,
    log: &ErrorLog,
) {
    if upgrade.is_some() || predecessor_serves(pid_file) {
        let text = "the changing binary signal is ignored: you should shutdown or terminate \
                    before either old or new binary's process";
        return log.log(LogLevel::Crit, None, text.as_bytes());
    }
    *upgrade = start(sockets, pid_file, log);
}

fn start(sockets: &Sockets, pid_file: &Option<PathBuf>, log: &ErrorLog) -> Option<Upgrade> {
    let moved = pid_file.as_ref().map(|p| (old_name(p), p.clone()));
    if let Some((to, from)) = &moved {
        match trusted::rename(from, to) {
            Ok(()) => {}
            // Without its pid file there is nothing to move.
            Err(e) if e.kind() == ErrorKind::NotFound => {}
            Err(e) => {
                let text = "failed before executing new binary process";
                say_not_renamed(from, to, &e, text, log);
                return None;
            }
        }
        inquiry::rename(to);
    }
    let (link, theirs) = heirs::pair().unzip();
    let all: Vec<&Listener> = sockets.all().map(|l| &**l).collect();
    match succession::start(&all, theirs) {
        Ok(pid) => {
            log.log(LogLevel::Notice, None, format!("start new binary process {pid}").as_bytes());
            Some(Upgrade { pid, moved, link, unsaid: Vec::new() })
        }
        Err(e) => {
            log.log(
                LogLevel::Alert,
                None,
                format!(
                    "starting the new binary {} failed ({})",
                    succession::program(),
                    os_text(&e)
                )
                .as_bytes(),
            );
            restore(&moved, log);
            None
        }
    }
}

fn restore(moved: &Option<(PathBuf, PathBuf)>, log: &ErrorLog) {
    if let Some((to, from)) = moved {
        match trusted::rename(to, from) {
            Err(e) if e.kind() != ErrorKind::NotFound => {
                let text = "back failed after an attempt to execute new binary process";
                say_not_renamed(to, from, &e, text, log);
                // Without one nobody finds this program again. That both names have its number is known to who asks.
                if let Err(text) = control::write_pid(from) {
                    log.log(LogLevel::Alert, None, text.as_bytes());
                }
            }
            _ => {}
        }
        inquiry::rename(from);
    }
}

fn say_not_renamed(from: &Path, to: &Path, e: &Error, when: &str, log: &ErrorLog) {
    let (from, to) = (from.display(), to.display());
    let why = weir_conf::messages::os_error(e);
    let text = format!("rename() \"{from}\" to \"{to}\" {when} ({why})");
    log.log(LogLevel::Alert, None, text.as_bytes());
}

/// The new program has ended: the old one takes its pid file back. `true` when it was that one.
pub fn ended(upgrade: &mut Option<Upgrade>, pid: i32, exit: Exit, log: &ErrorLog) -> bool {
    match upgrade {
        Some(u) if u.pid == pid => {
            let (level, how) = match exit {
                Exit::Code(0) => (LogLevel::Notice, "with code 0".to_owned()),
                Exit::Code(code) => (LogLevel::Alert, format!("with code {code}")),
                Exit::Signal(signal) => (LogLevel::Alert, format!("on signal {signal}")),
            };
            let text = format!("the new binary process {pid} exited {how}");
            log.log(level, None, text.as_bytes());
            restore(&u.moved, log);
            *upgrade = None;
            true
        }
        _ => false,
    }
}

/// Whether an upgrade may be asked for.
///
/// # Errors
///
/// One is under way.
pub fn may_begin(pid_file: &Path) -> Result<(), String> {
    let old = old_name(pid_file);
    // One that was killed has left it.
    let is_anyones = || number_in(&old).is_none_or(process::runs);
    // And one that could not give it its first name again.
    let is_same = || number_in(&old).is_some_and(|pid| number_in(pid_file) == Some(pid));
    match old.exists() && is_anyones() && !is_same() {
        true => Err(format!(
            "an upgrade is under way: there is \"{}\"; the process that it names is to end first",
            old.display()
        )),
        false => Ok(()),
    }
}

/// The number in a pid file, once all of it is there.
pub fn number_in(pid_file: &Path) -> Option<i32> {
    let text = files::read_at_most(pid_file, PID_MAX_BYTES).ok()?;
    std::str::from_utf8(&text).ok()?.strip_suffix('\n')?.trim().parse().ok().filter(|pid| *pid > 0)
}

/// Waits until another program than that process has written the pid file, which it does once it listens by a
/// configuration that it has read.
///
/// # Errors
///
/// It does not.
pub fn wait(pid_file: &Path, pid: i32) -> Result<i32, String> {
    let (begun, old) = (Instant::now(), old_name(pid_file));
    let mut has_begun = false;
    loop {
        let number = number_in(pid_file);
        if let Some(new) = number.filter(|new| *new != pid) {
            return Ok(new);
        }
        let is_back = has_begun && number == Some(pid);
        if !process::runs(pid) {
            return Err(format!("process {pid} has ended before a new program served"));
        }
        // One that was killed may have left another's, and one that cannot be read now may be it still.
        let at_old = number_in(&old);
        // Of both names with its number one was left behind.
        let is_moved = at_old == Some(pid) && number != Some(pid);
        let is_begun = is_moved || has_begun && at_old.is_none() && old.exists();
        if is_back || has_begun && !is_begun || !has_begun && begun.elapsed() > BEGINS {
            return Err(format!(
                "the new program has not started, and process {pid} goes on; the error log says why"
            ));
        }
        if begun.elapsed() > SERVES {
            return Err(format!(
                "the new program takes too long; process {pid} goes on, and both are there"
            ));
        }
        has_begun |= is_begun;
        std::thread::sleep(LOOK);
    }
}

/// The program that started this one to take its place.
struct Predecessor {
    pid: u32,
    /// It has said so itself, and is not just the parent.
    is_sure: bool,
}

static PREDECESSOR: OnceLock<Predecessor> = OnceLock::new();

/// Whether the program that this one is to replace still serves. A service's first process stays after that; it has taken
/// its pid file away by then.
pub fn predecessor_serves(pid_file: &Option<PathBuf>) -> bool {
    let Some(Predecessor { pid, is_sure }) = PREDECESSOR.get() else { return false };
    if process::parent_pid() != *pid {
        return false;
    }
    let old = || pid_file.as_ref().map(|p| old_name(p));
    let stays = || service::is_one() && old().is_some_and(|old| !old.exists());
    // Who had ended before it was asked for leaves the system's first process (none on Windows) as parent, which in a
    // container may be the predecessor.
    let is_moved = || old().and_then(|old| number_in(&old)).map(i32::unsigned_abs) == Some(*pid);
    (*is_sure || *pid > 1 || is_moved()) && !stays()
}

/// Takes the sockets that an older program has handed over. To be called before this program has opened anything.
pub fn take_sockets() -> bool {
    let taken = succession::take();
    heirs::begin(taken.link);
    let any = !taken.listeners.is_empty();
    if any {
        // It is set once.
        let (pid, is_sure) = (taken.from.unwrap_or_else(process::parent_pid), taken.from.is_some());
        let _ = PREDECESSOR.set(Predecessor { pid, is_sure });
    }
    listen::keep_inherited(taken.listeners);
    any
}
