//! `weir help [DIRECTIVE]`: what the directive rows say; `weir help '$'`: the variables.

use crate::load::row_table;
use crate::modules::{MAIL, MODULES, STREAM};
use std::collections::BTreeMap;
use std::io::Write;
use weir_core::common::Common;
use weir_core::variables::Variable;
use weir_http::Request;
use weir_module::{Row, RowBody};

/// What stands in its place is read before there are directives; no row tells of it.
const INCLUDE: &str = "include";
const OF_INCLUDE: &str = "include\n  Reads what stands in another file, or in all that a pattern (*, ?, [abc]) matches, in its place.\n  \
    Takes:    one argument\n  Context:  everywhere\n  Note:     Names are relative to the main configuration file's \
    directory.\n";

/// What is different on Windows; docs/windows.md is made of it too.
const WINDOWS: &str = include_str!("../../../docs/inventory/windows.tsv");

/// What is different there of a directive or a variable: how, what, and what to do.
fn on_windows(kind: &str, name: &str, out: &mut String) {
    let rows = WINDOWS.lines().map(|line| line.split('\t').collect::<Vec<_>>());
    for row in rows {
        let [row_kind, names, state, what, to_do] = row[..] else { continue };
        if row_kind == kind && names.split(", ").any(|n| n == name) {
            let line = format!("  Windows:  {state}. {what} {to_do}");
            out.push_str(&format!("{}\n", line.trim_end()));
        }
    }
}

pub fn directive(name: Option<&str>) -> Result<(), String> {
    let table = row_table();
    let mut out = String::new();
    match name {
        None => {
            let mut names: Vec<&str> = table.names().chain([INCLUDE]).collect();
            names.sort_unstable();
            names.dedup();
            out.push_str("weir help DIRECTIVE, for one of:\n");
            names.iter().for_each(|n| out.push_str(&format!("  {n}\n")));
        }
        Some(INCLUDE) => {
            out.push_str(OF_INCLUDE);
            on_windows("directive", INCLUDE, &mut out);
        }
        Some(n) if n.starts_with('$') => variables(n, &mut out)?,
        Some(n) => {
            let rows = table.find(n.as_bytes());
            if rows.is_empty() {
                return Err(unknown(n, &table));
            }
            for (at, row) in rows.iter().enumerate() {
                describe(row, &mut out);
                if at == 0 {
                    on_windows("directive", n, &mut out);
                }
            }
        }
    }
    std::io::stdout().write_all(out.as_bytes()).map_err(|e| format!("{e}\n"))
}

/// The protocols that have a variable, by its name; one that stands for all that begin so ends in `*`.
fn all_variables() -> BTreeMap<String, Vec<&'static str>> {
    let mut all: BTreeMap<String, Vec<&'static str>> = BTreeMap::new();
    let mut add = |name: &str, prefix: bool, protocol| {
        let protocols = all.entry(format!("${name}{}", if prefix { "*" } else { "" })).or_default();
        if !protocols.contains(&protocol) {
            protocols.push(protocol);
        }
    };
    for (protocol, variables) in [
        ("http", names(Common::<Request>::VARIABLES)),
        ("stream", names(Common::<weir_stream::Session>::VARIABLES)),
        ("http", OF_THE_CONFIGURATION.iter().map(|n| (*n, false)).collect()),
    ] {
        variables.into_iter().for_each(|(name, prefix)| add(name, prefix, protocol));
    }
    for v in MODULES.iter().flat_map(|m| m.variables) {
        add(v.name, v.prefix, "http");
    }
    for v in STREAM.iter().flat_map(|m| m.variables) {
        add(v.name, v.prefix, "stream");
    }
    for v in MAIL.iter().flat_map(|m| m.variables) {
        add(v.name, v.prefix, "mail");
    }
    all
}

/// What the configuration sets for a module to read.
const OF_THE_CONFIGURATION: &[&str] = &["memcached_key", "uid_reset"];

fn names<S>(variables: &'static [Variable<S>]) -> Vec<(&'static str, bool)> {
    variables.iter().map(|v| (v.name, v.prefix)).collect()
}

/// `$`: all of them; a name: where it is.
fn variables(name: &str, out: &mut String) -> Result<(), String> {
    let all = all_variables();
    if name == "$" {
        out.push_str("weir help '$NAME', for one of:\n");
        all.iter().for_each(|(name, at)| out.push_str(&format!("  {name} {}\n", at.join(" "))));
        return Ok(());
    }
    let begins = |n: &str| n.strip_suffix('*').is_some_and(|start| name.starts_with(start));
    match all.iter().find(|(n, _)| *n == name).or_else(|| all.iter().find(|(n, _)| begins(n))) {
        Some((_, at)) => {
            out.push_str(&format!("{name}\n  Context:  {}\n", at.join(", ")));
            on_windows("variable", &name[1..], out);
            Ok(())
        }
        None => {
            Err(format!("no module has a variable \"{name}\"; the configuration may define it\n"))
        }
    }
}

fn describe(row: &Row, out: &mut String) {
    out.push_str(&format!("{}\n  {}\n", row.name, row.doc));
    let block = match row.body {
        RowBody::Plain => "",
        RowBody::Block | RowBody::Raw => ", then a block",
    };
    out.push_str(&format!("  Takes:    {}{block}\n", row.arity.describe()));
    out.push_str(&format!("  Context:  {}\n", row.contexts.names().join(", ")));
    if !row.default.is_empty() {
        out.push_str(&format!("  Default:  {} {};\n", row.name, row.default));
    }
    if !row.note.is_empty() {
        out.push_str(&format!("  Note:     {}\n", row.note));
    }
}

fn unknown(name: &str, table: &weir_module::RowTable) -> String {
    if let Some(why) = table.missing(name) {
        return format!("\"{name}\": {why}\n");
    }
    match weir_conf::suggest(name, table.names()) {
        Some(near) => format!("there is no directive \"{name}\"; did you mean \"{near}\"?\n"),
        None => format!("there is no directive \"{name}\"\n"),
    }
}
