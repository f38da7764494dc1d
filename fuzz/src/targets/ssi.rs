//! Server side includes: however a document is cut, its text and its commands are the same.

use super::Target;
use crate::random::Random;
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
                    assert!((1..=NAME_MAX_BYTES).contains(&command.name.len()));
                    assert!(command.params.len() <= PARAMS_MAX);
                    assert!(command.params.iter().all(|p| p.1.len() <= VALUE_MAX_BYTES));
                    out.push(0);
                    command.write(&mut out);
                }
                Event::Error(text) => {
                    assert!(!text.is_empty());
                    out.push(1);
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
