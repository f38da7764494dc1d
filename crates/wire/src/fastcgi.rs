//! FastCGI 1.0: the records of a request, and an answer's records taken apart.
//!
//! A connection carries one request at a time, whose id is 1. What a record holds of standard output
//! is left where it was read, so that the rest of the answer's way is the same as without records.

use std::fmt;

const VERSION: u8 = 1;
const BEGIN_REQUEST: u8 = 1;
const END_REQUEST: u8 = 3;
const PARAMS: u8 = 4;
const STDIN: u8 = 5;
const STDOUT: u8 = 6;
const STDERR: u8 = 7;
/// Of standard error, padding and empty records in a row: a program that never comes to its answer.
const ASIDE_MAX_BYTES: usize = 16 * 1024 * 1024;

const RESPONDER: u8 = 1;
const KEEP_CONN: u8 = 1;
const HEADER_BYTES: usize = 8;
/// The most that one record holds.
pub const RECORD_MAX_BYTES: usize = 65535;
/// Parts of a body go out in records of this size.
const STDIN_BYTES: usize = 32 * 1024;

fn write_header(kind: u8, len: usize, out: &mut Vec<u8>) -> u8 {
    let [high, low] = (len as u16).to_be_bytes();
    // Records begin at multiples of eight, as the specification recommends.
    let padding = (8 - len % 8) as u8 % 8;
    out.extend_from_slice(&[VERSION, kind, 0, 1, high, low, padding, 0]);
    padding
}

/// A length of a name or value.
fn write_length(len: usize, out: &mut Vec<u8>) {
    match u8::try_from(len) {
        Ok(n) if n < 128 => out.push(n),
        _ => out.extend_from_slice(&(len as u32 | 1 << 31).to_be_bytes()),
    }
}

/// Writes a request up to its body.
pub struct RequestWriter<'a> {
    out: &'a mut Vec<u8>,
    /// Where the record of the parameters begins.
    start: usize,
}

/// The parameters are too long for a record: so many bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooBig(pub usize);

impl<'a> RequestWriter<'a> {
    pub fn new(out: &'a mut Vec<u8>, keep_conn: bool) -> RequestWriter<'a> {
        let flags = if keep_conn { KEEP_CONN } else { 0 };
        write_header(BEGIN_REQUEST, 8, out);
        out.extend_from_slice(&[0, RESPONDER, flags, 0, 0, 0, 0, 0]);
        let start = out.len();
        write_header(PARAMS, 0, out);
        RequestWriter { out, start }
    }

    /// Writes one parameter; the value is given in parts.
    pub fn param(&mut self, name: &[u8], value: &[&[u8]]) {
        write_length(name.len(), self.out);
        write_length(value.iter().map(|p| p.len()).sum(), self.out);
        self.out.extend_from_slice(name);
        for part in value {
            self.out.extend_from_slice(part);
        }
    }

    pub fn finish(self) -> Result<(), TooBig> {
        let len = self.out.len() - self.start - HEADER_BYTES;
        if len > RECORD_MAX_BYTES {
            return Err(TooBig(len));
        }
        let mut header = Vec::with_capacity(HEADER_BYTES);
        let padding = write_header(PARAMS, len, &mut header);
        self.out[self.start..self.start + HEADER_BYTES].copy_from_slice(&header);
        self.out.resize(self.out.len() + usize::from(padding), 0);
        if len > 0 {
            write_header(PARAMS, 0, self.out);
        }
        Ok(())
    }
}

/// Writes a part of the request's body.
pub fn write_stdin(bytes: &[u8], out: &mut Vec<u8>) {
    for piece in bytes.chunks(STDIN_BYTES) {
        let padding = write_header(STDIN, piece.len(), out);
        out.extend_from_slice(piece);
        out.resize(out.len() + usize::from(padding), 0);
    }
}

/// Writes the end of the request's body.
pub fn write_stdin_end(out: &mut Vec<u8>) {
    write_header(STDIN, 0, out);
}

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadRecord {
    Version(u8),
    Kind(u8),
    IdHigh(u8),
    IdLow(u8),
    /// Over [`ASIDE_MAX_BYTES`] without a byte of standard output.
    Aside,
}

/// In nginx's words.
impl fmt::Display for BadRecord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadRecord::Version(n) => {
                write!(f, "upstream sent unsupported FastCGI protocol version: {n}")
            }
            BadRecord::Kind(n) => write!(f, "upstream sent invalid FastCGI record type: {n}"),
            BadRecord::IdHigh(n) => {
                write!(f, "upstream sent unexpected FastCGI request id high byte: {n}")
            }
            BadRecord::Aside => f.write_str("upstream sent too much besides standard output"),
            BadRecord::IdLow(n) => {
                write!(f, "upstream sent unexpected FastCGI request id low byte: {n}")
            }
        }
    }
}

