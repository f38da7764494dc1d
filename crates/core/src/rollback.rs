//! Logs that this process rolls over itself, by time and size (Tengine's `pipe:rollback`), and the words by
//! which Tengine names logs that are no plain files.
//!
//! Such a log is a file like any other and is written as one; no process stands between. Who opens the logs
//! (the master, or the one process) looks now and then at its size and the time, renames it to FILE.1 after
//! FILE.1 has become FILE.2 and so on, opens it anew and hands it on, as it does when logs are opened again.
//! What is written meanwhile is the last of FILE.1: no line is lost.

use crate::logger::{ErrorLog, LogFile, LogLevel};
use crate::{logger, os_text, programs};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use weir_base::units;
use weir_module::{slot, ArgsExt, Cf, ConfResult, ConfType, Directive, Level, Val};
use weir_runtime::{clock, files, paths, trusted, tz};

/// Tengine's largest number of old files.
const BACKUPS_MAX: u64 = 128;
const ADJUST_SECS: u64 = 60;
/// Words of a command, and bytes of all.
const WORDS_MAX: usize = 64;
const COMMAND_MAX_BYTES: usize = 4096;
/// How often a file's size is looked at: more often the faster it grows.
const LOOK_MS: std::ops::RangeInclusive<u64> = 20..=1000;
/// After a failure; and how often one is told.
const RETRY_MS: u64 = 10_000;
const TOLD_MS: u64 = 60_000;

/// When one log is rolled over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    path: PathBuf,
    interval_secs: Option<i64>,
    max_bytes: Option<u64>,
    backups: u64,
    /// After each interval's end, so that not all servers do it at once.
    delay_secs: i64,
}

/// What the configuration says of logs that are no plain files.
#[derive(Default)]
pub struct Rules {
    all: Vec<Rule>,
    /// `pipe_set_size`.
    pub pipe_bytes: Val<u64>,
}

impl ConfType for Rules {
    const LEVEL: Level = Level::Global;
    slot!();
}

/// The log of that name: a file, or what follows `pipe:`.
///
/// # Errors
///
/// The words behind `pipe:` are none.
pub fn log_path(cf: &mut Cf, d: &Directive, name: &[u8]) -> ConfResult<PathBuf> {
    let Some(text) = name.strip_prefix(b"pipe:") else { return Ok(cf.full_path(name)) };
    let mut words: Vec<Vec<u8>> = text
        .split(|b| matches!(b, b' ' | b'\t'))
        .filter(|w| !w.is_empty())
        .map(<[u8]>::to_vec)
        .collect();
    if text.len() > COMMAND_MAX_BYTES || words.len() > WORDS_MAX {
        let text =
            format!("a log's command has more than {COMMAND_MAX_BYTES} bytes or {WORDS_MAX} words");
        return Err(d.bad(0, text));
    }
    match words.first().map(Vec::as_slice) {
        None => Err(d.bad(0, "no command in \"pipe:\"")),
        Some(b"rollback") => rolled(cf, d, &words[1..]),
        Some(program) if !program.contains(&b'/') && !paths::is_whole(program) => {
            let mut e = d.bad(0, "the program of a log has no path");
            e.hint = Some("write the whole path, as in \"pipe:/usr/bin/logger -t web\": no shell runs it, and PATH is not searched".into());
            Err(e)
        }
        Some(program) => {
            words[0] = paths::bytes(&cf.full_path(program)).to_vec();
            Ok(programs::name(&words))
        }
    }
}

fn rolled(cf: &mut Cf, d: &Directive, words: &[Vec<u8>]) -> ConfResult<PathBuf> {
    let [name, options @ ..] = words else {
        return Err(d.bad(0, "no file in \"pipe:rollback\""));
    };
    let path = cf.full_path(name);
    let rule = Rule::read(path.clone(), options).map_err(|e| d.bad(0, e))?;
    let rules = &mut cf.get::<Rules>().all;
    match rules.iter().find(|r| r.path == path) {
        Some(other) if *other != rule => {
            let shown = String::from_utf8_lossy(name);
            let text =
                format!("\"pipe:rollback {shown}\" already defined with conflicting parameters");
            return Err(d.bad(0, text));
        }
        Some(_) => {}
        None => rules.push(rule),
    }
    Ok(path)
}

