//! Logs that grow. Each is looked at again and again: what was added is counted; when its name belongs to another
//! file (a rotation), the old one is read to its end first; when it became shorter, it is read from its beginning.

use crate::args::Args;
use crate::blocks::Blocks;
use crate::output::Out;
use crate::source::{Kind, Source};
use crate::work;
use std::fs::File;
use std::io::{self, Read};
use std::path::PathBuf;
use std::thread;
use std::time::Duration;
use weir_analytics::format::{detect, Format, Invalid, Scanner};
use weir_analytics::report::Report;
use weir_runtime::{files, paths};

struct Followed {
    path: PathBuf,
    file: File,
    /// Behind the last whole line that was counted.
    at: u64,
    format: Option<Format>,
    scanner: Option<Scanner>,
}

/// Until the process is ended, or nobody reads what is written.
pub fn follow(
    sources: Vec<Source>,
    mut report: Report,
    args: &Args,
    out: &Out,
) -> Result<(), String> {
    out.write(&report, false)?;
    let mut all: Vec<Followed> = sources.into_iter().filter_map(Followed::new).collect();
    if all.is_empty() {
        return Err(
            "none of the files can be followed: what is compressed or a pipe does not grow".into(),
        );
    }
    loop {
        thread::sleep(Duration::from_millis(args.every_ms));
        let mut is_new = false;
        for one in &mut all {
            let counted = one.look(&mut report);
            is_new |= counted.map_err(|e| format!("{}: {e}", one.path.display()))?;
        }
        if is_new {
            out.write(&report, true)?;
        }
    }
}

/// From where a file was read to.
struct Tail<'a> {
    file: &'a File,
    at: u64,
}

impl Read for Tail<'_> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        let n = files::read_at(self.file, buf, self.at)?;
        self.at += n as u64;
        Ok(n)
    }
}

impl Followed {
    fn new(source: Source) -> Option<Followed> {
        let Kind::Plain { file, len } = source.kind else { return None };
        let scanner = source.format.as_ref().map(Format::scanner);
        let path = paths::path(&source.path).into_owned();
        Some(Followed { path, file, at: len, format: source.format, scanner })
    }

    /// Whether something was added.
    fn look(&mut self, report: &mut Report) -> io::Result<bool> {
        // Asked before it is read: what a file with another name gets is in it by then.
        let is_named = files::is_named(&self.file, &self.path);
        if self.file.metadata()?.len() < self.at {
            self.at = 0;
        }
        let mut is_new = self.read(report, is_named)?;
        if !is_named {
            // Between two names there is none: the old one is kept until there is a new one.
            if let Ok(file) = File::open(&self.path) {
                (self.file, self.at) = (file, 0);
                is_new |= self.read(report, true)?;
            }
        }
        Ok(is_new)
    }

    /// A file that keeps growing may have a line in it that is not finished.
    fn read(&mut self, report: &mut Report, is_growing: bool) -> io::Result<bool> {
        let tail = Tail { file: &self.file, at: self.at };
        let mut blocks = if is_growing { Blocks::growing(tail) } else { Blocks::new(tail) };
        let mut is_new = false;
        while let Some(lines) = blocks.next()? {
            self.at += lines.len() as u64;
            if self.scanner.is_none() {
                self.format = detect(lines);
                self.scanner = self.format.as_ref().map(Format::scanner);
            }
            match &mut self.scanner {
                Some(scanner) => work::count(lines, scanner, report),
                None => {
                    lines.split(|b| *b == b'\n').for_each(|_| report.add_invalid(Invalid::Form))
                }
            }
            is_new = true;
        }
        (0..blocks.too_long).for_each(|_| report.add_invalid(Invalid::TooLong));
        Ok(is_new)
    }
}
