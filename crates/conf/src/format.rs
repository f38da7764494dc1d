//! The pretty printer: a tree as text that parses to the same words. Comments are lost.

use crate::tree::{Body, Directive, Word};

const INDENT: &[u8] = b"    ";

/// One directive a line, blocks indented by four spaces, an empty line around blocks.
pub fn format(directives: &[Directive]) -> Vec<u8> {
    let mut out = Vec::new();
    write_all(&mut out, directives, 0);
    out
}

fn write_all(out: &mut Vec<u8>, directives: &[Directive], depth: usize) {
    for (at, directive) in directives.iter().enumerate() {
        if at > 0 && (directive.is_block() || directives[at - 1].is_block()) {
            out.push(b'\n');
        }
        write_one(out, directive, depth);
    }
}

fn write_one(out: &mut Vec<u8>, directive: &Directive, depth: usize) {
    out.extend(INDENT.repeat(depth));
    write_word(out, &directive.name);
    for arg in &directive.args {
        out.push(b' ');
        write_word(out, arg);
    }
    match &directive.body {
        Body::None => out.extend_from_slice(b";\n"),
        Body::Block(children) => {
            out.extend_from_slice(b" {\n");
            write_all(out, children, depth + 1);
            out.extend(INDENT.repeat(depth));
            out.extend_from_slice(b"}\n");
        }
        Body::Raw(text) => {
            out.extend_from_slice(b" {");
            out.extend_from_slice(&text.text);
            out.extend_from_slice(b"}\n");
        }
    }
}

fn write_word(out: &mut Vec<u8>, word: &Word) {
    let quote = match () {
        () if word.quoted || needs_quotes(&word.text) => {
            // The quote that needs no escaping, if there is one.
            if word.text.contains(&b'"') && !word.text.contains(&b'\'') {
                Some(b'\'')
            } else {
                Some(b'"')
            }
        }
        () => None,
    };
    out.extend(quote);
    for (at, &byte) in word.text.iter().enumerate() {
        let next = word.text.get(at + 1);
        let ambiguous = matches!(next, None | Some(b'"' | b'\'' | b'\\' | b't' | b'r' | b'n'));
        if Some(byte) == quote || (byte == b'\\' && ambiguous) {
            out.push(b'\\');
        }
        out.push(byte);
    }
    out.extend(quote);
}

fn needs_quotes(text: &[u8]) -> bool {
    let Some(&first) = text.first() else { return true };
    if b"\"'#}".contains(&first) {
        return true;
    }
    text.iter().enumerate().any(|(at, &byte)| match byte {
        b' ' | b'\t' | b'\r' | b'\n' | b';' => true,
        b'{' => at == 0 || text[at - 1] != b'$' || (at > 1 && text[at - 2] == b'\\'),
        _ => false,
    })
}
