//! From a path to a generation: read, check, merge, build. Nothing that serves is touched.

use crate::disk::Disk;
use crate::globals::{Global, ROWS};
use crate::missing::MISSING;
use crate::{loaded, place, protocols};
use std::collections::HashSet;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use weir_conf::{Diagnostic, Loader, Options, Parsed, Position, Sources};
use weir_core::generation::Generation;
use weir_core::logger::{self, ErrorLog, LogLevel, LogSink};
use weir_core::state_places;
use weir_module::{Cf, ConfResult, Context, Directive, Layout, Mode, Row, RowTable};
use weir_runtime::paths;

/// Messages begin with this name, because scripts look for it.
pub const PROGRAM: &str = "nginx";

/// Where things are, by the command line.
#[derive(Clone, Debug)]
pub struct Paths {
    pub prefix: PathBuf,
    /// `None`: the embedded default.
    pub conf: Option<PathBuf>,
    pub error_log: Option<PathBuf>,
    /// The text of `-g`.
    pub globals: Vec<u8>,
}

/// A loaded configuration.
pub struct Loaded {
    pub generation: Arc<Generation>,
    pub sources: Sources,
    pub warnings: Vec<Warning>,
}

/// What is told and no error.
pub struct Warning {
    pub level: LogLevel,
    /// For the terminal.
    pub text: String,
    /// For a log.
    pub line: String,
}

impl Warning {
    /// Of what is found with each server or location that inherits a directive, a place is told once.
    fn all(found: &[Diagnostic], sources: &Sources) -> Vec<Warning> {
        let mut told = HashSet::new();
        let is_new = |w: &&Diagnostic| w.at.is_none() || told.insert(w.first_line(sources));
        let of = |w: &Diagnostic| Warning {
            level: w.level,
            text: w.render(sources, PROGRAM),
            line: w.first_line(sources),
        };
        found.iter().filter(is_new).map(of).collect()
    }
}

impl Loaded {
    /// The generation without the text it was made from.
    pub fn into_generation(self) -> Arc<Generation> {
        self.generation
    }
}

/// A refused configuration: for the terminal, and one line for the log.
pub struct Refused {
    pub text: String,
    pub line: String,
    /// What was told before it.
    pub warnings: Vec<Warning>,
}

/// Of the newest configuration that is in force.
static NUMBER: AtomicU64 = AtomicU64::new(0);

/// A configuration of that number is in force; the next one that is loaded has the next number.
pub fn is_in_force(number: u64) {
    NUMBER.store(number, Ordering::Relaxed);
}

pub fn row_table() -> RowTable {
    let mut lists: Vec<&'static [Row]> = vec![ROWS];
    lists.extend(crate::modules::MODULES.iter().map(|m| m.rows));
    lists.extend(crate::modules::STREAM.iter().map(|m| m.rows));
    lists.extend(crate::modules::MAIL.iter().map(|m| m.rows));
    RowTable::new(&lists, MISSING)
}

/// Reads the configuration from disk and builds a generation. Code that is to run before it is served by runs.
pub fn load(paths: &Paths, mode: Mode) -> Result<Loaded, Refused> {
    let loaded = look(paths, mode)?;
    let global = loaded.generation.global.get::<Global>();
    let is_alone = global.master_process.as_option() == Some(&false);
    let is_test = mode == Mode::Test;
    match weir_lua::attempt_init(&loaded.generation, global.workers(), is_alone, is_test) {
        Ok(()) => Ok(loaded),
        Err(why) => {
            let refused = refused(&[Diagnostic::emerg(why)], &loaded.sources);
            drop(loaded);
            logger::close_unused();
            Err(refused)
        }
    }
}

/// The same, and nothing runs.
pub fn look(paths: &Paths, mode: Mode) -> Result<Loaded, Refused> {
    load_from(paths, mode, &Disk)
}

pub fn load_from(paths: &Paths, mode: Mode, loader: &dyn Loader) -> Result<Loaded, Refused> {
    logger::begin_load();
    let mut sources = Sources::new();
    match run(paths, mode, loader, &mut sources) {
        Ok((generation, warnings)) => {
            let warnings = Warning::all(&warnings, &sources);
            Ok(Loaded { generation: Arc::new(generation), sources, warnings })
        }
        Err(errors) => {
            logger::close_unused();
            Err(refused(&errors, &sources))
        }
    }
}

