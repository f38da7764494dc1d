//! One value asked of Redis, and the replies shown as a CGI program's answer: a head in text and the value's
//! own bytes. A value is asked for together with what has to go before it on any connection: who asks, and which
//! database.

use crate::resp::write_command;
use crate::scan;
use std::fmt;

const END: &[u8] = b"\r\n";

/// Writes the commands for a value, all in one; without a password nobody is told of any.
pub fn write_get(password: Option<&[u8]>, db: &[u8], key: &[u8], out: &mut Vec<u8>) {
    if let Some(password) = password {
        write_command([&b"AUTH"[..], password].into_iter(), out);
    }
    write_command([&b"SELECT"[..], db].into_iter(), out);
    write_command([&b"GET"[..], key].into_iter(), out);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// So many commands are to be answered with `+OK` before the value's line.
    Line(u8),
    /// So much of the value is left.
    Value(u64),
    /// Behind it, so much of [`END`] has come.
    End(usize),
    Done,
}

/// What is wrong with a reply's line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadAnswer {
    /// The line is longer than its buffer.
    TooBig,
    /// Redis says no; the line.
    Error(Vec<u8>),
    /// It is none that was asked for.
    Response(Vec<u8>),
    Length(Vec<u8>),
}

impl fmt::Display for BadAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lossy = String::from_utf8_lossy;
        match self {
            BadAnswer::TooBig => f.write_str("upstream sent too big header"),
            BadAnswer::Error(line) => {
                write!(f, "redis sent error in response \"{}\"", lossy(line))
            }
            BadAnswer::Response(line) => {
                write!(f, "redis sent invalid response: \"{}\"", lossy(line))
            }
            BadAnswer::Length(line) => {
                write!(f, "redis sent invalid length in response \"{}\"", lossy(line))
            }
        }
    }
}

/// Takes the replies to [`write_get`] apart, however they arrive.
#[derive(Debug)]
pub struct Decoder {
    /// The head says that the value is compressed.
    says_gzip: bool,
    line_max_bytes: usize,
    state: State,
    line: Vec<u8>,
    /// There is no value of that key.
    pub missing: bool,
    /// What stood behind the value was not the end.
    pub bad_end: bool,
    /// More came than belongs to the replies.
    pub excess: bool,
}

impl Decoder {
    /// `commands`: how many go before the one for the value; a line has fewer bytes than `line_max_bytes`.
    pub fn new(commands: u8, says_gzip: bool, line_max_bytes: usize) -> Decoder {
        Decoder {
            says_gzip,
            line_max_bytes,
            state: State::Line(commands),
            line: Vec::new(),
            missing: false,
            bad_end: false,
            excess: false,
        }
    }

    /// The replies have come whole, as far as they were some.
    pub fn has_ended(&self) -> bool {
        self.state == State::Done
    }

