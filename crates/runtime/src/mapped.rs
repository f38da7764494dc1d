//! A file of fixed size that one thread of one process appends to and another reads, by a shared mapping.
//!
//! Its space is allocated before it is mapped, so that a full disk shows when it is made and never as a signal when it
//! is written. A file that another program cuts short is given up: its mapping says so ([`Reader::is_cut`], and an
//! append that finds no room), and nothing else happens. What is committed is the system's: it outlives the process, however that ends. The file is locked
//! (flock) as long as the mapping is there, which tells a living process's file from one that was left.
//!
//! The first words are the mapping's: how many bytes are committed, whether more will be, and what the reader keeps.
//! Behind them are bytes that the maker of the file writes once, and then the data.

#[cfg(unix)]
mod cut;
#[cfg(windows)]
#[path = "mapped/whole.rs"]
mod cut;
mod view;

use crate::files;
use cut::Place;
use std::fs::{File, TryLockError};
use std::io;
use std::path::Path;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;

/// For the maker of the file.
pub const LABEL_BYTES: usize = 64;
const LABEL_AT: usize = 64;
/// Where the data begins.
pub const DATA_AT: usize = LABEL_AT + LABEL_BYTES;
/// Offsets of words.
const COMMITTED: usize = 0;
const SEALED: usize = 8;
const KEPT: usize = 16;

/// A larger file is nobody's.
const MAX_BYTES: u64 = 1 << 31;

struct Mapping {
    start: NonNull<u8>,
    len: usize,
    place: &'static Place,
    /// Holds the lock.
    _file: File,
}

// SAFETY: the memory is the process's until it is unmapped. Words are atomic; of the data, bytes behind what is
// committed are touched by the one appender alone, those before it are never written again.
unsafe impl Send for Mapping {}
// SAFETY: as above.
unsafe impl Sync for Mapping {}

impl Drop for Mapping {
    fn drop(&mut self) {
        self.place.give_back();
        // SAFETY: it was mapped with this length, and nobody has a slice of it longer than the mapping.
        unsafe { view::end(self.start, self.len) };
    }
}

impl Mapping {
    fn new(file: File, len: usize, is_fresh: bool) -> io::Result<Mapping> {
        let start = view::begin(&file, len, is_fresh)?;
        let place = Place::of(start.as_ptr().expose_provenance(), len).inspect_err(|_| {
            // SAFETY: it was mapped with this length a moment ago.
            unsafe { view::end(start, len) };
        })?;
        Ok(Mapping { start, len, place, _file: file })
    }

    fn word(&self, at: usize) -> &AtomicU64 {
        // SAFETY: within the first page, which is mapped and aligned; words are only ever used as atomics.
        unsafe { AtomicU64::from_ptr(self.start.as_ptr().add(at).cast()) }
    }

    fn room(&self) -> usize {
        self.len - DATA_AT
    }

    /// As the file says, which may have been written by another program.
    fn committed(&self) -> usize {
        let committed = self.word(COMMITTED).load(Ordering::Acquire);
        usize::try_from(committed).map_or(self.room(), |n| n.min(self.room()))
    }
}

/// Writes into the file.
pub struct Appender {
    map: Arc<Mapping>,
    /// Bytes of data so far.
    at: usize,
}

impl Appender {
    /// How many bytes still fit.
    pub fn room(&self) -> usize {
        self.map.room() - self.at
    }

    /// Where the next bytes will be.
    pub fn at(&self) -> usize {
        self.at
    }

    /// Appends the parts as one: a reader sees all of them or none. Whether there was room, and still is a file.
    #[inline]
    pub fn append(&mut self, parts: &[&[u8]]) -> bool {
        let mut at = self.at;
        if parts.iter().map(|p| p.len()).sum::<usize>() > self.room() {
            return false;
        }
        for part in parts {
            // SAFETY: there is room for all parts within the mapping, and nobody else touches what is not committed.
            unsafe {
                let to = self.map.start.as_ptr().add(DATA_AT + at);
                ptr::copy_nonoverlapping(part.as_ptr(), to, part.len());
            }
            at += part.len();
        }
        self.at = at;
        self.map.word(COMMITTED).store(at as u64, Ordering::Release);
        !self.map.place.is_cut()
    }
}

