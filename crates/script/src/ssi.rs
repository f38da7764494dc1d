//! Server side includes: finding commands in a document, `<!--#name key="value" … -->`.
//!
//! A state machine over pieces of the document, however it is cut. What is no command is handed on
//! as ranges of the piece; the first bytes of what may become a command are held back by number
//! alone, because they are known ([`OPENING`]).
//!
//! Bounds: a name has [`NAME_MAX_BYTES`], a value what the caller allows, a command
//! [`PARAMS_MAX`] parameters. What exceeds them, or is no command, is skipped up to `-->`.
//!
//! Differences from nginx: the beginning of a command at the very end of a document is text, where
//! nginx loses it.

pub mod condition;
pub mod value;

use std::ops::Range;

/// What a command begins with.
pub const OPENING: &[u8] = b"<!--#";
/// Of a command's name, and of a parameter's.
pub const NAME_MAX_BYTES: usize = 32;
/// Of one command.
pub const PARAMS_MAX: usize = 16;

#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Command {
    pub name: Vec<u8>,
    pub params: Vec<(Vec<u8>, Vec<u8>)>,
}

impl Command {
    /// The command as it may have been written.
    pub fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(OPENING);
        out.extend_from_slice(&self.name);
        for (key, value) in &self.params {
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

#[derive(PartialEq, Eq, Debug)]
pub enum Event {
    /// Text: so many bytes of [`OPENING`], which came in earlier pieces, and a range of this one.
    Text {
        held: usize,
        range: Range<usize>,
    },
    Command(Command),
    /// Something that begins as a command and is none: why.
    Error(Vec<u8>),
    /// The piece has been read.
    More,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    /// So many bytes of the opening have been seen.
    Text(usize),
    BeforeName,
    Name,
    BeforeParam,
    Param,
    BeforeEqual,
    BeforeValue,
    /// Within these quotes.
    Value(u8),
    Escaped(u8),
    AfterValue,
    /// `-` has been seen where the command may end.
    Dash,
    Dashes,
    /// The command is wrong; how many dashes have been seen.
    Wrong(u8),
}

/// Reads one document.
pub struct Parser {
    state: State,
    /// Of the opening's bytes seen so far, those in earlier pieces.
    held: usize,
    value_max_bytes: usize,
    command: Command,
    error: Vec<u8>,
}

fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\r' | b'\n' | b'\t')
}

impl Parser {
    pub fn new(value_max_bytes: usize) -> Parser {
        Parser {
            state: State::Text(0),
            held: 0,
            value_max_bytes,
            command: Command::default(),
            error: Vec::new(),
        }
    }

    /// The next event in a piece, from `at` on, which is moved behind it.
    pub fn next(&mut self, piece: &[u8], at: &mut usize) -> Event {
        if let State::Text(seen) = self.state {
            if let Some(text) = self.text(piece, at, seen) {
                return text;
            }
        }
        while let Some(&byte) = piece.get(*at) {
            *at += 1;
            if let Some(event) = self.step(byte) {
                return event;
            }
        }
        Event::More
    }

    /// How many bytes of [`OPENING`] the document ends with: they are text.
    pub fn finish(&mut self) -> usize {
        match std::mem::replace(&mut self.state, State::Text(0)) {
            State::Text(_) => std::mem::take(&mut self.held),
            _ => 0,
        }
    }

    /// Reads up to a command. `None` when nothing is in front of it, or of the piece's end.
    fn text(&mut self, piece: &[u8], at: &mut usize, mut seen: usize) -> Option<Event> {
        let begin = *at;
        let mut i = begin;
        while let Some(&byte) = piece.get(i) {
            if seen == 0 {
                let Some(found) = memchr::memchr(b'<', &piece[i..]) else {
                    i = piece.len();
                    break;
                };
                (i, seen) = (i + found + 1, 1);
            } else if byte == OPENING[seen] {
                (i, seen) = (i + 1, seen + 1);
                if seen == OPENING.len() {
                    break;
                }
            } else if self.held > 0 {
                // The byte is looked at again: it may be another beginning.
                *at = i;
                self.state = State::Text(0);
                let held = std::mem::take(&mut self.held);
                return Some(Event::Text { held, range: begin..i });
            } else {
                seen = 0;
            }
        }
        *at = i;
        let range = begin..i - (seen - self.held);
        match seen == OPENING.len() {
            true => {
                (self.state, self.held) = (State::BeforeName, 0);
                self.command = Command::default();
            }
            false => (self.state, self.held) = (State::Text(seen), seen),
        }
        (!range.is_empty()).then_some(Event::Text { held: 0, range })
    }

