//! `cargo xtask release`: the program for whoever installs it, compiled by a profile of what it does most.
//!
//! A build that counts serves `bench/train.py`'s scenarios; what it has counted tells the second build which
//! code is hot, so that this lies together and the rest elsewhere (BENCHMARKS.md has the figures). That
//! takes two builds and some programs. Where one of them is missing the usual release build is made, which
//! is said: the result is at the same place, and does the same.

#[cfg(test)]
mod tests;
mod tools;

use crate::cargo;
use crate::child::watched;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;
use tools::{tools, Tools};

/// The scenarios take half a minute on a machine that does nothing else.
const TRAINING_MAX: Duration = Duration::from_secs(15 * 60);
/// What the training has not seen is compiled as without a profile. LLVM would otherwise inline next to nothing
/// there, and a loop that an untrained site has much of would cost it: 7 % more instructions of SSI and
/// sub_filter, with this 1 or 2.
const UNTRAINED: &str = "-Cllvm-args=-inline-cold-callsite-threshold=225";
const MERGE_MAX: Duration = Duration::from_secs(5 * 60);

/// `--plain` makes the usual release build at once.
pub fn run(root: &Path, words: &[&str]) -> Result<(), String> {
    let plain = match words {
        [] => false,
        ["--plain"] => true,
        [other, ..] => return Err(format!("unknown option of release: {other}")),
    };
    let built = build(root, &cargo::target(root).join("pgo"), &[], plain)?;
    let to = cargo::target(root).join(format!("optimized/weir{}", std::env::consts::EXE_SUFFIX));
    copy(&built, &to)?;
    println!("{}", to.display());
    Ok(())
}

/// Builds the program below `dir`, with more in its environment, and says where it is.
pub fn build(
    root: &Path,
    dir: &Path,
    env: &[(&str, &str)],
    plain: bool,
) -> Result<PathBuf, String> {
    let missing = match (plain, tools(root)) {
        (true, _) => "it was asked for",
        (false, Ok(tools)) => return Profiled { root, dir, env, tools }.build(),
        (false, Err(why)) => &why.clone(),
    };
    println!("without a profile, the usual release build: {missing}");
    let target = dir.join("plain");
    let mut command = cargo::command(root, &["build", "--release", "--package", "weir"]);
    finish(command.env("CARGO_TARGET_DIR", &target).envs(env.iter().copied()))?;
    Ok(target.join("release").join(program()))
}

struct Profiled<'a> {
    root: &'a Path,
    dir: &'a Path,
    env: &'a [(&'a str, &'a str)],
    tools: Tools,
}

impl Profiled<'_> {
    fn build(&self) -> Result<PathBuf, String> {
        let (counts, profile) = (self.dir.join("profiles"), self.dir.join("weir.profdata"));
        println!("building what counts");
        let counting = self.cargo("generate", &[flag("profile-generate", &counts)])?;
        // Counts of a program that was another one would be added to these.
        let _ = fs::remove_dir_all(&counts);
        println!("training");
        self.train(&counting)?;
        let mut merge = self.tools.profdata();
        merge.arg("merge").arg("-o").arg(&profile).arg(&counts);
        watched(&mut merge, MERGE_MAX, |line| println!("{line}"))
            .map_err(|e| format!("llvm-profdata {e}"))?;
        println!("building by the profile");
        // Cargo sees the profile's name alone, and would keep what was built by another of that name.
        let _ = fs::remove_dir_all(self.dir.join("use"));
        self.cargo("use", &[flag("profile-use", &profile), UNTRAINED.into()])
    }

    /// With a target that is named, cargo does not give these flags to what only builds (macros, scripts).
    fn cargo(&self, place: &str, more: &[OsString]) -> Result<PathBuf, String> {
        let host = &self.tools.host;
        let target = self.dir.join(place);
        let args = ["build", "--release", "--package", "weir", "--target", host];
        let mut command = cargo::command(self.root, &args);
        command
            .env("CARGO_TARGET_DIR", &target)
            .env("CARGO_ENCODED_RUSTFLAGS", flags(more))
            .envs(self.env.iter().copied());
        finish(&mut command)?;
        Ok(target.join(host).join("release").join(program()))
    }

    fn train(&self, binary: &Path) -> Result<(), String> {
        let mut command = Command::new("python3");
        command.current_dir(self.root).args(["-B", "bench/train.py", "--binary"]).arg(binary);
        watched(&mut command, TRAINING_MAX, |line| println!("{line}"))
            .map_err(|e| format!("bench/train.py {e}"))
    }
}

fn program() -> String {
    format!("weir{}", std::env::consts::EXE_SUFFIX)
}

fn flag(name: &str, path: &Path) -> OsString {
    let mut flag = OsString::from(format!("-C{name}="));
    flag.push(path);
    flag
}

/// The caller's flags, and more; as cargo takes them where a path may have spaces.
fn flags(more: &[OsString]) -> OsString {
    let mut all = std::env::var_os("CARGO_ENCODED_RUSTFLAGS").unwrap_or_else(|| {
        let plain = std::env::var("RUSTFLAGS").unwrap_or_default();
        plain.split_whitespace().collect::<Vec<_>>().join("\x1f").into()
    });
    for flag in more {
        if !all.is_empty() {
            all.push("\x1f");
        }
        all.push(flag);
    }
    all
}

fn finish(command: &mut Command) -> Result<(), String> {
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(format!("the build ended with {status}")),
        Err(e) => Err(format!("cargo: {e}")),
    }
}

fn copy(from: &Path, to: &Path) -> Result<(), String> {
    let dir = to.parent().unwrap_or(to);
    let done = fs::create_dir_all(dir).and_then(|()| fs::copy(from, to));
    done.map(drop).map_err(|e| format!("{}: {e}", to.display()))
}
