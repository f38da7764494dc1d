//! Errors and warnings: nginx's own line first, then the place in the text.

use std::fmt::Write;

use crate::source::{Position, Sources, Span};
use crate::tree::Directive;

/// The most of a source line that is shown.
const MAX_SHOWN_COLUMNS: usize = 100;
const TAB_COLUMNS: usize = 4;

/// nginx's levels, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum Level {
    Emerg = 1,
    Alert,
    Crit,
    Error,
    Warn,
    Notice,
    Info,
    Debug,
}

impl Level {
    pub const NAMES: [(&'static str, Level); 8] = [
        ("emerg", Level::Emerg),
        ("alert", Level::Alert),
        ("crit", Level::Crit),
        ("error", Level::Error),
        ("warn", Level::Warn),
        ("notice", Level::Notice),
        ("info", Level::Info),
        ("debug", Level::Debug),
    ];

    pub fn name(self) -> &'static str {
        Self::NAMES[self as usize - 1].0
    }
}

#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Diagnostic {
    pub level: Level,
    /// nginx's words, without the place.
    pub message: String,
    /// The place nginx names: ` in FILE:LINE`.
    pub at: Option<Position>,
    /// The block that it was found in, of which nginx says nothing.
    pub within: Option<Position>,
    /// The word at fault, to be underlined.
    pub span: Option<Span>,
    pub hint: Option<String>,
    /// Found in the directive as it stands, whatever came before: worth telling beside others.
    pub of_itself: bool,
}

impl Diagnostic {
    pub fn new(level: Level, message: String) -> Self {
        Diagnostic {
            level,
            message,
            at: None,
            within: None,
            span: None,
            hint: None,
            of_itself: false,
        }
    }

    pub fn emerg(message: String) -> Self {
        Self::new(Level::Emerg, message)
    }

    pub fn warn(message: String) -> Self {
        Self::new(Level::Warn, message)
    }

    /// An error of a directive, underlined at `span`.
    pub fn of(directive: &Directive, span: Span, message: String) -> Self {
        Self::emerg(message).at(directive.position()).point(span)
    }

    #[must_use]
    pub fn at(mut self, at: Position) -> Self {
        self.at = Some(at);
        self
    }

    #[must_use]
    pub fn within(mut self, block: Option<Position>) -> Self {
        self.within = block;
        self
    }

    #[must_use]
    pub fn point(mut self, span: Span) -> Self {
        self.span = Some(span);
        self
    }

    #[must_use]
    pub fn hint(mut self, hint: String) -> Self {
        self.hint = Some(hint);
        self
    }

    #[must_use]
    pub fn of_itself(mut self) -> Self {
        self.of_itself = true;
        self
    }

    /// The message and its place, for a log: `unknown directive "x" in /etc/nginx.conf:3`.
    pub fn first_line(&self, sources: &Sources) -> String {
        let place = self.at.map(|at| sources.location(at)).unwrap_or_default();
        format!("{}{place}", self.message)
    }

    /// For a terminal; ends in a newline. The first line is what nginx prints.
    pub fn render(&self, sources: &Sources, program: &str) -> String {
        let mut out = format!("{program}: [{}] {}\n", self.level.name(), self.first_line(sources));
        let gutter = self.span.map_or(1, |span| render_place(&mut out, sources, span));
        if let Some(hint) = &self.hint {
            let _infallible = writeln!(out, "{:gutter$} = help: {hint}", "");
        }
        out
    }
}

/// Writes the place, the line and the carets; returns the width of the line number.
fn render_place(out: &mut String, sources: &Sources, span: Span) -> usize {
    let Some(file) = sources.file(span.file) else { return 1 };
    let start = (span.start as usize).min(file.text.len());
    let end = (span.end as usize).clamp(start, file.text.len());
    let from = memchr::memrchr(b'\n', &file.text[..start]).map_or(0, |at| at + 1);
    let to = memchr::memchr(b'\n', &file.text[start..]).map_or(file.text.len(), |at| start + at);

    let line = sources.line(span.start()).to_string();
    let gutter = line.len();
    let column = String::from_utf8_lossy(&file.text[from..start]).chars().count() + 1;
    let path = if file.is_command_line {
        "command line".into()
    } else {
        String::from_utf8_lossy(&file.path)
    };
    let shown = Excerpt::new(&file.text[from..to], start - from, end.min(to) - from);
    let _infallible = write!(
        out,
        "{:gutter$}--> {path}:{line}:{column}\n{:gutter$} |\n{line} | {}\n{:gutter$} | {}{}\n",
        "",
        "",
        shown.text,
        "",
        " ".repeat(shown.before),
        "^".repeat(shown.carets),
    );
    gutter
}

