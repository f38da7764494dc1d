//! From a path to a generation: read, check, merge, build. Nothing that serves is touched.

use crate::globals::{Global, ROWS};
use crate::missing::MISSING;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use weir_conf::{Diagnostic, FsLoader, Loader, Options, Sources};
use weir_http::build;
use weir_http::generation::Generation;
use weir_http::logger::{self, ErrorLog, LogLevel, LogSink};
use weir_module::{Cf, ConfResult, Context, Directive, Layout, Mode, Row, RowTable};

/// Messages begin with this name, because scripts look for it.
pub const PROGRAM: &str = "nginx";

/// Where things are, by the command line.
#[derive(Clone, Debug)]
pub struct Paths {
    pub prefix: PathBuf,
    /// `None`: the embedded default.
    pub conf: Option<PathBuf>,
    pub error_log: Option<PathBuf>,
    pub globals: String,
}

/// A loaded configuration.
pub struct Loaded {
    pub generation: Arc<Generation>,
    pub sources: Sources,
    /// Rendered warnings.
    pub warnings: Vec<String>,
}

/// A refused configuration: for the terminal, and one line for the log.
pub struct Refused {
    pub text: String,
    pub line: String,
}

static NUMBER: AtomicU64 = AtomicU64::new(1);

pub fn row_table() -> RowTable {
    let mut lists: Vec<&'static [Row]> = vec![ROWS];
    lists.extend(weir_modules::MODULES.iter().map(|m| m.rows));
    RowTable::new(&lists, MISSING)
}

/// Reads the configuration from disk and builds a generation.
pub fn load(paths: &Paths, mode: Mode) -> Result<Loaded, Refused> {
    load_from(paths, mode, &FsLoader)
}

pub fn load_from(paths: &Paths, mode: Mode, loader: &dyn Loader) -> Result<Loaded, Refused> {
    let mut sources = Sources::new();
    let built = run(paths, mode, loader, &mut sources);
    let refuse = |e: &Diagnostic, sources: &Sources| Refused {
        text: e.render(sources, PROGRAM),
        line: e.first_line(sources),
    };
    match built {
        Ok((generation, warnings)) => {
            let warnings = warnings.iter().map(|w| w.render(&sources, PROGRAM)).collect();
            Ok(Loaded { generation: Arc::new(generation), sources, warnings })
        }
        Err(e) => Err(refuse(&e, &sources)),
    }
}

fn run(
    paths: &Paths,
    mode: Mode,
    loader: &dyn Loader,
    sources: &mut Sources,
) -> ConfResult<(Generation, Vec<Diagnostic>)> {
    let conf = match &paths.conf {
        Some(p) => p.clone(),
        None => PathBuf::from(crate::embedded::NAME),
    };
    let main = conf.to_string_lossy().into_owned().into_bytes();
    let mut options = Options::for_main(&main);
    options.raw_block = |name| name.ends_with(b"_by_lua_block");
    let conf_prefix = conf.parent().map(Path::to_path_buf).unwrap_or_default();
    let mut cf = Cf::new(Rc::new(row_table()), &paths.prefix, &conf_prefix, mode);
    if !paths.globals.is_empty() {
        let parsed =
            weir_conf::parse_command_line(sources, loader, paths.globals.as_bytes(), &options);
        check(&mut cf, parsed.directives, parsed.error)?;
    }
    let parsed = match &paths.conf {
        Some(_) => weir_conf::parse_partial(sources, loader, &main, &options),
        None => weir_conf::parse_partial(sources, &crate::embedded::Embedded, &main, &options),
    };
    check(&mut cf, parsed.directives, parsed.error)?;
    if cf.get::<Global>().events.as_option().is_none() {
        return Err(Diagnostic::emerg("no \"events\" section in configuration".to_string()));
    }
    let log = error_log(&mut cf, paths)?;
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    for (path, text) in loader.attached() {
        let path = PathBuf::from(String::from_utf8_lossy(path).into_owned());
        cf.files.insert(path, Arc::clone(text));
    }
    let generation = build::finish(&mut cf, &log, number)?;
    for (path, text) in std::mem::take(&mut cf.files) {
        sources.attach(path.to_string_lossy().as_bytes(), text);
    }
    Ok((generation, cf.warnings))
}

/// Checks what was read before reporting where reading stopped, so that the first error in the
/// file is the one that is told.
fn check(cf: &mut Cf, directives: Vec<Directive>, error: Option<Diagnostic>) -> ConfResult {
    let Some(error) = error else { return cf.walk(Context::MAIN, &directives) };
    let position = |e: &Diagnostic| e.at.map(|p| (p.file, p.offset));
    match cf.walk(Context::MAIN, &directives) {
        Err(e) if e.at.is_some() && position(&e) < position(&error) => Err(e),
        _ => Err(error),
    }
}

/// The main error log: the configuration's, or `-e`'s, or `logs/error.log`.
fn error_log(cf: &mut Cf, paths: &Paths) -> ConfResult<Arc<ErrorLog>> {
    if let Some(log) = cf.get::<Global>().error_log.as_option() {
        return Ok(Arc::clone(log));
    }
    let path = paths.error_log_path();
    if paths.conf.is_none() && paths.error_log.is_none() || path.as_os_str() == "stderr" {
        return Ok(Arc::new(ErrorLog::stderr(LogLevel::Error)));
    }
    let file = logger::log_file(&path).map_err(|e| {
        Diagnostic::emerg(format!(
            "open() \"{}\" failed ({})",
            path.display(),
            weir_http::core_rows::os_text(&e)
        ))
    })?;
    Ok(Arc::new(ErrorLog { sinks: vec![(LogSink::File(file), LogLevel::Error)] }))
}

impl Paths {
    pub fn error_log_path(&self) -> PathBuf {
        match &self.error_log {
            Some(p) if p.as_os_str() == "stderr" => p.clone(),
            Some(p) => self.prefix.join(p),
            None => self.prefix.join(Layout::here().error_log_path),
        }
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
            None => Some(self.prefix.join(Layout::here().pid_path)),
        }
    }
}
