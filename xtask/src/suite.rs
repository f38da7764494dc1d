//! `cargo xtask test`: the one test command.
//!
//! Every step is timed and has a limit, so that a server that hangs fails the run instead of
//! holding it. The last line is the sum: cargo's own counts, and one for each other check.

use crate::report::{result_line, Tally};
use crate::{cargo, docs, tidy};
use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// For each target.
const FUZZ_SECONDS: &str = "5";
/// All steps together stay below half an hour.
const STEP_MAX: Duration = Duration::from_secs(15 * 60);
const FUZZ_MAX: Duration = Duration::from_secs(3 * 60);

type Step = (&'static str, fn(&Path) -> Tally);

const STEPS: &[Step] = &[
    ("tidy", |root| outcome(tidy::run(root))),
    ("release build", build),
    ("cargo fmt", format),
    ("cargo clippy", lint),
    ("cargo test", tests),
    ("fuzz", fuzz),
    ("directive index", |root| outcome(docs::check(root))),
];

pub fn run(root: &Path) -> Result<(), String> {
    needs_c_compiler()?;
    let mut all = Tally::default();
    let mut table = String::new();
    for (name, step) in STEPS {
        println!("\n== {name}");
        let start = Instant::now();
        let tally = step(root);
        let secs = start.elapsed().as_secs_f64();
        table.push_str(&format!("{name:16} {secs:7.1} s   {}\n", tally.summary()));
        all += tally;
        if *name == "release build" && tally.failed > 0 {
            break;
        }
    }
    println!("\n{table}\n{}", all.summary());
    match all.failed {
        0 => Ok(()),
        _ => Err(String::new()),
    }
}

fn outcome(done: Result<(), String>) -> Tally {
    match done {
        Ok(()) => Tally::PASSED,
        Err(text) => {
            println!("{}", text.trim_end());
            Tally::FAILED
        }
    }
}

fn skip(why: &str) -> Tally {
    println!("skipped: {why}");
    Tally::SKIPPED
}

/// Allocator and regular expressions are C, built from source that their crates carry.
fn needs_c_compiler() -> Result<(), String> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let program = compiler.split_whitespace().next().unwrap_or("cc").to_owned();
    let works = || quiet(Command::new(&program).arg("--version"));
    if works() {
        return Ok(());
    }
    println!("there is no C compiler ({program}); trying to install one");
    let _ = quiet(Command::new("apt-get").arg("update"));
    let _ = quiet(Command::new("apt-get").args(["install", "-y", "gcc", "libc6-dev"]));
    match works() {
        true => Ok(()),
        false => Err(format!("the build needs a C compiler; `{program}` does not run")),
    }
}

fn quiet(command: &mut Command) -> bool {
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|s| s.success())
}

fn build(root: &Path) -> Tally {
    // A success is no test; a failure must be seen.
    match cargo::run(root, &["build", "--release", "--package", "weir"]) {
        Ok(()) => Tally::default(),
        Err(e) => outcome(Err(e)),
    }
}

fn format(root: &Path) -> Tally {
    if !cargo::has(root, "fmt") {
        return skip("rustfmt is not installed (rustup component add rustfmt)");
    }
    let out = cargo::command(root, &["fmt", "--all", "--check", "--", "-l"]).output();
    let out = match out {
        Ok(out) if out.status.success() => return Tally::PASSED,
        Ok(out) => out,
        Err(e) => return outcome(Err(format!("cargo fmt: {e}"))),
    };
    let files = String::from_utf8_lossy(&out.stdout);
    let errors = String::from_utf8_lossy(&out.stderr);
    outcome(Err(format!("not as `cargo fmt` writes it:\n{files}{errors}")))
}

fn lint(root: &Path) -> Tally {
    if !cargo::has(root, "clippy") {
        return skip("clippy is not installed (rustup component add clippy)");
    }
    let args = ["clippy", "--quiet", "--workspace", "--all-targets", "--", "-D", "warnings"];
    outcome(cargo::run(root, &args))
}

fn tests(root: &Path) -> Tally {
    let mut command = cargo::command(root, &["test", "--workspace", "--no-fail-fast"]);
    command.env("WEIR_BIN", cargo::release_binary(root));
    let (mut tally, ended) = watched(&mut command, STEP_MAX, result_line);
    if let (Err(text), 0) = (ended, tally.failed) {
        tally += outcome(Err(text));
    }
    tally
}

/// The debug build: slower, and it checks every overflow.
fn fuzz(root: &Path) -> Tally {
    let args = ["run", "--quiet", "--package", "weir-fuzz", "--", FUZZ_SECONDS];
    let passed = |line: &str| line.ends_with(": ok").then_some(Tally::PASSED);
    let (mut tally, ended) = watched(&mut cargo::command(root, &args), FUZZ_MAX, passed);
    if let Err(text) = ended {
        tally += outcome(Err(text));
    }
    tally
}

/// Runs a command within a time, shows what it prints and adds up what `count` sees in it.
fn watched(
    command: &mut Command,
    limit: Duration,
    count: fn(&str) -> Option<Tally>,
) -> (Tally, Result<(), String>) {
    let mut tally = Tally::default();
    let mut child = match command.stdout(Stdio::piped()).spawn() {
        Ok(child) => child,
        Err(e) => return (tally, Err(format!("cannot run: {e}"))),
    };
    let lines = lines_of(&mut child);
    let end = Instant::now() + limit;
    loop {
        match lines.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(line) => {
                println!("{line}");
                tally += count(&line).unwrap_or_default();
            }
            Err(mpsc::RecvTimeoutError::Disconnected) => break,
            Err(mpsc::RecvTimeoutError::Timeout) => {
                kill_tree(&mut child);
                return (tally, Err(format!("not done after {} s", limit.as_secs())));
            }
        }
    }
    match child.wait() {
        Ok(status) if status.success() => (tally, Ok(())),
        Ok(status) => (tally, Err(format!("ended with {status}"))),
        Err(e) => (tally, Err(e.to_string())),
    }
}

fn lines_of(child: &mut Child) -> mpsc::Receiver<String> {
    let (sender, lines) = mpsc::channel();
    if let Some(out) = child.stdout.take() {
        std::thread::spawn(move || {
            for line in BufReader::new(out).split(b'\n').map_while(Result::ok) {
                let line = String::from_utf8_lossy(&line).into_owned();
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
    }
    lines
}

/// Ends a child and what it started, as far as the system tells.
fn kill_tree(child: &mut Child) {
    let mut pids = vec![child.id().to_string()];
    let mut at = 0;
    while let Some(pid) = pids.get(at).cloned() {
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = std::fs::read_to_string(path).unwrap_or_default();
        pids.extend(children.split_whitespace().map(str::to_owned));
        at += 1;
    }
    for pid in &pids[1..] {
        let _ = quiet(Command::new("kill").args(["-KILL", pid]));
    }
    let _ = child.kill();
    let _ = child.wait();
}
