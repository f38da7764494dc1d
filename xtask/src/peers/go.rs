//! The OpenTelemetry collector, for which there is no package: built by Go of its modules, in the versions that `otelcol/go.sum` names.

use super::program;
use crate::child::{quiet, watched};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

/// Several hundred modules, of which most are small.
const BUILD_MAX: Duration = Duration::from_secs(600);
const NAME: &str = "otelcol";

/// Gets it, if it is missing; nothing here fails a run.
pub fn get(root: &Path, dir: &Path, may_install: bool) {
    if program(dir, NAME, "--version") {
        return;
    }
    match () {
        () if !may_install => println!("{NAME} is missing: not built"),
        () if !quiet(Command::new("go").arg("version")) => println!("{NAME}: there is no go"),
        () => {
            if let Err(text) = build(root, dir) {
                println!("{NAME}: {text}");
            }
        }
    }
}

fn build(root: &Path, dir: &Path) -> Result<(), String> {
    let to = dir.join("usr/bin");
    fs::create_dir_all(&to).map_err(|e| format!("{}: {e}", to.display()))?;
    println!("building {NAME} into {}", to.display());
    let mut command = Command::new("go");
    command.args(["build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o"]);
    command.arg(to.join(NAME)).arg(".").current_dir(root.join("xtask").join(NAME));
    command.stdin(Stdio::null()).stderr(Stdio::null());
    let mut last = String::new();
    watched(&mut command, BUILD_MAX, |line| last = line.to_owned())
        .map_err(|e| format!("go build: {e}: {last}"))
}