    fn step(&mut self, byte: u8) -> Option<Event> {
        self.state = match self.state {
            State::Text(_) => return None,
            State::BeforeName | State::Name => self.name(byte),
            State::BeforeParam | State::Param | State::BeforeEqual => self.param(byte),
            State::BeforeValue => match byte {
                b if is_space(b) => State::BeforeValue,
                b'"' | b'\'' => State::Value(byte),
                _ => self.unexpected(byte, "before value of", true),
            },
            State::Value(quote) if byte == quote => State::AfterValue,
            State::Value(quote) => match byte {
                b'\\' => self.value(byte, State::Escaped(quote)),
                _ => self.value(byte, State::Value(quote)),
            },
            State::Escaped(quote) => self.value(byte, State::Value(quote)),
            State::AfterValue => match byte {
                b if is_space(b) => State::BeforeParam,
                b'-' => State::Dash,
                _ => self.unexpected(byte, "after value of", false),
            },
            State::Dash if byte == b'-' => State::Dashes,
            State::Dashes if byte == b'>' => {
                self.state = State::Text(0);
                return Some(Event::Command(std::mem::take(&mut self.command)));
            }
            State::Dash | State::Dashes => {
                self.wrong(&[b"unexpected \"", &[byte], b"\" symbol"], State::Wrong(0))
            }
            State::Wrong(2) if byte == b'>' => {
                self.state = State::Text(0);
                return Some(Event::Error(std::mem::take(&mut self.error)));
            }
            State::Wrong(0) if byte != b'-' => State::Wrong(0),
            State::Wrong(dashes @ (0 | 1)) if byte == b'-' => State::Wrong(dashes + 1),
            State::Wrong(_) => State::Wrong(0),
        };
        None
    }

    fn name(&mut self, byte: u8) -> State {
        let begun = self.state == State::Name;
        match byte {
            b if is_space(b) && begun => State::BeforeParam,
            b if is_space(b) => State::BeforeName,
            b'-' if begun => State::Dash,
            _ if self.command.name.len() == NAME_MAX_BYTES => {
                self.error = [b"the \"", &*self.command.name, &[byte]].concat();
                self.error.extend_from_slice(b"...\" SSI command is too long");
                State::Wrong(0)
            }
            _ => {
                self.command.name.push(byte);
                State::Name
            }
        }
    }

    fn param(&mut self, byte: u8) -> State {
        let key_len = self.command.params.last().map_or(0, |p| p.0.len());
        match (self.state, byte) {
            (State::BeforeParam, b) if is_space(b) => State::BeforeParam,
            (State::BeforeParam, b'-') => State::Dash,
            (State::BeforeParam, _) if self.command.params.len() == PARAMS_MAX => {
                self.wrong(&[b"too many SSI command parameters"], State::Wrong(0))
            }
            (State::BeforeParam, _) => {
                self.command.params.push((vec![byte], Vec::new()));
                State::Param
            }
            (_, b'=') => State::BeforeValue,
            (_, b) if is_space(b) => State::BeforeEqual,
            (State::BeforeEqual, _) | (_, b'-') => self.unexpected(byte, "after", true),
            _ if key_len == NAME_MAX_BYTES => {
                let key = self.key();
                let text = [b"too long \"", &*key, &[byte], b"...\" parameter"].concat();
                self.wrong(&[&text], State::Wrong(0))
            }
            _ => {
                if let Some((key, _)) = self.command.params.last_mut() {
                    key.push(byte);
                }
                State::Param
            }
        }
    }

    fn value(&mut self, byte: u8, then: State) -> State {
        let Some((key, value)) = self.command.params.last_mut() else { return State::Wrong(0) };
        if value.len() < self.value_max_bytes {
            value.push(byte);
            return then;
        }
        let text = [b"too long \"", &**value, &[byte], b"...\" value of \"", key, b"\" parameter"];
        let text = text.concat();
        self.wrong(&[&text], State::Wrong(0))
    }

    fn key(&self) -> Vec<u8> {
        self.command.params.last().map(|p| p.0.clone()).unwrap_or_default()
    }

    /// `dash`: this byte may already be of the command's end.
    fn unexpected(&mut self, byte: u8, place: &str, dash: bool) -> State {
        let key = self.key();
        let text: [&[u8]; 7] = [
            b"unexpected \"",
            &[byte],
            b"\" symbol ",
            place.as_bytes(),
            b" \"",
            &key,
            b"\" parameter",
        ];
        let dashes = u8::from(dash && byte == b'-');
        self.wrong(&text, State::Wrong(dashes))
    }

    fn wrong(&mut self, text: &[&[u8]], then: State) -> State {
        self.error = text.concat();
        self.error.extend_from_slice(b" in \"");
        self.error.extend_from_slice(&self.command.name);
        self.error.extend_from_slice(b"\" SSI command");
        then
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
                if event == Event::More {
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
                    Event::Error(e) => format!("! {}", String::from_utf8(e).unwrap()),
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
