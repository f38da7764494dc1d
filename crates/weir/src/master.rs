//! The master: keeps root's rights, binds and opens, watches the serving process, reloads and
//! reopens for it. It never waits for the serving process: what that does not read is kept, what
//! does not end is killed, what cannot be started is tried again.

use crate::begun;
use crate::changes::{AtStart, Changes};
use crate::control::{
    log_changes, log_failures, log_signal, log_warnings, move_pid, remove_pid, serve,
};
use crate::globals::Global;
use crate::heirs;
use crate::kept::{self, Kept};
use crate::limits;
use crate::load::{self, Loaded, Paths};
use crate::logs::Logs;
use crate::orphan;
use crate::sockets::{Sockets, MASTER_DRAIN_MS};
use crate::stands::Succession;
use crate::upgrade::{self, Upgrade};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::Arc;
use weir_core::counters::RESPAWNED;
use weir_core::generation::Generation;
use weir_core::logger::{self, LogLevel};
use weir_core::{os_text, programs};
use weir_module::Mode;
use weir_runtime::handed::{Kind, Message};
use weir_runtime::handover::Outbox;
use weir_runtime::listen::{self, Listener};
use weir_runtime::packets::Packets;
use weir_runtime::process::{self, Exit, Identity, Started};
use weir_runtime::signals::{self, Signal, Waiter, Wake};
use weir_runtime::sockets::{AsFd, BorrowedFd, OwnedFd};
use weir_runtime::{clock, memory, service, trusted};

/// A serving process that keeps dying, or cannot be started, is started at most once in this time.
const RESTART_REST_MS: u64 = 500;
/// How often a service looks whether its successor has begun.
const LOOK_MS: u64 = 100;
/// A serving process that has not ended so long after TERM is killed; nginx's time.
const KILL_AFTER_MS: u64 = 1550;

/// The serving process, as the master sees it.
pub struct Child {
    pid: i32,
    pub outbox: Outbox,
    started_ms: u64,
}

impl Child {
    fn tell_of_successor(&mut self, link: Option<Option<&Packets>>) -> std::io::Result<()> {
        let kind = if link.is_some() { Kind::Successor } else { Kind::NoSuccessor };
        let fds = link.flatten().map(Packets::to_owned_fd).transpose()?;
        let body = Message::bare(kind, 0).pack();
        self.outbox.send(&body, fds.into_iter().collect(), kind.class())
    }

    /// Hands over the log files that are open, and with a configuration the sockets.
    fn hand(&mut self, kind: Kind, sockets: &Sockets, bundle: Vec<u8>) -> std::io::Result<()> {
        let files = logger::all_files();
        let whole = kind == Kind::Configuration;
        let sockets: Vec<_> = sockets.active().filter(|_| whole).collect();
        let paths = files.iter().map(|(p, _)| p.clone()).collect();
        let body = Message { kind, listeners: sockets.len(), paths, bundle }.pack();
        let files = files.iter().map(|(_, f)| f.as_fd());
        let fds: Vec<BorrowedFd> = sockets.iter().map(|s| s.as_fd()).chain(files).collect();
        let fds: std::io::Result<Vec<OwnedFd>> =
            fds.into_iter().map(|fd| fd.try_clone_to_owned()).collect();
        self.outbox.send(&body, fds?, kind.class())
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Phase {
    Serving,
    /// After WINCH the serving process is gone and not started again until HUP.
    Resting,
    Ending,
}

struct Master<'a> {
    paths: &'a Paths,
    waiter: &'a Waiter,
    kept: Kept,
    /// Until the first serving process has it.
    generation: Option<Arc<Generation>>,
    logs: Logs,
    sockets: Sockets,
    pid_file: Option<PathBuf>,
    child: Option<Child>,
    /// Those that another has replaced, and that end when their requests have.
    leaving: Vec<Child>,
    /// Monotonic ms from which a serving process may be started.
    start_at_ms: u64,
    /// Monotonic ms at which what has not ended is killed.
    kill_at_ms: Option<u64>,
    phase: Phase,
    upgrade: Option<Upgrade>,
    /// Another program serves in this service's place.
    succession: Option<Succession>,
}

/// Runs until told to end.
pub fn master(
    paths: &Paths,
    loaded: Loaded,
    sockets: Sockets,
    waiter: &Waiter,
) -> Result<(), String> {
    let global = loaded.generation.global.get::<Global>();
    limits::note(global);
    crate::figures::keep();
    weir_status::pairs_left::keep();
    let pid_file = paths.pid_path(global);
    let (kept, generation) = Kept::of(loaded);
    kept.identity()?;
    // What is about to serve may yet take a moment; until then who comes waits in the sockets.
    crate::service::is_ready();
    let mut m = Master {
        paths,
        waiter,
        pid_file,
        kept,
        logs: Logs::of(&generation.global),
        generation: Some(generation),
        sockets,
        child: None,
        leaving: Vec::new(),
        start_at_ms: 0,
        kill_at_ms: None,
        phase: Phase::Serving,
        upgrade: None,
        succession: None,
    };
    while !m.tend() {
        let children = m.child.iter().chain(&m.leaving);
        let outgoing = children.filter_map(|c| c.outbox.waits());
        match m.waiter.wait_writable(outgoing, m.pause_ms()) {
            Wake::Signal(signal) => m.handle(signal),
            Wake::Ready => m.send_on(),
            Wake::Timeout => {}
        }
    }
    m.remove_unix_files();
    remove_pid(&m.upgrade, &m.pid_file);
    m.stand_for_successors();
    m.log(LogLevel::Notice, "exit");
    Ok(())
}

impl Master<'_> {
    fn log(&self, level: LogLevel, text: &str) {
        self.kept.error_log.log(level, None, text.as_bytes());
    }

