//! What failed or was slow, and what the error log says, the newest first.

use super::{Content, Shown};
use crate::picture::Problem;
use crate::text;
use ratatui_core::text::{Line, Span};
use weir_runtime::tz;

pub fn put(content: &mut Content, shown: &Shown, width: u16, most: usize) {
    content.put_head(Line::styled("Problems, the newest first", shown.paint.strong()));
    let problems = &shown.picture.problems;
    let mut found = problems.iter().filter(|p| shown.ui.wants(&p.text)).peekable();
    if found.peek().is_none() {
        let text = "none so far: what takes 1 s or more (or what \"dashboard slow=\" says), answers of 500 and above, and \
                    lines of the error log are told from the first look on";
        content.put_wrapped(text, width);
    }
    for problem in found.take(most) {
        content.put(line(problem, shown));
        if problem.left_out > 0 {
            content.put_text(format!("         … and {} more", problem.left_out));
        }
    }
}

fn line(problem: &Problem, shown: &Shown) -> Line<'static> {
    let paint = shown.paint;
    let took = problem.took_ms.map(|ms| text::time(ms.saturating_mul(1000)));
    let source = match problem.source.as_str() {
        "" => String::new(),
        source => format!(" @ {source}"),
    };
    Line::from(vec![
        Span::styled(format!("{} ", clock(problem.at_ms)), paint.dim()),
        Span::styled(format!("{:<6}", problem.kind), paint.bad()),
        Span::raw(format!(" {:>6} ", took.unwrap_or_default())),
        Span::raw(format!("{}{source}", problem.text)),
    ])
}

/// `hh:mm:ss` of the day, as clocks here have it.
fn clock(at_ms: u64) -> String {
    let secs = (at_ms / 1000) as i64;
    let local = secs + i64::from(tz::offset_minutes(secs)) * 60;
    let day = local.rem_euclid(86_400);
    format!("{:02}:{:02}:{:02}", day / 3600, day / 60 % 60, day % 60)
}
