//! The main thread: signals, reload, the master beside the serving process.

use crate::globals::Global;
use crate::kept::Kept;
use crate::load::{self, Loaded, Paths};
use crate::serving::Serving;
use crate::sockets::{Sockets, MASTER_DRAIN_MS};
use crate::upgrade;
use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::Arc;
use weir_conf::{BundleLoader, Sources};
use weir_http::generation::Generation;
use weir_http::logger::{self, LogLevel};
use weir_module::Mode;
use weir_runtime::handover;
use weir_runtime::listen::Listener;
use weir_runtime::memory;
use weir_runtime::process::{self, Exit, Fork};
use weir_runtime::signals::{self, Signal, Waiter, Wake};

/// How often a process that is ending, or a worker that may have ended, is looked at.
const LOOK_MS: u64 = 100;
/// A worker that died is noticed at the latest after this.
const HEAL_MS: u64 = 1000;
/// A serving process that keeps dying is started again at most once in this time.
const RESTART_REST_MS: u64 = 500;

/// One process does everything: not root, or `master_process off`.
pub fn single(
    paths: &Paths,
    loaded: Loaded,
    sockets: Sockets,
    waiter: &Waiter,
) -> Result<(), String> {
    let pid_file = loaded.generation.global.get::<Global>().clone_pid(paths);
    let mut serving = Serving::start(loaded.into_generation(), sockets)?;
    let mut ending = false;
    let mut upgrade = None;
    loop {
        match waiter.wait(None, Some(pause(&serving, ending))) {
            Wake::Signal(Signal::Hup) if !ending => reload_single(paths, &mut serving),
            Wake::Signal(Signal::Usr1) => serving.reopen_logs(),
            Wake::Signal(Signal::Usr2) if !ending => {
                upgrade =
                    upgrade::begin(&serving.sockets, &pid_file, &serving.generation.error_log);
            }
            Wake::Signal(Signal::Quit | Signal::Winch) => {
                log(&serving.generation, LogLevel::Notice, "gracefully shutting down");
                serving.quit();
                ending = true;
            }
            Wake::Signal(Signal::Term | Signal::Int) => {
                serving.stop();
                ending = true;
            }
            Wake::Signal(Signal::Chld) => {
                while let Some((pid, _)) = process::reap() {
                    upgrade::ended(&mut upgrade, pid, &pid_file);
                }
            }
            Wake::Timeout if ending && serving.ended() => break,
            Wake::Timeout if !ending => serving.heal(),
            _ => {}
        }
        if !ending {
            serving.tend();
        }
    }
    serving.finish(&upgrade, &pid_file);
    Ok(())
}

/// How long the main thread of a serving process may wait.
fn pause(serving: &Serving, ending: bool) -> u64 {
    match ending {
        true => LOOK_MS,
        false => HEAL_MS.min(serving.tend_in_ms()),
    }
}

fn log(gen: &Generation, level: LogLevel, text: &str) {
    gen.error_log.log(level, None, text.as_bytes());
}

/// HUP without a master: read, build, then put in place; an error leaves everything as it was.
fn reload_single(paths: &Paths, serving: &mut Serving) {
    log(&serving.generation, LogLevel::Notice, "reconfiguring");
    let loaded = match load::load(paths, Mode::Serve) {
        Ok(l) => l,
        Err(e) => return log(&serving.generation, LogLevel::Emerg, &e.line),
    };
    let workers = loaded.generation.global.get::<Global>().workers();
    match serving.sockets.adopt(&loaded.generation, workers, Vec::new()) {
        Ok(sockets) => {
            if let Err(e) = serving.replace(loaded.generation, sockets) {
                log(&serving.generation, LogLevel::Emerg, &e);
            }
        }
        Err(e) => log(&serving.generation, LogLevel::Emerg, &e),
    }
}

/// Removes the pid file: under its other name while a new program runs beside this one.
fn remove_pid(upgrade: &Option<upgrade::Upgrade>, path: &Option<PathBuf>) {
    let path = match upgrade {
        Some(u) => u.moved_to().or(path.as_ref()),
        None => path.as_ref(),
    };
    if let Some(p) = path {
        // Another process may have removed it with its directory.
        let _ = std::fs::remove_file(p);
    }
}

