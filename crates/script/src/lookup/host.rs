//! Names of hosts with wildcards: `server_name`, `map … { hostnames; }`, `valid_referers`.
//!
//! An exact name wins, then the longest wildcard in front (`*.example.com`), then the longest
//! wildcard behind (`www.example.*`). `.example.com` is `example.com` and `*.example.com` in
//! one. A wildcard stands for one or more labels.

use super::table::StrMap;

/// Why a name was not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum InsertError<T> {
    /// Wildcards in the wrong place, two dots in a row, or a zero byte: nginx says
    /// `invalid hostname or wildcard "…"`.
    Invalid,
    Conflict(Conflict<T>),
}

/// The value that the name, or one that means the same, has already: nginx says
/// `conflicting server name "…"` or `conflicting parameter "…"`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Conflict<T>(pub T);

#[derive(Clone, Copy, Debug)]
struct Head {
    value: usize,
    /// `.example.com`: the name without anything in front matches too.
    bare_too: bool,
}

#[derive(Clone, Debug)]
pub struct HostMap<T> {
    values: Vec<T>,
    exact: StrMap<usize>,
    /// `example.com` of `*.example.com` and `.example.com`.
    heads: StrMap<Head>,
    /// `www.example` of `www.example.*`.
    tails: StrMap<usize>,
}

impl<T> Default for HostMap<T> {
    fn default() -> Self {
        HostMap {
            values: Vec::new(),
            exact: StrMap::new(),
            heads: StrMap::new(),
            tails: StrMap::new(),
        }
    }
}

