//! For a terminal: plain lines, no colours and nothing that moves the cursor.

use super::{about, bytes, caveat, facts, time, Shown};
use crate::report::{Panel, Row};
use std::fmt::Write;

const BAR: usize = 10;
const NAME_MIN: usize = 24;
/// What stands before the name.
const BEFORE: usize = 12 + 10 + 11 + BAR + 4;

/// `width` is how many columns there are.
pub fn terminal(shown: &Shown<'_>, width: usize) -> String {
    let mut out = String::new();
    let _ = writeln!(out, "{}\n", shown.sources.join(" "));
    for (what, how_much) in facts(shown.summary) {
        let _ = writeln!(out, "  {what:<20} {how_much}");
    }
    for (why, n) in &shown.summary.reasons {
        let _ = writeln!(out, "    {n} lines: {why}");
    }
    let room = width.saturating_sub(BEFORE).max(NAME_MIN);
    shown.panels.iter().for_each(|one| panel(&mut out, one, room));
    out
}

fn panel(out: &mut String, panel: &Panel, room: usize) {
    let _ = write!(out, "\n{} ({})", panel.title, panel.about);
    if panel.total.0 > panel.rows.len() as u64 {
        let _ = write!(out, ", {} of {}", panel.rows.len(), about(panel.total));
    }
    out.push('\n');
    if let Some(text) = caveat(panel) {
        let _ = writeln!(out, "  {text}");
    }
    if panel.id == "slowest" {
        for row in &panel.rows {
            let _ = writeln!(
                out,
                "{:>12}  {}",
                time(row.longest_us.unwrap_or(0)),
                name(row, room + 32)
            );
        }
        return;
    }
    let most = panel.rows.iter().map(|r| r.hits).max().unwrap_or(0).max(1);
    let _ = writeln!(out, "{:>12}{:>10}{:>11}", "requests", "visitors", "sent");
    for row in &panel.rows {
        let bar = "#".repeat((row.hits * BAR as u64).div_ceil(most) as usize);
        let hits = match row.error > 0 && panel.id != "heaviest" {
            true => format!("{}+", row.hits),
            false => row.hits.to_string(),
        };
        let _ = writeln!(
            out,
            "{hits:>12}{:>10}{:>11}  {bar:<BAR$}  {}",
            row.visitors.map_or_else(String::new, |n| n.to_string()),
            bytes(row.bytes),
            name(row, room)
        );
    }
}

/// Cut off in the middle, so that its end is seen.
fn name(row: &Row, room: usize) -> String {
    let mut text = row.name.clone();
    if !row.note.is_empty() {
        let _ = write!(text, "  [{}]", row.note);
    }
    if let Some(us) = row.mean_us {
        let _ = write!(text, "  {} on average", time(us));
    }
    let count = text.chars().count();
    if count <= room {
        return text;
    }
    let half = (room - 1) / 2;
    let start: String = text.chars().take(room - 1 - half).collect();
    let end: String = text.chars().skip(count - half).collect();
    format!("{start}…{end}")
}
