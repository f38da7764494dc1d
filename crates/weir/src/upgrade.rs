//! Binary upgrade, nginx's way: USR2 starts the new program with the listening sockets named in
//! the NGINX environment variable; the old one renames its pid file and goes on until told.

use crate::heirs::{self, Successor};
use crate::inquiry;
use crate::sockets::Sockets;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, OnceLock};
use weir_core::logger::{ErrorLog, LogLevel};
use weir_runtime::listen::{self, Listener};
use weir_runtime::packets::Packets;
use weir_runtime::sockets::{AsRawFd, RawFd};
use weir_runtime::{process, signals, trusted};

/// The variable that hands sockets over; nginx's own, so either may replace the other.
pub const VARIABLE: &str = "NGINX";

/// A new program that is running beside this one.
pub struct Upgrade {
    pid: i32,
    /// Where the pid file was moved, and from where.
    moved: Option<(PathBuf, PathBuf)>,
    /// By which kept connections go to it.
    pub link: Option<Packets>,
}

impl Upgrade {
    /// Where kept connections go.
    pub fn successor(&self) -> Arc<Successor> {
        Successor::new(self.link.as_ref().and_then(|l| l.try_clone().ok()))
    }

    /// Where this program's pid file is now.
    pub fn moved_to(&self) -> Option<&PathBuf> {
        self.moved.as_ref().map(|(to, _)| to)
    }
}

fn old_name(pid_file: &Path) -> PathBuf {
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
    if upgrade.is_some() || predecessor_runs() {
        let text = "the changing binary signal is ignored: you should shutdown or terminate \
                    before either old or new binary's process";
        return log.log(LogLevel::Crit, None, text.as_bytes());
    }
    *upgrade = start(sockets, pid_file, log);
}

fn start(sockets: &Sockets, pid_file: &Option<PathBuf>, log: &ErrorLog) -> Option<Upgrade> {
    let mut args = weir_runtime::title::arguments().iter();
    let program = args.next()?;
    let fds: Vec<RawFd> = sockets.all().map(|l| l.fd()).collect();
    let list: String = fds.iter().map(|fd| format!("{fd};")).collect();
    let moved = pid_file.as_ref().map(|p| (old_name(p), p.clone()));
    if let Some((to, from)) = &moved {
        // Without its pid file there is nothing to move.
        let _ = trusted::rename(from, to);
        inquiry::rename(to);
    }
    let mut command = Command::new(program);
    command.args(args).env(VARIABLE, list).env_remove(heirs::VARIABLE);
    let mut keep = fds;
    let (link, theirs) = heirs::pair().unzip();
    if let Some(theirs) = &theirs {
        command.env(heirs::VARIABLE, heirs::number(theirs));
        keep.push(theirs.as_raw_fd());
    }
    let prepare = move || {
        signals::unblock_all();
        keep.iter().try_for_each(|fd| process::set_cloexec(*fd, false))
    };
    match weir_runtime::process::spawn_with(&mut command, prepare) {
        Ok(pid) => {
            log.log(LogLevel::Notice, None, format!("start new binary process {pid}").as_bytes());
            Some(Upgrade { pid, moved, link })
        }
        Err(e) => {
            log.log(
                LogLevel::Alert,
                None,
                format!("starting the new binary failed: {e}").as_bytes(),
            );
            restore(&moved);
            None
        }
    }
}

fn restore(moved: &Option<(PathBuf, PathBuf)>) {
    if let Some((to, from)) = moved {
        let _ = trusted::rename(to, from);
        inquiry::rename(from);
    }
}

/// The new program has ended: the old one takes its pid file back. `true` when it was that one.
pub fn ended(upgrade: &mut Option<Upgrade>, pid: i32) -> bool {
    match upgrade {
        Some(u) if u.pid == pid => {
            restore(&u.moved);
            *upgrade = None;
            true
        }
        _ => false,
    }
}

/// The program that started this one to take its place.
static PREDECESSOR: OnceLock<u32> = OnceLock::new();

/// Whether the program that this one is to replace still runs.
pub fn predecessor_runs() -> bool {
    PREDECESSOR.get().is_some_and(|pid| process::parent_pid() == *pid)
}

/// Takes the sockets that an older program left in the environment. To be called before this
/// program has opened anything.
pub fn take_sockets() -> bool {
    heirs::take_link();
    let list = std::env::var(VARIABLE);
    // Neither is for programs that this one starts. It has one thread yet.
    [VARIABLE, heirs::VARIABLE].into_iter().for_each(|name| std::env::remove_var(name));
    let Ok(list) = list else { return false };
    let listeners: Vec<Listener> = list
        .split([';', ':'])
        .filter_map(|n| n.parse::<RawFd>().ok())
        .filter_map(listen::inherit)
        .collect();
    let any = !listeners.is_empty();
    if any {
        // It is set once.
        let _ = PREDECESSOR.set(process::parent_pid());
    }
    listen::keep_inherited(listeners);
    any
}
