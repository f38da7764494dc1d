//! The binary under test: started, signalled, stopped.

use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::client::Peer;
use crate::setup::Setup;
use crate::{expect_soon, wait_for, AT_LAST, PATIENCE};

#[derive(Clone, Copy, Debug)]
pub enum Signal {
    Hup,
    Quit,
    Term,
    Usr1,
    Usr2,
    Winch,
    Kill,
    Stop,
    Cont,
}

impl Signal {
    fn name(self) -> &'static str {
        match self {
            Signal::Hup => "HUP",
            Signal::Quit => "QUIT",
            Signal::Term => "TERM",
            Signal::Usr1 => "USR1",
            Signal::Usr2 => "USR2",
            Signal::Winch => "WINCH",
            Signal::Kill => "KILL",
            Signal::Stop => "STOP",
            Signal::Cont => "CONT",
        }
    }
}

/// The binary under test.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("WEIR_BIN") {
        return path.into();
    }
    for profile in ["release", "debug"] {
        let path = workspace().join("target").join(profile).join("weir");
        if path.exists() {
            return path;
        }
    }
    panic!("no binary to test: build weir first or set WEIR_BIN");
}

pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("a workspace")
}

/// A running server. It also is the [`Peer`] on its port 0.
///
/// With `daemon on;` in its configuration it goes its own way, and must have
/// `pid %%DIR%%/the.pid;` to be found by.
pub struct Server {
    child: Child,
    daemon: Option<u32>,
    setup: Setup,
    peer: Peer,
}

impl Deref for Server {
    type Target = Peer;

    fn deref(&self) -> &Peer {
        &self.peer
    }
}

impl Server {
    /// Starts the binary on a configuration without files.
    #[track_caller]
    pub fn start(conf: &str) -> Server {
        Setup::new(conf).start()
    }

    #[track_caller]
    pub(crate) fn run(setup: Setup) -> Server {
        write_conf(&setup);
        let stderr = std::fs::File::create(setup.dir().join("stderr")).unwrap();
        let mut command = command(setup.dir());
        if let Some(umask) = &setup.umask {
            command = with_umask(umask, &command);
        }
        command.envs(setup.env.iter().map(|(name, value)| (name, value)));
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .expect("the binary starts");
        crate::windows::has_started(child.id());
        let peer = Peer::Tcp(setup.ports.get(&0).copied().unwrap_or(0));
        let mut server = Server { child, daemon: None, setup, peer };
        let is_daemon = server.setup.conf().contains("daemon on");
        if is_daemon && !crate::windows::is_asked() {
            server.find_daemon();
        }
        server.wait_until_listening();
        if crate::windows::is_asked() {
            // There its sockets listen before it has started who serves.
            wait_for(|| crate::windows::is_served(server.dir()), PATIENCE);
        }
        if is_daemon && crate::windows::is_asked() {
            // It has stayed, and still is to be found by its pid file, by which tests follow it.
            server.daemon = crate::windows::own_pid(&server.setup);
        }
        server
    }

    #[track_caller]
    fn find_daemon(&mut self) {
        let code = self.wait_exit();
        expect_soon("the daemon's pid", || self.read("the.pid").ends_with('\n'));
        assert_eq!(code, Some(0));
        self.daemon = self.read("the.pid").trim().parse().ok();
    }

    #[track_caller]
    fn wait_until_listening(&mut self) {
        let listens = listens(self.setup.conf());
        let mut exited = false;
        let up = wait_for(
            || {
                exited = self.daemon.is_none() && matches!(self.child.try_wait(), Ok(Some(_)));
                exited || listens.iter().all(Listen::is_up)
            },
            AT_LAST,
        );
        if !up || exited {
            let stderr = std::fs::read_to_string(self.dir().join("stderr")).unwrap_or_default();
            let missing: Vec<_> = listens.iter().filter(|l| !l.is_up()).collect();
            panic!(
                "does not start (exited: {exited}; not there: {missing:?}); stderr:\n{stderr}\n{}",
                self.error_log()
            );
        }
    }

    /// Its n-th port.
    pub fn port(&self, n: usize) -> u16 {
        *self.setup.ports.get(&n).unwrap_or_else(|| panic!("no port {n}"))
    }

    /// The peer on its n-th port.
    pub fn on(&self, n: usize) -> Peer {
        Peer::Tcp(self.port(n))
    }

    /// The peer on a unix socket under its directory.
    pub fn unix(&self, path: &str) -> Peer {
        Peer::Unix(self.dir().join(path))
    }

    pub fn dir(&self) -> &Path {
        self.setup.dir()
    }

