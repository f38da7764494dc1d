//! The chunked transfer coding (RFC 9112 section 7.1), read strictly and written plainly.
//!
//! As in nginx 1.31.5 every line must end in CRLF: a bare LF, in an extension or a trailer as
//! well, is an error. Unlike nginx, the bytes that carry no data have limits.

use std::ops::Range;

use crate::scan::{CR, LF};

/// A chunk's size line, leading zeros and extensions included, is never longer.
pub const SIZE_LINE_MAX_BYTES: usize = 16 * 1024;
/// Trailers that are thrown away are never longer.
pub const TRAILERS_MAX_BYTES: usize = 64 * 1024;

const LAST_CHUNK: &[u8] = b"0\r\n\r\n";
/// Sizes stay clear of what a signed 64-bit offset holds, with room for what frames a chunk.
const SIZE_MAX: u64 = i64::MAX as u64 - 9;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// This part of the buffer is body.
    Data(Range<usize>),
    NeedMore,
    /// The body is complete. With trailers kept, their block follows, up to its empty line:
    /// read it with [`super::field::Fields`].
    End,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChunkError {
    Invalid,
    /// A size line or trailer block without end.
    TooLong,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    SizeStart,
    Size,
    Extension,
    SizeLf,
    Data,
    DataCr,
    DataLf,
    LastExtension,
    LastLf,
    Trailer,
    TrailerEndLf,
    TrailerLine,
    TrailerLineLf,
    Done,
}

/// Where in a chunked body we are.
#[derive(Clone, Debug, Default)]
pub struct Decoder {
    state: State,
    /// Of the current chunk: read so far as a number, then what remains of it.
    size: u64,
    /// Bytes without data since the last chunk.
    overhead: usize,
    keep_trailers: bool,
}

impl Decoder {
    pub fn new() -> Self {
        Decoder::default()
    }

    /// `End` comes before the trailers instead of after them.
    pub fn keeping_trailers() -> Self {
        Decoder { keep_trailers: true, ..Decoder::default() }
    }

    /// What remains of the chunk whose data is being read: with it a body that will be too
    /// large is refused at its chunk's first byte.
    pub fn chunk_remaining(&self) -> u64 {
        match self.state {
            State::Data => self.size,
            _ => 0,
        }
    }

    /// Reads on from the start of `buf`: how many bytes are done with, and what they were.
    /// After `Data` or `NeedMore`, call again with what follows the consumed part.
    pub fn decode(&mut self, buf: &[u8]) -> Result<(usize, Event), ChunkError> {
        let mut at = 0;
        loop {
            if self.state == State::Data {
                let have = (buf.len() - at) as u64;
                let n = self.size.min(have) as usize;
                if n == 0 && self.size > 0 {
                    return Ok((at, Event::NeedMore));
                }
                self.size -= n as u64;
                if self.size == 0 {
                    self.state = State::DataCr;
                    self.overhead = 0;
                }
                return Ok((at + n, Event::Data(at..at + n)));
            }
            if self.state == State::Done {
                return Ok((at, Event::End));
            }
            let Some(&byte) = buf.get(at) else { return Ok((at, Event::NeedMore)) };
            self.state = self.step(byte)?;
            at += 1;
        }
    }

    /// At least so many bytes are still to come before the body is complete.
    pub fn min_remaining(&self) -> u64 {
        const END: u64 = LAST_CHUNK.len() as u64;
        match self.state {
            State::SizeStart => END,
            State::Size if self.size == 0 => 4,
            State::Size | State::Extension => 2 + self.size + 2 + END,
            State::SizeLf => 1 + self.size + 2 + END,
            State::Data => self.size + 2 + END,
            State::DataCr => 2 + END,
            State::DataLf => 1 + END,
            State::LastExtension | State::TrailerLine => 4,
            State::LastLf | State::TrailerLineLf => 3,
            State::Trailer => 2,
            State::TrailerEndLf => 1,
            State::Done => 0,
        }
    }

    fn step(&mut self, byte: u8) -> Result<State, ChunkError> {
        self.count()?;
        let next = match (self.state, byte) {
            (State::SizeStart, _) => {
                self.size = digit(byte).ok_or(ChunkError::Invalid)?;
                State::Size
            }
            (State::Size, _) => return self.size_byte(byte),
            (State::Extension, CR) => State::SizeLf,
            (State::LastExtension, CR) => State::LastLf,
            (State::Extension | State::LastExtension, b) if b != LF => self.state,
            (State::SizeLf, LF) => State::Data,
            (State::DataCr, CR) => State::DataLf,
            (State::DataLf, LF) => State::SizeStart,
            (State::LastLf, LF) if self.keep_trailers => State::Done,
            (State::LastLf, LF) => State::Trailer,
            (State::Trailer, CR) => State::TrailerEndLf,
            (State::TrailerEndLf, LF) => State::Done,
            (State::Trailer | State::TrailerLine, b) if b != LF && b != CR => State::TrailerLine,
            (State::TrailerLine, CR) => State::TrailerLineLf,
            (State::TrailerLineLf, LF) => State::Trailer,
            _ => return Err(ChunkError::Invalid),
        };
        Ok(next)
    }

