//! Which files of a crate use each other in a circle: read from the paths that begin with `crate`,
//! `super` or `self`, or with a module that the file declares or has by a `use`. What a module passes on
//! with `pub use` counts as used where it comes from.

use super::source::{code, without_tests};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

/// A module's path from the crate's root, which is empty.
type Name = Vec<String>;

/// A file of a crate, and what it says of other modules.
struct File {
    path: String,
    /// Every path of modules in it, as far as it was written: `["crate", "conf", "BackendLoc"]`.
    paths: Vec<Name>,
    /// Modules that it declares in files of their own.
    children: BTreeSet<String>,
    /// What it passes on: the name, and the path it comes by.
    passed_on: BTreeMap<String, Name>,
}

pub struct Files(BTreeMap<Name, File>);

impl Files {
    /// The files of the crate in that directory, without those that only tests have.
    pub fn read(root: &Path, room: &str, tests: &[std::path::PathBuf]) -> Result<Files, String> {
        let src = Path::new("crates").join(room).join("src");
        let mut found = Vec::new();
        super::walk(root, &root.join(&src), &mut found)?;
        let mut files = BTreeMap::new();
        for path in found.iter().filter(|p| p.extension().is_some_and(|e| e == "rs")) {
            if tests.iter().any(|t| path == t || path.starts_with(t.with_extension(""))) {
                continue;
            }
            let text = fs::read_to_string(root.join(path)).map_err(|e| e.to_string())?;
            let inside = path.strip_prefix(&src).unwrap_or(path);
            files.insert(module_of(inside), File::new(inside, &text));
        }
        Ok(Files(files))
    }

    /// Sets of files that use each other in circles, the largest first.
    pub fn circles(&self) -> Vec<Vec<&str>> {
        let names: Vec<&Name> = self.0.keys().collect();
        let reach: Vec<BTreeSet<&Name>> = names.iter().map(|n| self.reachable(n)).collect();
        let mut seen = BTreeSet::new();
        let mut found: Vec<Vec<&str>> = Vec::new();
        for (i, name) in names.iter().enumerate().filter(|(i, n)| reach[*i].contains(**n)) {
            let mutual = |k: &usize| reach[i].contains(names[*k]) && reach[*k].contains(name);
            if seen.insert(i) {
                let circle: Vec<usize> = (0..names.len()).filter(mutual).collect();
                found.push(circle.iter().map(|k| &*self.0[names[*k]].path).collect());
                seen.extend(circle);
            }
        }
        found.sort_by_key(|circle| std::cmp::Reverse(circle.len()));
        found
    }

    /// What a file uses, and what that uses, and so on.
    fn reachable(&self, from: &Name) -> BTreeSet<&Name> {
        let mut all = BTreeSet::new();
        let mut next = self.uses(from);
        while let Some(name) = next.pop() {
            if all.insert(name) {
                next.extend(self.uses(name));
            }
        }
        all
    }

    fn uses(&self, name: &Name) -> Vec<&Name> {
        let Some(file) = self.0.get(name) else { return Vec::new() };
        let targets = file.paths.iter().filter_map(|p| self.resolve(name, p, 0));
        targets.filter(|t| *t != name).collect()
    }

    /// The file that a path in the module `from` leads to.
    fn resolve(&self, from: &Name, path: &[String], depth: usize) -> Option<&Name> {
        let mut at = from.clone();
        let mut rest = path;
        while let Some((first, behind)) = rest.split_first() {
            match first.as_str() {
                "crate" => at.clear(),
                "super" => drop(at.pop()),
                "self" => {}
                _ => break,
            }
            rest = behind;
        }
        while let Some((first, behind)) = rest.split_first() {
            let mut child = at.clone();
            child.push(first.clone());
            match self.0.contains_key(&child) {
                true => at = child,
                false => break,
            }
            rest = behind;
        }
        let (name, file) = self.0.get_key_value(&at)?;
        let source = rest.first().and_then(|item| file.passed_on.get(item));
        match source.filter(|_| depth < self.0.len()) {
            Some(source) => self.resolve(name, source, depth + 1),
            None => Some(name),
        }
    }
}

