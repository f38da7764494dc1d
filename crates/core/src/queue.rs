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
/// Room for a header and some text.
const TEXT_ROOM_BYTES: usize = 1024;
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
    /// Text behind the pieces: all there is of most answers.
    text: Vec<u8>,
    /// Bytes of the first piece, or of the text, that are already sent.
    sent: usize,
    /// A buffer for text to come.
    spare: Option<Vec<u8>>,
    /// A buffer that has left, for the next that is queued as it is.
    spare_read: Option<Vec<u8>>,
}

impl Kept {
    /// Puts a piece at the end.
    fn push(&mut self, piece: Piece) {
        if !self.text.is_empty() {
            let fresh = self.spare.take().unwrap_or_default();
            let text = std::mem::replace(&mut self.text, fresh);
            self.pieces.push_back(Piece::Text(text));
        }
        self.pieces.push_back(piece);
    }

    /// What is not sent yet of the text behind the pieces.
    fn tail(&self) -> &[u8] {
        match self.pieces.is_empty() {
            true => &self.text[self.sent..],
            false => &self.text,
        }
    }

    /// A buffer of text has left.
    fn keep_text(&mut self, mut text: Vec<u8>) {
        if text.capacity() <= KEEP_BUFFER_MAX_BYTES {
            text.clear();
            match self.text.capacity() {
                0 => self.text = text,
                _ => self.spare = Some(text),
            }
        }
    }

    /// All of a piece has left.
    fn keep_memory(&mut self, piece: Piece) {
        match piece {
            Piece::Text(text) => self.keep_text(text),
            Piece::Read { mut buf, .. } if buf.capacity() <= KEEP_READ_MAX_BYTES => {
                buf.clear();
                self.spare_read = Some(buf);
            }
            _ => {}
        }
    }

    /// Everything has left.
    fn consume_all(&mut self) {
        self.sent = 0;
        while let Some(piece) = self.pieces.pop_front() {
            self.keep_memory(piece);
        }
        match self.text.capacity() <= KEEP_BUFFER_MAX_BYTES {
            true => self.text.clear(),
            false => self.text = Vec::new(),
        }
    }

    /// So many bytes of the text behind the pieces, which are gone, have been sent.
    fn consume_text(&mut self, n: usize) {
        self.sent += n;
        if self.sent == self.text.len() {
            self.sent = 0;
            let text = std::mem::take(&mut self.text);
            self.keep_text(text);
        }
    }
}

impl OutQueue {
    fn kept(&mut self) -> &mut Kept {
        self.kept.get_or_insert_with(Box::default)
    }

    /// Appends text through a closure; answers how much was added.
    pub fn write(&mut self, f: impl FnOnce(&mut Vec<u8>)) -> u64 {
        let text = &mut self.kept().text;
        if text.capacity() == 0 {
            text.reserve(TEXT_ROOM_BYTES);
        }
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
        self.kept().push(Piece::Mem(bytes));
    }

    /// Queues what a buffer holds from `from` on, where it is, and puts another in its place, which
    /// begins with what stands before `from`.
    pub fn push_read(&mut self, buf: &mut Vec<u8>, from: usize) {
        let kept = self.kept();
        let mut other = kept.spare_read.take().unwrap_or_default();
        other.extend_from_slice(&buf[..from]);
        let buf = std::mem::replace(buf, other);
        let added = (buf.len() - from) as u64;
        kept.push(Piece::Read { buf, from });
        self.queued += added;
    }

    /// Read when it is sent: by the kernel where there is no TLS.
    pub fn push_file(&mut self, file: Rc<File>, offset: u64, len: u64) {
        if len > 0 {
            self.queued += len;
            self.kept().push(Piece::File { file, offset, len });
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
        self.kept.as_ref().map_or(0, |k| k.pieces.len() + usize::from(!k.text.is_empty()))
    }

    /// What is queued, where that is text alone.
    #[inline]
    pub(crate) fn all_text(&self) -> Option<&[u8]> {
        self.kept.as_ref().filter(|k| k.pieces.is_empty()).map(|k| k.tail())
    }

    /// The bytes in front, up to `max` of them and to the next file; answers how many slices were
    /// filled, and whether anything is queued behind them.
    pub fn slices<'a>(&'a self, slices: &mut [IoSlice<'a>], max: u64) -> (usize, bool) {
        let Some(kept) = &self.kept else { return (0, false) };
        let (mut count, mut left) = (0, max);
        let mut add = |part: &'a [u8]| {
            if count == slices.len() || left == 0 {
                return false;
            }
            let part = &part[..part.len().min(usize::try_from(left).unwrap_or(usize::MAX))];
            slices[count] = IoSlice::new(part);
            count += 1;
            left -= part.len() as u64;
            true
        };
        for (at, piece) in kept.pieces.iter().enumerate() {
            let whole: &[u8] = match piece {
                Piece::Text(t) => t,
                Piece::Mem(b) => b,
                Piece::Read { buf, from } => &buf[*from..],
                Piece::File { .. } => return (count, true),
            };
            if !add(if at == 0 { &whole[kept.sent..] } else { whole }) {
                return (count, true);
            }
        }
        let tail = kept.tail();
        let more = !tail.is_empty() && !add(tail);
        (count, more)
    }

    /// So many bytes in front have been sent.
    pub fn consume(&mut self, mut n: usize) {
        self.queued -= n as u64;
        let Some(kept) = &mut self.kept else { return };
        if self.queued == 0 {
            return kept.consume_all();
        }
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
            if let Some(piece) = kept.pieces.pop_front() {
                kept.keep_memory(piece);
            }
        }
        kept.consume_text(n);
    }

    /// Moves the first `n` bytes of another queue to the end of this one.
    pub fn take_from(&mut self, from: &mut OutQueue, n: u64) {
        let mut left = n;
        while left > 0 && from.queued > 0 {
            let Some(kept) = &from.kept else { return };
            let mut copy = |part: &[u8]| {
                let part = &part[..part.len().min(left as usize)];
                self.write(|text| text.extend_from_slice(part))
            };
            let taken = match kept.pieces.front() {
                None => copy(kept.tail()),
                Some(Piece::Text(t)) => copy(&t[kept.sent..]),
                Some(Piece::Read { buf, from: start }) => copy(&buf[*start + kept.sent..]),
                Some(Piece::Mem(b)) => {
                    let end = b.len().min(kept.sent + left as usize);
                    let part = b.slice(kept.sent..end);
                    let taken = part.len() as u64;
                    self.push_bytes(part);
                    taken
                }
                Some(Piece::File { file, offset, len }) => {
                    let taken = left.min(*len);
                    self.push_file(Rc::clone(file), *offset, taken);
                    taken
                }
            };
            from.consume(taken as usize);
            left -= taken;
        }
    }

    /// Throws away all but the first `n` bytes; answers how many those were.
    pub fn cut(&mut self, n: u64) -> u64 {
        let mut first = OutQueue::default();
        first.take_from(self, n);
        let rest = self.queued;
        *self = first;
        rest
    }

    /// Throws away what was not sent, and the memory.
    pub fn clear(&mut self) {
        *self = OutQueue::default();
    }

    /// What it holds for text to come.
    pub fn kept_bytes(&self) -> usize {
        let Some(kept) = &self.kept else { return 0 };
        let spare = [&kept.spare, &kept.spare_read];
        kept.text.capacity() + spare.into_iter().flatten().map(Vec::capacity).sum::<usize>()
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
