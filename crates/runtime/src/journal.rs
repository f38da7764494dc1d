//! What a process notes, bit by bit, for the one that its parent starts after it, however it ends: two files in memory that
//! both have. Records go behind one another into one of them; when that has grown the rest is written anew into the other,
//! which counts from when its head is whole. A record that was being written when the process was killed ends it.
//!
//! Windows: as [`crate::left`].

use crate::files::{read_exact_at, write_all_at};
use crate::left;
use std::fs::File;
use std::io;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Which turn it is, and its checksum.
const HEAD_BYTES: u64 = 8 + 4;
/// A record's length and checksum.
const MARK_BYTES: usize = 4 + 4;

/// The two files, and where this process is in them.
pub struct Journal {
    files: [File; 2],
    checksum: fn(&[u8]) -> u32,
    place: Mutex<Place>,
}

/// 0: nothing was written yet.
#[derive(Clone, Copy, Default)]
struct Place {
    turn: u64,
    end: u64,
}

impl Journal {
    /// Empty ones, which this process and those that it forks have.
    ///
    /// # Errors
    ///
    /// The system's.
    pub fn new(checksum: fn(&[u8]) -> u32) -> io::Result<Journal> {
        let file = || left::named("weir-journal");
        Ok(Journal { files: [file()?, file()?], checksum, place: Mutex::default() })
    }

    /// Those that a master has, in a process that it has started rather than forked.
    pub fn of(files: [File; 2], checksum: fn(&[u8]) -> u32) -> Journal {
        Journal { files, checksum, place: Mutex::default() }
    }

    /// To be handed to such a process.
    pub fn files(&self) -> [&File; 2] {
        self.files.each_ref()
    }

    fn lock(&self) -> MutexGuard<'_, Place> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn marked(&self, records: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        for record in records {
            out.extend_from_slice(&(record.len() as u32).to_le_bytes());
            out.extend_from_slice(&(self.checksum)(record).to_le_bytes());
            out.extend_from_slice(record);
        }
        out
    }

    /// Puts records behind those that are there; how long all are.
    ///
    /// # Errors
    ///
    /// The system's, and that nothing was begun: what was there before is there still.
    pub fn add(&self, records: &[Vec<u8>]) -> io::Result<u64> {
        let mut place = self.lock();
        if place.turn == 0 {
            return Err(io::ErrorKind::NotFound.into());
        }
        let text = self.marked(records);
        write_all_at(&self.files[place.turn as usize % 2], &text, place.end)?;
        place.end += text.len() as u64;
        Ok(place.end)
    }

    /// Puts records in the place of those that are there; how long all are.
    ///
    /// # Errors
    ///
    /// The system's; what was there before is there still.
    pub fn begin(&self, records: &[Vec<u8>]) -> io::Result<u64> {
        let mut place = self.lock();
        let turn = place.turn + 1;
        let file = &self.files[turn as usize % 2];
        // Without a head first, and without what was in it.
        file.set_len(0)?;
        let text = self.marked(records);
        write_all_at(file, &text, HEAD_BYTES)?;
        let number = turn.to_le_bytes();
        let head = [&number[..], &(self.checksum)(&number).to_le_bytes()].concat();
        write_all_at(file, &head, 0)?;
        *place = Place { turn, end: HEAD_BYTES + text.len() as u64 };
        // Its memory is not needed any more; that it stays does no harm.
        let _ = self.files[(turn as usize + 1) % 2].set_len(0);
        Ok(place.end)
    }

    /// Hands over all whole records that were written last, and goes on behind them.
    pub fn read(&self, mut each: impl FnMut(&[u8])) {
        let mut place = self.lock();
        let turns = [0, 1].map(|at| self.turn_of(&self.files[at]).unwrap_or(0));
        let turn = turns[0].max(turns[1]);
        *place = Place { turn, end: HEAD_BYTES };
        if turn == 0 {
            return;
        }
        let file = &self.files[turn as usize % 2];
        while let Some(record) = self.record(file, place.end) {
            each(&record);
            place.end += (MARK_BYTES + record.len()) as u64;
        }
        // What is only half there is not to be taken for the rest of what follows.
        let _ = file.set_len(place.end);
    }

    fn turn_of(&self, file: &File) -> Option<u64> {
        let mut head = [0; HEAD_BYTES as usize];
        read_exact_at(file, &mut head, 0).ok()?;
        let sum = u32::from_le_bytes(head[8..].try_into().ok()?);
        let turn = u64::from_le_bytes(head[..8].try_into().ok()?);
        ((self.checksum)(&head[..8]) == sum).then_some(turn)
    }

    fn record(&self, file: &File, at: u64) -> Option<Vec<u8>> {
        let mut mark = [0; MARK_BYTES];
        read_exact_at(file, &mut mark, at).ok()?;
        let len = u64::from(u32::from_le_bytes(mark[..4].try_into().ok()?));
        let sum = u32::from_le_bytes(mark[4..].try_into().ok()?);
        let start = at + MARK_BYTES as u64;
        // No more than there is is made room for.
        let has = file.metadata().ok()?.len();
        let len = usize::try_from(len).ok().filter(|_| start + len <= has)?;
        let mut record = vec![0; len];
        read_exact_at(file, &mut record, start).ok()?;
        ((self.checksum)(&record) == sum).then_some(record)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sum(bytes: &[u8]) -> u32 {
        bytes.iter().map(|b| u32::from(*b)).sum::<u32>() + 7
    }

    fn all(journal: &Journal) -> Vec<String> {
        let mut all = Vec::new();
        journal.read(|record| all.push(String::from_utf8_lossy(record).into_owned()));
        all
    }

    #[test]
    fn whole_records_are_read_and_gone_on_behind() {
        let journal = Journal::new(sum).unwrap();
        let of = |text: &str| vec![text.as_bytes().to_vec()];
        assert!(all(&journal).is_empty());
        assert!(journal.add(&of("early")).is_err());
        journal.begin(&of("first")).unwrap();
        let end = journal.add(&[b"a".to_vec(), b"".to_vec()]).unwrap();
        assert_eq!(all(&journal), ["first", "a", ""]);
        // Killed in the middle of a record.
        write_all_at(&journal.files[1], &[200, 0, 0, 0, 1, 1, 1, 1, b'x'], end).unwrap();
        assert_eq!(all(&journal), ["first", "a", ""]);
        journal.add(&of("b")).unwrap();
        assert_eq!(all(&journal), ["first", "a", "", "b"]);
        journal.begin(&of("anew")).unwrap();
        assert_eq!(all(&journal), ["anew"]);
        // Killed before the head was there: what was before counts.
        journal.files[1].set_len(0).unwrap();
        write_all_at(&journal.files[1], b"xxxxxxxxxxxxxxxxxxx", HEAD_BYTES).unwrap();
        journal.add(&of("more")).unwrap();
        assert_eq!(all(&journal), ["anew", "more"]);
    }
}
