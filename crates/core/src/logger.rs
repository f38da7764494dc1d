//! The error log: levels, places to write to, nginx's line format.

pub use crate::log_pipe::begin_threads;

use crate::captured;
use crate::log_pipe::Pipe;
use crate::programs;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, RwLock};
use std::time::{Duration, Instant};
use weir_base::date;
use weir_base::line::push_logged;
use weir_module::Mode;
use weir_runtime::{clock, files, sockets, trusted, tz};

/// The levels of logs are those of the configuration's messages.
pub use weir_conf::Level as LogLevel;

/// How long the end of the process waits for readers of logs.
const SETTLE: Duration = Duration::from_millis(500);

/// A log file that can be opened again under its name (USR1).
pub struct LogFile {
    /// By which it is opened again.
    pub path: PathBuf,
    file: RwLock<Arc<File>>,
    /// Somebody reads it, who may be slow.
    is_pipe: AtomicBool,
    pipe: Arc<Pipe>,
    /// The newest load of a configuration that has named it.
    load: AtomicU64,
}

/// Loads of a configuration, from 1.
static LOADS: AtomicU64 = AtomicU64::new(0);

impl LogFile {
    /// Creates what is not there. Links are followed as far as its owner could ([`trusted`]).
    pub fn open(path: &Path) -> std::io::Result<LogFile> {
        let file = match programs::is_program(path) {
            true => programs::open(path)?,
            false => open_append(path)?,
        };
        Ok(LogFile::of(path.to_path_buf(), file))
    }

    fn of(path: PathBuf, file: File) -> LogFile {
        let is_pipe = AtomicBool::new(programs::is_program(&path) || is_pipe(&file));
        let load = AtomicU64::new(LOADS.load(Ordering::Relaxed));
        LogFile { path, file: RwLock::new(Arc::new(file)), is_pipe, pipe: Arc::default(), load }
    }

    /// A program reads it. It has no name to be opened again by.
    pub fn is_program(&self) -> bool {
        programs::is_program(&self.path)
    }

    /// Opens the path again; the old file is closed when its last user is done.
    pub fn reopen(&self) -> std::io::Result<()> {
        if !self.is_program() {
            self.set(open_append(&self.path)?);
        }
        Ok(())
    }

    /// The same, and the file is the user's who is to open it later.
    fn reopen_for(&self, uid: Option<u32>) -> std::io::Result<()> {
        if self.is_program() {
            return Ok(());
        }
        let opened = trusted::append(&self.path)?;
        if let Some(uid) = uid {
            // A log on a file system without owners still works.
            let _ = opened.give(uid);
        }
        self.set(opened.file);
        Ok(())
    }

    fn set(&self, file: File) {
        self.is_pipe.store(self.is_program() || is_pipe(&file), Ordering::Relaxed);
        *self.file.write().unwrap_or_else(|e| e.into_inner()) = Arc::new(file);
    }

    /// Whether another file has its name by now, or none.
    fn has_moved(&self) -> bool {
        !self.is_program() && !files::is_named(&self.handle(), &self.path)
    }

    /// As it stands. A pipe's or socket's reader is waited for by a thread, and too much for it is dropped.
    pub fn write(&self, bytes: &[u8]) -> std::io::Result<()> {
        let file = Arc::clone(&self.file.read().unwrap_or_else(|e| e.into_inner()));
        if self.is_pipe.load(Ordering::Relaxed) {
            return self.pipe.write(file, bytes);
        }
        (&*file).write_all(bytes)
    }

    /// Writes a line of an error log, and behind it what a slow reader has cost.
    fn write_line(&self, line: &[u8]) {
        // A log that cannot be written must not stop the server.
        drop(self.write(line));
        if let Some(loss) = self.loss() {
            drop(self.write(&format_line(LogLevel::Alert, None, loss.as_bytes())));
        }
    }

    /// What to say of lines that a slow reader has cost; at most once a second.
    pub fn loss(&self) -> Option<String> {
        if !self.is_pipe.load(Ordering::Relaxed) {
            return None;
        }
        let dropped = self.pipe.dropped()?;
        Some(format!(
            "{dropped} lines for \"{}\" were dropped, its reader is slow",
            self.path.display()
        ))
    }

    /// The open file, for handing its descriptor on.
    pub fn handle(&self) -> Arc<File> {
        Arc::clone(&self.file.read().unwrap_or_else(|e| e.into_inner()))
    }
}

