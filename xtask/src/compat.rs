//! `docs/compatibility.md`: what of nginx's and Tengine's directives and variables there is, out of the program's own
//! rows and the inventory in `docs/inventory`.

use crate::docs::{escaped, help};
use std::collections::{BTreeMap, HashSet};
use std::path::{Path, PathBuf};

const HEAD: &str = "\
# Compatibility

Every directive and variable of nginx and Tengine, and what this version does with it; written by `cargo xtask docs` out
of `docs/inventory` and what the program says of itself. *done*: as nginx's documentation has it. *differs*: done, with
the difference beside it. *refused*: with a message that says what to write instead. *not yet*: unknown here.
";

pub fn path(root: &Path) -> PathBuf {
    root.join("docs").join("compatibility.md")
}

/// What becomes of a name, in one word, and what there is to say of it.
enum State {
    Done,
    Differs(String),
    Refused(String),
    NotYet,
}

impl State {
    fn cells(&self) -> (&'static str, &str) {
        match self {
            State::Done => ("done", ""),
            State::Differs(how) => ("differs", how),
            State::Refused(why) => ("refused", why),
            State::NotYet => ("not yet", ""),
        }
    }
}

struct Name {
    product: String,
    module: String,
    name: String,
}

fn inventory(root: &Path, file: &str) -> Result<Vec<Name>, String> {
    let path = root.join("docs/inventory").join(file);
    let text = std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))?;
    let name = |line: &str| {
        let mut fields = line.split('\t').map(str::to_owned);
        Some(Name { product: fields.next()?, module: fields.next()?, name: fields.next()? })
    };
    Ok(text.lines().skip(1).filter_map(name).filter(|n| n.product != "product").collect())
}

pub fn page(root: &Path, binary: &Path) -> Result<String, String> {
    let (directives, variables) =
        (inventory(root, "directives.tsv")?, inventory(root, "variables.tsv")?);
    let known = listed(&help(binary, &[])?);
    let is_named = listed(&help(binary, &["$"])?);
    let mut out = HEAD.to_owned();
    let of_directive = |n: &Name| match known.contains(&n.name) {
        // The reader's, which no module has a row for.
        _ if n.name == "include" => Ok(State::Done),
        true => Ok(match note(&help(binary, &[&n.name])?) {
            Some(note) => State::Differs(note),
            None => State::Done,
        }),
        false => Ok(refusal(help(binary, &[&n.name]))),
    };
    section(&mut out, "Directives", &directives, of_directive)?;
    let of_variable = |n: &Name| {
        let name = format!("${}", n.name.trim_end_matches(['*', '_']));
        let is_there = |known: &String| {
            known.trim_end_matches(['*', '_']) == name
                || known.strip_suffix('*').is_some_and(|s| name.starts_with(s))
        };
        Ok(if is_named.iter().any(is_there) { State::Done } else { State::NotYet })
    };
    section(&mut out, "Variables", &variables, of_variable)?;
    Ok(out)
}

/// The names of a list of `weir help`.
fn listed(text: &str) -> HashSet<String> {
    let name = |l: &str| l.strip_prefix("  ")?.split(' ').next().map(str::to_owned);
    text.lines().filter_map(name).collect()
}

fn note(text: &str) -> Option<String> {
    let notes: Vec<&str> =
        text.lines().filter_map(|l| l.trim().strip_prefix("Note:")).map(str::trim).collect();
    (!notes.is_empty()).then(|| notes.join("; "))
}

/// What the program says of a directive that it does not have.
fn refusal(said: Result<String, String>) -> State {
    let text = said.err().unwrap_or_default();
    match text.trim().split_once("\": ") {
        Some((_, why)) => State::Refused(why.to_owned()),
        None => State::NotYet,
    }
}

fn section(
    out: &mut String,
    title: &str,
    names: &[Name],
    state: impl Fn(&Name) -> Result<State, String>,
) -> Result<(), String> {
    out.push_str(&format!("\n## {title}\n"));
    let mut products: BTreeMap<&str, Vec<(&Name, State)>> = BTreeMap::new();
    for name in names {
        products.entry(&name.product).or_default().push((name, state(name)?));
    }
    for (product, all) in products {
        let count =
            |words: &[&str]| all.iter().filter(|(_, s)| words.contains(&s.cells().0)).count();
        let (done, refused) = (count(&["done", "differs"]), count(&["refused"]));
        out.push_str(&format!(
            "\n### {product}: {done} of {} done, {refused} refused with what to write instead\n\n\
             | module | name | | |\n| --- | --- | --- | --- |\n",
            all.len()
        ));
        for (name, state) in &all {
            let (word, text) = state.cells();
            let text = escaped(text).replace('|', "\\|");
            out.push_str(&format!("| {} | `{}` | {word} | {text} |\n", name.module, name.name));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_program_says() {
        let list = listed("weir help DIRECTIVE, for one of:\n  a\n  $b_* http stream\n");
        assert!(list.contains("a") && list.contains("$b_*") && list.len() == 2);
        assert_eq!(note("a\n  Does.\n  Note:     differs\n").as_deref(), Some("differs"));
        assert_eq!(note("a\n  Does.\n"), None);
        let said = |text: &str| refusal(Err(text.into())).cells().0;
        assert_eq!(said("\"perl\": Weir has no Perl\n"), "refused");
        assert_eq!(said("there is no directive \"x\"\n"), "not yet");
    }
}
