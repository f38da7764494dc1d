//! Regular expressions in nginx's dialect: PCRE2 over bytes, compiled with its JIT.
//!
//! Every match has limits, so that no request can make a bad pattern run for long: nginx
//! itself relies on the library's default, which is ten times as much.
//!
//! The JIT has little memory for backtracking, and a long subject can be too much for it that the
//! interpreter, nginx's default, is through with at once. Such a match is done again by the
//! interpreter, in memory that is given back. What it cannot tell either is an error, which says
//! nothing of whether the subject matches: nobody may take it for "no".
//!
//! The library wants memory for each match in flight. It is kept in a few slots beside the
//! expression, chosen by thread, so that matching allocates nothing once it is warm and
//! threads do not wait for each other.

use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, OnceLock, TryLockError};

use pcre2::bytes::CaptureLocations;

mod pattern;

/// Backtracking steps one match may take.
pub const DEFAULT_MATCH_LIMIT_STEPS: u32 = 1_000_000;
/// Memory for backtracking, where the JIT is not available. It stays with the slot.
const HEAP_LIMIT_KIB: u32 = 1024;
/// What the interpreter may take when a match is done again: the library's own limit of steps, as
/// in nginx, and memory for 1 MB of subject in pieces of a byte. It is taken as needed and
/// given back behind the match.
const AGAIN_STEPS: u32 = 10_000_000;
const AGAIN_HEAP_LIMIT_KIB: u32 = 524_288;
/// A subject longer than this may need more steps than the first limit for being long. In a shorter
/// one that many mean a bad pattern, and it is not begun again.
const LONG_SUBJECT_BYTES: usize = 32_768;

/// PCRE2_ERROR_MATCHLIMIT
const MATCH_LIMIT: i32 = -47;
/// PCRE2_ERROR_JIT_STACKLIMIT, PCRE2_ERROR_DEPTHLIMIT, PCRE2_ERROR_HEAPLIMIT
const OUT_OF_MEMORY: [i32; 3] = [-46, -53, -63];
/// More threads than this share slots, which costs an allocation when two meet.
const SLOTS: usize = 16;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegexOptions {
    /// `~*`: letters match in either case.
    pub caseless: bool,
    /// `^` and `$` match at lines too.
    pub multiline: bool,
    pub match_limit_steps: u32,
}

impl Default for RegexOptions {
    fn default() -> Self {
        RegexOptions {
            caseless: false,
            multiline: false,
            match_limit_steps: DEFAULT_MATCH_LIMIT_STEPS,
        }
    }
}

/// Alone on its cache line, so that threads using their own do not slow each other.
#[derive(Default)]
#[repr(align(64))]
struct Slot(Mutex<Option<CaptureLocations>>);

pub struct Regex {
    pattern: Box<[u8]>,
    options: RegexOptions,
    code: pcre2::bytes::Regex,
    /// The same for the interpreter, made when the JIT has first given up.
    again: OnceLock<Option<pcre2::bytes::Regex>>,
    names: Box<[(Box<str>, usize)]>,
    groups: usize,
    slots: Box<[Slot; SLOTS]>,
}

impl Regex {
    pub fn new(pattern: &[u8], options: RegexOptions) -> Result<Regex, CompileError> {
        let code = compile(pattern, options, true)?;
        let names: Vec<_> = code
            .capture_names()
            .iter()
            .enumerate()
            .filter_map(|(at, name)| Some((name.as_deref()?.into(), at)))
            .collect();
        Ok(Regex {
            pattern: pattern.into(),
            options,
            groups: code.captures_len(),
            code,
            again: OnceLock::new(),
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

    /// Whether the expression is found in the subject.
    ///
    /// # Errors
    ///
    /// The match was given up; whether there is one is not known.
    pub fn is_match(&self, subject: &[u8]) -> Result<bool, MatchError> {
        self.search(subject, 0, |_| {})
    }

    /// Searches from the beginning; on a match `captures` holds the groups, else nothing.
    ///
    /// # Errors
    ///
    /// As [`Regex::is_match`].
    pub fn exec(&self, subject: &[u8], captures: &mut Captures) -> Result<bool, MatchError> {
        self.exec_at(subject, 0, captures)
    }

    /// As [`Regex::exec`] from byte `start` on, which look-behinds and `^` see past.
    ///
    /// # Errors
    ///
    /// As [`Regex::is_match`].
    pub fn exec_at(
        &self,
        subject: &[u8],
        start: usize,
        captures: &mut Captures,
    ) -> Result<bool, MatchError> {
        captures.clear();
        self.search(subject, start, |locations| {
            captures.groups.extend((0..self.groups).map(|group| match locations.get(group) {
                // A match can be told to begin behind its end, by \K in a look-ahead.
                Some((start, end)) => (start.min(end) as u32, end as u32),
                None => (UNSET, UNSET),
            }));
        })
    }

    /// Calls `found` with the places of a match.
    fn search(
        &self,
        subject: &[u8],
        start: usize,
        mut found: impl FnMut(&CaptureLocations),
    ) -> Result<bool, MatchError> {
        if subject.len() >= UNSET as usize {
            return Err(MatchError { code: 0, text: "the subject is too long".to_owned() });
        }
        if start > subject.len() {
            return Ok(false);
        }
        let first = self.with_slot(|locations| {
            let hit = self.code.captures_read_at(locations, subject, start)?.is_some();
            if hit {
                found(locations);
            }
            Ok(hit)
        });
        first.or_else(|error: pcre2::Error| self.search_again(subject, start, &error, found))
    }

    /// After the first form has given up with `error`.
    #[cold]
    fn search_again(
        &self,
        subject: &[u8],
        start: usize,
        error: &pcre2::Error,
        mut found: impl FnMut(&CaptureLocations),
    ) -> Result<bool, MatchError> {
        let code = error.code();
        let was_long = code == MATCH_LIMIT && subject.len() > LONG_SUBJECT_BYTES;
        if !was_long && !OUT_OF_MEMORY.contains(&code) {
            return Err(MatchError::from(error));
        }
        let again = self.again.get_or_init(|| compile(&self.pattern, self.options, false).ok());
        let Some(again) = again else { return Err(MatchError::from(error)) };
        // The memory of the match goes with them.
        let mut locations = again.capture_locations();
        let hit = again.captures_read_at(&mut locations, subject, start);
        let hit = hit.map_err(|e| MatchError::from(&e))?.is_some();
        if hit {
            found(&locations);
        }
        Ok(hit)
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

/// Items of this kind may stand in any order and the lower of two limits counts, so the pattern's
/// own `(*UTF)` and the like work behind them.
fn compile(
    pattern: &[u8],
    options: RegexOptions,
    first: bool,
) -> Result<pcre2::bytes::Regex, CompileError> {
    let (steps, heap_kib) = match first {
        true => (options.match_limit_steps, HEAP_LIMIT_KIB),
        false => (AGAIN_STEPS.max(options.match_limit_steps), AGAIN_HEAP_LIMIT_KIB),
    };
    let limits = format!("(*LIMIT_MATCH={steps})(*LIMIT_HEAP={heap_kib})");
    let translated = pattern::to_utf8(pattern);
    pcre2::bytes::RegexBuilder::new()
        .caseless(options.caseless)
        .multi_line(options.multiline)
        .jit_if_available(first)
        .build(&format!("{limits}{}", translated.text))
        .map_err(|error| {
            let offset = error.offset().map(|at| translated.original(at - limits.len().min(at)));
            CompileError::new(pattern, offset, &error)
        })
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

impl From<&pcre2::Error> for MatchError {
    fn from(error: &pcre2::Error) -> Self {
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
