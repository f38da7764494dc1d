//! The walk over the tree: finds each directive's row, checks it, calls its setter.

use crate::slot::{ConfType, Level, Slots};
use crate::{ArgsExt, Body, ConfResult, Context, Diagnostic, Directive, Row, RowBody, Word};
use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::rc::Rc;
use std::sync::Arc;
use weir_conf::{SourceFile, Span};
use weir_runtime::files;
use weir_runtime::paths::BACKSLASH_SEPARATES;

/// Most errors of one configuration that are told.
const ERRORS_MAX: usize = 50;

/// A file that belongs to the configuration is never larger: the largest are lists of revoked certificates.
const FILE_MAX_BYTES: u64 = 256 * 1024 * 1024;

/// In how many steps it is looked once whether the process is to end: a look is a system call.
const STEPS_PER_LOOK: u32 = 64;

/// What the load is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Mode {
    /// `-t`: everything is checked, nothing is kept.
    Test,
    /// Start or reload.
    Serve,
}

/// Every row by name; one name may have several rows with different contexts.
pub struct RowTable {
    rows: HashMap<&'static [u8], Vec<&'static Row>>,
    /// Known to nginx, not to this version: name and what to do instead.
    /// A name that ends in `*` stands for all that begin so.
    missing: &'static [(&'static str, &'static str)],
}

impl RowTable {
    pub fn new<'a>(
        lists: impl IntoIterator<Item = &'a &'static [Row]>,
        missing: &'static [(&'static str, &'static str)],
    ) -> RowTable {
        let mut rows: HashMap<&'static [u8], Vec<&'static Row>> = HashMap::new();
        for row in lists.into_iter().flat_map(|l| l.iter()) {
            rows.entry(row.name.as_bytes()).or_default().push(row);
        }
        RowTable { rows, missing }
    }

    pub fn find(&self, name: &[u8]) -> &[&'static Row] {
        self.rows.get(name).map_or(&[], |v| v.as_slice())
    }

    pub fn names(&self) -> impl Iterator<Item = &'static str> + '_ {
        self.rows.values().flatten().map(|r| r.name)
    }

    /// Why a directive that nginx has is not here.
    pub fn missing(&self, name: &str) -> Option<&'static str> {
        let hit = self.missing.iter().find(|(n, _)| match n.strip_suffix('*') {
            Some(prefix) => name.starts_with(prefix),
            None => *n == name,
        });
        hit.map(|(_, why)| *why)
    }

    /// Where an argument stands first in its line and is a directive's name, the line before has
    /// most probably lost its end.
    fn forgotten_semicolon(&self, d: &Directive, e: &mut Diagnostic) {
        let starts = |w: &Word| w.first_in_line && !w.quoted && !self.find(&w.text).is_empty();
        let Some(at) = d.args.iter().position(starts) else { return };
        if self.find(&d.name.text).is_empty() {
            return;
        }
        let before = if at == 0 { &d.name } else { &d.args[at - 1] };
        e.of_itself = true;
        e.span = Some(before.span);
        e.hint = Some(match before.text.ends_with(b"\\;") {
            true => weir_conf::messages::SWALLOWED_END.to_owned(),
            false => format!("is a \";\" missing after \"{before}\"?"),
        });
    }

    fn unknown(&self, d: &Directive) -> Diagnostic {
        let name = d.name.to_str().into_owned();
        let mut e = d.fail(format!("unknown directive \"{name}\"")).of_itself();
        e.hint = match self.missing(&name) {
            Some(why) => Some(why.to_string()),
            // What editors on Windows put before a text, which is not seen.
            None if matches!(&*d.name.text, [0xef, 0xbb, 0xbf, ..]) => {
                Some("the file begins with a byte order mark: save it as UTF-8 without one".into())
            }
            None if matches!(&*d.name.text, [0xff, 0xfe, ..] | [0xfe, 0xff, ..]) => {
                Some("the file is in UTF-16: save it as UTF-8, without a byte order mark".into())
            }
            None => weir_conf::suggest(&name, self.names())
                .map(|near| format!("did you mean \"{near}\"?")),
        };
        e
    }
}

/// The levels' slots that are being filled now.
#[derive(Default)]
pub struct Levels {
    pub global: Slots,
    pub main: Slots,
    pub server: Slots,
    pub location: Slots,
}

