//! "Did you mean": the nearest of the known names.

/// The candidate nearest to `name`, when it is near enough to be a slip: at most a third of
/// its letters changed, dropped, added or swapped with the neighbour.
pub fn suggest<'a>(name: &str, candidates: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let name = name.to_ascii_lowercase();
    let limit = (name.chars().count() / 3).max(1);
    candidates
        .into_iter()
        .filter(|candidate| candidate.len().abs_diff(name.len()) <= limit)
        .map(|candidate| (distance(name.as_bytes(), candidate.as_bytes()), candidate))
        .filter(|&(distance, candidate)| {
            distance <= limit && distance < name.len().max(candidate.len())
        })
        .min()
        .map(|(_, candidate)| candidate)
}

/// Damerau-Levenshtein in its restricted form: no part is edited twice.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut before: Vec<usize> = Vec::new();
    let mut above: Vec<usize> = (0..=b.len()).collect();
    for i in 1..=a.len() {
        let mut row = Vec::with_capacity(b.len() + 1);
        row.push(i);
        for j in 1..=b.len() {
            let cost = usize::from(a[i - 1] != b[j - 1]);
            let mut best = (above[j] + 1).min(row[j - 1] + 1).min(above[j - 1] + cost);
            if i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] {
                best = best.min(before[j - 2] + 1);
            }
            row.push(best);
        }
        before = std::mem::replace(&mut above, row);
    }
    above[b.len()]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances() {
        assert_eq!(distance(b"", b"abc"), 3);
        assert_eq!(distance(b"abc", b"abc"), 0);
        assert_eq!(distance(b"abc", b"acb"), 1);
        assert_eq!(distance(b"kitten", b"sitting"), 3);
    }

    #[test]
    fn suggestions() {
        let known = ["listen", "location", "server_name", "proxy_pass", "root", "if", "set"];
        for (name, expected) in [
            ("lisen", Some("listen")),
            ("Listen", Some("listen")),
            ("servre_name", Some("server_name")),
            ("proxypass", Some("proxy_pass")),
            ("roto", Some("root")),
            ("fi", Some("if")),
            ("xx", None),
            ("gzip", None),
            ("", None),
        ] {
            assert_eq!(suggest(name, known), expected, "{name}");
        }
    }
}
