//! What protocols have in common is written once: no run of code stands in two of their crates, by
//! whatever names. Lists (rows of directives, slots, what a module brings) are not code; what is in
//! functions is.

use super::functions;
use std::collections::HashMap;

/// So many lines of functions, one behind the other, may look alike.
pub const MAX_LINES: usize = 15;
/// Crates of one protocol each, or of one and what passes its requests on.
const ROOMS: &[&[&str]] = &[&["http", "modules", "backend"], &["stream"], &["mail"]];
/// What has a meaning of its own; all other words are names.
const WORDS: &[&str] = &[
    "async", "await", "break", "const", "continue", "else", "enum", "false", "fn", "for", "if",
    "impl", "in", "let", "loop", "match", "mut", "return", "self", "true", "while", "Err", "None",
    "Ok", "Some", "Option", "Poll", "Result",
];

/// The lines of a file's functions, without their names.
pub struct Shape {
    room: usize,
    file: String,
    lines: Vec<(usize, String)>,
}

impl Shape {
    /// Of a file of a crate, from its code without comments, texts and tests; nothing of other crates.
    pub fn new(room: &str, file: &str, code: &str) -> Option<Shape> {
        let room = ROOMS.iter().position(|crates| crates.contains(&room))?;
        let lines: Vec<&str> = code.lines().collect();
        let places = functions::places(&lines).flat_map(|(at, len)| at..at + len);
        let shaped = places.map(|at| (at + 1, without_names(lines[at])));
        let lines = shaped.filter(|(_, line)| !line.is_empty()).collect();
        Some(Shape { room, file: file.to_owned(), lines })
    }

    /// Its runs of one line more than there may be, each with where it begins.
    fn runs(&self) -> impl Iterator<Item = (Vec<&str>, usize)> {
        self.lines.windows(MAX_LINES + 1).map(|run| {
            let text = run.iter().map(|(_, line)| line.as_str()).collect();
            (text, run[0].0)
        })
    }
}

fn without_names(line: &str) -> String {
    let mut out = String::new();
    for part in line.split_inclusive(|c: char| !c.is_alphanumeric() && c != '_') {
        let word = part.trim_end_matches(|c: char| !c.is_alphanumeric() && c != '_');
        let is_name = !word.is_empty() && !WORDS.contains(&word);
        out.push_str(if is_name { "_" } else { word });
        out.push_str(part[word.len()..].trim());
    }
    out
}

/// Where a run stands a second time: file and line, and what is said of it.
pub fn found(shapes: &[Shape]) -> Vec<String> {
    let mut seen: HashMap<Vec<&str>, (&Shape, usize)> = HashMap::new();
    let mut problems = Vec::new();
    for shape in shapes {
        // Of a long one only the beginning is told.
        let mut told = 0;
        for (run, line) in shape.runs() {
            match seen.get(&run) {
                Some((first, at)) if first.room != shape.room && line > told => {
                    told = line + MAX_LINES;
                    problems.push(format!(
                        "{}:{line}: more than {MAX_LINES} lines stand in {}:{at} too, by other names perhaps",
                        shape.file, first.file
                    ));
                }
                Some(_) => {}
                None => {
                    seen.insert(run, (shape, line));
                }
            }
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn twins_are_found_by_whatever_names_and_lists_are_none() {
        let body: String =
            (0..MAX_LINES - 1).map(|n| format!("    if a.b({n}) {{ c = d; }}\n")).collect();
        let one = format!("fn one() {{\n{body}}}\n");
        let two = format!(
            "struct X {{\n    y: u8,\n}}\n\nfn two() {{\n{}}}\n",
            body.replace("a.b", "xyz.w")
        );
        let shapes = |two: &str| {
            let all = [("http", "h.rs", &*one), ("stream", "s.rs", two)];
            all.map(|(room, file, code)| Shape::new(room, file, code).unwrap())
        };
        let found_in = |two: &str| found(&shapes(two));
        assert_eq!(
            found_in(&two),
            ["s.rs:5: more than 15 lines stand in h.rs:1 too, by other names perhaps"]
        );
        assert!(found_in(&two.replacen("if", "while", 1)).is_empty());
        assert!(found_in(&two.replace("fn two() {", "static Z: Z = Z {")).is_empty());
        assert!(Shape::new("core", "c.rs", &one).is_none());
        let same = ["a.rs", "b.rs"].map(|file| Shape::new("mail", file, &one).unwrap());
        assert!(found(&same).is_empty());
    }
}