    pub fn read(&self, path: &str) -> String {
        let bytes = std::fs::read(self.dir().join(path)).unwrap_or_default();
        crate::windows::in_words_of_linux(String::from_utf8_lossy(&bytes).into_owned())
    }

    pub fn write(&self, path: impl AsRef<Path>, content: impl AsRef<[u8]>) {
        self.setup.write(path, content);
    }

    pub fn error_log(&self) -> String {
        self.read("error.log")
    }

    /// Waits for this text in the error log.
    #[track_caller]
    pub fn expect_error(&self, text: &str) {
        if !wait_for(|| self.error_log().contains(text), AT_LAST) {
            panic!("no {text:?} in the error log:\n{}", self.error_log());
        }
    }

    /// The lines of a log, waited for until there are `count`.
    #[track_caller]
    pub fn log_lines(&self, path: &str, count: usize) -> Vec<String> {
        let lines = || self.read(path).lines().map(str::to_string).collect::<Vec<_>>();
        if !wait_for(|| lines().len() >= count, AT_LAST) {
            panic!("fewer than {count} lines in {path}: {:?}", lines());
        }
        lines()
    }

    /// The process to signal: the master, or the only one.
    pub fn pid(&self) -> u32 {
        self.daemon.unwrap_or(self.child.id())
    }

    /// The same by the number that it has itself, which is another one where it is run by wine.
    pub fn own_pid(&self) -> u32 {
        crate::windows::own_pid(&self.setup).unwrap_or_else(|| self.pid())
    }

    /// The processes that the one to signal has started.
    pub fn children(&self) -> Vec<u32> {
        children(self.own_pid())
    }

    pub fn signal(&self, signal: Signal) {
        // A daemon's pid file may be another's by now.
        if self.daemon.is_some() || !crate::windows::signal(&self.setup, signal) {
            self::signal(self.pid(), signal);
        }
    }

    /// Puts a new configuration in the place of the old and reloads; returns once requests
    /// are answered by it, which the caller tells by `is_new`.
    #[track_caller]
    pub fn reload(&mut self, conf: &str, is_new: impl FnMut() -> bool) {
        self.replace_conf(conf);
        self.signal(Signal::Hup);
        expect_soon("the new configuration answers", is_new);
    }

    pub fn replace_conf(&mut self, conf: &str) {
        self.setup.replace_conf(conf);
        write_conf(&self.setup);
    }

    /// The exit code once the process has ended, if it does within the usual patience; 0 for a
    /// daemon, whose code nobody sees.
    pub fn wait_exit(&mut self) -> Option<i32> {
        wait_for(|| !self.is_running(), PATIENCE);
        match (self.daemon, self.child.try_wait()) {
            (Some(pid), _) => (!is_alive(pid)).then_some(0),
            (None, Ok(Some(status))) => Some(status.code().unwrap_or(-1)),
            _ => None,
        }
    }

    pub fn is_running(&mut self) -> bool {
        match self.daemon {
            Some(pid) => is_alive(pid),
            None => matches!(self.child.try_wait(), Ok(None)),
        }
    }
}

/// The processes that one has started.
pub fn children(pid: u32) -> Vec<u32> {
    if let Some(children) = crate::windows::children(pid) {
        return children;
    }
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children"));
    text.unwrap_or_default().split_whitespace().filter_map(|n| n.parse().ok()).collect()
}

/// Zombies that nobody reaps count as dead.
pub fn is_alive(pid: u32) -> bool {
    if let Some(is) = crate::windows::is_alive(pid) {
        return is;
    }
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit(')').next().is_some_and(|rest| !rest.is_empty() && !rest.starts_with(" Z"))
}

impl Drop for Server {
    fn drop(&mut self) {
        if std::thread::panicking() {
            let log = self.error_log();
            let shown = log.lines().count().saturating_sub(20);
            println!("error log, its end:");
            log.lines().skip(shown).for_each(|line| println!("{line}"));
        }
        if !self.is_running() {
            return;
        }
        if !crate::windows::is_asked() {
            self.signal(Signal::Term);
        }
        if crate::windows::is_asked() || !wait_for(|| !self.is_running(), Duration::from_secs(3)) {
            self.signal(Signal::Kill);
            let _ = self.child.wait();
        }
        // Who has taken its place, where the test has ended before its own end.
        for pid in crate::windows::system_pids(self.dir()).unwrap_or_default() {
            let _ = Command::new("kill").args(["-9", &pid.to_string()]).status();
        }
    }
}

