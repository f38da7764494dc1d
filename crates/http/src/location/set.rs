//! The locations of one level, and which of them a URI's beginning leads to.

use weir_core::generation::RegexTarget;
use weir_runtime::paths::{caseless, IGNORES_CASE};

/// A prefix location's place in the sorted list.
struct Prefix {
    /// As it is compared: without case where files have none.
    name: Vec<u8>,
    /// As it was written, where that is something else.
    said: Option<Vec<u8>>,
    /// `location = name`
    exact: Option<usize>,
    /// `location name`
    inclusive: Option<usize>,
    /// The longest other entry that is a proper prefix of this one.
    shorter: Option<usize>,
    auto_redirect: bool,
}

/// The locations of one level, ready for look-up.
#[derive(Default)]
pub(crate) struct LocationSet {
    prefixes: Vec<Prefix>,
    /// Some prefix redirects its name without the slash.
    auto_redirects: bool,
    pub(super) regexes: Vec<RegexTarget>,
}

/// What a level is built from.
pub(crate) struct Entry {
    pub name: Vec<u8>,
    /// The set's own.
    pub said: Option<Vec<u8>>,
    pub id: usize,
    pub exact: bool,
    pub auto_redirect: bool,
    pub regex: Option<weir_core::registry::NamedRegex>,
}

impl LocationSet {
    pub(crate) fn new(entries: Vec<Entry>) -> LocationSet {
        let mut set = LocationSet::default();
        let mut prefixes = Vec::new();
        for mut e in entries {
            if IGNORES_CASE && e.regex.is_none() {
                e.said = Some(std::mem::take(&mut e.name));
                e.name = caseless(e.said.as_deref().unwrap_or_default());
            }
            match e.regex {
                Some((regex, vars)) => set.regexes.push((regex, e.id, vars)),
                None => prefixes.push(e),
            }
        }
        prefixes.sort_by(|a, b| a.name.cmp(&b.name));
        prefixes.into_iter().for_each(|e| set.add_prefix(e));
        set.link();
        set
    }

    /// Finds each entry's next shorter one. In their order all that begin with a name follow it at
    /// once, so that those an entry may be below are the ones not yet left.
    fn link(&mut self) {
        let mut around: Vec<usize> = Vec::new();
        for i in 0..self.prefixes.len() {
            let name = &self.prefixes[i].name;
            while around.pop_if(|j| !name.starts_with(&self.prefixes[*j].name)).is_some() {}
            self.prefixes[i].shorter = around.last().copied();
            if self.prefixes[i].inclusive.is_some() {
                around.push(i);
            }
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.prefixes.is_empty() && self.regexes.is_empty()
    }

    /// Adds what is not before the last in order.
    fn add_prefix(&mut self, e: Entry) {
        let mut place = match self.prefixes.pop() {
            Some(last) if last.name == e.name => last,
            other => {
                self.prefixes.extend(other);
                Prefix {
                    name: e.name,
                    said: e.said,
                    exact: None,
                    inclusive: None,
                    shorter: None,
                    auto_redirect: false,
                }
            }
        };
        match e.exact {
            true => place.exact = Some(e.id),
            false => place.inclusive = Some(e.id),
        }
        place.auto_redirect |= e.auto_redirect;
        self.auto_redirects |= e.auto_redirect;
        self.prefixes.push(place);
    }

    pub(super) fn find_prefix(&self, uri: &[u8]) -> PrefixHit {
        match IGNORES_CASE {
            true => self.find(&caseless(uri)),
            false => self.find(uri),
        }
    }

    #[inline]
    fn find(&self, uri: &[u8]) -> PrefixHit {
        let after = self.prefixes.partition_point(|p| p.name.as_slice() <= uri);
        let here = after > 0 && self.prefixes[after - 1].name == uri;
        if self.auto_redirects && !here {
            let with_slash = |p: &Prefix| {
                p.name.split_last().is_some_and(|(last, name)| *last == b'/' && name == uri)
            };
            let mut behind = self.prefixes[after..].iter().take_while(|p| p.name.starts_with(uri));
            if let Some(p) = behind.find(|p| p.auto_redirect && with_slash(p)) {
                return PrefixHit::Redirect(p.said.as_ref().unwrap_or(&p.name).clone());
            }
        }
        let mut at = after.checked_sub(1);
        if let Some(p) = at.filter(|_| here).map(|i| &self.prefixes[i]) {
            match (p.exact, p.inclusive) {
                (Some(id), _) => return PrefixHit::Exact(id),
                (None, Some(id)) => return PrefixHit::Prefix(id),
                (None, None) => at = p.shorter,
            }
        }
        while let Some(i) = at {
            let p = &self.prefixes[i];
            if let Some(id) = p.inclusive.filter(|_| uri.starts_with(&p.name)) {
                return PrefixHit::Prefix(id);
            }
            at = p.shorter;
        }
        PrefixHit::None
    }
}

pub(super) enum PrefixHit {
    None,
    Exact(usize),
    Prefix(usize),
    Redirect(Vec<u8>),
}
