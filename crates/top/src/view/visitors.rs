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
    if shown.picture.visitors.is_empty() {
        content.put_text("nothing is counted of visitors, or it has not been told yet: write");
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
                put_panel(content, shown, panel, width);
            }
        }
    }
}

fn put_panel(content: &mut Content, shown: &Shown, panel: &Value, width: u16) {
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
    let name_width = usize::from(width).saturating_sub(4 * 10).max(8);
    let title = visible(&text_of(panel, "title").unwrap_or_default());
    let head = ["hits", "visitors", "sent", "mean"].map(|t| format!("{t:>10}")).concat();
    content.put_head(Line::from(vec![
        Span::styled(fit(&title, name_width), shown.paint.strong()),
        Span::styled(head, shown.paint.dim()),
    ]));
    for row in found {
        let of = |name: &str| number(row, name);
        let count = |n: Option<u64>| n.map_or("-".into(), |n| text::count(n as f64));
        let mean = of("mean_us").or_else(|| of("longest_us"));
        let cells = [
            count(of("hits")),
            count(of("visitors")),
            of("bytes").map_or("-".into(), |n| text::bytes(n as f64)),
            mean.map_or("-".into(), text::time),
        ];
        let cells = cells.map(|t| format!("{t:>10}")).concat();
        content.put_text(format!("{}{cells}", fit(&name(row), name_width)));
    }
}
