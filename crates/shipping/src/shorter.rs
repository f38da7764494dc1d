//! An event that is longer than its receiver takes: its longest values are cut.

use std::borrow::Cow;
use std::ops::Range;

/// Behind what is left of a value.
const CUT: &str = "…";
/// Shorter values are left as they are; if that is not enough, those that are shorter than the next.
const LEAST: [usize; 2] = [32, 8];

/// JSON of at most so many bytes, by cutting the longest of its strings alike; names of members stay. Where that is
/// not enough it is as it was.
pub fn json(text: &[u8], most: usize) -> Cow<'_, [u8]> {
    if text.len() <= most {
        return Cow::Borrowed(text);
    }
    let values = strings(text);
    let fits = |bound: usize| {
        let cut: usize = values.iter().map(|v| v.len().saturating_sub(bound)).sum();
        text.len() - cut <= most
    };
    // The largest bound that is enough: `low` always is.
    let Some(mut low) = LEAST.into_iter().find(|least| fits(*least)) else {
        return Cow::Borrowed(text);
    };
    let mut high = most;
    while low < high {
        let middle = low + (high - low).div_ceil(2);
        match fits(middle) {
            true => low = middle,
            false => high = middle - 1,
        }
    }
    let mut out = Vec::with_capacity(most);
    let mut from = 0;
    for value in values.iter().filter(|v| v.len() > low) {
        out.extend_from_slice(&text[from..value.start]);
        out.extend_from_slice(beginning(&text[value.clone()], low - CUT.len()));
        out.extend_from_slice(CUT.as_bytes());
        from = value.end;
    }
    out.extend_from_slice(&text[from..]);
    Cow::Owned(out)
}

/// Where the strings are that are values, without their quotes.
fn strings(text: &[u8]) -> Vec<Range<usize>> {
    let (mut found, mut at) = (Vec::new(), 0);
    while let Some(quote) = text[at..].iter().position(|b| *b == b'"') {
        let start = at + quote + 1;
        let mut end = start;
        while end < text.len() && text[end] != b'"' {
            end += if text[end] == b'\\' { 2 } else { 1 };
        }
        let end = end.min(text.len());
        at = (end + 1).min(text.len());
        let next = text[at..].iter().find(|b| !b.is_ascii_whitespace());
        if next != Some(&b':') {
            found.push(start..end);
        }
    }
    found
}

/// The longest beginning of a string's inside of at most so many bytes that ends between two characters.
fn beginning(inside: &[u8], most: usize) -> &[u8] {
    let mut at = 0;
    loop {
        let len = character(&inside[at..]);
        if len == 0 || at + len > most {
            return &inside[..at];
        }
        at += len;
    }
}

/// How many bytes the first character takes; of two escapes that are one character, both.
fn character(text: &[u8]) -> usize {
    let is_half = |t: &[u8]| t.starts_with(b"\\ud") || t.starts_with(b"\\uD");
    let len = match text {
        [] => 0,
        [b'\\', b'u', ..] if is_half(text) && text.get(6..).is_some_and(is_half) => 12,
        [b'\\', b'u', ..] => 6,
        [b'\\', ..] => 2,
        [first, ..] => match first {
            0xf0.. => 4,
            0xe0.. => 3,
            0xc0.. => 2,
            _ => 1,
        },
    };
    len.min(text.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cut(text: &str, most: usize) -> String {
        String::from_utf8(json(text.as_bytes(), most).into_owned()).unwrap()
    }

    #[test]
    fn the_longest_values_are_cut_alike() {
        let name = "n".repeat(100);
        let text = format!(
            "{{\"{name}\":\"{}\",\"b\":[\"{}\",7],\"c\":\"short\"}}",
            "x".repeat(500),
            "y".repeat(300)
        );
        assert_eq!(cut(&text, text.len()), text);
        for most in [250, 251, 400, 700, text.len() - 1] {
            let short = cut(&text, most);
            assert!(short.len() <= most && short.len() + 4 > most, "{most}: {}", short.len());
            let value: serde_json::Value = serde_json::from_str(&short).unwrap();
            assert!(value[&name].as_str().unwrap().ends_with("x…"), "{short}");
            assert_eq!(value["c"], "short");
        }
        assert!(cut(&text, 600).contains(&"y".repeat(200)));
        assert_eq!(cut(&text, 100), text, "names and short values alone are longer");
    }

    #[test]
    fn characters_and_escapes_stay_whole() {
        for one in ["é", "€", "😀", "\\n", "\\\"", "\\\\", "\\u0001", "\\ud83d\\ude00"] {
            let text = format!("{{\"a\":\"{}\"}}", one.repeat(50));
            for most in 50..70 {
                let short = cut(&text, most);
                let value: serde_json::Value = serde_json::from_str(&short).unwrap();
                let whole: serde_json::Value = serde_json::from_str(&format!("\"{one}\"")).unwrap();
                let left = value["a"].as_str().unwrap().trim_end_matches('…');
                assert!(short.len() <= most, "{one} {most}");
                assert_eq!(left.replace(whole.as_str().unwrap(), ""), "", "{short}");
            }
        }
    }

    #[test]
    fn what_is_no_json_is_no_fault() {
        for text in ["\"", "\"\\", "\\\"\"", "{\"a\":\"\\u", ""] {
            let long = text.repeat(40);
            cut(&long, 33);
            let long = format!("\"{}{text}", "z".repeat(200));
            cut(&long, 60);
        }
    }
}