fn refused(errors: &[Diagnostic], sources: &Sources) -> Refused {
    let (told, errors): (Vec<Diagnostic>, Vec<Diagnostic>) =
        errors.iter().cloned().partition(|e| !is_error(e));
    let warnings = Warning::all(&told, sources);
    let texts = warnings.iter().map(|w| w.text.clone());
    Refused {
        text: texts.chain(errors.iter().map(|e| e.render(sources, PROGRAM))).collect(),
        line: errors.first().map(|e| e.first_line(sources)).unwrap_or_default(),
        warnings,
    }
}

/// Warnings, then all that is wrong, what nginx finds first before the rest.
type Errors = Vec<Diagnostic>;

fn is_error(e: &Diagnostic) -> bool {
    e.level < weir_conf::Level::Error && e.level != weir_conf::Level::Alert
}

/// The directives as they stand, also of a configuration that is refused for what they say: up to where it
/// cannot be read any further.
pub fn read(told: &Paths) -> Vec<Directive> {
    let mut sources = Sources::new();
    let conf = told.conf_path();
    let main = paths::bytes(&conf).to_vec();
    let options = Options::for_main(&main);
    let mut all =
        weir_conf::parse_command_line(&mut sources, &Disk, &told.globals, &options).directives;
    let loader: &dyn Loader = match &told.conf {
        Some(_) => &Disk,
        None => &crate::embedded::Embedded,
    };
    all.extend(weir_conf::parse_partial(&mut sources, loader, &main, &options).directives);
    all
}

fn run(
    told: &Paths,
    mode: Mode,
    loader: &dyn Loader,
    sources: &mut Sources,
) -> Result<(Generation, Vec<Diagnostic>), Errors> {
    let conf = told.conf_path();
    let main = paths::bytes(&conf).to_vec();
    let options = Options::for_main(&main);
    let conf_prefix = conf.parent().map(Path::to_path_buf).unwrap_or_default();
    let mut cf = Cf::new(Rc::new(row_table()), &told.prefix, &conf_prefix, mode);
    cf.is_to_end = weir_runtime::signals::end_is_pending;
    // Some directives read theirs where they stand.
    for (path, text) in loader.attached() {
        cf.files.insert(paths::path(path).into_owned(), Arc::clone(text));
    }
    let mut directives = Vec::new();
    if !told.globals.is_empty() {
        let parsed = weir_conf::parse_command_line(sources, loader, &told.globals, &options);
        directives.extend(check(&mut cf, parsed)?);
    }
    let parsed = match &told.conf {
        Some(_) => weir_conf::parse_partial(sources, loader, &main, &options),
        None => weir_conf::parse_partial(sources, &crate::embedded::Embedded, &main, &options),
    };
    cf.texts = sources.files().to_vec();
    directives.extend(check(&mut cf, parsed)?);
    let built = build(&mut cf, told).and_then(|gen| no_clash(gen, sources));
    let mut warnings = std::mem::take(&mut cf.warnings);
    place::point(warnings.iter_mut(), &directives);
    let generation = built.map_err(|mut e| {
        place::point([&mut e].into_iter(), &directives);
        warnings.drain(..).chain([e]).collect::<Errors>()
    })?;
    for (path, text) in std::mem::take(&mut cf.files) {
        sources.attach(paths::bytes(&path), text);
    }
    Ok((generation, warnings))
}

/// Merges and builds what has been read without an error.
fn build(cf: &mut Cf, paths: &Paths) -> ConfResult<Generation> {
    if cf.get::<Global>().events.as_option().is_none() {
        let e = Diagnostic::emerg("no \"events\" section in configuration".to_string());
        return Err(e.hint("add events { }".to_string()));
    }
    loaded::notice(cf);
    let is_daemon = *cf.get::<Global>().daemon.as_option().unwrap_or(&true);
    weir_runtime::trusted::obey_umask(!is_daemon);
    let log = error_log(cf, paths);
    let number = NUMBER.load(Ordering::Relaxed) + 1;
    weir_ship::build(cf)?;
    let made = protocols::finish(cf, &log)?;
    let global = std::mem::take(&mut cf.levels.global);
    // A user that is not known is told of where that is asked for.
    let main = global.get::<Global>();
    let has_master = *main.master_process.as_option().unwrap_or(&true);
    let who = has_master.then(|| crate::kept::identity(main.user.as_option()).ok().flatten());
    let who = who.flatten();
    cf.warnings.extend(state_places::warnings(&global, who.as_ref()));
    Ok(Generation::new(number, global, log, made))
}

