//! A service is one process to the system, from its start to its end: when a new program has taken its place it stands for
//! that one, and for those that come after.

use crate::upgrade::{self, Upgrade};
use std::path::PathBuf;
use weir_core::logger::{ErrorLog, LogLevel};
use weir_runtime::process::{self, Exit};
use weir_runtime::signals::{self, Signal};
use weir_runtime::{service, trusted};

/// The programs that serve in this one's place.
pub struct Succession {
    /// The last serves; those before it have been replaced, and serve what they have to its end.
    pids: Vec<i32>,
    /// The last that was found in the pid file.
    newest: i32,
    pid_file: PathBuf,
    /// What this process had to serve when another took its place has been served.
    pub serves_no_more: bool,
    /// By which they were told to end. Who comes after that had begun to before.
    end: Option<Signal>,
    /// The last, which nobody had replaced, has ended, and not because it was told to.
    has_failed: bool,
}

impl Succession {
    /// With that one, which has begun.
    pub fn begin(upgrade: &Upgrade) -> Option<Succession> {
        let (newest, pid_file) = (upgrade.pid(), upgrade.pid_file()?.clone());
        Some(Succession {
            pids: vec![newest],
            newest,
            pid_file,
            serves_no_more: false,
            end: None,
            has_failed: false,
        })
    }

    /// A further one is known by the pid file that it has written, which may name another server of the same folder. Only the
    /// process that the system knows looks: the others have started theirs.
    fn look(&mut self) {
        if !service::is_main() {
            return;
        }
        let Some(pid) = upgrade::number_in(&self.pid_file).filter(|pid| *pid != self.newest) else {
            return;
        };
        let is_known = self.pids.contains(&pid) || pid.unsigned_abs() == process::pid();
        if is_known || process::watch(pid).is_err() {
            return;
        }
        self.pids.push(pid);
        self.newest = pid;
        if let Some(signal) = self.end {
            // If it has just ended that is told of.
            let _ = signals::send(pid, signal);
        }
    }

    /// Whether that process is one of them, of those that are known.
    pub fn has(&self, pid: i32) -> bool {
        self.pids.contains(&pid)
    }

    /// Whether nobody serves any more.
    pub fn is_over(&self) -> bool {
        self.pids.is_empty()
    }

    /// Whether one of them still runs, which the process that the system knows waits for.
    pub fn is_alive(&self) -> bool {
        service::is_main() && !self.is_over()
    }

    /// Whether nobody serves any more, though somebody should.
    pub fn has_failed(&self) -> bool {
        self.has_failed && self.is_over()
    }

    /// Says to them what this process was told, unless those have their own.
    pub fn say(&mut self, signal: Signal) {
        if !service::is_main() {
            return;
        }
        self.look();
        if matches!(signal, Signal::Quit | Signal::Term | Signal::Int) {
            self.end = Some(signal);
        }
        if signal == Signal::Usr2 {
            // Somebody else may have had it open when it was to go; while it is there the newest takes this process for one
            // that serves.
            self.remove_old();
        }
        let to = match signal {
            Signal::Chld => &[],
            // Not to those that end.
            Signal::Hup | Signal::Usr2 => &self.pids[self.pids.len().saturating_sub(1)..],
            _ => &self.pids[..],
        };
        for pid in to {
            // One that has just ended is told of.
            let _ = signals::send(*pid, signal);
        }
    }

    /// Takes away the pid file that this process has had since another took its place, once it serves no more.
    fn remove_old(&self) {
        let old = upgrade::old_name(&self.pid_file);
        let is_own = || upgrade::number_in(&old).map(i32::unsigned_abs) == Some(process::pid());
        if self.serves_no_more && is_own() {
            // It is tried again.
            let _ = trusted::remove(&old);
        }
    }

    /// A process has ended, which may be one of them.
    pub fn ended(&mut self, pid: i32, exit: Exit, log: &ErrorLog) {
        // Who has replaced it has begun by then.
        self.look();
        let Some(at) = self.pids.iter().position(|p| *p == pid) else { return };
        self.pids.remove(at);
        if at < self.pids.len() {
            return;
        }
        self.has_failed = exit != Exit::Code(0);
        if self.has_failed {
            log.log(LogLevel::Alert, None, b"the program that had taken over has died");
        }
    }
}
