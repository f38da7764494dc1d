//! Bytes as blocks of whole lines, in a buffer of one size.

use memchr::{memchr, memrchr};
use std::io::{self, Read};
use weir_analytics::format::LINE_MAX_BYTES;

/// Several of the longest lines.
pub const BLOCK_BYTES: usize = 256 * 1024;
const _: () = assert!(BLOCK_BYTES > 2 * LINE_MAX_BYTES);

pub struct Blocks<R> {
    from: R,
    buffer: Box<[u8]>,
    /// What was handed out, and what is filled.
    start: usize,
    end: usize,
    /// Within a line that is too long.
    is_skipping: bool,
    /// Lines that were.
    pub too_long: u64,
    /// Bytes that were read, and those of them up to the last line that was handed out or is too long.
    read: u64,
    pub passed: u64,
    /// Whether what is behind the last line end is a line when it ends there.
    takes_rest: bool,
    /// Told behind the whole lines that were read before it.
    failed: Option<io::Error>,
}

impl<R: Read> Blocks<R> {
    pub fn new(from: R) -> Blocks<R> {
        let buffer = vec![0; BLOCK_BYTES].into();
        Blocks {
            from,
            buffer,
            start: 0,
            end: 0,
            is_skipping: false,
            too_long: 0,
            read: 0,
            passed: 0,
            takes_rest: true,
            failed: None,
        }
    }

    /// One whose last line is to be finished by somebody later.
    pub fn growing(from: R) -> Blocks<R> {
        Blocks { takes_rest: false, ..Blocks::new(from) }
    }

    /// Whole lines; `None` where it ends.
    ///
    /// # Errors
    ///
    /// Where nothing more can be read, behind what was.
    pub fn next(&mut self) -> io::Result<Option<&[u8]>> {
        loop {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
            let mut looked_at = self.end;
            let is_end = self.fill();
            if self.is_skipping {
                looked_at = 0;
                self.skip(is_end);
            }
            let from = self.start;
            if let Some(at) = memrchr(b'\n', &self.buffer[from.max(looked_at)..self.end]) {
                self.start = from.max(looked_at) + at + 1;
                self.pass();
                return Ok(Some(&self.buffer[from..self.start]));
            }
            if let Some(e) = self.failed.take() {
                return Err(e);
            }
            if is_end {
                return Ok(self.rest());
            }
            if from == 0 && self.end == self.buffer.len() {
                // A full buffer without an end.
                (self.start, self.is_skipping) = (self.end, true);
            }
        }
    }

    /// To the end of the line that is too long, if it is there.
    fn skip(&mut self, is_end: bool) {
        let end = memchr(b'\n', &self.buffer[..self.end]);
        self.start = end.map_or(self.end, |at| at + 1);
        if end.is_some() || (is_end && self.takes_rest) {
            self.is_skipping = false;
            self.too_long += 1;
            self.pass();
        }
    }

    fn pass(&mut self) {
        self.passed = self.read - (self.end - self.start) as u64;
    }

    /// What is behind the last line end.
    fn rest(&mut self) -> Option<&[u8]> {
        if !self.takes_rest || self.start == self.end {
            return None;
        }
        let from = self.start;
        self.start = self.end;
        self.pass();
        Some(&self.buffer[from..self.end])
    }

    /// Until the buffer is full or nothing more comes; whether that is so.
    fn fill(&mut self) -> bool {
        while self.failed.is_none() && self.end < self.buffer.len() {
            match self.from.read(&mut self.buffer[self.end..]) {
                Ok(0) => return true,
                Ok(n) => {
                    self.end += n;
                    self.read += n as u64;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => self.failed = Some(e),
            }
        }
        self.failed.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines<'a>(bytes: &'a [u8], mut blocks: Blocks<&'a [u8]>) -> (Vec<Vec<u8>>, u64) {
        blocks.from = bytes;
        let mut lines = Vec::new();
        while let Some(block) = blocks.next().unwrap() {
            assert!(!block.is_empty());
            lines.extend(
                block
                    .strip_suffix(b"\n")
                    .unwrap_or(block)
                    .split(|b| *b == b'\n')
                    .map(<[u8]>::to_vec),
            );
        }
        (lines, blocks.too_long)
    }

    #[test]
    fn lines_come_whole() {
        let text: Vec<u8> = (0..60_000).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        let wanted: Vec<Vec<u8>> = (0..60_000).map(|n| format!("line {n}").into_bytes()).collect();
        assert_eq!(lines(&text, Blocks::new(&b""[..])), (wanted.clone(), 0));
        let cut = &text[..text.len() - 1];
        assert_eq!(lines(cut, Blocks::new(&b""[..])), (wanted.clone(), 0));
        assert_eq!(lines(cut, Blocks::growing(&b""[..])).0.len(), 59_999);
        assert_eq!(lines(b"", Blocks::new(&b""[..])), (vec![], 0));
    }

    #[test]
    fn lines_that_are_too_long() {
        for extra in [0, 1, 17, BLOCK_BYTES, 3 * BLOCK_BYTES] {
            let long = vec![b'x'; BLOCK_BYTES + extra];
            let text = [b"a\n", &long[..], b"\nb\nc"].concat();
            let wanted = vec![b"a".to_vec(), b"b".to_vec(), b"c".to_vec()];
            assert_eq!(lines(&text, Blocks::new(&b""[..])), (wanted, 1), "{extra}");
            let text = [b"a\n", &long[..]].concat();
            assert_eq!(lines(&text, Blocks::new(&b""[..])), (vec![b"a".to_vec()], 1), "{extra}");
            // One that may still get an end is none yet.
            assert_eq!(
                lines(&text, Blocks::growing(&b""[..])),
                (vec![b"a".to_vec()], 0),
                "{extra}"
            );
            let mut growing = Blocks::growing(&text[..]);
            while growing.next().unwrap().is_some() {}
            assert_eq!(growing.passed, 2);
            let ended = [&text[..], b"\nb\nc"].concat();
            let mut growing = Blocks::growing(&ended[..]);
            while growing.next().unwrap().is_some() {}
            assert_eq!((growing.passed, growing.too_long), (ended.len() as u64 - 1, 1));
        }
    }
}
