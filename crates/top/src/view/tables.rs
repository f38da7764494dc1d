//! A table of figures: as many of its columns as there is room for, from the left.

use super::{Content, Shown};
use crate::cell::Cell;
use crate::names::visible;
use crate::specs;
use crate::table::{Column, Row};
use ratatui_core::text::{Line, Span};

/// Between columns.
const GAP: usize = 2;
/// A name has so much of a narrow screen at least.
const NAME_MIN: usize = 12;

pub fn put(content: &mut Content, shown: &Shown, n: usize, width: u16) {
    let Some(table) = specs::tables().nth(n) else { return };
    let rows = shown.picture.tables.get(n).map_or(&[][..], Vec::as_slice);
    content.gap();
    if rows.is_empty() {
        content.put_wrapped(&format!("{}: {}", table.title, table.none), width);
        return;
    }
    let mut wanted: Vec<&Row> = rows.iter().filter(|row| shown.ui.wants(&row.name)).collect();
    sort(&mut wanted, shown.ui.sort());
    put_rows(content, shown, (table.title, table.columns), &wanted, width);
    if wanted.is_empty() {
        content.put_text(format!("no name has \"{}\"", visible(&shown.ui.filter)));
    }
}

fn sort(rows: &mut [&Row], by: Option<(usize, bool)>) {
    let Some((column, is_reversed)) = by else { return };
    // Numbers begin with the highest, texts with the first.
    let of = |row: &Row| row.cells.get(column).cloned().unwrap_or(Cell::None);
    let is_text = rows.iter().any(|row| matches!(of(row), Cell::Text(_)));
    rows.sort_by(|a, b| of(a).compare(&of(b)));
    if is_text == is_reversed {
        rows.reverse();
    }
}

/// The same for rows that are of no table of all.
pub fn put_rows(
    content: &mut Content,
    shown: &Shown,
    (title, columns): (&str, &[Column]),
    rows: &[&Row],
    width: u16,
) {
    let names: Vec<String> = rows.iter().map(|row| visible(&row.name)).collect();
    let has_names = names.iter().any(|name| !name.is_empty());
    let longest = names.iter().map(|n| Span::raw(n.as_str()).width()).max().unwrap_or(0);
    let room = usize::from(width);
    let name_width = longest.max(title.len()).min((room * 2 / 5).max(NAME_MIN)).min(room);
    let cells: Vec<Vec<String>> =
        rows.iter().map(|row| row.cells.iter().map(Cell::shown).collect()).collect();
    let mut left = room.saturating_sub(name_width);
    let mut widths = Vec::new();
    for (n, column) in columns.iter().enumerate() {
        let inner =
            cells.iter().filter_map(|row| row.get(n)).map(|c| Span::raw(c.as_str()).width());
        let wide = inner.max().unwrap_or(0).max(column.title.len());
        if wide + GAP > left {
            break;
        }
        left -= wide + GAP;
        widths.push(wide);
    }
    let mut head = vec![Span::styled(fit(title, name_width), shown.paint.strong())];
    for (n, (column, wide)) in columns.iter().zip(&widths).enumerate() {
        let is_left = rows.first().and_then(|r| r.cells.get(n)).is_some_and(Cell::is_text);
        let is_sorted = shown.ui.sort().is_some_and(|(by, _)| by == n);
        let style = if is_sorted { shown.paint.strong() } else { shown.paint.dim() };
        head.push(Span::styled(padded(column.title, *wide, is_left), style));
    }
    content.put_head(Line::from(head));
    for ((row, name), texts) in rows.iter().zip(&names).zip(&cells) {
        let name = if has_names { fit(name, name_width) } else { " ".repeat(name_width) };
        let mut spans = vec![Span::raw(name)];
        for ((cell, text), wide) in row.cells.iter().zip(texts).zip(&widths) {
            let style = shown.paint.tone(cell.tone());
            spans.push(Span::styled(padded(text, *wide, cell.is_text()), style));
        }
        content.put(Line::from(spans));
    }
}

fn padded(text: &str, width: usize, is_left: bool) -> String {
    let fill = " ".repeat(width.saturating_sub(Span::raw(text).width()));
    match is_left {
        true => format!("{:GAP$}{text}{fill}", ""),
        false => format!("{:GAP$}{fill}{text}", ""),
    }
}

/// As wide as that: its end is cut off, or it is filled up.
pub fn fit(text: &str, width: usize) -> String {
    let mut wide = Span::raw(text).width();
    if wide <= width {
        return format!("{text}{}", " ".repeat(width - wide));
    }
    let mut out = text.to_owned();
    while wide >= width && out.pop().is_some() {
        wide = Span::raw(out.as_str()).width();
    }
    out.push('…');
    let wide = Span::raw(out.as_str()).width();
    out + &" ".repeat(width.saturating_sub(wide))
}
