//! Server side includes: finding commands in a document, `<!--#name key="value" … -->`.
//!
//! A state machine over pieces of the document, however it is cut. What is no command is handed on
//! as ranges of the piece; the first bytes of what may become a command are held back by number
//! alone, because they are known ([`OPENING`]). A command is read where it stands: its words are
//! ranges of the piece, and are copied only when the piece ends within it.
//!
//! Bounds: a name has [`NAME_MAX_BYTES`], a value what the caller allows, a command
//! [`PARAMS_MAX`] parameters. What exceeds them, or is no command, is skipped up to `-->`.
//!
//! Differences from nginx: the beginning of a command at the very end of a document is text, where
//! nginx loses it.

pub mod condition;
mod reading;
pub mod value;
mod whole;

use reading::{Read, Reading, Word};
use std::ops::Range;

/// What a command begins with.
pub const OPENING: &[u8] = b"<!--#";
/// Of a command's name, and of a parameter's.
pub const NAME_MAX_BYTES: usize = 32;
/// Of one command.
pub const PARAMS_MAX: usize = 16;

/// A command as it stands in the document.
#[derive(Clone, Copy, Debug)]
pub struct Command<'a> {
    /// What its words are ranges of.
    text: &'a [u8],
    /// The name; behind it each parameter's key and value.
    words: &'a [Word],
}

impl<'a> Command<'a> {
    pub fn name(&self) -> &'a [u8] {
        self.words.first().map_or(b"", |name| name.of(self.text))
    }

    /// Keys and values, in their order; a backslash is still in front of what it quotes.
    pub fn params(&self) -> impl Iterator<Item = (&'a [u8], &'a [u8])> {
        let text = self.text;
        let pairs = self.words.get(1..).unwrap_or_default().chunks_exact(2);
        pairs.map(move |pair| (pair[0].of(text), pair[1].of(text)))
    }

    /// The command as it may have been written.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(OPENING);
        out.extend_from_slice(self.name());
        for (key, value) in self.params() {
            let quote = if has_bare_quote(value) { b'\'' } else { b'"' };
            out.push(b' ');
            out.extend_from_slice(key);
            out.extend_from_slice(&[b'=', quote]);
            out.extend_from_slice(value);
            out.push(quote);
        }
        out.extend_from_slice(b" -->");
    }
}

/// Whether a value holds a `"` that no backslash is in front of.
fn has_bare_quote(value: &[u8]) -> bool {
    let mut escaped = false;
    value.iter().any(|b| {
        let bare = *b == b'"' && !escaped;
        escaped = *b == b'\\' && !escaped;
        bare
    })
}