/// The state of a configuration being read.
pub struct Cf {
    table: Rc<RowTable>,
    pub context: Context,
    pub levels: Levels,
    /// Prefix for files that are not configuration (`-p`).
    pub prefix: PathBuf,
    /// The directory of the main configuration file.
    pub conf_prefix: PathBuf,
    pub mode: Mode,
    pub warnings: Vec<Diagnostic>,
    /// What is wrong with the configuration, in the order of reading: the first is nginx's; of the
    /// others those that do not follow from it.
    pub errors: Vec<Diagnostic>,
    /// Files read besides the configuration's own text (keys, certificates): who holds the rights
    /// reads them, and hands them on with the text.
    pub files: HashMap<PathBuf, Arc<[u8]>>,
    /// The files that have been read, for who says where something stands ([`Cf::place`]).
    pub texts: Vec<SourceFile>,
    /// Whether the process is to end, so that nobody waits for the rest.
    pub is_to_end: fn() -> bool,
    /// What the block being read has had of what may stand in it once; of the main context its blocks too.
    given: Vec<&'static str>,
    steps: u32,
    interrupted: bool,
}

impl Cf {
    pub fn new(table: Rc<RowTable>, prefix: &Path, conf_prefix: &Path, mode: Mode) -> Cf {
        Cf {
            table,
            context: Context::MAIN,
            levels: Levels::default(),
            prefix: prefix.to_path_buf(),
            conf_prefix: conf_prefix.to_path_buf(),
            mode,
            warnings: Vec::new(),
            errors: Vec::new(),
            files: HashMap::new(),
            texts: Vec::new(),
            is_to_end: || false,
            given: Vec::new(),
            steps: 0,
            interrupted: false,
        }
    }

    /// The slot of type `T` at the level being filled.
    pub fn get<T: ConfType>(&mut self) -> &mut T {
        match T::LEVEL {
            Level::Global => self.levels.global.get_mut(),
            Level::Main => self.levels.main.get_mut(),
            Level::Server => self.levels.server.get_mut(),
            Level::Location => self.levels.location.get_mut(),
        }
    }

    /// To be called between steps of a load, which may be long: an error when the process is to end.
    pub fn go_on(&mut self) -> ConfResult {
        self.steps = self.steps.wrapping_add(1);
        if self.steps.is_multiple_of(STEPS_PER_LOOK) || self.interrupted {
            return self.go_on_after_long();
        }
        Ok(())
    }

    /// The same between steps each of which may be long.
    pub fn go_on_after_long(&mut self) -> ConfResult {
        self.interrupted |= (self.is_to_end)();
        match self.interrupted {
            true => Err(Diagnostic::emerg("interrupted, the process is to end".to_string())),
            false => Ok(()),
        }
    }

    /// Reads a block's children in another context.
    pub fn walk(&mut self, context: Context, children: &[Directive]) -> ConfResult {
        let outer = std::mem::replace(&mut self.context, context);
        // The command line and the file are one block.
        let is_main = context == Context::MAIN;
        let given = (!is_main).then(|| std::mem::take(&mut self.given));
        let mut result = Ok(());
        for d in children {
            if let Err(e) = self.go_on() {
                result = Err(e);
                break;
            }
            let told = self.errors.len();
            let Err(mut e) = self.directive(d) else { continue };
            // A block's error may be that of a directive in it, which has been told there.
            if self.errors.len() == told {
                self.table.forgotten_semicolon(d, &mut e);
                if told == 0 || e.of_itself || e.message.starts_with("invalid ") {
                    self.errors.push(e.clone());
                }
            }
            result = result.and(Err(e));
            if self.errors.len() >= ERRORS_MAX {
                break;
            }
        }
        self.context = outer;
        if let Some(given) = given {
            self.given = given;
        }
        result
    }

    /// Whether the main context has had this block, as far as it has been read.
    pub fn has_had_block(&self, name: &str) -> bool {
        self.context == Context::MAIN && self.given.contains(&name)
    }

    /// Notes what may stand in a block once.
    fn give(&mut self, d: &Directive, row: &Row) -> ConfResult {
        if row.is_once && self.given.contains(&row.name) {
            return Err(d.error("is duplicate"));
        }
        let is_noted = row.is_once || row.body != RowBody::Plain && self.context == Context::MAIN;
        self.given.extend(is_noted.then_some(row.name));
        Ok(())
    }

    /// The name of the file, without its folder, and the line in which a span begins.
    pub fn place(&self, span: Span) -> (Vec<u8>, usize) {
        let Some(file) = self.texts.get(span.file as usize) else { return (Vec::new(), 0) };
        let name = weir_runtime::paths::last_name(&file.path);
        (name.to_vec(), file.line(span.start))
    }

    /// A path from the configuration: relative ones start at the prefix.
    pub fn full_path(&self, name: &[u8]) -> PathBuf {
        join(&self.prefix, name)
    }

    /// The same, starting at the configuration's own directory.
    pub fn full_conf_path(&self, name: &[u8]) -> PathBuf {
        join(&self.conf_prefix, name)
    }

    /// Reads a file that belongs to the configuration, once.
    pub fn read_file(&mut self, path: &Path) -> std::io::Result<Arc<[u8]>> {
        self.read_by(path, files::read_at_most)
    }

