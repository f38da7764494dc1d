//! Reports as texts: for a terminal, a browser, a program, a table.
//!
//! What strangers sent has been made visible (`shown`) before it comes here; each of these escapes what is special
//! where it is written.

mod csv;
mod html;
mod json;
mod terminal;

pub use csv::csv;
pub use html::html;
pub use json::json;
pub use terminal::terminal;

use crate::report::{Panel, Summary};

/// What is written.
pub struct Shown<'a> {
    /// The names of what was read.
    pub sources: &'a [String],
    pub summary: &'a Summary,
    pub panels: &'a [Panel],
}

/// `12.3 MB`, by thousands.
fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["kB", "MB", "GB", "TB", "PB", "EB"];
    if n < 1000 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1000.0;
    let mut unit = 0;
    while value >= 999.95 && unit + 1 < UNITS.len() {
        value /= 1000.0;
        unit += 1;
    }
    format!("{value:.1} {}", UNITS[unit])
}

/// `1.5 ms`
fn time(us: u64) -> String {
    match us {
        0..1000 => format!("{us} µs"),
        1000..1_000_000 => format!("{:.1} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

/// With what it may be off by, where it is not exact.
fn about((n, error): (u64, f64)) -> String {
    match error > 0.0 {
        true => format!("{n} (±{:.1} %)", error * 100.0),
        false => n.to_string(),
    }
}

/// The lines above the lists: what, and how much.
fn facts(summary: &Summary) -> Vec<(&'static str, String)> {
    let s = summary;
    let mut facts = vec![
        ("Valid requests", s.valid.to_string()),
        ("Failed lines", s.invalid.to_string()),
        ("Visitors", about((s.visitors, s.visitors_error))),
        ("Requested URLs", about(s.files)),
        ("Static files", about(s.statics)),
        ("Not found", about(s.missing)),
        ("Referrers", about(s.referrers)),
        ("Sent", bytes(s.bytes)),
    ];
    if s.outside > 0 {
        facts.push(("Outside of the time", s.outside.to_string()));
    }
    if !s.first.is_empty() {
        facts.push(("From", s.first.clone()));
        facts.push(("To", s.last.clone()));
    }
    if let Some(t) = &s.times {
        facts.push(("Time, median", time(t.median)));
        facts.push(("Time, 90 %", time(t.p90)));
        facts.push(("Time, 99 %", time(t.p99)));
        facts.push(("Time, longest", time(t.most)));
    }
    facts
}

/// What is to be known of a list's figures.
fn caveat(panel: &Panel) -> Option<String> {
    let what = if panel.id == "heaviest" { "bytes" } else { "requests" };
    (panel.floor > 0).then(|| {
        format!("too many for the memory: what is not listed has at most {} {what}", panel.floor)
    })
}

#[cfg(test)]
mod tests;
