//! A picture: what servers did between two looks, added up.

use crate::cell::Cell;
use crate::document::{at, number, text, Value};
use crate::names::visible;
use crate::sources::Source;
use crate::specs::{self, server, whole, SERVERS, WHOLE};
use crate::table::{Row, Table};

/// So many problems are shown, the newest.
const PROBLEMS_MAX: usize = 500;

/// A server that is looked at.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    pub name: String,
    pub error: Option<String>,
    /// Seconds between the looks at it, of which its figures are.
    pub secs: Option<f64>,
    /// Of [`WHOLE`], and the sum of [`SERVERS`]; empty if it does not answer.
    pub whole: Vec<Cell>,
    pub sum: Vec<Cell>,
}

/// A request that failed or was slow, or a line of the error log.
#[derive(Clone, Debug, PartialEq)]
pub struct Problem {
    /// Milliseconds since 1970.
    pub at_ms: u64,
    /// Which server told it, if there are several.
    pub source: String,
    pub is_line: bool,
    /// A status or a level.
    pub kind: String,
    pub took_ms: Option<u64>,
    pub text: String,
    /// Before this one so many were left out.
    pub left_out: u64,
}

#[derive(Default)]
pub struct Picture {
    pub seen: Vec<Seen>,
    /// Seconds between the looks; of several servers, each of which has a while of its own, the mean.
    pub secs: Option<f64>,
    pub whole: Vec<Cell>,
    pub sum: Vec<Cell>,
    /// In the order of [`specs::tables`].
    pub tables: Vec<Vec<Row>>,
    /// The newest first.
    pub problems: Vec<Problem>,
    /// By the names of zones.
    pub visitors: Vec<(String, Value)>,
    /// Whether any server has said what it counts of them.
    pub is_told_visitors: bool,
}

impl Picture {
    pub(crate) fn of(sources: &[Source], is_split: bool) -> Picture {
        let mut picture = Picture { tables: vec![Vec::new(); specs::COUNT], ..Picture::default() };
        for source in sources {
            picture.add(source, sources.len() > 1, is_split);
        }
        for (n, table) in specs::tables().enumerate() {
            match n {
                WHOLE => picture.whole = table.total(&picture.tables[n]),
                // One by one: rows may be split, sums are not.
                SERVERS => picture.sum = table.total(&picture.tables[n]),
                _ => {}
            }
        }
        let whiles: Vec<f64> = picture.seen.iter().filter_map(|seen| seen.secs).collect();
        picture.secs =
            (!whiles.is_empty()).then(|| whiles.iter().sum::<f64>() / whiles.len() as f64);
        picture.problems.sort_by_key(|p| std::cmp::Reverse(p.at_ms));
        picture.problems.truncate(PROBLEMS_MAX);
        picture
    }

    fn add(&mut self, source: &Source, are_several: bool, is_split: bool) {
        let mut seen =
            Seen { name: source.name.clone(), error: source.error.clone(), ..Seen::default() };
        let Some(pair) = source.pair() else { return self.seen.push(seen) };
        seen.secs = pair.secs();
        for (n, table) in specs::tables().enumerate() {
            let mut rows = table.of(&pair);
            match n {
                WHOLE => seen.whole = table.total(&rows),
                SERVERS => seen.sum = table.total(&rows),
                _ => {}
            }
            merge(table, &mut self.tables[n], &mut rows, &source.name, (are_several, is_split));
        }
        let name = if are_several { source.name.as_str() } else { "" };
        self.problems.extend(problems(&pair.now.tree, name));
        self.is_told_visitors |= source.visitors.is_some();
        for (zone, told) in source.visitors.iter().filter_map(Value::as_object).flatten() {
            let zone = if are_several { format!("{zone} @ {}", source.name) } else { zone.clone() };
            self.visitors.push((zone, told.clone()));
        }
        self.seen.push(seen);
    }

    pub fn of_whole(&self, n: usize) -> &Cell {
        self.whole.get(n).unwrap_or(&Cell::None)
    }

    pub fn of_sum(&self, n: usize) -> &Cell {
        self.sum.get(n).unwrap_or(&Cell::None)
    }

    /// What is plotted, in the order of [`crate::history::SERIES`].
    pub fn plotted(&self) -> [Option<f64>; 10] {
        let (w, s) = (|n| self.of_whole(n).number(), |n| self.of_sum(n).number());
        [
            w(whole::REQUESTS),
            w(whole::ACTIVE),
            s(server::OK),
            s(server::MOVED),
            s(server::REFUSED),
            s(server::FAILED),
            s(server::RECEIVED),
            s(server::SENT),
            s(server::P50),
            s(server::P99),
        ]
    }
}

fn merge(table: &Table, all: &mut Vec<Row>, rows: &mut Vec<Row>, source: &str, how: (bool, bool)) {
    let (are_several, is_split) = how;
    if are_several && (is_split || table.is_own) {
        rows.iter_mut().for_each(|row| row.name = format!("{} @ {source}", row.name));
    }
    table.merge(all, std::mem::take(rows));
}

fn problems(tree: &Value, source: &str) -> Vec<Problem> {
    let list = at(tree, "problems").and_then(Value::as_array).into_iter().flatten();
    list.filter_map(|one| problem(one, source)).collect()
}

fn problem(one: &Value, source: &str) -> Option<Problem> {
    let word = |name: &str| text(one, name).map(|text| visible(&text)).unwrap_or_default();
    let is_line = at(one, "text").is_some();
    let (kind, told) = match is_line {
        true => (word("level"), word("text")),
        false => {
            let mut told = format!("{} {} {}", word("method"), word("server"), word("path"));
            if at(one, "upstream").is_some() {
                told.push_str(&format!(" -> {}", word("upstream")));
            }
            (word("status"), told)
        }
    };
    Some(Problem {
        at_ms: number(one, "t")?,
        source: visible(source),
        is_line,
        kind,
        took_ms: number(one, "ms"),
        text: told,
        left_out: number(one, "more").unwrap_or(0),
    })
}