fn is_pipe(file: &File) -> bool {
    file.metadata().is_ok_and(|m| files::is_pipe(&m))
}

static STDERR: OnceLock<Option<LogFile>> = OnceLock::new();

/// Standard error of a process that serves: it may be a pipe, whose reader must not hold a worker. Before,
/// a daemon may still have to leave the one that it was started with.
fn stderr() -> Option<&'static LogFile> {
    if !crate::log_pipe::has_threads() {
        return None;
    }
    let open = || {
        let own = sockets::copy(&std::io::stderr()).ok()?;
        Some(LogFile::of(PathBuf::from("stderr"), File::from(own)))
    };
    STDERR.get_or_init(open).as_ref()
}

/// Waits for what threads have still to write to pipes, but not long: their readers may be gone.
pub fn settle() {
    let deadline = Instant::now() + SETTLE;
    let files = FILES.lock().unwrap_or_else(|e| e.into_inner()).clone();
    files.values().for_each(|f| f.pipe.settle(deadline));
    STDERR.get().iter().filter_map(|f| f.as_ref()).for_each(|f| f.pipe.settle(deadline));
}

fn open_append(path: &Path) -> std::io::Result<File> {
    trusted::append(path).map(|opened| opened.file)
}

/// Log files that the master has opened for this process, until the configuration names them.
static HANDED: Mutex<BTreeMap<PathBuf, File>> = Mutex::new(BTreeMap::new());

/// Takes a file that the master opened: in the place of the one that is open under that name, or
/// to be kept until a configuration names it.
pub fn keep_handed(path: PathBuf, file: File) {
    let files = FILES.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(open) = files.get(&path) {
        return open.set(file);
    }
    drop(files);
    HANDED.lock().unwrap_or_else(|e| e.into_inner()).insert(path, file);
}

/// A new configuration is in force: what it has not named is closed.
pub fn drop_handed() {
    HANDED.lock().unwrap_or_else(|e| e.into_inner()).clear();
}

/// Every open log file, for handing on.
pub fn all_files() -> Vec<(PathBuf, Arc<File>)> {
    let files = FILES.lock().unwrap_or_else(|e| e.into_inner());
    files.values().map(|f| (f.path.clone(), f.handle())).collect()
}

/// Every log file of the process by path: one descriptor each, however often it is named.
static FILES: Mutex<BTreeMap<PathBuf, Arc<LogFile>>> = Mutex::new(BTreeMap::new());

/// Closes the files that no configuration names any more.
pub fn close_unused() {
    let mut files = FILES.lock().unwrap_or_else(|e| e.into_inner());
    files.retain(|_, f| Arc::strong_count(f) > 1);
    programs::forget(|name| files.contains_key(name));
}

/// A configuration is read: what is opened from now on, it names.
pub fn begin_load() {
    close_unused();
    LOADS.fetch_add(1, Ordering::Relaxed);
}

/// The end of the process: programs that read logs find their input's end, and read what is left.
pub fn finish() {
    let files = FILES.lock().unwrap_or_else(|e| e.into_inner()).clone();
    for file in files.values().filter(|f| f.is_program()) {
        if let Ok(nothing) = nowhere() {
            file.set(nothing);
        }
    }
    programs::finish();
}

fn nowhere() -> std::io::Result<File> {
    File::options().append(true).open(files::NOWHERE)
}

/// The log file of that path, opened at first use.
pub fn log_file(path: &Path) -> std::io::Result<Arc<LogFile>> {
    let mut files = FILES.lock().unwrap_or_else(|e| e.into_inner());
    if let Some(f) = files.get(path) {
        f.load.store(LOADS.load(Ordering::Relaxed), Ordering::Relaxed);
        return Ok(Arc::clone(f));
    }
    let mut handed = HANDED.lock().unwrap_or_else(|e| e.into_inner());
    let file = match handed.remove(path) {
        Some(file) => Arc::new(LogFile::of(path.to_path_buf(), file)),
        None => Arc::new(LogFile::open(path)?),
    };
    files.insert(path.to_path_buf(), Arc::clone(&file));
    Ok(file)
}

