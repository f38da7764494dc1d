//! The body of a backend's answer: where it ends and which bytes of what was read are its.

use weir_wire::http1::chunked::{Decoder, Event};
use weir_wire::http1::field::{FieldEvent, FieldRules, Fields};
use weir_wire::http1::response::ResponseHead;

/// A trailer block is never longer.
const TRAILERS_MAX_BYTES: usize = 16 * 1024;

/// How an answer's body ends.
#[derive(Debug)]
enum Framing {
    /// So many more bytes.
    Length(u64),
    Chunked(Box<Decoder>),
    /// Behind a chunked body: its trailer block so far.
    Trailers(Vec<u8>),
    Eof,
    /// As its stream says; no more than so many bytes, where that was announced.
    Stream {
        left: Option<u64>,
        ended: bool,
    },
    /// As its decoder says; no more than so many bytes, where that was announced.
    Decoded {
        left: Option<u64>,
        /// Fewer will do, as behind the head of an answer to HEAD.
        lenient: bool,
        ended: bool,
        /// The end of the connection will do.
        until_eof: bool,
    },
}

/// What is wrong with a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadBody {
    /// Its chunks are no chunks.
    Chunks,
    /// What follows its chunks is no trailer, or too long.
    Trailers,
    /// It is longer than was announced.
    TooLong,
    /// It is shorter.
    TooShort,
    /// The same, where a decoder has found the end.
    Cut,
}

/// Reads one body.
#[derive(Debug)]
pub struct BodyReader {
    framing: Framing,
    /// Fields that stood behind it.
    pub trailers: Vec<(Vec<u8>, Vec<u8>)>,
    /// All of it has been read.
    pub done: bool,
    /// More came than belongs to it: the connection is of no further use.
    pub excess: bool,
}

impl BodyReader {
    /// The body that follows a head. `bodiless`: the request was a HEAD.
    #[inline]
    pub fn new(head: &ResponseHead, bodiless: bool) -> BodyReader {
        let framing = if bodiless || matches!(head.status, 204 | 304) {
            Framing::Length(0)
        } else if head.chunked {
            Framing::Chunked(Box::new(Decoder::keeping_trailers()))
        } else {
            head.content_length.map_or(Framing::Eof, Framing::Length)
        };
        let done = matches!(framing, Framing::Length(0));
        BodyReader { framing, trailers: Vec::new(), done, excess: false }
    }

    /// The body of an HTTP/2 answer, whose stream may have ended with the head.
    pub fn of_stream(head: &ResponseHead, bodiless: bool, ended: bool) -> BodyReader {
        let none = bodiless || matches!(head.status, 204 | 304);
        let left = if none { Some(0) } else { head.content_length };
        BodyReader {
            framing: Framing::Stream { left, ended },
            trailers: Vec::new(),
            done: ended && left.is_none_or(|n| n == 0),
            excess: false,
        }
    }

    /// The body of an answer to HEAD that goes on to the connection's end, whether or not it has the
    /// length that it names.
    pub fn to_the_end(head: &ResponseHead) -> BodyReader {
        let none = matches!(head.status, 204 | 304);
        let framing = match none {
            true => Framing::Length(0),
            false => Framing::Decoded {
                left: head.content_length,
                lenient: true,
                ended: false,
                until_eof: true,
            },
        };
        BodyReader { framing, trailers: Vec::new(), done: none, excess: false }
    }

    /// It has ended before the length that it named, which is no error: not to be kept.
    pub fn is_short(&self) -> bool {
        matches!(self.framing, Framing::Decoded { left: Some(1..), lenient: true, .. })
    }

    /// The body of an answer that a decoder takes out of what it comes in; it may have ended.
    pub fn decoded(head: &ResponseHead, to_head: bool, ended: bool) -> BodyReader {
        let none = matches!(head.status, 204 | 304);
        let left = if none { Some(0) } else { head.content_length };
        BodyReader {
            framing: Framing::Decoded {
                left,
                lenient: to_head,
                ended,
                until_eof: head.connection_close,
            },
            trailers: Vec::new(),
            done: ended && (to_head || left.is_none_or(|n| n == 0)),
            excess: false,
        }
    }

    /// Whether what is fed next is the last, where a stream or a decoder says so.
    pub fn set_ended(&mut self, now: bool) {
        if let Framing::Stream { ended, .. } | Framing::Decoded { ended, .. } = &mut self.framing {
            *ended = now;
        }
    }

    /// So many bytes are still to come, when that is known.
    pub fn remaining(&self) -> Option<u64> {
        match self.framing {
            Framing::Length(n) => Some(n),
            Framing::Stream { left, .. } | Framing::Decoded { left, .. } => left,
            _ => None,
        }
    }

    /// The end of the connection is the end of the body.
    pub fn ends_with_connection(&self) -> bool {
        match self.framing {
            Framing::Eof => true,
            Framing::Decoded { left, lenient, until_eof, .. } => {
                until_eof && (lenient || left.is_none_or(|n| n == 0))
            }
            _ => false,
        }
    }

