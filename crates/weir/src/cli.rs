//! nginx's command line.

use crate::load::Paths;
use crate::profile::Wanted;
use crate::script;
use crate::{service, ship, top, trace};
use std::path::{Path, PathBuf};
use weir_module::Layout;
use weir_runtime::{paths, process};

/// The nginx whose configuration language and behaviour this version has.
pub const NGINX_VERSION: &str = "1.31.5";

/// Relative names and temporary files do not belong where these configurations are.
const SYSTEM_CONF_DIRS: [&str; 2] = ["/etc", "/usr/local/etc"];

pub fn help() -> String {
    let Layout { name, prefix, conf_path, error_log_path, .. } = Layout::here();
    let bare = match Layout::here().is_nginx() {
        true => String::new(),
        false => format!(
            "\nCalled as `{name}` alone, without a configuration file there, it serves its embedded \
             default\nat http://127.0.0.1:8080/.\n"
        ),
    };
    format!(
        "\
Usage: {name} [-?hvVtTq] [-s signal] [-p prefix] [-e filename] [-c filename] [-g directives]
       {name} help [DIRECTIVE]
       {name} analyze [OPTION]... FILE...
       {name} doctor [--json] [-p prefix] [-c filename] [-g directives]
       {name} trace [-p PID | -c filename] [--json] [--to ADDRESS] [-H FIELD] URL
       {name} ship status | install NAME [--dashboards URL] [-p prefix] [-c filename]
       {name} service install | start | stop | reload | reopen | upgrade | remove [-n NAME] [-p prefix] [-c filename]
       {name} lua [OPTION]... [-e CODE] [FILE [ARGUMENT]...]
       {name} top [-p PID | -c filename | URL...] [--once | --json] [--interval TIME] [--user NAME:PASSWORD]
       {name} profile [--lua] [-p PID | -c filename] [--seconds N] [--frequency HZ] [--worker N] [-o FILE]

Options:
  -?,-h         : this help
  -v            : show version and exit
  -V            : show version and configure options then exit
  -t            : test configuration and exit
  -T            : test configuration, dump it and exit
  --strict      : with -t or -T: warnings, such as a name that is not found, fail the test
  -q            : suppress non-error messages during configuration testing
  -s signal     : send signal to a master process: stop, quit, reopen, reload, upgrade (the program
                  that is there now takes the place of the one that runs, which drops nothing)
  -p prefix     : set prefix path (default: {}/)
  -e filename   : set error log file (default: {error_log_path})
  -c filename   : set configuration file (default: {conf_path})
  -g directives : set global directives out of configuration file
{bare}",
        prefix.trim_end_matches('/')
    )
}

pub enum Action {
    Serve,
    Test {
        dump: bool,
    },
    Signal(String),
    Help,
    Version,
    FullVersion,
    /// `weir help [DIRECTIVE]`
    Directive(Option<String>),
    /// `weir analyze …`
    Analyze(Vec<Vec<u8>>),
    /// `weir doctor`
    Doctor {
        json: bool,
    },
    /// `weir doctor --help`
    DoctorHelp,
    /// `weir trace`
    Trace(trace::Wanted),
    /// `weir trace --help`
    TraceHelp,
    /// `weir profile`
    Profile(Wanted),
    /// `weir profile --help`
    ProfileHelp,
    /// `weir top`
    Top(top::Wanted),
    /// `weir top --help`
    TopHelp,
    /// `weir lua …`
    Lua(script::Wanted),
    /// `weir lua --help`
    LuaHelp,
    /// `weir ship …`
    Ship(ship::Wanted),
    /// `weir service …`
    Service(service::Wanted),
}

pub struct Args {
    pub action: Action,
    pub quiet: bool,
    /// Warnings fail a test.
    pub strict: bool,
    pub paths: Paths,
}

