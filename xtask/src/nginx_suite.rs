//! `cargo xtask suite CHECKOUT`: nginx's own test suite against the release binary.
//!
//! The suite (the repository nginx-tests) is not part of this project; whoever has a checkout of it can
//! see that no file passes fewer assertions than `tests/nginx-suite.tsv` says; with
//! `--write` the file is written. It needs Perl with the packages that the suite names.

use crate::cargo;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::Mutex;
use std::time::{Duration, Instant};

const LIST: &str = "tests/nginx-suite.tsv";
const HEAD: &str =
    "# Assertions of nginx's test suite that pass: cargo xtask suite CHECKOUT --write\n";
const FILE_MAX: Duration = Duration::from_secs(90);
const POLL: Duration = Duration::from_millis(20);
const AT_ONCE: usize = 2;

pub fn run(root: &Path, checkout: &Path, write: bool) -> Result<(), String> {
    let checkout =
        fs::canonicalize(checkout).map_err(|e| format!("{}: {e}", checkout.display()))?;
    if !checkout.join("lib/Test/Nginx.pm").exists() {
        return Err(format!("{} is no checkout of nginx-tests", checkout.display()));
    }
    cargo::run(root, &["build", "--release", "--package", "weir"])?;
    let list = root.join(LIST);
    let expected = parse(&fs::read_to_string(&list).unwrap_or_default());
    if expected.is_empty() && !write {
        return Err(format!("{LIST} is not there; with --write it is made of what passes now"));
    }
    let passed = run_all(&checkout, &cargo::release_binary(root))?;
    let sum = |counts: &BTreeMap<String, usize>| counts.values().sum::<usize>();
    println!("{} assertions pass, {} are expected", sum(&passed), sum(&expected));
    if write {
        return fs::write(&list, text(&passed)).map_err(|e| format!("{}: {e}", list.display()));
    }
    compare(&expected, &passed)
}

/// What passes less than it did.
fn compare(
    expected: &BTreeMap<String, usize>,
    passed: &BTreeMap<String, usize>,
) -> Result<(), String> {
    let mut worse = Vec::new();
    for (name, before) in expected {
        match passed.get(name).copied().unwrap_or_default() {
            now if now < *before => worse.push(format!("{name}: {now} pass, {before} did")),
            _ => {}
        }
    }
    match worse.is_empty() {
        true => Ok(()),
        false => Err(worse.join("\n")),
    }
}

fn parse(text: &str) -> BTreeMap<String, usize> {
    let rows = text.lines().filter_map(|line| line.split_once('\t'));
    rows.filter_map(|(name, n)| Some((name.to_owned(), n.parse().ok()?))).collect()
}

fn text(passed: &BTreeMap<String, usize>) -> String {
    let rows = passed.iter().filter(|(_, n)| **n > 0);
    rows.fold(HEAD.to_owned(), |all, (name, n)| all + &format!("{name}\t{n}\n"))
}

fn run_all(checkout: &Path, binary: &Path) -> Result<BTreeMap<String, usize>, String> {
    let entries = fs::read_dir(checkout).map_err(|e| e.to_string())?;
    let names = entries.flatten().map(|e| e.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|n| n.ends_with(".t")).collect();
    names.sort();
    let (next, passed) = (AtomicUsize::new(0), Mutex::new(BTreeMap::new()));
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let count = count_passed(&run_file(checkout, binary, name));
                    if let Ok(mut all) = passed.lock() {
                        all.insert(name.clone(), count);
                    }
                }
            });
        }
    });
    passed.into_inner().map_err(|_| "a thread of the run panicked".to_owned())
}

/// What one file of the suite prints.
fn run_file(checkout: &Path, binary: &Path, name: &str) -> String {
    let dir = std::env::temp_dir().join(format!("weir-suite-{}-{name}", std::process::id()));
    let _ = fs::create_dir_all(&dir);
    let out = dir.join("out");
    let mut command = Command::new("perl");
    command.args(["-I", "lib", name]).current_dir(checkout).env("TEST_NGINX_BINARY", binary);
    command.env("PERL5LIB", checkout.join("lib")).env("TMPDIR", &dir).stdin(Stdio::null());
    if is_root() {
        command.env("TEST_NGINX_GLOBALS", "user root;");
    }
    let printed = fs::File::create(&out).and_then(|file| {
        let mut child = command.stderr(Stdio::null()).stdout(file).spawn()?;
        wait(&mut child, &dir);
        fs::read(&out)
    });
    let _ = fs::remove_dir_all(&dir);
    String::from_utf8_lossy(&printed.unwrap_or_default()).into_owned()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").is_ok_and(|m| std::os::unix::fs::MetadataExt::uid(&m) == 0)
}

/// Waits for a file's end, and ends what it left running when it takes too long.
fn wait(child: &mut Child, dir: &Path) {
    let end = Instant::now() + FILE_MAX;
    while matches!(child.try_wait(), Ok(None)) && Instant::now() < end {
        std::thread::sleep(POLL);
    }
    let _ = child.kill();
    let _ = child.wait();
    for pid in pids(dir) {
        let _ = crate::child::quiet(Command::new("kill").args(["-KILL", &pid]));
    }
}

/// The servers whose pid files are still there.
fn pids(dir: &Path) -> Vec<String> {
    let dirs = fs::read_dir(dir).into_iter().flatten().flatten().map(|e| e.path());
    let files = dirs.map(|d: PathBuf| d.join("nginx.pid"));
    files.filter_map(|f| Some(fs::read_to_string(f).ok()?.trim().to_owned())).collect()
}

/// Assertions that hold: those still to be done and those skipped do not count.
fn count_passed(output: &str) -> usize {
    let holds = |line: &&str| line.starts_with("ok ") && !line.to_lowercase().contains("# skip");
    output.lines().filter(holds).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_and_compares() {
        assert_eq!(count_passed("1..3\nok 1 - a\nnot ok 2 - b\nok 3 # skip no c\n"), 1);
        let list = parse("# head\na.t\t3\nb.t\t1\n");
        assert_eq!(text(&list), format!("{HEAD}a.t\t3\nb.t\t1\n"));
        assert!(compare(&list, &list).is_ok());
        let fewer = parse("a.t\t2\nb.t\t2\n");
        assert_eq!(compare(&list, &fewer), Err("a.t: 2 pass, 3 did".to_owned()));
    }
}