/// Refuses what two protocols cannot listen on both. (nginx finds it when it binds.)
fn no_clash(gen: Generation, sources: &Sources) -> ConfResult<Generation> {
    let Some([first, second]) = gen.clash() else { return Ok(gen) };
    let [had, wants] = [first, second].map(|l| gen.protocol_of(l));
    let it = match first.addr == second.addr {
        true => "it".to_string(),
        false => first.addr.to_string(),
    };
    let (at, place) = (second.span.start(), sources.location(first.span.start()));
    let addr = &second.addr;
    let text =
        format!("a duplicate listen {addr}: \"{had}\" has {it} already{place}, and \"{wants}\"");
    Err(Diagnostic::emerg(text).at(at).point(second.span))
}

/// Checks what was read, up to where reading stopped, and gives it back if all is well.
fn check(cf: &mut Cf, parsed: Parsed) -> Result<Vec<Directive>, Errors> {
    let walked = cf.walk(Context::MAIN, &parsed.directives);
    let mut errors = std::mem::take(&mut cf.errors);
    if let Some(error) = parsed.error {
        // Of a block that was cut off it cannot be told what it lacks.
        let cut = unfinished(&parsed.directives);
        errors.retain(|e| e.of_itself || !e.at.is_some_and(|at| cut.contains(&at)));
        errors.push(error);
    } else if let (Err(e), true) = (walked, errors.is_empty()) {
        errors.push(e);
    }
    match errors.is_empty() {
        true => Ok(parsed.directives),
        false => Err(cf.warnings.drain(..).chain(errors).collect()),
    }
}

/// The last block of each level: one of them was being read when reading stopped.
fn unfinished(directives: &[Directive]) -> Vec<Position> {
    let last = |level: &[Directive]| level.last().filter(|d| d.is_block()).cloned();
    let blocks = std::iter::successors(last(directives), |d| last(d.children()));
    blocks.map(|d| d.position()).collect()
}

/// The main error log: the configuration's, or `-e`'s, or the build's. Without a place for the last
/// nginx gives an alert; it is standard error then.
fn error_log(cf: &mut Cf, paths: &Paths) -> Arc<ErrorLog> {
    if let Some(log) = cf.get::<Global>().error_log.as_option() {
        return Arc::clone(log);
    }
    let path = paths.error_log_path();
    if paths.conf.is_none() && paths.error_log.is_none() || path.as_os_str() == "stderr" {
        return Arc::new(ErrorLog::stderr(LogLevel::Error));
    }
    match logger::log_file_for(cf.mode, &path) {
        Ok(file) => Arc::new(ErrorLog { sinks: vec![(LogSink::File(file), LogLevel::Error)] }),
        Err(e) => {
            // Of the command line's it has been told before anything was read.
            if paths.error_log.is_none() {
                let text = no_error_log(&path, &e);
                cf.warnings.push(Diagnostic::new(weir_conf::Level::Alert, text));
            }
            Arc::new(ErrorLog::stderr(LogLevel::Error))
        }
    }
}

fn no_error_log(path: &Path, e: &std::io::Error) -> String {
    let (path, why) = (path.display(), weir_core::os_text(e));
    format!("could not open error log file: open() \"{path}\" failed ({why})")
}

impl Paths {
    /// Opens the command line's error log, whatever the configuration says of logs, as nginx does; a test
    /// looks whether it could be. What is wrong with it, for the terminal.
    pub fn check_error_log(&self, mode: Mode) -> Option<String> {
        self.error_log.as_ref().filter(|p| p.as_os_str() != "stderr")?;
        let path = self.error_log_path();
        let e = logger::log_file_for(mode, &path).err()?;
        Some(format!("{PROGRAM}: [alert] {}\n", no_error_log(&path, &e)))
    }

    pub fn error_log_path(&self) -> PathBuf {
        match &self.error_log {
            Some(p) if p.as_os_str() == "stderr" => p.clone(),
            Some(p) => paths::join(&self.prefix, p),
            None => paths::join(&self.prefix, Layout::here().error_log_path),
        }
    }

    /// The file of the configuration, or the name of the one that is built in.
    pub fn conf_path(&self) -> PathBuf {
        self.conf.clone().unwrap_or_else(|| PathBuf::from(crate::embedded::NAME))
    }

    pub fn conf_name(&self) -> String {
        match &self.conf {
            Some(p) => p.display().to_string(),
            None => crate::embedded::NAME.to_string(),
        }
    }

    pub fn pid_path(&self, global: &Global) -> Option<PathBuf> {
        match global.pid.as_option() {
            Some(p) => Some(p.clone()),
            None if self.conf.is_none() => None,
            None => Some(paths::join(&self.prefix, Layout::here().pid_path)),
        }
    }
}
