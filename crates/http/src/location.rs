//! Which location serves a URI, and which file it names.

use crate::request::Request;
use std::path::PathBuf;
use std::rc::Rc;
use weir_core::generation::RegexTarget;
use weir_core::unknown::regex_match;
use weir_core::Session;
use weir_script::regex::{MatchError, Regex};
use weir_script::template::VarId;

/// A prefix location's place in the sorted list.
struct Prefix {
    name: Vec<u8>,
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
pub struct LocationSet {
    prefixes: Vec<Prefix>,
    /// Some prefix redirects its name without the slash.
    auto_redirects: bool,
    regexes: Vec<RegexTarget>,
}

/// What a level is built from.
pub struct Entry {
    pub name: Vec<u8>,
    pub id: usize,
    pub exact: bool,
    pub auto_redirect: bool,
    pub regex: Option<weir_core::registry::NamedRegex>,
}

impl LocationSet {
    pub fn new(entries: Vec<Entry>) -> LocationSet {
        let mut set = LocationSet::default();
        let mut prefixes = Vec::new();
        for e in entries {
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

    fn is_empty(&self) -> bool {
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

    fn find_prefix(&self, uri: &[u8]) -> PrefixHit {
        let after = self.prefixes.partition_point(|p| p.name.as_slice() <= uri);
        let here = after > 0 && self.prefixes[after - 1].name == uri;
        if self.auto_redirects && !here {
            let with_slash = |p: &Prefix| {
                p.name.split_last().is_some_and(|(last, name)| *last == b'/' && name == uri)
            };
            let mut behind = self.prefixes[after..].iter().take_while(|p| p.name.starts_with(uri));
            if let Some(p) = behind.find(|p| p.auto_redirect && with_slash(p)) {
                return PrefixHit::Redirect(p.name.clone());
            }
        }
        let mut at = match after {
            0 => return PrefixHit::None,
            n => Some(n - 1),
        };
        while let Some(i) = at {
            let p = &self.prefixes[i];
            if p.name == uri {
                if let Some(id) = p.exact {
                    return PrefixHit::Exact(id);
                }
            }
            if let Some(id) = p.inclusive.filter(|_| uri.starts_with(&p.name)) {
                return PrefixHit::Prefix(id);
            }
            at = match p.shorter {
                Some(s) => Some(s),
                None => return PrefixHit::None,
            };
        }
        PrefixHit::None
    }
}

enum PrefixHit {
    None,
    Exact(usize),
    Prefix(usize),
    Redirect(Vec<u8>),
}

pub enum Found {
    Here,
    /// The URI lacks a location's trailing slash.
    Redirect(Vec<u8>),
}

/// nginx's order: exact, longest prefix (and what is nested in it), regexes unless `^~`.
pub fn find(r: &mut Request) -> Found {
    let mut found = Found::Here;
    descend(r, &mut found);
    found
}

/// Answers whether the search is over (an exact, regex or redirect hit, or an expression that could
/// not tell, which ends the request).
fn descend(r: &mut Request, found: &mut Found) -> bool {
    let here = Rc::clone(r.loc());
    let mut no_regex = false;
    match here.nested.find_prefix(&r.uri) {
        PrefixHit::Redirect(path) => {
            *found = Found::Redirect(path);
            return true;
        }
        PrefixHit::Exact(id) => {
            r.set_location(id);
            return true;
        }
        PrefixHit::Prefix(id) => {
            r.set_location(id);
            no_regex = r.loc().no_regex;
            if !r.loc().nested.is_empty() && descend(r, found) {
                return true;
            }
        }
        PrefixHit::None => {}
    }
    if no_regex {
        return false;
    }
    for (regex, id, vars) in &here.nested.regexes {
        match match_uri(r, regex, vars) {
            Ok(true) => {
                r.set_location(*id);
                descend(r, found);
                return true;
            }
            Ok(false) => {}
            Err(_) => return true,
        }
    }
    false
}

fn match_uri(r: &mut Request, regex: &Regex, vars: &[(usize, VarId)]) -> Result<bool, MatchError> {
    let uri = std::mem::take(&mut r.uri);
    let hit = regex_match(r, regex, vars, &uri);
    r.uri = uri;
    hit
}

/// The file that a URI names: root, or alias, and the URI's path.
pub fn map_uri(r: &mut Request, uri: &[u8]) -> PathBuf {
    let mut path = Vec::new();
    map_uri_into(r, uri, &mut path);
    weir_runtime::paths::path(&path).into_owned()
}

pub fn map_uri_into(r: &mut Request, uri: &[u8], path: &mut Vec<u8>) {
    let loc = Rc::clone(r.loc());
    let core = &loc.core;
    r.eval_into(&core.root, path);
    if *core.alias {
        if core.alias_is_whole {
            if r.add_uri_to_alias {
                path.extend_from_slice(uri);
            }
            return;
        }
        let name = core.alias_name.as_deref().unwrap_or(&loc.name);
        path.extend_from_slice(uri.get(name.len()..).unwrap_or_default());
        return;
    }
    if path.last() == Some(&b'/') {
        path.pop();
    }
    path.extend_from_slice(uri);
}
