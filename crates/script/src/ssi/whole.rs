//! A command that stands in one piece and is right, as most are, at one go. All others are left to
//! [`Reading`](super::reading::Reading), which says what is wrong with them.

use super::reading::{is_space, run, Word};
use super::{NAME_MAX_BYTES, PARAMS_MAX};

struct Cursor<'a> {
    text: &'a [u8],
    /// What of it has not been read.
    rest: &'a [u8],
}

impl Cursor<'_> {
    fn at(&self) -> usize {
        self.text.len() - self.rest.len()
    }

    fn skip_spaces(&mut self) {
        while let [first, behind @ ..] = self.rest {
            if !is_space(*first) {
                break;
            }
            self.rest = behind;
        }
    }

    fn byte(&mut self) -> Option<u8> {
        let (first, behind) = self.rest.split_first()?;
        self.rest = behind;
        Some(*first)
    }

    /// A name that is neither empty nor too long, and what it may end with.
    #[inline(always)]
    fn name(&mut self, ends: impl Fn(u8) -> bool) -> Option<Word> {
        let len = run(self.rest, ends);
        if len == 0 || len > NAME_MAX_BYTES {
            return None;
        }
        let start = self.at();
        self.rest = &self.rest[len..];
        Some(Word { start, end: start + len })
    }

    /// What stands between quotes.
    fn value(&mut self, max_bytes: usize) -> Option<Word> {
        let quote = self.byte().filter(|b| matches!(b, b'"' | b'\''))?;
        let start = self.at();
        loop {
            match self.byte()? {
                b'\\' => self.byte()?,
                byte if byte == quote => break,
                _ => continue,
            };
        }
        let word = Word { start, end: self.at() - 1 };
        (word.end - word.start <= max_bytes).then_some(word)
    }
}

/// Reads from `at` on, behind the opening; answers where it ends.
pub(super) fn read(
    text: &[u8],
    at: usize,
    value_max_bytes: usize,
    words: &mut Vec<Word>,
) -> Option<usize> {
    let mut cursor = Cursor { text, rest: text.get(at..)? };
    cursor.skip_spaces();
    words.push(cursor.name(|b| is_space(b) || b == b'-')?);
    loop {
        cursor.skip_spaces();
        if cursor.rest.starts_with(b"-->") {
            return Some(cursor.at() + 3);
        }
        if words.len() > 2 * PARAMS_MAX {
            return None;
        }
        let key = cursor.name(|b| is_space(b) || matches!(b, b'=' | b'-'))?;
        cursor.skip_spaces();
        cursor.byte().filter(|b| *b == b'=')?;
        cursor.skip_spaces();
        let value = cursor.value(value_max_bytes)?;
        words.extend([key, value]);
        if !cursor.rest.first().is_some_and(|b| is_space(*b) || *b == b'-') {
            return None;
        }
    }
}
