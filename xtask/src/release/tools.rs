//! What a build by a profile needs besides cargo, and where it is.

use crate::child::quiet;
use crate::peers;
use std::path::{Path, PathBuf};
use std::process::Command;

pub struct Tools {
    /// The target that is built for: the machine's own, because the program is run in between.
    pub host: String,
    profdata: PathBuf,
    libraries: std::ffi::OsString,
}

impl Tools {
    pub fn profdata(&self) -> Command {
        let mut command = Command::new(&self.profdata);
        // One that was unpacked and not installed has its libraries beside it.
        command.env("LD_LIBRARY_PATH", &self.libraries);
        command
    }
}

/// All of them, or what is missing and how to get it.
pub fn tools(root: &Path) -> Result<Tools, String> {
    let compiler = Compiler::ask(root)?;
    let runtime = "libprofiler_builtins";
    if !beginning(&compiler.libraries, runtime) {
        return Err(format!("this rustc comes without its profiler runtime ({runtime})"));
    }
    for (program, flag) in [("python3", "--version"), ("openssl", "version")] {
        if !quiet(Command::new(program).arg(flag)) {
            return Err(format!("{program} is not installed, which the training load needs"));
        }
    }
    profdata(&peers::dir(root), compiler)
}

pub struct Compiler {
    pub host: String,
    /// The major version of its LLVM, whose profiles no other reads for certain.
    pub llvm: String,
    pub libraries: PathBuf,
}

impl Compiler {
    fn ask(root: &Path) -> Result<Compiler, String> {
        let said = rustc(root, &["-vV"])?;
        let value = |name: &str| field(&said, name).ok_or(format!("rustc -vV has no `{name}`"));
        Ok(Compiler {
            host: value("host: ")?,
            llvm: major(&value("LLVM version: ")?),
            libraries: rustc(root, &["--print", "target-libdir"])?.trim().into(),
        })
    }
}

fn rustc(root: &Path, args: &[&str]) -> Result<String, String> {
    let program = std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into());
    let out = Command::new(program).current_dir(root).args(args).output();
    let out = out.map_err(|e| format!("rustc: {e}"))?;
    Ok(String::from_utf8_lossy(&out.stdout).into_owned())
}

/// rustup's component `llvm-tools` puts it beside the compiler's libraries; distributions call it by its version.
pub fn profdata(peers: &Path, compiler: Compiler) -> Result<Tools, String> {
    let Compiler { host, llvm, libraries } = compiler;
    let names = [
        libraries.with_file_name("bin").join("llvm-profdata"),
        format!("llvm-profdata-{llvm}").into(),
        "llvm-profdata".into(),
        peers.join(format!("usr/lib/llvm-{llvm}/bin/llvm-profdata")),
    ];
    let mut others = Vec::new();
    for name in names {
        let tools =
            Tools { host: host.clone(), profdata: name, libraries: peers::libraries(peers) };
        match tools.profdata().arg("--version").output().map(|out| version(&out.stdout)) {
            Ok(Some(found)) if found == llvm => return Ok(tools),
            Ok(Some(found)) => others.push(format!("{} is of {found}", tools.profdata.display())),
            Ok(None) | Err(_) => {}
        }
    }
    let others =
        if others.is_empty() { String::new() } else { format!(" ({})", others.join(", ")) };
    Err(format!(
        "there is no llvm-profdata of LLVM {llvm}, which this rustc is built with{others}; \
         `rustup component add llvm-tools` brings it, or the distribution's package llvm-{llvm}"
    ))
}

fn field(said: &str, name: &str) -> Option<String> {
    said.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned)
}

fn major(version: &str) -> String {
    version.split('.').next().unwrap_or_default().to_owned()
}

/// Of `LLVM version 22.1.8`, whatever the vendor writes before it.
fn version(said: &[u8]) -> Option<String> {
    let said = String::from_utf8_lossy(said);
    let (_, rest) = said.split_once("LLVM version ")?;
    rest.split_whitespace().next().map(major)
}

fn beginning(dir: &Path, start: &str) -> bool {
    let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
    entries.into_iter().any(|e| e.file_name().to_string_lossy().starts_with(start))
}
