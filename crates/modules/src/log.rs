//! `access_log`, `log_format`, `open_log_file_cache` (nginx's `ngx_http_log_module` and
//! `ngx_stream_log_module`).
//!
//! A format is compiled to operations that write into one buffer: the worker's own for a buffered
//! log, a lent one otherwise. Every write is one `write()` of whole lines on an `O_APPEND` file,
//! so workers' lines do not mix.
//!
//! Differences from nginx: `flush=` counts from the first line after a timer has fired and not
//! from each emptying of the buffer, so lines never wait longer than told; opening logs again
//! also closes the files kept by `open_log_file_cache`; a log that is a pipe is written by a thread,
//! and its lines are dropped and counted while its reader does not read, which stops nginx.

mod buffer;
mod files;
mod format;
mod sessions;

use std::collections::{HashMap, HashSet};
use std::marker::PhantomData;
use std::path::PathBuf;
use std::slice::from_ref;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, OnceLock};

use buffer::Buffering;
use files::FileCache;
use format::{Format, Logged};
use weir_base::units;
use weir_conf::messages::os_error;
use weir_core::eval::{is_true, with_scratch, with_value};
use weir_core::logger::{log_file_for, LogFile, LogLevel};
use weir_core::registry::{template, template_of};
use weir_core::rollback::log_path;
use weir_core::session::{Part as _, Session};
use weir_core::syslog::Syslog;
use weir_core::worker::AtWorker;
use weir_core::Worker;
use weir_http::build::Build;
use weir_http::module::{Flow, HttpModule, Phase, PhaseHandler};
use weir_http::Request;
use weir_module::{
    distinct, merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Diagnostic, Directive,
    Layout, Level, Mode, Row, SlotVtable, Slots, Val,
};
use weir_runtime::clock;
use weir_runtime::paths;
use weir_script::lookup::StrMap;
use weir_script::template::Template;
use weir_stream::{self as stream, StreamModule};

/// The format of `http`'s logs that name none; there it always is.
const COMBINED: &[u8] = b"combined";

#[derive(Default)]
struct LogMain {
    /// By name, whose case does not count; the first of that name.
    formats: StrMap<Arc<Format>>,
    /// Names that are taken: here case counts.
    taken: HashSet<Vec<u8>>,
    /// One buffer per file, however often the file is named.
    buffers: HashMap<PathBuf, Buffering>,
    sinks: HashMap<PathBuf, Arc<Sink>>,
}

impl LogMain {
    fn add(&mut self, format: Arc<Format>) {
        self.taken.insert(format.name.clone());
        // Of names that differ in case alone the first is found.
        let _ = self.formats.insert(&format.name, format.clone());
    }
}

impl ConfType for LogMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

#[derive(Default)]
struct LogLoc {
    off: bool,
    /// Filled when the configuration is built, where nothing is said.
    logs: OnceLock<Arc<Vec<AccessLog>>>,
    cache: Val<Option<FileCache>>,
}

impl ConfType for LogLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &LogLoc) -> ConfResult {
        merge_values!(self, parent; cache = None);
        if self.logs.get().is_none() && !self.off {
            self.logs.clone_from(&parent.logs);
            self.off = parent.off;
        }
        Ok(())
    }
}

struct AccessLog {
    target: Target,
    format: Arc<Format>,
    filter: Option<Template>,
}

enum Target {
    File {
        path: PathBuf,
        sink: OnceLock<Arc<Sink>>,
    },
    /// A name with variables; `prefix` goes in front of one that is relative.
    Computed {
        prefix: Vec<u8>,
        name: Template,
        health: Health,
    },
    Syslog(Syslog),
}

/// An open log file and how it is written.
pub(crate) struct Sink {
    pub file: Arc<LogFile>,
    pub buffering: Option<Buffering>,
    pub health: Health,
}

/// When writing last failed, in Unix seconds, so that a full disk is neither waited for nor
/// complained about with every request.
#[derive(Default)]
pub(crate) struct Health {
    full: AtomicI64,
    told: AtomicI64,
}

impl Health {
    /// The disk was full within this second.
    fn is_full(&self) -> bool {
        let full = self.full.load(Ordering::Relaxed);
        full != 0 && full == clock::wall_secs()
    }

    /// Writing has failed just now.
    pub fn note(&self, e: &std::io::Error) {
        if e.kind() == std::io::ErrorKind::StorageFull {
            self.full.store(clock::wall_secs(), Ordering::Relaxed);
        }
    }