    /// The same of what is written while the server runs: a pipe in its place is refused and not waited for. That there
    /// was none is known later too, when it may be there and be wrong.
    pub fn read_state(&mut self, path: &Path) -> std::io::Result<Arc<[u8]>> {
        if self.files.get(path).is_some_and(|known| known.is_empty()) {
            return Err(std::io::ErrorKind::NotFound.into());
        }
        match self.read_by(path, files::read_regular) {
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
                self.files.insert(path.to_path_buf(), Arc::default());
                Err(e)
            }
            read => read,
        }
    }

    fn read_by(
        &mut self,
        path: &Path,
        read: fn(&Path, u64) -> std::io::Result<Vec<u8>>,
    ) -> std::io::Result<Arc<[u8]>> {
        if let Some(text) = self.files.get(path) {
            return Ok(Arc::clone(text));
        }
        let text: Arc<[u8]> = read(path, FILE_MAX_BYTES)?.into();
        self.files.insert(path.to_path_buf(), Arc::clone(&text));
        Ok(text)
    }

    pub fn warn(&mut self, d: &Directive, message: impl Into<String>) {
        let mut w = d.fail(message);
        w.level = weir_conf::Level::Warn;
        self.warnings.push(w);
    }

    /// nginx's warning of an argument that says what another has said.
    pub fn warn_duplicate_value(&mut self, d: &Directive, i: usize) {
        let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
        self.warn(d, format!("duplicate value \"{shown}\""));
    }

    fn directive(&mut self, d: &Directive) -> ConfResult {
        let table = Rc::clone(&self.table);
        let rows = table.find(&d.name.text);
        if rows.is_empty() {
            return Err(table.unknown(d));
        }
        let Some(row) = rows.iter().find(|r| r.contexts.has(self.context)) else {
            return Err(not_allowed(d, rows));
        };
        check_body(d, row)?;
        if !row.arity.fits(d.args.len()) {
            let mut e = d
                .fail(format!("invalid number of arguments in \"{}\" directive", row.name))
                .of_itself();
            let takes = format!("\"{}\" takes {}", row.name, row.arity.describe());
            let is_joined = d.args.iter().any(|word| word.text.windows(2).any(|w| w == b"\\;"));
            e.hint = Some(match is_joined {
                true => format!("{takes}; {}", weir_conf::messages::SWALLOWED_END),
                false => takes,
            });
            return Err(e);
        }
        if row.arity.is_flag() {
            d.flag()?;
        }
        self.give(d, row)?;
        self.warnings.extend(lost_backslash(d).filter(|_| BACKSLASH_SEPARATES));
        (row.set)(self, d)
    }
}

/// What was to be a path, and has another sign in the place of a backslash and the letter behind it: `C:\new`.
fn lost_backslash(d: &Directive) -> Option<Diagnostic> {
    let is_sign = |b: &u8| matches!(b, b'\n' | b'\r' | b'\t');
    let is_path = |text: &[u8]| match text {
        [drive, b':', rest @ ..] if drive.is_ascii_alphabetic() => {
            rest.first().is_some_and(|b| is_sign(b) || matches!(b, b'/' | b'\\'))
        }
        _ => false,
    };
    let word = d.args.iter().find(|w| is_path(&w.text) && w.text.iter().any(is_sign))?;
    let text = "a path has a line feed or a tab in it: that is what \"\\n\", \"\\r\" and \"\\t\" are in a configuration";
    let mut warning = Diagnostic::of(d, word.span, text.to_string());
    warning.level = weir_conf::Level::Warn;
    warning.hint = Some("write \"/\" or \"\\\\\" between the names".to_string());
    Some(warning)
}

fn join(prefix: &Path, name: &[u8]) -> PathBuf {
    weir_runtime::paths::within(prefix, name)
}

fn not_allowed(d: &Directive, rows: &[&'static Row]) -> Diagnostic {
    let mut e = d.error("is not allowed here").of_itself();
    // Other protocols' blocks have theirs, which are called so.
    let of_http = |name| match name {
        "server" => "server in http",
        "upstream" => "upstream in http",
        other => other,
    };
    let places: Vec<&str> = rows.iter().flat_map(|r| r.contexts.names()).map(of_http).collect();
    e.hint = Some(format!("\"{}\" stands in: {}", d.name.to_str(), places.join(", ")));
    e
}

fn check_body(d: &Directive, row: &Row) -> ConfResult {
    let has_block = !matches!(d.body, Body::None);
    match row.body {
        RowBody::Plain if has_block => {
            let text = format!("directive \"{}\" is not terminated by \";\"", row.name);
            let mut e = d.fail(text).of_itself();
            e.hint = Some(format!("\"{}\" takes no block", row.name));
            Err(e)
        }
        RowBody::Block | RowBody::Raw if !has_block => {
            Err(d.fail(format!("directive \"{}\" has no opening \"{{\"", row.name)).of_itself())
        }
        _ => Ok(()),
    }
}