    fn handle(&mut self, signal: Signal) {
        log_signal(&self.kept.error_log, signal, self.waiter.sender());
        match (&mut self.succession, &mut self.upgrade) {
            (Some(succession), _) => succession.say(signal),
            (None, Some(upgrade)) if service::is_one() => upgrade.hear(signal),
            _ => {}
        }
        match signal {
            Signal::Hup if self.phase == Phase::Resting => self.wake_up(),
            Signal::Hup if self.phase == Phase::Serving => self.reload(),
            Signal::Usr1 => self.reopen(),
            Signal::Usr2 if self.phase != Phase::Ending => {
                let log = &self.kept.error_log;
                upgrade::begin(&mut self.upgrade, &self.sockets, &self.pid_file, log);
                self.tell_of_successor();
            }
            Signal::Winch if self.phase != Phase::Ending => {
                self.phase = Phase::Resting;
                self.tell(Signal::Quit);
                // HUP starts another beside it, however long its last connections stay.
                weir_status::pairs_left::keep();
                self.leaving.extend(self.child.take());
            }
            Signal::Quit | Signal::Term | Signal::Int => self.end(signal),
            Signal::Chld => self.reap(),
            Signal::Hup | Signal::Usr2 | Signal::Winch => {}
            Signal::Kill | Signal::Tstp | Signal::Cont | Signal::Stop => {}
        }
    }

    /// HUP after WINCH: the newest configuration, but beside a new program the one there was, by
    /// which an upgrade is taken back.
    fn wake_up(&mut self) {
        self.phase = Phase::Serving;
        if self.upgrade.is_none() {
            self.reload();
        }
    }

    fn end(&mut self, signal: Signal) {
        self.phase = Phase::Ending;
        self.tell(signal);
        if signal == Signal::Quit {
            // The serving process closes its sockets; they are gone only when these are too.
            self.remove_unix_files();
            self.sockets = Sockets::default();
        } else {
            self.kill_at_ms.get_or_insert(clock::mono_ms() + KILL_AFTER_MS);
        }
    }

    fn tell(&self, signal: Signal) {
        // Those have been told to finish.
        let leaving = self.leaving.iter().filter(|_| signal != Signal::Quit);
        for child in self.child.iter().chain(leaving) {
            // A child that is already gone is reported by SIGCHLD.
            let _ = signals::send(child.pid, signal);
        }
    }

    /// What is due; whether the master's work is done.
    fn tend(&mut self) -> bool {
        if self.logs.tend(&self.kept.error_log) {
            self.hand_logs();
        }
        let now = clock::mono_ms();
        if self.child.is_none() {
            match self.phase {
                Phase::Ending if self.leaving.is_empty() => return true,
                Phase::Serving if now >= self.start_at_ms => self.start(),
                _ => {}
            }
        }
        if self.kill_at_ms.is_some_and(|at| now >= at) {
            self.kill_at_ms = None;
            self.log(LogLevel::Alert, "the serving process does not end, killing it");
            self.tell(Signal::Kill);
        }
        if self.is_to_quit() {
            self.succession = self.upgrade.as_ref().and_then(Succession::begin);
            self.upgrade.iter_mut().for_each(Upgrade::say_rest);
            self.end(Signal::Quit);
        }
        self.sockets.close_left(MASTER_DRAIN_MS);
        false
    }

    /// The program that takes a service's place has nobody who would tell this one to end.
    fn is_to_quit(&self) -> bool {
        let is_taken = || self.upgrade.as_ref().is_some_and(Upgrade::has_begun);
        service::is_one() && self.phase != Phase::Ending && is_taken()
    }