fn module_of(inside: &Path) -> Name {
    let mut name: Name =
        inside.with_extension("").iter().map(|p| p.to_string_lossy().into_owned()).collect();
    if name.last().is_some_and(|last| ["lib", "main", "mod"].contains(&&**last)) {
        name.pop();
    }
    name
}

impl File {
    fn new(inside: &Path, text: &str) -> File {
        let code = without_tests(&code(text));
        let mut file = File {
            path: inside.to_string_lossy().into_owned(),
            paths: Vec::new(),
            children: BTreeSet::new(),
            passed_on: BTreeMap::new(),
        };
        let words: Vec<&str> = tokens(&code);
        for three in words.windows(3) {
            if let ["mod", name, ";"] = three {
                file.children.insert((*name).to_owned());
            }
        }
        let mut brought = BTreeMap::new();
        let mut is_passed_on = false;
        for at in 0..words.len() {
            match words[at] {
                "use" => {
                    is_passed_on = words[..at].last().is_some_and(|w| ["pub", ")"].contains(w))
                }
                ";" => is_passed_on = false,
                word if file.begins_path(word, &words, at) => {
                    let mut leaves = Vec::new();
                    tree(&words, at, &mut Vec::new(), &mut leaves);
                    for (path, shown) in leaves {
                        if is_passed_on {
                            file.passed_on.insert(shown, path);
                        } else {
                            brought.insert(shown, path.clone());
                            file.paths.push(path);
                        }
                    }
                }
                _ => {}
            }
        }
        file.add_brought(&words, &brought);
        file
    }

    /// What is said of modules by the names that they were brought by: `a::X` behind `use crate::a`.
    fn add_brought(&mut self, words: &[&str], brought: &BTreeMap<String, Name>) {
        for three in words.windows(3) {
            let [name, "::", item] = three else { continue };
            if let Some(path) = brought.get(*name) {
                let is_self = path.last().is_some_and(|last| last == "self");
                let module = &path[..path.len() - usize::from(is_self)];
                self.paths.push(module.iter().cloned().chain([(*item).to_owned()]).collect());
            }
        }
    }

    /// A path of modules begins with this word.
    fn begins_path(&self, word: &str, words: &[&str], at: usize) -> bool {
        let behind = words.get(at + 1) == Some(&"::");
        let before = at.checked_sub(1).map(|i| words[i]);
        let is_root = ["crate", "super", "self"].contains(&word) || self.children.contains(word);
        behind
            && is_root
            && !before.is_some_and(|b| ["::", "."].contains(&b))
            && !self.is_inside_tree(words, at)
    }

    /// Names in the braces of a `use` belong to the path before them.
    fn is_inside_tree(&self, words: &[&str], at: usize) -> bool {
        let mut depth = 0;
        for i in (0..at).rev() {
            match words[i] {
                "}" => depth += 1,
                "{" if depth > 0 => depth -= 1,
                "{" => return i > 0 && words[i - 1] == "::",
                ";" => return false,
                _ => {}
            }
        }
        false
    }
}

/// Words, `::`, and every other sign by itself.
fn tokens(code: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut rest = code.trim_start();
    while let Some(c) = rest.chars().next() {
        let is_word = |c: char| c.is_alphanumeric() || c == '_';
        let len = match c {
            _ if is_word(c) => rest.find(|c| !is_word(c)).unwrap_or(rest.len()),
            _ if rest.starts_with("::") => 2,
            _ => c.len_utf8(),
        };
        found.push(&rest[..len]);
        rest = rest[len..].trim_start();
    }
    found
}

