//! One header line after another: the scanner under requests, responses and trailers.
//!
//! What nginx lets through is let through here: a bare LF ends a line, a line without a colon
//! is a name with an empty value, several CRs may stand before the LF, and only spaces (not
//! tabs) are trimmed. Folded lines, spaces before the colon and NUL are refused.

use crate::marks::Lines;
use crate::scan::{self, Range32, CR, CTL_OR_SPACE, LF, NAME};
use crate::target::is_name;

/// What the next bytes of a header block are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FieldEvent {
    Field(Field),
    /// The empty line; the block ended just before `Fields::position`.
    End,
    NeedMore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    pub name: Range32,
    pub value: Range32,
    /// The name holds something other than letters, digits and `-`.
    pub invalid: bool,
}

/// A line that cannot be read at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadField {
    /// The line as far as it was good; the byte after it is the one to blame.
    pub line: Range32,
}

impl BadField {
    /// The way a log shows it: the good part, then the bad byte in hexadecimal.
    pub fn show(&self, buf: &[u8], out: &mut Vec<u8>) {
        out.extend_from_slice(self.line.of(buf));
        if let Some(byte) = buf.get(self.line.end as usize) {
            out.extend_from_slice(format!("\\x{byte:02x}...").as_bytes());
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Start,
    Name,
    BeforeValue,
    Value,
    AfterCr,
    IgnoredLine,
    EndAfterCr,
}

/// How names are judged.
#[derive(Clone, Copy, Debug)]
pub struct FieldRules {
    /// `_` is as good as a letter.
    pub underscores: bool,
    /// Skip a stray second status line, as some origins send.
    pub upstream: bool,
}

/// The resumable scanner.
#[derive(Clone, Copy, Debug, Default)]
pub struct Fields {
    state: State,
    position: usize,
    name_start: usize,
    name_end: usize,
    value_start: usize,
    value_end: usize,
    invalid: bool,
}

impl Fields {
    /// A scanner whose block begins at `position`.
    pub fn at(position: usize) -> Self {
        Fields { position, name_start: position, ..Fields::default() }
    }

    /// Everything before this has been judged.
    pub fn position(&self) -> usize {
        self.position
    }

    /// Where the line being read began.
    pub(crate) fn line_start(&self) -> usize {
        self.name_start
    }

    /// Between lines: nothing of the next one has been read.
    pub(crate) fn between_lines(&self) -> bool {
        self.state == State::Start
    }

    /// Reads on, and stops at the first thing there is to tell.
    pub fn next(&mut self, buf: &[u8], rules: FieldRules) -> Result<FieldEvent, BadField> {
        loop {
            let done = match self.state {
                State::Start => self.start(buf)?,
                State::Name => self.name(buf, rules)?,
                State::BeforeValue => self.before_value(buf),
                State::Value => self.value(buf)?,
                State::AfterCr => self.after_cr(buf)?,
                State::EndAfterCr => return self.end_after_cr(buf),
                State::IgnoredLine => self.ignored_line(buf),
            };
            if let Some(event) = done {
                return Ok(event);
            }
        }
    }

    /// Takes the lines at hand that have nothing odd about them; what then follows is for
    /// [`Fields::next`]. `id_of` knows names by heart, and has the default for others.
    #[inline(always)]
    pub(crate) fn plain_lines<Id: Copy + Default + PartialEq, E>(
        &mut self,
        buf: &[u8],
        id_of: impl Fn(&[u8]) -> Id,
        mut take: impl FnMut(Field, Id) -> Result<(), E>,
    ) -> Result<(), E> {
        if self.state != State::Start {
            return Ok(());
        }
        let mut lines = Lines::of(buf);
        let (mut start, mut last, mut taken) = (self.position, self.name_start, Ok(()));
        while let Some(line) = lines.plain(start) {
            let Some(name) = buf.get(start..line.colon) else { break };
            let id = id_of(name);
            // A name that is known has nothing odd about it; of others the states judge.
            if id == Id::default() && !is_name(buf, start, line.colon) {
                break;
            }
            let name = Range32::new(start, line.colon);
            let value = Range32::new(line.colon + 2, line.end);
            taken = take(Field { name, value, invalid: false }, id);
            if taken.is_err() {
                break;
            }
            last = start;
            start = line.end + 2;
        }
        (self.name_start, self.position) = (last, start);
        taken
    }

    /// Takes the empty line that ends the block, if it is whole and next.
    #[inline(always)]
    pub(crate) fn end_of_block(&mut self, buf: &[u8]) -> bool {
        let next = buf.get(self.position..).and_then(|rest| rest.first_chunk::<2>());
        if self.state != State::Start || next != Some(b"\r\n") {
            return false;
        }
        self.name_start = self.position;
        self.position += 2;
        true
    }

    fn start(&mut self, buf: &[u8]) -> Result<Option<FieldEvent>, BadField> {
        let Some(&b) = buf.get(self.position) else { return Ok(Some(FieldEvent::NeedMore)) };
        self.name_start = self.position;
        self.invalid = false;
        if b == CR {
            self.position += 1;
            self.state = State::EndAfterCr;
        } else if b == LF {
            self.position += 1;
            return Ok(Some(FieldEvent::End));
        } else if scan::is(b, CTL_OR_SPACE) || b == b':' {
            return Err(self.bad(self.position));
        } else {
            self.state = State::Name;
        }
        Ok(None)
    }

    fn name(&mut self, buf: &[u8], rules: FieldRules) -> Result<Option<FieldEvent>, BadField> {
        loop {
            self.position = scan::skip(buf, self.position, NAME);
            let Some(&b) = buf.get(self.position) else { return Ok(Some(FieldEvent::NeedMore)) };
            match b {
                b':' => {
                    self.name_end = self.position;
                    self.position += 1;
                    self.state = State::BeforeValue;
                    return Ok(None);
                }
                b'_' => self.invalid |= !rules.underscores,
                CR | LF => {
                    self.name_end = self.position;
                    self.empty_value();
                    return Ok(self.line_break(b));
                }
                b'/' if rules.upstream && self.is_status_line(buf) => {
                    self.state = State::IgnoredLine;
                    return Ok(None);
                }
                _ if scan::is(b, CTL_OR_SPACE) => return Err(self.bad(self.position)),
                _ => self.invalid = true,
            }
            self.position += 1;
        }
    }

    fn before_value(&mut self, buf: &[u8]) -> Option<FieldEvent> {
        while buf.get(self.position) == Some(&b' ') {
            self.position += 1;
        }
        if self.position >= buf.len() {
            return Some(FieldEvent::NeedMore);
        }
        self.empty_value();
        self.state = State::Value;
        None
    }

    fn value(&mut self, buf: &[u8]) -> Result<Option<FieldEvent>, BadField> {
        self.position = scan::value_end(buf, self.position);
        let Some(&b) = buf.get(self.position) else { return Ok(Some(FieldEvent::NeedMore)) };
        if b == 0 {
            return Err(self.bad(self.position));
        }
        let value = buf.get(self.value_start..self.position).unwrap_or_default();
        let spaces = value.iter().rev().take_while(|&&b| b == b' ').count();
        self.value_end = self.position - spaces;
        Ok(self.line_break(b))
    }

    fn after_cr(&mut self, buf: &[u8]) -> Result<Option<FieldEvent>, BadField> {
        while buf.get(self.position) == Some(&CR) {
            self.position += 1;
        }
        match buf.get(self.position) {
            None => Ok(Some(FieldEvent::NeedMore)),
            Some(&LF) => Ok(self.line_break(LF)),
            Some(_) => Err(self.bad(self.value_end)),
        }
    }

    fn end_after_cr(&mut self, buf: &[u8]) -> Result<FieldEvent, BadField> {
        match buf.get(self.position) {
            None => Ok(FieldEvent::NeedMore),
            Some(&LF) => {
                self.position += 1;
                self.state = State::Start;
                Ok(FieldEvent::End)
            }
            Some(_) => Err(self.bad(self.name_start)),
        }
    }

    fn ignored_line(&mut self, buf: &[u8]) -> Option<FieldEvent> {
        let rest = buf.get(self.position..).unwrap_or_default();
        match memchr::memchr(LF, rest) {
            Some(n) => {
                self.position += n + 1;
                self.state = State::Start;
                None
            }
            None => {
                self.position = buf.len();
                Some(FieldEvent::NeedMore)
            }
        }
    }

    fn line_break(&mut self, b: u8) -> Option<FieldEvent> {
        self.position += 1;
        if b == CR {
            self.state = State::AfterCr;
            return None;
        }
        self.state = State::Start;
        Some(FieldEvent::Field(Field {
            name: Range32::new(self.name_start, self.name_end),
            value: Range32::new(self.value_start, self.value_end),
            invalid: self.invalid,
        }))
    }

    fn empty_value(&mut self) {
        self.value_start = self.position;
        self.value_end = self.position;
    }

    fn is_status_line(&self, buf: &[u8]) -> bool {
        buf.get(self.name_start..self.position) == Some(b"HTTP")
    }

    #[cold]
    fn bad(&self, at: usize) -> BadField {
        BadField { line: Range32::new(self.name_start, at) }
    }
}
