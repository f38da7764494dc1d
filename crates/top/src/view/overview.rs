//! The whole at a glance: what is done, how it went, for how long; who is looked at; what went wrong last.

use super::{problems, tables, Content, Shown};
use crate::cell::Cell;
use crate::names::visible;
use crate::picture::{Picture, Seen};
use crate::specs::{self, server, whole, SERVERS, WHOLE};
use crate::table::{Column, Row, What};
use ratatui_core::text::{Line, Span};

const LABEL: usize = 12;
const VALUE: usize = 9;
/// Of problems so many are told here.
const PROBLEMS: usize = 5;

pub fn put(content: &mut Content, shown: &Shown, width: u16) {
    let picture = shown.picture;
    for seen in &picture.seen {
        if let Some(error) = &seen.error {
            let text = format!("{}: {}", visible(&seen.name), visible(error));
            content.put_wrapped(&text, width);
        }
    }
    if picture.seen.iter().all(|seen| seen.error.is_some()) {
        return;
    }
    put_plots(content, shown, width);
    put_words(content, shown, width);
    if picture.seen.len() > 1 {
        put_seen(content, shown, width);
    }
    if !picture.problems.is_empty() {
        content.gap();
        problems::put(content, shown, width, PROBLEMS);
    }
}

fn put_plots(content: &mut Content, shown: &Shown, width: u16) {
    let picture = shown.picture;
    let (w, s) = (|n| picture.of_whole(n), |n| picture.of_sum(n));
    let rows = [
        ("requests/s", w(whole::REQUESTS), 0),
        ("connections", w(whole::ACTIVE), 1),
        ("2xx/s", s(server::OK), 2),
        ("3xx/s", s(server::MOVED), 3),
        ("4xx/s", s(server::REFUSED), 4),
        ("5xx/s", s(server::FAILED), 5),
        ("in/s", s(server::RECEIVED), 6),
        ("out/s", s(server::SENT), 7),
        ("p50", s(server::P50), 8),
        ("p99", s(server::P99), 9),
    ];
    let room = usize::from(width).saturating_sub(LABEL + VALUE + 2);
    for (label, cell, series) in rows {
        let is_bad = series == 5 && cell.number().is_some_and(|n| n > 0.0);
        let style = if is_bad { shown.paint.bad() } else { shown.paint.strong() };
        content.put(Line::from(vec![
            Span::styled(format!("{label:LABEL$}"), shown.paint.dim()),
            Span::styled(format!("{:>VALUE$}  ", cell.shown()), style),
            Span::styled(shown.history.line(series, room), shown.paint.plotted()),
        ]));
    }
}

/// What has no line of its own.
fn put_words(content: &mut Content, shown: &Shown, width: u16) {
    let picture = shown.picture;
    let words = [
        ("idle", picture.of_whole(whole::IDLE)),
        ("in work", picture.of_whole(whole::CURRENT)),
        ("accepted/s", picture.of_whole(whole::ACCEPTED)),
        ("dropped/s", picture.of_whole(whole::DROPPED)),
        ("tls/s", picture.of_whole(whole::HANDSHAKES)),
        ("p95", picture.of_sum(server::P95)),
    ];
    let mut line = String::new();
    for (label, cell) in words {
        let word = format!("{label} {}", cell.shown());
        if line.len() + word.len() + 2 > usize::from(width) && !line.is_empty() {
            content.put_text(std::mem::take(&mut line));
        }
        let gap = if line.is_empty() { "" } else { "  " };
        line.push_str(&format!("{gap}{word}"));
    }
    content.put_text(line);
    if is_told(picture) {
        content.put_text("~ since the start, and the worst of all: a server tells no buckets");
    }
}

fn is_told(picture: &Picture) -> bool {
    matches!(picture.of_sum(server::P99), Cell::Time { spread, .. } if spread.is_told())
}

/// Each server that is looked at, in a row.
fn put_seen(content: &mut Content, shown: &Shown, width: u16) {
    const HOW: [(usize, usize); 8] = [
        (WHOLE, whole::REQUESTS),
        (WHOLE, whole::ACTIVE),
        (SERVERS, server::FAILED),
        (SERVERS, server::P50),
        (SERVERS, server::P99),
        (SERVERS, server::SENT),
        (WHOLE, whole::VERSION),
        (WHOLE, whole::PID),
    ];
    let mut columns = vec![Column { title: "state", key: "", what: What::State("") }];
    for (table, n) in HOW {
        let found = specs::tables().nth(table).and_then(|t| t.columns.get(n));
        let title = found.map_or("", |column| column.title);
        columns.push(Column { title, key: "", what: What::Count("") });
    }
    let row = |seen: &Seen| {
        let state = if seen.error.is_some() { "down" } else { "up" };
        let mut cells = vec![Cell::State(state.into())];
        for (table, n) in HOW {
            let all = if table == WHOLE { &seen.whole } else { &seen.sum };
            cells.push(all.get(n).cloned().unwrap_or(Cell::None));
        }
        Row { name: seen.name.clone(), cells }
    };
    let rows: Vec<Row> = shown.picture.seen.iter().map(row).collect();
    content.gap();
    tables::put_rows(content, shown, ("Server", &columns), &rows.iter().collect::<Vec<_>>(), width);
}