/// The leaves of a path that may branch, each with the name it is known by; where it ends.
fn tree(words: &[&str], mut at: usize, stem: &mut Name, leaves: &mut Vec<(Name, String)>) -> usize {
    let own = stem.len();
    while let Some(word) = words.get(at) {
        if *word == "{" {
            at += 1;
            while words.get(at).is_some_and(|w| *w != "}") {
                at = tree(words, at, stem, leaves);
                at += usize::from(words.get(at) == Some(&","));
            }
            stem.truncate(own);
            return at + 1;
        }
        if !word.starts_with(|c: char| c.is_alphanumeric() || c == '_') {
            break;
        }
        stem.push((*word).to_owned());
        at += 1;
        if words.get(at) != Some(&"::") {
            break;
        }
        at += 1;
    }
    let named = stem.iter().rfind(|word| *word != "self");
    let mut shown = named.cloned().unwrap_or_default();
    if words.get(at) == Some(&"as") {
        shown = words.get(at + 1).map(|w| (*w).to_owned()).unwrap_or_default();
        at += 2;
    }
    leaves.push((stem.clone(), shown));
    stem.truncate(own);
    // Whatever this was, it is passed over.
    at + usize::from(words.get(at).is_some_and(|w| !["}", ",", ";"].contains(w)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files(all: &[(&str, &str)]) -> Files {
        let one = |(path, text): &(&str, &str)| {
            let path = Path::new(path);
            (module_of(path), File::new(path, text))
        };
        Files(all.iter().map(one).collect())
    }

    #[test]
    fn a_circle_is_found() {
        let all = files(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;\npub use a::A;"),
            ("a.rs", "use crate::b::{self, B};"),
            ("b.rs", "fn f() { super::a::g() }"),
            ("c.rs", "use crate::{a, b};"),
        ]);
        assert_eq!(all.circles(), [["a.rs", "b.rs"]]);
    }

    #[test]
    fn a_module_may_go_by_a_name() {
        let b = ("b.rs", "use crate::a;\nfn f() {}");
        let all = files(&[
            ("lib.rs", "mod a;\nmod b;\nmod c;"),
            ("a.rs", "pub use crate::c::C;"),
            b,
            ("c.rs", "use crate::b::B;"),
        ]);
        assert!(all.circles().is_empty(), "nothing is said of C");
        for text in [
            "use crate::a;\nfn f(c: a::C) {}",
            "use crate::a::{self, X};\nfn f(c: a::C) {}",
            "use crate::a as x;\nfn f(c: x::C) {}",
        ] {
            let b = ("b.rs", text);
            let all = files(&[
                ("lib.rs", "mod a;\nmod b;\nmod c;"),
                ("a.rs", "pub use crate::c::C;"),
                b,
                ("c.rs", "use crate::b::B;"),
            ]);
            assert_eq!(all.circles(), [["b.rs", "c.rs"]], "{text}");
        }
    }

    #[test]
    fn what_is_passed_on_is_used_where_it_comes_from() {
        let all = files(&[
            ("lib.rs", "mod a;\nmod d;\npub use d::{x::X, y::Y as Z};"),
            ("a.rs", "use crate::X;"),
            ("d/mod.rs", "pub mod x;\npub mod y;\nfn f() { y::g() }"),
            ("d/x.rs", ""),
            ("d/y.rs", "use crate::Z;\nuse crate::a;"),
        ]);
        assert!(all.circles().is_empty(), "{:?}", all.circles());
    }

    #[test]
    fn a_folder_and_its_files_make_a_circle() {
        let all = files(&[
            ("lib.rs", "mod d;"),
            ("d/mod.rs", "mod x;\nuse x::X;\nstruct D;"),
            ("d/x.rs", "use super::D;"),
        ]);
        assert_eq!(all.circles(), [["d/mod.rs", "d/x.rs"]]);
        let tests = "mod x;\nuse x::X;\n#[cfg(test)]\nmod tests { use super::x::D; }";
        let all = files(&[("d/mod.rs", tests), ("d/x.rs", "// super::D\nfn f() {}")]);
        assert!(all.circles().is_empty());
    }
}