    /// Takes what was read, `buf[from..]`, and leaves the head in text and the value's bytes there.
    pub fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), BadAnswer> {
        if !matches!(self.state, State::Line(_)) {
            self.body(buf, from);
            return Ok(());
        }
        let rest = buf.split_off(from);
        let mut rest = &rest[..];
        while let State::Line(before) = self.state {
            let found = memchr::memchr(b'\n', rest);
            let len = found.unwrap_or(rest.len());
            if self.line.len() + len >= self.line_max_bytes {
                return Err(BadAnswer::TooBig);
            }
            self.line.extend_from_slice(&rest[..len]);
            if found.is_none() {
                return Ok(());
            }
            rest = &rest[len + 1..];
            let line = std::mem::take(&mut self.line);
            self.read_line(before, line, buf)?;
        }
        let from = buf.len();
        buf.extend_from_slice(rest);
        self.body(buf, from);
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
                self.bad_end = bytes[..n] != END[at..at + n];
                let is_over = self.bad_end || at + n == END.len();
                self.state = if is_over { State::Done } else { State::End(at + n) };
            }
            State::Line(_) | State::Value(_) => {}
        }
    }

    fn read_line(&mut self, before: u8, line: Vec<u8>, out: &mut Vec<u8>) -> Result<(), BadAnswer> {
        let Some(text) = line.strip_suffix(b"\r") else { return Err(BadAnswer::Response(line)) };
        if text.starts_with(b"-") {
            return Err(BadAnswer::Error(text.to_vec()));
        }
        if let Some(left) = before.checked_sub(1) {
            self.state = State::Line(left);
            return match text {
                b"+OK" => Ok(()),
                _ => Err(BadAnswer::Response(text.to_vec())),
            };
        }
        if text == b"$-1" {
            self.missing = true;
            self.state = State::Done;
            out.extend_from_slice(b"Status: 404\r\nContent-Length: 0\r\n\r\n");
            return Ok(());
        }
        let length = text.strip_prefix(b"$").ok_or_else(|| BadAnswer::Response(text.to_vec()))?;
        let size = scan::decimal(length).ok_or_else(|| BadAnswer::Length(text.to_vec()))?;
        self.state = if size == 0 { State::End(0) } else { State::Value(size) };
        out.extend_from_slice(format!("Status: 200\r\nContent-Length: {size}\r\n").as_bytes());
        if self.says_gzip {
            out.extend_from_slice(b"Content-Encoding: gzip\r\n");
        }
        out.extend_from_slice(b"\r\n");
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(bytes: &[u8], step: usize) -> (Result<Vec<u8>, String>, Decoder) {
        let mut decoder = Decoder::new(2, true, 64);
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
    fn what_is_asked() {
        let mut out = Vec::new();
        write_get(Some(b"p\r\n"), b"3", b"k", &mut out);
        let wanted = "*2\r\n$4\r\nAUTH\r\n$3\r\np\r\n\r\n*2\r\n$6\r\nSELECT\r\n$1\r\n3\r\n*2\r\n$3\r\nGET\r\n$1\r\nk\r\n";
        assert_eq!(out, wanted.as_bytes());
    }

    #[test]
    fn answers_however_they_arrive() {
        let bytes = b"+OK\r\n+OK\r\n$5\r\na\r\n$1\r\n";
        for step in 1..=bytes.len() {
            let (got, decoder) = decoded(bytes, step);
            let wanted =
                b"Status: 200\r\nContent-Length: 5\r\nContent-Encoding: gzip\r\n\r\na\r\n$1";
            assert_eq!(got.unwrap(), wanted);
            assert!(decoder.has_ended() && !decoder.bad_end && !decoder.excess);
        }
        for step in 1..=15 {
            let (got, decoder) = decoded(b"+OK\r\n+OK\r\n$-1\r\n", step);
            assert_eq!(got.unwrap(), b"Status: 404\r\nContent-Length: 0\r\n\r\n");
            assert!(decoder.missing && decoder.has_ended() && !decoder.excess);
        }
        assert!(decoded(b"+OK\r\n+OK\r\n$0\r\n\r\n", 3).1.has_ended());
        assert!(decoded(b"+OK\r\n+OK\r\n$-1\r\n+", 3).1.excess);
        assert!(decoded(b"+OK\r\n+OK\r\n$1\r\na\r\n+", 100).1.excess);
        assert!(decoded(b"+OK\r\n+OK\r\n$1\r\nab\r\n", 100).1.bad_end);
        assert!(!decoded(b"+OK\r\n+OK\r\n$3\r\nab", 100).1.has_ended());
    }

    #[test]
    fn what_is_wrong() {
        for (bytes, text) in [
            (&b"-ERR x\r\n"[..], "redis sent error in response \"-ERR x\""),
            (b"+OK\r\n+OK\r\n-WRONGTYPE\r\n", "redis sent error in response \"-WRONGTYPE\""),
            (b"+OK\r\n$1\r\n", "redis sent invalid response: \"$1\""),
            (b"+OK\r\n+OK\r\n+OK\r\n", "redis sent invalid response: \"+OK\""),
            (b"+OK\n", "redis sent invalid response: \"+OK\""),
            (b"+OK\r\n+OK\r\n$-2\r\n", "redis sent invalid length in response \"$-2\""),
            (&[b'x'; 64], "upstream sent too big header"),
        ] {
            assert_eq!(decoded(bytes, 100).0.unwrap_err(), text);
        }
    }
}
