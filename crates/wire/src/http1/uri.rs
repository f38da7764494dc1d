//! The path of a request: decoded, its dot segments resolved, its slashes merged.
//!
//! `%2F` acts as a slash and `%2E` as a dot, while `%3F`, `%23` and `%25` stand for themselves;
//! that is nginx's order of things and what its locations are written for.

/// The path leaves the root, holds `%00`, or holds `%` without two hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BadUri;

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum State {
    #[default]
    Usual,
    Slash,
    Dot,
    DotDot,
}

/// What a path is to look like.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Adjacent slashes become one.
    pub merge: bool,
    /// A backslash, escaped or not, is a slash, as in nginx for Windows: to the system it is, whatever a path goes to.
    pub back: bool,
    /// Dots and spaces at the end of a part are cut off, as Windows does with names, and a part of nothing else is refused;
    /// so is `:$`, by which streams are named. nginx for Windows does so at the end of the path, and with one dot of a part.
    pub cut: bool,
}

/// Whether a path has a backslash, escaped or not.
pub fn has_backslash(path: &[u8]) -> bool {
    let is_escaped =
        |at: usize| path[at..].get(1..3).is_some_and(|x| x.eq_ignore_ascii_case(b"5c"));
    memchr::memchr2_iter(b'\\', b'%', path).any(|at| path[at] == b'\\' || is_escaped(at))
}

/// Writes the normal form of `path` to `out`, which is cleared first. Stops at a `?` or `#`.
pub fn normalize(path: &[u8], rules: Rules, out: &mut Vec<u8>) -> Result<(), BadUri> {
    out.clear();
    out.reserve(path.len());
    let mut state = State::Usual;
    let mut rest = path;
    while let Some((&raw, after)) = rest.split_first() {
        rest = after;
        let mut byte = raw;
        match raw {
            b'?' | b'#' => break,
            b'%' => {
                byte = escaped(rest).ok_or(BadUri)?;
                rest = rest.get(2..).unwrap_or_default();
                if byte == 0 {
                    return Err(BadUri);
                }
                if matches!(byte, b'%' | b'#' | b'?') {
                    out.push(byte);
                    state = State::Usual;
                    continue;
                }
            }
            _ => {}
        }
        if rules.back && byte == b'\\' {
            byte = b'/';
        }
        state = step(state, byte, rules.merge, out)?;
    }
    match state {
        State::Dot => {
            out.pop();
        }
        State::DotDot => leave_segment(out)?,
        State::Usual | State::Slash => {}
    }
    match rules.cut {
        true => cut_ends(out),
        false => Ok(()),
    }
}

/// Whether a path without escapes is changed or refused by [`Rules::cut`].
pub fn has_odd_ends(path: &[u8]) -> bool {
    let is_end = |at: usize| matches!(path.get(at + 1), None | Some(b'/' | b'\\' | b'?' | b'#'));
    let mut odd = memchr::memchr3_iter(b'.', b' ', b':', path);
    odd.any(|at| if path[at] == b':' { path.get(at + 1) == Some(&b'$') } else { is_end(at) })
}

fn cut_ends(path: &mut Vec<u8>) -> Result<(), BadUri> {
    if !has_odd_ends(path) {
        return Ok(());
    }
    if memchr::memmem::find(path, b":$").is_some() {
        return Err(BadUri);
    }
    let mut cut = Vec::with_capacity(path.len());
    for (at, part) in path.split(|b| *b == b'/').enumerate() {
        if at > 0 {
            cut.push(b'/');
        }
        let end = part.iter().rposition(|b| !matches!(b, b'.' | b' ')).map_or(0, |last| last + 1);
        if end == 0 && !part.is_empty() {
            return Err(BadUri);
        }
        cut.extend_from_slice(&part[..end]);
    }
    *path = cut;
    Ok(())
}

fn step(state: State, byte: u8, merge_slashes: bool, out: &mut Vec<u8>) -> Result<State, BadUri> {
    let next = match (state, byte) {
        (State::Slash, b'/') if merge_slashes => return Ok(State::Slash),
        (State::Dot, b'/') => {
            out.pop();
            return Ok(State::Slash);
        }
        (State::DotDot, b'/') => {
            leave_segment(out)?;
            return Ok(State::Slash);
        }
        (State::Usual | State::Slash, b'/') => State::Slash,
        (State::Slash, b'.') => State::Dot,
        (State::Dot, b'.') => State::DotDot,
        _ => State::Usual,
    };
    out.push(byte);
    Ok(next)
}