/// Nothing more will be appended.
impl Drop for Appender {
    fn drop(&mut self) {
        self.map.word(SEALED).store(1, Ordering::Release);
    }
}

/// Reads what is committed.
pub struct Reader {
    map: Arc<Mapping>,
    is_left: bool,
}

impl Reader {
    /// Nothing of a file that was cut short.
    pub fn committed(&self) -> &[u8] {
        let committed = self.map.committed();
        if self.is_cut() {
            return &[];
        }
        // SAFETY: committed bytes are mapped, and the appender never writes them again. When the file is cut short
        // they are zeros, which is what another program that writes into the file could make of them too.
        unsafe {
            let start = self.map.start.as_ptr().add(DATA_AT);
            std::slice::from_raw_parts(start, committed)
        }
    }

    /// Another program has cut the file short, as far as anybody has noticed: what it had is lost.
    pub fn is_cut(&self) -> bool {
        self.map.place.is_cut()
    }

    /// Nothing more will be committed. To be asked before [`Reader::committed`].
    pub fn is_sealed(&self) -> bool {
        self.is_left || self.map.word(SEALED).load(Ordering::Acquire) != 0 || self.is_cut()
    }

    /// A number that the reader keeps with the file.
    pub fn kept(&self) -> u64 {
        self.map.word(KEPT).load(Ordering::Relaxed)
    }

    pub fn keep(&self, value: u64) {
        self.map.word(KEPT).store(value, Ordering::Relaxed);
    }

    /// What the maker of the file has written.
    pub fn label(&self) -> [u8; LABEL_BYTES] {
        let mut label = [0; LABEL_BYTES];
        // SAFETY: within the first page; written before there was a reader.
        unsafe {
            let from = self.map.start.as_ptr().add(LABEL_AT);
            ptr::copy_nonoverlapping(from, label.as_mut_ptr(), LABEL_BYTES);
        }
        label
    }

    /// Of the file.
    pub fn file_bytes(&self) -> u64 {
        self.map.len as u64
    }
}

/// Makes the file, with space for all of it, and locks it. One that could not be made whole is removed.
///
/// # Errors
///
/// It is there, the disk is full, or the system refuses.
pub fn create(
    path: &Path,
    bytes: usize,
    label: &[u8; LABEL_BYTES],
) -> io::Result<(Appender, Reader)> {
    let mut options = File::options();
    options.read(true).write(true).create_new(true);
    let file = files::private(&mut options).open(path)?;
    let made = fill(&file, bytes, label).and_then(|()| Mapping::new(file, bytes, true));
    let map = match made {
        Ok(map) => Arc::new(map),
        Err(e) => {
            // It is this call's own, and of no use.
            let _ = std::fs::remove_file(path);
            return Err(e);
        }
    };
    let appender = Appender { map: Arc::clone(&map), at: 0 };
    Ok((appender, Reader { map, is_left: false }))
}

