//! Lines of values with fixed text between them.

use super::raw::{Field, Raw};
use super::Escape;
use memchr::memchr;

/// A value, and the text that ends it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Piece {
    pub field: Field,
    /// Empty for a value at the end of the line.
    pub until: Box<[u8]>,
}

/// What is behind the last piece is not looked at: many logs are a well-known format with something added.
#[derive(Clone, Debug)]
pub struct Text {
    before: Box<[u8]>,
    pieces: Box<[Piece]>,
    is_escaped: bool,
}

/// Texts and fields in turn, while a format is compiled.
pub enum Part {
    Text(Vec<u8>),
    Field(Field),
}

impl Text {
    /// # Errors
    ///
    /// Two values have nothing between them, or what every request has is not there.
    pub fn new(parts: Vec<Part>, escape: Escape) -> Result<Text, String> {
        let mut before = Vec::new();
        let mut pieces: Vec<Piece> = Vec::new();
        let mut is_open = false;
        for part in parts {
            match part {
                Part::Text(text) if text.is_empty() => {}
                Part::Text(text) => {
                    match pieces.last_mut() {
                        Some(last) => last.until = [&*last.until, &text].concat().into(),
                        None => before.extend(text),
                    }
                    is_open = false;
                }
                Part::Field(_) if is_open => {
                    return Err(
                        "two values have nothing between them that could tell them apart".into()
                    )
                }
                Part::Field(field) => {
                    pieces.push(Piece { field, until: Box::default() });
                    is_open = true;
                }
            }
        }
        let has = |fields: &[Field]| pieces.iter().any(|p| fields.contains(&p.field));
        if !has(&[Field::Address]) {
            return Err("there is no client's address in it ($remote_addr)".into());
        }
        if !has(&[Field::TimeLocal, Field::TimeIso, Field::TimeUnix]) {
            return Err("there is no time in it ($time_local, $time_iso8601 or $msec)".into());
        }
        if !has(&[Field::Request, Field::Uri]) {
            return Err("there is no request in it ($request, or $request_uri)".into());
        }
        let is_escaped = escape != Escape::None;
        Ok(Text { before: before.into(), pieces: pieces.into(), is_escaped })
    }

    pub fn split<'a>(&self, line: &'a [u8]) -> Option<Raw<'a>> {
        let mut rest = line.strip_prefix(&*self.before)?;
        let mut raw = Raw::default();
        for piece in &self.pieces {
            let (value, behind) = self.value(piece, rest)?;
            if piece.field != Field::Skipped {
                raw.set(piece.field, value);
            }
            rest = behind;
        }
        Some(raw)
    }

    #[inline]
    fn value<'a>(&self, piece: &Piece, text: &'a [u8]) -> Option<(&'a [u8], &'a [u8])> {
        let Some((first, more)) = piece.until.split_first() else {
            let end = match piece.field {
                Field::Request | Field::Uri | Field::Agent | Field::Referrer | Field::TimeLocal => {
                    text.len()
                }
                _ => memchr(b' ', text).unwrap_or(text.len()),
            };
            return Some((&text[..end], &text[end..]));
        };
        let mut from = 0;
        loop {
            let at = from + memchr(*first, &text[from..])?;
            let is_end = text[at + 1..].starts_with(more)
                && !(self.is_escaped && *first == b'"' && is_behind_backslash(&text[..at]));
            if is_end {
                return Some((&text[..at], &text[at + piece.until.len()..]));
            }
            from = at + 1;
        }
    }
}

/// Whether an odd number of them is at its end.
fn is_behind_backslash(text: &[u8]) -> bool {
    let count = text.iter().rev().take_while(|b| **b == b'\\').count();
    count % 2 == 1
}
