//! What stands in a table's cell: it knows how it adds up over servers, how it is compared and how it is shown.

use crate::names::visible;
use crate::spread::Spread;
use crate::text;
use serde_json::{json, Value};
use std::cmp::Ordering;

/// States of servers that are asked, and of upstreams, from good to bad; of several Weirs the worst is told.
const STATES: [&str; 9] = [
    "up",
    "checking",
    "draining",
    "at max_conns",
    "queue full",
    "unavail",
    "unhealthy",
    "no servers",
    "down",
];

#[derive(Clone, Debug, PartialEq)]
pub enum Cell {
    /// Nothing is known.
    None,
    Text(String),
    /// One of [`STATES`], or another word.
    State(String),
    /// So many at the moment.
    Count(u64),
    Bytes(u64),
    /// In a second.
    Rate(f64),
    BytesRate(f64),
    /// A part of a whole, both in the same unit.
    Share {
        part: f64,
        of: f64,
    },
    /// What such a share of the times did not exceed.
    Time {
        spread: Spread,
        share: f64,
    },
}

/// What draws the eye to a cell.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Tone {
    Plain,
    Good,
    Odd,
    Bad,
}

fn badness(state: &str) -> usize {
    STATES.iter().position(|s| *s == state).unwrap_or(STATES.len())
}

impl Cell {
    /// Adds what another server has.
    pub fn merge(&mut self, other: &Cell) {
        match (&mut *self, other) {
            (_, Cell::None) => {}
            (Cell::None, _) => *self = other.clone(),
            (Cell::Text(a), Cell::Text(b)) if a != b && !a.ends_with(", …") => a.push_str(", …"),
            (Cell::State(a), Cell::State(b)) if badness(b) > badness(a) => a.clone_from(b),
            (Cell::Count(a), Cell::Count(b)) | (Cell::Bytes(a), Cell::Bytes(b)) => {
                *a = a.saturating_add(*b);
            }
            (Cell::Rate(a), Cell::Rate(b)) | (Cell::BytesRate(a), Cell::BytesRate(b)) => *a += b,
            (Cell::Share { part, of }, Cell::Share { part: p, of: o }) => {
                *part += p;
                *of += o;
            }
            (Cell::Time { spread, .. }, Cell::Time { spread: other, .. }) => spread.merge(other),
            _ => {}
        }
    }

    /// For sorting; nothing known is least.
    pub fn compare(&self, other: &Cell) -> Ordering {
        match (self, other) {
            (Cell::Text(a), Cell::Text(b)) => a.cmp(b),
            (Cell::State(a), Cell::State(b)) => badness(a).cmp(&badness(b)),
            _ => self.number().unwrap_or(-1.0).total_cmp(&other.number().unwrap_or(-1.0)),
        }
    }

    /// For JSON and sparklines: percent for shares, milliseconds for times.
    pub fn number(&self) -> Option<f64> {
        match self {
            Cell::None | Cell::Text(_) | Cell::State(_) => None,
            Cell::Count(n) | Cell::Bytes(n) => Some(*n as f64),
            Cell::Rate(n) | Cell::BytesRate(n) => Some(*n),
            Cell::Share { part, of } => (*of > 0.0).then(|| part / of * 100.0),
            Cell::Time { spread, share } => Some(spread.us(*share) as f64 / 1000.0),
        }
    }

    pub fn json(&self) -> Value {
        match self {
            Cell::Text(text) | Cell::State(text) => json!(text),
            Cell::Count(n) | Cell::Bytes(n) => json!(n),
            _ => self.number().map_or(Value::Null, |n| json!((n * 1000.0).round() / 1000.0)),
        }
    }

    pub fn shown(&self) -> String {
        match self {
            Cell::None => "-".into(),
            Cell::Text(text) | Cell::State(text) => visible(text),
            Cell::Count(n) => text::count(*n as f64),
            Cell::Bytes(n) => text::bytes(*n as f64),
            Cell::Rate(n) => text::rate(*n),
            Cell::BytesRate(n) => text::bytes(*n),
            Cell::Share { .. } => self.number().map_or("-".into(), text::percent),
            Cell::Time { spread, share } => {
                // What is no figure of this while has a mark.
                let mark = if spread.is_told() { "~" } else { "" };
                format!("{mark}{}", text::time(spread.us(*share)))
            }
        }
    }

    /// Texts stand left, numbers right.
    pub fn is_text(&self) -> bool {
        matches!(self, Cell::Text(_) | Cell::State(_))
    }

    pub fn tone(&self) -> Tone {
        match self {
            Cell::State(state) => match badness(state) {
                0 => Tone::Good,
                1 | 2 => Tone::Odd,
                _ => Tone::Bad,
            },
            _ => Tone::Plain,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cells_add_up() {
        let mut share = Cell::Share { part: 1.0, of: 2.0 };
        share.merge(&Cell::Share { part: 0.0, of: 2.0 });
        assert_eq!(share.shown(), "25%");
        let mut state = Cell::State("up".into());
        state.merge(&Cell::State("unhealthy".into()));
        state.merge(&Cell::State("up".into()));
        assert_eq!((state.shown().as_str(), state.tone()), ("unhealthy", Tone::Bad));
        let mut none = Cell::None;
        none.merge(&Cell::Count(3));
        none.merge(&Cell::None);
        none.merge(&Cell::Count(4));
        assert_eq!(none, Cell::Count(7));
        assert_eq!(Cell::None.json(), Value::Null);
        let mut name = Cell::Text("a".into());
        ["a", "b", "c"].iter().for_each(|n| name.merge(&Cell::Text((*n).into())));
        assert_eq!(name.shown(), "a, …");
        assert_eq!(Cell::Text("a\u{1b}[2J\u{202e}".into()).shown(), "a\\x1b[2J\\u{202e}");
    }
}