    /// Takes what was read, `buf[from..]`, and leaves the body's own bytes there.
    pub fn feed(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), BadBody> {
        match &mut self.framing {
            Framing::Eof => Ok(()),
            Framing::Stream { left, ended } => {
                if let Some(left) = left {
                    let have = (buf.len() - from) as u64;
                    let Some(rest) = left.checked_sub(have) else {
                        buf.truncate(from);
                        return Err(BadBody::TooLong);
                    };
                    *left = rest;
                    if *ended && rest > 0 {
                        return Err(BadBody::TooShort);
                    }
                }
                self.done = *ended;
                Ok(())
            }
            Framing::Decoded { left, lenient, ended, .. } => {
                if let Some(left) = left {
                    let have = (buf.len() - from) as u64;
                    let take = have.min(*left);
                    *left -= take;
                    buf.truncate(from + take as usize);
                    self.excess |= have > take;
                    if *ended && *left > 0 && !*lenient {
                        return Err(BadBody::Cut);
                    }
                }
                self.done |= *ended || self.excess;
                Ok(())
            }
            Framing::Length(left) => {
                let have = (buf.len() - from) as u64;
                let take = have.min(*left);
                *left -= take;
                self.done = *left == 0;
                self.excess |= have > take;
                buf.truncate(from + take as usize);
                Ok(())
            }
            Framing::Chunked(_) => self.decode(buf, from),
            Framing::Trailers(block) => {
                block.extend_from_slice(&buf[from..]);
                buf.truncate(from);
                self.read_trailers()
            }
        }
    }

    fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), BadBody> {
        let Framing::Chunked(decoder) = &mut self.framing else { return Ok(()) };
        let (mut at, mut end) = (from, from);
        loop {
            let Ok((used, event)) = decoder.decode(&buf[at..]) else {
                buf.truncate(end);
                return Err(BadBody::Chunks);
            };
            match event {
                Event::Data(range) => {
                    let size = range.len();
                    buf.copy_within(at + range.start..at + range.end, end);
                    end += size;
                    at += used;
                }
                Event::NeedMore => {
                    buf.truncate(end);
                    return Ok(());
                }
                Event::End => {
                    self.framing = Framing::Trailers(buf[at + used..].to_vec());
                    buf.truncate(end);
                    return self.read_trailers();
                }
            }
        }
    }

    fn read_trailers(&mut self) -> Result<(), BadBody> {
        let Framing::Trailers(block) = &self.framing else { return Ok(()) };
        let rules = FieldRules { underscores: true, upstream: true };
        let mut fields = Fields::at(0);
        let mut trailers = Vec::new();
        loop {
            match fields.next(block, rules).map_err(|_| BadBody::Trailers)? {
                FieldEvent::Field(f) => {
                    trailers.push((f.name.of(block).to_vec(), f.value.of(block).to_vec()));
                }
                FieldEvent::NeedMore if block.len() > TRAILERS_MAX_BYTES => {
                    return Err(BadBody::Trailers);
                }
                FieldEvent::NeedMore => return Ok(()),
                FieldEvent::End if fields.position() > TRAILERS_MAX_BYTES => {
                    return Err(BadBody::Trailers);
                }
                FieldEvent::End => {
                    self.excess = fields.position() < block.len();
                    self.done = true;
                    self.trailers = trailers;
                    return Ok(());
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(chunked: bool, content_length: Option<u64>) -> ResponseHead {
        ResponseHead { status: 200, chunked, content_length, ..ResponseHead::default() }
    }

    #[test]
    fn chunks_become_plain_bytes_however_they_arrive() {
        let wire = b"3\r\nabc\r\n4;x=y\r\ndefg\r\n0\r\nX-A: 1\r\n\r\n";
        for step in 1..=wire.len() {
            let mut reader = BodyReader::new(&head(true, None), false);
            let mut got = Vec::new();
            for part in wire.chunks(step) {
                let mut buf = b"head".to_vec();
                buf.extend_from_slice(part);
                reader.feed(&mut buf, 4).unwrap();
                got.extend_from_slice(&buf[4..]);
            }
            assert_eq!(got, b"abcdefg");
            assert!(reader.done && !reader.excess);
            assert_eq!(reader.trailers, [(b"X-A".to_vec(), b"1".to_vec())]);
        }
    }

    #[test]
    fn trailers_are_bounded_however_they_arrive() {
        for (fill, fits) in [(TRAILERS_MAX_BYTES - 9, true), (TRAILERS_MAX_BYTES, false)] {
            let wire = format!("0\r\nA: {}\r\n\r\nmore", "x".repeat(fill));
            for step in [wire.len(), 1000] {
                let mut reader = BodyReader::new(&head(true, None), false);
                let mut fed = Ok(());
                for part in wire.as_bytes().chunks(step) {
                    fed = fed.and(reader.feed(&mut part.to_vec(), 0));
                }
                assert_eq!(fed.is_ok(), fits, "{fill} by {step}");
            }
        }
    }

    #[test]
    fn what_is_good_stays_when_a_chunk_is_bad() {
        let mut buf = b"head3\r\nabc\r\nx".to_vec();
        let mut reader = BodyReader::new(&head(true, None), false);
        assert_eq!(reader.feed(&mut buf, 4), Err(BadBody::Chunks));
        assert_eq!(buf, b"headabc");
    }

    #[test]
    fn lengths_and_excess() {
        let mut reader = BodyReader::new(&head(false, Some(3)), false);
        let mut buf = b"abcd".to_vec();
        reader.feed(&mut buf, 0).unwrap();
        assert_eq!(buf, b"abc");
        assert!(reader.done && reader.excess);
        reader.feed(&mut Vec::new(), 0).unwrap();
        assert!(reader.excess, "what came too much is not forgotten");
        let reader = BodyReader::new(&head(false, Some(3)), true);
        assert!(reader.done);
        let mut reader = BodyReader::new(&head(true, None), false);
        assert_eq!(reader.feed(&mut b"x\r\n".to_vec(), 0), Err(BadBody::Chunks));
    }
}
