//! memcached's text protocol: one `get`, and its answer shown as a CGI program's, a head in text and
//! the value's own bytes.

use crate::scan;
use std::fmt;
use weir_base::date::http_time;

const END: &[u8] = b"\r\nEND\r\n";

/// Writes the request for a key, which is escaped already.
pub fn write_get(key: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"get ");
    out.extend_from_slice(key);
    out.extend_from_slice(b"\r\n");
}

/// Where a head tells a value's flags.
pub const FLAGS_FIELD: &[u8] = b"X-Memcached-Flags";

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    /// In the line that an answer begins with.
    #[default]
    Line,
    /// So much of the value is left.
    Value(u64),
    /// Behind it, so much of [`END`] has come.
    End(usize),
    Done,
}

/// What is wrong with an answer's first line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadAnswer {
    /// The first line is longer than its buffer.
    TooBig,
    /// The line.
    Response(Vec<u8>),
    Key(Vec<u8>, Vec<u8>),
    Flags(Vec<u8>, Vec<u8>),
    Length(Vec<u8>, Vec<u8>),
}

/// In nginx's words.
impl fmt::Display for BadAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lossy = String::from_utf8_lossy;
        let (what, line, key) = match self {
            BadAnswer::TooBig => return f.write_str("upstream sent too big header"),
            BadAnswer::Response(line) => {
                return write!(f, "memcached sent invalid response: \"{}\"", lossy(line));
            }
            BadAnswer::Key(line, key) => ("key", line, key),
            BadAnswer::Flags(line, key) => ("flags", line, key),
            BadAnswer::Length(line, key) => ("length", line, key),
        };
        let (line, key) = (lossy(line), lossy(key));
        write!(f, "memcached sent invalid {what} in response \"{line}\" for key \"{key}\"")
    }
}

/// Takes an answer apart, however it arrives.
#[derive(Debug, Default)]
pub struct Decoder {
    pub key: Vec<u8>,
    /// The bit of a value's flags that says it is compressed; 0 for none.
    gzip_flag: u64,
    /// The first line has fewer bytes than this (`memcached_buffer_size`).
    line_max_bytes: usize,
    /// The head tells the value's flags, in [`FLAGS_FIELD`].
    pub tells_flags: bool,
    /// Its flags are when the value was last modified.
    pub flags_are_time: bool,
    state: State,
    line: Vec<u8>,
    /// There is no value of that key.
    pub missing: bool,
    /// What stood behind the value was not the end.
    pub bad_end: bool,
    /// More came than belongs to the answer.
    pub excess: bool,
}

impl Decoder {
    pub fn new(key: &[u8], gzip_flag: u64, line_max_bytes: usize) -> Decoder {
        Decoder { key: key.to_vec(), gzip_flag, line_max_bytes, ..Decoder::default() }
    }

    /// The answer has come whole, as far as it was one.
    pub fn has_ended(&self) -> bool {
        self.state == State::Done
    }

