//! JavaScript without its comments and most of its blanks.
//!
//! Strings, template literals and regular expressions are left alone. Where a `/` may begin an expression is told by
//! what stands before it; a guess that is wrong ends with the line, and has blanks kept that could have gone.

use super::sink::Sink;

/// Behind these no blank is needed.
const TIGHT: &[u8] = b"(,=:[!&|?;>~*{";
/// Behind these a `/` begins a regular expression; and behind `+` and `-` that stand alone.
const BEFORE_REGEX: &[u8] = b"(,=:[!&|?;>~*{}%^<";
/// And behind these words.
const KEYWORDS: [&[u8]; 11] = [
    b"return", b"typeof", b"case", b"in", b"of", b"delete", b"void", b"throw", b"new", b"else",
    b"do",
];
/// What stands in parentheses behind these is followed by a statement, not by an operator.
const HEADS: [&[u8]; 4] = [b"if", b"while", b"for", b"with"];
/// Longer words are none of them.
const WORD_MAX_BYTES: usize = 8;
/// How deep template literals may stand in one another; a text with deeper ones is left alone from there on.
const DEPTH_MAX: usize = 64;
/// The same of parentheses.
const PARENS_MAX: usize = 1024;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Blank {
    None,
    Space,
    Line,
}

#[derive(Clone, Copy)]
enum State {
    Code,
    Quote(u8),
    QuoteEscape(u8),
    Template,
    TemplateEscape,
    /// Behind a `$` in a template literal.
    TemplateDollar,
    /// Behind a `/` that is not written yet.
    Slash,
    Regex {
        class: bool,
    },
    RegexEscape {
        class: bool,
    },
    LineComment,
    Comment,
    CommentStar,
    Untouched,
}

pub struct Script {
    state: State,
    blank: Blank,
    /// The last byte that is no blank, and the one right before it.
    last: u8,
    before: u8,
    /// The last word.
    word: Vec<u8>,
    /// It is a property's name.
    is_property: bool,
    /// Of each parenthesis that is open, whether it stands behind one of [`HEADS`]; and the same of the last that
    /// was closed.
    parens: Vec<bool>,
    was_head: bool,
    /// Of each template literal whose `${` is open: the braces that are open in it.
    open: Vec<u32>,
}

impl Script {
    pub fn new() -> Script {
        Script {
            state: State::Code,
            blank: Blank::None,
            last: 0,
            before: 0,
            word: Vec::new(),
            is_property: false,
            parens: Vec::new(),
            was_head: false,
            open: Vec::new(),
        }
    }

    pub fn put(&mut self, c: u8, out: &mut Sink) {
        match self.state {
            State::Code => self.code(c, out),
            State::Quote(quote) => self.quoted(c, quote, out),
            // The line goes on behind a CR LF, too.
            State::QuoteEscape(quote) => self.copy(
                c,
                out,
                match c {
                    b'\r' => State::QuoteEscape(quote),
                    _ => State::Quote(quote),
                },
            ),
            State::Template | State::TemplateDollar => self.template(c, out),
            State::TemplateEscape => self.copy(c, out, State::Template),
            State::Slash => self.slash(c, out),
            State::Regex { class } => self.regex(c, class, out),
            State::RegexEscape { class } => self.copy(c, out, State::Regex { class }),
            State::LineComment if c == b'\n' => {
                self.blank = Blank::Line;
                self.state = State::Code;
            }
            State::LineComment => {}
            State::Comment | State::CommentStar => self.comment(c),
            State::Untouched => out.put(c),
        }
    }

    /// The script ends here.
    pub fn finish(&mut self, out: &mut Sink) {
        if matches!(self.state, State::Slash) {
            self.write(b'/', out);
        }
        if self.blank == Blank::Line && !is_tight(out.last) {
            out.put(b'\n');
        }
    }

    fn copy(&mut self, c: u8, out: &mut Sink, next: State) {
        out.put(c);
        self.state = next;
    }

    fn code(&mut self, c: u8, out: &mut Sink) {
        match c {
            b'\r' => {}
            b'\n' => self.blank = Blank::Line,
            b' ' | b'\t' => self.blank = self.blank.max(Blank::Space),
            b'/' => self.state = State::Slash,
            b'"' | b'\'' => {
                self.write(c, out);
                self.state = State::Quote(c);
            }
            b'`' => {
                self.write(c, out);
                self.state = State::Template;
            }
            b'{' | b'}' => self.brace(c, out),
            b'(' | b')' => self.paren(c, out),
            _ => self.write(c, out),
        }
    }

