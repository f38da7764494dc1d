//! Regular expressions in nginx's dialect: PCRE2 over bytes, compiled with its JIT.
//!
//! Every match has limits, so that no request can make a bad pattern run for long: nginx
//! itself relies on the library's default, which is ten times as much.
//!
//! The library wants memory for each match in flight. It is kept in a few slots beside the
//! expression, chosen by thread, so that matching allocates nothing once it is warm and
//! threads do not wait for each other.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, TryLockError};

use pcre2::bytes::CaptureLocations;

mod pattern;

/// Backtracking steps one match may take.
pub const DEFAULT_MATCH_LIMIT_STEPS: u32 = 1_000_000;
/// Nested backtracking points, where the JIT is not available.
pub const DEFAULT_DEPTH_LIMIT: u32 = 250_000;
/// Memory for backtracking, where the JIT is not available.
const HEAP_LIMIT_KIB: u32 = 65_536;
/// More threads than this share slots, which costs an allocation when two meet.
const SLOTS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegexOptions {
    /// `~*`: letters match in either case.
    pub caseless: bool,
    /// `^` and `$` match at lines too.
    pub multiline: bool,
    pub match_limit_steps: u32,
    pub depth_limit: u32,
}

impl Default for RegexOptions {
    fn default() -> Self {
        RegexOptions {
            caseless: false,
            multiline: false,
            match_limit_steps: DEFAULT_MATCH_LIMIT_STEPS,
            depth_limit: DEFAULT_DEPTH_LIMIT,
        }
    }
}

/// Alone on its cache line, so that threads using their own do not slow each other.
#[derive(Default)]
#[repr(align(64))]
struct Slot(Mutex<Option<CaptureLocations>>);

pub struct Regex {
    pattern: Box<[u8]>,
    code: pcre2::bytes::Regex,
    names: Box<[(Box<str>, usize)]>,
    groups: usize,
    slots: Box<[Slot; SLOTS]>,
}

impl Regex {
    pub fn new(pattern: &[u8], options: RegexOptions) -> Result<Regex, CompileError> {
        let limits = format!(
            "(*LIMIT_MATCH={})(*LIMIT_DEPTH={})(*LIMIT_HEAP={HEAP_LIMIT_KIB})",
            options.match_limit_steps, options.depth_limit
        );
        // Items of this kind may stand in any order and the lower of two limits counts, so
        // the pattern's own (*UTF) and the like work behind them.
        let translated = pattern::to_utf8(pattern);
        let code = pcre2::bytes::RegexBuilder::new()
            .caseless(options.caseless)
            .multi_line(options.multiline)
            .jit_if_available(true)
            .build(&format!("{limits}{}", translated.text))
            .map_err(|error| {
                let offset =
                    error.offset().map(|at| translated.original(at - limits.len().min(at)));
                CompileError::new(pattern, offset, &error)
            })?;
        let names: Vec<_> = code
            .capture_names()
            .iter()
            .enumerate()
            .filter_map(|(at, name)| Some((name.as_deref()?.into(), at)))
            .collect();
        Ok(Regex {
            pattern: pattern.into(),
            groups: code.captures_len(),
            code,
            names: names.into(),
            slots: Box::default(),
        })
    }

    /// As it was written.
    pub fn pattern(&self) -> &[u8] {
        &self.pattern
    }

    /// The number of groups, the whole match among them: at least 1.
    pub fn captures_len(&self) -> usize {
        self.groups
    }

    /// Named groups and their numbers, in order of number.
    pub fn names(&self) -> impl Iterator<Item = (&str, usize)> {
        self.names.iter().map(|(name, at)| (&**name, *at))
    }

    pub fn is_match(&self, subject: &[u8]) -> Result<bool, MatchError> {
        self.with_slot(|locations| {
            let found = self.code.captures_read(locations, subject).map_err(MatchError::from)?;
            Ok(found.is_some())
        })
    }

    /// Searches from the beginning; on a match `captures` holds the groups, else nothing.
    pub fn exec(&self, subject: &[u8], captures: &mut Captures) -> Result<bool, MatchError> {
        self.exec_at(subject, 0, captures)
    }

