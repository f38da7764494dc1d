//! An answer on its way to a file: in memory while it is small, then in a temporary file, which is
//! renamed once it is complete and deleted if it never is.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use weir_runtime::files;

/// Kept in memory up to here.
pub const MEMORY_MAX_BYTES: usize = 64 * 1024;

/// Makes the temporary file.
pub type MakeTemp = Box<dyn Fn() -> io::Result<(File, PathBuf)>>;

pub struct Spool {
    make: MakeTemp,
    /// All of it, as long as there is no file: first the room for the header.
    memory: Vec<u8>,
    head_len: usize,
    file: Option<(File, PathBuf)>,
    /// Bytes of the body.
    pub written: u64,
}

impl Spool {
    /// `head` stands in front of the body, and may be replaced at the end by one as long.
    pub fn new(head: Vec<u8>, make: MakeTemp) -> Spool {
        Spool { make, head_len: head.len(), memory: head, file: None, written: 0 }
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len() as u64;
        if let Some((file, _)) = &mut self.file {
            return file.write_all(bytes);
        }
        self.memory.extend_from_slice(bytes);
        match self.memory.len() - self.head_len > MEMORY_MAX_BYTES {
            true => self.spill(),
            false => Ok(()),
        }
    }

    fn spill(&mut self) -> io::Result<()> {
        if self.file.is_none() {
            let (mut file, path) = (self.make)()?;
            let written = file.write_all(&self.memory);
            self.file = Some((file, path));
            written?;
        }
        Ok(())
    }

    /// The body, when it is still in memory as a whole.
    pub fn body_in_memory(&self) -> Option<&[u8]> {
        match self.file {
            None => self.memory.get(self.head_len..),
            Some(_) => None,
        }
    }

    /// Puts the final header in place.
    pub fn set_head(&mut self, head: &[u8]) -> io::Result<()> {
        debug_assert_eq!(head.len(), self.head_len);
        if let Some((file, _)) = &self.file {
            return files::write_all_at(file, head, 0);
        }
        self.memory[..head.len()].copy_from_slice(head);
        Ok(())
    }

    /// Gives the file its name. What was there under that name is replaced at once.
    pub fn rename(
        mut self,
        to: &Path,
        finish: impl FnOnce(&File) -> io::Result<()>,
    ) -> io::Result<File> {
        self.spill()?;
        let Some((file, path)) = self.file.take() else {
            return Err(io::ErrorKind::NotFound.into());
        };
        let done = finish(&file).and_then(|()| rename(&path, to));
        if let Err(e) = done {
            let _ = std::fs::remove_file(&path);
            return Err(e);
        }
        Ok(file)
    }
}

impl Drop for Spool {
    fn drop(&mut self) {
        if let Some((_, path)) = &self.file {
            // Gone already: nothing to do.
            let _ = std::fs::remove_file(path);
        }
    }
}

/// Renames, making the directories on the way, and copying where the two are on different disks.
pub(crate) fn rename(from: &Path, to: &Path) -> io::Result<()> {
    let e = match files::supplant_at_once(from, to, beside) {
        Ok(()) => return Ok(()),
        Err(e) => e,
    };
    match e.kind() {
        io::ErrorKind::NotFound => {
            let Some(dir) = to.parent() else { return Err(e) };
            files::make_dirs(dir, 0o700)?;
            match std::fs::rename(from, to) {
                Err(e) if e.kind() == io::ErrorKind::CrossesDevices => copy(from, to),
                done => done,
            }
        }
        io::ErrorKind::CrossesDevices => copy(from, to),
        _ => Err(e),
    }
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    let aside = beside(to);
    let copied =
        std::fs::copy(from, &aside).and_then(|_| files::supplant_at_once(&aside, to, beside));
    match copied {
        Ok(()) => std::fs::remove_file(from),
        Err(e) => {
            let _ = std::fs::remove_file(&aside);
            Err(e)
        }
    }
}

/// A temporary name beside the file's own: a dot and ten digits behind it, as nginx has it.
pub fn beside(path: &Path) -> PathBuf {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let n = NEXT.fetch_add(1, Ordering::Relaxed) ^ (u64::from(std::process::id()) << 20);
    let mut name = path.as_os_str().to_os_string();
    name.push(format!(".{:010}", n % 10_000_000_000));
    name.into()
}

/// A fresh file that only this user may read.
pub fn create_private(path: &Path) -> io::Result<File> {
    let mut options = OpenOptions::new();
    files::private(options.read(true).write(true).create_new(true));
    match options.open(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => {
            files::make_dirs(path.parent().ok_or(e)?, 0o700)?;
            options.open(path)
        }
        opened => opened,
    }
}
