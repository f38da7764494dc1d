//! Real programs to talk to: what is installed, and what `cargo xtask test` has unpacked below
//! `target/peers`. A test whose program is not there says so with [`skip`], and the test command
//! counts it as skipped.
//!
//! ```text
//! let Some(curl) = tools::need("curl") else { return };
//! let said = curl.run(&["-sS", "http://127.0.0.1:8080/"]);
//! assert_eq!(said.code, 0, "{}", said.stderr);
//! ```

use std::ffi::OsString;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

pub use crate::server::listens_on;
use crate::server::{binary, workspace};
use crate::{wait_for, windows, CliOutput};

/// No program of a test runs longer.
const RUN_MAX: Duration = Duration::from_secs(60);

/// Says that this test finds nothing to test, which is told apart from success.
pub fn skip(why: &str) {
    let thread = std::thread::current();
    let line = format!("skipped: {}: {why}\n", thread.name().unwrap_or("a test"));
    // Not `println!`, whose output cargo keeps to itself when a test passes.
    let _ = std::io::stdout().write_all(line.as_bytes());
}

/// A program that is there.
#[derive(Clone, Debug)]
pub struct Tool {
    pub path: PathBuf,
    /// Unpacked, with the libraries that came along.
    libraries: Option<OsString>,
}

/// Where packages are unpacked.
fn unpacked() -> PathBuf {
    let told = std::env::var_os("WEIR_PEERS").map(PathBuf::from);
    told.unwrap_or_else(|| workspace().join("target/peers/root"))
}

/// A program by its name; `php-fpm` is also there as `php-fpm8.2`.
pub fn find(name: &str) -> Option<Tool> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let installed = std::env::split_paths(&path)
        .chain(["/usr/sbin".into(), "/usr/local/sbin".into()])
        .find_map(|dir| with_version(&dir, name));
    if let Some(path) = installed {
        return Some(Tool { path, libraries: None });
    }
    let root = unpacked();
    let dirs = ["usr/sbin", "usr/bin"];
    let path = dirs.iter().find_map(|dir| with_version(&root.join(dir), name))?;
    Some(Tool { path, libraries: Some(libraries(&root)) })
}

/// A program by its name; without it, the test is skipped.
pub fn need(name: &str) -> Option<Tool> {
    let found = find(name);
    if found.is_none() {
        skip(&format!("there is no {name}"));
    }
    found
}

/// A file in this directory of the system (`usr/lib/…`), installed or unpacked, whose name begins
/// like this: a plugin of another program.
pub fn file(dir: &str, start: &str) -> Option<PathBuf> {
    let roots = [PathBuf::from("/"), unpacked()];
    roots.iter().find_map(|root| beginning(&root.join(dir), start).into_iter().next())
}

/// A program in Java by its jars, which `cargo xtask peers` gets: java itself, and the class path. Without them the
/// test is skipped.
pub fn need_jars(name: &str) -> Option<(Tool, String)> {
    let java = need("java")?;
    let dir = unpacked().with_file_name("jars").join(name);
    if std::fs::read_dir(&dir).map_or(0, Iterator::count) == 0 {
        skip(&format!("there are no jars of {name}"));
        return None;
    }
    Some((java, format!("{}/*", dir.display())))
}

fn with_version(dir: &Path, name: &str) -> Option<PathBuf> {
    let exact = dir.join(name);
    if exact.is_file() {
        return Some(exact);
    }
    beginning(dir, name).into_iter().find(|path| {
        let file = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        file[name.len()..].chars().all(|c| c.is_ascii_digit() || c == '.')
    })
}

fn beginning(dir: &Path, start: &str) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    let mut found: Vec<PathBuf> = entries
        .filter(|e| e.file_name().to_string_lossy().starts_with(start))
        .map(|e| e.path())
        .collect();
    found.sort();
    found
}

/// Two folders deep: what finds its libraries by a path of the system's own (PulseAudio) has them there.
fn libraries(root: &Path) -> OsString {
    let folders = |of: &Path| beginning(of, "").into_iter().filter(|p| p.is_dir());
    let mut places = Vec::new();
    for lib in ["usr/lib", "lib"].map(|lib| root.join(lib)) {
        let first: Vec<PathBuf> = folders(&lib).collect();
        let second: Vec<PathBuf> = first.iter().flat_map(|p| folders(p)).collect();
        places.extend(first.into_iter().chain([lib]).chain(second));
    }
    std::env::join_paths(places).unwrap_or_default()
}

