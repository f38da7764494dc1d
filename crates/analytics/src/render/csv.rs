//! CSV (RFC 4180): one table of all lists. A text that a spreadsheet would take for a formula has an apostrophe
//! before it.

use super::Shown;
use std::fmt::Write;

fn cell(text: &str) -> String {
    let first = text.trim_start().chars().next();
    let guard = match first {
        Some('=' | '+' | '-' | '@' | '\t' | '\r' | '|' | '%') => "'",
        _ => "",
    };
    format!("\"{guard}{}\"", text.replace('"', "\"\""))
}

pub fn csv(shown: &Shown<'_>) -> String {
    let mut out =
        String::from("panel,name,note,hits,visitors,bytes,may_have_more,mean_us,longest_us\r\n");
    let s = shown.summary;
    let all = [
        ("valid_requests", s.valid),
        ("failed_requests", s.invalid),
        ("outside_requests", s.outside),
        ("unique_visitors", s.visitors),
        ("unique_files", s.files.0),
        ("unique_static_files", s.statics.0),
        ("unique_not_found", s.missing.0),
        ("unique_referrers", s.referrers.0),
        ("bytes", s.bytes),
    ];
    for (name, n) in all {
        let _ = write!(out, "summary,{},,{n},,,,,\r\n", cell(name));
    }
    let number = |n: Option<u64>| n.map_or_else(String::new, |n| n.to_string());
    for panel in shown.panels {
        for row in &panel.rows {
            let _ = write!(
                out,
                "{},{},{},{},{},{},{},{},{}\r\n",
                panel.id,
                cell(&row.name),
                if row.note.is_empty() { String::new() } else { cell(&row.note) },
                row.hits,
                number(row.visitors),
                row.bytes,
                row.error,
                number(row.mean_us),
                number(row.longest_us),
            );
        }
    }
    out
}
