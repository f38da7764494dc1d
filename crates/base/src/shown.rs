//! Texts of strangers, made fit to be shown: nothing in them moves a cursor, turns the direction of writing or is
//! not to be seen. What has to be escaped further is up to where they are shown.

use std::fmt::Write;

/// Controls, also the upper ones, are written as `\x1b`; what is no UTF-8 too; characters that turn or hide text as
/// `\u{202e}`. A backslash stays: logs escape by it already.
pub fn visible(text: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for chunk in text.utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\0'..='\x1f' | '\x7f'..='\u{9f}' => {
                    let _ = write!(out, "\\x{:02x}", u32::from(c));
                }
                c if is_hidden(c) => {
                    let _ = write!(out, "\\u{{{:x}}}", u32::from(c));
                }
                c => out.push(c),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
    out
}

fn is_hidden(c: char) -> bool {
    matches!(c,
        '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_moves() {
        assert_eq!(visible(b"/a\x1b[2J\r\n\x7f\xff\xc3\xa9"), "/a\\x1b[2J\\x0d\\x0a\\x7f\\xffé");
        assert_eq!(visible("\u{9b}x\u{202e}y\u{200b}".as_bytes()), "\\x9bx\\u{202e}y\\u{200b}");
        assert_eq!(visible(b"\\x16"), "\\x16");
    }
}