impl Tool {
    /// A program that [`file`] has found.
    pub fn at(path: &Path) -> Tool {
        let root = unpacked();
        let libraries = path.starts_with(&root).then(|| libraries(&root));
        Tool { path: path.to_path_buf(), libraries }
    }

    pub fn command(&self) -> Command {
        self.command_of(&self.path)
    }

    /// The same for a copy of it.
    pub fn command_of(&self, path: &Path) -> Command {
        let mut command = Command::new(path);
        if let Some(libraries) = &self.libraries {
            command.env("LD_LIBRARY_PATH", libraries);
        }
        command
    }

    /// A shell's script in which it is `$0`.
    pub fn shell(&self, script: &str) -> Command {
        let mut command = self.command_of(Path::new("/bin/sh"));
        command.arg("-c").arg(script).arg(&self.path);
        command
    }

    /// Runs to its end without input.
    #[track_caller]
    pub fn run(&self, arguments: &[&str]) -> CliOutput {
        self.run_with(arguments, b"")
    }

    /// Runs to its end with this input, which then ends.
    #[track_caller]
    pub fn run_with(&self, arguments: &[&str], input: &[u8]) -> CliOutput {
        let mut command = self.command();
        finish(command.args(arguments), input)
    }

    /// Runs until dropped.
    #[track_caller]
    pub fn start(&self, change: impl FnOnce(&mut Command)) -> Running {
        let mut command = self.command();
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        change(&mut command);
        let child = command.spawn();
        Running(child.unwrap_or_else(|e| panic!("{}: {e}", self.path.display())))
    }
}

/// Runs a command to its end; one that does not come to it fails the test.
#[track_caller]
pub fn finish(command: &mut Command, input: &[u8]) -> CliOutput {
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
    let output = std::thread::scope(|scope| {
        let mut stdin = child.stdin.take().unwrap();
        // It may end without having read all.
        scope.spawn(move || drop(stdin.write_all(input)));
        let (mut out, mut err) = (child.stdout.take().unwrap(), child.stderr.take().unwrap());
        let out = scope.spawn(move || read_all(&mut out));
        let err = scope.spawn(move || read_all(&mut err));
        let start = Instant::now();
        let ended = wait_for(|| matches!(child.try_wait(), Ok(Some(_))), RUN_MAX);
        if !ended {
            let _ = child.kill();
        }
        let status = child.wait().unwrap();
        let (stdout, stderr) = (out.join().unwrap(), err.join().unwrap());
        assert!(ended, "{command:?} runs since {:?}: {stdout:?}", start.elapsed());
        Output { status, stdout, stderr }
    });
    // Also by a link.
    let whole = |path: &Path| path.canonicalize().ok();
    let is_ours = windows::is_asked() && whole(command.get_program().as_ref()) == whole(&binary());
    let text = |bytes: &[u8]| match is_ours {
        true => windows::printed(bytes),
        false => String::from_utf8_lossy(bytes).into_owned(),
    };
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    CliOutput { code: output.status.code().unwrap_or(-1), stdout, stderr }
}

fn read_all(from: &mut impl Read) -> Vec<u8> {
    let mut all = Vec::new();
    let _ = from.read_to_end(&mut all);
    all
}

/// A program that runs until dropped.
pub struct Running(pub Child);

impl Running {
    pub fn pid(&self) -> u32 {
        self.0.id()
    }

    pub fn is_running(&mut self) -> bool {
        matches!(self.0.try_wait(), Ok(None))
    }
}

impl Drop for Running {
    /// Asked first, so that it can end its own children.
    fn drop(&mut self) {
        if self.is_running() {
            crate::signal(self.pid(), crate::Signal::Term);
            if !wait_for(|| !self.is_running(), Duration::from_secs(3)) {
                let _ = self.0.kill();
            }
        }
        let _ = self.0.wait();
    }
}
