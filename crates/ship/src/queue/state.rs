//! What is kept beside the segments: a client's own bytes, and the batch that is on its way where it must be sent again
//! just as it was.
//!
//! A file of two places that are written in turn, each with its number and a check sum, so that one of them is always
//! whole. It is locked as segments are.

use super::reading::Range;
use crate::receiver::{Kept, KEPT_MAX_BYTES};
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use weir_base::crc32c::crc32c;
use weir_runtime::files;

/// A batch has a part of each worker's segments, and few more.
const RANGES_MAX: usize = 1024;
const RANGE_BYTES: usize = 32;
/// Number, check sum, lengths.
const HEAD_BYTES: usize = 24;
const PLACE_BYTES: usize = HEAD_BYTES + KEPT_MAX_BYTES + RANGES_MAX * RANGE_BYTES;

/// One file of the folder.
pub struct State {
    /// None: the folder had no room for one, and nothing can be kept.
    file: Option<File>,
    path: PathBuf,
    /// Of the place that was written last.
    turn: u64,
    bytes: Vec<u8>,
    in_flight: Vec<Range>,
}

impl State {
    /// Takes over one that a dead process has left, or makes one. Further ones that were left are taken with
    /// [`State::left`].
    ///
    /// # Errors
    ///
    /// The folder cannot be read or written.
    pub fn open(dir: &Path) -> io::Result<State> {
        if let Some(state) = State::left(dir)? {
            return Ok(state);
        }
        let path = dir.join(format!("{:016x}.state", super::random()));
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        let file = files::private(&mut options).open(&path)?;
        file.try_lock().map_err(io::Error::from)?;
        // Room for all it may ever be: a disk that is full later is no reason to stop sending.
        match files::write_all_at(&file, &vec![0; 2 * PLACE_BYTES], 0) {
            Ok(()) => Ok(State::of(Some(file), path)),
            Err(e) => {
                let _ = std::fs::remove_file(&path);
                Err(e)
            }
        }
    }

    /// One that keeps nothing.
    pub fn none() -> State {
        State::of(None, PathBuf::new())
    }

    fn of(file: Option<File>, path: PathBuf) -> State {
        State { file, path, turn: 0, bytes: Vec::new(), in_flight: Vec::new() }
    }

    /// Whether it is in a file.
    pub fn is_kept(&self) -> bool {
        self.file.is_some()
    }

    /// One that a dead process has left, if there is any.
    ///
    /// # Errors
    ///
    /// The folder cannot be read.
    pub fn left(dir: &Path) -> io::Result<Option<State>> {
        for entry in std::fs::read_dir(dir)? {
            let path = entry?.path();
            if path.extension().is_none_or(|e| e != "state") {
                continue;
            }
            let Ok(file) = File::options().read(true).write(true).open(&path) else { continue };
            if file.try_lock().is_ok() {
                return State::read(file, path).map(Some);
            }
        }
        Ok(None)
    }

    fn read(file: File, path: PathBuf) -> io::Result<State> {
        let mut state = State::of(None, path);
        for place in 0..2 {
            let mut buf = vec![0; PLACE_BYTES];
            let got = files::read_at(&file, &mut buf, (place * PLACE_BYTES) as u64)?;
            if let Some((turn, bytes, in_flight)) = decode(&buf[..got]) {
                if turn > state.turn {
                    (state.turn, state.bytes, state.in_flight) = (turn, bytes, in_flight);
                }
            }
        }
        state.file = Some(file);
        Ok(state)
    }

    /// The batch on its way, as it was noted.
    pub fn in_flight(&self) -> &[Range] {
        &self.in_flight
    }

    /// Notes the batch that is about to be sent, or that there is none any more.
    ///
    /// # Errors
    ///
    /// It cannot be written.
    pub fn note(&mut self, ranges: &[Range]) -> io::Result<()> {
        if ranges.len() > RANGES_MAX {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let old = std::mem::replace(&mut self.in_flight, ranges.to_vec());
        self.write().inspect_err(|_| self.in_flight = old)
    }

    /// The file is of no more use.
    pub fn remove(self) {
        // Another process that finds it finds that nothing is on its way.
        let _ = std::fs::remove_file(&self.path);
    }

    fn write(&mut self) -> io::Result<()> {
        let file = self.file.as_ref().ok_or(io::ErrorKind::StorageFull)?;
        let turn = self.turn + 1;
        let text = encode(turn, &self.bytes, &self.in_flight);
        files::write_all_at(file, &text, (turn % 2) * PLACE_BYTES as u64)?;
        self.turn = turn;
        Ok(())
    }
}

impl Kept for State {
    fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    fn keep(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() > KEPT_MAX_BYTES {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        let old = std::mem::replace(&mut self.bytes, bytes.to_vec());
        self.write().inspect_err(|_| self.bytes = old)
    }
}

fn encode(turn: u64, bytes: &[u8], ranges: &[Range]) -> Vec<u8> {
    let mut out = vec![0; 4];
    out.extend_from_slice(&(bytes.len() as u32).to_le_bytes());
    out.extend_from_slice(&turn.to_le_bytes());
    out.extend_from_slice(&(ranges.len() as u64).to_le_bytes());
    out.extend_from_slice(bytes);
    for r in ranges {
        for n in [r.number, r.random, r.from, r.to] {
            out.extend_from_slice(&n.to_le_bytes());
        }
    }
    let check = crc32c(&out[4..]);
    out[..4].copy_from_slice(&check.to_le_bytes());
    out
}

fn decode(text: &[u8]) -> Option<(u64, Vec<u8>, Vec<Range>)> {
    let check = u32::from_le_bytes(*text.first_chunk()?);
    let len = u32::from_le_bytes(*text.get(4..8)?.first_chunk()?) as usize;
    let number = |at: usize| Some(u64::from_le_bytes(*text.get(at..at + 8)?.first_chunk()?));
    let (turn, ranges) = (number(8)?, usize::try_from(number(16)?).ok()?);
    if len > KEPT_MAX_BYTES || ranges > RANGES_MAX {
        return None;
    }
    let ranges_at = HEAD_BYTES + len;
    let end = ranges_at + ranges * RANGE_BYTES;
    if crc32c(text.get(4..end)?) != check {
        return None;
    }
    let read = |n: usize| {
        let at = ranges_at + n * RANGE_BYTES;
        let [number, random] = [number(at)?, number(at + 8)?];
        Some(Range {
            number,
            random,
            from: number_at(text, at + 16)?,
            to: number_at(text, at + 24)?,
        })
    };
    let ranges = (0..ranges).map(read).collect::<Option<Vec<_>>>()?;
    Some((turn, text[HEAD_BYTES..ranges_at].to_vec(), ranges))
}

fn number_at(text: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*text.get(at..at + 8)?.first_chunk()?))
}