    /// Takes what was read, `buf[from..]`, and leaves the head in text and the value's bytes there.
    pub fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), BadAnswer> {
        if self.state == State::Line {
            let rest = &buf[from..];
            let found = memchr::memchr(b'\n', rest);
            let len = found.unwrap_or(rest.len());
            if self.line.len() + len >= self.line_max_bytes {
                buf.truncate(from);
                return Err(BadAnswer::TooBig);
            }
            self.line.extend_from_slice(&rest[..len]);
            if found.is_none() {
                buf.truncate(from);
                return Ok(());
            }
            let rest = rest[len + 1..].to_vec();
            buf.truncate(from);
            self.read_line(buf)?;
            let from = buf.len();
            buf.extend_from_slice(&rest);
            self.body(buf, from);
        } else {
            self.body(buf, from);
        }
        Ok(())
    }

    fn body(&mut self, buf: &mut Vec<u8>, from: usize) {
        let mut end = from;
        if let State::Value(left) = &mut self.state {
            let n = usize::try_from(*left).unwrap_or(usize::MAX).min(buf.len() - from);
            *left -= n as u64;
            end += n;
            if *left == 0 {
                self.state = State::End(0);
            }
        }
        self.end(&buf[end..]);
        buf.truncate(end);
    }

    /// Reads what stands behind the value.
    fn end(&mut self, bytes: &[u8]) {
        if bytes.is_empty() {
            return;
        }
        match self.state {
            State::Done => self.excess = true,
            State::End(at) => {
                let n = bytes.len().min(END.len() - at);
                self.excess = bytes.len() > n;
                if bytes[..n] != END[at..at + n] || self.excess {
                    self.bad_end = true;
                    self.state = State::Done;
                } else {
                    self.state = if at + n == END.len() { State::Done } else { State::End(at + n) };
                }
            }
            State::Line | State::Value(_) => {}
        }
    }

    /// Makes the head of what the first line says.
    fn read_line(&mut self, out: &mut Vec<u8>) -> Result<(), BadAnswer> {
        let line = std::mem::take(&mut self.line);
        let Some(text) = line.strip_suffix(b"\r") else { return Err(BadAnswer::Response(line)) };
        if text == b"END" {
            self.missing = true;
            self.state = State::Done;
            out.extend_from_slice(b"Status: 404\r\nContent-Length: 0\r\n\r\n");
            return Ok(());
        }
        let bad = |make: fn(Vec<u8>, Vec<u8>) -> BadAnswer| make(text.to_vec(), self.key.clone());
        let Some(rest) = text.strip_prefix(b"VALUE ") else {
            return Err(BadAnswer::Response(text.to_vec()));
        };
        let rest = rest.strip_prefix(&*self.key).ok_or_else(|| bad(BadAnswer::Key))?;
        let mut words = rest.splitn(3, |b| *b == b' ');
        let (Some(b""), Some(flags), Some(length)) = (words.next(), words.next(), words.next())
        else {
            return Err(BadAnswer::Response(text.to_vec()));
        };
        let mut gzip = false;
        let mut number = 0;
        if self.gzip_flag != 0 || self.tells_flags {
            number = scan::decimal(flags).ok_or_else(|| bad(BadAnswer::Flags))?;
            gzip = number & self.gzip_flag != 0;
        }
        let size = scan::decimal(length).ok_or_else(|| bad(BadAnswer::Length))?;
        self.state = if size == 0 { State::End(0) } else { State::Value(size) };
        out.extend_from_slice(format!("Status: 200\r\nContent-Length: {size}\r\n").as_bytes());
        if gzip {
            out.extend_from_slice(b"Content-Encoding: gzip\r\n");
        }
        if self.tells_flags {
            out.extend_from_slice(&[FLAGS_FIELD, b": ", flags, b"\r\n"].concat());
        }
        if self.flags_are_time {
            let time = http_time(number.min(u64::from(u32::MAX)) as i64);
            out.extend_from_slice(&[b"Last-Modified: ", &time[..], b"\r\n"].concat());
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8], step: usize) -> (Result<Vec<u8>, String>, Decoder) {
        let mut decoder = Decoder::new(b"k", 2, 4096);
        let mut got = Vec::new();
        for part in bytes.chunks(step) {
            let mut buf = b"kept".to_vec();
            buf.extend_from_slice(part);
            if let Err(e) = decoder.decode(&mut buf, 4) {
                return (Err(e.to_string()), decoder);
            }
            got.extend_from_slice(&buf[4..]);
        }
        (Ok(got), decoder)
    }

    #[test]
    fn answers_however_they_arrive() {
        let bytes = b"VALUE k 3 5\r\na\r\nEN\r\nEND\r\n";
        for step in 1..=bytes.len() {
            let (got, decoder) = decoded(bytes, step);
            let wanted =
                b"Status: 200\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\na\r\nEN";
            assert_eq!(got.unwrap(), wanted);
            assert!(decoder.has_ended() && !decoder.bad_end && !decoder.excess);
        }
        let (got, decoder) = decoded(b"END\r\n", 2);
        assert_eq!(got.unwrap(), b"Status: 404\r\nContent-Length: 0\r\n\r\n");
        assert!(decoder.missing && decoder.has_ended());
        let (got, decoder) = decoded(b"VALUE k 0 0\r\n\r\nEND\r\n", 30);
        assert_eq!(got.unwrap(), b"Status: 200\r\nContent-Length: 0\r\n\r\n");
        assert!(decoder.has_ended());
    }

    #[test]
    fn what_is_wrong() {
        for (bytes, text) in [
            (&b"ERROR\r\n"[..], "memcached sent invalid response: \"ERROR\""),
            (
                b"VALUE x 0 1\r\n",
                "memcached sent invalid key in response \"VALUE x 0 1\" for key \"k\"",
            ),
            (
                b"VALUE k x 1\r\n",
                "memcached sent invalid flags in response \"VALUE k x 1\" for key \"k\"",
            ),
            (
                b"VALUE k 0 x\r\n",
                "memcached sent invalid length in response \"VALUE k 0 x\" for key \"k\"",
            ),
            (b"VALUE kk 0 1\r\n", "memcached sent invalid response: \"VALUE kk 0 1\""),
            (b"VALUE k 0\r\n", "memcached sent invalid response: \"VALUE k 0\""),
        ] {
            assert_eq!(decoded(bytes, 100).0.unwrap_err(), text);
        }
        let (got, decoder) = decoded(b"VALUE k 0 1\r\nabEND\r\n", 100);
        assert!(got.unwrap().ends_with(b"\r\n\r\na"));
        assert!(decoder.bad_end && decoder.has_ended());
    }
}