#[derive(Debug)]
pub enum Event<'a> {
    /// Text: so many bytes of [`OPENING`], which came in earlier pieces, and a range of this one.
    Text {
        held: usize,
        range: Range<usize>,
    },
    Command(Command<'a>),
    /// Something that begins as a command and is none: why.
    Error(&'a [u8]),
    /// The piece has been read.
    More,
}

/// Reads one document.
pub struct Parser {
    /// Of the opening's bytes, those that the piece before ended with.
    held: usize,
    /// An opening has been read, and not yet what ends its command.
    within: bool,
    reading: Reading,
}

/// Where the first opening is. Of its bytes the last is the one that pages seldom have.
fn find_opening(text: &[u8]) -> Option<usize> {
    let (before, mark) = OPENING.split_at(OPENING.len() - 1);
    let mut marks = memchr::memchr_iter(mark[0], text);
    marks.find(|at| text[..*at].ends_with(before)).map(|at| at - before.len())
}

/// How many bytes at the end may be an opening's first.
fn begun(text: &[u8]) -> usize {
    let tail = &text[text.len().saturating_sub(OPENING.len() - 1)..];
    match tail.contains(&OPENING[0]) {
        true => (1..=tail.len()).rev().find(|n| tail.ends_with(&OPENING[..*n])).unwrap_or(0),
        false => 0,
    }
}

impl Parser {
    pub fn new(value_max_bytes: usize) -> Parser {
        Parser { held: 0, within: false, reading: Reading::new(value_max_bytes) }
    }

    /// The next event in a piece, from `at` on, which is moved behind it. What is within the piece
    /// may be forgotten only when all of it has been read.
    pub fn next<'a>(&'a mut self, piece: &'a [u8], at: &mut usize) -> Event<'a> {
        if !self.within {
            if let Some((held, range)) = self.text(piece, at) {
                return Event::Text { held, range };
            }
            if !self.within {
                return Event::More;
            }
        }
        let read = self.reading.go_on(piece, at);
        self.within = read == Read::Part;
        match read {
            Read::Part => Event::More,
            Read::Command => Event::Command(self.reading.command(piece)),
            Read::Wrong => Event::Error(self.reading.error()),
        }
    }

    /// How many bytes of [`OPENING`] the document ends with: they are text.
    pub fn finish(&mut self) -> usize {
        self.within = false;
        std::mem::take(&mut self.held)
    }

    /// Reads up to a command; what is in front of it, or of the piece's end, if anything is.
    fn text(&mut self, piece: &[u8], at: &mut usize) -> Option<(usize, Range<usize>)> {
        if self.held > 0 {
            return self.go_on_with_opening(piece, at);
        }
        let (begin, rest) = (*at, &piece[*at..]);
        let len = match find_opening(rest) {
            Some(len) => {
                *at += len + OPENING.len();
                self.begin();
                len
            }
            None => {
                *at = piece.len();
                self.held = begun(rest);
                rest.len() - self.held
            }
        };
        (len > 0).then_some((0, begin..begin + len))
    }

    fn go_on_with_opening(
        &mut self,
        piece: &[u8],
        at: &mut usize,
    ) -> Option<(usize, Range<usize>)> {
        let (begin, wanted) = (*at, &OPENING[self.held..]);
        let same = wanted.iter().zip(&piece[begin..]).take_while(|(a, b)| a == b).count();
        *at += same;
        if same == wanted.len() {
            self.begin();
        } else if *at == piece.len() {
            self.held += same;
        } else {
            // What is next may be another's first byte; none of these is.
            return Some((std::mem::take(&mut self.held), begin..*at));
        }
        None
    }

    fn begin(&mut self) {
        (self.held, self.within) = (0, true);
        self.reading.begin();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events of a document in one piece, in words; text is put together.
    fn read(document: &[u8], cuts: &[usize]) -> Vec<String> {
        let mut parser = Parser::new(20);
        let mut text = Vec::new();
        let mut all = Vec::new();
        let mut from = 0;
        for to in cuts.iter().copied().chain([document.len()]) {
            let (piece, mut at) = (&document[from..to], 0);
            loop {
                let event = parser.next(piece, &mut at);
                if let Event::Text { held, range } = &event {
                    text.extend_from_slice(&OPENING[..*held]);
                    text.extend_from_slice(&piece[range.clone()]);
                    continue;
                }
                if matches!(event, Event::More) {
                    break;
                }
                if !text.is_empty() {
                    all.push(String::from_utf8(std::mem::take(&mut text)).unwrap());
                }
                all.push(match event {
                    Event::Command(c) => {
                        let mut out = Vec::new();
                        c.write(&mut out);
                        String::from_utf8(out).unwrap()
                    }
                    Event::Error(e) => format!("! {}", String::from_utf8_lossy(e)),
                    _ => unreachable!(),
                });
            }
            from = to;
        }
        text.extend_from_slice(&OPENING[..parser.finish()]);
        if !text.is_empty() {
            all.push(String::from_utf8(text).unwrap());
        }
        all
    }

    const DOCUMENTS: &[(&str, &[&str])] = &[
        ("plain", &["plain"]),
        ("", &[]),
        ("a<!--#x -->b", &["a", "<!--#x -->", "b"]),
        ("<!--#x--><!--# y  -->", &["<!--#x -->", "<!--#y -->"]),
        ("<<!<!-<!--<!--#x\n-->", &["<<!<!-<!--", "<!--#x -->"]),
        ("<!-- comment --><!--", &["<!-- comment --><!--"]),
        ("<!--#x a=\"1\" b = '2'\tc=\"\" -->", &["<!--#x a=\"1\" b=\"2\" c=\"\" -->"]),
        (r#"<!--#x a='q"' b="\"\\" -->"#, &[r#"<!--#x a='q"' b="\"\\" -->"#]),
        ("<!--#x a=\"-->\"-->", &["<!--#x a=\"-->\" -->"]),
        ("<!--#x a -->z", &["! unexpected \"-\" symbol after \"a\" parameter in \"x\" SSI command", "z"]),
        ("<!--#x a=b -->", &["! unexpected \"b\" symbol before value of \"a\" parameter in \"x\" SSI command"]),
        ("<!--#x a='b'c -->", &["! unexpected \"c\" symbol after value of \"a\" parameter in \"x\" SSI command"]),
        ("<!--#x - -->", &["! unexpected \" \" symbol in \"x\" SSI command"]),
        (
            "<!--#x a='123456789012345678901' -->",
            &["! too long \"123456789012345678901...\" value of \"a\" parameter in \"x\" SSI command"],
        ),
        ("<!--#x never ends", &[]),
    ];

    #[test]
    fn documents() {
        for (document, expected) in DOCUMENTS {
            assert_eq!(read(document.as_bytes(), &[]), *expected, "{document}");
        }
    }

    #[test]
    fn documents_cut_anywhere() {
        for (document, expected) in DOCUMENTS {
            for first in 0..=document.len() {
                for second in first..=document.len() {
                    let read = read(document.as_bytes(), &[first, second]);
                    assert_eq!(read, *expected, "{document} at {first} and {second}");
                }
            }
        }
    }

    #[test]
    fn bounds() {
        let long = "n".repeat(NAME_MAX_BYTES);
        assert_eq!(read(format!("<!--#{long}-->").as_bytes(), &[]), [format!("<!--#{long} -->")]);
        let read_one = |text: String| read(text.as_bytes(), &[]).remove(0);
        assert!(read_one(format!("<!--#{long}n-->")).ends_with("n...\" SSI command is too long"));
        assert!(read_one(format!("<!--#x {long}n='' -->")).contains("too long"));
        let params = "a='' ".repeat(PARAMS_MAX);
        assert!(read_one(format!("<!--#x {params}-->")).starts_with("<!--#x"));
        assert!(read_one(format!("<!--#x {params}b='' -->")).contains("too many"));
    }
}