    /// The system's service is this process: as long as other programs serve in its place, it says to them what it is told,
    /// and ends with the last.
    fn stand_for_successors(&mut self) {
        self.succession.iter_mut().for_each(|s| s.serves_no_more = true);
        while let Some(succession) = self.succession.as_mut().filter(|s| s.is_alive()) {
            match self.waiter.wait(None, None) {
                Wake::Signal(Signal::Chld) => {}
                Wake::Signal(signal) => {
                    log_signal(&self.kept.error_log, signal, None);
                    succession.say(signal);
                    if signal == Signal::Usr1 {
                        self.reopen();
                        continue;
                    }
                }
                Wake::Ready | Wake::Timeout => continue,
            }
            while let Some((pid, exit)) = process::reap() {
                succession.ended(pid, exit, &self.kept.error_log);
            }
        }
        if self.succession.as_ref().is_some_and(Succession::has_failed) {
            // Without a word to the system, which then starts the service again.
            logger::settle();
            std::process::exit(1);
        }
    }

    /// In how many ms something is due.
    fn pause_ms(&self) -> Option<u64> {
        let now = clock::mono_ms();
        let start = self.child.is_none().then(|| self.start_at_ms.saturating_sub(now));
        let start = start.filter(|_| self.phase == Phase::Serving);
        let kill = self.kill_at_ms.map(|at| at.saturating_sub(now));
        let close = self.sockets.next_close_in(MASTER_DRAIN_MS);
        let look = self.upgrade.as_ref().filter(|_| service::is_one()).map(|_| LOOK_MS);
        [start, kill, close, look, self.logs.due_in_ms()].into_iter().flatten().min()
    }

    fn send_on(&mut self) {
        let result = self.child.as_mut().map_or(Ok(()), |c| c.outbox.flush());
        self.check_sent(result);
        // One that leaves may have gone.
        self.leaving.iter_mut().for_each(|c| drop(c.outbox.flush()));
    }

    fn check_sent(&self, result: std::io::Result<()>) {
        if let Err(e) = result {
            let text = format!("handing over to the serving process failed ({})", os_text(&e));
            self.log(LogLevel::Alert, &text);
        }
    }

    fn remove_unix_files(&self) {
        if self.upgrade.is_none() && !upgrade::predecessor_serves(&self.pid_file) {
            self.sockets.remove_unix_files(None);
        }
    }

    fn reap(&mut self) {
        while let Some((pid, exit)) = process::reap() {
            if upgrade::ended(&mut self.upgrade, pid, exit, &self.kept.error_log) {
                self.tell_of_successor();
                self.end_with_successor(pid, exit);
                continue;
            }
            if self.succession.as_ref().is_some_and(|s| s.has(pid)) {
                self.end_with_successor(pid, exit);
                continue;
            }
            if programs::ended(pid, exit, &self.kept.error_log) {
                continue;
            }
            if let Some(at) = self.leaving.iter().position(|c| c.pid == pid) {
                self.report(pid, exit);
                self.leaving.remove(at);
            }
            let Some(child) = self.child.take_if(|c| c.pid == pid) else { continue };
            self.report(pid, exit);
            if self.phase == Phase::Serving && !matches!(exit, Exit::Code(0)) {
                RESPAWNED.fetch_add(1, Ordering::Relaxed);
            }
            self.start_at_ms = child.started_ms + RESTART_REST_MS;
        }
    }

    /// Nobody takes new connections any more, however long this service's last ones would stay.
    fn end_with_successor(&mut self, pid: i32, exit: Exit) {
        let Some(succession) = &mut self.succession else { return };
        succession.ended(pid, exit, &self.kept.error_log);
        if succession.has_failed() {
            self.end(Signal::Term);
        } else if succession.is_over() {
            service::is_ending();
        }
    }

    fn report(&self, pid: i32, exit: Exit) {
        let (level, how) = match exit {
            Exit::Code(0) => (LogLevel::Notice, "with code 0".to_string()),
            // Windows' own, of a crash.
            Exit::Code(c) if c < 0 => (LogLevel::Alert, format!("with code {c:X}")),
            Exit::Code(c) => (LogLevel::Alert, format!("with code {c}")),
            Exit::Signal(s) => (LogLevel::Alert, format!("on signal {s}")),
        };
        self.log(level, &format!("worker process {pid} exited {how}"));
    }

