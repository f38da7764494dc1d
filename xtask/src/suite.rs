//! `cargo xtask test`: the one test command.
//!
//! Every step is timed and has a limit, so that a server that hangs fails the run instead of
//! holding it. The last line is the sum: cargo's own counts, and one for each other check.

use crate::child::{quiet, watched};
use crate::report::{is_skip_line, result_line, Tally};
use crate::{cargo, docs, instructions, peers, tidy, windows};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// For each target.
const FUZZ_SECONDS: &str = "5";
/// One that hangs is not waited for. With all that was built kept, all steps together stay below 45 minutes.
const STEP_MAX: Duration = Duration::from_secs(22 * 60);
const FUZZ_MAX: Duration = Duration::from_secs(8 * 60);
/// The first time, which compiles the standard library too, takes 29 minutes of one processor, and two other builds are
/// beside it; what there is by then is kept.
const WINDOWS_MAX: Duration = Duration::from_secs(40 * 60);
const WINE_MAX: Duration = Duration::from_secs(8 * 60);

type Step = (&'static str, fn(&Path) -> Tally);

/// One after the other; what stands in one row goes at once: the link of the release build takes one processor.
const STEPS: &[&[Step]] = &[
    &[("tidy", |root| outcome(tidy::run(root)))],
    &[("cargo fmt", format)],
    &[("release build", build), ("cargo clippy", lint), ("windows build", build_windows)],
    &[("cargo test", tests)],
    &[("windows", test_windows)],
    &[("fuzz", fuzz)],
    // One after the other: what a server does by the clock counts for more where it is slower.
    &[("instructions", instructions::check)],
    &[("shared lines", instructions::check_shared)],
    &[("directive index", |root| outcome(docs::check(root)))],
];

/// `may_install`: what is missing may be got from the distribution.
pub fn run(root: &Path, may_install: bool) -> Result<(), String> {
    let start = Instant::now();
    needs_c_compiler(may_install)?;
    println!("== real peers");
    peers::get(root, may_install);
    windows::get(root, may_install);
    let mut all = Tally::default();
    let mut table = format!("{:16} {:7.1} s\n", "real peers", start.elapsed().as_secs_f64());
    for row in STEPS {
        let names: Vec<&str> = row.iter().map(|(name, _)| *name).collect();
        println!("\n== {}", names.join(", "));
        let mut is_built = true;
        for (name, tally, secs) in at_once(root, row) {
            table.push_str(&format!("{name:16} {secs:7.1} s   {}\n", tally.summary()));
            is_built &= name != "release build" || tally.failed == 0;
            all += tally;
        }
        if !is_built {
            break;
        }
    }
    println!("\n{table}{:16} {:7.1} s", "all", start.elapsed().as_secs_f64());
    println!("\n{}", all.summary());
    match all.failed {
        0 => Ok(()),
        _ => Err(String::new()),
    }
}

/// What came of each step, and how many seconds it took.
fn at_once(root: &Path, row: &[Step]) -> Vec<(&'static str, Tally, f64)> {
    let timed = |step: fn(&Path) -> Tally| {
        let start = Instant::now();
        (step(root), start.elapsed().as_secs_f64())
    };
    std::thread::scope(|scope| {
        let steps: Vec<_> = row.iter().map(|&(_, step)| scope.spawn(move || timed(step))).collect();
        let ended = row.iter().zip(steps).map(|(&(name, _), step)| {
            let (tally, secs) = step.join().unwrap_or((Tally::FAILED, 0.0));
            (name, tally, secs)
        });
        ended.collect()
    })
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
fn needs_c_compiler(may_install: bool) -> Result<(), String> {
    let compiler = std::env::var("CC").unwrap_or_else(|_| "cc".to_owned());
    let program = compiler.split_whitespace().next().unwrap_or("cc").to_owned();
    let works = || quiet(Command::new(&program).arg("--version"));
    if works() {
        return Ok(());
    }
    if may_install {
        println!("there is no C compiler ({program}); trying to install one");
        let _ = quiet(Command::new("apt-get").arg("update"));
        let _ = quiet(Command::new("apt-get").args(["install", "-y", "gcc", "libc6-dev"]));
    }
    match works() {
        true => Ok(()),
        false => Err(format!("the build needs a C compiler; `{program}` does not run")),
    }
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
    command.env("WEIR_BIN", cargo::release_binary(root)).env("WEIR_PEERS", peers::dir(root));
    let (mut tally, mut skipped) = (Tally::default(), 0);
    let ended = watched(&mut command, STEP_MAX, |line| {
        println!("{line}");
        tally += result_line(line).unwrap_or_default();
        skipped += u64::from(is_skip_line(line));
    });
    // To cargo a test that found nothing to talk to has passed.
    tally.passed = tally.passed.saturating_sub(skipped);
    tally.skipped += skipped;
    if let (Err(text), 0) = (ended, tally.failed) {
        tally += outcome(Err(text));
    }
    tally
}

/// Whether all of it is compiled for Windows, where a library for it can be built.
fn build_windows(root: &Path) -> Tally {
    if let Some(text) = windows::cannot_build(root) {
        return skip(&format!("windows: {text}"));
    }
    match watched(&mut windows::draft(root), WINDOWS_MAX, |line| println!("{line}")) {
        Err(text) if text.starts_with("not done") => skip(&format!("windows: {text}")),
        done => outcome(done),
    }
}

/// Some of the tests, with wine: all of them take too long for this.
fn test_windows(root: &Path) -> Tally {
    match windows::cannot_test(root) {
        Some(text) => skip(&format!("wine: {text}")),
        None => windows::test_some(root, WINE_MAX).unwrap_or_else(|text| outcome(Err(text))),
    }
}

/// The debug build: slower, and it checks every overflow.
fn fuzz(root: &Path) -> Tally {
    let args = ["run", "--quiet", "--package", "weir-fuzz", "--", FUZZ_SECONDS];
    let mut command = cargo::command(root, &args);
    // The same rounds each time, as far as the time goes; `cargo xtask fuzz` looks elsewhere.
    if std::env::var_os("WEIR_FUZZ_SEED").is_none() {
        command.env("WEIR_FUZZ_SEED", "1");
    }
    let mut tally = Tally::default();
    let ended = watched(&mut command, FUZZ_MAX, |line| {
        println!("{line}");
        tally.passed += u64::from(line.ends_with(": ok"));
    });
    if let Err(text) = ended {
        tally += outcome(Err(text));
    }
    tally
}