/// `/a/..` becomes `/`.
fn leave_segment(out: &mut Vec<u8>) -> Result<(), BadUri> {
    let parent = out.len().checked_sub(3).and_then(|n| out.get(..n)).ok_or(BadUri)?;
    let slash = memchr::memrchr(b'/', parent).ok_or(BadUri)?;
    out.truncate(slash + 1);
    Ok(())
}

fn escaped(rest: &[u8]) -> Option<u8> {
    let digits = rest.first_chunk::<2>()?;
    Some(hex(digits[0])? << 4 | hex(digits[1])?)
}

fn hex(digit: u8) -> Option<u8> {
    char::from(digit).to_digit(16).map(|d| d as u8)
}

/// What follows the last dot of the last segment, unless that dot begins it: what
/// `types` looks up. Of a path already normal.
pub fn exten(path: &[u8]) -> Option<&[u8]> {
    // An extension is short, and so is mostly the way back to the slash of a name that has none.
    let at = path.iter().rposition(|b| matches!(b, b'.' | b'/'))?;
    let (before, exten) = (path.get(..at)?, path.get(at + 1..)?);
    if path.get(at) == Some(&b'/') {
        return None;
    }
    // Up to three leading dots begin a hidden name and not an extension.
    let dots = before.iter().rev().take(3).take_while(|&&b| b == b'.').count();
    let leads = before.len() == dots || before.get(before.len() - dots - 1) == Some(&b'/');
    (dots == 3 || !leads).then_some(exten)
}

/// Appends `src` with its `%XX` decoded; a broken escape loses its `%` and bad digits as nginx
/// loses them.
pub fn unescape(src: &[u8], out: &mut Vec<u8>) {
    let mut rest = src;
    while let Some((&b, after)) = rest.split_first() {
        rest = after;
        if b != b'%' {
            out.push(b);
            continue;
        }
        let Some((&first, after)) = rest.split_first() else { return };
        rest = after;
        let Some(high) = hex(first) else {
            out.push(first);
            continue;
        };
        let Some((&second, after)) = rest.split_first() else { return };
        rest = after;
        if let Some(low) = hex(second) {
            out.push(high << 4 | low);
        }
    }
}

/// A target an application named (`X-Accel-Redirect`, a `Destination`, an SSI include):
/// decodes its path into `out` and returns its arguments, or refuses one that is empty, holds
/// NUL or has a `..` segment, escaped or not.
///
/// nginx overlooks `..` right before a `?`; this does not.
pub fn unsafe_uri<'a>(uri: &'a [u8], out: &mut Vec<u8>) -> Result<Option<&'a [u8]>, BadUri> {
    out.clear();
    let (path, args) = match memchr::memchr(b'?', uri) {
        Some(at) => (uri.get(..at).unwrap_or_default(), uri.get(at + 1..)),
        None => (uri, None),
    };
    if path.is_empty() || leaves_root(path) {
        return Err(BadUri);
    }
    unescape(path, out);
    if leaves_root(out) {
        return Err(BadUri);
    }
    Ok(args)
}

fn leaves_root(path: &[u8]) -> bool {
    path.contains(&0) || path.split(|&b| b == b'/').any(|segment| segment == b"..")
}

#[cfg(test)]
mod tests {
    use super::*;

    const MERGED: Rules = Rules { merge: true, back: false, cut: false };

    #[test]
    fn backslashes_are_seen() {
        for path in ["/a\\b", "/a%5cb", "/%41%5C", "/%5%5c"] {
            assert!(has_backslash(path.as_bytes()), "{path}");
        }
        for path in ["/a/b", "/5c", "/%41", "/%5", "/%", ""] {
            assert!(!has_backslash(path.as_bytes()), "{path}");
        }
    }

    #[test]
    fn backslashes_where_they_are_slashes() {
        let back = Rules { back: true, ..MERGED };
        let mut out = Vec::new();
        for (path, normal) in [("/a\\b", "/a/b"), ("/a%5c..%5Cb", "/b"), ("/a/\\%5c/b", "/a/b")] {
            assert_eq!(normalize(path.as_bytes(), back, &mut out), Ok(()), "{path}");
            assert_eq!(out, normal.as_bytes());
        }
        assert_eq!(normalize(b"/..%5cx", back, &mut out), Err(BadUri));
        assert_eq!(normalize(b"/..%5cx", MERGED, &mut out), Ok(()));
    }

