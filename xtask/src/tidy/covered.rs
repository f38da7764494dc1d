//! Every directive of the index stands in a black-box test.
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

/// Every word of a test, and what its placeholders stand for.
fn names(text: &str) -> HashSet<String> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let mut found: HashSet<String> = text.split(|c| !is_word(c)).map(str::to_owned).collect();
    let families = families(text);
    for (at, _) in text.match_indices(PLACE) {
        let rest = &text[at + PLACE.len()..];
        let end = rest.find(|c| !is_word(c)).unwrap_or(rest.len());
        found.extend(families.iter().map(|family| format!("{family}_{}", &rest[..end])));
    }
    found
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
    fn placeholders_stand_for_the_families_of_their_file() {
        let all = names("use weir_tests::family::FAMILIES; \"%%F%%_bind x; root /;\"");
        assert!(all.contains("scgi_bind") && all.contains("root") && !all.contains("grpc_bind"));
        let one = names("(\"grpc\", 1) \"%%F%%_bind\"");
        assert!(one.contains("grpc_bind") && !one.contains("proxy_bind"));
        assert_eq!(directives("# a\n## b\n- c\n## d\n").collect::<Vec<_>>(), ["b", "d"]);
    }
}