/// The log files of the newest configuration; they stay open while the handles live.
pub fn named_files() -> Vec<Arc<LogFile>> {
    let newest = LOADS.load(Ordering::Relaxed);
    let files = FILES.lock().unwrap_or_else(|e| e.into_inner());
    files.values().filter(|f| f.load.load(Ordering::Relaxed) == newest).cloned().collect()
}

/// The newest configuration is in force: of the programs that logs are written to, those go on that it names.
/// To be called by who starts them.
pub fn keep_programs(pipe_bytes: Option<usize>) {
    let names: Vec<_> = named_files().iter().map(|f| f.path.clone()).collect();
    programs::keep(&names, pipe_bytes);
}

/// The log file of that path. A test opens and makes none: whether it could be is looked at with the
/// eyes of who will open it, who may be somebody else, so that a missing right is no error.
pub fn log_file_for(mode: Mode, path: &Path) -> std::io::Result<Arc<LogFile>> {
    if mode == Mode::Serve {
        return log_file(path);
    }
    match programs::is_program(path) {
        true => programs::could_run(path)?,
        false => could_open(path)?,
    }
    Ok(Arc::new(LogFile::of(path.to_path_buf(), nowhere()?)))
}

/// Whether there is such a file, or a directory to make it in.
pub fn could_open(path: &Path) -> std::io::Result<()> {
    use std::io::ErrorKind::{NotFound, PermissionDenied};
    let found = match std::fs::metadata(path) {
        Ok(m) if m.is_dir() => Err(files::is_a_directory()),
        Err(e) if e.kind() == NotFound => {
            let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
            std::fs::metadata(parent.unwrap_or(Path::new("."))).map(|_| ())
        }
        other => other.map(|_| ()),
    };
    found.or_else(|e| if e.kind() == PermissionDenied { Ok(()) } else { Err(e) })
}

/// Opens every log file again; answers those that could not be.
pub fn reopen_all() -> Vec<(PathBuf, std::io::Error)> {
    let files = FILES.lock().unwrap_or_else(|e| e.into_inner());
    files.values().filter_map(|f| f.reopen().err().map(|e| (f.path.clone(), e))).collect()
}

/// The same for the master: the files are given to the workers' user.
pub fn reopen_for(uid: Option<u32>) -> Vec<(PathBuf, std::io::Error)> {
    let files = FILES.lock().unwrap_or_else(|e| e.into_inner());
    files.values().filter_map(|f| f.reopen_for(uid).err().map(|e| (f.path.clone(), e))).collect()
}

/// With a new configuration every log is what has its name now.
pub fn reopen_moved() -> Vec<(PathBuf, std::io::Error)> {
    let files = FILES.lock().unwrap_or_else(|e| e.into_inner());
    let moved = files.values().filter(|f| f.has_moved());
    moved.filter_map(|f| f.reopen().err().map(|e| (f.path.clone(), e))).collect()
}

/// Where lines go.
pub enum LogSink {
    /// A file of any kind, shared by all that name it.
    File(Arc<LogFile>),
    /// Standard error, by a thread once the process serves.
    Stderr,
    /// A datagram for each line.
    Syslog(Arc<crate::syslog::Syslog>),
}

/// The error logs in force at one place of the configuration.
#[derive(Default)]
pub struct ErrorLog {
    /// Each with the least grave level that goes there.
    pub sinks: Vec<(LogSink, LogLevel)>,
}

impl ErrorLog {
    /// For who has no configuration yet.
    pub fn stderr(level: LogLevel) -> ErrorLog {
        ErrorLog { sinks: vec![(LogSink::Stderr, level)] }
    }

    /// Whether any of them takes a line of that level: to be asked before one is made.
    #[inline]
    pub fn enabled(&self, level: LogLevel) -> bool {
        self.sinks.iter().any(|(_, l)| level <= *l) || is_tapped(level)
    }

    /// Writes one line. A log that cannot be written must not stop the server.
    pub fn log(&self, level: LogLevel, connection: Option<u64>, text: &[u8]) {
        self.write(level, connection, text, format_line);
    }

    /// As [`ErrorLog::log`], of a text whose line ends are meant to end lines.
    pub fn log_lines(&self, level: LogLevel, connection: Option<u64>, text: &[u8]) {
        self.write(level, connection, text, format_lines);
    }

