//! Commands that are one line each, a word and its arguments: POP3 (RFC 1939, section 3) and SMTP
//! (RFC 5321, section 4.1.1).
//!
//! A bare LF ends a line; CR stands only before LF. Arguments are parted by any number of spaces.

use super::{Progress, Verdict};
use crate::scan::{Range32, CR, LF};

/// What a protocol's commands are.
pub trait Verb: Copy + 'static {
    /// In capitals.
    const WORDS: &'static [(&'static [u8], Self)];
    const MAX_ARGS: usize;
    /// Whether the rest of the line is one argument, spaces included.
    fn takes_spaces(self) -> bool;
}

/// Reads one line after another.
#[derive(Clone, Debug)]
pub struct Reader {
    /// A line has no more than so many bytes, its end included.
    max_bytes: usize,
    /// There is no LF before this.
    scanned: usize,
    args: Vec<Range32>,
    line: Range32,
}

/// The line is no command, or none with so many arguments.
struct Invalid;

impl Reader {
    pub fn new(max_bytes: usize) -> Reader {
        Reader { max_bytes, scanned: 0, args: Vec::new(), line: Range32::EMPTY }
    }

    /// The arguments of what was read last, in its buffer.
    pub fn args(&self) -> &[Range32] {
        &self.args
    }

    /// From the first byte of a command to the last of its last argument.
    pub fn line(&self) -> Range32 {
        self.line
    }

    /// Reads a command; `buf` begins with it.
    pub fn command<V: Verb>(&mut self, buf: &[u8]) -> Progress<V> {
        self.whole_line(buf, |reader, line| {
            let end = line.iter().position(|b| matches!(*b, b' ' | CR)).unwrap_or(line.len());
            let word = &line[..end];
            let found = V::WORDS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known));
            let verb = found.map(|(_, verb)| *verb).ok_or(Invalid)?;
            reader.line = Range32::new(0, end);
            reader.split(line, end, V::MAX_ARGS, verb.takes_spaces()).map(|()| verb)
        })
    }

    /// Reads what a client says in the course of an authentication: arguments alone, of which the
    /// first begins the line, even if it is empty.
    pub fn response<V: Verb>(&mut self, buf: &[u8]) -> Progress<()> {
        self.whole_line(buf, |reader, line| {
            let end = line.iter().position(|b| matches!(*b, b' ' | CR)).unwrap_or(line.len());
            reader.args.push(Range32::new(0, end));
            reader.split(line, end, V::MAX_ARGS, false)
        })
    }

    fn whole_line<T>(
        &mut self,
        buf: &[u8],
        take: impl FnOnce(&mut Reader, &[u8]) -> Result<T, Invalid>,
    ) -> Progress<T> {
        let view = buf.get(..self.max_bytes).unwrap_or(buf);
        let rest = view.get(self.scanned..).unwrap_or_default();
        let Some(at) = memchr::memchr(LF, rest) else {
            self.scanned = view.len();
            return match view.len() >= self.max_bytes {
                true => Progress::done(view.len(), Verdict::TooLong),
                false => Progress::NeedMore,
            };
        };
        let lf = self.scanned + at;
        self.scanned = 0;
        self.args.clear();
        let verdict = match take(self, view.get(..lf).unwrap_or_default()) {
            Ok(found) => Verdict::Good(found),
            Err(Invalid) => Verdict::Invalid { hides_literal: false },
        };
        Progress::done(lf + 1, verdict)
    }

    /// Takes the arguments behind `from`; `line` is without its LF.
    fn split(&mut self, line: &[u8], from: usize, max: usize, spaces: bool) -> Result<(), Invalid> {
        let text = line.strip_suffix(&[CR]).unwrap_or(line);
        if memchr::memchr(CR, text).is_some() {
            return Err(Invalid);
        }
        let mut at = from;
        loop {
            at += text.get(at..).unwrap_or_default().iter().take_while(|b| **b == b' ').count();
            let rest = text.get(at..).unwrap_or_default();
            if rest.is_empty() {
                return Ok(());
            }
            if self.args.len() >= max {
                return Err(Invalid);
            }
            let len = if spaces { None } else { memchr::memchr(b' ', rest) }.unwrap_or(rest.len());
            self.args.push(Range32::new(at, at + len));
            at += len;
            self.line.end = at as u32;
        }
    }
}
