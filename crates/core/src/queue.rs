//! What is still to be sent to a client: text, shared bytes, buffers that were read into, ranges of files.

use bytes::Bytes;
use std::collections::VecDeque;
use std::fs::File;
use std::io::IoSlice;
use std::rc::Rc;

/// Pieces up to this size are copied together; larger ones are sent from where they are.
const COPY_MAX_BYTES: usize = 2048;
/// What nginx rounds a part of a file up to, that it may send by a rate.
const PAGE_BYTES: u64 = 4096;
/// Output buffers kept for the next response, when no larger than this.
const KEEP_BUFFER_MAX_BYTES: usize = 64 * 1024;
/// The same for a buffer that was read into: as much as is read with a head.
const KEEP_READ_MAX_BYTES: usize = 32 * 1024;
/// A queue with room for more pieces than this is let go with its connection's wait.
const KEEP_PIECES_MAX: usize = 512;

enum Piece {
    Text(Vec<u8>),
    Mem(Bytes),
    /// What a buffer holds from `from` on; the buffer is read into anew when that has left.
    Read {
        buf: Vec<u8>,
        from: usize,
    },
    File {
        file: Rc<File>,
        offset: u64,
        len: u64,
    },
}

/// What is still to be sent to the client, in order. One in which nothing was ever put is two words: a
/// connection that waits has such a one.
#[derive(Default)]
pub struct OutQueue {
    queued: u64,
    kept: Option<Box<Kept>>,
}

#[derive(Default)]
struct Kept {
    pieces: VecDeque<Piece>,
    /// Bytes of the first piece that are already sent.
    sent: usize,
    spare: Option<Vec<u8>>,
    /// A buffer that has left, for the next that is queued as it is.
    spare_read: Option<Vec<u8>>,
}

impl Kept {
    /// The buffer at the end of the queue, for appending.
    fn text(&mut self) -> &mut Vec<u8> {
        if !matches!(self.pieces.back(), Some(Piece::Text(_))) {
            let fresh = self.spare.take().unwrap_or_else(|| Vec::with_capacity(1024));
            self.pieces.push_back(Piece::Text(fresh));
        }
        match self.pieces.back_mut() {
            Some(Piece::Text(t)) => t,
            _ => unreachable!("a text piece was just put at the end"),
        }
    }
}

impl OutQueue {
    fn kept(&mut self) -> &mut Kept {
        self.kept.get_or_insert_with(Box::default)
    }

    /// Appends text through a closure; answers how much was added.
    pub fn write(&mut self, f: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let text = self.kept().text();
        let before = text.len();
        f(text);
        let added = (text.len() - before) as u64;
        self.queued += added;
        added
    }

    /// A small one is copied to the text before it; a larger one is queued as it is.
    pub fn push_bytes(&mut self, bytes: Bytes) {
        if bytes.len() <= COPY_MAX_BYTES {
            self.write(|t| t.extend_from_slice(&bytes));
            return;
        }
        self.queued += bytes.len() as u64;
        self.kept().pieces.push_back(Piece::Mem(bytes));
    }

    /// Queues what a buffer holds from `from` on, where it is, and puts another in its place, which
    /// begins with what stands before `from`.
    pub fn push_read(&mut self, buf: &mut Vec<u8>, from: usize) {
        let kept = self.kept();
        let mut other = kept.spare_read.take().unwrap_or_default();
        other.extend_from_slice(&buf[..from]);
        let buf = std::mem::replace(buf, other);
        let added = (buf.len() - from) as u64;
        kept.pieces.push_back(Piece::Read { buf, from });
        self.queued += added;
    }

    /// Read when it is sent: by the kernel where there is no TLS.
    pub fn push_file(&mut self, file: Rc<File>, offset: u64, len: u64) {
        if len > 0 {
            self.queued += len;
            self.kept().pieces.push_back(Piece::File { file, offset, len });
        }
    }

    /// `max`, and what of a file is left behind it in its page.
    pub fn to_page_end(&self, max: u64) -> u64 {
        let Some(kept) = &self.kept else { return max };
        let mut before = 0;
        for (at, piece) in kept.pieces.iter().enumerate() {
            let skipped = if at == 0 { kept.sent } else { 0 };
            let (offset, len) = match piece {
                Piece::Text(text) => (None, text.len() - skipped),
                Piece::Mem(bytes) => (None, bytes.len() - skipped),
                Piece::Read { buf, from } => (None, buf.len() - from - skipped),
                Piece::File { offset, len, .. } => (Some(*offset), *len as usize),
            };
            if let Some(offset) = offset.filter(|_| max < before + len as u64) {
                let end = offset + max.saturating_sub(before);
                let aligned = end.next_multiple_of(PAGE_BYTES);
                return match aligned <= offset + len as u64 {
                    true => max + (aligned - end),
                    false => max,
                };
            }
            before += len as u64;
        }
        max
    }