enum Kind<'a> {
    Exact(&'a [u8]),
    Head { name: &'a [u8], bare_too: bool },
    Tail(&'a [u8]),
}

impl<T> HostMap<T> {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn is_empty(&self) -> bool {
        self.values.is_empty()
    }

    pub fn len(&self) -> usize {
        self.values.len()
    }

    /// Whether any name has a wildcard.
    pub fn has_wildcards(&self) -> bool {
        !self.heads.is_empty() || !self.tails.is_empty()
    }

    /// Takes a name in any of the four forms.
    pub fn insert(&mut self, name: &[u8], value: T) -> Result<(), InsertError<&T>> {
        let kind = classify(name).ok_or(InsertError::Invalid)?;
        self.put(kind, value)
    }

    /// Takes a name in which `*` and a leading dot mean nothing.
    pub fn insert_exact(&mut self, name: &[u8], value: T) -> Result<(), InsertError<&T>> {
        self.put(Kind::Exact(name), value)
    }

    fn put(&mut self, kind: Kind<'_>, value: T) -> Result<(), InsertError<&T>> {
        let taken = match kind {
            Kind::Exact(name) => self.exact.get(name).copied().or_else(|| {
                self.heads.get(name).filter(|head| head.bare_too).map(|head| head.value)
            }),
            Kind::Head { name, bare_too } => {
                let exact = self.exact.get(name).copied().filter(|_| bare_too);
                exact.or_else(|| self.heads.get(name).map(|head| head.value))
            }
            Kind::Tail(name) => self.tails.get(name).copied(),
        };
        if let Some(taken) = taken {
            return Err(InsertError::Conflict(Conflict(&self.values[taken])));
        }
        let at = self.values.len();
        self.values.push(value);
        // Known to be new, so each of these succeeds.
        let _new = match kind {
            Kind::Exact(name) => self.exact.insert(name, at).is_ok(),
            Kind::Head { name, bare_too } => {
                self.heads.insert(name, Head { value: at, bare_too }).is_ok()
            }
            Kind::Tail(name) => self.tails.insert(name, at).is_ok(),
        };
        Ok(())
    }

    /// The value for a host, by nginx's order of precedence. Allocates nothing.
    pub fn get(&self, host: &[u8]) -> Option<&T> {
        let found = match self.exact.get(host) {
            Some(&exact) => Some(exact),
            None if host.is_empty() => None,
            None => self.find_head(host).or_else(|| self.find_tail(host)),
        };
        found.map(|at| &self.values[at])
    }

    /// The value of exactly this name, wildcards left aside.
    pub fn get_exact(&self, host: &[u8]) -> Option<&T> {
        self.exact.get(host).map(|&at| &self.values[at])
    }

    /// Tries what stands behind each dot, from the left, so that the longest is first.
    /// Only endings that could be a key are hashed, whatever the length of the host.
    fn find_head(&self, host: &[u8]) -> Option<usize> {
        if self.heads.is_empty() {
            return None;
        }
        if let Some(head) = self.heads.get(host).filter(|head| head.bare_too) {
            return Some(head.value);
        }
        let from = host.len().saturating_sub(self.heads.longest() + 1);
        memchr::memchr_iter(b'.', &host[from..])
            .find_map(|dot| self.heads.get(&host[from + dot + 1..]))
            .map(|head| head.value)
    }

    /// Tries what stands before each dot, from the right.
    fn find_tail(&self, host: &[u8]) -> Option<usize> {
        if self.tails.is_empty() {
            return None;
        }
        let to = host.len().min(self.tails.longest() + 1);
        memchr::memrchr_iter(b'.', &host[..to])
            .find_map(|dot| self.tails.get(&host[..dot]))
            .copied()
    }
}

fn classify(name: &[u8]) -> Option<Kind<'_>> {
    let stars = memchr::memchr_iter(b'*', name).count();
    if stars > 1 || name.contains(&0) || memchr::memmem::find(name, b"..").is_some() {
        return None;
    }
    match name {
        [b'.', rest @ ..] if !rest.is_empty() => Some(Kind::Head { name: rest, bare_too: true }),
        [b'*', b'.', rest @ ..] if !rest.is_empty() => {
            Some(Kind::Head { name: rest, bare_too: false })
        }
        [rest @ .., b'.', b'*'] if !rest.is_empty() => Some(Kind::Tail(rest)),
        _ if stars > 0 => None,
        _ => Some(Kind::Exact(name)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(names: &[&'static str]) -> HostMap<&'static str> {
        let mut map = HostMap::new();
        for name in names {
            assert_eq!(map.insert(name.as_bytes(), *name), Ok(()), "{name}");
        }
        map
    }

    #[track_caller]
    fn assert_finds(map: &HostMap<&'static str>, cases: &[(&str, &str)]) {
        for (host, expected) in cases {
            let found = map.get(host.as_bytes()).copied().unwrap_or_default();
            assert_eq!(found, *expected, "{host}");
        }
    }

    #[test]
    fn exact_names() {
        let map = map(&["Example.com", "", "localhost"]);
        assert_finds(
            &map,
            &[("EXAMPLE.COM", "Example.com"), ("localhost", "localhost"), ("a.example.com", "")],
        );
        assert_eq!(map.get(b""), Some(&""));
        assert!(!map.has_wildcards());
        assert_eq!(map.len(), 3);
    }

    #[test]
    fn wildcards_in_front() {
        let map =
            map(&["*.example.com", "*.www.example.com", "*.org", ".both.net", "*.x.both.net"]);
        assert_finds(
            &map,
            &[
                ("example.com", ""),
                ("a.example.com", "*.example.com"),
                ("a.b.example.com", "*.example.com"),
                ("www.example.com", "*.example.com"),
                ("a.www.example.com", "*.www.example.com"),
                ("A.WWW.Example.Com", "*.www.example.com"),
                ("xexample.com", ""),
                (".example.com", "*.example.com"),
                ("org", ""),
                ("a.org", "*.org"),
                ("both.net", ".both.net"),
                ("a.both.net", ".both.net"),
                ("x.both.net", ".both.net"),
                ("a.x.both.net", "*.x.both.net"),
                ("net", ""),
                ("", ""),
                (".", ""),
            ],
        );
    }

    #[test]
    fn wildcards_behind() {
        let map = map(&["www.example.*", "www.example.co.*", "mail.*"]);
        assert_finds(
            &map,
            &[
                ("www.example.org", "www.example.*"),
                ("www.example.co", "www.example.*"),
                ("www.example.co.uk", "www.example.co.*"),
                ("www.example.a.b.c", "www.example.*"),
                ("WWW.EXAMPLE.ORG", "www.example.*"),
                ("www.example", ""),
                ("www.example.", "www.example.*"),
                ("mail.x", "mail.*"),
                ("xmail.x", ""),
            ],
        );
    }

    #[test]
    fn order_of_precedence() {
        let map = map(&["www.example.com", "*.example.com", "www.*", "www.example.*"]);
        assert_finds(
            &map,
            &[
                ("www.example.com", "www.example.com"),
                ("a.example.com", "*.example.com"),
                ("www.a.example.com", "*.example.com"),
                ("www.example.org", "www.example.*"),
                ("www.other.org", "www.*"),
            ],
        );
    }

    #[test]
    fn conflicts() {
        for (first, second, conflict) in [
            ("example.com", "EXAMPLE.com", true),
            ("example.com", ".example.com", true),
            (".example.com", "example.com", true),
            ("*.example.com", ".example.com", true),
            (".example.com", "*.example.com", true),
            ("*.example.com", "*.example.com", true),
            ("www.*", "WWW.*", true),
            ("example.com", "*.example.com", false),
            ("www", "www.*", false),
            ("*.www", "www.*", false),
        ] {
            let mut map = map(&[first]);
            let result = map.insert(second.as_bytes(), second);
            let expected =
                if conflict { Err(InsertError::Conflict(Conflict(&first))) } else { Ok(()) };
            assert_eq!(result, expected, "{first} {second}");
        }
    }

    #[test]
    fn invalid_names() {
        let mut map = HostMap::new();
        for name in
            ["*", "*.", "a*b", "www.*.com", "*.example.*", "*a.com", "a..b", "..", "a\0b", "www*"]
        {
            assert_eq!(map.insert(name.as_bytes(), 0), Err(InsertError::Invalid), "{name}");
        }
        for name in [".", "a.", "a"] {
            assert_eq!(map.insert(name.as_bytes(), 0), Ok(()), "{name}");
        }
        assert_eq!(map.insert_exact(b"*.a", 1), Ok(()));
        assert_eq!((map.get(b"*.a"), map.get(b"b.a")), (Some(&1), None));
        assert_eq!(map.get_exact(b"*.a"), Some(&1));
    }

    #[test]
    fn long_hosts_are_cheap() {
        let map = map(&["*.example.com", "www.example.*"]);
        let dots = b".".repeat(1_000_000);
        assert_eq!(map.get(&dots), None);
        let host = [&dots[..], b"example.com"].concat();
        assert_eq!(map.get(&host), Some(&"*.example.com"));
    }
}