    #[test]
    fn ends_of_names_are_cut_off() {
        let cut = Rules { back: true, cut: true, ..MERGED };
        let mut out = Vec::new();
        for (path, normal) in [
            ("/a./b", "/a/b"),
            ("/a%20/b.. .", "/a/b"),
            ("/x/../a.%20\\b%2e/", "/a/b/"),
            ("/.a/b.c/..", "/.a/"),
            ("/a:b/c d/e.f", "/a:b/c d/e.f"),
            ("/$a/b:", "/$a/b:"),
        ] {
            assert_eq!(normalize(path.as_bytes(), cut, &mut out), Ok(()), "{path}");
            assert_eq!(String::from_utf8_lossy(&out), normal, "{path}");
        }
        for path in ["/...", "/a/%20/b", "/.. /a", "/a::$DATA", "/a:%24i30:$b/c", "/. ./a"] {
            assert_eq!(normalize(path.as_bytes(), cut, &mut out), Err(BadUri), "{path}");
            assert_eq!(normalize(path.as_bytes(), MERGED, &mut out), Ok(()), "{path}");
        }
        for path in ["/a./b", "/a.", "/a.?b", "/a:$b", "/a.\\b"] {
            assert!(has_odd_ends(path.as_bytes()), "{path}");
        }
        assert!(!has_odd_ends(b"/a.b/.c/d:e$/f"));
    }

    #[test]
    fn normal_forms() {
        for (path, merged, kept) in [
            ("/", "/", "/"),
            ("/a/b", "/a/b", "/a/b"),
            ("/a//b", "/a/b", "/a//b"),
            ("//", "/", "//"),
            ("/./a/./b/.", "/a/b/", "/a/b/"),
            ("/a/b/../c", "/a/c", "/a/c"),
            ("/a/..", "/", "/"),
            ("/a/b/..", "/a/", "/a/"),
            ("/a/%2e%2e/b", "/b", "/b"),
            ("/a%2Fb", "/a/b", "/a/b"),
            ("/a%2f/b", "/a/b", "/a//b"),
            ("/%25%23%3f", "/%#?", "/%#?"),
            ("/%2541", "/%41", "/%41"),
            ("/a%20b+c", "/a b+c", "/a b+c"),
            ("/.../..a/.b", "/.../..a/.b", "/.../..a/.b"),
            ("/a#b?c", "/a", "/a"),
            ("/a/..?x", "/", "/"),
            ("/a/.%2e/", "/", "/"),
            ("/%ff%C3%a4", "/\u{fffd}ä", "/\u{fffd}ä"),
            ("/a//../b", "/b", "/a/b"),
        ] {
            for (merge, want) in [(true, merged), (false, kept)] {
                let mut out = Vec::new();
                let rules = Rules { merge, ..MERGED };
                assert_eq!(normalize(path.as_bytes(), rules, &mut out), Ok(()), "{path}");
                assert_eq!(String::from_utf8_lossy(&out), want, "{path} merge {merge}");
            }
        }
    }

    #[test]
    fn refused_paths() {
        for path in ["/..", "/../a", "/a/../../b", "/%2e%2e", "/%", "/%4", "/%zz", "/%00", "/a%4"] {
            let mut out = Vec::new();
            assert_eq!(normalize(path.as_bytes(), MERGED, &mut out), Err(BadUri), "{path}");
        }
    }

    #[test]
    fn extensions() {
        for (path, want) in [
            ("/a.html", Some("html")),
            ("/a.tar.gz", Some("gz")),
            ("/a.b/c", None),
            ("/.profile", None),
            ("/.a.b", Some("b")),
            ("/...x", None),
            ("/....x", Some("x")),
            ("a.b", Some("b")),
            (".b", None),
            ("b", None),
            ("", None),
            ("/a.", Some("")),
            ("/a/", None),
        ] {
            let want = want.map(str::as_bytes);
            assert_eq!(exten(path.as_bytes()), want, "{path}");
        }
    }

    #[test]
    fn named_targets() {
        for (uri, path, args) in [
            ("/a", "/a", None),
            ("/a%20b?c=d", "/a b", Some("c=d")),
            ("a/b", "a/b", None),
            ("/a..b/..c", "/a..b/..c", None),
        ] {
            let mut out = Vec::new();
            assert_eq!(unsafe_uri(uri.as_bytes(), &mut out), Ok(args.map(str::as_bytes)));
            assert_eq!(out, path.as_bytes());
        }
        for uri in ["", "?a", "..", "../a", "/a/../b", "/a/..", "/..?x", "/%2e%2e/a", "/a%00"] {
            assert_eq!(unsafe_uri(uri.as_bytes(), &mut Vec::new()), Err(BadUri), "{uri}");
        }
        let mut out = Vec::new();
        unescape(b"%zz%4%", &mut out);
        assert_eq!(out, b"zz");
    }
}
