//! Tables of figures: what of two documents of a server makes a row, and how rows of several servers are added up.

use crate::cell::Cell;
use crate::document::{at, number, text, Look, Value};
use crate::spread::Spread;
use std::collections::HashMap;

/// Where a column's figure stands below its row, and what it is.
pub enum What {
    Text(&'static str),
    State(&'static str),
    Count(&'static str),
    Bytes(&'static str),
    /// In a second; several counts are one.
    Rate(&'static [&'static str]),
    BytesRate(&'static [&'static str]),
    /// Of what has come in the while.
    Share(&'static [&'static str], &'static [&'static str]),
    /// Of what there is.
    Used(&'static str, &'static str),
    /// Milliseconds of the while.
    Busy(&'static str),
    Time(&'static str, f64),
}

pub struct Column {
    pub title: &'static str,
    /// In JSON.
    pub key: &'static str,
    pub what: What,
}

/// What of a place are rows.
#[derive(Clone, Copy, PartialEq)]
pub enum Rows {
    /// The place itself.
    One,
    /// Its members by their names.
    Named,
    /// Of a list, by that member's value.
    Listed(&'static str),
    /// The peers of its members.
    Peers,
    /// All numbers below it.
    Numbers,
}

pub struct Table {
    pub title: &'static str,
    /// In JSON.
    pub key: &'static str,
    pub path: &'static str,
    pub rows: Rows,
    /// Rows of one server are not those of another that have the same name.
    pub is_own: bool,
    pub columns: &'static [Column],
    /// What to write where there are no rows.
    pub none: &'static str,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub name: String,
    pub cells: Vec<Cell>,
}

/// A server's last look, and the one before it.
#[derive(Clone, Copy)]
pub struct Pair<'a> {
    pub now: &'a Look,
    pub before: Option<&'a Look>,
}

impl Pair<'_> {
    /// The while between them; `None` without one.
    pub fn secs(&self) -> Option<f64> {
        let us = self.now.at_us.checked_sub(self.before?.at_us)?;
        // Two looks at the same moment tell nothing.
        (us >= 1000).then_some(us as f64 / 1e6)
    }
}

type Found<'a> = Vec<(String, &'a Value)>;

impl Table {
    /// The rows of one server.
    pub fn of(&self, pair: &Pair) -> Vec<Row> {
        let secs = pair.secs();
        let now = self.found(&pair.now.tree);
        let before = match (secs, pair.before) {
            (Some(_), Some(before)) => self.found(&before.tree),
            _ => Vec::new(),
        };
        let before: HashMap<&str, &Value> = before.iter().map(|(n, v)| (n.as_str(), *v)).collect();
        now.into_iter()
            .map(|(name, row)| {
                let before = before.get(name.as_str()).copied();
                let cells = self.columns.iter().map(|c| c.what.cell(row, before, secs)).collect();
                Row { name, cells }
            })
            .collect()
    }

    fn found<'a>(&self, tree: &'a Value) -> Found<'a> {
        let Some(place) = at(tree, self.path) else { return Vec::new() };
        let mut found = Vec::new();
        match self.rows {
            Rows::One => found.push((String::new(), place)),
            Rows::Named => {
                let members = place.as_object().into_iter().flatten();
                found.extend(members.map(|(name, value)| (name.clone(), value)));
            }
            Rows::Listed(name) => {
                let list = place.as_array().into_iter().flatten();
                found.extend(list.filter_map(|one| Some((text(one, name)?, one))));
            }
            Rows::Peers => {
                for (upstream, value) in place.as_object().into_iter().flatten() {
                    let peers = at(value, "peers").and_then(Value::as_array).into_iter().flatten();
                    for peer in peers {
                        let server = text(peer, "server").unwrap_or_default();
                        found.push((format!("{upstream} {server}"), peer));
                    }
                }
            }
            Rows::Numbers => numbers(String::new(), place, &mut found),
        }
        found
    }

    /// Adds the rows of another server.
    pub fn merge(&self, all: &mut Vec<Row>, other: Vec<Row>) {
        if self.is_own || all.is_empty() {
            return all.extend(other);
        }
        let known: HashMap<String, usize> =
            all.iter().enumerate().map(|(n, row)| (row.name.clone(), n)).collect();
        for row in other {
            match known.get(&row.name).and_then(|n| all.get_mut(*n)) {
                Some(mine) => {
                    mine.cells.iter_mut().zip(&row.cells).for_each(|(a, b)| a.merge(b));
                }
                None => all.push(row),
            }
        }
    }

    /// All rows in one.
    pub fn total(&self, rows: &[Row]) -> Vec<Cell> {
        let mut total = vec![Cell::None; self.columns.len()];
        for row in rows {
            total.iter_mut().zip(&row.cells).for_each(|(sum, cell)| sum.merge(cell));
        }
        total
    }
}