    /// Starts the serving process on the master's sockets; what fails is tried again later.
    fn start(&mut self) {
        let generation = self.generation.take();
        let spawned = self.spawn(generation, true);
        memory::give_back();
        match spawned {
            Ok(child) => {
                self.child = Some(child);
                if self.upgrade.is_some() {
                    self.tell_of_successor();
                }
            }
            Err(e) => {
                self.start_at_ms = clock::mono_ms() + RESTART_REST_MS;
                self.log(LogLevel::Alert, &format!("{e}, will try again"));
            }
        }
    }

    /// Its generation is this one, or is made there from what the master keeps. Where it `goes_on`, no other will give it
    /// its figures.
    fn spawn(
        &mut self,
        generation: Option<Arc<Generation>>,
        goes_on: bool,
    ) -> Result<Child, String> {
        let who = self.give_dirs()?;
        let failed = |what: &str, e| format!("{what} failed ({})", os_text(&e));
        let (ours, theirs) = process::socket_pair().map_err(|e| failed("socketpair()", e))?;
        let outbox = Outbox::new(ours).map_err(|e| failed("fcntl()", e))?;
        if self.child.is_some() {
            // What that one still notes is not to be mixed with the new one's.
            weir_status::pairs_left::keep();
        }
        let started = process::start_serving(theirs).map_err(|e| failed(process::START, e))?;
        match started {
            Started::Other(pid) => {
                let mut child = Child { pid, outbox, started_ms: clock::mono_ms() };
                child.outbox.goes_to(pid);
                if process::IS_TOLD {
                    begun::tell(&mut child, &self.kept, goes_on)
                        .and_then(|()| {
                            child.hand(Kind::Configuration, &self.sockets, self.kept.bundle())
                        })
                        .map_err(|e| failed("handing over", e))?;
                }
                Ok(child)
            }
            Started::This(theirs) => {
                drop(outbox);
                // Taken, not copied: when the workers close them, they are closed, and the
                // generation is held by what serves it alone.
                let own = std::mem::take(&mut self.sockets);
                let generation = generation.map_or_else(|| self.kept.generation(self.paths), Ok);
                self.kept.let_go();
                self.logs = Logs::default();
                programs::leave();
                crate::figures::goes_on(goes_on);
                weir_lua::has_master(process::parent_pid());
                let done =
                    generation.and_then(|g| serve(self.paths, g, own, who, &theirs, self.waiter));
                let code = match done {
                    Ok(()) => 0,
                    Err(e) => {
                        self.log(LogLevel::Emerg, &e);
                        2
                    }
                };
                logger::settle();
                std::process::exit(code);
            }
        }
    }

    /// Makes the directories that the workers write to theirs.
    fn give_dirs(&self) -> Result<Option<Identity>, String> {
        let who = self.kept.identity()?;
        if let Some(who) = &who {
            let give = |give: fn(&Path, u32) -> io::Result<()>, dirs: &[PathBuf]| {
                dirs.iter().for_each(|dir| self.tell_of(give(dir, who.uid), dir, who));
            };
            give(trusted::give_dir, &self.kept.temp_dirs);
            give(trusted::give_dir_and_files, &self.kept.queues);
        }
        Ok(who)
    }

    fn tell_of(&self, given: io::Result<()>, dir: &Path, who: &Identity) {
        if let Err(e) = given {
            let text = format!(
                "\"{}\" cannot be given to user \"{}\" ({}); a link there must be root's, \
                 or of the owner of what it leads to",
                dir.display(),
                who.name,
                os_text(&e)
            );
            self.log(LogLevel::Warn, &text);
        }
    }

    /// Validates the new configuration with root's rights, then hands text, sockets and logs over.
    fn reload(&mut self) {
        let loaded = match load::load(self.paths, Mode::Serve) {
            Ok(l) => l,
            Err(e) => {
                log_warnings(&self.kept.error_log, &e.warnings);
                return self.log(LogLevel::Emerg, &e.line);
            }
        };
        log_warnings(&self.kept.error_log, &loaded.warnings);
        let new = Arc::clone(&loaded.generation);
        let global = new.global.get::<Global>();
        let sockets = match self.sockets.adopt(&new, global.workers(), Vec::new()) {
            Ok(s) => s,
            Err(failed) => return failed.iter().for_each(|e| self.log(LogLevel::Emerg, e)),
        };
        let changes = Changes::under_master(&self.kept.main, &AtStart::of(global));
        log_changes(&new, &changes);
        let (kept, generation) = Kept::of(loaded);
        drop(new);
        self.sockets = sockets;
        self.kept = kept;
        self.logs.renew(&generation.global);
        crate::panics::log_to(&self.kept.error_log);
        log_failures(&generation, logger::reopen_moved());
        move_pid(&mut self.pid_file, self.paths, &generation);
        self.change(&changes, generation);
        logger::close_unused();
        memory::give_back();
    }

