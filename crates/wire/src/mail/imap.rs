//! IMAP4rev1 (RFC 3501), as far as a session goes before it has a server, with `{n+}` (RFC 7888).
//!
//! A command ends with its last line: a literal before that is part of it. As in nginx the end of
//! the line ends a quoted string that was not closed; unlike there it does not go on in the next
//! command, a literal of no bytes is an empty argument, and every BAD has the command's tag.

use super::{AuthMethods, Lists, Progress, Verdict};
use crate::scan::{Range32, CR, LF};
use std::borrow::Cow;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Command {
    Login,
    Authenticate,
    Capability,
    Noop,
    Logout,
    Starttls,
}

const WORDS: &[(&[u8], Command)] = &[
    (b"LOGIN", Command::Login),
    (b"AUTHENTICATE", Command::Authenticate),
    (b"CAPABILITY", Command::Capability),
    (b"NOOP", Command::Noop),
    (b"LOGOUT", Command::Logout),
    (b"STARTTLS", Command::Starttls),
];

pub const GREETING: &[u8] = b"* OK IMAP4 ready\r\n";
/// Behind the tag.
pub const OK: &[u8] = b"OK completed\r\n";
pub const INVALID_COMMAND: &[u8] = b"BAD invalid command\r\n";
/// To a literal that waits for it.
pub const CONTINUE: &[u8] = b"+ OK\r\n";
pub const BYE: &[u8] = b"* BYE\r\n";
/// Instead of a tag that could not be read.
pub const NO_TAG: &[u8] = b"* ";
pub const INTERNAL_ERROR: &[u8] = b"* BAD internal server error\r\n";
pub const CERTIFICATE_ERROR: &[u8] = b"* BYE SSL certificate error\r\n";
pub const NO_CERTIFICATE: &[u8] = b"* BYE No required SSL certificate\r\n";

/// Offered without `imap_capabilities`.
pub const DEFAULT_CAPABILITIES: &[&str] = &["IMAP4", "IMAP4rev1", "UIDPLUS"];

const TAG_MAX_BYTES: usize = 32;
const MAX_ARGS: usize = 3;

/// The answers to CAPABILITY.
pub fn lists(capabilities: &[&[u8]], methods: AuthMethods) -> Lists {
    let mut first = b"* CAPABILITY".to_vec();
    for name in capabilities {
        first.push(b' ');
        first.extend_from_slice(name);
    }
    let auth: String = methods.sasl_names().map(|name| format!(" AUTH={name}")).collect();
    let list = |more: &[&str]| [&first, more.concat().as_bytes(), b"\r\n"].concat();
    Lists {
        plain: list(&[&auth]),
        starttls: list(&[&auth, " STARTTLS"]),
        starttls_only: list(&[" STARTTLS LOGINDISABLED"]),
        auth: Vec::new(),
    }
}

/// An argument in the buffer of its command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Arg {
    pub range: Range32,
    /// A quoted string with backslashes in it.
    pub escaped: bool,
}

impl Arg {
    pub fn value(self, buf: &[u8]) -> Cow<'_, [u8]> {
        let text = self.range.of(buf);
        if !self.escaped {
            return Cow::Borrowed(text);
        }
        let mut out = Vec::with_capacity(text.len());
        let mut bytes = text.iter();
        while let Some(&byte) = bytes.next() {
            out.push(if byte == b'\\' { *bytes.next().unwrap_or(&byte) } else { byte });
        }
        Cow::Owned(out)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Tag,
    BeforeCommand,
    Word,
    BeforeArg,
    Arg,
    Quoted,
    Backslash,
    LiteralLen,
    LiteralPlus,
    LiteralStart,
    Literal,
    AfterLiteral,
    AfterCr,
    Invalid,
}

enum Next {
    On,
    Done,
    /// The client waits before it sends the literal.
    Continue,
    Invalid,
}