impl Global {
    fn clone_pid(&self, paths: &Paths) -> Option<PathBuf> {
        paths.pid_path(self)
    }
}

/// The master's own state.
struct Master<'a> {
    paths: &'a Paths,
    waiter: &'a Waiter,
    kept: Kept,
    sockets: Sockets,
    child: i32,
    link: UnixStream,
    started_ms: u64,
}

/// The master: keeps root, watches the serving process, reloads and reopens for it.
pub fn master(
    paths: &Paths,
    loaded: Loaded,
    sockets: Sockets,
    waiter: &Waiter,
) -> Result<(), String> {
    let pid_file = paths.pid_path(loaded.generation.global.get::<Global>());
    let mut sockets = sockets;
    let (mut kept, generation) = Kept::of(loaded);
    let mut generation = Some(generation);
    let (child, link) = spawn(paths, &mut kept, &mut generation, &mut sockets, waiter)?;
    drop(generation);
    memory::give_back();
    let started_ms = weir_runtime::clock::mono_ms();
    let mut m = Master { paths, waiter, kept, sockets, child, link, started_ms };
    let mut upgrade = None;
    let mut ending = false;
    // After WINCH the serving process is gone and not started again until HUP.
    let mut resting = false;
    loop {
        let pause = m.sockets.next_close_in(MASTER_DRAIN_MS);
        match m.waiter.wait(None, pause) {
            Wake::Timeout => drop(m.sockets.close_left(MASTER_DRAIN_MS)),
            Wake::Signal(Signal::Hup) if resting => {
                resting = false;
                m.restart()?;
            }
            Wake::Signal(Signal::Hup) if !ending => m.reload(),
            Wake::Signal(Signal::Usr1) => m.reopen(),
            Wake::Signal(Signal::Usr2) if !ending => {
                upgrade = upgrade::begin(&m.sockets, &pid_file, &m.kept.error_log);
            }
            Wake::Signal(Signal::Winch) => {
                resting = true;
                m.tell(Signal::Quit);
            }
            Wake::Signal(s @ (Signal::Quit | Signal::Term | Signal::Int)) => {
                ending = true;
                m.tell(s);
                if m.child == 0 {
                    break;
                }
                if s == Signal::Quit {
                    m.stop_listening(&upgrade);
                }
            }
            Wake::Signal(Signal::Chld) => {
                while let Some((pid, exit)) = process::reap() {
                    if upgrade::ended(&mut upgrade, pid, &pid_file) || pid != m.child {
                        continue;
                    }
                    m.report(exit);
                    m.child = 0;
                }
                if m.child == 0 && ending {
                    break;
                }
                if m.child == 0 && !resting {
                    m.restart()?;
                }
            }
            _ => {}
        }
    }
    if upgrade.is_none() {
        m.sockets.remove_unix_files(None);
    }
    remove_pid(&upgrade, &pid_file);
    m.log(LogLevel::Notice, "exit");
    Ok(())
}

impl Serving {
    fn finish(&self, upgrade: &Option<upgrade::Upgrade>, pid_file: &Option<PathBuf>) {
        if upgrade.is_none() {
            self.sockets.remove_unix_files(None);
        }
        remove_pid(upgrade, pid_file);
        log(&self.generation, LogLevel::Notice, "exit");
    }
}

