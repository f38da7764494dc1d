//! The parsed configuration.

use std::borrow::Cow;
use std::fmt;

use crate::source::{Position, Span};

/// One word, unescaped; `span` covers it as written, quotes included.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Word {
    pub text: Box<[u8]>,
    pub span: Span,
    /// Written in quotes; nginx itself makes no difference.
    pub quoted: bool,
    /// Nothing but white space stands before it in its line.
    pub first_in_line: bool,
}

impl Word {
    pub fn as_bytes(&self) -> &[u8] {
        &self.text
    }

    /// For people to read: what is not UTF-8 is replaced.
    pub fn to_str(&self) -> Cow<'_, str> {
        String::from_utf8_lossy(&self.text)
    }
}

impl fmt::Display for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.to_str())
    }
}

impl PartialEq<[u8]> for Word {
    fn eq(&self, other: &[u8]) -> bool {
        *self.text == *other
    }
}

impl PartialEq<str> for Word {
    fn eq(&self, other: &str) -> bool {
        *self.text == *other.as_bytes()
    }
}

impl PartialEq<&str> for Word {
    fn eq(&self, other: &&str) -> bool {
        *self == **other
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Directive {
    pub name: Word,
    pub args: Vec<Word>,
    pub body: Body,
    /// From the name to the `;` or `}` that ends the directive, itself included.
    pub span: Span,
    /// Where the `;` or `{` behind the last argument stands: nginx reports this line.
    pub head_end: u32,
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Body {
    None,
    Block(Vec<Directive>),
    /// The text between the braces of a block that is in another language.
    Raw(Word),
}

impl Directive {
    /// The place of errors found when the directive's head has been read.
    pub fn position(&self) -> Position {
        Position { file: self.span.file, offset: self.head_end }
    }

    /// The place of errors found when the block is complete.
    pub fn end_position(&self) -> Position {
        Position { file: self.span.file, offset: self.span.end.saturating_sub(1) }
    }

    pub fn word(&self, at: usize) -> Option<&Word> {
        self.args.get(at)
    }

    /// The directives inside; none when there is no block.
    pub fn children(&self) -> &[Directive] {
        match &self.body {
            Body::Block(children) => children,
            Body::None | Body::Raw(_) => &[],
        }
    }

    pub fn is_block(&self) -> bool {
        !matches!(self.body, Body::None)
    }
}
