//! What there is no package of: built by Go of its modules, in the versions that `go.sum` of a folder beside names.

use super::program;
use crate::child::{quiet, watched};
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

struct Built {
    /// Of the program, and of the folder.
    name: &'static str,
    package: &'static str,
    /// What is not done by then goes on from there the next time: Go keeps what it has compiled.
    most: Duration,
}

const BUILT: [Built; 2] = [
    // Several hundred modules, of which most are small.
    Built { name: "otelcol", package: ".", most: Duration::from_secs(600) },
    // A thousand packages, clients of every cloud among them. Nothing of it is in here but its name: it is run, and never
    // linked or given away.
    Built {
        name: "loki",
        package: "github.com/grafana/loki/v3/cmd/loki",
        most: Duration::from_secs(120),
    },
];

/// Gets what is missing; nothing here fails a run.
pub fn get(root: &Path, dir: &Path, may_install: bool) {
    for built in BUILT.iter().filter(|built| !program(dir, built.name, "--version")) {
        let name = built.name;
        match () {
            () if !may_install => println!("{name} is missing: not built"),
            () if !quiet(Command::new("go").arg("version")) => println!("{name}: there is no go"),
            () => {
                if let Err(text) = built.build(root, dir) {
                    println!("{name}: {text}");
                }
            }
        }
    }
}

impl Built {
    fn build(&self, root: &Path, dir: &Path) -> Result<(), String> {
        let to = dir.join("usr/bin");
        fs::create_dir_all(&to).map_err(|e| format!("{}: {e}", to.display()))?;
        println!("building {} into {}", self.name, to.display());
        let mut command = Command::new("go");
        command.args(["build", "-mod=readonly", "-trimpath", "-ldflags=-s -w", "-o"]);
        command.arg(to.join(self.name)).arg(self.package);
        command.current_dir(root.join("xtask").join(self.name));
        command.stdin(Stdio::null()).stderr(Stdio::null());
        let mut last = String::new();
        watched(&mut command, self.most, |line| last = line.to_owned())
            .map_err(|e| format!("go build: {e}: {last}"))
    }
}