impl Args {
    /// The words behind the program's name, as bytes: they name files.
    pub fn parse(args: impl Iterator<Item = Vec<u8>>) -> Result<Args, String> {
        let mut args = args.peekable();
        let mut told = Told { bare: args.peek().is_none(), ..Told::default() };
        let (mut quiet, mut strict) = (false, false);
        let mut action = Action::Serve;
        if args.next_if(|word| word == b"help").is_some() {
            let action = help_on(args.next(), &mut told)?;
            return Ok(Args { action, quiet, strict, paths: told.paths() });
        }
        if args.next_if(|word| word == b"analyze").is_some() {
            let action = Action::Analyze(args.collect());
            return Ok(Args { action, quiet, strict, paths: told.paths() });
        }
        while let Some(arg) = args.next() {
            match &arg[..] {
                b"--strict" => {
                    strict = true;
                    continue;
                }
                b"--help" => {
                    return Ok(Args { action: Action::Help, quiet, strict, paths: told.paths() });
                }
                b"--version" => {
                    return Ok(Args {
                        action: Action::Version,
                        quiet,
                        strict,
                        paths: told.paths(),
                    });
                }
                _ => {}
            }
            if let Some(read) = command(&arg) {
                let action = read(&mut args, &mut told)?;
                return Ok(Args { action, quiet, strict, paths: told.paths() });
            }
            let Some(mut rest) = arg.strip_prefix(b"-") else {
                return Err(format!("invalid option: \"{}\"", text(arg)));
            };
            while let Some((c, behind)) = rest.split_first() {
                rest = behind;
                match c {
                    b'?' | b'h' => action = Action::Help,
                    b'v' => action = Action::Version,
                    b'V' => action = Action::FullVersion,
                    b't' if !matches!(action, Action::Test { dump: true }) => {
                        action = Action::Test { dump: false }
                    }
                    b't' => {}
                    b'T' => action = Action::Test { dump: true },
                    b'q' => quiet = true,
                    b'p' | b'c' | b'e' | b'g' | b's' => {
                        let value = match std::mem::take(&mut rest) {
                            [] => args.next().ok_or_else(|| needs(*c))?,
                            glued => glued.to_vec(),
                        };
                        match c {
                            b's' => action = Action::Signal(checked_signal(text(value))?),
                            _ => told.take(*c, value),
                        }
                    }
                    _ => return Err(format!("invalid option: \"{}\"", first_letter(&arg, rest))),
                }
            }
        }
        if strict && !matches!(action, Action::Test { .. }) {
            return Err("option \"--strict\" goes with -t or -T".into());
        }
        Ok(Args { action, quiet, strict, paths: told.paths() })
    }
}

/// What is to be told of a directive, or of a command whose name no directive has.
fn help_on(word: Option<Vec<u8>>, told: &mut Told) -> Result<Action, String> {
    let mut asked = std::iter::once(b"--help".to_vec());
    match word.as_deref() {
        Some(b"analyze") => Ok(Action::Analyze(asked.collect())),
        Some(name @ (b"doctor" | b"trace" | b"top" | b"profile" | b"service" | b"lua")) => {
            match command(name) {
                Some(read) => read(&mut asked, told),
                None => Ok(Action::Help),
            }
        }
        _ => Ok(Action::Directive(word.map(text))),
    }
}

/// The words behind a command's.
type Words<'a> = &'a mut dyn Iterator<Item = Vec<u8>>;

