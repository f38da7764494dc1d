//! The main thread of a process that serves: signals and reload, with a master beside it or alone.

use crate::changes::{AtStart, Changes};
use crate::globals::Global;
use crate::heirs::Successor;
use crate::limits;
use crate::load::{self, Loaded, Paths, Warning};
use crate::logs::Logs;
use crate::orphan::Orphan;
use crate::serving::Serving;
use crate::sockets::Sockets;
use crate::upgrade::{self, Upgrade};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use weir_conf::{BundleLoader, Sources};
use weir_core::generation::Generation;
use weir_core::logger::{self, ErrorLog, LogLevel};
use weir_core::{programs, shared_file};
use weir_module::Mode;
use weir_runtime::children;
use weir_runtime::handed::{Kind, Message};
use weir_runtime::handover;
use weir_runtime::packets::Packets;
use weir_runtime::signals::{Signal, Waiter, Wake};
use weir_runtime::sockets::{AsRawFd, OwnedFd, UnixStream};
use weir_runtime::{files, process, service, trusted};

/// How often a process that is ending, or a worker that may have ended, is looked at.
const LOOK_MS: u64 = 100;
/// A pid file has a number and a line feed.
const PID_MAX_BYTES: u64 = 32;
/// A worker that died is noticed at the latest after this.
const HEAL_MS: u64 = 1000;

/// One process does everything: not root, or `master_process off`.
pub fn single(
    paths: &Paths,
    loaded: Loaded,
    sockets: Sockets,
    waiter: &Waiter,
) -> Result<(), String> {
    let mut pid_file = paths.pid_path(loaded.generation.global.get::<Global>());
    let mut serving = Serving::start(loaded.into_generation(), sockets)?;
    crate::service::is_ready();
    let mut ending = false;
    let (mut upgrade, mut successor) = (None, None);
    let mut logs = Logs::of(&serving.generation.global);
    loop {
        tend_logs(&mut logs, &serving);
        let wake = waiter.wait(None, Some(pause(&serving, ending, &logs)));
        if let Wake::Signal(signal) = wake {
            log_signal(&serving.generation.error_log, signal, waiter.sender());
        }
        match wake {
            Wake::Signal(Signal::Hup) if !ending => {
                reload_single(paths, &mut serving, &mut logs);
                move_pid(&mut pid_file, paths, &serving.generation);
            }
            Wake::Signal(Signal::Usr1) => serving.reopen_logs(),
            Wake::Signal(Signal::Usr2) if !ending => {
                begin_upgrade(&mut upgrade, &serving, &pid_file);
                // One way only, and one who hears that the other side is ready.
                if successor.is_none() {
                    successor = upgrade.as_ref().map(Upgrade::successor);
                    successor.iter().for_each(|s| serving.offer(s));
                }
            }
            Wake::Signal(Signal::Quit | Signal::Winch) => {
                log(&serving.generation, LogLevel::Notice, "gracefully shutting down");
                serving.remove_unix_files(&upgrade, &pid_file);
                serving.quit(successor.clone());
                ending = true;
            }
            Wake::Signal(Signal::Term | Signal::Int) => {
                serving.stop();
                ending = true;
            }
            Wake::Signal(Signal::Chld) => {
                while let Some((pid, exit)) = process::reap() {
                    let log = &serving.generation.error_log;
                    let _ = programs::ended(pid, exit, log)
                        || upgrade::ended(&mut upgrade, pid, exit, log);
                }
                if upgrade.is_none() && !ending {
                    successor = None;
                }
            }
            Wake::Timeout if ending && serving.may_end(successor.as_deref()) => break,
            Wake::Timeout if !ending => serving.heal(),
            Wake::Timeout => serving.hand_on(successor.as_deref(), false),
            _ => {}
        }
        if !ending {
            serving.tend();
        }
    }
    crate::asked::end();
    children::end();
    shared_file::write_left(true);
    serving.hand_on(successor.as_deref(), true);
    serving.finish(&upgrade, &pid_file);
    Ok(())
}

fn begin_upgrade(upgrade: &mut Option<Upgrade>, serving: &Serving, pid_file: &Option<PathBuf>) {
    let log = &serving.generation.error_log;
    if service::is_one() {
        // Nobody would tell it to end.
        let text = b"a service without a master is not upgraded: stop and start it";
        return log.log(LogLevel::Crit, None, text);
    }
    upgrade::begin(upgrade, &serving.sockets, pid_file, log);
}