/// A line as it is shown: tabs widened, controls replaced, cut around the word.
struct Excerpt {
    text: String,
    /// Columns before the carets.
    before: usize,
    carets: usize,
}

impl Excerpt {
    fn new(line: &[u8], start: usize, end: usize) -> Self {
        let head = printable(&line[..start]);
        let word = printable(&line[start..end.max(start)]);
        let tail = printable(&line[end.max(start)..]);
        let whole = head.len() + word.len() + tail.len();
        if whole <= MAX_SHOWN_COLUMNS {
            let before = head.len();
            let carets = word.len().max(1);
            let text: String = head.iter().chain(&word).chain(&tail).collect();
            return Excerpt { text: text.trim_end().to_owned(), before, carets };
        }
        // The word in the middle, as much of its surroundings as fits.
        let word_shown = word.len().min(MAX_SHOWN_COLUMNS / 2);
        let room = (MAX_SHOWN_COLUMNS - word_shown) / 2;
        let head_shown = head.len().min(room);
        let all: Vec<char> = head.iter().chain(&word).chain(&tail).copied().collect();
        let from = head.len() - head_shown;
        let to = (head.len() + word_shown + room).min(all.len());
        let left = if from > 0 { "..." } else { "" };
        let right = if to < all.len() { "..." } else { "" };
        let middle: String = all[from..to].iter().collect();
        Excerpt {
            text: format!("{left}{middle}{right}").trim_end().to_owned(),
            before: left.len() + head_shown,
            carets: word_shown.max(1),
        }
    }
}

fn printable(text: &[u8]) -> Vec<char> {
    let mut out = Vec::with_capacity(text.len());
    for c in String::from_utf8_lossy(text).chars() {
        match c {
            '\t' => out.extend([' '; TAB_COLUMNS]),
            '\r' => {}
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::SourceFile;

    fn sources(text: &str) -> Sources {
        let mut sources = Sources::new();
        let path = b"/etc/nginx.conf"[..].into();
        sources.add(SourceFile { path, text: text.as_bytes().into(), is_command_line: false });
        sources
    }

    fn at(text: &str, word: &str) -> Span {
        let start = text.find(word).unwrap();
        Span { file: 0, start: start as u32, end: (start + word.len()) as u32 }
    }

    #[test]
    fn pointing() {
        let text = "http {\n\tfoo  bar;\n}\n";
        let span = at(text, "foo");
        let diagnostic = Diagnostic::emerg("unknown directive \"foo\"".to_owned())
            .at(span.start())
            .point(span)
            .hint("did you mean \"fou\"?".to_owned());
        assert_eq!(
            diagnostic.render(&sources(text), "nginx"),
            "nginx: [emerg] unknown directive \"foo\" in /etc/nginx.conf:2\n \
             --> /etc/nginx.conf:2:2\n  |\n2 |     foo  bar;\n  |     ^^^\n  = help: did you mean \"fou\"?\n"
        );
        assert_eq!(
            diagnostic.first_line(&sources(text)),
            "unknown directive \"foo\" in /etc/nginx.conf:2"
        );
    }

    #[test]
    fn without_place() {
        let diagnostic = Diagnostic::warn("something".to_owned());
        assert_eq!(diagnostic.render(&Sources::new(), "weir"), "weir: [warn] something\n");
    }

    #[test]
    fn long_lines_are_cut() {
        let text = format!("{} needle {};", "a".repeat(500), "b".repeat(500));
        let diagnostic = Diagnostic::emerg("x".to_owned()).point(at(&text, "needle"));
        let shown = diagnostic.render(&sources(&text), "nginx");
        let lines: Vec<&str> = shown.lines().collect();
        assert!(lines[3].len() < 120, "{shown}");
        let column = lines[3].find("needle").unwrap();
        assert_eq!(lines[4].find('^'), Some(column));
        assert_eq!(lines[4].matches('^').count(), 6);
    }

    #[test]
    fn strange_bytes_and_bounds() {
        let text = "a \u{1}\u{e9} b";
        let span = Span { file: 0, start: 2, end: 900 };
        let shown = Diagnostic::emerg("x".to_owned()).point(span).render(&sources(text), "nginx");
        assert!(shown.contains("a \u{fffd}\u{e9} b"), "{shown}");
        let gone = Span { file: 7, start: 0, end: 1 };
        let shown = Diagnostic::emerg("x".to_owned()).point(gone).render(&sources(text), "nginx");
        assert_eq!(shown, "nginx: [emerg] x\n");
    }
}
