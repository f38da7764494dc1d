//! Temporary files with nginx's names and directory levels; deleted when no longer used.

use crate::conf::TempPath;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

static NEXT: AtomicU64 = AtomicU64::new(1);

pub struct TempFile {
    pub file: File,
    pub path: PathBuf,
    keep: bool,
}

impl TempFile {
    /// A fresh file under the path; `keep` leaves it on disk.
    pub fn create(at: &TempPath, keep: bool) -> io::Result<TempFile> {
        let mut path = next_path(at);
        loop {
            let opened =
                private(File::options().read(true).write(true).create_new(true)).open(&path);
            match opened {
                Ok(file) => return Ok(TempFile { file, path, keep }),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => path = next_path(at),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let Some(dir) = path.parent().filter(|d| !d.exists()) else { return Err(e) };
                    std::fs::create_dir_all(dir)?;
                }
                Err(e) => return Err(e),
            }
        }
    }
}

/// Only the serving process's user may read it.
#[cfg(unix)]
fn private(options: &mut std::fs::OpenOptions) -> &mut std::fs::OpenOptions {
    std::os::unix::fs::OpenOptionsExt::mode(options, 0o600)
}

#[cfg(not(unix))]
fn private(options: &mut std::fs::OpenOptions) -> &mut std::fs::OpenOptions {
    options
}

fn next_path(at: &TempPath) -> PathBuf {
    let name = format!("{:010}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut path = at.path.clone();
    let mut end = name.len();
    for level in at.levels.iter().map(|l| usize::from(*l)).filter(|l| *l > 0) {
        path.push(&name[end - level..end]);
        end -= level;
    }
    path.push(name);
    path
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if !self.keep {
            // A file that is already gone needs no deleting.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