impl Rule {
    fn read(path: PathBuf, options: &[Vec<u8>]) -> Result<Rule, String> {
        let mut rule =
            Rule { path, interval_secs: None, max_bytes: None, backups: 1, delay_secs: 0 };
        let mut adjust = ADJUST_SECS;
        for option in options {
            let invalid = || {
                let shown = String::from_utf8_lossy(option);
                format!("invalid parameter \"{shown}\" of \"pipe:rollback\"")
            };
            let at = option.iter().position(|b| *b == b'=').ok_or_else(invalid)?;
            let (key, value) = (&option[..at], &option[at + 1..]);
            match key {
                b"interval" => {
                    let secs = units::parse_sec(value).ok_or_else(invalid)?;
                    rule.interval_secs = i64::try_from(secs).ok().filter(|s| *s > 0);
                }
                b"maxsize" => {
                    let bytes = units::parse_offset(value).ok_or_else(invalid)?;
                    rule.max_bytes = Some(bytes).filter(|b| *b > 0);
                }
                b"baknum" => {
                    let number = units::parse_int(value).ok_or_else(invalid)?;
                    rule.backups = Some(number)
                        .filter(|n| (1..=BACKUPS_MAX).contains(n))
                        .ok_or(format!("baknum is not between 1 and {BACKUPS_MAX}"))?;
                }
                b"adjust" => adjust = units::parse_sec(value).ok_or_else(invalid)?,
                _ => return Err(invalid()),
            }
        }
        // The same for the same file, also after a reload and in a program that takes this one's place.
        rule.delay_secs = (hash(paths::bytes(&rule.path)) % adjust.max(1)) as i64;
        Ok(rule)
    }

    /// Which interval a time is in, by the clock on the wall: one of a day begins at midnight.
    fn period(&self, secs: i64) -> i64 {
        let local = secs + i64::from(tz::offset_minutes(secs)) * 60;
        self.interval_secs.map_or(0, |interval| local.div_euclid(interval))
    }

    fn backup(&self, number: u64) -> PathBuf {
        let mut name = self.path.clone().into_os_string();
        name.push(format!(".{number}"));
        name.into()
    }

    /// FILE becomes FILE.1, after FILE.1 has become FILE.2 and so on; the last is overwritten.
    fn shift(&self) -> io::Result<()> {
        for number in (1..self.backups).rev() {
            match trusted::rename(&self.backup(number), &self.backup(number + 1)) {
                Err(e) if e.kind() != io::ErrorKind::NotFound => return Err(e),
                _ => {}
            }
        }
        trusted::rename(&self.path, &self.backup(1))
    }
}

/// FNV-1a.
fn hash(text: &[u8]) -> u64 {
    let step = |h: u64, b: &u8| (h ^ u64::from(*b)).wrapping_mul(0x0100_0000_01b3);
    text.iter().fold(0xcbf2_9ce4_8422_2325, step)
}

/// One log, and what was seen of it last.
struct Rolled {
    rule: Rule,
    file: Arc<LogFile>,
    /// A time of the interval that its lines are of.
    begun_secs: i64,
    seen: (u64, u64),
    look_at_ms: u64,
    told_ms: Option<u64>,
}

/// Rolls the logs of a configuration over. To be had by who opens them.
#[derive(Default)]
pub struct Roller {
    all: Vec<Rolled>,
}

