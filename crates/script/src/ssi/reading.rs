//! One command behind its opening, however the document is cut.

use super::{whole, Command, NAME_MAX_BYTES, PARAMS_MAX};

/// A part of the piece, or of what is kept of earlier ones.
#[derive(Clone, Copy, Debug)]
pub(super) struct Word {
    pub start: usize,
    pub end: usize,
}

impl Word {
    pub fn of(self, text: &[u8]) -> &[u8] {
        text.get(self.start..self.end).unwrap_or_default()
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    BeforeName,
    Name,
    BeforeParam,
    Key,
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
    /// All of a command has been read.
    Whole,
    /// All of a wrong one.
    WholeWrong,
}

/// What a word was followed by.
enum End {
    /// The piece's end: there may be more of it.
    Piece,
    Byte(u8),
    /// More of it than it may have.
    Full(u8),
}

/// How far it has been read.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Read {
    /// The piece ends within it.
    Part,
    Command,
    Wrong,
}

/// A command that is being read.
pub(super) struct Reading {
    state: State,
    value_max_bytes: usize,
    /// As in [`Command`].
    words: Vec<Word>,
    /// The words are in the piece; else they are in `kept`.
    in_place: bool,
    kept: Vec<u8>,
    error: Vec<u8>,
}

pub(super) fn is_space(b: u8) -> bool {
    matches!(b, b' ' | b'\r' | b'\n' | b'\t')
}

/// How many bytes stand in front of the first that ends them.
#[inline]
pub(super) fn run(text: &[u8], ends: impl Fn(u8) -> bool) -> usize {
    text.iter().position(|b| ends(*b)).unwrap_or(text.len())
}

impl Reading {
    pub fn new(value_max_bytes: usize) -> Reading {
        Reading {
            state: State::BeforeName,
            value_max_bytes,
            words: Vec::new(),
            in_place: true,
            kept: Vec::new(),
            error: Vec::new(),
        }
    }

    pub fn begin(&mut self) {
        (self.state, self.in_place) = (State::BeforeName, true);
        self.words.clear();
    }

    pub fn command<'a>(&'a self, piece: &'a [u8]) -> Command<'a> {
        let text = if self.in_place { piece } else { &self.kept };
        Command { text, words: &self.words }
    }

    /// Why it is wrong.
    pub fn error(&self) -> &[u8] {
        &self.error
    }

    /// Reads on; `at` is moved behind what has been read.
    pub fn go_on(&mut self, piece: &[u8], at: &mut usize) -> Read {
        if self.state == State::BeforeName {
            // There is no word yet that could be kept.
            self.in_place = true;
            match whole::read(piece, *at, self.value_max_bytes, &mut self.words) {
                Some(end) => {
                    *at = end;
                    return Read::Command;
                }
                None => self.words.clear(),
            }
        }
        while *at < piece.len() {
            self.state = self.step(piece, at);
            match self.state {
                State::Whole => return Read::Command,
                State::WholeWrong => return Read::Wrong,
                _ => {}
            }
        }
        if self.in_place {
            self.keep(piece);
        }
        Read::Part
    }

    /// The piece ends within a command.
    fn keep(&mut self, piece: &[u8]) {
        self.in_place = false;
        self.kept.clear();
        for word in &mut self.words {
            let start = self.kept.len();
            self.kept.extend_from_slice(word.of(piece));
            *word = Word { start, end: self.kept.len() };
        }
    }

    /// Reads what is next of a command: what is of a word, or the byte behind it.
    fn step(&mut self, piece: &[u8], at: &mut usize) -> State {
        match self.state {
            State::Name => self.name(piece, at),
            State::Key => self.key(piece, at),
            State::Value(quote) => self.value(piece, at, quote),
            State::Wrong(0) => {
                *at += run(&piece[*at..], |b| b == b'-');
                let dashes = usize::from(*at < piece.len());
                *at += dashes;
                State::Wrong(dashes as u8)
            }
            _ => {
                *at += 1;
                self.between(piece, *at - 1)
            }
        }
    }

    /// Where the byte leads that stands there, which is not within a word.
    fn between(&mut self, piece: &[u8], at: usize) -> State {
        use State::*;
        let byte = piece[at];
        match self.state {
            BeforeName | BeforeParam | BeforeEqual | BeforeValue if is_space(byte) => self.state,
            BeforeName => self.begin_word(piece, at, Name),
            BeforeParam if byte == b'-' => Dash,
            BeforeParam if self.words.len() > 2 * PARAMS_MAX => {
                self.wrong(piece, &[b"too many SSI command parameters"], 0)
            }
            BeforeParam => self.begin_word(piece, at, Key),
            BeforeEqual if byte == b'=' => BeforeValue,
            BeforeEqual => self.unexpected(piece, byte, "after", true),
            BeforeValue if matches!(byte, b'"' | b'\'') => self.begin_value(at + 1, byte),
            BeforeValue => self.unexpected(piece, byte, "before value of", true),
            Escaped(quote) => self.add_to_value(piece, at, Value(quote)),
            AfterValue if is_space(byte) => BeforeParam,
            AfterValue if byte == b'-' => Dash,
            AfterValue => self.unexpected(piece, byte, "after value of", false),
            Dash if byte == b'-' => Dashes,
            Dashes if byte == b'>' => Whole,
            Dash | Dashes => self.wrong(piece, &[b"unexpected \"", &[byte], b"\" symbol"], 0),
            Wrong(1) if byte == b'-' => Wrong(2),
            Wrong(2) if byte == b'>' => WholeWrong,
            _ => Wrong(0),
        }
    }

