//! Where reports go.

use crate::args::{Args, Output};
use crate::{is_terminal, shown, write_out};
use std::fs::{self, OpenOptions};
use std::io::Write;
use weir_analytics::render::{csv, html, json, terminal, Shown};
use weir_analytics::report::Report;
use weir_runtime::{files, paths};

/// Of a terminal that does not say.
const WIDTH: usize = 100;
const WIDTHS: std::ops::RangeInclusive<usize> = 60..=400;
/// Cursor home, and everything behind it gone.
const CLEAR: &str = "\x1b[H\x1b[2J";

pub struct Out {
    kind: Output,
    top: usize,
    write: Option<Vec<u8>>,
    names: Vec<String>,
}

impl Out {
    pub fn new(args: &Args, names: Vec<String>) -> Out {
        Out { kind: args.output, top: args.top, write: args.write.clone(), names }
    }

    /// `again`: in the place of the one before.
    pub fn write(&self, report: &Report, again: bool) -> Result<(), String> {
        let (summary, panels) = (report.summary(), report.panels(self.top));
        let all = Shown { sources: &self.names, summary: &summary, panels: &panels };
        let text = match self.kind {
            Output::Terminal => terminal(&all, width()),
            Output::Html => html(&all),
            Output::Json => json(&all),
            Output::Csv => csv(&all),
        };
        match &self.write {
            Some(path) => replace(path, text.as_bytes()),
            None if again && self.kind == Output::Terminal && is_terminal() => {
                write_out(format!("{CLEAR}{text}").as_bytes())
            }
            None => write_out(text.as_bytes()),
        }
    }
}

fn width() -> usize {
    let told = std::env::var("COLUMNS").ok().and_then(|text| text.parse().ok());
    told.filter(|n| WIDTHS.contains(n)).unwrap_or(WIDTH)
}

/// Nobody reads half of it: it is written beside and renamed. Who may read it is up to the umask, as with `>`.
fn replace(path: &[u8], text: &[u8]) -> Result<(), String> {
    let failed = |e: std::io::Error| format!("{}: {e}", shown(path));
    let beside = [path, format!(".{}.new", std::process::id()).as_bytes()].concat();
    let (path, beside) = (paths::path(path), paths::path(&beside));
    let opened = OpenOptions::new().write(true).create_new(true).open(&beside);
    let written = opened.and_then(|mut file| {
        let done = file.write_all(text).and_then(|()| files::replace(&beside, &path));
        if done.is_err() {
            let _ = fs::remove_file(&beside);
        }
        done
    });
    written.map_err(failed)
}
