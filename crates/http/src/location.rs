//! Which location serves a URI, and which file it names.

pub(crate) mod set;

use crate::request::Request;
use set::PrefixHit;
use std::path::PathBuf;
use std::rc::Rc;
use weir_core::unknown::regex_match;
use weir_runtime::paths::below;
use weir_script::regex::{MatchError, Regex};
use weir_script::template::VarId;

/// What a search for a location has come to.
pub enum Found {
    /// The request is in its location.
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
    let hit = r.loc().nested.find_prefix(&r.uri);
    let here = (!r.loc().nested.regexes.is_empty()).then(|| Rc::clone(r.loc()));
    let mut no_regex = false;
    match hit {
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
    let Some(here) = here.filter(|_| !no_regex) else { return false };
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

/// The same, onto the end of `path`.
pub fn map_uri_into(r: &mut Request, uri: &[u8], path: &mut Vec<u8>) {
    let loc = Rc::clone(r.loc());
    let core = &loc.core;
    core.root_into(r, path);
    if *core.alias {
        if core.alias_is_whole {
            if r.flags.add_uri_to_alias {
                path.extend_from_slice(below(uri));
            }
            return;
        }
        let name = core.alias_name.as_deref().unwrap_or(&loc.name);
        path.extend_from_slice(below(uri.get(name.len()..).unwrap_or_default()));
        return;
    }
    if path.last() == Some(&b'/') {
        path.pop();
    }
    path.extend_from_slice(below(uri));
}