impl Roller {
    /// A configuration is in force. What is known of logs that it goes on with stays.
    pub fn renew(&mut self, rules: &Rules) {
        let mut old = std::mem::take(&mut self.all);
        for rule in &rules.all {
            let known = old.iter().position(|r| r.rule.path == rule.path).map(|at| old.remove(at));
            let Ok(file) = logger::log_file(&rule.path) else { continue };
            self.all.push(match known {
                Some(known) => Rolled { rule: rule.clone(), file, look_at_ms: 0, ..known },
                None => Rolled::new(rule.clone(), file),
            });
        }
    }

    /// In how many ms something is due.
    pub fn due_in_ms(&self) -> Option<u64> {
        let now = clock::mono_ms();
        self.all.iter().map(|r| r.look_at_ms.saturating_sub(now)).min()
    }

    /// Rolls over what is to be; whether a log is another file now.
    pub fn tend(&mut self, log: &ErrorLog) -> bool {
        let now = clock::mono_ms();
        let mut any = false;
        for rolled in self.all.iter_mut().filter(|r| now >= r.look_at_ms) {
            match rolled.look(now) {
                Ok(is_new) => any |= is_new,
                Err(e) => rolled.failed(now, &e, log),
            }
        }
        any
    }
}

impl Rolled {
    fn new(rule: Rule, file: Arc<LogFile>) -> Rolled {
        let written = file.handle().metadata().ok().filter(|m| m.len() > 0);
        let begun_secs = written.map_or_else(clock::wall_secs, |m| files::modified_secs(&m));
        Rolled { rule, file, begun_secs, seen: (0, 0), look_at_ms: 0, told_ms: None }
    }

    fn look(&mut self, now: u64) -> io::Result<bool> {
        let secs = clock::wall_secs();
        let bytes = self.file.handle().metadata()?.len();
        self.look_at_ms = now + self.pause_ms(now, bytes);
        self.seen = (now, bytes);
        let is_over =
            self.rule.period(secs - self.rule.delay_secs) > self.rule.period(self.begun_secs);
        let is_large = self.rule.max_bytes.is_some_and(|max| bytes >= max);
        if !is_over && !is_large {
            return Ok(false);
        }
        let is_new = bytes == 0 || self.roll()?;
        if is_new {
            self.begun_secs = secs;
            self.seen = (now, 0);
        }
        Ok(is_new && bytes > 0)
    }

    /// Until when it may have reached its size, judged by how it has grown.
    fn pause_ms(&self, now: u64, bytes: u64) -> u64 {
        let (then, before) = self.seen;
        let (grown, took) = (bytes.saturating_sub(before), now.saturating_sub(then));
        let left = self.rule.max_bytes.map(|max| max.saturating_sub(bytes));
        let until = left.and_then(|left| left.saturating_mul(took).checked_div(grown * 2));
        until.unwrap_or(u64::MAX).clamp(*LOOK_MS.start(), *LOOK_MS.end())
    }

    /// Another program that takes this one's place, or whose place this one takes, may be at it too: who has
    /// the file's lock does it, and the other finds another file by its name.
    fn roll(&mut self) -> io::Result<bool> {
        let handle = self.file.handle();
        if handle.try_lock().is_err() {
            return Ok(false);
        }
        let done = match files::is_named(&handle, &self.rule.path) {
            true => self.rule.shift(),
            false => Ok(()),
        };
        let opened = done.and_then(|()| self.file.reopen());
        // The descriptor's copy in the serving process would keep it locked.
        drop(handle.unlock());
        opened.map(|()| true)
    }

    fn failed(&mut self, now: u64, e: &io::Error, log: &ErrorLog) {
        self.look_at_ms = now + RETRY_MS;
        if self.told_ms.is_some_and(|told| now - told < TOLD_MS) {
            return;
        }
        self.told_ms = Some(now);
        let text = format!("rolling over \"{}\" failed ({})", self.rule.path.display(), os_text(e));
        log.log(LogLevel::Alert, None, text.as_bytes());
    }
}