/// Signals any process that a server started, such as its successor. One that is to stop has stopped then, with
/// all its threads: on a busy machine others go on for a while after the one that the signal has come to.
pub fn signal(pid: u32, signal: Signal) {
    if crate::windows::signal_to(pid, signal) {
        return;
    }
    let mut command = Command::new("kill");
    command.arg(format!("-{}", signal.name())).arg(pid.to_string()).stderr(Stdio::null());
    let _ = command.status();
    if matches!(signal, Signal::Stop) {
        wait_for(|| is_stopped(pid), PATIENCE);
    }
}

fn is_stopped(pid: u32) -> bool {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).into_iter().flatten().flatten();
    let mut stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
    stats.all(|stat| stat.rsplit(") ").next().is_some_and(|rest| rest.starts_with(['T', 'Z'])))
}

fn command(dir: &Path) -> Command {
    let mut command = Command::new(binary());
    command.arg("-p").arg(dir);
    command.arg("-c").arg(dir.join("nginx.conf"));
    command.arg("-e").arg(dir.join("error.log"));
    command
}

/// The same command, started by a shell that sets the umask first.
fn with_umask(umask: &str, command: &Command) -> Command {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(format!("umask {umask}; exec \"$@\"")).arg("sh");
    shell.arg(command.get_program()).args(command.get_args());
    shell
}

/// On the first line, so that line numbers in messages stay those of the test's text.
fn write_conf(setup: &Setup) {
    let mut text = String::new();
    if !setup.conf().contains("daemon ") {
        text.push_str("daemon off; ");
    }
    // Windows has none to become.
    if is_root() && !crate::windows::is_asked() && !setup.conf().contains("user ") {
        text.push_str("user root; ");
    }
    setup.write("nginx.conf", text + setup.conf());
}

fn is_root() -> bool {
    std::fs::read_to_string("/proc/self/status")
        .unwrap_or_default()
        .lines()
        .any(|line| line.starts_with("Uid:") && line.split_whitespace().nth(2) == Some("0"))
}

#[derive(Debug)]
enum Listen {
    Port(u16),
    Udp(u16),
    Unix(PathBuf),
}

impl Listen {
    /// Looked up, not tried: a trial connection would be counted and logged.
    fn is_up(&self) -> bool {
        match self {
            Listen::Unix(path) => path.exists(),
            Listen::Port(port) => listens_on(*port),
            Listen::Udp(port) => is_in("udp", *port, " 07 "),
        }
    }
}

/// Whether somebody listens on a port.
pub fn listens_on(port: u16) -> bool {
    is_in("tcp", port, " 0A ")
}

/// Whether there is a socket on a port in that state.
fn is_in(protocol: &str, port: u16, state: &str) -> bool {
    ["", "6"].iter().any(|six| {
        let path = &format!("/proc/net/{protocol}{six}");
        let table = match std::fs::read_to_string(path) {
            // There may be no IPv6.
            Err(e) if e.kind() == std::io::ErrorKind::NotFound => return false,
            table => table.unwrap_or_else(|e| panic!("{path}: {e}")),
        };
        let local = format!(":{port:04X} ");
        table.lines().any(|line| line.contains(&local) && line.contains(state))
    })
}

/// What the configuration listens on, as far as its text tells.
fn listens(conf: &str) -> Vec<Listen> {
    let mut found = Vec::new();
    for statement in conf.split([';', '{', '}']) {
        let mut words = statement.split_whitespace();
        if words.next() != Some("listen") {
            continue;
        }
        let Some(address) = words.next() else { continue };
        let options: Vec<&str> = words.collect();
        if options.contains(&"quic") {
            continue;
        }
        if let Some(path) = address.strip_prefix("unix:") {
            found.push(Listen::Unix(path.into()));
        } else if let Ok(port) = address.rsplit(':').next().unwrap_or_default().parse() {
            let is_udp = options.contains(&"udp");
            found.push(if is_udp { Listen::Udp(port) } else { Listen::Port(port) });
        }
    }
    found
}

#[derive(Debug)]
pub struct CliOutput {
    pub code: i32,
    pub stdout: String,
    pub stderr: String,
}

/// Runs the binary with these arguments (and `-p`, `-c`, `-e`) on a configuration, to its end.
pub fn run_cli(arguments: &[&str], conf: &str) -> CliOutput {
    let setup = Setup::new(conf);
    setup.write("nginx.conf", setup.conf());
    let output = command(setup.dir()).args(arguments).output().expect("the binary runs");
    let dir = setup.dir().display().to_string();
    let text = |bytes: &[u8]| crate::windows::printed(bytes).replace(&dir, "DIR");
    CliOutput {
        code: output.status.code().unwrap_or(-1),
        stdout: text(&output.stdout),
        stderr: text(&output.stderr),
    }
}