/// How long the main thread of a serving process may wait.
fn pause(serving: &Serving, ending: bool, logs: &Logs) -> u64 {
    let pause = match ending {
        true => LOOK_MS,
        false => HEAL_MS.min(serving.tend_in_ms()),
    };
    pause.min(logs.due_in_ms().unwrap_or(u64::MAX))
}

fn tend_logs(logs: &mut Logs, serving: &Serving) {
    if logs.tend(&serving.generation.error_log) {
        serving.flush_logs();
    }
}

pub fn log(gen: &Generation, level: LogLevel, text: &str) {
    gen.error_log.log(level, None, text.as_bytes());
}

/// Tells who has sent the main process a signal, and what it does upon it, in nginx's words.
pub fn log_signal(to: &ErrorLog, signal: Signal, sender: Option<u32>) {
    let action = match signal {
        Signal::Hup => ", reconfiguring",
        Signal::Quit => ", shutting down",
        Signal::Term | Signal::Int => ", exiting",
        Signal::Usr1 => ", reopening logs",
        Signal::Usr2 => ", changing binary",
        Signal::Winch => ", stop accepting connections",
        Signal::Chld | Signal::Kill | Signal::Tstp | Signal::Cont | Signal::Stop => "",
    };
    let from = sender.map(|pid| format!(" from {pid}")).unwrap_or_default();
    let text = format!("signal {} ({}) received{from}{action}", signal.number(), signal.name());
    to.log(LogLevel::Notice, None, text.as_bytes());
}

/// Tells why a generation could not be put in place.
fn log_all(gen: &Generation, failed: &[String]) {
    failed.iter().for_each(|e| log(gen, LogLevel::Emerg, e));
}

/// Tells which logs could not be opened again.
pub fn log_failures(gen: &Generation, failed: Vec<(PathBuf, std::io::Error)>) {
    for (path, e) in failed {
        let why = weir_core::os_text(&e);
        log(gen, LogLevel::Emerg, &format!("open() \"{}\" failed ({why})", path.display()));
    }
}

/// HUP without a master: read, build, then put in place; an error leaves everything as it was.
fn reload_single(paths: &Paths, serving: &mut Serving, logs: &mut Logs) {
    // A zone that the new configuration has otherwise is read from its file.
    shared_file::write_left(false);
    let loaded = match load::load(paths, Mode::Serve) {
        Ok(l) => l,
        Err(e) => {
            log_warnings(&serving.generation.error_log, &e.warnings);
            return log(&serving.generation, LogLevel::Emerg, &e.line);
        }
    };
    log_warnings(&serving.generation.error_log, &loaded.warnings);
    let global = loaded.generation.global.get::<Global>();
    let changes =
        Changes::alone(&AtStart::of(serving.generation.global.get()), &AtStart::of(global));
    let workers = global.workers();
    match serving.sockets.adopt(&loaded.generation, workers, Vec::new()) {
        Ok(sockets) => {
            log_changes(&loaded.generation, &changes);
            logs.renew(&loaded.generation.global);
            if let Err(e) = serving.replace(loaded.generation, sockets) {
                log(&serving.generation, LogLevel::Emerg, &e);
            }
            log_failures(&serving.generation, logger::reopen_moved());
            limits::apply(
                0,
                serving.generation.global.get::<Global>(),
                &serving.generation.error_log,
            );
        }
        Err(failed) => log_all(&serving.generation, &failed),
    }
}

/// Removes the pid file: under its other name while a new program runs beside this one.
pub fn remove_pid(upgrade: &Option<Upgrade>, path: &Option<PathBuf>) {
    let path = match upgrade {
        Some(u) => u.moved_to().or(path.as_ref()),
        None => path.as_ref(),
    };
    crate::inquiry::remove();
    if let Some(p) = path.filter(|p| !is_anothers(p)) {
        // Another process may have removed it with its directory.
        let _ = trusted::remove(p);
    }
}

/// Whether the pid file names another process: who was started while this one was still about to end has written it
/// anew, and would not be found without it.
fn is_anothers(pid_file: &Path) -> bool {
    // A pipe in its place would keep this process from ending.
    let is_file = std::fs::symlink_metadata(pid_file).is_ok_and(|m| m.is_file());
    let text = is_file.then(|| files::read_at_most(pid_file, PID_MAX_BYTES).ok()).flatten();
    let pid = text.and_then(|t| std::str::from_utf8(&t).ok()?.trim().parse::<u32>().ok());
    pid.is_some_and(|pid| pid != process::pid())
}