impl Master<'_> {
    fn log(&self, level: LogLevel, text: &str) {
        self.kept.error_log.log(level, None, text.as_bytes());
    }

    fn tell(&self, signal: Signal) {
        if self.child > 0 {
            // A child that is already gone is reported by SIGCHLD.
            let _ = signals::send(self.child, signal);
        }
    }

    /// The serving process closes its sockets; they are gone only when the master's are too.
    fn stop_listening(&mut self, upgrade: &Option<upgrade::Upgrade>) {
        if upgrade.is_none() {
            self.sockets.remove_unix_files(None);
        }
        self.sockets = Sockets::default();
    }

    fn report(&self, exit: Exit) {
        match exit {
            Exit::Code(c) => {
                let level = if c == 0 { LogLevel::Notice } else { LogLevel::Alert };
                self.log(level, &format!("worker process {} exited with code {c}", self.child));
            }
            Exit::Signal(s) => {
                self.log(
                    LogLevel::Alert,
                    &format!("worker process {} exited on signal {s}", self.child),
                );
            }
        }
    }

    /// Starts the serving process again, on the same sockets.
    fn restart(&mut self) -> Result<(), String> {
        let alive = weir_runtime::clock::mono_ms().saturating_sub(self.started_ms);
        if alive < RESTART_REST_MS {
            std::thread::sleep(std::time::Duration::from_millis(RESTART_REST_MS - alive));
        }
        let (child, link) =
            spawn(self.paths, &mut self.kept, &mut None, &mut self.sockets, self.waiter)?;
        self.child = child;
        self.link = link;
        self.started_ms = weir_runtime::clock::mono_ms();
        Ok(())
    }

    /// Validates the new configuration with root's rights, then hands text, sockets and logs over.
    fn reload(&mut self) {
        self.log(LogLevel::Notice, "reconfiguring");
        let loaded = match load::load(self.paths, Mode::Serve) {
            Ok(l) => l,
            Err(e) => return self.log(LogLevel::Emerg, &e.line),
        };
        let workers = loaded.generation.global.get::<Global>().workers();
        let sockets = match self.sockets.adopt(&loaded.generation, workers, Vec::new()) {
            Ok(s) => s,
            Err(e) => return self.log(LogLevel::Emerg, &e),
        };
        let files = logger::all_files();
        let body = Handover {
            paths: files.iter().map(|(p, _)| p.to_string_lossy().into_owned()).collect(),
            bundle: loaded.sources.to_bundle(),
        };
        let (kept, generation) = Kept::of(loaded);
        let listeners: Vec<Arc<Listener>> = sockets.active().cloned().collect();
        let fds: Vec<i32> = listeners
            .iter()
            .map(|l| l.fd())
            .chain(files.iter().map(|(_, f)| f.as_raw_fd()))
            .collect();
        self.sockets = sockets;
        self.kept = kept;
        if let Err(e) = handover::send(&self.link, &body.pack(listeners.len()), &fds) {
            self.log(LogLevel::Alert, &format!("handing the configuration over failed: {e}"));
        }
        drop((body, generation));
        memory::give_back();
    }

    fn reopen(&self) {
        for (path, e) in logger::reopen_all() {
            let text = format!(
                "open() \"{}\" failed ({})",
                path.display(),
                weir_http::core_rows::os_text(&e)
            );
            self.log(LogLevel::Emerg, &text);
        }
        if let Some(who) = self.kept.identity().ok().flatten() {
            for path in logger::log_paths() {
                // A log on a file system without owners still works.
                let _ = process::chown(&path, &who);
            }
        }
        self.tell(Signal::Usr1);
    }
}

/// What a reload carries besides descriptors.
struct Handover {
    paths: Vec<String>,
    bundle: Vec<u8>,
}

impl Handover {
    fn pack(&self, listeners: usize) -> Vec<u8> {
        let mut out = Vec::with_capacity(self.bundle.len() + 256);
        out.extend_from_slice(&(listeners as u64).to_ne_bytes());
        out.extend_from_slice(&(self.paths.len() as u64).to_ne_bytes());
        for p in &self.paths {
            out.extend_from_slice(&(p.len() as u64).to_ne_bytes());
            out.extend_from_slice(p.as_bytes());
        }
        out.extend_from_slice(&self.bundle);
        out
    }

    fn unpack(body: &[u8]) -> Option<(usize, Handover)> {
        let mut at = 0;
        let mut number = || {
            let n = u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?) as usize;
            at += 8;
            Some((n, at))
        };
        let (listeners, _) = number()?;
        let (count, start) = number()?;
        let mut paths = Vec::new();
        let mut at = start;
        for _ in 0..count {
            let n = u64::from_ne_bytes(body.get(at..at + 8)?.try_into().ok()?) as usize;
            let text = body.get(at + 8..at + 8 + n)?;
            paths.push(String::from_utf8_lossy(text).into_owned());
            at += 8 + n;
        }
        Some((listeners, Handover { paths, bundle: body.get(at..)?.to_vec() }))
    }
}

