//! `docs/windows.md`: what is different on Windows, of `docs/inventory/windows.tsv` and `tests/windows.tsv`. What a row names
//! as a directive, a variable or an entry of Lua's interface has to be one.

use crate::windows;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

const HEAD: &str = "\
# Windows

What is different from Linux, and what is not there yet; all else is the same code. Written by `cargo xtask docs` of
`docs/inventory/windows.tsv` and `tests/windows.tsv`, so change these and not this page.

*differs*: it is there, with the difference beside it. *refused*: with a message, when the configuration is read, the
server starts, or the request comes. *fails*: it is taken, and what needs it fails when it is used. *ignored*: it is
taken, and nothing is done. *missing*: it is not there yet.

The program is built by mingw-w64 (x86_64-pc-windows-gnu) and has been tried under wine alone, by the black-box tests
that Linux has: do not let it serve anybody yet. How it is installed, also as a service, is in the [README](../README.md).
";

/// Parts of the page, and what kind of rows stand in each.
const PARTS: [(&str, &str); 8] = [
    ("Directives", "directive"),
    ("Variables", "variable"),
    ("Signals", "signal"),
    ("Commands", "command"),
    ("Names of files", "path"),
    ("Lua: the interface", "lua"),
    ("Lua: libraries", "library"),
    ("Life of a server", "life"),
];
const STATES: [&str; 5] = ["differs", "refused", "fails", "ignored", "missing"];

pub fn path(root: &Path) -> PathBuf {
    root.join("docs").join("windows.md")
}

struct Row<'a> {
    kind: &'a str,
    names: Vec<&'a str>,
    state: &'a str,
    what: &'a str,
    to_do: &'a str,
}

fn row(line: &str) -> Result<Row<'_>, String> {
    let words: Vec<&str> = line.split('\t').collect();
    let [kind, names, state, what, to_do] = words[..] else {
        return Err(format!("docs/inventory/windows.tsv: not five fields: {line}"));
    };
    let is_known = PARTS.iter().any(|(_, k)| *k == kind) && STATES.contains(&state);
    if !is_known || names.is_empty() || what.is_empty() {
        return Err(format!("docs/inventory/windows.tsv: bad line: {line}"));
    }
    Ok(Row { kind, names: names.split(", ").collect(), state, what, to_do })
}

fn read(root: &Path, file: &str) -> Result<String, String> {
    let path = root.join(file);
    std::fs::read_to_string(&path).map_err(|e| format!("{}: {e}", path.display()))
}

/// `directives`: the page of all of them.
pub fn page(root: &Path, directives: &str) -> Result<String, String> {
    let text = read(root, "docs/inventory/windows.tsv")?;
    let rows = text.lines().skip(1).map(row).collect::<Result<Vec<_>, _>>()?;
    let variables = read(root, "docs/inventory/variables.tsv")?;
    let api = read(root, "docs/inventory/lua_api.tsv")?;
    let is_there = |kind: &str, name: &str| {
        let field = |text: &str, n| text.lines().any(|l| l.split('\t').nth(n) == Some(name));
        match kind {
            "directive" => directives.lines().any(|l| l.strip_prefix("## ") == Some(name)),
            "variable" => field(&variables, 2),
            "lua" => field(&api, 1),
            _ => true,
        }
    };
    let mut out = HEAD.to_owned();
    for (title, kind) in PARTS {
        let _ = write!(out, "\n## {title}\n\n| name | state | what happens | what to do |\n| --- | --- | --- | --- |\n");
        for row in rows.iter().filter(|r| r.kind == kind) {
            if let Some(name) = row.names.iter().find(|name| !is_there(kind, name)) {
                return Err(format!("docs/inventory/windows.tsv: there is no {kind} {name}"));
            }
            out.push_str(&line(row));
        }
    }
    out.push_str("\n## Left out of the tests under wine\n\n| tests | why |\n| --- | --- |\n");
    for (name, why) in windows::left_out(root)? {
        let _ = writeln!(out, "| `{name}` | {why} |");
    }
    Ok(out)
}

fn line(row: &Row<'_>) -> String {
    let is_code = ["directive", "variable", "command", "lua"].contains(&row.kind);
    let sign = if row.kind == "variable" { "$" } else { "" };
    let name = |name: &&str| match is_code {
        true => format!("`{sign}{name}`"),
        false => (*name).to_owned(),
    };
    let names: Vec<String> = row.names.iter().map(name).collect();
    let cell = |text: &str| text.replace('|', "\\|");
    format!(
        "| {} | {} | {} | {} |\n",
        cell(&names.join(", ")),
        row.state,
        cell(row.what),
        cell(row.to_do)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows() {
        let row = row("variable\ta, b\tdiffers\tx|y\t").unwrap();
        assert_eq!(line(&row), "| `$a`, `$b` | differs | x\\|y |  |\n");
        for bad in ["variable\ta\tdiffers\tx", "variable\ta\tsame\tx\t", "thing\ta\tdiffers\tx\t"] {
            assert!(super::row(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn what_is_named_is_there() {
        let directives = read(&crate::root(), "docs/directives.md").unwrap();
        page(&crate::root(), &directives).unwrap();
        let err = page(&crate::root(), "").unwrap_err();
        assert!(err.contains("there is no directive user"), "{err}");
    }
}
