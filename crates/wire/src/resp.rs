//! Redis' protocol: how many commands a text holds, and where a number of replies ends. Neither keeps
//! more than a number of what it has seen.

/// Arrays in arrays in arrays: nothing that a server means goes deeper.
const DEPTH_MAX: usize = 16;
/// Lengths have no more digits, with their sign.
const DIGITS_MAX: usize = 20;

/// Writes a command by its words, whatever bytes they have.
pub fn write_command<'a>(words: impl ExactSizeIterator<Item = &'a [u8]>, out: &mut Vec<u8>) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// What a text of commands holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Commands {
    /// Those that are answered.
    pub count: u64,
    /// One of them makes the server say more than an answer to each command.
    pub subscribes: bool,
}

/// Reads commands as a server does: arrays of strings, or lines. `None`: the last is not whole, or one is
/// none, so that what the server makes of it, and of what follows, is not known.
pub fn commands(mut text: &[u8]) -> Option<Commands> {
    let mut all = Commands::default();
    while let Some(first) = text.first() {
        let (line, rest) = split_line(text)?;
        text = rest;
        if *first != b'*' {
            let word = line.split(|b| matches!(b, b' ' | b'\t')).find(|w| !w.is_empty());
            if let Some(word) = word {
                all.add(word);
            }
            continue;
        }
        let strings = number(&line[1..])?;
        for i in 0..strings.max(0) {
            let (line, rest) = split_line(text)?;
            let len = usize::try_from(number(line.strip_prefix(b"$")?)?).ok()?;
            let word = rest.get(..len)?;
            text = rest.get(len..)?.strip_prefix(b"\r\n")?;
            if i == 0 {
                all.add(word);
            }
        }
    }
    Some(all)
}

impl Commands {
    fn add(&mut self, word: &[u8]) {
        const MORE: [&[u8]; 7] = [
            b"subscribe",
            b"psubscribe",
            b"ssubscribe",
            b"unsubscribe",
            b"punsubscribe",
            b"sunsubscribe",
            b"monitor",
        ];
        self.count += 1;
        self.subscribes |= MORE.iter().any(|name| name.eq_ignore_ascii_case(word));
    }
}

/// A line without its end, and what follows.
fn split_line(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = memchr::memchr(b'\n', text)?;
    let line = &text[..end];
    Some((line.strip_suffix(b"\r").unwrap_or(line), &text[end + 1..]))
}

fn number(text: &[u8]) -> Option<i64> {
    let is_short = !text.is_empty() && text.len() <= DIGITS_MAX;
    std::str::from_utf8(text).ok().filter(|_| is_short)?.parse().ok()
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// The byte that says what a reply is.
    Kind,
    /// In a line that only has to end.
    Line,
    /// In the number behind that byte.
    Number { kind: u8, digits: Vec<u8> },
    /// So many bytes of a string are left, with the end of its line.
    Text(u64),
}

/// Finds the end of a number of replies.
#[derive(Debug)]
pub struct Replies {
    /// Replies that are to come.
    left: u64,
    /// What is left of the arrays that are open.
    open: Vec<u64>,
    state: State,
    /// The byte before was a CR.
    after_cr: bool,
}

/// It is no reply: the byte, or the number, that is wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadReply;

impl Replies {
    pub fn new(count: u64) -> Replies {
        Replies { left: count, open: Vec::new(), state: State::Kind, after_cr: false }
    }

    pub fn have_ended(&self) -> bool {
        self.left == 0
    }

    /// How many of these bytes belong to the replies.
    pub fn take(&mut self, bytes: &[u8]) -> Result<usize, BadReply> {
        let mut at = 0;
        while at < bytes.len() && !self.have_ended() {
            at += self.step(&bytes[at..])?;
        }
        Ok(at)
    }