    fn name(&mut self, piece: &[u8], at: &mut usize) -> State {
        match self.add(piece, at, NAME_MAX_BYTES, |b| is_space(b) || b == b'-') {
            End::Piece => State::Name,
            End::Byte(b'-') => State::Dash,
            End::Byte(_) => State::BeforeParam,
            End::Full(byte) => {
                let name = self.word(piece, 0);
                self.error = [b"the \"", name, &[byte], b"...\" SSI command is too long"].concat();
                State::Wrong(0)
            }
        }
    }

    fn key(&mut self, piece: &[u8], at: &mut usize) -> State {
        let ends = |b| is_space(b) || matches!(b, b'=' | b'-');
        match self.add(piece, at, NAME_MAX_BYTES, ends) {
            End::Piece => State::Key,
            End::Byte(b'=') => State::BeforeValue,
            End::Byte(b'-') => self.unexpected(piece, b'-', "after", true),
            End::Byte(_) => State::BeforeEqual,
            End::Full(byte) => {
                let key = self.word(piece, self.words.len() - 1);
                let text = [b"too long \"", key, &[byte], b"...\" parameter"].concat();
                self.wrong(piece, &[&text], 0)
            }
        }
    }

    fn value(&mut self, piece: &[u8], at: &mut usize, quote: u8) -> State {
        match self.add(piece, at, self.value_max_bytes, |b| b == quote || b == b'\\') {
            End::Piece => State::Value(quote),
            End::Byte(byte) if byte == quote => State::AfterValue,
            End::Byte(_) => self.add_to_value(piece, *at - 1, State::Escaped(quote)),
            End::Full(byte) => self.too_long(piece, byte),
        }
    }

    /// Adds to the last word what is of it.
    #[inline]
    fn add(
        &mut self,
        piece: &[u8],
        at: &mut usize,
        max_bytes: usize,
        ends: impl Fn(u8) -> bool,
    ) -> End {
        let len = run(&piece[*at..], ends);
        let taken = len.min(max_bytes.saturating_sub(self.last_len()));
        self.extend(piece, *at, taken);
        *at += taken;
        let Some(&byte) = piece.get(*at) else { return End::Piece };
        *at += 1;
        match taken < len {
            true => End::Full(byte),
            false => End::Byte(byte),
        }
    }

    /// One byte of a value, whatever it is.
    fn add_to_value(&mut self, piece: &[u8], at: usize, then: State) -> State {
        if self.last_len() >= self.value_max_bytes {
            return self.too_long(piece, piece[at]);
        }
        self.extend(piece, at, 1);
        then
    }

    /// A name or a key begins with this byte, whatever it is.
    fn begin_word(&mut self, piece: &[u8], at: usize, then: State) -> State {
        self.push_word(at);
        self.extend(piece, at, 1);
        then
    }

    fn begin_value(&mut self, at: usize, quote: u8) -> State {
        self.push_word(at);
        State::Value(quote)
    }

    fn push_word(&mut self, at: usize) {
        let start = if self.in_place { at } else { self.kept.len() };
        self.words.push(Word { start, end: start });
    }

    fn last_len(&self) -> usize {
        self.words.last().map_or(0, |word| word.end - word.start)
    }

    #[inline]
    fn extend(&mut self, piece: &[u8], at: usize, len: usize) {
        let end = match self.in_place {
            true => at + len,
            false => {
                self.kept.extend_from_slice(&piece[at..at + len]);
                self.kept.len()
            }
        };
        if let Some(word) = self.words.last_mut() {
            word.end = end;
        }
    }

    fn word<'a>(&'a self, piece: &'a [u8], n: usize) -> &'a [u8] {
        let text = if self.in_place { piece } else { &self.kept };
        self.words.get(n).map_or(b"", |word| word.of(text))
    }

    /// The key of the parameter that was begun last.
    fn last_key<'a>(&'a self, piece: &'a [u8]) -> &'a [u8] {
        self.word(piece, (self.words.len() / 2 * 2).saturating_sub(1))
    }

    fn too_long(&mut self, piece: &[u8], byte: u8) -> State {
        let (key, value) = (self.last_key(piece), self.word(piece, self.words.len() - 1));
        let text = [b"too long \"", value, &[byte], b"...\" value of \"", key, b"\" parameter"];
        let text = text.concat();
        self.wrong(piece, &[&text], 0)
    }

    /// `dash`: this byte may already be of the command's end.
    fn unexpected(&mut self, piece: &[u8], byte: u8, place: &str, dash: bool) -> State {
        let text: [&[u8]; 7] = [
            b"unexpected \"",
            &[byte],
            b"\" symbol ",
            place.as_bytes(),
            b" \"",
            self.last_key(piece),
            b"\" parameter",
        ];
        let text = text.concat();
        self.wrong(piece, &[&text], u8::from(dash && byte == b'-'))
    }

    /// So many dashes of what ends it have been seen.
    fn wrong(&mut self, piece: &[u8], text: &[&[u8]], dashes: u8) -> State {
        let mut error = text.concat();
        error.extend_from_slice(b" in \"");
        error.extend_from_slice(self.word(piece, 0));
        error.extend_from_slice(b"\" SSI command");
        self.error = error;
        State::Wrong(dashes)
    }
}
