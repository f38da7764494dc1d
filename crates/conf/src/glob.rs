//! The patterns of `include`, as the C library's `glob` reads them, over bytes.
//!
//! `*`, `?` and `[…]` never match a `/`, nor a leading `.`; the result is sorted by bytes.

use std::path::{Path, PathBuf};

/// As nginx decides whether an `include` is a pattern.
pub(crate) fn is_pattern(path: &[u8]) -> bool {
    path.iter().any(|byte| b"*?[".contains(byte))
}

/// All existing paths that match; what cannot be listed matches nothing.
pub(crate) fn glob(pattern: &[u8]) -> Vec<Vec<u8>> {
    let mut found = vec![Vec::new()];
    for (at, component) in pattern.split(|&byte| byte == b'/').enumerate() {
        if at > 0 {
            found.iter_mut().for_each(|path| path.push(b'/'));
        }
        if !is_pattern(component) {
            found.iter_mut().for_each(|path| path.extend_from_slice(component));
            continue;
        }
        found = found.iter().flat_map(|dir| matching_children(dir, component)).collect();
    }
    found.retain(|path| to_path(path).symlink_metadata().is_ok());
    found.sort();
    found
}

fn matching_children(dir: &[u8], pattern: &[u8]) -> Vec<Vec<u8>> {
    let listed = if dir.is_empty() { PathBuf::from(".") } else { to_path(dir) };
    let Ok(entries) = std::fs::read_dir(listed) else { return Vec::new() };
    entries
        .flatten()
        .map(|entry| from_path(Path::new(&entry.file_name())))
        .filter(|name| matches_name(pattern, name))
        .map(|name| [dir, &name].concat())
        .collect()
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

#[cfg(unix)]
pub(crate) fn to_path(bytes: &[u8]) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    PathBuf::from(std::ffi::OsStr::from_bytes(bytes))
}

#[cfg(unix)]
fn from_path(path: &Path) -> Vec<u8> {
    use std::os::unix::ffi::OsStrExt;
    path.as_os_str().as_bytes().to_vec()
}

#[cfg(not(unix))]
pub(crate) fn to_path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(String::from_utf8_lossy(bytes).into_owned())
}

#[cfg(not(unix))]
fn from_path(path: &Path) -> Vec<u8> {
    path.to_string_lossy().into_owned().into_bytes()
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
    fn on_disk() {
        let dir = std::env::temp_dir().join(format!("weir-conf-glob-{}", std::process::id()));
        for sub in ["b", "a"] {
            std::fs::create_dir_all(dir.join(sub)).unwrap();
            std::fs::write(dir.join(sub).join("x.conf"), "").unwrap();
            std::fs::write(dir.join(sub).join(".y.conf"), "").unwrap();
        }
        let base = from_path(&dir);
        let path = |tail: &str| [&base[..], tail.as_bytes()].concat();
        assert_eq!(glob(&path("/*/*.conf")), [path("/a/x.conf"), path("/b/x.conf")]);
        assert_eq!(glob(&path("/[a]/x.conf")), [path("/a/x.conf")]);
        assert!(glob(&path("/*/z.conf")).is_empty());
        assert!(glob(&path("/none/*")).is_empty());
        std::fs::remove_dir_all(&dir).unwrap();
    }
}