    fn paren(&mut self, c: u8, out: &mut Sink) {
        let is_head = is_name(self.last) && !self.is_property && HEADS.contains(&&*self.word);
        self.write(c, out);
        match c {
            b'(' if self.parens.len() == PARENS_MAX => self.state = State::Untouched,
            b'(' => self.parens.push(is_head),
            _ => self.was_head = self.parens.pop().unwrap_or(false),
        }
    }

    fn brace(&mut self, c: u8, out: &mut Sink) {
        self.write(c, out);
        match (self.open.last_mut(), c) {
            (None, _) => {}
            (Some(braces), b'{') => *braces = braces.saturating_add(1),
            (Some(0), _) => {
                self.open.pop();
                self.state = State::Template;
            }
            (Some(braces), _) => *braces -= 1,
        }
    }

    /// A byte of code, and before it the blank that is needed.
    fn write(&mut self, c: u8, out: &mut Sink) {
        let blank = std::mem::replace(&mut self.blank, Blank::None);
        let is_apart = blank != Blank::None;
        if !is_tight(out.last) {
            match blank {
                Blank::None => {}
                Blank::Space => out.put(b' '),
                Blank::Line => out.put(b'\n'),
            }
        }
        out.put(c);
        if is_name(c) {
            if is_apart || !is_name(self.last) {
                self.word.clear();
                self.is_property = self.last == b'.';
            }
            if self.word.len() < WORD_MAX_BYTES {
                self.word.push(c);
            }
        }
        self.before = if is_apart { 0 } else { self.last };
        self.last = c;
    }

    fn quoted(&mut self, c: u8, quote: u8, out: &mut Sink) {
        let next = match c {
            b'\\' => State::QuoteEscape(quote),
            // A string does not go on in the next line: it was none.
            _ if c == quote || c == b'\n' => State::Code,
            _ => State::Quote(quote),
        };
        self.copy(c, out, next);
    }

    fn template(&mut self, c: u8, out: &mut Sink) {
        let is_dollar = matches!(self.state, State::TemplateDollar);
        let next = match c {
            b'\\' => State::TemplateEscape,
            b'`' => State::Code,
            b'$' => State::TemplateDollar,
            b'{' if is_dollar && self.open.len() == DEPTH_MAX => State::Untouched,
            b'{' if is_dollar => {
                self.open.push(0);
                State::Code
            }
            _ => State::Template,
        };
        self.last = c;
        self.copy(c, out, next);
    }

    fn slash(&mut self, c: u8, out: &mut Sink) {
        match c {
            b'/' => self.state = State::LineComment,
            b'*' => self.state = State::Comment,
            _ => {
                self.state = match self.may_be_regex() {
                    true => State::Regex { class: false },
                    false => State::Code,
                };
                self.write(b'/', out);
                self.put(c, out);
            }
        }
    }

    fn may_be_regex(&self) -> bool {
        match self.last {
            0 => true,
            c @ (b'+' | b'-') => self.before != c,
            b')' => self.was_head,
            c if c.is_ascii_alphabetic() => KEYWORDS.contains(&&*self.word),
            c => BEFORE_REGEX.contains(&c),
        }
    }

    fn regex(&mut self, c: u8, class: bool, out: &mut Sink) {
        if c == b'\n' {
            self.state = State::Code;
            return self.code(c, out);
        }
        let next = match c {
            b'\\' => State::RegexEscape { class },
            b'[' => State::Regex { class: true },
            b']' => State::Regex { class: false },
            b'/' if !class => State::Code,
            _ => State::Regex { class },
        };
        self.copy(c, out, next);
    }

    /// What is on both sides of a comment stays apart.
    fn comment(&mut self, c: u8) {
        let was_star = matches!(self.state, State::CommentStar);
        self.blank = self.blank.max(if c == b'\n' { Blank::Line } else { Blank::Space });
        self.state = match c {
            b'*' => State::CommentStar,
            b'/' if was_star => State::Code,
            _ => State::Comment,
        };
    }
}

fn is_name(c: u8) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, b'_' | b'$')
}

fn is_tight(c: u8) -> bool {
    TIGHT.contains(&c) || c == b'\n'
}
