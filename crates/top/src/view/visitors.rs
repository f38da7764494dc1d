//! Who comes and what for, where that is counted.

use super::tables::fit;
use super::{Content, Shown};
use crate::document::{at, number, text as text_of, Value};
use crate::names::visible;
use crate::text;
use ratatui_core::text::{Line, Span};

/// Which are shown, and how many rows of each.
const PANELS: [&str; 13] = [
    "visitors",
    "requests",
    "slowest",
    "not_found",
    "hosts",
    "countries",
    "referring_sites",
    "browsers",
    "systems",
    "bots",
    "vhosts",
    "status_codes",
    "protocols",
];
const ROWS: usize = 10;

pub fn put(content: &mut Content, shown: &Shown, width: u16) {
    if !shown.picture.is_told_visitors {
        content.put_text("no server has told of its visitors yet");
    } else if shown.picture.visitors.is_empty() {
        content.put_text("nothing is counted of visitors: write");
        content.put_text("    analytics_zone site;");
        content.put_text("    analytics site;");
        content.put_text("in http (\"analytics\" also in a server or a location)");
    }
    for (zone, told) in &shown.picture.visitors {
        content.gap();
        let sum = |name: &str| number(told, &format!("summary/{name}")).unwrap_or(0) as f64;
        let title = format!(
            "{}: {} requests, {} visitors, {}, {} not told",
            visible(zone),
            text::count(sum("total_requests")),
            text::count(sum("unique_visitors")),
            text::bytes(sum("bytes")),
            text::count(number(told, "left_out").unwrap_or(0) as f64),
        );
        content.put(Line::styled(title, shown.paint.strong()));
        for name in PANELS {
            if let Some(panel) = at(told, &format!("panels/{name}")) {
                put_panel(content, shown, name, panel, width);
            }
        }
    }
}

/// A heading, what of a row stands below it, and how.
type Column = (&'static str, &'static str, fn(u64) -> String);

fn count(n: u64) -> String {
    text::count(n as f64)
}

fn bytes(n: u64) -> String {
    text::bytes(n as f64)
}

/// Logs and zones have times to the millisecond.
fn mean(us: u64) -> String {
    match us {
        0 => "<1ms".into(),
        us => text::time(us),
    }
}

const HITS: Column = ("hits", "hits", count);
const VISITORS: Column = ("visitors", "visitors", count);
const SENT: Column = ("sent", "bytes", bytes);
const MEAN: Column = ("mean", "mean_us", mean);
const LONGEST: Column = ("longest", "longest_us", mean);

/// What a panel's rows have.
fn columns(name: &str, rows: &[Value]) -> Vec<Column> {
    match name {
        "slowest" => vec![LONGEST],
        _ => {
            let has = |(_, field, _): &Column| rows.iter().any(|row| number(row, field).is_some());
            [HITS, VISITORS, SENT, MEAN].into_iter().filter(has).collect()
        }
    }
}

fn put_panel(content: &mut Content, shown: &Shown, id: &str, panel: &Value, width: u16) {
    let rows = at(panel, "rows").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
    let name = |row: &Value| {
        let note = text_of(row, "note").map(|note| format!("  ({note})")).unwrap_or_default();
        visible(&format!("{}{note}", text_of(row, "name").unwrap_or_default()))
    };
    let mut found = rows.iter().filter(|row| shown.ui.wants(&name(row))).take(ROWS).peekable();
    if found.peek().is_none() {
        return;
    }
    content.gap();
    let columns = columns(id, rows);
    let name_width = usize::from(width).saturating_sub(4 * 10).max(8);
    let title = visible(&text_of(panel, "title").unwrap_or_default());
    let head = columns.iter().map(|(head, ..)| format!("{head:>10}")).collect::<String>();
    content.put_head(Line::from(vec![
        Span::styled(fit(&title, name_width), shown.paint.strong()),
        Span::styled(head, shown.paint.dim()),
    ]));
    for row in found {
        let cell = |(_, field, show): &Column| number(row, field).map_or("-".into(), show);
        let cells = columns.iter().map(|c| format!("{:>10}", cell(c))).collect::<String>();
        content.put_text(format!("{}{cells}", fit(&name(row), name_width)));
    }
}
