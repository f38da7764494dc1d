//! Cargo, run as a child.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::Command;

/// The cargo that runs us, in the workspace.
pub fn command(root: &Path, args: &[&str]) -> Command {
    let program = std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo"));
    let mut command = Command::new(program);
    command.current_dir(root).args(args);
    command
}

/// Where everything that is made goes.
pub fn target(root: &Path) -> PathBuf {
    let target = std::env::var_os("CARGO_TARGET_DIR");
    root.join(target.map_or_else(|| "target".into(), PathBuf::from))
}

/// Where the release binary is, once built.
pub fn release_binary(root: &Path) -> PathBuf {
    binary(root, "release")
}

pub fn debug_binary(root: &Path) -> PathBuf {
    binary(root, "debug")
}

fn binary(root: &Path, profile: &str) -> PathBuf {
    target(root).join(profile).join(format!("weir{}", std::env::consts::EXE_SUFFIX))
}

/// Whether `cargo NAME` exists here.
pub fn has(root: &Path, name: &str) -> bool {
    command(root, &[name, "--version"]).output().is_ok_and(|o| o.status.success())
}

/// Runs cargo to its end.
pub fn run(root: &Path, args: &[&str]) -> Result<(), String> {
    let status = command(root, args).status().map_err(|e| format!("cargo: {e}"))?;
    match status.success() {
        true => Ok(()),
        false => Err(format!("cargo {} failed", args.join(" "))),
    }
}

pub fn fuzz(root: &Path, seconds: &str) -> Result<(), String> {
    run(root, &["run", "--quiet", "--release", "--package", "weir-fuzz", "--", seconds])
}
