//! CSS without its comments and most of its blanks.
//!
//! Two comments stay, because they hide rules from old browsers: the empty one, and one that ends in `\*/` with all
//! up to the next. A blank in front of `:` stays outside of declarations, where it is a selector's.

use super::sink::{is_space, is_word, Sink};

/// Around these no blank is needed; nor around `:`, but for selectors.
const TIGHT: &[u8] = b";>{},";
const EMPTY: &[u8] = b"/**/";
const HIDES: &[u8] = b"/*\\*/";

#[derive(Clone, Copy)]
enum State {
    Text,
    Quote(u8),
    QuoteEscape(u8),
    /// Behind a `/` that is not written yet.
    Slash,
    /// In a comment: how many bytes, the last and the one before.
    Comment {
        bytes: u8,
        last: u8,
        before: u8,
    },
    /// What a comment hides, and its last byte.
    Hidden(u8),
    /// The comment at its end, and its last byte.
    HiddenEnd(u8),
}

pub struct Style {
    state: State,
    blank: bool,
    /// A comment was here.
    cut: bool,
    /// A bit for each block that is open, the innermost last: it holds declarations.
    blocks: u64,
    /// What comes next begins a rule or a declaration.
    begins: bool,
    /// The rule that has begun is one of `@media`'s kind.
    is_at: bool,
}

impl Style {
    pub fn new() -> Style {
        Style {
            state: State::Text,
            blank: false,
            cut: false,
            blocks: 0,
            begins: true,
            is_at: false,
        }
    }

    pub fn put(&mut self, c: u8, out: &mut Sink) {
        match self.state {
            State::Text => self.text(c, out),
            State::Quote(quote) => {
                out.put(c);
                self.state = match c {
                    b'\\' => State::QuoteEscape(quote),
                    _ if c == quote => State::Text,
                    _ => State::Quote(quote),
                };
            }
            State::QuoteEscape(quote) => {
                out.put(c);
                self.state = State::Quote(quote);
            }
            State::Slash if c == b'*' => {
                self.state = State::Comment { bytes: 0, last: 0, before: 0 };
            }
            State::Slash => {
                self.state = State::Text;
                self.write(b'/', out);
                self.text(c, out);
            }
            State::Comment { bytes, last: b'*', before } if c == b'/' => {
                self.end_comment(bytes == 1, before, out);
            }
            State::Comment { bytes, last, .. } => {
                let bytes = bytes.saturating_add(1);
                self.state = State::Comment { bytes, last: c, before: last };
            }
            State::Hidden(last) => {
                out.put(c);
                let begins = last == b'/' && c == b'*';
                self.state = if begins { State::HiddenEnd(0) } else { State::Hidden(c) };
            }
            State::HiddenEnd(last) if last == b'*' && c == b'/' => {
                out.put_all(b"*/");
                self.state = State::Text;
            }
            State::HiddenEnd(_) => self.state = State::HiddenEnd(c),
        }
    }

    /// The style ends here.
    pub fn finish(&mut self, out: &mut Sink) {
        if matches!(self.state, State::Slash) {
            self.write(b'/', out);
        }
    }

    fn text(&mut self, c: u8, out: &mut Sink) {
        match c {
            _ if is_space(c) => self.blank |= c != b'\r',
            b'/' => self.state = State::Slash,
            b'"' | b'\'' => {
                self.write(c, out);
                self.state = State::Quote(c);
            }
            _ => self.write(c, out),
        }
    }

    fn end_comment(&mut self, is_empty: bool, before: u8, out: &mut Sink) {
        self.state = State::Text;
        if is_empty {
            self.space(0, out);
            out.put_all(EMPTY);
        } else if before == b'\\' {
            self.space(0, out);
            out.put_all(HIDES);
            self.state = State::Hidden(0);
        } else {
            self.cut = true;
        }
    }

    fn write(&mut self, c: u8, out: &mut Sink) {
        self.space(c, out);
        out.put(c);
        if std::mem::replace(&mut self.begins, matches!(c, b'{' | b'}' | b';')) {
            self.is_at = c == b'@';
        }
        match c {
            b'{' => self.blocks = self.blocks << 1 | u64::from(!self.is_at),
            b'}' => self.blocks >>= 1,
            _ => {}
        }
    }

    /// What keeps a byte apart from the one before it.
    fn space(&mut self, next: u8, out: &mut Sink) {
        let blank = std::mem::take(&mut self.blank);
        let cut = std::mem::take(&mut self.cut);
        let is_loose = |c: u8| !TIGHT.contains(&c);
        let selects = next != b':' || self.blocks & 1 == 0;
        if blank && is_loose(out.last) && out.last != b':' && is_loose(next) && selects {
            out.put(b' ');
        } else if !blank && cut && is_word(out.last) && is_word(next) {
            out.put_all(EMPTY);
        }
    }
}
