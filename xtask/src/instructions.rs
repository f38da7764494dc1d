//! The instructions that a request costs and the lines of code that it touches, counted and compared with those of the commit before.

use crate::child::watched;
use crate::report::{is_skip_line, Tally};
use crate::{cargo, peers};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const COUNT_MAX: Duration = Duration::from_secs(10 * 60);

/// `bench/instructions.py` against the figures that are kept beside it.
pub fn check(root: &Path) -> Tally {
    let unpacked = peers::dir(root);
    let mut command = Command::new("python3");
    command
        .current_dir(root)
        .args(["-B", "bench/instructions.py", "--check", "bench/instructions.tsv", "--binary"])
        .arg(cargo::release_binary(root))
        .env("PATH", peers::path(&unpacked));
    let library = unpacked.join("usr/libexec/valgrind");
    if library.exists() {
        command.env("VALGRIND_LIB", library);
    }
    if !crate::child::quiet(Command::new("python3").arg("--version")) {
        println!("skipped: python3 is not installed");
        return Tally::SKIPPED;
    }
    let mut skipped = false;
    let ended = watched(&mut command, COUNT_MAX, |line| {
        println!("{line}");
        skipped |= is_skip_line(line);
    });
    match ended {
        Ok(()) if skipped => Tally::SKIPPED,
        Ok(()) => Tally::PASSED,
        Err(text) => {
            println!("bench/instructions.py {text}");
            Tally::FAILED
        }
    }
}
