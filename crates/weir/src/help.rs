//! `weir help [DIRECTIVE]`: what the directive rows say.

use crate::load::row_table;
use std::io::Write;
use weir_module::{Row, RowBody};

pub fn directive(name: Option<&str>) -> Result<(), String> {
    let table = row_table();
    let mut out = String::new();
    match name {
        None => {
            let mut names: Vec<&str> = table.names().collect();
            names.sort_unstable();
            names.dedup();
            out.push_str("weir help DIRECTIVE, for one of:\n");
            names.iter().for_each(|n| out.push_str(&format!("  {n}\n")));
        }
        Some(n) => {
            let rows = table.find(n.as_bytes());
            if rows.is_empty() {
                return Err(unknown(n, &table));
            }
            rows.iter().for_each(|r| describe(r, &mut out));
        }
    }
    std::io::stdout().write_all(out.as_bytes()).map_err(|e| format!("{e}\n"))
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
