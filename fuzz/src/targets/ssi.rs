//! Server side includes: however a document is cut, its text and its commands are the same.

use super::Target;
use crate::random::Random;
use weir_script::ssi::condition::{self, Condition, Test};
use weir_script::ssi::value::{self, ValueError};
use weir_script::ssi::{Event, Parser, NAME_MAX_BYTES, OPENING, PARAMS_MAX};

pub const TARGET: Target = Target {
    name: "ssi",
    seeds: &[
        b"a<!--#include virtual=\"/b?c=$d\" wait='yes' -->e",
        b"<!--#if expr=\"$a = /b(c)/\" -->d<!--#else -->e<!--#endif-->",
        b"<!--#set var=\"a\" value='b\\'c' --><!--#echo var=\"a\"-->",
        b"<<!<!-<!--<!-- x --><!--#x a=b -->",
    ],
    pieces: &[
        b"<!--#", b"<", b"!", b"-", b"--", b"-->", b"#", b" ", b"=", b"\"", b"'", b"\\", b"x",
        b"a='b'", b"\n",
    ],
    check,
};

const VALUE_MAX_BYTES: usize = 40;

/// Text with a mark for each event: commands as they may be written again.
fn read(document: &[u8], cut: &mut dyn FnMut(usize) -> usize) -> Vec<u8> {
    let mut parser = Parser::new(VALUE_MAX_BYTES);
    let mut out = Vec::new();
    let mut rest = document;
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(cut(rest.len()));
        rest = behind;
        let mut at = 0;
        loop {
            let before = at;
            match parser.next(piece, &mut at) {
                Event::Text { held, range } => {
                    assert!(held < OPENING.len() && held + range.len() > 0);
                    assert!(range.start >= before && range.end <= at);
                    out.extend_from_slice(&OPENING[..held]);
                    out.extend_from_slice(&piece[range]);
                }
                Event::Command(command) => {
                    assert!((1..=NAME_MAX_BYTES).contains(&command.name().len()));
                    assert!(command.params().count() <= PARAMS_MAX);
                    assert!(command.params().all(|p| p.0.len() <= NAME_MAX_BYTES));
                    assert!(command.params().all(|p| p.1.len() <= VALUE_MAX_BYTES));
                    out.push(0);
                    command.write(&mut out);
                }
                Event::Error(text) => {
                    assert!(!text.is_empty());
                    out.push(1);
                    out.extend_from_slice(text);
                }
                Event::More => {
                    assert_eq!(at, piece.len());
                    break;
                }
            }
        }
    }
    out.extend_from_slice(&OPENING[..parser.finish()]);
    out
}

fn check(document: &[u8], random: &mut Random) {
    let whole = read(document, &mut |len| len);
    assert_eq!(read(document, &mut |_| 1), whole);
    assert_eq!(read(document, &mut |len| 1 + random.below(len)), whole);
    if !document.windows(OPENING.len()).any(|w| w == OPENING) {
        assert_eq!(whole, document);
    }
}

/// Values and conditions, which a page may have from anywhere.
pub const CONDITIONS: Target = Target {
    name: "ssi conditions",
    seeds: &[
        b"$a = $b",
        b"${a} != /^(?P<x>.*)$/",
        b"$A",
        b"a\\$b\\\\ = \\/c/",
        b"x = text with \\\"quotes\\\" and ${name}s $",
    ],
    pieces: &[
        b"$", b"{", b"}", b"${a}", b"\\", b"=", b"!=", b"/", b" ", b"\"", b"'", b"a", b"A", b"\0",
    ],
    check: conditions,
};

fn conditions(text: &[u8], random: &mut Random) {
    values(text, random);
    // All of a condition is kept, apart from letters' size, spaces, and a backslash.
    let Some(found) = condition::parse(text) else { return };
    let sign: &[u8] = if found.negative { b"!=" } else { b"=" };
    let spaces = vec![b' '; random.below(3)];
    let written = match found.test {
        Test::Filled => found.left.to_vec(),
        Test::Pattern(pattern) => [&*found.left, sign, &spaces, b"/", pattern, b"/"].concat(),
        Test::Text(text) => {
            let quote: &[u8] = if text.starts_with(b"/") && text.len() > 1 { b"\\" } else { b"" };
            assert!(!text.starts_with(b" "));
            [&*found.left, &spaces, sign, &spaces, quote, text].concat()
        }
    };
    assert_eq!(condition::parse(&written).as_ref(), Some(&found));
    let side = |c: &Condition<'_>| c.left.len() + usize::from(c.negative);
    assert!(side(&found) <= text.len());
}

/// A plain value is what is left of it; one that is quoted comes out as it was; variables are asked
/// for in their order, by names that are names.
fn values(text: &[u8], random: &mut Random) {
    let max_bytes = random.below(200);
    let mut names = Vec::new();
    let mut most = 0;
    let result = value::evaluate(text, max_bytes, &mut |name, out| {
        assert!(out.len() <= max_bytes, "grows on");
        names.push(name.to_vec());
        out.extend_from_slice(b"<value>");
        most += b"<value>".len();
    });
    let is_name =
        |n: &Vec<u8>| !n.is_empty() && n.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'_');
    assert!(
        names.iter().all(is_name) && names.len() <= text.iter().filter(|b| **b == b'$').count()
    );
    match result {
        Ok(value) => assert!(value.len() <= text.len() + most),
        Err(ValueError::TooLong) => assert!(text.len() + most > max_bytes),
        Err(ValueError::NoBracket(_) | ValueError::NoName) => assert!(text.contains(&b'$')),
    }
    let quoted: Vec<u8> = text.iter().fold(Vec::new(), |mut out, b| {
        if matches!(b, b'\\' | b'$' | b'"' | b'\'') {
            out.push(b'\\');
        }
        out.push(*b);
        out
    });
    let mut never = |_: &[u8], _: &mut Vec<u8>| panic!("a variable in quoted text");
    assert_eq!(value::evaluate(&quoted, usize::MAX, &mut never).as_deref(), Ok(text));
}
