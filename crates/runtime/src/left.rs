//! What a process leaves for the one that its parent starts after it, however it ends: two files in memory that both
//! have, written in turns. Each says how long it is, which it is, and a checksum, so that one that was being written
//! when the process was killed is known, and the other still there.
//!
//! Windows: files in memory are files of the temporary directory that go with their last handle.

use crate::files::{read_exact_at, write_all_at};
use std::fs::File;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};

/// Length, number and checksum.
const HEAD_BYTES: usize = 8 + 8 + 4;

/// An empty file in memory, which is gone with its last descriptor.
///
/// # Errors
///
/// The system's.
pub fn memory_file() -> io::Result<File> {
    named("weir-left")
}

/// The same, by the name that the system's tools show.
#[cfg(unix)]
pub(crate) fn named(name: &str) -> io::Result<File> {
    use rustix::fs::{memfd_create, MemfdFlags};
    Ok(memfd_create(name, MemfdFlags::CLOEXEC).map(File::from)?)
}

#[cfg(windows)]
pub(crate) fn named(name: &str) -> io::Result<File> {
    use std::os::windows::fs::OpenOptionsExt;
    use std::sync::atomic::AtomicU32;
    use windows_sys::Win32::Storage::FileSystem::{
        FILE_ATTRIBUTE_TEMPORARY, FILE_FLAG_DELETE_ON_CLOSE,
    };
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let path = std::env::temp_dir().join(format!("{name}-{}-{number}", std::process::id()));
    File::options()
        .read(true)
        .write(true)
        .create_new(true)
        .share_mode(0)
        .attributes(FILE_ATTRIBUTE_TEMPORARY)
        .custom_flags(FILE_FLAG_DELETE_ON_CLOSE)
        .open(path)
}

/// The two files.
pub struct Left {
    files: [File; 2],
    turn: AtomicU64,
}

impl Left {
    /// Empty ones, which this process and those that it forks have.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn new() -> io::Result<Left> {
        Ok(Left { files: [memory_file()?, memory_file()?], turn: AtomicU64::new(0) })
    }

    /// Those that a master has, in a process that it has started rather than forked.
    pub fn of(files: [File; 2]) -> Left {
        Left { files, turn: AtomicU64::new(0) }
    }

    /// To be handed to such a process.
    pub fn files(&self) -> [&File; 2] {
        self.files.each_ref()
    }

    /// Puts that in the place of what was there. By one thread at a time.
    ///
    /// # Errors
    ///
    /// The system's; what was there before is there still.
    pub fn write(&self, body: &[u8], checksum: fn(&[u8]) -> u32) -> io::Result<()> {
        let turn = self.turn.load(Ordering::Relaxed) + 1;
        let file = &self.files[turn as usize % 2];
        let mut head = Vec::with_capacity(HEAD_BYTES);
        head.extend_from_slice(&(body.len() as u64).to_le_bytes());
        head.extend_from_slice(&turn.to_le_bytes());
        head.extend_from_slice(&checksum(body).to_le_bytes());
        write_all_at(file, &[0; HEAD_BYTES], 0)?;
        file.set_len((HEAD_BYTES + body.len()) as u64)?;
        write_all_at(file, body, HEAD_BYTES as u64)?;
        write_all_at(file, &head, 0)?;
        self.turn.store(turn, Ordering::Relaxed);
        Ok(())
    }

    /// What was written last and is whole, if it is not longer than that.
    pub fn read(&self, max_bytes: usize, checksum: fn(&[u8]) -> u32) -> Option<Vec<u8>> {
        let each = self.files.iter().filter_map(|file| read(file, max_bytes, checksum));
        let (turn, body) = each.max_by_key(|(turn, _)| *turn)?;
        self.turn.store(turn, Ordering::Relaxed);
        Some(body)
    }
}

fn read(file: &File, max_bytes: usize, checksum: fn(&[u8]) -> u32) -> Option<(u64, Vec<u8>)> {
    let mut head = [0; HEAD_BYTES];
    read_exact_at(file, &mut head, 0).ok()?;
    let len = u64::from_le_bytes(head[..8].try_into().ok()?);
    let turn = u64::from_le_bytes(head[8..16].try_into().ok()?);
    let sum = u32::from_le_bytes(head[16..].try_into().ok()?);
    let len = usize::try_from(len).ok().filter(|len| turn > 0 && *len <= max_bytes)?;
    let mut body = vec![0; len];
    read_exact_at(file, &mut body, HEAD_BYTES as u64).ok()?;
    (checksum(&body) == sum).then_some((turn, body))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> u32 {
        bytes.iter().map(|b| u32::from(*b)).sum()
    }

    #[test]
    fn the_last_whole_one_is_read() {
        let left = Left::new().unwrap();
        let read = |left: &Left| left.read(100, sum).map(|b| String::from_utf8(b).unwrap());
        assert_eq!(read(&left), None);
        left.write(b"first", sum).unwrap();
        left.write(b"the second", sum).unwrap();
        assert_eq!(read(&left).as_deref(), Some("the second"));
        left.write(b"third", sum).unwrap();
        assert_eq!(read(&left).as_deref(), Some("third"));
        // Cut off in the middle.
        write_all_at(&left.files[1], b"X", HEAD_BYTES as u64).unwrap();
        assert_eq!(read(&left).as_deref(), Some("the second"));
        assert_eq!(left.read(9, sum), None);
        left.write(b"next", sum).unwrap();
        assert_eq!(read(&left).as_deref(), Some("next"));
    }
}
