//! Incomplete answers: parts that come one by one, and answers that were cut off.
//!
//! A file's body is of one representation, told by a strong validator and a length, from its first byte to its
//! last: a part of another one begins a file of its own, which takes the place of the old. Parts are written where
//! they belong, into a hole, and the header says so behind that. So whoever reads sees the parts of before or
//! those of now, and a process that is killed leaves what the header says, and bytes that it does not. Of two that
//! write at once the last one's list stands: a part may be forgotten by that, and none is made up.

use crate::entry::{self, Meta};
use crate::fills::Filling;
use crate::parts::{self, Parts};
use crate::spool::{self, Spool};
use crate::store::{blocks, Store, Stored};
use crate::zone::Handle;
use crate::Key;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};
use weir_runtime::files;

/// Longer answers are not kept in parts: a part's place must be one that a file may have.
const BODY_MAX_BYTES: u64 = 1 << 44;

/// Makes a head as long as that, or cannot.
pub type Pad = fn(Vec<u8>, usize) -> Option<Vec<u8>>;

/// A part that is to be kept.
pub struct NewPart<'a> {
    pub key: Key,
    /// As of the whole answer.
    pub meta: Meta,
    pub key_text: &'a [u8],
    pub head: Vec<u8>,
    pub from: u64,
    pub to: u64,
    /// Of the whole body.
    pub body_len: u64,
    /// The parts that were there when it was asked for.
    pub old: Option<&'a Arc<Stored>>,
    pub pad: Pad,
}

/// A part on its way into its place.
pub struct PartFill {
    file: File,
    /// A file that has no name yet.
    temp: Option<PathBuf>,
    meta: Meta,
    head: Vec<u8>,
    body_len: u64,
    /// Where the body begins in the file.
    body_at: u64,
    from: u64,
    to: u64,
    written: u64,
    pad: Pad,
}

/// What is known of an answer that may be cut off: how long it is, and how its head is made longer.
#[derive(Clone, Copy)]
pub struct Resumable {
    pub body_len: u64,
    pub pad: Pad,
}

impl Resumable {
    /// The head with room for a list of parts.
    pub fn roomy(&self, head: &[u8]) -> Option<Vec<u8>> {
        (self.pad)(head.to_vec(), head.len() + parts::BYTES)
    }
}

fn now_ns() -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(now.as_nanos()).unwrap_or(u64::MAX)
}

/// Whether a part is of the same representation as those that are there; validators are strong ones.
fn is_same(old: &Stored, new: &NewPart) -> bool {
    let (a, b) = (&old.meta, &new.meta);
    let by_date = a.etag.is_empty() && b.etag.is_empty() && b.last_modified.is_some();
    let is_one = !b.etag.is_empty() || by_date && a.last_modified == b.last_modified;
    is_one && a.etag == b.etag && old.body_len == new.body_len && a.variant == b.variant
}

impl PartFill {
    /// More of it; more than was announced is an error.
    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let at = self.from + self.written;
        if bytes.len() as u64 > self.to - at {
            return Err(io::ErrorKind::InvalidData.into());
        }
        files::write_all_at(&self.file, bytes, self.body_at + at)?;
        self.written += bytes.len() as u64;
        Ok(())
    }

    fn has_come(&self) -> (u64, u64) {
        (self.from, self.from + self.written)
    }

    /// The header by which the file has these parts, or all.
    fn header(&self, key_text: &[u8], parts: &Parts) -> io::Result<Vec<u8>> {
        if !parts.hold(0, self.body_len) {
            return Ok(entry::encode_parts(&self.meta, key_text, &self.head, self.body_len, parts));
        }
        let len = self.head.len() + parts::BYTES;
        let head = (self.pad)(self.head.clone(), len).ok_or(io::ErrorKind::InvalidData)?;
        Ok(entry::encode(&self.meta, key_text, &head, self.body_len))
    }
}

impl Drop for PartFill {
    fn drop(&mut self) {
        if let Some(temp) = &self.temp {
            // Gone already: nothing to do.
            let _ = std::fs::remove_file(temp);
        }
    }
}

