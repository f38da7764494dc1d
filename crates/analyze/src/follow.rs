//! Logs that grow. Each is looked at again and again: what was added is counted; when its name belongs to another
//! file (a rotation), the old one is read to its end first; when it became shorter, it is read from its beginning.

use crate::args::Args;
use crate::blocks::Blocks;
use crate::output::Out;
use crate::source::{Kind, Source};
use crate::{stop, work};
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
    /// The one that had the name before, and where it was read to: who writes it may have one more line for it.
    before: Option<(File, u64)>,
    format: Option<Format>,
    scanner: Option<Scanner>,
}

/// Until somebody wants no more (what is there then is counted), or nobody reads what is written.
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
    while !stop::is_wanted() {
        pause(args.every_ms);
        let mut is_new = false;
        for one in &mut all {
            let counted = one.look(&mut report);
            is_new |= counted.map_err(|e| format!("{}: {e}", one.path.display()))?;
        }
        if is_new {
            out.write(&report, true)?;
        }
    }
    Ok(())
}

/// Or until somebody wants no more.
fn pause(ms: u64) {
    let mut left = ms;
    while left > 0 && !stop::is_wanted() {
        let now = left.min(stop::NOTICE_MS);
        thread::sleep(Duration::from_millis(now));
        left -= now;
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
        Some(Followed { path, file, at: len, before: None, format: source.format, scanner })
    }

    /// Whether something was added.
    fn look(&mut self, report: &mut Report) -> io::Result<bool> {
        let mut is_new = false;
        if let Some((file, at)) = self.before.take() {
            is_new |= self.read(&file, at, report, false)?.0;
        }
        if self.file.metadata()?.len() < self.at {
            self.at = 0;
        }
        is_new |= self.go_on(report)?;
        if files::is_named(&self.file, &self.path) {
            return Ok(is_new);
        }
        // Between two names there is none: the old one is kept until there is a new one.
        if let Ok(file) = File::open(&self.path) {
            self.before = Some((std::mem::replace(&mut self.file, file), self.at));
            self.at = 0;
            is_new |= self.go_on(report)?;
        }
        Ok(is_new)
    }

    fn go_on(&mut self, report: &mut Report) -> io::Result<bool> {
        let file = self.file.try_clone()?;
        let (is_new, at) = self.read(&file, self.at, report, true)?;
        self.at = at;
        Ok(is_new)
    }

    /// Whether something was there, and to where it was read. One that grows may have a line that is not finished.
    fn read(
        &mut self,
        file: &File,
        at: u64,
        report: &mut Report,
        is_growing: bool,
    ) -> io::Result<(bool, u64)> {
        let tail = Tail { file, at };
        let mut blocks = if is_growing { Blocks::growing(tail) } else { Blocks::new(tail) };
        let mut is_new = false;
        while let Some(lines) = blocks.next()? {
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
        Ok((is_new || blocks.too_long > 0, at + blocks.passed))
    }
}
