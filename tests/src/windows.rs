//! A binary for Windows that wine runs, as `cargo xtask windows test` says by naming the program that sets its events.

use crate::server::Signal;
use crate::setup::Setup;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;

/// `PROGRAM EVENT PID` sets one.
const VARIABLE: &str = "WEIR_WINDOWS_EVENTS";

fn program() -> Option<PathBuf> {
    std::env::var_os(VARIABLE).map(PathBuf::from)
}

/// Sends a signal to the server of that set-up, if it is one of Windows' and the signal is one that has an event there;
/// whether that was so.
pub(crate) fn signal(setup: &Setup, signal: Signal) -> bool {
    let Some(program) = program() else { return false };
    let event = what(signal);
    if event.starts_with('-') {
        return false;
    }
    own_pid(setup).is_some_and(|pid| tell(&program, event, pid).is_some())
}

/// The event that a signal is there; with a hyphen what no event is for, and is done to the process itself.
fn what(signal: Signal) -> &'static str {
    match signal {
        Signal::Hup => "reload",
        Signal::Quit => "quit",
        Signal::Usr1 => "reopen",
        Signal::Term => "stop",
        Signal::Usr2 => "upgrade",
        Signal::Winch => "winch",
        Signal::Kill => "-kill",
        Signal::Stop => "-suspend",
        Signal::Cont => "-resume",
    }
}

/// What the program of events says, if it has done it.
fn tell(program: &Path, what: &str, pid: u32) -> Option<String> {
    let mut command = Command::new(program);
    let output = command.arg(what).arg(pid.to_string()).stdin(Stdio::null()).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// The numbers that Linux has for servers; all others are that system's.
static OF_LINUX: Mutex<Vec<u32>> = Mutex::new(Vec::new());

pub(crate) fn has_started(pid: u32) {
    OF_LINUX.lock().unwrap().push(pid);
}

/// The program that is asked for a process by its number there.
fn asked_for(pid: u32) -> Option<PathBuf> {
    program().filter(|_| !OF_LINUX.lock().unwrap().contains(&pid))
}

/// Sends a signal to a process by its number there; whether it is one that is told so.
pub(crate) fn signal_to(pid: u32, signal: Signal) -> bool {
    let Some(program) = asked_for(pid) else { return false };
    // As of any process, one that is gone hears nothing.
    let _ = tell(&program, what(signal), pid);
    true
}

/// The processes that one has started, by their numbers there.
pub(crate) fn children(pid: u32) -> Option<Vec<u32>> {
    let said = tell(&asked_for(pid)?, "-children", pid).unwrap_or_default();
    Some(said.split_whitespace().filter_map(|n| n.parse().ok()).collect())
}

/// Whether a process runs, by its number there.
pub(crate) fn is_alive(pid: u32) -> Option<bool> {
    Some(tell(&asked_for(pid)?, "-alive", pid).is_some())
}

/// The numbers that Linux has for the processes of a server in that directory, which are no children of one another there:
/// wine starts them.
pub(crate) fn system_pids(dir: &Path) -> Option<Vec<u32>> {
    program()?;
    let all = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_told = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let mut words = words.split(|b| *b == 0);
        words.any(|word| word == dir.as_os_str().as_encoded_bytes())
    };
    let numbers = all.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    Some(numbers.filter(is_told).collect())
}

/// Whether a server in that directory has begun to serve: the thread that is asked by its control pipe comes last.
pub(crate) fn is_served(dir: &Path) -> bool {
    let pids = system_pids(dir).unwrap_or_default();
    let tasks =
        |pid| std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut names = pids.into_iter().flat_map(tasks).map(|task| task.path().join("comm"));
    names.any(|name| std::fs::read_to_string(name).is_ok_and(|name| name.trim_end() == "inquiries"))
}

/// Where the system has a shell, which beside the program of events is one for the tests' own scripts.
const SHELL: &str = "/bin/sh";

/// A text with that shell in the other's place.
pub fn with_shell(text: String) -> String {
    match program() {
        Some(events) => text.replace(SHELL, &events.with_file_name("sh.exe").display().to_string()),
        None => text,
    }
}

/// A line of the shell's as code has it for `ngx.pipe`: there a line is for that system's own.
pub fn line_in_lua(line: &str) -> String {
    match is_asked() {
        true => format!("{{ \"sh\", \"-c\", {line} }}"),
        false => line.to_owned(),
    }
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
pub fn is_asked() -> bool {
    program().is_some()
}

/// What it says there otherwise: the system's own words and numbers, and the drive that a path of Linux' has for it.
const SAYS: [(&str, &str); 13] = [
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
    // As one that is killed ends.
    (" exited with code 137", " exited on signal 9"),
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