    /// Goes on by one byte at least.
    fn step(&mut self, bytes: &[u8]) -> Result<usize, BadReply> {
        let byte = bytes[0];
        match &mut self.state {
            State::Kind => {
                self.state = match byte {
                    b'+' | b'-' | b':' => State::Line,
                    b'$' | b'*' => State::Number { kind: byte, digits: Vec::new() },
                    _ => return Err(BadReply),
                };
                self.after_cr = false;
                Ok(1)
            }
            State::Line => {
                let Some(end) = memchr::memchr(b'\n', bytes) else {
                    self.after_cr = bytes.last() == Some(&b'\r');
                    return Ok(bytes.len());
                };
                let ends = if end > 0 { bytes[end - 1] == b'\r' } else { self.after_cr };
                if !ends {
                    return Err(BadReply);
                }
                self.ended();
                Ok(end + 1)
            }
            State::Number { kind, digits } => {
                if byte != b'\n' {
                    if digits.len() > DIGITS_MAX {
                        return Err(BadReply);
                    }
                    digits.push(byte);
                    return Ok(1);
                }
                let text = digits.strip_suffix(b"\r").ok_or(BadReply)?;
                let (kind, n) = (*kind, number(text).filter(|n| *n >= -1).ok_or(BadReply)?);
                self.begin(kind, n)?;
                Ok(1)
            }
            State::Text(left) => {
                let n = usize::try_from(*left).unwrap_or(usize::MAX).min(bytes.len());
                *left -= n as u64;
                if *left == 0 {
                    self.ended();
                }
                Ok(n)
            }
        }
    }

    /// A string of so many bytes, or an array of so many replies, begins; -1 is none.
    fn begin(&mut self, kind: u8, n: i64) -> Result<(), BadReply> {
        match (kind, u64::try_from(n)) {
            (b'$', Ok(n)) => self.state = State::Text(n.saturating_add(2)),
            (_, Ok(n @ 1..)) => {
                if self.open.len() == DEPTH_MAX {
                    return Err(BadReply);
                }
                self.open.push(n);
                self.state = State::Kind;
            }
            _ => self.ended(),
        }
        Ok(())
    }

    /// One reply, or item of an array, has ended, and with it maybe those around it.
    fn ended(&mut self) {
        self.state = State::Kind;
        while let Some(left) = self.open.last_mut() {
            *left -= 1;
            if *left > 0 {
                return;
            }
            self.open.pop();
        }
        self.left -= 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_counted_as_a_server_does() {
        let mut text = Vec::new();
        write_command([&b"set"[..], b"a\r\n", b""].into_iter(), &mut text);
        assert_eq!(text, b"*3\r\n$3\r\nset\r\n$3\r\na\r\n\r\n$0\r\n\r\n");
        let count = |text: &[u8]| commands(text).map(|c| c.count);
        assert_eq!(count(&text), Some(1));
        assert_eq!(count(b"flushall\r\nget key1\nget key2\r\n"), Some(3));
        assert_eq!(count(b"\r\n  \r\nping\r\n*0\r\n*-1\r\n"), Some(1));
        assert_eq!(count(b""), Some(0));
        for text in
            [&b"ping"[..], b"*1\r\n$4\r\nping", b"*1\r\n+ping\r\n", b"*x\r\n", b"*1\r\n$-1\r\n"]
        {
            assert_eq!(count(text), None);
        }
        assert!(commands(b"SUBSCRIBE a\r\n").is_some_and(|c| c.subscribes));
    }

    #[test]
    fn replies_end_where_they_do() {
        let text = b"+OK\r\n$5\r\nab\r\nc\r\n*3\r\n:1\r\n*0\r\n*1\r\n$-1\r\n-ERR x\r\n*-1\r\n";
        for step in 1..=text.len() {
            let mut replies = Replies::new(5);
            let mut taken = 0;
            for part in text.chunks(step) {
                assert!(!replies.have_ended());
                taken += replies.take(part).unwrap();
            }
            assert!(replies.have_ended() && taken == text.len(), "{step}");
        }
        assert_eq!(Replies::new(1).take(b"+OK\r\n+more\r\n"), Ok(5));
    }

    #[test]
    fn what_is_no_reply() {
        for text in
            ["HTTP/1.1 400\r\n", "+OK\n", "$x\r\n", "$-2\r\n", "$99999999999999999999999\r\n"]
        {
            assert_eq!(Replies::new(1).take(text.as_bytes()), Err(BadReply), "{text}");
        }
        assert_eq!(Replies::new(1).take("*1\r\n".repeat(20).as_bytes()), Err(BadReply));
        // A number that says as much as it can is no reason to keep anything.
        let mut replies = Replies::new(1);
        assert_eq!(replies.take(b"$9223372036854775807\r\nabc"), Ok(25));
        assert!(!replies.have_ended());
    }
}