    /// What to log about a failure; nothing when one was logged within the last minute.
    pub fn failed(&self, path: &std::path::Path, e: &std::io::Error) -> Option<String> {
        let now = clock::wall_secs();
        if now - self.told.load(Ordering::Relaxed) <= 59 {
            return None;
        }
        self.told.store(now, Ordering::Relaxed);
        Some(format!("write() to \"{}\" failed ({})", path.display(), os_error(e)))
    }
}

/// The directives in the block of sessions `S`.
struct Rows<S>(PhantomData<S>);

impl<S: Logged> Rows<S> {
    const ROWS: &'static [Row] = &[
        Row::new(
            "log_format",
            S::BLOCK,
            Arity::TWO_MORE,
            S::DEFAULTS.0,
            "Names a format of access logs.",
            set_format::<S>,
        ),
        Row::new(
            "access_log",
            S::LOG_LEVELS,
            Arity::ONE_MORE,
            S::DEFAULTS.1,
            "Where and how requests, or sessions, are logged.",
            set_log::<S>,
        )
        .note(
            "A log that is a pipe or fifo is written by a thread: what its reader leaves unread beyond 1m \
             is dropped, and the error log says how many lines. One whose name has variables is written \
             without waiting: what a pipe has no room for is dropped, as told once a minute. Tengine's \
             \"pipe:COMMAND ARGUMENTS\" starts a program that reads the log from its standard input: words are \
             parted by blanks, no shell runs it, its path is written whole or from the prefix; it runs as the master's user, root \
             where that is root, with the server's standard output and no error output. The same words are one \
             program. One that dies is started again, after half a second and later up to a minute, and reads on where it \
             stopped (Tengine's logs are lost from then on); a reload goes on with one that is still \
             named, and another finds the end of its input and is sent TERM where it reads nothing more for 5s \
             (Tengine starts all anew and sends TERM at once). \"pipe:rollback FILE interval=TIME maxsize=SIZE \
             baknum=N adjust=TIME\" is a file that the server renames itself to FILE.1, FILE.2 up to FILE.N (1 unless \
             said, at most 128) at the end of each interval, by the local clock and up to adjust later (60s), and when \
             it has that size, which is looked at up to once a second; without both it never is. No process stands \
             between; its directory must be there; a parameter that is none is refused.",
        ),
        Row::new(
            "open_log_file_cache",
            S::LEVELS,
            Arity::ONE_TO_FOUR,
            "off",
            "Keeps logs open whose names have variables.",
            set_cache,
        ),
    ];
}

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<LogMain>(), SlotVtable::of::<LogLoc>()];

pub const MODULE: HttpModule = HttpModule {
    rows: Rows::<Request>::ROWS,
    slots: SLOTS,
    phases: &[PhaseHandler { phase: Phase::Log, handler, active }],
    prepare: Some(prepare),
    build: Some(build),
    // What a worker gathers is of all its sessions, whatever their protocol.
    at_worker: AtWorker { begins: Some(register), ..AtWorker::NOTHING },
    ..HttpModule::EMPTY
};

pub const STREAM: StreamModule = StreamModule {
    rows: Rows::<weir_stream::Session>::ROWS,
    slots: SLOTS,
    phases: &[stream::PhaseHandler { phase: stream::Phase::Log, handler: stream_handler, active }],
    build: Some(|b| {
        open_all(b.main.get_mut(), from_ref(b.outer), b.cf.mode)?;
        open_all(b.main.get_mut(), b.servers, b.cf.mode)
    }),
    ..StreamModule::EMPTY
};

fn active(slots: &Slots) -> bool {
    let conf = slots.get::<LogLoc>();
    !conf.off && conf.logs.get().is_some()
}

/// Has the worker write out what it gathers, and open kept files again, when it is told to.
fn register(worker: &Worker) {
    worker.on_flush(|| {
        buffer::flush_all();
        files::forget_all();
    });
}

fn prepare(cf: &mut Cf) -> ConfResult {
    let combined = Format::combined::<Request>(cf);
    let main = cf.get::<LogMain>();
    main.add(Arc::new(combined));
    Ok(())
}

fn set_format<S: Logged>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.arg(0).to_vec();
    if cf.get::<LogMain>().taken.contains(&name) {
        let shown = String::from_utf8_lossy(&name).into_owned();
        return Err(d.bad(0, format!("duplicate \"log_format\" name \"{shown}\"")));
    }
    let format = Format::read::<S>(cf, d)?;
    cf.get::<LogMain>().add(Arc::new(format));
    Ok(())
}

