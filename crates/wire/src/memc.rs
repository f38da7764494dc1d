//! memcached's text protocol beyond `get`: the commands, and answers in lines shown as a CGI program's, a
//! head in text and the lines as they came.

use std::fmt;

/// What memcached is told to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Get,
    Set,
    Add,
    Replace,
    Append,
    Prepend,
    Delete,
    Incr,
    Decr,
    FlushAll,
    Stats,
    Version,
}

use Command::*;

const NAMES: [(Command, &str); 12] = [
    (Get, "get"),
    (Set, "set"),
    (Add, "add"),
    (Replace, "replace"),
    (Append, "append"),
    (Prepend, "prepend"),
    (Delete, "delete"),
    (Incr, "incr"),
    (Decr, "decr"),
    (FlushAll, "flush_all"),
    (Stats, "stats"),
    (Version, "version"),
];

/// Longer keys memcached refuses, and may then take the value behind them for commands.
pub const KEY_MAX_BYTES: usize = 250;

impl Command {
    pub fn of(name: &[u8]) -> Option<Command> {
        NAMES.iter().find(|(_, n)| n.as_bytes() == name).map(|(command, _)| *command)
    }

    pub fn name(self) -> &'static str {
        NAMES.iter().find(|(command, _)| *command == self).map_or("", |(_, name)| name)
    }

    /// It brings a value to be stored.
    pub fn stores(self) -> bool {
        matches!(self, Set | Add | Replace | Append | Prepend)
    }

    /// It is about a number.
    pub fn counts(self) -> bool {
        matches!(self, Incr | Decr)
    }

    pub fn has_key(self) -> bool {
        !matches!(self, FlushAll | Stats | Version)
    }

    /// The status that says what a line answers; `None`: it is no answer to that.
    fn status(self, line: &[u8]) -> Option<u16> {
        let number = |line: &[u8]| {
            let digits = line.trim_ascii_end();
            !digits.is_empty() && digits.iter().all(u8::is_ascii_digit)
        };
        match (self, line) {
            (Set | Add | Replace | Append | Prepend, b"STORED") => Some(201),
            (Set | Add | Replace | Append | Prepend, b"NOT_STORED" | b"EXISTS") => Some(200),
            (Delete, b"DELETED") | (FlushAll, b"OK") => Some(200),
            (Version, line) if line.starts_with(b"VERSION ") => Some(200),
            (_, b"NOT_FOUND") if self.has_key() => Some(404),
            (Incr | Decr, line) if number(line) => Some(201),
            _ => None,
        }
    }
}

/// What is wrong with an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BadReply {
    /// It is longer than its buffer.
    TooBig,
    /// The line.
    Line(Command, Vec<u8>),
}

impl fmt::Display for BadReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BadReply::TooBig => f.write_str("upstream sent too big header"),
            BadReply::Line(command, line) => {
                let (name, line) = (command.name(), String::from_utf8_lossy(line));
                write!(f, "memcached sent invalid response for command \"{name}\": \"{line}\"")
            }
        }
    }
}

/// Takes an answer in lines apart, however it arrives.
#[derive(Debug)]
pub struct Reply {
    command: Command,
    /// An answer has fewer bytes than this.
    most_bytes: usize,
    text: Vec<u8>,
    /// Where the line begins that is read next.
    line_at: usize,
    /// The answer has come whole.
    pub done: bool,
    /// The server has refused: what else it makes of the request is not known.
    pub refused: bool,
    /// More came than belongs to the answer.
    pub excess: bool,
}

impl Reply {
    pub fn new(command: Command, most_bytes: usize) -> Reply {
        Reply {
            command,
            most_bytes,
            text: Vec::new(),
            line_at: 0,
            done: false,
            refused: false,
            excess: false,
        }
    }

    /// Takes what was read, `buf[from..]`, and leaves the head in text and the lines there once the
    /// answer is whole.
    pub fn decode(&mut self, buf: &mut Vec<u8>, from: usize) -> Result<(), BadReply> {
        if self.done {
            self.excess |= buf.len() > from;
            buf.truncate(from);
            return Ok(());
        }
        let seen = self.text.len();
        self.text.extend_from_slice(&buf[from..]);
        buf.truncate(from);
        let Some((status, len)) = self.read(seen)? else {
            return match self.text.len() < self.most_bytes {
                true => Ok(()),
                false => Err(BadReply::TooBig),
            };
        };
        if len > self.most_bytes {
            return Err(BadReply::TooBig);
        }
        self.done = true;
        self.excess = self.text.len() > len;
        let shown = if status == 404 { &b""[..] } else { &self.text[..len] };
        let head = format!("Status: {status}\r\nContent-Length: {}\r\n\r\n", shown.len());
        buf.extend_from_slice(head.as_bytes());
        buf.extend_from_slice(shown);
        self.text = Vec::new();
        Ok(())
    }

