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
    let pid = own_pid(setup).unwrap_or_default().to_string();
    let mut command = Command::new(program);
    let done = command.arg(event).arg(pid).stdin(Stdio::null()).status();
    done.is_ok_and(|status| status.success())
}

/// The number that the server of that set-up has itself, if it is one of Windows'.
pub(crate) fn own_pid(setup: &Setup) -> Option<u32> {
    program()?;
    let number = |path: PathBuf| std::fs::read_to_string(path).ok()?.trim().parse().ok();
    // A configuration that was not read yet may name another file.
    let all = std::fs::read_dir(setup.dir()).into_iter().flatten().flatten().map(|e| e.path());
    let others = all.filter(|path| path.extension().is_some_and(|e| e == "pid"));
    std::iter::once(pid_file(setup)).chain(others).find_map(number)
}

/// The system's number of it is not the one that it has itself.
fn pid_file(setup: &Setup) -> PathBuf {
    let statements = setup.conf().split([';', '{', '}']).map(str::trim);
    let named = statements.filter_map(|s| s.strip_prefix("pid ")).next();
    setup.dir().join(named.map_or(Path::new("logs/nginx.pid"), |name| Path::new(name.trim())))
}

/// Whether it is the binary to be tested. There it stays at its console, whatever `daemon` says; and what is told to end
/// where nobody looks at how it ends may be killed, as asking takes long.
pub(crate) fn is_asked() -> bool {
    program().is_some()
}

/// What it says there otherwise: the system's own words and numbers, and the drive that a path of Linux' has for it.
const SAYS: [(&str, &str); 12] = [
    ("(2: File not found)", "(2: No such file or directory)"),
    ("(3: Path not found)", "(2: No such file or directory)"),
    ("(5: Access denied)", "(13: Permission denied)"),
    // For which wine has no words.
    ("10048: OS Error 10048 (FormatMessageW() returned error 317)", "98: Address already in use"),
    ("(10048: ", "(98: Address already in use; "),
    ("(112: Disk full)", "(28: No space left on device)"),
    ("(10054: ", "(104: Connection reset by peer; "),
    ("(10060: ", "(110: Connection timed out; "),
    ("(10061: Connection refused)", "(111: Connection refused)"),
    ("80000003:system library::Path", "80000002:system library::File"),
    ("system library::File not found", "system library::No such file or directory"),
    (".lua: File not found", ".lua: No such file or directory"),
];

/// What the program has printed, with the words and ends of lines that tests know.
pub fn printed(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes).into_owned();
    match is_asked() {
        true => in_words_of_linux(text.replace("\r\n", "\n")),
        false => text,
    }
}

/// A text of the server's in the words that tests know.
pub(crate) fn in_words_of_linux(text: String) -> String {
    if !is_asked() {
        return text;
    }
    SAYS.iter().fold(text.replace("Z:/", "/"), |text, (there, here)| text.replace(there, here))
}