    /// Bytes that are not sent yet.
    pub fn queued(&self) -> u64 {
        self.queued
    }

    /// The part of a file that is next, if it is one: the file, where to read, how many bytes.
    pub(crate) fn first_file(&self) -> Option<(&File, u64, u64)> {
        match self.kept.as_ref()?.pieces.front()? {
            Piece::File { file, offset, len } => Some((file, *offset, *len)),
            _ => None,
        }
    }

    /// How many pieces wait.
    pub fn pieces(&self) -> usize {
        self.kept.as_ref().map_or(0, |k| k.pieces.len())
    }

    /// The bytes in front, up to `max` of them and to the next file; answers how many slices were
    /// filled, and whether anything is queued behind them.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>], max: u64) -> (usize, bool) {
        let Some(kept) = &self.kept else { return (0, false) };
        let (mut count, mut bytes) = (0, 0u64);
        for piece in &kept.pieces {
            let whole: &[u8] = match piece {
                Piece::Text(t) => t,
                Piece::Mem(b) => b,
                Piece::Read { buf, from } => &buf[*from..],
                Piece::File { .. } => return (count, true),
            };
            if count == slices.len() || bytes >= max {
                return (count, true);
            }
            let mut part = if count == 0 { &whole[kept.sent..] } else { whole };
            if part.len() as u64 > max - bytes {
                part = &part[..(max - bytes) as usize];
            }
            slices[count] = IoSlice::new(part);
            count += 1;
            bytes += part.len() as u64;
        }
        (count, false)
    }

    /// So many bytes in front have been sent.
    pub fn consume(&mut self, mut n: usize) {
        self.queued -= n as u64;
        let Some(kept) = &mut self.kept else { return };
        while let Some(front) = kept.pieces.front_mut() {
            let left = match front {
                Piece::Text(t) => t.len() - kept.sent,
                Piece::Mem(b) => b.len() - kept.sent,
                Piece::Read { buf, from } => buf.len() - *from - kept.sent,
                Piece::File { offset, len, .. } => {
                    *offset += n as u64;
                    *len -= n as u64;
                    n = 0;
                    *len as usize
                }
            };
            if n < left || (n == 0 && left > 0) {
                kept.sent += n;
                return;
            }
            n -= left;
            kept.sent = 0;
            match kept.pieces.pop_front() {
                Some(Piece::Text(mut t)) if t.capacity() <= KEEP_BUFFER_MAX_BYTES => {
                    t.clear();
                    kept.spare = Some(t);
                }
                Some(Piece::Read { mut buf, .. }) if buf.capacity() <= KEEP_READ_MAX_BYTES => {
                    buf.clear();
                    kept.spare_read = Some(buf);
                }
                _ => {}
            }
        }
    }

    /// Moves the first `n` bytes of another queue to the end of this one.
    pub fn take_from(&mut self, from: &mut OutQueue, n: u64) {
        let mut left = n;
        while left > 0 {
            let Some(kept) = &from.kept else { return };
            let Some(front) = kept.pieces.front() else { return };
            let taken = match front {
                Piece::Text(t) => {
                    let part = &t[kept.sent..];
                    let part = &part[..part.len().min(left as usize)];
                    self.write(|text| text.extend_from_slice(part))
                }
                Piece::Read { buf, from: start } => {
                    let part = &buf[*start + kept.sent..];
                    let part = &part[..part.len().min(left as usize)];
                    self.write(|text| text.extend_from_slice(part))
                }
                Piece::Mem(b) => {
                    let end = b.len().min(kept.sent + left as usize);
                    let part = b.slice(kept.sent..end);
                    let taken = part.len() as u64;
                    self.push_bytes(part);
                    taken
                }
                Piece::File { file, offset, len } => {
                    let taken = left.min(*len);
                    self.push_file(Rc::clone(file), *offset, taken);
                    taken
                }
            };
            from.consume(taken as usize);
            left -= taken;
        }
    }

    /// Throws away what was not sent, and the memory.
    pub fn clear(&mut self) {
        *self = OutQueue::default();
    }

    /// What it holds for text to come.
    pub fn kept_bytes(&self) -> usize {
        let Some(kept) = &self.kept else { return 0 };
        let spare = [&kept.spare, &kept.spare_read];
        spare.into_iter().flatten().map(Vec::capacity).sum()
    }

    /// It has no memory of its own.
    pub(crate) fn is_bare(&self) -> bool {
        self.kept.is_none()
    }

    /// It is not worth keeping for another connection.
    pub(crate) fn is_large(&self) -> bool {
        self.kept.as_ref().is_some_and(|k| k.pieces.capacity() > KEEP_PIECES_MAX)
    }

    /// Nothing is queued, and there is memory that another connection could use.
    pub(crate) fn is_spare(&self) -> bool {
        self.queued == 0 && self.kept.as_ref().is_some_and(|k| k.pieces.is_empty())
    }
}