/// What stood on standard error, and behind how many bytes of standard output.
pub type Errors = Vec<(usize, Vec<u8>)>;

/// Takes an answer's records apart, however they arrive.
#[derive(Debug, Default)]
pub struct Decoder {
    header: [u8; HEADER_BYTES],
    /// How much of the header has come; all of it inside a record.
    have: usize,
    /// What is left of the record and of its padding.
    left: usize,
    padding: usize,
    /// Bytes of standard output so far.
    written: usize,
    /// The empty record of standard output has come.
    pub closed: bool,
    /// The record of the request's end has begun to come.
    pub ending: bool,
    /// It has come whole.
    pub ended: bool,
    /// More came than belongs to the answer.
    pub excess: bool,
    pub errors: Errors,
    /// Bytes since the last of standard output.
    aside: usize,
}

impl Decoder {
    /// Takes what was read, `buf[from..]`, and leaves standard output's bytes there.
    pub fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), BadRecord> {
        let (mut at, mut end) = (from, from);
        while at < buf.len() {
            if self.ended {
                self.excess = true;
                break;
            }
            if self.have < HEADER_BYTES {
                let byte = buf[at];
                at += 1;
                if let Err(bad) = self.header_byte(byte) {
                    buf.truncate(end);
                    return Err(bad);
                }
                continue;
            }
            let n = self.left.min(buf.len() - at);
            if n > 0 {
                self.content(buf, at..at + n, &mut end);
                at += n;
                self.left -= n;
                self.written += if self.header[1] == STDOUT { n } else { 0 };
            } else {
                let n = self.padding.min(buf.len() - at);
                at += n;
                self.padding -= n;
            }
            self.finish_record();
        }
        self.aside = if end > from { 0 } else { self.aside.saturating_add(buf.len() - from) };
        buf.truncate(end);
        match self.aside > ASIDE_MAX_BYTES {
            true => Err(BadRecord::Aside),
            false => Ok(()),
        }
    }

    fn header_byte(&mut self, byte: u8) -> Result<(), BadRecord> {
        match self.have {
            0 if byte != VERSION => return Err(BadRecord::Version(byte)),
            1 if !matches!(byte, STDOUT | STDERR | END_REQUEST) => {
                return Err(BadRecord::Kind(byte))
            }
            2 if byte != 0 => return Err(BadRecord::IdHigh(byte)),
            3 if byte != 1 => return Err(BadRecord::IdLow(byte)),
            _ => {}
        }
        self.header[self.have] = byte;
        self.have += 1;
        if self.have == HEADER_BYTES {
            self.left = usize::from(u16::from_be_bytes([self.header[4], self.header[5]]));
            self.padding = usize::from(self.header[6]);
            match self.header[1] {
                END_REQUEST => self.ending = true,
                STDOUT if self.left == 0 => self.closed = true,
                _ => {}
            }
            self.finish_record();
        }
        Ok(())
    }

    fn content(&mut self, buf: &mut [u8], range: std::ops::Range<usize>, end: &mut usize) {
        match self.header[1] {
            STDOUT => {
                let len = range.len();
                buf.copy_within(range, *end);
                *end += len;
            }
            STDERR => self.errors.push((self.written, buf[range].to_vec())),
            _ => {}
        }
    }

    fn finish_record(&mut self) {
        if self.have == HEADER_BYTES && self.left == 0 && self.padding == 0 {
            self.have = 0;
            self.ended |= self.header[1] == END_REQUEST;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, content: &[u8], out: &mut Vec<u8>) {
        let padding = write_header(kind, content.len(), out);
        out.extend_from_slice(content);
        out.resize(out.len() + usize::from(padding), 0);
    }

    #[test]
    fn what_stands_beside_the_answer_has_an_end() {
        for (content, padding) in [(&[b'e'; 60_000][..], 0), (b"", 0), (b"", 255)] {
            let mut one = Vec::new();
            record(STDERR, content, &mut one);
            one[6] = padding;
            one.resize(8 + content.len() + usize::from(padding), 0);
            let pieces = ASIDE_MAX_BYTES / one.len();
            let mut decoder = Decoder::default();
            let mut one_more = |records: &[u8]| {
                decoder.errors.clear();
                decoder.decode(&mut records.to_vec(), 0)
            };
            assert!((0..pieces).all(|_| one_more(&one).is_ok()), "{padding}");
            let mut out = Vec::new();
            record(STDOUT, b"x", &mut out);
            assert!(one_more(&out).is_ok());
            assert!((0..pieces).all(|_| one_more(&one).is_ok()), "{padding}");
            assert!(matches!(one_more(&one), Err(BadRecord::Aside)), "{padding}");
        }
    }

    #[test]
    fn a_request() {
        let mut out = Vec::new();
        let mut w = RequestWriter::new(&mut out, true);
        w.param(b"A", &[b"x", b"yz"]);
        w.param(b"LONG", &[&[b'v'; 128]]);
        w.finish().unwrap();
        assert_eq!(&out[..16], [1, 1, 0, 1, 0, 8, 0, 0, 0, 1, 1, 0, 0, 0, 0, 0]);
        assert_eq!(&out[16..24], [1, 4, 0, 1, 0, 143, 1, 0]);
        assert_eq!(&out[24..30], b"\x01\x03Axyz");
        assert_eq!(&out[30..39], b"\x04\x80\0\0\x80LONG");
        assert_eq!(&out[out.len() - 9..], b"\0\x01\x04\0\x01\0\0\0\0");
        let mut body = Vec::new();
        write_stdin(&[7; STDIN_BYTES + 3], &mut body);
        write_stdin_end(&mut body);
        assert_eq!(&body[..8], [1, 5, 0, 1, 0x80, 0, 0, 0]);
        assert_eq!(
            &body[8 + STDIN_BYTES..],
            [1, 5, 0, 1, 0, 3, 5, 0, 7, 7, 7, 0, 0, 0, 0, 0, 1, 5, 0, 1, 0, 0, 0, 0]
        );
    }

    #[test]
    fn too_many_parameters_for_a_record() {
        let mut out = Vec::new();
        let mut w = RequestWriter::new(&mut out, false);
        w.param(b"A", &[&[0; RECORD_MAX_BYTES]]);
        assert_eq!(w.finish(), Err(TooBig(RECORD_MAX_BYTES + 6)));
    }

    #[test]
    fn an_answer_however_it_arrives() {
        let mut bytes = Vec::new();
        record(STDERR, b"early", &mut bytes);
        record(STDOUT, b"Status: 200\r\n\r\nab", &mut bytes);
        record(STDERR, b"late", &mut bytes);
        record(STDOUT, b"cde", &mut bytes);
        record(STDOUT, b"", &mut bytes);
        record(END_REQUEST, &[0; 8], &mut bytes);
        for step in 1..=bytes.len() {
            let mut decoder = Decoder::default();
            let mut got = Vec::new();
            for part in bytes.chunks(step) {
                let mut buf = b"kept".to_vec();
                buf.extend_from_slice(part);
                assert!(!decoder.ended);
                decoder.decode(&mut buf, 4).unwrap();
                assert_eq!(&buf[..4], b"kept");
                got.extend_from_slice(&buf[4..]);
            }
            assert_eq!(got, b"Status: 200\r\n\r\nabcde");
            assert!(decoder.closed && decoder.ended && !decoder.excess);
            let early: Vec<u8> =
                decoder.errors.iter().filter(|e| e.0 == 0).flat_map(|e| e.1.clone()).collect();
            assert_eq!(early, b"early");
            let late: Vec<u8> =
                decoder.errors.iter().filter(|e| e.0 == 17).flat_map(|e| e.1.clone()).collect();
            assert_eq!(late, b"late");
        }
        let mut decoder = Decoder::default();
        bytes.push(1);
        decoder.decode(&mut bytes, 0).unwrap();
        assert!(decoder.excess);
    }

    #[test]
    fn bad_records() {
        for (bytes, bad) in [
            (&b"H"[..], BadRecord::Version(b'H')),
            (b"\x01\x01", BadRecord::Kind(1)),
            (b"\x01\x06\x01", BadRecord::IdHigh(1)),
            (b"\x01\x06\0\x02", BadRecord::IdLow(2)),
        ] {
            let mut buf = bytes.to_vec();
            assert_eq!(Decoder::default().decode(&mut buf, 0), Err(bad));
            assert!(buf.is_empty());
        }
    }
}