fn set_log<S: Logged>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let invalid =
        |i: usize| d.bad(i, format!("invalid parameter \"{}\"", String::from_utf8_lossy(d.arg(i))));
    if d.arg(0) == b"off" {
        cf.get::<LogLoc>().off = true;
        return if d.args.len() == 1 { Ok(()) } else { Err(invalid(1)) };
    }
    let target = target::<S>(cf, d)?;
    let name = d.args.get(1).map(|name| &*name.text).or(S::DEFAULT_FORMAT);
    let name = name.ok_or_else(|| d.fail("log format is not specified"))?;
    let Some(format) = cf.get::<LogMain>().formats.get(name).cloned() else {
        let shown = String::from_utf8_lossy(name).into_owned();
        return Err(d.bad(1, format!("unknown log format \"{shown}\"")));
    };
    let mut filter = None;
    let mut buffering = buffer::Options::default();
    for i in 2..d.args.len() {
        if let Some(text) = d.keyed(i, "if") {
            filter = Some(template_of::<S>(cf, d, i, text)?);
        } else if !buffering.read(d, i)? {
            return Err(invalid(i));
        }
    }
    if let Some(buffering) = buffering.finish(d)? {
        let Target::File { path, .. } = &target else {
            return Err(d.fail(match target {
                Target::Syslog(_) => "logs to syslog cannot be buffered",
                _ => "buffered logs cannot have variables in name",
            }));
        };
        let buffers = &mut cf.get::<LogMain>().buffers;
        match buffers.get(path) {
            Some(other) if *other != buffering => {
                let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
                return Err(d.fail(format!(
                    "access_log \"{shown}\" already defined with conflicting parameters"
                )));
            }
            Some(_) => {}
            None => drop(buffers.insert(path.clone(), buffering)),
        }
    }
    let logs = &mut cf.get::<LogLoc>().logs;
    logs.get_or_init(Arc::default);
    if let Some(logs) = logs.get_mut().and_then(Arc::get_mut) {
        logs.push(AccessLog { target, format, filter });
    }
    Ok(())
}

fn target<S: Logged>(cf: &mut Cf, d: &Directive) -> ConfResult<Target> {
    let path = d.arg(0);
    if let Some(rest) = path.strip_prefix(b"syslog:") {
        let syslog = Syslog::parse(rest).map_err(|e| d.bad(0, e))?;
        return Ok(Target::Syslog(syslog));
    }
    if path.starts_with(b"pipe:") {
        let path = log_path(cf, d, path)?;
        return Ok(Target::File { path, sink: OnceLock::new() });
    }
    let name = template::<S>(cf, d, 0)?;
    if name.is_constant() {
        return Ok(Target::File { path: cf.full_path(path), sink: OnceLock::new() });
    }
    let mut prefix = paths::bytes(&cf.prefix).to_vec();
    if prefix.last().is_some_and(|b| *b != b'/') {
        prefix.push(b'/');
    }
    Ok(Target::Computed { prefix, name, health: Health::default() })
}

fn set_cache(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut cache = FileCache { max: 0, inactive_secs: 10, valid_secs: 60, min_uses: 1 };
    let mut off = false;
    for i in 0..d.args.len() {
        let known = if let Some(text) = d.keyed(i, "max") {
            units::parse_int(text).map(|n| cache.max = n as usize)
        } else if let Some(text) = d.keyed(i, "inactive") {
            units::parse_sec(text).map(|n| cache.inactive_secs = n as i64)
        } else if let Some(text) = d.keyed(i, "min_uses") {
            units::parse_int(text).map(|n| cache.min_uses = n)
        } else if let Some(text) = d.keyed(i, "valid") {
            units::parse_sec(text).map(|n| cache.valid_secs = n as i64)
        } else {
            (d.arg(i) == b"off").then(|| off = true)
        };
        if known.is_none() {
            let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
            let text = format!("invalid \"open_log_file_cache\" parameter \"{shown}\"");
            return Err(d.bad(i, text));
        }
    }
    if off {
        return cf.get::<LogLoc>().cache.once(d, None);
    }
    if cache.max == 0 {
        return Err(d.fail("\"open_log_file_cache\" must have \"max\" parameter"));
    }
    cf.get::<LogLoc>().cache.once(d, Some(cache))
}

/// Opens the files; locations without any word on logging get the default one.
fn build(b: &mut Build) -> ConfResult {
    let path = b.cf.full_path(Layout::here().http_log_path.as_bytes());
    let mode = b.cf.mode;
    let main = b.main.get_mut::<LogMain>();
    let Some(format) = main.formats.get(COMBINED).cloned() else { return Ok(()) };
    let default =
        AccessLog { target: Target::File { path, sink: OnceLock::new() }, format, filter: None };
    let default = Arc::new(vec![default]);
    for conf in distinct::<LogLoc>(b.locations).into_iter().filter(|conf| !conf.off) {
        conf.logs.get_or_init(|| Arc::clone(&default));
    }
    open_all(main, from_ref(b.outer), mode)?;
    open_all(main, b.locations, mode)
}

