//! A picture as one object of JSON: what is not known is `null`, and never 0.

use crate::picture::{Picture, Problem, Seen};
use crate::specs::{self, SERVERS, WHOLE};
use crate::table::{Column, Table};
use serde_json::{json, Map, Value};

pub fn document(picture: &Picture) -> String {
    let mut all = Map::new();
    all.insert("interval_seconds".into(), json!(picture.secs));
    all.insert("sources".into(), picture.seen.iter().map(seen).collect());
    let mut sums = Map::new();
    put_sums(&mut sums, &picture.whole, &picture.sum);
    all.insert("overview".into(), Value::Object(sums));
    for (table, rows) in specs::tables().zip(&picture.tables).skip(1) {
        let rows = rows.iter().map(|row| {
            let mut out = Map::new();
            out.insert("name".into(), json!(row.name));
            put(&mut out, table.columns, &row.cells);
            Value::Object(out)
        });
        all.insert(table.key.into(), rows.collect());
    }
    all.insert("problems".into(), picture.problems.iter().map(problem).collect());
    let mut text = ascii(&Value::Object(all).to_string());
    text.push('\n');
    text
}

fn table(n: usize) -> Option<&'static Table> {
    specs::tables().nth(n)
}

fn put(out: &mut Map<String, Value>, columns: &[Column], cells: &[crate::cell::Cell]) {
    for (column, cell) in columns.iter().zip(cells) {
        out.insert(column.key.into(), cell.json());
    }
}

/// Those of all servers of http, and then those of the whole, which are exact where both have them.
fn put_sums(out: &mut Map<String, Value>, whole: &[crate::cell::Cell], sum: &[crate::cell::Cell]) {
    for (n, cells) in [(SERVERS, sum), (WHOLE, whole)] {
        if let Some(table) = table(n) {
            put(out, table.columns, cells);
        }
    }
}

fn seen(seen: &Seen) -> Value {
    let mut out = Map::new();
    out.insert("name".into(), json!(seen.name));
    out.insert("error".into(), json!(seen.error));
    out.insert("interval_seconds".into(), json!(seen.secs));
    put_sums(&mut out, &seen.whole, &seen.sum);
    Value::Object(out)
}

fn problem(p: &Problem) -> Value {
    let kind = if p.is_line { "level" } else { "status" };
    json!({
        "at_ms": p.at_ms, "source": p.source, kind: p.kind, "took_ms": p.took_ms, "text": p.text,
        "left_out": p.left_out,
    })
}

/// Texts of strangers do nothing to a terminal, and are the same for who reads JSON.
fn ascii(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            ' '..='~' => out.push(c),
            c => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    out.push_str(&format!("\\u{unit:04x}"));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn json_is_ascii() {
        let text = ascii(&json!({"a\u{7f}\u{202e}": "é😀\u{1b}"}).to_string());
        assert!(text.is_ascii() && !text.contains('\u{7f}'), "{text}");
        let back: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(back, json!({"a\u{7f}\u{202e}": "é😀\u{1b}"}));
    }

    #[test]
    fn an_empty_picture_is_whole() {
        let text = document(&Picture::default());
        let told: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(told["interval_seconds"], Value::Null);
        assert_eq!(told["sources"], json!([]));
    }
}
