//! What stands in `expr` of `if` and `elif`, taken apart: `text`, `text = text`, `text != /expression/`.

use std::borrow::Cow;

/// What the left side is compared with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Test<'a> {
    /// Nothing: it must not be empty.
    Filled,
    Text(&'a [u8]),
    Pattern(&'a [u8]),
}

/// Texts are not evaluated yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Condition<'a> {
    /// Its letters count as small.
    pub left: Cow<'a, [u8]>,
    pub test: Test<'a>,
    /// `!=`
    pub negative: bool,
}

/// `None`: it is no expression.
pub fn parse(expr: &[u8]) -> Option<Condition<'_>> {
    let is_left =
        |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'$' | b'{' | b'}' | b'_' | b'"' | b'\'');
    let len = expr.iter().take_while(|b| is_left(b)).count();
    let (left, rest) = expr.split_at(len);
    let (negative, right) = match without_spaces(rest) {
        [] => (false, None),
        [b'=', right @ ..] => (false, Some(right)),
        [b'!', b'=', right @ ..] => (true, Some(right)),
        _ => return None,
    };
    let test = match right.map(without_spaces) {
        None => Test::Filled,
        Some([b'/', pattern @ .., b'/']) => Test::Pattern(pattern),
        Some([b'/', _, ..]) => return None,
        // A backslash makes a text of what would be an expression.
        Some([b'\\', text @ ..]) if text.starts_with(b"/") => Test::Text(text),
        Some(text) => Test::Text(text),
    };
    Some(Condition { left: in_lower_case(left), test, negative })
}

/// A name as variables have theirs.
pub fn in_lower_case(name: &[u8]) -> Cow<'_, [u8]> {
    match name.iter().any(u8::is_ascii_uppercase) {
        true => Cow::Owned(name.to_ascii_lowercase()),
        false => Cow::Borrowed(name),
    }
}

fn without_spaces(mut text: &[u8]) -> &[u8] {
    while let [b' ', rest @ ..] = text {
        text = rest;
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions() {
        for (expr, left, negative, test) in [
            ("$A", "$a", false, Test::Filled),
            ("", "", false, Test::Filled),
            ("${a} ", "${a}", false, Test::Filled),
            ("$a = B c", "$a", false, Test::Text(b"B c")),
            ("$a!=", "$a", true, Test::Text(b"")),
            ("$a = /x/y/", "$a", false, Test::Pattern(b"x/y")),
            ("a=//", "a", false, Test::Pattern(b"")),
            ("a=/", "a", false, Test::Text(b"/")),
            ("a=\\/x/", "a", false, Test::Text(b"/x/")),
            ("a=\\x", "a", false, Test::Text(b"\\x")),
        ] {
            let wanted = Condition { left: left.as_bytes().into(), test, negative };
            assert_eq!(parse(expr.as_bytes()), Some(wanted), "{expr}");
        }
        for bad in ["a b", "a !", "a < b", "a=/x", "-", "a!b"] {
            assert_eq!(parse(bad.as_bytes()), None, "{bad}");
        }
    }
}
