//! A binary for Windows that wine runs, as `cargo xtask windows test` says by naming the program that sets its events.

use crate::server::Signal;
use crate::setup::Setup;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// `PROGRAM EVENT PID` sets one.
const VARIABLE: &str = "WEIR_WINDOWS_EVENTS";

fn program() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// Sends a signal to the server of that set-up, if it is one of Windows' and the signal is one that has an event there;
/// whether that was so.
pub(crate) fn signal(setup: &Setup, signal: Signal) -> bool {
    let Some(program) = program() else { return false };
    let event = match signal {
        Signal::Hup => "reload",
        Signal::Quit => "quit",
        Signal::Usr1 => "reopen",
        Signal::Term => "stop",
        _ => return false,
    };
    let pid = std::fs::read_to_string(pid_file(setup)).unwrap_or_default();
    let mut command = Command::new(program);
    let done = command.arg(event).arg(pid.trim()).stdin(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// The system's number of it is not the one that it has itself.
fn pid_file(setup: &Setup) -> PathBuf {
    let statements = setup.conf().split([';', '{', '}']).map(str::trim);
    let named = statements.filter_map(|s| s.strip_prefix("pid ")).next();
    setup.dir().join(named.map_or(Path::new("logs/nginx.pid"), |name| Path::new(name.trim())))
}

/// Whether what is told to end may be killed: nobody looks at how it ends, and asking takes long there.
pub(crate) fn is_killed() -> bool {
    program().is_some()
}

/// What it says there otherwise: the system's own words and numbers, and the drive that a path of Linux' has for it.
const SAYS: [(&str, &str); 7] = [
    ("(2: File not found)", "(2: No such file or directory)"),
    ("(3: Path not found)", "(2: No such file or directory)"),
    ("(5: Access denied)", "(13: Permission denied)"),
    ("(10048: ", "(98: Address already in use; "),
    ("(10054: ", "(104: Connection reset by peer; "),
    ("(10060: ", "(110: Connection timed out; "),
    ("(10061: Connection refused)", "(111: Connection refused)"),
];

/// A text of the server's in the words that tests know.
pub(crate) fn in_words_of_linux(text: String) -> String {
    if !is_killed() {
        return text;
    }
    SAYS.iter().fold(text.replace("Z:/", "/"), |text, (there, here)| text.replace(there, here))
}
