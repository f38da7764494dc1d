//! Words and what ends a run of them, by nginx's rules.
//!
//! A backslash protects the next byte from ending the word; of the pairs only `\"`, `\'`,
//! `\\`, `\t`, `\r` and `\n` are changed, the others stay as written. A `{` right after
//! `$` belongs to the word. Behind a quoted word only white space, `;`, `{` or `)` may
//! follow, and the `)` begins a new word.

use crate::diagnostic::Diagnostic;
use crate::messages;
use crate::source::{FileId, Position, Span};
use crate::tree::Word;

/// nginx's buffer: the most bytes a word or a comment may have, with the byte that ends it.
const MAX_WORD_BYTES: usize = 4096;

/// What [`Lexer::next`] found.
#[derive(Debug)]
pub(crate) enum Statement {
    /// Words ended by `;`.
    Simple(Head),
    /// Words ended by `{`.
    Block(Head),
    /// `}`
    Close,
    Eof,
}

#[derive(Debug)]
pub(crate) struct Head {
    pub name: Word,
    pub args: Vec<Word>,
    /// Where the `;` or `{` stands.
    pub end: u32,
}

pub(crate) struct Lexer<'a> {
    pub text: &'a [u8],
    pub pos: usize,
    pub file: FileId,
    /// The text of `-g` has no limit on words, and an end of its own.
    pub is_command_line: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum End {
    Space,
    Semicolon,
    Brace,
}

impl<'a> Lexer<'a> {
    pub fn new(text: &'a [u8], file: FileId, is_command_line: bool) -> Self {
        Lexer { text, pos: 0, file, is_command_line }
    }

    pub fn next(&mut self) -> Result<Statement, Diagnostic> {
        let mut words: Vec<Word> = Vec::new();
        loop {
            self.skip_blank()?;
            let Some(&byte) = self.text.get(self.pos) else {
                return if words.is_empty() {
                    Ok(Statement::Eof)
                } else {
                    Err(self.unexpected_end(words.last()))
                };
            };
            let end = match byte {
                b';' => Some(End::Semicolon),
                b'{' => Some(End::Brace),
                b'}' if words.is_empty() => {
                    self.pos += 1;
                    return Ok(Statement::Close);
                }
                b'}' => return Err(self.unexpected(words.last())),
                _ => None,
            };
            let end = match end {
                Some(_) if words.is_empty() => return Err(self.unexpected(None)),
                Some(end) => {
                    self.pos += 1;
                    end
                }
                None => {
                    let (word, end) = match byte {
                        b'"' | b'\'' => self.quoted(byte)?,
                        _ => self.bare()?,
                    };
                    words.push(word);
                    end
                }
            };
            if end != End::Space {
                return Ok(self.statement(words, end));
            }
        }
    }

    fn statement(&self, mut words: Vec<Word>, end: End) -> Statement {
        // Never empty here: an end before the first word is refused.
        let name = words.remove(0);
        let head = Head { name, args: words, end: offset(self.pos - 1) };
        match end {
            End::Brace => Statement::Block(head),
            End::Space | End::Semicolon => Statement::Simple(head),
        }
    }

