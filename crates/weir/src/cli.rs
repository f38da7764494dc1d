//! nginx's command line.

use crate::load::Paths;
use std::path::{Path, PathBuf};

/// Where Weir looks when it is not told: nginx's layout below this prefix.
pub const DEFAULT_PREFIX: &str = "/usr/local/weir/";
const DEFAULT_CONF: &str = "conf/nginx.conf";
/// The nginx whose configuration language and behaviour this version has.
pub const NGINX_VERSION: &str = "1.31.5";

pub const HELP: &str = "\
Usage: weir [-?hvVtTq] [-s signal] [-p prefix] [-e filename] [-c filename] [-g directives]
       weir help [DIRECTIVE]

Options:
  -?,-h         : this help
  -v            : show version and exit
  -V            : show version and configure options then exit
  -t            : test configuration and exit
  -T            : test configuration, dump it and exit
  -q            : suppress non-error messages during configuration testing
  -s signal     : send signal to a master process: stop, quit, reopen, reload
  -p prefix     : set prefix path (default: /usr/local/weir/)
  -e filename   : set error log file (default: logs/error.log)
  -c filename   : set configuration file (default: conf/nginx.conf, or the embedded one)
  -g directives : set global directives out of configuration file

Without a configuration file Weir serves its embedded default at http://127.0.0.1:8080/.
";

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
}

pub struct Args {
    pub action: Action,
    pub quiet: bool,
    pub paths: Paths,
}

impl Args {
    pub fn parse(args: impl Iterator<Item = String>) -> Result<Args, String> {
        let mut args = args.peekable();
        if args.peek().map(String::as_str) == Some("help") {
            let name = args.nth(1);
            return Ok(Args {
                action: Action::Directive(name),
                quiet: false,
                paths: paths(None, None, None, String::new()),
            });
        }
        let (mut prefix, mut conf, mut error_log) = (None, None, None);
        let mut globals = String::new();
        let mut quiet = false;
        let mut action = Action::Serve;
        while let Some(arg) = args.next() {
            let Some(letters) = arg.strip_prefix('-') else {
                return Err(format!("invalid option: \"{arg}\""));
            };
            let mut rest = letters.chars();
            while let Some(c) = rest.next() {
                match c {
                    '?' | 'h' => action = Action::Help,
                    'v' => action = Action::Version,
                    'V' => action = Action::FullVersion,
                    't' if !matches!(action, Action::Test { dump: true }) => {
                        action = Action::Test { dump: false }
                    }
                    't' => {}
                    'T' => action = Action::Test { dump: true },
                    'q' => quiet = true,
                    'p' | 'c' | 'e' | 'g' | 's' => {
                        let glued: String = rest.by_ref().collect();
                        let value = match glued.is_empty() {
                            false => glued,
                            true => args.next().ok_or_else(|| needs(c))?,
                        };
                        match c {
                            'p' => prefix = Some(value),
                            'c' => conf = Some(value),
                            'e' => error_log = Some(value),
                            'g' => globals = value,
                            _ => action = Action::Signal(checked_signal(value)?),
                        }
                    }
                    _ => return Err(format!("invalid option: \"{c}\"")),
                }
            }
        }
        Ok(Args { action, quiet, paths: paths(prefix, conf, error_log, globals) })
    }
}

fn needs(c: char) -> String {
    let what = match c {
        'p' => "directory name",
        'c' | 'e' => "file name",
        _ => "parameter",
    };
    format!("option \"-{c}\" requires {what}")
}

fn checked_signal(name: String) -> Result<String, String> {
    match name.as_str() {
        "stop" | "quit" | "reopen" | "reload" => Ok(name),
        _ => Err(format!("invalid option: \"-s {name}\"")),
    }
}

fn paths(
    prefix: Option<String>,
    conf: Option<String>,
    error_log: Option<String>,
    globals: String,
) -> Paths {
    let cwd = std::env::current_dir().unwrap_or_default();
    let given = prefix.is_some();
    let prefix = cwd.join(prefix.unwrap_or_else(|| DEFAULT_PREFIX.into()));
    let conf = match conf {
        // Without -p a relative name is meant from here.
        Some(c) if given => Some(prefix.join(c)),
        Some(c) => Some(cwd.join(c)),
        None => Some(prefix.join(DEFAULT_CONF)).filter(|p| given || p.exists()),
    };
    let prefix = match &conf {
        // The embedded default leaves nothing behind where it is tried.
        None => std::env::temp_dir(),
        Some(c) if !given && !Path::new(DEFAULT_PREFIX).exists() => conf_home(c),
        Some(_) => prefix,
    };
    Paths { prefix, conf, error_log: error_log.map(PathBuf::from), globals }
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
        "built with rustls (its directives are those of nginx built with OpenSSL 3.0.0)\n",
    );
    text.push_str("TLS SNI support enabled\n");
    text.push_str("configure arguments:");
    for option in weir_modules::CONFIGURE_ARGUMENTS {
        text.push(' ');
        text.push_str(option);
    }
    text.push('\n');
    text
}
