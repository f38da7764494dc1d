//! The border to the system: what differs from one to another is in `crates/runtime`.

use super::source::words;

/// Where the system is met.
pub const HOME: &str = "runtime";

/// Parts of `std` that one system has and another has not, and the bytes of a path.
const PARTS: &[&str] =
    &["OsStrExt", "OsStringExt", "as_encoded_bytes", "from_encoded_bytes_unchecked"];
/// What a condition asks about the system.
const ASKED: &[&str] =
    &["unix", "windows", "target_env", "target_family", "target_os", "target_vendor"];

/// Each breach in code without comments and texts: its line, and what it says.
pub fn crossings(code: &str) -> Vec<(usize, String)> {
    let parts = words(code).filter(|(_, word)| PARTS.contains(word));
    let mut found: Vec<_> = parts.map(|(line, word)| (line, word.to_owned())).collect();
    for (line, text) in code.lines().enumerate() {
        if text.contains("std::os::") || text.contains("os::unix") || text.contains("os::fd") {
            found.push((line + 1, "std::os".to_owned()));
        }
    }
    for start in ["cfg(", "cfg!(", "cfg_attr("] {
        for (at, _) in code.match_indices(start) {
            let condition = inside(&code[at + start.len()..]);
            if let Some((_, word)) = words(condition).find(|(_, word)| ASKED.contains(word)) {
                found.push((1 + code[..at].matches('\n').count(), format!("cfg({word})")));
            }
        }
    }
    found.sort();
    found
}

/// Up to the bracket that closes.
fn inside(text: &str) -> &str {
    let mut open = 1;
    let end = text.find(|c| {
        open += match c {
            '(' => 1,
            ')' => -1,
            _ => 0,
        };
        open == 0
    });
    &text[..end.unwrap_or(text.len())]
}