    fn size_byte(&mut self, byte: u8) -> Result<State, ChunkError> {
        if let Some(digit) = digit(byte) {
            if self.size > i64::MAX as u64 / 16 {
                return Err(ChunkError::Invalid);
            }
            self.size = self.size * 16 + digit;
            return Ok(State::Size);
        }
        if self.size > SIZE_MAX {
            return Err(ChunkError::Invalid);
        }
        match (byte, self.size == 0) {
            (CR, true) => Ok(State::LastLf),
            (CR, false) => Ok(State::SizeLf),
            (b';' | b' ' | b'\t', true) => Ok(State::LastExtension),
            (b';' | b' ' | b'\t', false) => Ok(State::Extension),
            _ => Err(ChunkError::Invalid),
        }
    }

    fn count(&mut self) -> Result<(), ChunkError> {
        let max = match self.state {
            State::Trailer | State::TrailerLine | State::TrailerLineLf => TRAILERS_MAX_BYTES,
            _ => SIZE_LINE_MAX_BYTES,
        };
        if self.overhead >= max && self.state != State::TrailerEndLf {
            return Err(ChunkError::TooLong);
        }
        self.overhead += 1;
        Ok(())
    }
}

fn digit(byte: u8) -> Option<u64> {
    char::from(byte).to_digit(16).map(u64::from)
}

/// Appends the line that precedes `size` bytes of data; never call it with 0.
pub fn write_chunk_header(size: u64, out: &mut Vec<u8>) {
    debug_assert!(size > 0);
    let mut digits = [0u8; 16];
    let mut len = 0;
    let mut rest = size;
    for slot in digits.iter_mut().rev() {
        *slot = match (rest & 15) as u8 {
            d @ 0..=9 => b'0' + d,
            d => b'a' + d - 10,
        };
        len += 1;
        rest >>= 4;
        if rest == 0 {
            break;
        }
    }
    out.extend_from_slice(digits.get(digits.len() - len..).unwrap_or_default());
    out.extend_from_slice(b"\r\n");
}

/// Appends the end of a body without trailers.
pub fn write_last_chunk(out: &mut Vec<u8>) {
    out.extend_from_slice(LAST_CHUNK);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn body_of(mut input: &[u8]) -> Result<(Vec<u8>, Vec<u8>), ChunkError> {
        let mut decoder = Decoder::new();
        let mut body = Vec::new();
        loop {
            let (used, event) = decoder.decode(input)?;
            match event {
                Event::Data(range) => body.extend_from_slice(&input[range]),
                Event::End => return Ok((body, input[used..].to_vec())),
                Event::NeedMore => panic!("{input:?} is not a whole body"),
            }
            input = &input[used..];
        }
    }

    #[test]
    fn bodies() {
        for (input, body, rest) in [
            (&b"0\r\n\r\n"[..], &b""[..], &b""[..]),
            (b"3\r\nabc\r\n0\r\n\r\nnext", b"abc", b"next"),
            (b"A;x=\"y\"\r\n0123456789\r\n1 \r\nx\r\n00\t\r\nT: v\r\n\r\n", b"0123456789x", b""),
        ] {
            assert_eq!(body_of(input), Ok((body.to_vec(), rest.to_vec())));
        }
    }

    #[test]
    fn refused_bodies() {
        for input in [
            &b"\r\n"[..],
            b"x",
            b"-1\r\n",
            b"3\nabc",
            b"3;x\nabc",
            b"3\r\nabcd",
            b"3\r\nabc\n",
            b"3\rabc",
            b"0\n",
            b"0\r\nT: v\n",
            b"0\r\n\n",
            b"0\r\n\rx",
            b"8000000000000000\r\n",
            b"7ffffffffffffffff\r\n",
            b"7fffffffffffffff\r\n",
        ] {
            assert_eq!(body_of(input), Err(ChunkError::Invalid), "{input:?}");
        }
        let endless = vec![b'0'; SIZE_LINE_MAX_BYTES + 1];
        assert_eq!(body_of(&endless), Err(ChunkError::TooLong));
    }

    #[test]
    fn kept_trailers_are_left_in_the_buffer() {
        let input = b"1\r\nx\r\n0\r\nA: b\r\n\r\n";
        let mut decoder = Decoder::keeping_trailers();
        assert_eq!(decoder.decode(input), Ok((4, Event::Data(3..4))));
        assert_eq!(decoder.min_remaining(), 7);
        assert_eq!(decoder.decode(&input[4..]), Ok((5, Event::End)));
        assert_eq!(decoder.decode(&input[9..]), Ok((0, Event::End)));
    }

    #[test]
    fn sizes_are_written_in_hexadecimal() {
        for size in [1, 9, 10, 15, 16, 255, 4096, u64::MAX] {
            let mut out = Vec::new();
            write_chunk_header(size, &mut out);
            assert_eq!(out, format!("{size:x}\r\n").as_bytes());
        }
    }
}