    fn write(&self, level: LogLevel, connection: Option<u64>, text: &[u8], format: Format) {
        if !self.enabled(level) {
            return;
        }
        if is_tapped(level) {
            give_to_tap(level, connection, text);
        }
        let line = format(level, connection, text);
        if let Some(f) = OVERHEARS.get() {
            f(level, text);
        }
        if let (Some(f), true) = (ALARM.get(), level <= LogLevel::Crit) {
            f(level, text);
        }
        if captured::is_wanted() && self.sinks.iter().any(|(_, l)| level <= *l) {
            captured::keep(level, &line[..line.len() - 1]);
        }
        for (sink, max) in &self.sinks {
            if level > *max {
                continue;
            }
            match sink {
                LogSink::File(f) => f.write_line(&line),
                LogSink::Stderr => match stderr() {
                    Some(f) => f.write_line(&line),
                    None => drop(std::io::stderr().write_all(&line)),
                },
                LogSink::Syslog(s) => s.send(level, &line[..line.len() - 1]),
            }
        }
    }
}

/// Who is told of every line that is written, and may be asked by any thread.
static OVERHEARS: OnceLock<fn(LogLevel, &[u8])> = OnceLock::new();

/// From now on `f` is told of every line, without its time. There can be one only.
pub fn overhear(f: fn(LogLevel, &[u8])) {
    let _ = OVERHEARS.set(f);
}

/// Who is told of the gravest lines.
static ALARM: OnceLock<fn(LogLevel, &[u8])> = OnceLock::new();

/// From now on `f` is told of every line of level crit and graver that is written, without its time. There can be one only.
pub fn alarm(f: fn(LogLevel, &[u8])) {
    let _ = ALARM.set(f);
}

/// Who is told of lines besides, wherever they go: of each its level, its connection and its text.
pub type Tap = Arc<dyn Fn(LogLevel, Option<u64>, &[u8]) + Send + Sync>;

/// One more than the least grave level that is told; 0: none is.
static TAPPED: AtomicU64 = AtomicU64::new(0);
static TAP: RwLock<Option<Tap>> = RwLock::new(None);

/// From now on lines of that level and graver ones are told, or none.
pub fn tap(to: Option<(LogLevel, Tap)>) {
    let (tapped, to) = match to {
        Some((least, tap)) => (least as u64 + 1, Some(tap)),
        None => (0, None),
    };
    *TAP.write().unwrap_or_else(|e| e.into_inner()) = to;
    TAPPED.store(tapped, Ordering::Relaxed);
}

#[inline]
fn is_tapped(level: LogLevel) -> bool {
    (level as u64) < TAPPED.load(Ordering::Relaxed)
}

fn give_to_tap(level: LogLevel, connection: Option<u64>, text: &[u8]) {
    let tap = TAP.read().unwrap_or_else(|e| e.into_inner()).clone();
    if let Some(tap) = tap {
        tap(level, connection, text);
    }
}

/// nginx's longest line in the error log.
const LINE_MAX_BYTES: usize = 2048;

/// Makes of a text what a log has.
type Format = fn(LogLevel, Option<u64>, &[u8]) -> Vec<u8>;

fn format_lines(level: LogLevel, connection: Option<u64>, text: &[u8]) -> Vec<u8> {
    let mut lines = text.split(|b| *b == b'\n');
    let mut out = format_line(level, connection, lines.next().unwrap_or_default());
    for line in lines {
        push_logged(line, &mut out);
        out.push(b'\n');
    }
    if out.len() > LINE_MAX_BYTES {
        out.truncate(LINE_MAX_BYTES - 1);
        out.push(b'\n');
    }
    out
}

fn format_line(level: LogLevel, connection: Option<u64>, text: &[u8]) -> Vec<u8> {
    let (secs, _) = clock::wall();
    let mut line = Vec::with_capacity(text.len() + 64);
    line.extend_from_slice(&date::format_errlog(secs, tz::offset_minutes(secs)));
    let pid = std::process::id();
    // Writing into a Vec cannot fail.
    let _ = write!(line, " [{}] {pid}#{pid}: ", level.name());
    if let Some(c) = connection {
        let _ = write!(line, "*{c} ");
    }
    match connection {
        // Much of it is what a peer has sent, who shall not write lines of his own.
        Some(_) => push_logged(text, &mut line),
        None => line.extend_from_slice(text),
    }
    line.truncate(LINE_MAX_BYTES - 1);
    line.push(b'\n');
    line
}