/// Reads one command after another.
#[derive(Clone, Debug)]
pub struct Reader {
    /// A command has no more than so many bytes, with what belongs to it in later lines.
    max_bytes: usize,
    /// Bytes of it that the caller has dropped already.
    dropped: usize,
    state: State,
    at: usize,
    tag: Vec<u8>,
    start: usize,
    command: Option<Command>,
    args: Vec<Arg>,
    escaped: bool,
    literal_len: usize,
    synchronizing: bool,
}

impl Reader {
    pub fn new(max_bytes: usize) -> Reader {
        Reader {
            max_bytes,
            dropped: 0,
            state: State::Tag,
            at: 0,
            tag: Vec::new(),
            start: 0,
            command: None,
            args: Vec::new(),
            escaped: false,
            literal_len: 0,
            synchronizing: true,
        }
    }

    pub fn args(&self) -> &[Arg] {
        &self.args
    }

    /// Of the command, with the space behind it; [`NO_TAG`] if there was none to be read.
    pub fn tag(&self) -> &[u8] {
        match self.tag.is_empty() {
            true => NO_TAG,
            false => &self.tag,
        }
    }

    /// Reads a command; `buf` begins with it, and still does when it is called again behind
    /// [`Progress::Continue`].
    pub fn command(&mut self, buf: &[u8]) -> Progress<Command> {
        if buf.is_empty() {
            return Progress::NeedMore;
        }
        if self.at == 0 {
            self.dropped = 0;
            self.tag.clear();
            self.begin(State::Tag);
        }
        self.run(buf)
    }

    /// Reads what a client says in the course of AUTHENTICATE; `buf` begins with it. It counts with
    /// the command, and has its tag.
    pub fn response(&mut self, buf: &[u8]) -> Progress<Command> {
        if self.at == 0 {
            self.begin(State::Arg);
        }
        self.run(buf)
    }

    fn begin(&mut self, state: State) {
        self.state = state;
        self.start = 0;
        self.args.clear();
        (self.escaped, self.synchronizing, self.literal_len) = (false, true, 0);
    }

    fn run(&mut self, buf: &[u8]) -> Progress<Command> {
        let max = self.max_bytes - self.dropped;
        let view = buf.get(..max).unwrap_or(buf);
        while let Some(&byte) = view.get(self.at) {
            let next = match self.state {
                State::Tag | State::BeforeCommand | State::Word => self.head(view, byte),
                State::LiteralLen
                | State::LiteralPlus
                | State::LiteralStart
                | State::Literal
                | State::AfterLiteral => self.literal(byte),
                _ => self.arg(byte),
            };
            self.at += 1;
            match next {
                Next::On => {}
                Next::Continue => return Progress::Continue,
                Next::Done => {
                    let verdict = self.command.map(Verdict::Good);
                    return self.end(verdict.unwrap_or(Verdict::Invalid { hides_literal: false }));
                }
                Next::Invalid => {
                    self.state = State::Invalid;
                    if byte == LF {
                        let hides_literal = ends_with_literal(&view[..self.at - 1]);
                        return self.end(Verdict::Invalid { hides_literal });
                    }
                }
            }
        }
        match view.len() >= max {
            true => self.end(Verdict::TooLong),
            false => Progress::NeedMore,
        }
    }

    fn end(&mut self, verdict: Verdict<Command>) -> Progress<Command> {
        let len = std::mem::take(&mut self.at);
        self.dropped += len;
        // With nothing left of the limit the next line could not say so.
        self.dropped = self.dropped.min(self.max_bytes - 1);
        Progress::done(len, verdict)
    }

