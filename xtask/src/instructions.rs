//! What a request costs, counted under valgrind: instructions and lines of code, compared with those of the commit
//! before; and memory that workers take from each other.

use crate::child::watched;
use crate::report::{is_skip_line, Tally};
use crate::{cargo, peers};
use std::path::Path;
use std::process::Command;
use std::time::Duration;

const COUNT_MAX: Duration = Duration::from_secs(10 * 60);

/// `bench/instructions.py` against the figures that are kept beside it.
pub fn check(root: &Path) -> Tally {
    script(root, &["bench/instructions.py", "--check", "bench/instructions.tsv"])
}

/// `bench/shared.py` against what it says must not be shared.
pub fn check_shared(root: &Path) -> Tally {
    script(root, &["bench/shared.py", "--check"])
}

fn script(root: &Path, args: &[&str]) -> Tally {
    let unpacked = peers::dir(root);
    let mut command = Command::new("python3");
    command
        .current_dir(root)
        .arg("-B")
        .args(args)
        .arg("--binary")
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
            println!("{} {text}", args.join(" "));
            Tally::FAILED
        }
    }
}
