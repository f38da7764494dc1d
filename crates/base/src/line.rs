//! Text from variables that has to stay one line: header fields, request lines, lines of a log.
//!
//! A URI is decoded before it is used, so that `%0d%0a` becomes a line end in every variable that is
//! made of it (RFC 9110, section 5.5: a sender must not generate CR, LF or NUL in a field's value).

use crate::escape::{escape_uri, needs_escape, EscapeKind};
use std::borrow::Cow;

/// Whether a line of a protocol would be broken by it.
#[inline]
pub fn is_broken(text: &[u8]) -> bool {
    memchr::memchr3(b'\r', b'\n', 0, text).is_some()
}

/// Whether anything in it is not text.
pub fn has_controls(text: &[u8]) -> bool {
    needs_escape(text, EscapeKind::Controls)
}

/// A field's value in one line: what would break it becomes a space.
pub fn one_line(text: &[u8]) -> Cow<'_, [u8]> {
    match is_broken(text) {
        false => Cow::Borrowed(text),
        true => {
            let mut text = text.to_vec();
            blank_breaks(&mut text);
            Cow::Owned(text)
        }
    }
}

pub fn blank_breaks(text: &mut [u8]) {
    text.iter_mut().filter(|b| matches!(b, b'\r' | b'\n' | 0)).for_each(|b| *b = b' ');
}

/// A URI in one line: control characters are encoded, the rest is as it was.
pub fn encoded(uri: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(uri.len() + 16);
    escape_uri(&mut out, uri, EscapeKind::Controls);
    out
}

/// Appends a log's text, control characters as `\x0A`.
pub fn push_logged(text: &[u8], line: &mut Vec<u8>) {
    let is_control = |b: &u8| b.is_ascii_control() && *b != b'\t';
    let mut rest = text;
    while let Some(at) = rest.iter().position(is_control) {
        let (control, digit) = (rest[at], |n: u8| b"0123456789ABCDEF"[usize::from(n & 15)]);
        line.extend_from_slice(&rest[..at]);
        line.extend_from_slice(&[b'\\', b'x', digit(control >> 4), digit(control)]);
        rest = &rest[at + 1..];
    }
    line.extend_from_slice(rest);
}

/// The same of a text of code's, but that a line end stays one where a line of a traceback follows it: that begins with a tab
/// or with one of the words of tracebacks, and so is taken for no line of a log of its own, whoever has put it there.
pub fn push_traced(text: &[u8], line: &mut Vec<u8>) {
    const WORDS: [&[u8]; 3] = [b"\t", b"stack traceback:\n", b"coroutine "];
    let (mut rest, mut from) = (text, 0);
    while let Some(at) = memchr::memchr(b'\n', &rest[from..]).map(|at| from + at) {
        let next = &rest[at + 1..];
        if WORDS.iter().any(|word| next.starts_with(word)) {
            push_logged(&rest[..at], line);
            line.push(b'\n');
            (rest, from) = (next, 0);
        } else {
            from = at + 1;
        }
    }
    push_logged(rest, line);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_lines() {
        assert!(matches!(one_line(b"a b\t\xff"), Cow::Borrowed(b"a b\t\xff")));
        assert_eq!(&*one_line(b"a\r\nSet-Cookie: x\0"), b"a  Set-Cookie: x ");
        assert!(has_controls(b"\t") && !has_controls(b" \xff"));
        assert_eq!(encoded(b"/a b%0d\r\n?\x7f"), b"/a b%0d%0D%0A?%7F");
        let mut line = b"> ".to_vec();
        push_logged(b"a\n2026 [alert]\x1b[0m\t\x7f.", &mut line);
        assert_eq!(line, b"> a\\x0A2026 [alert]\\x1B[0m\t\\x7F.");
        line.clear();
        push_traced(
            b"a\n2026\nstack traceback:\n\ta.lua:1\x1b\n\tb\ncoroutine 0:\n\n\tc\n",
            &mut line,
        );
        assert_eq!(
            line,
            b"a\\x0A2026\nstack traceback:\n\ta.lua:1\\x1B\n\tb\ncoroutine 0:\\x0A\n\tc\\x0A"
        );
    }
}