    /// Puts the new configuration in force: in the serving process, or with another one where that
    /// cannot take it over.
    fn change(&mut self, changes: &Changes, generation: Arc<Generation>) {
        let Some(child) = &self.child else {
            self.generation = Some(generation);
            return;
        };
        let global = generation.global.get::<Global>();
        if changes.process.is_empty() {
            limits::apply(child.pid, global, &generation.error_log);
            // Those that are new were made with root's rights.
            if let Err(e) = self.give_dirs() {
                self.log(LogLevel::Alert, &e);
            }
            return self.hand(Kind::Configuration, self.kept.bundle());
        }
        let names = changes.process.join("\", \"");
        let text = "changed, starting a new serving process, whose shared zones begin empty";
        self.log(LogLevel::Notice, &format!("\"{names}\" {text}"));
        match self.spawn_successor(generation) {
            Ok((child, link)) => self.succeed(child, link),
            Err(e) => {
                self.log(LogLevel::Alert, &format!("{e}; \"{names}\" stay as they are"));
                self.hand(Kind::Configuration, self.kept.bundle());
            }
        }
    }

    /// Tells the serving process whether a new program runs beside this one.
    fn tell_of_successor(&mut self) {
        let link = self.upgrade.as_ref().map(|u| u.link.as_ref());
        let result = self.child.as_mut().map_or(Ok(()), |c| c.tell_of_successor(link));
        self.check_sent(result);
    }

    /// Starts a serving process that takes the place of the one there is.
    fn spawn_successor(
        &mut self,
        generation: Arc<Generation>,
    ) -> Result<(Child, Option<Packets>), String> {
        let (link, theirs) = heirs::pair().unzip();
        let older = heirs::succeed(theirs);
        let child = self.spawn(Some(generation), false);
        // This was for that one alone.
        heirs::succeed(older);
        child.map(|c| (c, link))
    }

    /// The new serving process takes the old one's place; that finishes its requests.
    fn succeed(&mut self, child: Child, link: Option<Packets>) {
        if let Some(mut old) = self.child.replace(child) {
            let result = old.tell_of_successor(Some(link.as_ref()));
            self.check_sent(result);
            if process::IS_TOLD {
                let quit = Message::bare(Kind::Quit, 0);
                let result = old.outbox.send(&quit.pack(), Vec::new(), quit.kind.class());
                self.check_sent(result);
            } else {
                let _ = signals::send(old.pid, Signal::Quit);
            }
            self.leaving.push(old);
        }
    }

    fn reopen(&mut self) {
        let who = self.kept.identity().ok().flatten();
        for (path, e) in logger::reopen_for(who.map(|w| w.uid)) {
            let text = format!("open() \"{}\" failed ({})", path.display(), os_text(&e));
            self.log(LogLevel::Emerg, &text);
        }
        self.hand_logs();
    }

    /// Those that leave write lines too, until they have gone.
    fn hand_logs(&mut self) {
        self.hand(Kind::Logs, Vec::new());
        let none = Sockets::default();
        self.leaving.iter_mut().for_each(|c| drop(c.hand(Kind::Logs, &none, Vec::new())));
    }

    fn hand(&mut self, kind: Kind, bundle: Vec<u8>) {
        let Some(child) = &mut self.child else { return };
        let result = child.hand(kind, &self.sockets, bundle);
        self.check_sent(result);
    }
}

/// A serving process that has lost its master: its sockets are to be taken over.
pub fn find_orphan(paths: &Paths, gen: &Generation) -> Option<orphan::Found> {
    let global = gen.global.get::<Global>();
    let user = kept::identity(global.user.as_option()).ok().flatten()?.uid;
    let pid_file = paths.pid_path(global).filter(|_| process::is_root())?;
    let mut found = match orphan::find(&pid_file, user) {
        Ok(found) => found?,
        Err(e) => {
            let text = format!(
                "who answers for a serving process without a master under the name of \"{}\" is \
                 passed over ({})",
                pid_file.display(),
                os_text(&e)
            );
            gen.error_log.log(LogLevel::Alert, None, text.as_bytes());
            return None;
        }
    };
    let is_named = |l: &Listener| gen.listens.iter().any(|named| named.addr == l.addr);
    let had_an_address = found.listeners.iter().any(is_named);
    listen::keep_inherited(std::mem::take(&mut found.listeners));
    // Other programs of the user may have listening sockets of root's, but none of these addresses.
    heirs::succeed(found.connections.take().filter(|_| had_an_address));
    Some(found)
}
