//! Files that are opened, made, renamed and removed by name, without rights that others do not have: as anybody does it.

use std::fs::{File, OpenOptions};
use std::io;
use std::path::Path;

/// A file that was opened to be written.
pub struct Opened {
    pub file: File,
}

/// Opens a file to be appended to; makes it if it is not there.
pub fn append(path: &Path) -> io::Result<Opened> {
    crate::files::append_at_once(path).map(|file| Opened { file })
}

/// Puts a text in the place of what is there.
pub fn write(path: &Path, text: &[u8]) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(path)?;
    io::Write::write_all(&mut file, text)
}

impl Opened {
    /// It is this user's, and stays so.
    pub fn give(&self, _: u32) -> io::Result<()> {
        Ok(())
    }
}

/// Makes a directory, and where that is wanted those on the way to it; one that is there is left as it is.
pub fn make_dir(path: &Path, with_parents: bool) -> io::Result<()> {
    let made = match with_parents {
        true => std::fs::create_dir_all(path),
        false => std::fs::create_dir(path),
    };
    match made {
        Err(e) if e.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

pub fn remove(path: &Path) -> io::Result<()> {
    std::fs::remove_file(path)
}

pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    crate::files::replace(from, to)
}

/// It is this user's, and stays so.
pub fn give_dir(_: &Path, _: u32) -> io::Result<()> {
    Ok(())
}

/// The same with what is in it.
pub fn give_dir_and_files(_: &Path, _: u32) -> io::Result<()> {
    Ok(())
}

/// There is no umask.
pub fn obey_umask(_: bool) {}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_there_is_made() {
        let dir = std::env::temp_dir().join(format!("weir-trusted-{}", std::process::id()));
        assert!(make_dir(&dir.join("a"), false).is_err());
        for with_parents in [true, false] {
            make_dir(&dir.join("a"), with_parents).unwrap();
        }
        std::fs::write(dir.join("b"), "").unwrap();
        assert!(make_dir(&dir.join("b"), false).is_err());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
