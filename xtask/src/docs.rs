//! `docs/directives.md`: what `weir help DIRECTIVE` says, for every directive there is.

use crate::{cargo, compat, lua, windows_page};
use std::path::{Path, PathBuf};
use std::process::Command;

const HEAD: &str = "\
# Directives

Every directive this version knows, in the words of `weir help DIRECTIVE`; written by
`cargo xtask docs`, so change the directive's row and not this page. Where nothing else is said,
a directive does what nginx's documentation says of it.

";

fn path(root: &Path) -> PathBuf {
    root.join("docs").join("directives.md")
}

/// Whether the pages say what the built program says.
pub fn check(root: &Path) -> Result<(), String> {
    let binary = cargo::release_binary(root);
    let directives = page(&binary)?;
    let pages = [
        (windows_page::path(root), windows_page::page(root, &directives)?),
        (path(root), directives),
        (compat::path(root), compat::page(root, &binary)?),
        (lua::path(root), lua::page(root)?),
    ];
    let is_old = |(path, page): &(PathBuf, String)| {
        std::fs::read_to_string(path).unwrap_or_default() != *page
    };
    match pages.iter().find(|p| is_old(p)) {
        None => Ok(()),
        Some((path, _)) => {
            Err(format!("{} is not what the program says: cargo xtask docs", path.display()))
        }
    }
}

pub fn write(root: &Path) -> Result<(), String> {
    // The rows are the same in every profile, and this one is built soonest.
    cargo::run(root, &["build", "--quiet", "--package", "weir"])?;
    let binary = cargo::debug_binary(root);
    let directives = page(&binary)?;
    save(&windows_page::path(root), &windows_page::page(root, &directives)?)?;
    save(&path(root), &directives)?;
    save(&compat::path(root), &compat::page(root, &binary)?)?;
    save(&lua::path(root), &lua::page(root)?)
}

fn save(path: &Path, text: &str) -> Result<(), String> {
    if let Some(dir) = path.parent() {
        std::fs::create_dir_all(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    }
    std::fs::write(path, text).map_err(|e| format!("{}: {e}", path.display()))
}

fn page(binary: &Path) -> Result<String, String> {
    let list = help(binary, &[])?;
    let names: Vec<&str> = list.lines().filter_map(|l| l.strip_prefix("  ")).collect();
    if names.is_empty() {
        return Err("`weir help` lists no directives".into());
    }
    let mut out = HEAD.to_owned();
    let links: Vec<String> = names.iter().map(|n| format!("[{n}](#{n})")).collect();
    out.push_str(&links.join(" · "));
    out.push('\n');
    for name in names {
        out.push_str(&section(name, &help(binary, &[name])?));
    }
    Ok(out)
}

pub(crate) fn help(binary: &Path, args: &[&str]) -> Result<String, String> {
    let run = Command::new(binary).arg("help").args(args).output();
    let output = run.map_err(|e| format!("{}: {e}", binary.display()))?;
    match output.status.success() {
        true => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        false => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// A heading, and for each row its sentence and a list of its facts.
fn section(name: &str, text: &str) -> String {
    let mut out = format!("\n## {name}\n");
    let mut in_list = false;
    for line in text.lines().filter(|line| *line != name) {
        let line = line.trim();
        let fact = line.split_once(": ").filter(|(word, rest)| {
            ["Takes", "Context", "Default", "Note"].contains(word) && !rest.is_empty()
        });
        match fact {
            Some((word @ "Default", rest)) => {
                out.push_str(&format!("- {word}: `{}`\n", rest.trim()));
            }
            Some((word, rest)) => out.push_str(&format!("- {word}: {}\n", escaped(rest.trim()))),
            None => out.push_str(&format!("\n{}\n\n", escaped(line))),
        }
        in_list = fact.is_some();
    }
    if !in_list {
        out.truncate(out.trim_end().len());
        out.push('\n');
    }
    out
}

/// Markdown would take these for its own.
pub(crate) fn escaped(text: &str) -> String {
    text.replace('<', "\\<").replace('*', "\\*").replace('_', "\\_")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections() {
        let help = "a_b\n  Does a_b.\n  Takes:    one argument\n  Default:  a_b x;\n";
        assert_eq!(
            section("a_b", help),
            "\n## a_b\n\nDoes a\\_b.\n\n- Takes: one argument\n- Default: `a_b x;`\n"
        );
    }
}