fn fill(file: &File, bytes: usize, label: &[u8; LABEL_BYTES]) -> io::Result<()> {
    if bytes < 4096 || bytes as u64 > MAX_BYTES {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    lock(file)?;
    view::allocate(file, bytes)?;
    files::write_all_at(file, label, LABEL_AT as u64)
}

/// Opens a file that a process has left.
///
/// # Errors
///
/// A living process has it ([`io::ErrorKind::WouldBlock`]), or it is none that was made whole.
pub fn open(path: &Path) -> io::Result<Reader> {
    let file = File::options().read(true).write(true).open(path)?;
    lock(&file)?;
    let len = file.metadata()?.len();
    if !(4096..=MAX_BYTES).contains(&len) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let map = Mapping::new(file, len as usize, false)?;
    Ok(Reader { map: Arc::new(map), is_left: true })
}

fn lock(file: &File) -> io::Result<()> {
    file.try_lock().map_err(|e| match e {
        TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        TryLockError::Error(e) => e,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(name: &str) -> std::path::PathBuf {
        let path = std::env::temp_dir().join(format!("weir-mapped-{name}-{}", std::process::id()));
        let _ = std::fs::remove_file(&path);
        path
    }

    #[test]
    fn what_is_committed_is_read_also_by_the_next_who_opens_it() {
        let path = path("read");
        let label = [7; LABEL_BYTES];
        let (mut appender, reader) = create(&path, 4096, &label).unwrap();
        assert_eq!(
            (reader.committed(), reader.is_sealed(), reader.label()),
            (&b""[..], false, label)
        );
        assert!(appender.append(&[b"one", b"two"]));
        assert_eq!(
            (reader.committed(), appender.at(), appender.room()),
            (&b"onetwo"[..], 6, 4096 - 134)
        );
        let too_much = vec![b'x'; appender.room() + 1];
        assert!(!appender.append(&[&too_much]));
        assert!(appender.append(&[&too_much[1..]]));
        assert_eq!((reader.committed().len(), appender.room()), (4096 - 128, 0));
        reader.keep(6);
        // Somebody has it.
        assert_eq!(open(&path).err().unwrap().kind(), io::ErrorKind::WouldBlock);
        drop(appender);
        assert!(reader.is_sealed());
        drop(reader);
        let reader = open(&path).unwrap();
        assert_eq!(
            (reader.kept(), &reader.committed()[..6], reader.is_sealed()),
            (6, &b"onetwo"[..], true)
        );
        assert_eq!((reader.label(), reader.file_bytes()), (label, 4096));
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_says_more_than_it_has_is_read_to_its_end() {
        let path = path("more");
        drop(create(&path, 4096, &[0; LABEL_BYTES]).unwrap());
        let file = File::options().write(true).open(&path).unwrap();
        files::write_all_at(&file, &u64::MAX.to_ne_bytes(), 0).unwrap();
        assert_eq!(open(&path).unwrap().committed().len(), 4096 - DATA_AT);
        file.set_len(100).unwrap();
        assert_eq!(open(&path).err().unwrap().kind(), io::ErrorKind::InvalidData);
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn a_file_that_is_cut_short_is_given_up() {
        for left in [0, 4096] {
            let path = path("cut");
            let (mut appender, reader) = create(&path, 4 * 4096, &[7; LABEL_BYTES]).unwrap();
            assert!(appender.append(&[&[b'x'; 4096]]));
            assert_eq!(reader.committed().len(), 4096);
            File::options().write(true).open(&path).unwrap().set_len(left).unwrap();
            // The second page is written, and is not there.
            assert!(!appender.append(&[b"more"]), "{left}");
            assert!(reader.is_cut() && reader.is_sealed());
            assert_eq!(reader.committed(), b"");
            assert!(!appender.append(&[b"more"]));
            drop((appender, reader));
            std::fs::remove_file(&path).unwrap();
            // The next one has its place, and is none that was cut.
            let (mut appender, reader) = create(&path, 4096, &[7; LABEL_BYTES]).unwrap();
            assert!(appender.append(&[b"one"]));
            assert_eq!((reader.committed(), reader.is_cut()), (&b"one"[..], false));
            std::fs::remove_file(path).unwrap();
        }
    }

    #[test]
    fn who_only_reads_a_file_that_is_cut_short_is_told() {
        let path = path("cut-read");
        let (mut appender, reader) = create(&path, 4 * 4096, &[7; LABEL_BYTES]).unwrap();
        assert!(appender.append(&[&[b'x'; 3 * 4096]]));
        File::options().write(true).open(&path).unwrap().set_len(4096).unwrap();
        let all: usize = reader.committed().iter().map(|b| usize::from(*b == b'x')).sum();
        assert_eq!((all, reader.is_cut()), (4096 - DATA_AT, true));
        assert_eq!(reader.committed(), b"");
        std::fs::remove_file(path).unwrap();
    }

    #[test]
    fn what_cannot_be_made_whole_is_not_there() {
        let path = path("whole");
        assert!(create(&path, 100, &[0; LABEL_BYTES]).is_err());
        assert!(!path.exists());
    }
}