/// Writes the pid file.
pub fn write_pid(path: &Path) -> Result<(), String> {
    let text = format!("{}\n", process::pid());
    trusted::write(path, text.as_bytes()).map_err(|e| crate::open_failed(path, &e))
}

/// The pid file of a new configuration in the place of the old one's, where they differ.
pub fn move_pid(have: &mut Option<PathBuf>, paths: &Paths, gen: &Generation) {
    let want = paths.pid_path(gen.global.get::<Global>());
    if *have == want {
        return;
    }
    if let Some(Err(e)) = want.as_deref().map(write_pid) {
        return log(gen, LogLevel::Emerg, &e);
    }
    if let Some(new) = &want {
        crate::inquiry::rename(new);
    }
    if let Some(old) = std::mem::replace(have, want) {
        // Somebody may have removed it.
        let _ = trusted::remove(&old);
    }
}

/// Tells what a new configuration warns of, as `-t` does, in the log that is in force.
pub fn log_warnings(to: &ErrorLog, warnings: &[Warning]) {
    warnings.iter().for_each(|w| to.log(w.level, None, w.line.as_bytes()));
}

/// Tells what of the new configuration only a restart would bring, in its own log.
pub fn log_changes(gen: &Generation, changes: &Changes) {
    changes.warnings().for_each(|w| log(gen, LogLevel::Warn, &w));
}

impl Serving {
    /// Another program that has the sockets too goes on with them.
    fn remove_unix_files(&self, upgrade: &Option<Upgrade>, pid_file: &Option<PathBuf>) {
        if upgrade.is_none() && !upgrade::predecessor_serves(pid_file) {
            self.sockets.remove_unix_files(None);
        }
    }

    fn finish(&self, upgrade: &Option<Upgrade>, pid_file: &Option<PathBuf>) {
        self.remove_unix_files(upgrade, pid_file);
        remove_pid(upgrade, pid_file);
        log(&self.generation, LogLevel::Notice, "exit");
    }
}

/// The serving process under a master.
pub fn serve(
    paths: &Paths,
    generation: Arc<Generation>,
    own: Sockets,
    who: Option<process::Identity>,
    link: &UnixStream,
    waiter: &Waiter,
) -> Result<(), String> {
    let global = generation.global.get::<Global>();
    crate::apply_limits(global, &generation.error_log);
    if let Some(nice) = global.worker_priority.as_option() {
        // Threads take it over, and have no right to it later; they tell of a failure.
        let _ = process::set_priority(*nice);
    }
    if let Some(who) = who {
        let any_source = crate::protocols::binds_any_source(&generation);
        process::become_user(&who, any_source)
            .map_err(|e| format!("becoming user \"{}\" failed: {e}", who.name))?;
    }
    crate::title("worker process");
    let serving = Serving::start(generation, own)?;
    crate::service::is_ready();
    let (orphan, logs) = (None, Logs::default());
    let mut p = UnderMaster { paths, link, serving, ending: false, orphan, successor: None, logs };
    let mut master = Some(link);
    loop {
        let ready = match (&p.orphan, master) {
            (Some(o), _) => Some(o.fd()),
            (None, master) => master.map(|l| l.as_raw_fd()),
        };
        tend_logs(&mut p.logs, &p.serving);
        match waiter.wait(ready, Some(pause(&p.serving, p.ending, &p.logs))) {
            Wake::Ready if p.orphan.is_some() => p.give_sockets(),
            Wake::Ready => match handover::receive(link) {
                Ok((body, fds)) => p.take(&body, fds),
                Err(_) => {
                    master = None;
                    p.lose_master();
                }
            },
            Wake::Signal(signal) => p.handle(signal),
            Wake::Timeout if p.ending && p.serving.may_end(p.successor.as_deref()) => {
                crate::asked::end();
                children::end();
                shared_file::write_left(true);
                p.serving.hand_on(p.successor.as_deref(), true);
                return Ok(());
            }
            Wake::Timeout if !p.ending => p.serving.heal(),
            Wake::Timeout => p.serving.hand_on(p.successor.as_deref(), false),
        }
        if !p.ending {
            p.serving.tend();
        }
    }
}

/// The serving process under a master, or without one after that has died.
struct UnderMaster<'a> {
    paths: &'a Paths,
    link: &'a UnixStream,
    serving: Serving,
    ending: bool,
    orphan: Option<Orphan>,
    /// The process that is to take this one's place.
    successor: Option<Arc<Successor>>,
    /// The master's, until that dies.
    logs: Logs,
}