    fn skip_blank(&mut self) -> Result<(), Diagnostic> {
        while let Some(&byte) = self.text.get(self.pos) {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' => self.pos += 1,
                b'#' => {
                    let rest = &self.text[self.pos..];
                    let len = memchr::memchr(b'\n', rest).unwrap_or(rest.len());
                    self.check_length(self.pos, self.pos + len, None)?;
                    self.pos += len;
                }
                _ => break,
            }
        }
        Ok(())
    }

    fn bare(&mut self) -> Result<(Word, End), Diagnostic> {
        let start = self.pos;
        let mut at = start;
        let mut after_dollar = false;
        loop {
            let Some(&byte) = self.text.get(at) else {
                self.check_length(start, at, None)?;
                return Err(self.unexpected_end(None));
            };
            let end = match byte {
                b'{' if after_dollar => {
                    at += 1;
                    continue;
                }
                b' ' | b'\t' | b'\r' | b'\n' => Some(End::Space),
                b';' => Some(End::Semicolon),
                b'{' => Some(End::Brace),
                _ => None,
            };
            if let Some(end) = end {
                self.check_length(start, at, None)?;
                self.pos = at + 1;
                return Ok((self.word(start..at, start..at, false), end));
            }
            after_dollar = byte == b'$';
            at += if byte == b'\\' { 2 } else { 1 };
        }
    }

    fn quoted(&mut self, quote: u8) -> Result<(Word, End), Diagnostic> {
        let open = self.pos;
        let start = open + 1;
        let mut at = start;
        loop {
            match self.text.get(at) {
                Some(&byte) if byte == quote => break,
                Some(b'\\') => at += 2,
                Some(_) => at += 1,
                None => {
                    self.check_length(start, self.text.len(), Some(quote))?;
                    return Err(self.unclosed(open, quote));
                }
            }
        }
        self.check_length(start, at, Some(quote))?;
        let word = self.word(start..at, open..at + 1, true);
        self.pos = at + 1;
        self.check_length(start, self.pos, None)?;
        let end = match self.text.get(self.pos) {
            None | Some(b')') => return Ok((word, End::Space)),
            Some(b' ' | b'\t' | b'\r' | b'\n') => End::Space,
            Some(b';') => End::Semicolon,
            Some(b'{') => End::Brace,
            Some(_) => return Err(self.unexpected(Some(&word))),
        };
        self.pos += 1;
        Ok((word, end))
    }

    fn word(
        &self,
        inner: std::ops::Range<usize>,
        outer: std::ops::Range<usize>,
        quoted: bool,
    ) -> Word {
        let first_in_line = indent(self.text, outer.start).is_some();
        let span = self.span(outer.start, outer.end);
        Word { text: unescape(&self.text[inner]), span, quoted, first_in_line }
    }

    pub fn span(&self, start: usize, end: usize) -> Span {
        Span { file: self.file, start: offset(start), end: offset(end.min(self.text.len())) }
    }

    pub fn position(&self, at: usize) -> Position {
        Position { file: self.file, offset: offset(at) }
    }

    /// nginx gives up when its buffer, filled from `start`, does not hold the byte at `end`
    /// that ends the word; at the end of the file it finds that end first.
    fn check_length(&self, start: usize, end: usize, quote: Option<u8>) -> Result<(), Diagnostic> {
        let too_long = end - start >= MAX_WORD_BYTES && self.text.len() > start + MAX_WORD_BYTES;
        if self.is_command_line || !too_long {
            return Ok(());
        }
        let message = match quote {
            Some(quote) => format!(
                "too long parameter, probably missing terminating \"{}\" character",
                char::from(quote)
            ),
            None => {
                let head = String::from_utf8_lossy(&self.text[start..start + 10]).into_owned();
                format!("too long parameter \"{head}...\" started")
            }
        };
        let hint = match self.text[start] {
            b'#' if quote.is_none() => "a comment line",
            _ => "a word",
        };
        let from = if quote.is_some() { start - 1 } else { start };
        Err(Diagnostic::emerg(message)
            .at(self.position(from))
            .point(self.span(from, start + 10))
            .hint(format!("{hint} can have at most {} bytes", MAX_WORD_BYTES - 1)))
    }

    fn unexpected(&self, before: Option<&Word>) -> Diagnostic {
        let byte = self.text.get(self.pos).copied().unwrap_or_default();
        let shown = String::from_utf8_lossy(&[byte]).into_owned();
        let diagnostic = Diagnostic::emerg(format!("unexpected \"{shown}\""))
            .at(self.position(self.pos))
            .point(self.span(self.pos, self.pos + 1));
        match (byte, before) {
            (b'}', Some(word)) if word.text.ends_with(b"\\;") => {
                diagnostic.point(word.span).hint(messages::SWALLOWED_END.to_owned())
            }
            (b'}', Some(word)) => {
                diagnostic.point(word.span).hint(format!("is a \";\" missing after \"{word}\"?"))
            }
            (b';' | b'{' | b'}', _) | (_, None) => diagnostic,
            (_, Some(_)) => {
                diagnostic.hint("a space or \";\" is needed after the closing quote".to_owned())
            }
        }
    }

    fn unexpected_end(&self, last: Option<&Word>) -> Diagnostic {
        let message = if self.is_command_line {
            "unexpected end of parameter, expecting \";\""
        } else {
            "unexpected end of file, expecting \";\" or \"}\""
        };
        let end = self.text.len();
        let span = last.map_or(self.span(self.pos, end), |word| word.span);
        Diagnostic::emerg(message.to_owned())
            .at(self.position(end))
            .point(span)
            .hint("the last directive is not complete".to_owned())
    }

    fn unclosed(&self, open: usize, quote: u8) -> Diagnostic {
        self.unexpected_end(None)
            .point(self.span(open, open + 1))
            .hint(format!("the string that begins here has no closing {}", char::from(quote)))
    }
}

/// Files are bounded by `MAX_FILE_BYTES`, so every offset fits.
fn offset(at: usize) -> u32 {
    u32::try_from(at).unwrap_or(u32::MAX)
}

/// The white space before a place, when nothing else stands before it in its line.
pub(crate) fn indent(text: &[u8], at: usize) -> Option<&[u8]> {
    let from = memchr::memrchr(b'\n', &text[..at]).map_or(0, |newline| newline + 1);
    let before = &text[from..at];
    before.iter().all(|byte| matches!(byte, b' ' | b'\t')).then_some(before)
}

fn unescape(raw: &[u8]) -> Box<[u8]> {
    if memchr::memchr(b'\\', raw).is_none() {
        return raw.into();
    }
    let mut out = Vec::with_capacity(raw.len());
    let mut rest = raw;
    while let [first, tail @ ..] = rest {
        let pair = match rest {
            [b'\\', b't', ..] => Some(b'\t'),
            [b'\\', b'r', ..] => Some(b'\r'),
            [b'\\', b'n', ..] => Some(b'\n'),
            [b'\\', byte @ (b'"' | b'\'' | b'\\'), ..] => Some(*byte),
            _ => None,
        };
        out.push(pair.unwrap_or(*first));
        rest = if pair.is_some() { &tail[1..] } else { tail };
    }
    out.into()
}