/// Starts the serving process. Its generation is the one that was made at the start, or is made
/// there from what the master keeps.
fn spawn(
    paths: &Paths,
    kept: &mut Kept,
    generation: &mut Option<Arc<Generation>>,
    sockets: &mut Sockets,
    waiter: &Waiter,
) -> Result<(i32, UnixStream), String> {
    let who = kept.identity()?;
    if let Some(who) = &who {
        for path in logger::log_paths() {
            let _ = process::chown(&path, who);
        }
        for dir in &kept.temp_dirs {
            let _ = process::chown(dir, who);
        }
    }
    let (ours, theirs) = process::socket_pair().map_err(|e| format!("socketpair() failed: {e}"))?;
    match process::fork().map_err(|e| format!("fork() failed: {e}"))? {
        Fork::Parent { child } => Ok((child, ours)),
        Fork::Child => {
            drop(ours);
            // Taken, not copied: when the workers close them, they are closed, and the generation
            // is held by what serves it alone.
            let own = std::mem::take(sockets);
            let generation = match generation.take() {
                Some(g) => Ok(g),
                None => kept.generation(paths),
            };
            kept.let_go();
            let served = generation.and_then(|g| serve(paths, g, own, who, &theirs, waiter));
            let code = match served {
                Ok(()) => 0,
                Err(e) => {
                    kept.error_log.log(LogLevel::Emerg, None, e.as_bytes());
                    2
                }
            };
            weir_http::logger::settle();
            std::process::exit(code);
        }
    }
}

/// The serving process under a master.
fn serve(
    paths: &Paths,
    generation: Arc<Generation>,
    own: Sockets,
    who: Option<process::Identity>,
    link: &UnixStream,
    waiter: &Waiter,
) -> Result<(), String> {
    crate::apply_limits(generation.global.get::<Global>(), &generation.error_log);
    if let Some(who) = who {
        let any_source = weir_modules::binds_any_source(&generation);
        process::become_user(&who, any_source)
            .map_err(|e| format!("becoming user \"{}\" failed: {e}", who.name))?;
    }
    crate::title("worker process");
    let mut serving = Serving::start(generation, own)?;
    let mut ending = false;
    let mut master = Some(link);
    loop {
        let pause = pause(&serving, ending);
        match waiter.wait(master.map(|l| l.as_raw_fd()), Some(pause)) {
            Wake::Readable => match handover::receive(link) {
                Ok((body, fds)) => take_over(paths, &mut serving, &body, fds),
                // The master is gone: nobody could reload or restart us, but nothing is dropped.
                Err(_) => {
                    master = None;
                    crate::title("worker process is shutting down");
                    serving.quit();
                    ending = true;
                }
            },
            Wake::Signal(Signal::Usr1) => serving.reopen_logs(),
            Wake::Signal(Signal::Quit | Signal::Winch) => {
                crate::title("worker process is shutting down");
                serving.quit();
                ending = true;
            }
            Wake::Signal(Signal::Term | Signal::Int) => {
                serving.stop();
                ending = true;
            }
            Wake::Timeout if ending && serving.ended() => return Ok(()),
            Wake::Timeout if !ending => serving.heal(),
            _ => {}
        }
        if !ending {
            serving.tend();
        }
    }
}

/// A reload that the master has validated: the same text, its sockets, its log files.
fn take_over(paths: &Paths, serving: &mut Serving, body: &[u8], fds: Vec<OwnedFd>) {
    let Some((listeners, handover)) = Handover::unpack(body) else { return };
    let mut fds = fds.into_iter();
    let taken: Vec<Listener> = fds
        .by_ref()
        .take(listeners)
        .filter_map(|fd| Listener::from_inherited(std::os::fd::IntoRawFd::into_raw_fd(fd)).ok())
        .collect();
    for (path, fd) in handover.paths.iter().zip(fds) {
        logger::keep_handed(PathBuf::from(path), File::from(fd));
    }
    let loaded = Sources::from_bundle(&handover.bundle).map_err(|e| e.to_string()).and_then(|s| {
        load::load_from(paths, Mode::Serve, &BundleLoader::new(&s)).map_err(|e| e.line)
    });
    let replaced = loaded.and_then(|l| {
        let workers = l.generation.global.get::<Global>().workers();
        let sockets = serving.sockets.adopt(&l.generation, workers, taken)?;
        serving.replace(l.generation, sockets)
    });
    if let Err(e) = replaced {
        log(&serving.generation, LogLevel::Emerg, &e);
    }
    logger::drop_handed();
}
