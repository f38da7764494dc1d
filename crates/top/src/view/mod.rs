//! What is drawn: a picture, and what keys have made of the screen, as lines; lines in a buffer.

mod help;
mod overview;
mod paint;
mod problems;
mod tables;
mod visitors;

use crate::history::History;
use crate::picture::Picture;
use crate::specs::{self, whole};
use crate::ui::{self, Ui};
pub use paint::Paint;
use ratatui_core::buffer::Buffer;
use ratatui_core::layout::Rect;
use ratatui_core::text::{Line, Span};

/// A view's lines; each knows the line that heads it, which stays when that has gone above the screen.
#[derive(Default)]
pub struct Content {
    lines: Vec<Line<'static>>,
    heads: Vec<Option<usize>>,
    head: Option<usize>,
}

impl Content {
    fn put(&mut self, line: Line<'static>) {
        self.lines.push(line);
        self.heads.push(self.head);
    }

    fn put_text(&mut self, text: impl Into<String>) {
        self.put(Line::raw(text.into()));
    }

    /// In as many lines as it takes.
    fn put_wrapped(&mut self, text: &str, width: u16) {
        let mut line = String::new();
        for word in text.split(' ') {
            let wide = Span::raw(line.as_str()).width() + Span::raw(word).width() + 1;
            if wide > usize::from(width) && !line.is_empty() {
                self.put_text(std::mem::replace(&mut line, "  ".into()));
            }
            if !line.trim().is_empty() {
                line.push(' ');
            }
            line.push_str(word);
        }
        self.put_text(line);
    }

    /// A line that what follows is headed by, until the next or [`Content::close`].
    fn put_head(&mut self, line: Line<'static>) {
        self.head = Some(self.lines.len());
        self.put(line);
    }

    fn close(&mut self) {
        self.head = None;
    }

    fn gap(&mut self) {
        self.close();
        if !self.lines.is_empty() {
            self.put_text("");
        }
    }
}

/// What views are made of.
pub struct Shown<'a> {
    pub picture: &'a Picture,
    pub history: &'a History,
    pub ui: &'a Ui,
    pub paint: &'a Paint,
}

fn content(shown: &Shown, width: u16) -> Content {
    let mut content = Content::default();
    match shown.ui.view {
        _ if shown.ui.has_help => help::put(&mut content, shown.paint),
        ui::OVERVIEW => overview::put(&mut content, shown, width),
        ui::PROBLEMS => problems::put(&mut content, shown, width, usize::MAX),
        ui::VISITORS => visitors::put(&mut content, shown, width),
        view => {
            for n in ui::tables(view) {
                tables::put(&mut content, shown, *n, width);
            }
        }
    }
    content
}

/// All that there is, as text.
pub fn whole(picture: &Picture, width: u16) -> String {
    let (ui, paint, history) = (Ui::default(), Paint::default(), History::default());
    let shown = Shown { picture, history: &history, ui: &ui, paint: &paint };
    let mut content = Content::default();
    content.put(title(&shown, None));
    content.gap();
    overview::put(&mut content, &shown, width);
    let all = specs::VIEWS.iter().flat_map(|(_, tables)| *tables);
    for n in all.filter(|n| picture.tables.get(**n).is_some_and(|rows| !rows.is_empty())) {
        tables::put(&mut content, &shown, *n, width);
    }
    if !picture.visitors.is_empty() {
        visitors::put(&mut content, &shown, width);
    }
    let mut out = String::new();
    for line in &content.lines {
        let text: String = line.spans.iter().map(|span| &*span.content).collect();
        out.push_str(text.trim_end());
        out.push('\n');
    }
    out
}

/// Whom it is about, and who is not there.
fn title(shown: &Shown, word: Option<&str>) -> Line<'static> {
    let (seen, paint) = (&shown.picture.seen, shown.paint);
    let mut spans = vec![Span::styled("weir top  ", paint.strong())];
    let names: Vec<&str> = seen.iter().map(|s| s.name.as_str()).collect();
    let lost = seen.iter().filter(|s| s.error.is_some()).count();
    match (names.as_slice(), shown.picture.secs) {
        ([one], _) => {
            let of = |n| shown.picture.of_whole(n).shown();
            let text = crate::names::visible(one);
            let who = format!("  {} pid {}", of(whole::VERSION), of(whole::PID));
            spans.push(Span::raw(text));
            spans.push(Span::styled(who, paint.dim()));
        }
        (all, _) => spans.push(Span::raw(format!("{} servers", all.len()))),
    }
    if let Some(secs) = shown.picture.secs {
        spans.push(Span::styled(format!("  {secs:.1}s"), paint.dim()));
    }
    if lost > 0 {
        let text = match seen.len() {
            1 => "  does not answer".to_string(),
            n => format!("  {lost} of {n} do not answer: they are left out"),
        };
        spans.push(Span::styled(text, paint.bad()));
    }
    if let Some(word) = word {
        spans.push(Span::styled(format!("  {word}"), paint.bad()));
    }
    Line::from(spans)
}

/// The names of views; the one that is shown is always on the screen.
fn tabs(ui: &Ui, paint: &Paint, width: u16) -> Line<'static> {
    let labels: Vec<String> =
        ui::KEYS.iter().enumerate().map(|(n, key)| format!(" {key} {} ", ui::name(n))).collect();
    let end: usize = labels.iter().take(ui.view + 1).map(String::len).sum();
    let mut excess = end.saturating_sub(usize::from(width));
    let mut spans = Vec::new();
    for (n, label) in labels.into_iter().enumerate() {
        if excess > 0 && n != ui.view {
            excess = excess.saturating_sub(label.len());
            continue;
        }
        let style = if n == ui.view { paint.chosen() } else { paint.dim() };
        spans.push(Span::styled(label, style));
    }
    Line::from(spans)
}

fn footer(ui: &Ui, paint: &Paint) -> Line<'static> {
    if ui.is_typing {
        return Line::styled(format!("/{}_", ui.filter), paint.strong());
    }
    let mut words = Vec::new();
    if !ui.filter.is_empty() {
        words.push(format!("only \"{}\" (esc: all)", ui.filter));
    }
    if let Some(column) = ui.sorted_by() {
        words.push(format!("by {column}"));
    }
    words.push("q quit  ? help  tab next  / search  s sort  p pause".into());
    Line::styled(words.join("  "), paint.dim())
}

/// Draws all of it; how it can be scrolled is noted in `ui`. `word`: what is to be said besides, such as that a server
/// is slow to answer.
pub fn draw(buf: &mut Buffer, shown: &Shown, word: Option<&str>) -> (usize, usize) {
    let Rect { x, y, width, height } = buf.area;
    let has_tabs = height >= 5;
    let top = if has_tabs { 2 } else { 1 };
    let page = usize::from(height.saturating_sub(top + 1));
    let content = content(shown, width);
    let mut put = |row: u16, line: &Line| {
        if row < height {
            buf.set_line(x, y + row, line, width);
        }
    };
    put(0, &title(shown, word));
    if has_tabs {
        put(1, &tabs(shown.ui, shown.paint, width));
    }
    let offset = shown.ui.offset.min(content.lines.len().saturating_sub(page));
    for (n, line) in content.lines.iter().enumerate().skip(offset).take(page) {
        let head = content.heads[n].filter(|head| n == offset && *head < n);
        let line = head.map_or(line, |head| &content.lines[head]);
        put(top + (n - offset) as u16, line);
    }
    if height > 1 {
        put(height - 1, &footer(shown.ui, shown.paint));
    }
    (page, content.lines.len())
}

#[cfg(test)]
mod tests;