type Reads = fn(Words<'_>, &mut Told) -> Result<Action, String>;

/// What reads the words behind a command's.
fn command(word: &[u8]) -> Option<Reads> {
    Some(match word {
        b"doctor" => |args, told| doctor(args, told),
        b"trace" => |args, told| trace(args, told),
        b"ship" => |args, told| ship(args, told),
        b"service" => |args, told| service(args, told),
        b"top" => |args, told| top(args, told),
        b"lua" => |args, _| script::Wanted::read(args),
        b"profile" => |args, told| profile(args, told),
        _ => return None,
    })
}

/// What stands behind `doctor`.
fn doctor(mut args: impl Iterator<Item = Vec<u8>>, told: &mut Told) -> Result<Action, String> {
    told.bare = false;
    let mut json = false;
    while let Some(arg) = args.next() {
        match arg.as_slice() {
            b"--json" => json = true,
            b"--help" | b"-h" | b"-?" => return Ok(Action::DoctorHelp),
            _ => told.path_option(arg, &mut args)?,
        }
    }
    Ok(Action::Doctor { json })
}

/// What stands behind `trace`.
fn trace(mut args: impl Iterator<Item = Vec<u8>>, told: &mut Told) -> Result<Action, String> {
    told.bare = false;
    let mut wanted = trace::Wanted::default();
    while let Some(arg) = args.next() {
        let mut value = || {
            args.next().ok_or_else(|| format!("option \"{}\" requires a value", text(arg.clone())))
        };
        match arg.as_slice() {
            b"--help" | b"-h" | b"-?" => return Ok(Action::TraceHelp),
            b"--json" => wanted.json = true,
            b"--to" => wanted.to = Some(text(value()?)),
            b"-H" => wanted.fields.push(text(value()?)),
            b"-X" => wanted.method = text(value()?),
            b"-p" => {
                // A number is a process, all else a prefix.
                let value = value()?;
                match text(value.clone()).parse() {
                    Ok(pid) => wanted.pid = Some(pid),
                    Err(_) => told.take(b'p', value),
                }
            }
            [first, ..] if *first != b'-' && wanted.url.is_empty() => wanted.url = text(arg),
            _ => told.path_option(arg, &mut args)?,
        }
    }
    match wanted.url.is_empty() {
        true => Err("\"trace\" needs a URL".into()),
        false => Ok(Action::Trace(wanted)),
    }
}

/// What stands behind `profile`.
fn profile(mut args: impl Iterator<Item = Vec<u8>>, told: &mut Told) -> Result<Action, String> {
    told.bare = false;
    let mut wanted = Wanted::default();
    while let Some(arg) = args.next() {
        let mut value = || {
            args.next().ok_or_else(|| format!("option \"{}\" requires a value", text(arg.clone())))
        };
        match arg.as_slice() {
            b"--help" | b"-h" | b"-?" => return Ok(Action::ProfileHelp),
            b"--seconds" => wanted.seconds = number(value()?)?,
            b"--frequency" => wanted.frequency_hz = number(value()?)?,
            b"--lua" => wanted.is_of_lua = true,
            b"--worker" => wanted.worker = Some(number(value()?)?),
            b"-o" => wanted.out = paths::path(&value()?).into_owned(),
            b"-p" => {
                // A number is a process, all else a prefix.
                let value = value()?;
                match text(value.clone()).parse() {
                    Ok(pid) => wanted.pid = Some(pid),
                    Err(_) => told.take(b'p', value),
                }
            }
            _ => told.path_option(arg, &mut args)?,
        }
    }
    Ok(Action::Profile(wanted))
}

/// What stands behind `top`.
fn top(mut args: impl Iterator<Item = Vec<u8>>, told: &mut Told) -> Result<Action, String> {
    told.bare = false;
    let mut wanted = top::Wanted::default();
    while let Some(arg) = args.next() {
        let mut value = || {
            args.next().ok_or_else(|| format!("option \"{}\" requires a value", text(arg.clone())))
        };
        match arg.as_slice() {
            b"--help" | b"-h" | b"-?" => return Ok(Action::TopHelp),
            b"--once" => wanted.form = top::Form::Once,
            b"--json" => wanted.form = top::Form::Json,
            b"--interval" => wanted.interval = top::interval(&value()?)?,
            b"--user" => wanted.user = Some(text(value()?)),
            b"--pid" => wanted.pid = Some(number(value()?)? as u32),
            b"-p" => {
                // A number is a process, all else a prefix.
                let value = value()?;
                match text(value.clone()).parse() {
                    Ok(pid) => wanted.pid = Some(pid),
                    Err(_) => told.take(b'p', value),
                }
            }
            [first, ..] if *first != b'-' => wanted.urls.push(text(arg)),
            _ => told.path_option(arg, &mut args)?,
        }
    }
    wanted.is_told_where = told.prefix.is_some() || told.conf.is_some();
    match (wanted.is_told_where || wanted.pid.is_some(), wanted.urls.is_empty()) {
        (true, false) => Err("URLs do not go with -c, -p or --pid".into()),
        (_, true) if wanted.user.is_some() => Err("option \"--user\" goes with URLs".into()),
        _ => Ok(Action::Top(wanted)),
    }
}

/// What stands behind `service`.
fn service(mut args: impl Iterator<Item = Vec<u8>>, told: &mut Told) -> Result<Action, String> {
    told.bare = false;
    let word = args.next().unwrap_or_default();
    let Some(order) = service::Order::of(&word) else {
        return Err(
            "write \"service\" with install, start, stop, reload, reopen, upgrade or remove".into(),
        );
    };
    let mut name = None;
    while let Some(arg) = args.next() {
        match arg.as_slice() {
            b"-n" => name = Some(text(args.next().ok_or("option \"-n\" requires a name")?)),
            b"--help" | b"-h" | b"-?" => {
                return Ok(Action::Service(service::Wanted { order: service::Order::Help, name }))
            }
            _ if order.takes_paths() => told.path_option(arg, &mut args)?,
            _ => {
                let arg = text(arg);
                return Err(format!("\"{arg}\": a service is told of its configuration when it is installed; what stands here is -n NAME"));
            }
        }
    }
    Ok(Action::Service(service::Wanted { order, name }))
}

/// What stands behind `ship`.
fn ship(mut args: impl Iterator<Item = Vec<u8>>, told: &mut Told) -> Result<Action, String> {
    told.bare = false;
    let mut words = Vec::new();
    let (mut json, mut dashboards) = (false, None);
    while let Some(arg) = args.next() {
        match arg.as_slice() {
            b"--help" | b"-h" | b"-?" => return Ok(Action::Ship(ship::Wanted::Help)),
            b"--json" => json = true,
            b"--dashboards" => {
                let url = args.next().ok_or("option \"--dashboards\" requires a value")?;
                dashboards = Some(text(url));
            }
            [b'-', ..] => told.path_option(arg, &mut args)?,
            _ => words.push(text(arg)),
        }
    }
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    Ok(Action::Ship(match (words.as_slice(), json, dashboards) {
        (["status"], json, None) => ship::Wanted::Status { json },
        (["install", name], false, dashboards) => {
            ship::Wanted::Install { name: (*name).to_owned(), dashboards }
        }
        _ => {
            return Err(
                "write \"ship status [--json]\" or \"ship install NAME [--dashboards URL]\"".into(),
            )
        }
    }))
}

fn number(word: Vec<u8>) -> Result<u64, String> {
    weir_base::units::parse_int(&word).ok_or_else(|| format!("invalid number \"{}\"", text(word)))
}

fn text(word: Vec<u8>) -> String {
    String::from_utf8_lossy(&word).into_owned()
}

/// The letter whose first byte stands before `rest`.
fn first_letter(arg: &[u8], rest: &[u8]) -> String {
    let from = &arg[arg.len() - rest.len() - 1..];
    String::from_utf8_lossy(from).chars().take(1).collect()
}

fn needs(c: u8) -> String {
    let what = match c {
        b'p' => "directory name",
        b'c' | b'e' => "file name",
        _ => "parameter",
    };
    format!("option \"-{}\" requires {what}", char::from(c))
}

fn checked_signal(name: String) -> Result<String, String> {
    match name.as_str() {
        "stop" | "quit" | "reopen" | "reload" | "upgrade" => Ok(name),
        _ => Err(format!("invalid option: \"-s {name}\"")),
    }
}

/// What the command line says of paths.
#[derive(Default)]
struct Told {
    /// There are no arguments at all.
    bare: bool,
    prefix: Option<PathBuf>,
    conf: Option<PathBuf>,
    error_log: Option<PathBuf>,
    globals: Vec<u8>,
}

impl Told {
    /// What an option gives that has a value.
    fn take(&mut self, option: u8, value: Vec<u8>) {
        let path = || Some(paths::path(&value).into_owned());
        match option {
            b'p' => self.prefix = path(),
            b'c' => self.conf = path(),
            b'e' => self.error_log = path(),
            _ => self.globals = value,
        }
    }

    /// `-c`, `-p`, `-e` or `-g` behind a command's word.
    fn path_option(
        &mut self,
        arg: Vec<u8>,
        args: &mut impl Iterator<Item = Vec<u8>>,
    ) -> Result<(), String> {
        let [b'-', option @ (b'c' | b'p' | b'e' | b'g'), glued @ ..] = arg.as_slice() else {
            return Err(format!("invalid option: \"{}\"", text(arg)));
        };
        let value = match glued {
            [] => args.next().ok_or_else(|| needs(*option))?,
            glued => glued.to_vec(),
        };
        self.take(*option, value);
        Ok(())
    }

    fn paths(self) -> Paths {
        let cwd = paths::given(std::env::current_dir().unwrap_or_default());
        let here = Layout::here();
        let home = process::home(&cwd, here.conf_path);
        let is_installed = home.is_some() || is_installed(here);
        let prefix = self.prefix.clone().or(home).unwrap_or_else(|| here.prefix.into());
        let prefix = paths::given(cwd.join(prefix));
        let conf = match &self.conf {
            // Without -p a relative name is meant from here; nginx takes its prefix also then.
            Some(c) if self.prefix.is_none() && !here.is_nginx() => Some(cwd.join(c)),
            Some(c) => Some(paths::join(&prefix, c)),
            None => {
                let default = paths::join(&prefix, here.conf_path);
                (!self.bare || here.is_nginx() || default.exists()).then_some(default)
            }
        };
        let conf = conf.map(paths::given);
        let prefix = match &conf {
            // The embedded default leaves nothing behind where it is tried.
            None => paths::given(std::env::temp_dir()),
            Some(c) if self.prefix.is_none() && !is_installed && !is_systems(c) => conf_home(c),
            Some(_) => prefix,
        };
        let error_log = self.error_log;
        Paths { prefix, conf, error_log, globals: self.globals }
    }
}

fn is_installed(here: &Layout) -> bool {
    here.is_nginx() || Path::new(here.prefix).exists()
}

fn is_systems(conf: &Path) -> bool {
    SYSTEM_CONF_DIRS.iter().any(|dir| conf.starts_with(dir))
}

/// Where relative names of a configuration start when there is no prefix of Weir's own: the
/// directory the configuration is in.
fn conf_home(conf: &Path) -> PathBuf {
    conf.parent().map(Path::to_path_buf).unwrap_or_default()
}

pub fn version() -> String {
    format!("nginx version: nginx/{NGINX_VERSION} ({})\n", weir_http::output::SERVER_VERSION)
}

/// nginx's words for what is in this build, so that tools that ask find it.
pub fn full_version() -> String {
    let mut text = version();
    // Tools look for the OpenSSL whose interface is meant; its version is the one the behaviour is of.
    text.push_str(
        "built with rustls (its directives are those of nginx built with OpenSSL 3.0.2)\n",
    );
    text.push_str("TLS SNI support enabled\n");
    text.push_str("configure arguments:");
    let modules = crate::modules::CONFIGURE_ARGUMENTS.iter().map(|a| (*a).to_owned());
    for option in Layout::here().configure_arguments().into_iter().chain(modules) {
        text.push(' ');
        text.push_str(&option);
    }
    text.push('\n');
    text
}