    /// Reads the lines that are whole; `seen`: so many bytes were there before. Once the answer is whole
    /// its status, and how many bytes it has.
    fn read(&mut self, seen: usize) -> Result<Option<(u16, usize)>, BadReply> {
        let mut look_at = seen.max(self.line_at);
        while let Some(i) = memchr::memchr(b'\n', &self.text[look_at..]) {
            let end = look_at + i + 1;
            let line = &self.text[self.line_at..end];
            let bad = || BadReply::Line(self.command, line.to_vec());
            let line = line.strip_suffix(b"\r\n").ok_or_else(bad)?;
            let is_first = self.line_at == 0;
            let refused = line == b"ERROR"
                || line.starts_with(b"CLIENT_ERROR ")
                || line.starts_with(b"SERVER_ERROR ");
            if is_first && refused {
                self.refused = true;
                return Ok(Some((502, end)));
            }
            match self.command {
                Stats if line == b"END" => return Ok(Some((200, end))),
                Stats if line.starts_with(b"STAT ") => {}
                Stats => return Err(bad()),
                command => {
                    let status = command.status(line).ok_or_else(bad)?;
                    return Ok(Some((status, end)));
                }
            }
            self.line_at = end;
            look_at = end;
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(command: Command, text: &str, step: usize) -> (Result<String, BadReply>, Reply) {
        let mut reply = Reply::new(command, 64);
        let mut got = Vec::new();
        for part in text.as_bytes().chunks(step) {
            let mut buf = b"kept".to_vec();
            buf.extend_from_slice(part);
            if let Err(e) = reply.decode(&mut buf, 4) {
                return (Err(e), reply);
            }
            got.extend_from_slice(&buf[4..]);
        }
        (Ok(String::from_utf8(got).unwrap()), reply)
    }

    #[test]
    fn answers_however_they_arrive() {
        for (command, text, status, body) in [
            (Set, "STORED\r\n", 201, "STORED\r\n"),
            (Add, "NOT_STORED\r\n", 200, "NOT_STORED\r\n"),
            (Replace, "NOT_FOUND\r\n", 404, ""),
            (Delete, "DELETED\r\n", 200, "DELETED\r\n"),
            (Incr, "17  \r\n", 201, "17  \r\n"),
            (Decr, "CLIENT_ERROR no number\r\n", 502, "CLIENT_ERROR no number\r\n"),
            (Stats, "STAT a 1\r\nSTAT b 2\r\nEND\r\n", 200, "STAT a 1\r\nSTAT b 2\r\nEND\r\n"),
            (Version, "VERSION 1.6\r\n", 200, "VERSION 1.6\r\n"),
            (FlushAll, "OK\r\n", 200, "OK\r\n"),
        ] {
            let wanted =
                format!("Status: {status}\r\nContent-Length: {}\r\n\r\n{body}", body.len());
            for step in 1..=text.len() {
                let (got, reply) = decoded(command, text, step);
                assert_eq!(got.as_ref(), Ok(&wanted), "{command:?} {step}");
                assert!(reply.done && !reply.excess);
                assert_eq!(reply.refused, status == 502);
            }
        }
    }

    #[test]
    fn what_is_no_answer() {
        for (command, text) in [
            (Set, "OK\r\n"),
            (Set, "STORED\n"),
            (Incr, "\r\n"),
            (Stats, "STAT a 1\r\nERROR\r\n"),
            (Version, "1.6\r\n"),
            (FlushAll, "NOT_FOUND\r\n"),
        ] {
            let (got, _) = decoded(command, text, 3);
            assert!(matches!(got, Err(BadReply::Line(..))), "{command:?} {text:?}");
        }
        let endless = "STAT a 1\r\n".repeat(20);
        assert_eq!(decoded(Stats, &endless, 10).0, Err(BadReply::TooBig));
        assert_eq!(decoded(Version, &"VERSION ".repeat(20), 10).0, Err(BadReply::TooBig));
        assert!(decoded(Set, "STORED\r\nX", 5).1.excess);
        for (command, name) in NAMES {
            assert_eq!(Command::of(name.as_bytes()), Some(command));
        }
    }
}