/// Opens the files of all logs.
fn open_all(main: &mut LogMain, places: &[Slots], mode: Mode) -> ConfResult {
    // Also of those that nothing is written to: they stand where there is an "off", or are inherited by
    // nobody. So does nginx.
    let named = distinct::<LogLoc>(places).into_iter().filter_map(|conf| conf.logs.get());
    let mut logs = named.flat_map(|logs| logs.iter());
    logs.try_for_each(|log| open(main, log, mode))
}

fn open(main: &mut LogMain, log: &AccessLog, mode: Mode) -> ConfResult {
    let Target::File { path, sink } = &log.target else { return Ok(()) };
    if sink.get().is_some() {
        return Ok(());
    }
    let opened = match main.sinks.get(path) {
        Some(s) => Arc::clone(s),
        None => {
            let file = log_file_for(mode, path).map_err(|e| {
                let why = os_error(&e);
                Diagnostic::emerg(format!("open() \"{}\" failed ({why})", path.display()))
            })?;
            let buffering = main.buffers.get(path).copied();
            let fresh = Arc::new(Sink { file, buffering, health: Health::default() });
            main.sinks.insert(path.clone(), Arc::clone(&fresh));
            fresh
        }
    };
    // Only this function sets it.
    let _ = sink.set(opened);
    Ok(())
}

fn handler(r: &mut Request) -> Flow {
    log_all(r);
    Flow::Declined
}

fn stream_handler(s: &mut weir_stream::Session) -> stream::Flow {
    log_all(s);
    stream::Flow::Declined
}

fn log_all<S: Logged>(s: &mut S) {
    s.with_conf::<LogLoc, _>(|s, conf| {
        for log in conf.logs.get().into_iter().flat_map(|l| l.iter()) {
            let wanted = match &log.filter {
                // Nobody keeps a session out of the log by an expression that cannot tell.
                Some(filter) => {
                    let (wanted, certain) =
                        s.certain(|s| with_value(s, filter, |_, value| is_true(value)));
                    wanted || !certain
                }
                None => true,
            };
            if wanted {
                write(s, conf, log);
            }
        }
    });
}

fn write<S: Logged>(s: &mut S, conf: &LogLoc, log: &AccessLog) {
    match &log.target {
        Target::File { sink, .. } => {
            let Some(sink) = sink.get().filter(|k| !k.health.is_full()) else { return };
            if sink.buffering.is_some() {
                return buffer::append(s, sink, &log.format);
            }
            let written = line(s, &log.format, |line| sink.file.write(line));
            report(s, &sink.health, &sink.file.path, written);
            tell_loss(s, &sink.file);
        }
        Target::Computed { prefix, name, health } if !health.is_full() => {
            if !s.may_write_named() {
                return;
            }
            let mut path = Vec::new();
            s.eval_into(name, &mut path);
            if !paths::is_whole(&path) {
                path.splice(..0, prefix.iter().copied());
            }
            let opened = files::open(conf.cache.as_ref(), &path);
            let shown = paths::path(&path);
            match opened {
                Ok(file) => {
                    use std::io::Write;
                    let written = line(s, &log.format, |line| (&*file).write_all(line));
                    report(s, health, &shown, written);
                }
                Err(e) => {
                    let text = format!("open() \"{}\" failed ({})", shown.display(), os_error(&e));
                    s.log(LogLevel::Crit, &text);
                }
            }
        }
        Target::Computed { .. } => {}
        Target::Syslog(syslog) => {
            let sent = with_scratch(|buf| {
                log.format.write(s, buf);
                syslog.send_configured(buf)
            });
            if !sent {
                s.log(LogLevel::Warn, "send() to syslog failed while logging request");
            }
        }
    }
}

fn line<S: Logged, T>(s: &mut S, format: &Format, f: impl FnOnce(&[u8]) -> T) -> T {
    with_scratch(|buf| {
        format.write(s, buf);
        buf.push(b'\n');
        f(buf)
    })
}

fn tell_loss<S: Session>(s: &S, file: &LogFile) {
    if let Some(loss) = file.loss() {
        s.part().core().error_log.log(LogLevel::Alert, None, loss.as_bytes());
    }
}

fn report<S: Session>(
    s: &S,
    health: &Health,
    path: &std::path::Path,
    written: std::io::Result<()>,
) {
    let Err(e) = written else { return };
    health.note(&e);
    tell_failure(s, health, path, &e);
}

/// Tells of what has failed some time ago.
fn tell_failure<S: Session>(s: &S, health: &Health, path: &std::path::Path, e: &std::io::Error) {
    if let Some(text) = health.failed(path, e) {
        s.log(LogLevel::Alert, &text);
    }
}
