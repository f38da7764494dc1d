//! `cargo xtask windows`: the program for Windows, built on Linux, and the black-box tests against it under wine.
//!
//! What it is built and run with is got where it is not installed (`windows/kit.rs`); what cannot be got is said, with the
//! command that installs it.

mod each;
mod kit;
mod wine;

use crate::report::Tally;
use kit::Kit;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use wine::Wine;

const TARGET: &str = "x86_64-pc-windows-gnu";
/// What Rust's standard library asks of the system, and wine 8 has not: on top of what it has.
const RANDOM: &str = include_str!("windows/random.c");

/// What the tests set a server's events by: its name and the server's number are told. Words with a dash are done to that
/// process.
const EVENTS: &str = include_str!("windows/events.c");

/// Programs that the tests start on any Linux, all of them in one, by their names: found beside the server's.
const TOOLS: &str = include_str!("windows/tools.c");
const TOOL_NAMES: [&str; 6] = ["sh", "cat", "env", "sleep", "true", "yes"];

pub fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    match args {
        ["check"] => prepared(root, kit::BUILDS).and_then(|()| cargo(root, &["check"])),
        [] | ["build"] => program(root).map(|program| println!("built {}", program.display())),
        ["test", "--first"] => test_first(root),
        ["test", rest @ ..] => test(root, rest),
        _ => Err("cargo xtask windows [check|build|test [--first|FILTER…]]".to_owned()),
    }
}

/// Gets what it is built, run and packed with, where that is possible and wanted.
pub fn get(root: &Path, may_install: bool) {
    kit(root).get(may_install);
}

/// Gets what is missing of these parts, where that is possible and wanted, and says what cannot be got.
fn prepared(root: &Path, parts: &[kit::Part]) -> Result<(), String> {
    get(root, crate::apt::may_install());
    kit(root).missing(parts).map_or(Ok(()), Err)
}

/// One of these programs.
pub fn tool(root: &Path, name: &str) -> Command {
    let mut command = Command::new(name);
    command.envs(kit(root).environment());
    command
}

fn kit(root: &Path) -> Kit {
    Kit::of(&place(root))
}

/// Where everything for Windows goes.
fn place(root: &Path) -> PathBuf {
    crate::cargo::target(root).join("windows")
}

/// What of the tools is not there that [`draft`] needs.
pub fn cannot_build(root: &Path) -> Option<String> {
    kit(root).missing(kit::BUILDS)
}

/// What a program is built with that is tested, but not for its speed: without any of it some tests wait for too long. It is
/// built once, mostly.
const DRAFT: [&str; 7] = [
    "build",
    "--config",
    "profile.dev.opt-level=1",
    "--config",
    "profile.dev.debug=false",
    "--config",
    "profile.dev.incremental=false",
];

/// Where it is then.
fn drafted(root: &Path) -> PathBuf {
    place(root).join(TARGET).join("debug/weir.exe")
}

/// Builds such a program, for [`test_some`]. One of before is gone, and not taken for it if it is not done in time.
pub fn draft(root: &Path) -> Command {
    let _ = fs::remove_file(drafted(root));
    command(root, &[&DRAFT[..], &["--quiet"]].concat(), "weir")
}

/// The program, for whoever packs it.
pub fn program(root: &Path) -> Result<PathBuf, String> {
    prepared(root, kit::BUILDS)?;
    build(root)
}

fn cargo(root: &Path, words: &[&str]) -> Result<(), String> {
    match command(root, words, "weir").status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("cargo {} for Windows ended with {status}", words.join(" "))),
        Err(e) => Err(format!("{}: {e}", kit(root).cargo().display())),
    }
}

/// Debian's cargo, for one of our crates.
fn command(root: &Path, words: &[&str], package: &str) -> Command {
    let kit = kit(root);
    let mut command = Command::new(kit.cargo());
    command
        .envs(kit.environment())
        .current_dir(root)
        .args(words)
        .args(["-Zbuild-std=std,panic_abort", "--target", TARGET, "--package", package])
        .env("RUSTC", kit.rustc())
        .env("RUSTC_BOOTSTRAP", "1")
        .env("CARGO_TARGET_DIR", place(root))
        // The compiler that runs this one is another.
        .env_remove("RUSTUP_TOOLCHAIN")
        .env_remove("RUSTDOC")
        .env_remove("CARGO");
    command
}

/// The program, in a folder with what it needs to run.
fn build(root: &Path) -> Result<PathBuf, String> {
    cargo(root, &["build", "--release", "--config", "profile.release.lto=false"])?;
    furnish(
        &kit(root),
        &place(root).join("run"),
        &place(root).join(TARGET).join("release/weir.exe"),
    )
}

/// A folder with that program, and what it needs to run.
fn furnish(kit: &Kit, folder: &Path, built: &Path) -> Result<PathBuf, String> {
    let failed = |e: std::io::Error| format!("{}: {e}", folder.display());
    fs::create_dir_all(folder).map_err(failed)?;
    let program = folder.join("weir.exe");
    fs::copy(built, &program).map_err(|e| format!("{}: {e}", built.display()))?;
    compiled(kit, folder, "random.c", RANDOM, &["-shared", "-o", "bcryptprimitives.dll"])?;
    compiled(kit, folder, "events.c", EVENTS, &["-o", "events.exe"])?;
    compiled(kit, folder, "tools.c", TOOLS, &["-o", "tools.exe"])?;
    for name in TOOL_NAMES {
        let tool = folder.join(name).with_extension("exe");
        fs::copy(folder.join("tools.exe"), &tool).map_err(failed)?;
    }
    Ok(program)
}

