//! The only way from this crate to the system, so that checks are tested by figures that are made up.

use std::io;
use std::path::{Path, PathBuf};
use weir_runtime::machine;
pub use weir_runtime::machine::{Disk, Stamp};

/// No file of figures that is worth reading is longer; of a longer one this much is read.
pub const TEXT_MAX_BYTES: u64 = 4 << 20;
/// No more names of a directory are looked at.
pub const NAMES_MAX: usize = 100_000;

/// So many files are looked at to know what they have.
const FILES_MAX: usize = 200_000;

/// What checks ask. Nothing of it changes anything.
pub trait System {
    /// A file's beginning, of at most [`TEXT_MAX_BYTES`].
    fn read(&self, path: &Path) -> io::Result<Vec<u8>>;
    /// The names in a directory, at most [`NAMES_MAX`].
    fn names(&self, path: &Path) -> io::Result<Vec<String>>;
    /// The disk that a path is on, or will be: the nearest directory above it that is there is asked.
    fn disk(&self, path: &Path) -> io::Result<Disk>;
    /// What the files below a directory have together; `None` where there are more than [`FILES_MAX`].
    fn bytes_below(&self, path: &Path) -> Option<u64>;
    /// When a file was changed, who may read it, how long it is and whose.
    fn stamp(&self, path: &Path) -> io::Result<Stamp>;
    /// The time, in seconds since 1970.
    fn now_secs(&self) -> i64;
    /// Whether somebody keeps the clock right; `None` where that cannot be told.
    fn clock_is_kept(&self) -> Option<bool>;
    /// The processors that this process may use.
    fn cpus(&self) -> usize;
    /// The limit of open files that a server started here has: soft, hard. `None` if there is none.
    fn nofile(&self) -> Option<(u64, u64)>;

    /// A file as text, without white space around it.
    fn text(&self, path: &str) -> io::Result<String> {
        let bytes = self.read(Path::new(path))?;
        Ok(String::from_utf8_lossy(&bytes).trim().to_owned())
    }

    /// The first number of a file.
    fn number(&self, path: &str) -> io::Result<u64> {
        let text = self.text(path)?;
        let first = text.split_ascii_whitespace().next().and_then(|n| n.parse().ok());
        first.ok_or_else(|| io::Error::other(format!("no number in {path}")))
    }
}

/// This machine.
pub struct Machine;

impl System for Machine {
    fn read(&self, path: &Path) -> io::Result<Vec<u8>> {
        machine::beginning(path, TEXT_MAX_BYTES)
    }

    fn names(&self, path: &Path) -> io::Result<Vec<String>> {
        machine::is_systems(path)?;
        let names = std::fs::read_dir(path)?.take(NAMES_MAX).flatten();
        Ok(names.map(|e| e.file_name().to_string_lossy().into_owned()).collect())
    }

    fn disk(&self, path: &Path) -> io::Result<Disk> {
        let there = path.ancestors().find(|p| p.exists()).map(PathBuf::from);
        machine::disk(&there.unwrap_or_else(|| path.to_owned()))
    }

    fn bytes_below(&self, path: &Path) -> Option<u64> {
        let (mut bytes, mut seen, mut dirs) = (0, 0, vec![path.to_owned()]);
        while let Some(dir) = dirs.pop() {
            for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
                seen += 1;
                if seen > FILES_MAX {
                    return None;
                }
                match entry.metadata() {
                    Ok(meta) if meta.is_dir() => dirs.push(entry.path()),
                    Ok(meta) => bytes += meta.len(),
                    Err(_) => {}
                }
            }
        }
        Some(bytes)
    }

    fn stamp(&self, path: &Path) -> io::Result<Stamp> {
        machine::stamp(path)
    }

    fn now_secs(&self) -> i64 {
        weir_runtime::clock::wall_secs()
    }

    fn clock_is_kept(&self) -> Option<bool> {
        machine::clock_is_kept()
    }

    fn cpus(&self) -> usize {
        weir_runtime::system::cpus() as usize
    }

    fn nofile(&self) -> Option<(u64, u64)> {
        machine::nofile()
    }
}