impl Store {
    /// Begins to keep a part; `None`: there are too many already.
    pub fn begin_part(&self, new: NewPart) -> io::Result<Option<PartFill>> {
        if new.from >= new.to || new.to > new.body_len || new.body_len > BODY_MAX_BYTES {
            return Ok(None);
        }
        let old = new.old.filter(|old| is_same(old, &new));
        let has_room = |parts: &Parts| parts.takes(new.from, new.to);
        if old.and_then(|old| old.parts.as_ref()).is_some_and(|parts| !has_room(parts)) {
            return Ok(None);
        }
        if let Some((file, head)) = old.and_then(|old| self.reopened(old, &new)) {
            return Ok(Some(new.fill(file, None, head)));
        }
        let temp = spool::beside(&self.path(&new.key));
        let file = spool::create_private(&temp)?;
        let head = new.head.clone();
        Ok(Some(new.fill(file, Some(temp), head)))
    }

    /// The file that has the other parts, and the head as long as it has room for.
    fn reopened(&self, old: &Stored, new: &NewPart) -> Option<(File, Vec<u8>)> {
        old.parts.as_ref().filter(|_| !self.is_going(old))?;
        let whole = entry::header_len(&old.meta, &old.key_text, &old.head);
        let room = whole.checked_sub(entry::header_len(&new.meta, new.key_text, &[]))?;
        let head = (new.pad)(new.head.clone(), room)?;
        let file = File::options().read(true).write(true).open(self.path(&new.key)).ok()?;
        old.is_in(&file).then_some((file, head))
    }

    /// The part has come, or as much of it as there will be.
    pub fn commit_part(
        &self,
        handle: Handle,
        filling: &Filling,
        mut part: PartFill,
    ) -> io::Result<()> {
        let (from, to) = part.has_come();
        if from == to || filling.is_purged() {
            return Ok(());
        }
        let (key, key_text) = (handle.key(), filling.key_text());
        let path = self.path(&key);
        let parts = match part.temp.is_some() {
            true => Parts::new(now_ns(), from, to),
            false => {
                let known = known_parts(&part.file)?.filter(|_| files::is_named(&part.file, &path));
                let Some(mut parts) = known else { return Ok(()) };
                if !parts.add(from, to) {
                    return Ok(());
                }
                parts
            }
        };
        files::write_all_at(&part.file, &part.header(key_text, &parts)?, 0)?;
        if let Some(temp) = &part.temp {
            spool::rename(temp, &path)?;
            part.temp = None;
        }
        if files::is_named(&part.file, &path) {
            handle.filled(blocks(part.body_at + parts.bytes()), None);
        }
        // A purge that came before the header was there may have taken the file for another.
        if filling.is_purged() {
            self.purge(&key);
        }
        Ok(())
    }

    /// Keeps the beginning of an answer that was cut off; its header has room for the list.
    pub fn commit_cut(
        &self,
        handle: Handle,
        meta: &Meta,
        filling: &Filling,
        head: &[u8],
        mut spool: Spool,
        of: Resumable,
    ) -> io::Result<()> {
        let come = spool.written;
        let is_part = (1..of.body_len).contains(&come) && spool.body_in_memory().is_none();
        if !is_part || filling.is_purged() {
            return Ok(());
        }
        let (key, parts) = (handle.key(), Parts::new(now_ns(), 0, come));
        let header = entry::encode_parts(meta, filling.key_text(), head, of.body_len, &parts);
        spool.set_head(&header)?;
        spool.rename(&self.path(&key), |_| Ok(()))?;
        handle.filled(blocks(header.len() as u64 + come), None);
        if filling.is_purged() {
            self.purge(&key);
        }
        Ok(())
    }
}

/// The parts that a file has now; `None`: it is complete.
fn known_parts(file: &File) -> io::Result<Option<Parts>> {
    match crate::store::read_open(file)? {
        Ok(header) => Ok(header.parts),
        Err(_) => Err(io::ErrorKind::InvalidData.into()),
    }
}

impl NewPart<'_> {
    fn fill(self, file: File, temp: Option<PathBuf>, head: Vec<u8>) -> PartFill {
        let texts = entry::header_len(&self.meta, self.key_text, &head);
        PartFill {
            file,
            temp,
            body_at: (texts + parts::BYTES) as u64,
            meta: self.meta,
            head,
            body_len: self.body_len,
            from: self.from,
            to: self.to,
            written: 0,
            pad: self.pad,
        }
    }
}
