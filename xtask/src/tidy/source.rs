//! Rust text reduced to its code: comments, literals and tests blanked, lines kept.

/// The text with comments and the insides of literals as spaces.
pub fn code(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let before = out.chars().next_back();
        let in_word = before.is_some_and(|c| c.is_alphanumeric() || c == '_');
        let len = blank_len(rest, in_word);
        if len > 0 {
            let (gone, after) = rest.split_at(len);
            out.extend(gone.chars().map(|c| if c == '\n' { '\n' } else { ' ' }));
            rest = after;
        } else {
            out.push(c);
            rest = &rest[c.len_utf8()..];
        }
    }
    out
}

/// How much of the start of the text is a comment or a literal.
fn blank_len(text: &str, in_word: bool) -> usize {
    if text.starts_with("//") {
        return text.find('\n').unwrap_or(text.len());
    }
    if text.starts_with("/*") {
        return block_comment(text);
    }
    if !in_word {
        let prefix = text.find(|c| !"bcr".contains(c)).unwrap_or(0);
        let (letters, rest) = text.split_at(prefix);
        if letters.ends_with('r') {
            let hashes = rest.find(|c| c != '#').unwrap_or(0);
            if rest[hashes..].starts_with('"') {
                return prefix + raw_string(rest, hashes);
            }
        }
        if prefix > 0 && rest.starts_with('"') {
            return prefix + quoted(rest);
        }
    }
    match text.as_bytes() {
        [b'"', ..] => quoted(text),
        [b'\'', b'\\', ..] => {
            text[2..].char_indices().skip(1).find(|(_, c)| *c == '\'').map_or(1, |(at, _)| at + 3)
        }
        [b'\'', ..] => {
            let mut chars = text[1..].chars();
            let len = chars.next().map_or(0, char::len_utf8);
            if chars.next() == Some('\'') {
                len + 2
            } else {
                0
            }
        }
        _ => 0,
    }
}

fn quoted(text: &str) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices().skip(1) {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    text.len()
}

fn raw_string(text: &str, hashes: usize) -> usize {
    let end = format!("\"{}", "#".repeat(hashes));
    let start = hashes + 1;
    text[start..].find(&end).map_or(text.len(), |at| start + at + end.len())
}

fn block_comment(text: &str) -> usize {
    let (mut depth, mut at) = (0, 0);
    while let Some(rest) = text.get(at..).filter(|rest| !rest.is_empty()) {
        if rest.starts_with("/*") {
            depth += 1;
            at += 2;
        } else if rest.starts_with("*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += rest.chars().next().map_or(1, char::len_utf8);
        }
    }
    text.len()
}

const TEST: &str = "#[cfg(test)]";

/// The code without the items that only tests have.
pub fn without_tests(code: &str) -> String {
    let mut out = String::new();
    let mut rest = code;
    while let Some(at) = rest.find(TEST) {
        let (before, item) = rest.split_at(at);
        let (gone, after) = item.split_at(item_len(item));
        out.push_str(before);
        out.extend(gone.chars().filter(|c| *c == '\n'));
        rest = after;
    }
    out + rest
}

/// To the `;` or the closing brace that ends an item.
fn item_len(item: &str) -> usize {
    let mut depth = 0usize;
    for (at, c) in item.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth <= 1 => return at + 1,
            '}' => depth -= 1,
            ';' if depth == 0 => return at + 1,
            _ => {}
        }
    }
    item.len()
}

/// Names of modules in files of their own that only tests have.
pub fn test_modules(code: &str) -> Vec<String> {
    let items = code.split(TEST).skip(1).filter_map(|rest| {
        let head = rest.trim_start().split_once(';')?.0;
        head.strip_prefix("mod ").filter(|name| !name.contains('{'))
    });
    items.map(|name| name.trim().to_owned()).collect()
}

/// Every word with its line, from 1.
pub fn words(code: &str) -> impl Iterator<Item = (usize, &str)> {
    code.lines().enumerate().flat_map(|(at, line)| {
        line.split(|c: char| !c.is_alphanumeric() && c != '_').map(move |word| (at + 1, word))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comments_and_literals_are_blank() {
        for (text, expected) in [
            ("a // b\nc", "a \nc"),
            ("a /* b /* c */ d */ e", "a e"),
            ("f(\"x \\\" y\") g", "f() g"),
            ("f(b\"x\", r#\"a\"b\"#, br\"c\\\") g", "f(,,) g"),
            ("'a' '\\'' b'\\n' '\\u{1f}' x", "b x"),
            ("<'a> &'static str", "<'a>&'static str"),
            ("for_r(\"x\")", "for_r()"),
            ("'\"' y \"z\"", "y"),
        ] {
            let squeezed: String = code(text).replace(' ', "");
            assert_eq!(squeezed, expected.replace(' ', ""), "{text}");
        }
        assert_eq!(code("\"a\nb\"\nc").lines().count(), 3);
    }

    #[test]
    fn tests_are_cut() {
        let text = "a;\n#[cfg(test)]\nmod t {\n fn f() { x } }\nb;\n#[cfg(test)] use c;\nd;";
        assert_eq!(without_tests(text), "a;\n\n\n\nb;\n\nd;");
        assert_eq!(test_modules("#[cfg(test)]\nmod a;\nmod b;\n#[cfg(test)] mod c { x; }"), ["a"]);
    }

    #[test]
    fn words_have_lines() {
        let found: Vec<_> = words("a.b\nc_d::e").filter(|(_, w)| !w.is_empty()).collect();
        assert_eq!(found, [(1, "a"), (1, "b"), (2, "c_d"), (2, "e")]);
    }
}
