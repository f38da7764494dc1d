//! Real programs to talk to, where they are installed.

use crate::{signal, wait_for, Signal, PATIENCE};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// A program whose name begins so, from `PATH` or `/usr/sbin`. Without one the test is skipped,
/// which a line says.
pub fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let dirs = std::env::split_paths(&path).chain([PathBuf::from("/usr/sbin")]);
    for dir in dirs {
        let exact = dir.join(name);
        if exact.is_file() {
            return Some(exact);
        }
        // Some are installed with their version behind the name.
        let numbered = |file: &str| {
            let rest = file.strip_prefix(name).unwrap_or_default();
            !rest.is_empty() && rest.bytes().all(|b| b.is_ascii_digit() || b == b'.')
        };
        let found = std::fs::read_dir(&dir).into_iter().flatten().flatten();
        if let Some(entry) =
            found.into_iter().find(|e| e.file_name().to_str().is_some_and(numbered))
        {
            return Some(entry.path());
        }
    }
    println!("skipped: no {name} is installed");
    None
}

/// A program that runs until dropped.
pub struct Running(Child);

impl Running {
    pub fn start(command: &mut Command) -> Running {
        Running(
            command
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .unwrap(),
        )
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // Politely, so that its own children end too.
        signal(self.0.id(), Signal::Term);
        if !wait_for(|| matches!(self.0.try_wait(), Ok(Some(_))), PATIENCE) {
            let _ = self.0.kill();
            let _ = self.0.wait();
        }
    }
}