    /// As [`Regex::exec`] from byte `start` on, which look-behinds and `^` see past.
    pub fn exec_at(
        &self,
        subject: &[u8],
        start: usize,
        captures: &mut Captures,
    ) -> Result<bool, MatchError> {
        captures.clear();
        if subject.len() >= UNSET as usize {
            return Err(MatchError { code: 0, text: "the subject is too long".to_owned() });
        }
        if start > subject.len() {
            return Ok(false);
        }
        self.with_slot(|locations| {
            let found = self.code.captures_read_at(locations, subject, start);
            if found.map_err(MatchError::from)?.is_none() {
                return Ok(false);
            }
            captures.groups.extend((0..self.groups).map(|group| match locations.get(group) {
                // A match can be told to begin behind its end, by \K in a look-ahead.
                Some((start, end)) => (start.min(end) as u32, end as u32),
                None => (UNSET, UNSET),
            }));
            Ok(true)
        })
    }

    fn with_slot<T>(&self, run: impl FnOnce(&mut CaptureLocations) -> T) -> T {
        let slot = &self.slots[thread_number() % SLOTS];
        let mut guard = match slot.0.try_lock() {
            Ok(guard) => guard,
            // Scratch memory alone: nothing in it can be left half done.
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return run(&mut self.code.capture_locations()),
        };
        run(guard.get_or_insert_with(|| self.code.capture_locations()))
    }
}

impl fmt::Debug for Regex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Regex({:?})", String::from_utf8_lossy(&self.pattern))
    }
}

/// Numbers threads in the order they first match anything.
fn thread_number() -> usize {
    static NEXT: AtomicUsize = AtomicUsize::new(0);
    thread_local! {
        static NUMBER: usize = NEXT.fetch_add(1, Ordering::Relaxed);
    }
    // Gone only while a thread ends.
    NUMBER.try_with(|number| *number).unwrap_or_default()
}

/// The offset of a group that took no part in the match.
pub const UNSET: u32 = u32::MAX;

/// The groups of the last match, in storage that is used again.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Captures {
    groups: Vec<(u32, u32)>,
}

impl Captures {
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of groups; 0 when nothing matched.
    pub fn len(&self) -> usize {
        self.groups.len()
    }

    pub fn is_empty(&self) -> bool {
        self.groups.is_empty()
    }

    pub fn clear(&mut self) {
        self.groups.clear();
    }

    /// All groups as offsets, [`UNSET`] twice for those that took no part.
    pub fn offsets(&self) -> &[(u32, u32)] {
        &self.groups
    }

    pub fn range(&self, group: usize) -> Option<Range<usize>> {
        let &(start, end) = self.groups.get(group)?;
        (start != UNSET).then_some(start as usize..end as usize)
    }

    /// The text of a group out of the subject that was matched; empty when there is none,
    /// as nginx has it.
    pub fn text<'s>(&self, subject: &'s [u8], group: usize) -> &'s [u8] {
        self.range(group).and_then(|range| subject.get(range)).unwrap_or_default()
    }
}

/// A pattern that is not one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct CompileError {
    /// nginx's line: `pcre2_compile() failed: … in "…" at "…"`.
    pub message: String,
    /// Where in the pattern.
    pub offset: Option<usize>,
}

impl CompileError {
    fn new(pattern: &[u8], offset: Option<usize>, error: &pcre2::Error) -> Self {
        let text = error.to_string();
        // "PCRE2: error compiling pattern at offset 3: the reason"
        let reason = text.splitn(3, ": ").nth(2).unwrap_or(&text);
        let whole = String::from_utf8_lossy(pattern);
        let mut message = format!("pcre2_compile() failed: {reason} in \"{whole}\"");
        if let Some(rest) = offset.and_then(|at| pattern.get(at..)).filter(|r| !r.is_empty()) {
            message.push_str(&format!(" at \"{}\"", String::from_utf8_lossy(rest)));
        }
        CompileError { message, offset }
    }
}

impl fmt::Display for CompileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for CompileError {}

/// A match that was given up: a limit was reached, or the subject is not what the pattern
/// asks for (`(*UTF)`).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct MatchError {
    /// PCRE2's number, as nginx logs it.
    pub code: i32,
    text: String,
}

impl From<pcre2::Error> for MatchError {
    fn from(error: pcre2::Error) -> Self {
        let text = error.to_string();
        let reason = text.splitn(3, ": ").nth(2).unwrap_or(&text);
        MatchError { code: error.code(), text: reason.to_owned() }
    }
}

impl fmt::Display for MatchError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "pcre2_match() failed: {} ({})", self.code, self.text)
    }
}

impl std::error::Error for MatchError {}

#[cfg(test)]
mod tests;
