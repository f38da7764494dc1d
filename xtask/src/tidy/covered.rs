//! Every directive of the index stands in a black-box test: in a text that the test is made of, not
//! in a comment on it or a name in it.
//!
//! What families of backends share is tested once for all: `%%F%%_read_timeout` stands for the
//! directive of each family that the test goes through, which are those of `weir_tests::family` or
//! those that the file names in quotes.

use std::collections::HashSet;
use std::fs;
use std::path::Path;

const FAMILIES: [&str; 5] = ["proxy", "fastcgi", "uwsgi", "scgi", "grpc"];
/// Of those, the ones that `weir_tests::family` goes through.
const TOGETHER: [&str; 4] = ["proxy", "fastcgi", "uwsgi", "scgi"];
const PLACE: &str = "%%F%%_";

/// The directives that no test names.
pub fn check(root: &Path) -> Result<Vec<String>, String> {
    let index = super::read(&root.join("docs/directives.md"))?;
    let mut files = Vec::new();
    super::walk(root, &root.join("tests/tests"), &mut files)?;
    let mut named = HashSet::new();
    for path in files {
        let text = fs::read_to_string(root.join(&path)).unwrap_or_default();
        named.extend(names(&text));
    }
    let missing = directives(&index).filter(|d| !named.contains(*d));
    Ok(missing.map(|d| format!("tests/tests: no test names the directive {d}")).collect())
}

fn directives(index: &str) -> impl Iterator<Item = &str> {
    index.lines().filter_map(|line| line.strip_prefix("## "))
}

/// Every word of a test's texts, and what its placeholders stand for.
fn names(text: &str) -> HashSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let texts = texts(text);
    let mut found: HashSet<String> = texts.split(|c| !is_word(c)).map(str::to_owned).collect();
    let families = families(text);
    for (at, _) in texts.match_indices(PLACE) {
        let rest = &texts[at + PLACE.len()..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        found.extend(families.iter().map(|family| format!("{family}_{}", &rest[..end])));
    }
    found
}

/// What stands between quotes, a line for each; escapes stay as they are.
fn texts(text: &str) -> String {
    let mut found = String::new();
    let mut rest = text;
    while let Some(c) = rest.chars().next() {
        let (text, skipped) = match c {
            '/' if rest.starts_with("//") => (None, rest.find('\n').unwrap_or(rest.len())),
            '/' if rest.starts_with("/*") => (None, rest.find("*/").map_or(rest.len(), |n| n + 2)),
            'r' if rest.starts_with("r\"") || rest.starts_with("r#") => raw(rest),
            '"' => quoted(rest),
            '\'' if rest.starts_with("'\\") => (None, "'\\''".len()),
            '\'' if rest.starts_with("'\"'") => (None, "'\"'".len()),
            _ => (None, c.len_utf8()),
        };
        if let Some(text) = text {
            found.push_str(text);
            found.push('\n');
        }
        rest = rest.get(skipped..).unwrap_or_default();
    }
    found
}

/// A text that begins here, and the length of all of it.
fn quoted(from: &str) -> (Option<&str>, usize) {
    let mut is_escaped = false;
    let end = from.char_indices().skip(1).find(|(_, c)| {
        let is_end = *c == '"' && !is_escaped;
        is_escaped = *c == '\\' && !is_escaped;
        is_end
    });
    let end = end.map_or(from.len(), |(at, _)| at);
    (from.get(1..end), end + 1)
}

/// The same for a raw one.
fn raw(from: &str) -> (Option<&str>, usize) {
    let marks = from[1..].bytes().take_while(|b| *b == b'#').count();
    let begin = marks + 2;
    if from.as_bytes().get(begin - 1) != Some(&b'"') {
        return (None, 1);
    }
    let close = format!("\"{}", "#".repeat(marks));
    let end = from[begin..].find(&close).map_or(from.len(), |at| begin + at);
    (from.get(begin..end), end + close.len())
}

fn families(text: &str) -> Vec<&'static str> {
    let together = text.contains("weir_tests::family");
    let is_named = |family: &&str| text.contains(&format!("\"{family}\""));
    let of_all = FAMILIES.into_iter();
    of_all.filter(|f| is_named(f) || together && TOGETHER.contains(f)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_a_test_says_counts() {
        let text = "// \"root\" /x\n/* etag */ fn index() { a(\"listen \\\" http://x; user\", '\"', '\\n'); \
                    let b = r#\"pid \"log\" alias\"#; r#fn(\'a, \"deny\") }";
        let all = names(text);
        for name in ["listen", "http", "user", "pid", "log", "alias", "deny"] {
            assert!(all.contains(name), "{name}");
        }
        for name in ["root", "etag", "index", "let", "fn"] {
            assert!(!all.contains(name), "{name}");
        }
    }

    #[test]
    fn placeholders_stand_for_the_families_of_their_file() {
        let all = names("use weir_tests::family::FAMILIES; \"%%F%%_bind x; root /;\"");
        assert!(all.contains("scgi_bind") && all.contains("root") && !all.contains("grpc_bind"));
        let one = names("(\"grpc\", 1) \"%%F%%_bind\"");
        assert!(one.contains("grpc_bind") && !one.contains("proxy_bind"));
        assert_eq!(directives("# a\n## b\n- c\n## d\n").collect::<Vec<_>>(), ["b", "d"]);
    }
}
