//! Temporary files with nginx's names and directory levels. One that nobody needs the name of has
//! none from the beginning, so that nothing is left of it whatever becomes of the process.

use crate::paths::TempPath;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use weir_runtime::paths;

static NEXT: AtomicU64 = AtomicU64::new(1);

/// How long the name lives.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Life {
    /// Not at all.
    Nameless,
    /// As long as the file is used.
    Named,
    /// Until somebody else deletes it.
    Kept,
}

/// A file below a [`TempPath`], readable by this process' user alone.
pub struct TempFile {
    /// Open for reading and writing.
    pub file: Rc<File>,
    /// The name it has, or had when it was made.
    pub path: PathBuf,
    life: Life,
}

impl TempFile {
    /// A fresh file under the path.
    pub fn create(at: &TempPath, life: Life) -> io::Result<TempFile> {
        let mut path = next_path(at);
        loop {
            let opened = weir_runtime::files::private(
                File::options().read(true).write(true).create_new(true),
            )
            .open(&path);
            match opened {
                Ok(file) => return Ok(TempFile::named(file, path, life)),
                Err(e) if e.kind() == io::ErrorKind::AlreadyExists => path = next_path(at),
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    let Some(dir) = path.parent().filter(|d| !d.exists()) else { return Err(e) };
                    weir_runtime::files::make_dirs(dir, 0o700)?;
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Whether it can be opened or renamed by its path.
    pub fn has_name(&self) -> bool {
        self.life != Life::Nameless
    }

    /// A file that somebody else has made and keeps, open for reading: it is not to be renamed.
    pub fn lent(file: File, path: PathBuf) -> TempFile {
        TempFile { file: Rc::new(file), path, life: Life::Nameless }
    }

    /// A file that somebody else has made, and that goes when it is not used any more.
    pub fn of(file: File, path: PathBuf) -> TempFile {
        TempFile { file: Rc::new(file), path, life: Life::Named }
    }

    fn named(file: File, path: PathBuf, life: Life) -> TempFile {
        let mut life = life;
        // Where an open file cannot be deleted it keeps its name while it is used.
        if life == Life::Nameless && std::fs::remove_file(&path).is_err() {
            life = Life::Named;
        }
        TempFile { file: Rc::new(file), path, life }
    }
}

fn next_path(at: &TempPath) -> PathBuf {
    let name = format!("{:010}", NEXT.fetch_add(1, Ordering::Relaxed));
    let mut path = at.dir().to_path_buf();
    let mut end = name.len();
    for level in at.levels.iter().map(|l| usize::from(*l)).filter(|l| *l > 0) {
        paths::push(&mut path, &name[end - level..end]);
        end -= level;
    }
    paths::push(&mut path, name);
    path
}

impl Drop for TempFile {
    fn drop(&mut self) {
        if self.life == Life::Named {
            // A file that is already gone needs no deleting.
            let _ = std::fs::remove_file(&self.path);
        }
    }
}