/// A small piece in C of what runs the tests.
fn compiled(
    kit: &Kit,
    folder: &Path,
    name: &str,
    text: &str,
    options: &[&str],
) -> Result<(), String> {
    let source = folder.join(name);
    fs::write(&source, text).map_err(|e| format!("{}: {e}", source.display()))?;
    let mut compiler = Command::new("x86_64-w64-mingw32-gcc");
    compiler.envs(kit.environment());
    match compiler.current_dir(folder).args(options).args([name, "-ladvapi32", "-lntdll"]).status()
    {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("x86_64-w64-mingw32-gcc ended with {status}")),
        Err(e) => Err(format!("x86_64-w64-mingw32-gcc: {e}")),
    }
}

/// Which tests are not run, by the beginning of their names, and why.
pub fn left_out(root: &Path) -> Result<Vec<(String, String)>, String> {
    let path = root.join("tests/windows.tsv");
    let text = fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let rows = text.lines().filter(|line| !line.starts_with('#'));
    let row = |line: &str| {
        let (name, why) = line.split_once('\t')?;
        (!why.is_empty()).then(|| (name.to_owned(), why.to_owned()))
    };
    rows.map(|line| row(line).ok_or_else(|| format!("tests/windows.tsv: no reason: {line}")))
        .collect()
}

/// The black-box tests, of which those are to run that it takes.
struct Suite {
    program: PathBuf,
    rows: Vec<(String, String)>,
    /// Of all that were asked for: those that a row leaves out, and the others.
    left_out: Vec<String>,
    names: Vec<String>,
}

impl Suite {
    fn of(root: &Path, folder: &Path, filter: &[&str]) -> Result<Suite, String> {
        // Cargo removes its own as soon as something is built while the tests run.
        let program = folder.join("blackbox");
        let built = each::built(root)?;
        fs::copy(&built, &program).map_err(|e| format!("{}: {e}", built.display()))?;
        let rows = left_out(root)?;
        let names = each::names(&program, filter)?;
        let is_dead = |start: &str| !names.iter().any(|name| name.starts_with(start));
        let dead = rows.iter().find(|row| is_dead(&row.0));
        if let (true, Some((start, _))) = (filter.is_empty(), dead) {
            return Err(format!("tests/windows.tsv: {start} is no test's name"));
        }
        let is_left_out =
            |name: &str| rows.iter().any(|(start, _)| name.starts_with(start.as_str()));
        let (left_out, names) = names.into_iter().partition(|name| is_left_out(name));
        Ok(Suite { program, rows, left_out, names })
    }

    /// Runs them against the program in that folder under wine, by a script that they start it by.
    fn run(&self, root: &Path, folder: &Path, within: Duration) -> Result<Tally, String> {
        let kit = kit(root);
        let wine = Wine { kit: &kit, prefix: place(root).join("prefix") };
        let (weir, events) = (wine.script(folder, "weir")?, wine.script(folder, "events")?);
        wine.begin()?;
        let tally = each::run(self.names.clone(), within, || {
            let mut test = Command::new(&self.program);
            test.current_dir(root.join("tests")).env("WEIR_PEERS", crate::peers::dir(root));
            test.env("WEIR_BIN", &weir).env("WEIR_WINDOWS_EVENTS", &events);
            test
        });
        wine.end()?;
        Ok(tally)
    }

    fn all(&self) -> u64 {
        (self.names.len() + self.left_out.len()) as u64
    }
}

/// The black-box tests against the program under wine.
fn test(root: &Path, filter: &[&str]) -> Result<(), String> {
    prepared(root, kit::TESTS)?;
    crate::peers::get(root, crate::apt::may_install());
    build(root)?;
    let folder = place(root).join("run");
    let suite = Suite::of(root, &folder, filter)?;
    let mut tally = suite.run(root, &folder, Duration::MAX)?;
    for (name, why) in &suite.rows {
        let count = suite.left_out.iter().filter(|n| n.starts_with(name.as_str())).count();
        if count > 0 {
            println!("left out: {name} ({count}): {why}");
        }
    }
    let (all, by_name) = (suite.all(), suite.left_out.len() as u64);
    tally.skipped += by_name;
    let share = tally.passed as f64 * 100.0 / all.max(1) as f64;
    println!("{} ({by_name} by name): {share:.1} % of {all} pass", tally.summary());
    match tally.failed {
        0 => Ok(()),
        _ => Err(String::new()),
    }
}

/// What [`test_some`] lacks.
pub fn cannot_test(root: &Path) -> Option<String> {
    let is_built = drafted(root).exists();
    kit(root)
        .missing(kit::TESTS)
        .or_else(|| (!is_built).then(|| "the program for it is not built".to_owned()))
}

/// The first test of each file that may run, against the program as it is built quickest, within that time.
pub fn test_some(root: &Path, within: Duration) -> Result<Tally, String> {
    let folder = place(root).join("draft");
    furnish(&kit(root), &folder, &drafted(root))?;
    let mut suite = Suite::of(root, &folder, &[])?;
    let all = suite.all();
    suite.names.dedup_by(|name, before| file_of(name) == file_of(before));
    println!(
        "the first test of each file, {} of {all}; all of them: cargo xtask windows test",
        suite.names.len()
    );
    suite.run(root, &folder, within)
}

/// What the test command does of it, alone.
fn test_first(root: &Path) -> Result<(), String> {
    prepared(root, kit::TESTS)?;
    crate::peers::get(root, crate::apt::may_install());
    cargo(root, &DRAFT)?;
    let tally = test_some(root, Duration::MAX)?;
    println!("{}", tally.summary());
    match tally.failed {
        0 => Ok(()),
        _ => Err(String::new()),
    }
}

fn file_of(name: &str) -> Option<&str> {
    name.split_once("::").map(|(file, _)| file)
}