    fn head(&mut self, view: &[u8], byte: u8) -> Next {
        let ends_line = matches!(byte, CR | LF);
        match self.state {
            State::Tag => match byte {
                b' ' => {
                    self.tag.extend_from_slice(&view[..=self.at]);
                    self.state = State::BeforeCommand;
                }
                b'-' | b'.' | b'_' if self.at < TAG_MAX_BYTES => {}
                _ if byte.is_ascii_alphanumeric() && self.at < TAG_MAX_BYTES => {}
                _ => return Next::Invalid,
            },
            State::BeforeCommand if byte == b' ' => {}
            State::BeforeCommand if ends_line => return Next::Invalid,
            State::BeforeCommand => {
                self.start = self.at;
                self.state = State::Word;
                return self.head(view, byte);
            }
            _ if ends_line || byte == b' ' => {
                let word = &view[self.start..self.at];
                let found = WORDS.iter().find(|(known, _)| word.eq_ignore_ascii_case(known));
                let Some((_, command)) = found else { return Next::Invalid };
                self.command = Some(*command);
                self.state = State::BeforeArg;
                return self.arg(byte);
            }
            _ if byte.is_ascii_alphabetic() => {}
            _ => return Next::Invalid,
        }
        Next::On
    }

    fn arg(&mut self, byte: u8) -> Next {
        match (self.state, byte) {
            (State::BeforeArg, b' ') => {}
            (State::BeforeArg | State::Arg | State::Quoted, CR | LF) => {
                if self.state != State::BeforeArg {
                    self.push(self.at);
                }
                self.state = State::AfterCr;
                if byte == LF {
                    return Next::Done;
                }
            }
            (State::BeforeArg, _) if self.args.len() >= MAX_ARGS => return Next::Invalid,
            (State::BeforeArg, b'"') => {
                self.start = self.at + 1;
                self.state = State::Quoted;
            }
            (State::BeforeArg, b'{') => {
                (self.literal_len, self.synchronizing) = (0, true);
                self.state = State::LiteralLen;
            }
            (State::BeforeArg, _) => {
                self.start = self.at;
                self.state = State::Arg;
            }
            (State::Arg, b' ') | (State::Quoted, b'"') => {
                self.push(self.at);
                self.state = State::BeforeArg;
            }
            (State::Quoted, b'\\') => {
                self.escaped = true;
                self.state = State::Backslash;
            }
            (State::Arg | State::Quoted, _) => {}
            (State::Backslash, CR | LF) => return Next::Invalid,
            (State::Backslash, _) => self.state = State::Quoted,
            (State::AfterCr, LF) => return Next::Done,
            _ => return Next::Invalid,
        }
        Next::On
    }

    fn literal(&mut self, byte: u8) -> Next {
        match (self.state, byte) {
            (State::LiteralLen, b'0'..=b'9') => {
                let len = self.literal_len.checked_mul(10);
                let len = len.and_then(|len| len.checked_add(usize::from(byte - b'0')));
                let Some(len) = len else { return Next::Invalid };
                self.literal_len = len;
            }
            (State::LiteralLen, b'+') => self.state = State::LiteralPlus,
            (State::LiteralPlus, b'}') => {
                self.synchronizing = false;
                self.state = State::LiteralStart;
            }
            (State::LiteralLen, b'}') => self.state = State::LiteralStart,
            (State::LiteralStart, CR) => {}
            (State::LiteralStart, LF) => {
                self.start = self.at + 1;
                self.state = State::Literal;
                if self.literal_len == 0 {
                    self.push(self.start);
                    self.state = State::AfterLiteral;
                }
                if self.synchronizing {
                    return Next::Continue;
                }
            }
            (State::Literal, _) => {
                self.literal_len -= 1;
                if self.literal_len == 0 {
                    self.push(self.at + 1);
                    self.state = State::AfterLiteral;
                }
            }
            (State::AfterLiteral, b' ' | CR | LF) => {
                self.state = State::BeforeArg;
                return self.arg(byte);
            }
            _ => return Next::Invalid,
        }
        Next::On
    }

    fn push(&mut self, end: usize) {
        let escaped = std::mem::take(&mut self.escaped);
        self.args.push(Arg { range: Range32::new(self.start, end), escaped });
    }
}

/// Whether a literal follows that was announced for nobody: what the client sends next are not
/// commands. `line` is without its LF.
fn ends_with_literal(line: &[u8]) -> bool {
    let text = line.strip_suffix(&[CR]).unwrap_or(line);
    line.len() > b"{1+}".len() && text.ends_with(b"+}")
}

#[cfg(test)]
mod tests;
