//! Functions are short.

pub const MAX_LINES: usize = 70;
/// Nothing but one line for every field of a struct, so that none is forgotten.
const LISTS: &[&str] = &["recycle", "visit"];

/// Functions that are longer, with their first line and their length.
pub fn too_long(text: &str) -> Vec<(usize, String)> {
    let lines: Vec<&str> = text.lines().collect();
    let named = |(at, n): (usize, usize)| Some((at, name(lines[at])?, n));
    let all = places(&lines).filter_map(named);
    let long = all.filter(|(_, name, n)| *n > MAX_LINES && !LISTS.contains(name));
    long.map(|(at, name, n)| (at + 1, format!("`{name}` has {n} lines; {MAX_LINES} are the most")))
        .collect()
}

/// Where each function begins (from 0), and of how many lines it is.
pub fn places<'a>(lines: &'a [&'a str]) -> impl Iterator<Item = (usize, usize)> + 'a {
    let begins = |at: &usize| name(lines[*at]).is_some();
    (0..lines.len()).filter(begins).map(|at| (at, length(&lines[at..])))
}

/// The name of the function that a line begins.
fn name(line: &str) -> Option<&str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let at = words.iter().position(|w| *w == "fn")?;
    let is_head = words[..at].iter().all(|w| {
        matches!(*w, "const" | "async" | "unsafe" | "extern" | "\"C\"") || w.starts_with("pub")
    });
    is_head.then(|| words.get(at + 1)).flatten()?.split(['(', '<']).next()
}

/// Up to the brace that stands below its beginning, as rustfmt puts it.
fn length(lines: &[&str]) -> usize {
    let indent = lines[0].len() - lines[0].trim_start().len();
    if lines[0].ends_with('}') || lines[0].ends_with(';') {
        return 1;
    }
    let is_end = |line: &&str| {
        let rest = line.trim_start();
        line.len() - rest.len() == indent && (rest.starts_with('}') || rest.ends_with(");"))
    };
    lines.iter().skip(1).position(is_end).map_or(lines.len(), |at| at + 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_functions_are_found() {
        let body = "    x();\n".repeat(MAX_LINES);
        let text = format!(
            "fn short() {{}}\npub(crate) async fn long<T>(\n) {{\n{body}}}\nfn f() {{\n}}\n"
        );
        let found = too_long(&text);
        assert_eq!(found.len(), 1);
        assert!(found[0].0 == 2 && found[0].1.starts_with("`long` has 73 lines"), "{found:?}");
        assert!(too_long(&text.replace("long<T>", "recycle")).is_empty());
        assert_eq!(name("    /// the fn x"), None);
    }
}
