//! Tests, each in a process of its own and with a limit: one that hangs costs that time, and holds no other.

use crate::child::watched;
use crate::report::{is_skip_line, Tally};
use std::collections::VecDeque;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// A start by wine takes about a second, and some tests have a dozen.
const TEST_MAX: Duration = Duration::from_secs(90);
/// Most of the time a test waits for something.
const AT_ONCE: usize = 2;

/// The executable of the black-box tests, built.
pub fn built(root: &Path) -> Result<PathBuf, String> {
    let words = ["test", "--package", "weir-tests", "--test", "blackbox", "--no-run"];
    let mut command = crate::cargo::command(root, &words);
    command.args(["--message-format", "json-render-diagnostics"]).stderr(Stdio::inherit());
    let out = command.output().map_err(|e| format!("cargo: {e}"))?;
    let said = String::from_utf8_lossy(&out.stdout);
    let names = said.lines().filter_map(|line| line.split_once("\"executable\":\""));
    let found = names.filter_map(|(_, rest)| rest.split_once('"')).next_back();
    match (out.status.success(), found) {
        (true, Some((path, _))) => Ok(path.into()),
        (true, None) => Err("cargo names no executable of the tests".to_owned()),
        (false, _) => Err("the tests do not build".to_owned()),
    }
}

/// The names of its tests that have one of these words; all where there are none.
pub fn names(program: &Path, words: &[&str]) -> Result<Vec<String>, String> {
    let out = Command::new(program).args(["--list", "--format", "terse"]).output();
    let out = out.map_err(|e| format!("{}: {e}", program.display()))?;
    let said = String::from_utf8_lossy(&out.stdout);
    let names = said.lines().filter_map(|line| line.strip_suffix(": test"));
    let is_asked = |name: &&str| words.is_empty() || words.iter().any(|word| name.contains(word));
    Ok(names.filter(is_asked).map(str::to_owned).collect())
}

/// Runs them all, a few at a time, and those that fail once more alone: under wine a busy machine is slow for tests that
/// wait for seconds. `prepare` has what each is started with. What one that failed has said is shown. Those that have not
/// begun `within` that time are not run, and said.
pub fn run(names: Vec<String>, within: Duration, prepare: impl Fn() -> Command + Sync) -> Tally {
    let begun = Instant::now();
    let (mut tally, failed) = pass(names, AT_ONCE, &|| begun.elapsed() < within, &prepare);
    if failed.is_empty() {
        return tally;
    }
    println!("{} have failed and are asked once more, one at a time", failed.len());
    tally.failed = 0;
    let (again, failed) = pass(failed, 1, &|| true, &prepare);
    tally += again;
    failed.iter().for_each(|name| println!("failed: {name}"));
    tally
}

/// One turn: what is counted, and who has failed.
fn pass(
    names: Vec<String>,
    at_once: usize,
    is_time: &(impl Fn() -> bool + Sync),
    prepare: &(impl Fn() -> Command + Sync),
) -> (Tally, Vec<String>) {
    let all = names.len();
    let left = Mutex::new(VecDeque::from(names));
    let done = Mutex::new((Tally::default(), Vec::new()));
    let next = || left.lock().ok().filter(|_| is_time()).and_then(|mut left| left.pop_front());
    std::thread::scope(|scope| {
        for _ in 0..at_once {
            scope.spawn(|| {
                while let Some(name) = next() {
                    let (tally, said) = one(&name, prepare());
                    let Ok(mut done) = done.lock() else { return };
                    done.0 += tally;
                    let count = done.0.passed + done.0.failed + done.0.skipped;
                    println!("{count}/{all} {name}: {said}");
                    if tally.failed > 0 {
                        done.1.push(name);
                    }
                }
            });
        }
    });
    let (mut tally, failed) = done.into_inner().unwrap_or((Tally::FAILED, Vec::new()));
    let late = left.into_inner().map_or(0, |left| left.len());
    if late > 0 {
        println!("skipped: {late} have not begun in time");
        tally.skipped += late as u64;
    }
    (tally, failed)
}

/// How one test ends, and what is to be said of it.
fn one(name: &str, mut command: Command) -> (Tally, String) {
    command.args([name, "--exact", "--test-threads", "1"]);
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let (mut said, mut skipped) = (String::new(), None);
    let ended = watched(&mut command, TEST_MAX, |line| {
        if is_skip_line(line) {
            skipped = line.find("skipped: ").map(|at| line[at..].to_owned());
        }
        said.push_str(line);
        said.push('\n');
    });
    match (ended, skipped) {
        (Ok(()), None) => (Tally::PASSED, "ok".to_owned()),
        (Ok(()), Some(why)) => (Tally::SKIPPED, why),
        (Err(text), _) => (Tally::FAILED, format!("FAILED, {text}\n{said}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_told_apart() {
        let of = |script: &str| {
            let mut shell = Command::new("sh");
            shell.args(["-c", script]);
            one("a::test", shell)
        };
        assert_eq!(of("echo test a::test ... ok"), (Tally::PASSED, "ok".to_owned()));
        let skipped = of("echo 'test a::test ... skipped: a::test: no curl'");
        assert_eq!(skipped, (Tally::SKIPPED, "skipped: a::test: no curl".to_owned()));
        let (tally, said) = of("echo what is wrong; exit 1");
        assert!(tally == Tally::FAILED && said.contains("what is wrong"), "{said}");
        let (tally, failed) = pass(vec!["a::b".to_owned()], 2, &|| true, &|| Command::new("false"));
        assert_eq!((tally, failed), (Tally::FAILED, vec!["a::b".to_owned()]));
        let late = pass(vec!["a::b".to_owned()], 2, &|| false, &|| Command::new("false"));
        assert_eq!(late, (Tally::SKIPPED, Vec::new()));
    }
}
