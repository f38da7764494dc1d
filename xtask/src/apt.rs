//! Packages of the distribution, downloaded with their closure by `apt-get` and unpacked: none is installed, so that nothing
//! outside `target` changes and root is not needed.

use crate::child::{quiet, watched};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, SystemTime};

const UPDATE_MAX: Duration = Duration::from_secs(90);
/// The largest, wine's, takes 6 s of one processor.
const UNPACK_MAX: Duration = Duration::from_secs(60);
/// After so long it is tried once more to get what was not to be had, and nothing else is missing.
const AGAIN: Duration = Duration::from_secs(24 * 3600);

/// Whether anything may be downloaded, if the command's words do not say otherwise.
pub fn may_install() -> bool {
    std::env::var_os("WEIR_NO_INSTALL").is_none()
}

/// A folder with lists and archives of its own. What is installed is known from the system.
pub struct Home<'a>(pub &'a Path);

impl Home<'_> {
    /// What is known of packages, as of now.
    pub fn update(&self) -> Result<(), String> {
        for place in ["lists/partial", "archives/partial", "cache"] {
            let path = self.0.join(place);
            fs::create_dir_all(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        }
        run("apt-get update", self.command().arg("update"), UPDATE_MAX)
    }

    /// Downloads them, and what they need that is not installed.
    pub fn fetch(&self, packages: &[&str], limit: Duration) -> Result<(), String> {
        let options = ["install", "--no-install-recommends", "--download-only", "--"];
        run("apt-get", self.command().args(options).args(packages), limit)
    }

    /// What was downloaded.
    pub fn archives(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.0.join("archives")).into_iter().flatten().flatten();
        let is_package = |path: &PathBuf| path.extension().is_some_and(|end| end == "deb");
        entries.map(|entry| entry.path()).filter(is_package).collect()
    }

    /// Unpacks what was downloaded, and lets archives and lists go.
    pub fn unpack(&self, into: &Path) -> Result<(), String> {
        fs::create_dir_all(into).map_err(|e| format!("{}: {e}", into.display()))?;
        for package in self.archives() {
            run("dpkg -x", Command::new("dpkg").arg("-x").arg(&package).arg(into), UNPACK_MAX)?;
            let _ = fs::remove_file(package);
        }
        let _ = fs::remove_dir_all(self.0.join("lists"));
        Ok(())
    }

    /// Why these cannot be got now, or need not be tried to.
    pub fn cannot(&self, names: &str, may_install: bool) -> Option<String> {
        match () {
            () if !may_install => {
                Some("not downloaded: --no-install, or WEIR_NO_INSTALL is set".to_owned())
            }
            () if !quiet(Command::new("apt-get").arg("--version")) => {
                Some("there is no apt-get".to_owned())
            }
            () if self.was_tried(names) => {
                Some(format!("not to be had in the last day ({})", self.stamp().display()))
            }
            () => None,
        }
    }

    /// Keeps in mind that these were not to be had.
    pub fn tried(&self, names: &str) {
        let _ = fs::write(self.stamp(), names);
    }

    fn stamp(&self) -> PathBuf {
        self.0.join("tried")
    }

    fn was_tried(&self, names: &str) -> bool {
        let stamp = self.stamp();
        let modified = fs::metadata(&stamp).and_then(|m| m.modified());
        let age = modified.ok().and_then(|m| SystemTime::now().duration_since(m).ok());
        let same = fs::read_to_string(&stamp).is_ok_and(|tried| tried == names);
        same && age.is_some_and(|age| age < AGAIN)
    }

    fn command(&self) -> Command {
        let mut command = Command::new("apt-get");
        command.stdin(Stdio::null()).env("DEBIAN_FRONTEND", "noninteractive").args(["-q", "-y"]);
        let places =
            [("State::Lists", "lists"), ("Cache", "cache"), ("Cache::archives", "archives")];
        for (what, place) in places {
            command.arg("-o").arg(format!("Dir::{what}={}", self.0.join(place).display()));
        }
        for option in [
            "Debug::NoLocking=1",
            "APT::Sandbox::User=",
            "Acquire::Languages=none",
            "Acquire::http::Timeout=20",
            "Acquire::Retries=1",
        ] {
            command.args(["-o", option]);
        }
        command
    }
}

/// Quietly, unless it goes wrong.
fn run(name: &str, command: &mut Command, limit: Duration) -> Result<(), String> {
    let mut last = String::new();
    watched(command.stderr(Stdio::null()), limit, |line| last = line.to_owned())
        .map_err(|e| format!("{name}: {e}: {last}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_not_to_be_had_is_not_tried_at_once() {
        let place = std::env::temp_dir().join(format!("weir-xtask-apt-{}", std::process::id()));
        fs::create_dir_all(&place).unwrap();
        let home = Home(&place);
        assert!(home.cannot("a b", false).is_some_and(|why| why.contains("--no-install")));
        assert!(!home.was_tried("a b"));
        home.tried("a b");
        assert!(home.was_tried("a b") && !home.was_tried("a"));
        fs::remove_dir_all(&place).unwrap();
    }
}