fn numbers<'a>(name: String, value: &'a Value, found: &mut Found<'a>) {
    match value {
        // What things took is no number.
        Value::Object(group) if group.contains_key("p50") => {}
        Value::Object(group) => {
            for (inner, value) in group {
                let name = if name.is_empty() { inner.clone() } else { format!("{name} {inner}") };
                numbers(name, value, found);
            }
        }
        Value::Number(_) => found.push((name, value)),
        _ => {}
    }
}

/// What has come of several counts; `None` if none of them is there, or nothing is known of before.
fn come(paths: &[&str], now: &Value, before: Option<&Value>) -> Option<f64> {
    let mut sum = None;
    for path in paths {
        if let Some(now) = number(now, path) {
            let before = before.and_then(|b| number(b, path)).unwrap_or(0);
            // What has gone back has begun anew.
            *sum.get_or_insert(0) += now.checked_sub(before).unwrap_or(now);
        }
    }
    sum.map(|n| n as f64)
}

impl What {
    /// `secs`: of the while; `before` is missing for what is new in it.
    fn cell(&self, now: &Value, before: Option<&Value>, secs: Option<f64>) -> Cell {
        let a_second = |paths| Some(come(paths, now, before)? / secs?);
        let found = match self {
            What::Text(path) => text(now, path).map(Cell::Text),
            What::State(path) => text(now, path).map(Cell::State),
            What::Count(path) => number(now, path).map(Cell::Count),
            What::Bytes(path) => number(now, path).map(Cell::Bytes),
            What::Rate(paths) => a_second(paths).map(Cell::Rate),
            What::BytesRate(paths) => a_second(paths).map(Cell::BytesRate),
            What::Share(parts, of) => secs.and_then(|_| {
                let (part, of) = (come(parts, now, before)?, come(of, now, before)?);
                Some(Cell::Share { part, of })
            }),
            What::Used(part, of) => number(now, part).and_then(|part| {
                Some(Cell::Share { part: part as f64, of: number(now, of)? as f64 })
            }),
            What::Busy(path) => secs.and_then(|secs| {
                Some(Cell::Share { part: come(&[path], now, before)?, of: secs * 1000.0 })
            }),
            What::Time(path, share) => secs.and_then(|_| {
                let before = before.and_then(|b| at(b, path));
                let spread = Spread::of(at(now, path)?, before)?;
                Some(Cell::Time { spread, share: *share })
            }),
        };
        found.unwrap_or(Cell::None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    const TABLE: Table = Table {
        title: "t",
        key: "t",
        path: "a/b",
        rows: Rows::Named,
        is_own: false,
        columns: &[
            Column { title: "n", key: "n", what: What::Rate(&["n", "m"]) },
            Column { title: "now", key: "now", what: What::Count("now") },
        ],
        none: "",
    };

    fn look(at_us: u64, inner: Value) -> Look {
        Look { at_us, tree: json!({"a": {"b": inner}}) }
    }

    #[test]
    fn rates_are_of_the_while_and_what_is_missing_is_no_zero() {
        let before = look(1_000_000, json!({"x": {"n": 10, "m": 5, "now": 1}, "y": {"n": 9}}));
        let now =
            look(3_000_000, json!({"x": {"n": 14, "m": 5, "now": 3}, "y": {"n": 4}, "z": {}}));
        let rows = TABLE.of(&Pair { now: &now, before: Some(&before) });
        let told: Vec<_> = rows
            .iter()
            .map(|r| (r.name.as_str(), r.cells[0].clone(), r.cells[1].clone()))
            .collect();
        assert_eq!(
            told,
            [
                ("x", Cell::Rate(2.0), Cell::Count(3)),
                ("y", Cell::Rate(2.0), Cell::None),
                ("z", Cell::None, Cell::None)
            ]
        );
        let first = TABLE.of(&Pair { now: &now, before: None });
        assert_eq!(first[0].cells, [Cell::None, Cell::Count(3)]);
        // Another machine's clock, after it was started again.
        assert_eq!(TABLE.of(&Pair { now: &before, before: Some(&now) })[0].cells[0], Cell::None);
        let mut all = rows.clone();
        TABLE.merge(&mut all, rows);
        assert_eq!((all.len(), &all[0].cells[0]), (3, &Cell::Rate(4.0)));
        assert_eq!(TABLE.total(&all)[0], Cell::Rate(8.0));
    }

    #[test]
    fn numbers_are_found_in_groups() {
        let tree = json!({"a": 1, "g": {"b": 2, "t": {"p50": 1, "count": 2}}, "s": "x"});
        let mut found = Vec::new();
        numbers(String::new(), &tree, &mut found);
        let names: Vec<_> = found.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["a", "g b"]);
    }
}