impl UnderMaster<'_> {
    fn handle(&mut self, signal: Signal) {
        match signal {
            Signal::Usr1 => self.serving.reopen_logs(),
            Signal::Quit | Signal::Winch => self.quit(),
            Signal::Term | Signal::Int => {
                self.serving.stop();
                self.ending = true;
            }
            // The master has the others; what code of Lua's waits for by itself is its own.
            Signal::Chld => children::reap(),
            _ => {}
        }
    }

    fn quit(&mut self) {
        crate::title("worker process is shutting down");
        log(&self.serving.generation, LogLevel::Notice, "gracefully shutting down");
        // What the master said before the signal counts.
        while self.orphan.is_none() && handover::has_message(self.link) {
            let Ok((body, fds)) = handover::receive(self.link) else { break };
            self.take(&body, fds);
        }
        self.serving.quit(self.successor.clone());
        self.ending = true;
        // The name is free for the next.
        self.orphan = None;
    }

    fn take(&mut self, body: &[u8], fds: Vec<OwnedFd>) {
        let Some(message) = Message::unpack(body) else { return };
        match message.kind {
            Kind::Successor => {
                let link = fds.into_iter().next().and_then(Packets::of);
                let successor = Successor::new(link);
                self.serving.offer(&successor);
                self.successor = Some(successor);
            }
            Kind::NoSuccessor => self.successor = None,
            Kind::Quit => self.quit(),
            _ => take_over(self.paths, &mut self.serving, &message, fds),
        }
    }

    /// Nobody can reload or restart now, but nothing is dropped, where the system does not end the process anyway.
    fn lose_master(&mut self) {
        if self.ending {
            return;
        }
        if !process::OUTLIVES_MASTER {
            log(&self.serving.generation, LogLevel::Alert, "the master process has died, exiting");
            self.serving.stop();
            self.ending = true;
            return;
        }
        let gen = Arc::clone(&self.serving.generation);
        self.logs.renew(&gen.global);
        let global = gen.global.get::<Global>();
        let text = "the master process has died; this one goes on serving until it is told to end";
        self.orphan = match Orphan::new(self.paths.pid_path(global).as_deref()) {
            Ok(o) => {
                let more = "or until the program is started again, which then takes its sockets";
                log(&gen, LogLevel::Alert, &format!("{text}, {more}"));
                Some(o)
            }
            Err(e) => {
                let more = "a new start finds the addresses in use before";
                log(&gen, LogLevel::Alert, &format!("{text}; {more} ({e})"));
                None
            }
        };
    }

    fn give_sockets(&mut self) {
        let Some(orphan) = &self.orphan else { return };
        match orphan.give(&self.serving.sockets) {
            Ok(None) => {}
            Ok(Some(successor)) => {
                let text = "a new master has taken the sockets";
                log(&self.serving.generation, LogLevel::Notice, text);
                self.successor = Some(successor);
                self.quit();
            }
            Err(e) => {
                let text = format!("giving the sockets to a new master failed: {e}");
                log(&self.serving.generation, LogLevel::Warn, &text);
            }
        }
    }
}

/// What the master hands over: a configuration that it has validated, with its sockets and log
/// files, or log files alone.
fn take_over(paths: &Paths, serving: &mut Serving, message: &Message, fds: Vec<OwnedFd>) {
    let (sockets, files) = message.sort(fds);
    if message.kind == Kind::Logs {
        serving.flush_logs();
    }
    for (path, file) in files {
        logger::keep_handed(path, file);
    }
    if message.kind == Kind::Logs {
        logger::drop_handed();
        // Those that only an older configuration has are not the master's any more.
        return log_failures(&serving.generation, logger::reopen_moved());
    }
    shared_file::write_left(false);
    let loaded =
        Sources::from_bundle(&message.bundle).map_err(|e| vec![e.to_string()]).and_then(|s| {
            load::load_from(paths, Mode::Serve, &BundleLoader::new(&s)).map_err(|e| vec![e.line])
        });
    let replaced = loaded.and_then(|l| {
        let workers = l.generation.global.get::<Global>().workers();
        let sockets = serving.sockets.adopt(&l.generation, workers, sockets)?;
        serving.replace(l.into_generation(), sockets).map_err(|e| vec![e])
    });
    if let Err(failed) = replaced {
        log_all(&serving.generation, &failed);
    }
    logger::drop_handed();
}
