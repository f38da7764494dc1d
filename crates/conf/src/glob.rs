//! The patterns of `include`, as the C library's `glob` reads them, over bytes.
//!
//! `*`, `?` and `[…]` never match a `/`, nor a leading `.`; the result is sorted by bytes.

use std::io;

/// As nginx decides whether an `include` is a pattern.
pub(crate) fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

/// All existing paths that match, sorted by bytes.
///
/// `names` gives what is in a directory (`.` where the path begins with a name), nothing where none is to be looked for;
/// `exists` says whether there is something under a path. `caseless`: names that differ in case alone are alike.
///
/// # Errors
///
/// A directory's that cannot be listed.
pub fn glob(
    pattern: &[u8],
    caseless: bool,
    names: impl Fn(&[u8]) -> io::Result<Vec<Vec<u8>>>,
    exists: impl Fn(&[u8]) -> bool,
) -> io::Result<Vec<Vec<u8>>> {
    let mut found = vec![Vec::new()];
    for (at, component) in pattern.split(|&byte| byte == b'/').enumerate() {
        if at > 0 {
            found.iter_mut().for_each(|path| path.push(b'/'));
        }
        if !is_pattern(component) {
            found.iter_mut().for_each(|path| path.extend_from_slice(component));
            continue;
        }
        let mut below = Vec::new();
        for dir in &found {
            let listed = names(if dir.is_empty() { b"." } else { dir })?;
            let hits = listed.into_iter().filter(|name| match caseless {
                true => matches_name(&lower(component), &lower(name)),
                false => matches_name(component, name),
            });
            below.extend(hits.map(|name| [&dir[..], &name].concat()));
        }
        found = below;
    }
    found.retain(|path| exists(path));
    found.sort();
    Ok(found)
}

fn lower(name: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(name).to_lowercase().into_bytes()
}

fn matches_name(pattern: &[u8], name: &[u8]) -> bool {
    if name.first() == Some(&b'.') && pattern.first() != Some(&b'.') {
        return false;
    }
    wildcard(pattern, name)
}

/// Iterative, with one point of return per `*`, so that no pattern takes exponential time.
fn wildcard(pattern: &[u8], name: &[u8]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut back = None;
    while n < name.len() {
        if pattern.get(p) == Some(&b'*') {
            back = Some((p + 1, n));
            p += 1;
            continue;
        }
        if let Some(len) = one(&pattern[p..], name[n]) {
            p += len;
            n += 1;
            continue;
        }
        match &mut back {
            Some((after_star, from)) => {
                *from += 1;
                (p, n) = (*after_star, *from);
            }
            None => return false,
        }
    }
    pattern[p..].iter().all(|&byte| byte == b'*')
}

/// How much of the pattern one byte used, when it matches.
fn one(pattern: &[u8], byte: u8) -> Option<usize> {
    match pattern {
        [b'?', ..] => Some(1),
        [b'\\', escaped, ..] => (*escaped == byte).then_some(2),
        [b'[', rest @ ..] => match class(rest, byte) {
            Some((len, matches)) => matches.then_some(len + 1),
            // Not closed: an ordinary bracket.
            None => (byte == b'[').then_some(1),
        },
        [literal, ..] => (*literal == byte).then_some(1),
        [] => None,
    }
}

/// The length of a class up to its `]`, and whether it has the byte.
fn class(text: &[u8], byte: u8) -> Option<(usize, bool)> {
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let first = usize::from(negated);
    let (mut at, mut found) = (first, false);
    loop {
        let low = match *text.get(at)? {
            b']' if at > first => return Some((at + 1, found != negated)),
            b'\\' => {
                at += 1;
                *text.get(at)?
            }
            low => low,
        };
        let mut high = low;
        if let Some([b'-', end]) = text.get(at + 1..at + 3) {
            if *end != b']' {
                high = *end;
                at += 2;
            }
        }
        found |= (low..=high).contains(&byte);
        at += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names() {
        for (pattern, name, expected) in [
            ("*.conf", "a.conf", true),
            ("*.conf", ".conf", false),
            ("*", ".hidden", false),
            (".*", ".hidden", true),
            ("*.conf", "a.conf~", false),
            ("a*b*c", "axxbyyc", true),
            ("a*b*c", "axxbyy", false),
            ("?", "a", true),
            ("?", "", false),
            ("[a-c]x", "bx", true),
            ("[!a-c]x", "bx", false),
            ("[^a-c]x", "dx", true),
            ("[]]", "]", true),
            ("[a-]", "-", true),
            ("[a", "[a", true),
            ("\\*", "*", true),
            ("\\*", "a", false),
            ("[\\]]", "]", true),
            ("**", "abc", true),
        ] {
            let got = matches_name(pattern.as_bytes(), name.as_bytes());
            assert_eq!(got, expected, "{pattern} {name}");
        }
    }

    #[test]
    fn no_exponential_time() {
        let pattern = b"*a".repeat(40);
        assert!(!wildcard(&pattern, &b"a".repeat(39)));
        assert!(wildcard(&pattern, &b"a".repeat(400)));
    }

    #[test]
    fn among_names() {
        let files = ["d/b/x.conf", "d/a/x.conf", "d/a/.y.conf", "d/\u{fffd}/z", "x.conf"];
        let names = |dir: &[u8]| -> io::Result<Vec<Vec<u8>>> {
            let dir = String::from_utf8_lossy(dir).into_owned();
            if dir.starts_with("closed") {
                return Err(io::ErrorKind::PermissionDenied.into());
            }
            let dir = dir.trim_start_matches('.').trim_end_matches('/');
            let below = |f: &&str| match dir {
                "" => f.split('/').next().map(str::to_owned),
                _ => Some(f.strip_prefix(dir)?.strip_prefix('/')?.split('/').next()?.to_owned()),
            };
            let mut found: Vec<_> =
                files.iter().filter_map(below).map(String::into_bytes).collect();
            found.dedup();
            Ok(found)
        };
        let exists = |path: &[u8]| files.iter().any(|f| f.as_bytes() == path);
        let found = |pattern: &str| {
            let paths = glob(pattern.as_bytes(), false, names, exists).unwrap().into_iter();
            paths.map(|p| String::from_utf8(p).unwrap()).collect::<Vec<_>>()
        };
        assert_eq!(found("d/*/*.conf"), ["d/a/x.conf", "d/b/x.conf"]);
        assert_eq!(found("d/[a]/x.conf"), ["d/a/x.conf"]);
        assert_eq!(found("*.conf"), ["x.conf"]);
        assert_eq!(found("d/a/.*"), ["d/a/.y.conf"]);
        assert!(found("*/z.conf").is_empty());
        assert!(found("none/*").is_empty());
        assert!(found("*.CONF").is_empty());
        assert_eq!(glob(b"*.CONF", true, names, exists).unwrap(), [b"x.conf"]);
        assert!(glob(b"closed/*", false, names, exists).is_err());
    }
}
