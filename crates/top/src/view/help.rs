//! `?`

use super::{Content, Paint};
use ratatui_core::text::Line;

const KEYS: [(&str, &str); 13] = [
    ("1 … 9, 0, v", "a view by its key"),
    ("tab, →  and  ←", "the next view, the one before"),
    ("↑ ↓, pages, home, end", "through a view"),
    ("/", "only rows that have a text (enter; esc: all)"),
    ("s", "sort by the next column"),
    ("r", "the other way round"),
    ("e", "a row for each server, where several are added up"),
    ("p", "pause: the picture stays, servers are asked on"),
    ("ctrl-L", "draw anew"),
    ("ctrl-Z", "stop; fg goes on"),
    ("?", "this, and back"),
    ("esc", "back"),
    ("q, ctrl-C", "end"),
];

const WORDS: [&str; 7] = [
    "",
    "Rates and percentiles are of the time between two looks. \"-\" is not known;",
    "it is no zero. A percentile with ~ is since the server's start, and the worst",
    "of several servers, as one of them tells no buckets.",
    "waits: share of the time that events have waited for a busy worker.",
    "Problems are told once somebody looks, or where the server has a dashboard.",
    "Of several servers, those that do not answer are left out of all sums.",
];

pub fn put(content: &mut Content, paint: &Paint) {
    content.put(Line::styled("Keys", paint.strong()));
    for (key, what) in KEYS {
        content.put_text(format!("  {key:<22} {what}"));
    }
    WORDS.iter().for_each(|line| content.put_text(*line));
}
