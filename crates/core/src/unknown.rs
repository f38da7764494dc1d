//! Regular expressions on behalf of a session, and what becomes of it when one cannot tell.
//!
//! A match that was given up is no answer: who took it for "no" would pass by a location that denies.
//! So it is noted on the session, and who runs that ends it before the next thing is done: a request
//! with 500 before the next phase or handler, before a backend is asked, or in place of the header
//! that was about to leave. Thereby also those fail that have no result to fail by, the variables
//! above all.
//!
//! Where nothing can fail any more, because the header has left or the session is being logged, a
//! `map` gives its default, as in nginx. That is remembered as a guess, for those who had better not
//! rely on one ([`Session::certain`]).

use crate::session::Session;
use std::cell::Cell;
use weir_script::regex::{MatchError, Regex};
use weir_script::template::VarId;

/// A match was given up, and the session is to end for it.
pub(crate) const FAILED: u8 = 1;
/// A match was given up where nothing can fail, and a default was taken in its place.
pub(crate) const GUESSED: u8 = 2;

/// So much of a subject is shown: the log cuts long lines, and the pattern is what to look for.
pub(crate) const SUBJECT_SHOWN_BYTES: usize = 1024;

/// Whether a match of this session was given up.
#[derive(Default)]
pub struct Unknown {
    now: Cell<u8>,
    /// It is over and being logged.
    over: Cell<bool>,
    /// It is being answered with 500 for it: how many redirects it had left then. The built-in page
    /// itself is let through; behind a redirect to a page of the configuration's, whose location may
    /// ask the same expression, a match that is given up counts anew.
    pub answered: Cell<Option<u8>>,
}

impl Unknown {
    /// A new session begins.
    pub fn clear(&self) {
        self.now.set(0);
        self.over.set(false);
        self.answered.set(None);
    }

    /// Nothing will fail for it, whatever is given up from now on.
    pub fn end(&self) {
        self.now.set(0);
        self.over.set(true);
    }

    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.over.get()
    }

    /// Whether a match was given up and the session has not been ended for it yet.
    #[inline]
    pub(crate) fn is_failed(&self) -> bool {
        self.now.get() & FAILED != 0
    }

    /// What was noted is dealt with.
    pub fn forgive(&self) {
        self.now.set(0);
    }

    pub(crate) fn note(&self, what: u8) {
        self.now.set(self.now.get() | what);
    }

    /// Takes what is noted, so that what comes now is told apart from it.
    pub fn take(&self) -> u8 {
        self.now.take()
    }

    /// Puts back what was taken, in the place of what has come since; whether nothing has.
    pub(crate) fn replace(&self, taken: u8) -> bool {
        self.now.replace(taken) == 0
    }

    /// Adds what was taken; answers what has come since.
    pub(crate) fn put_back(&self, taken: u8) -> Certainty {
        let fresh = self.now.get();
        self.now.set(fresh | taken);
        match fresh {
            0 => Certainty::Sure,
            GUESSED => Certainty::Guess,
            _ => Certainty::None,
        }
    }
}

/// What a value is worth in whose making a match may have been given up.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Certainty {
    Sure,
    /// A default stands in for what could not be told.
    Guess,
    None,
}

/// Runs a regex; a match sets `$1…` and the named captures' variables.
///
/// # Errors
///
/// The match was given up. That has been logged, and the session ends for it.
pub fn regex_match<S: Session>(
    s: &mut S,
    regex: &Regex,
    vars: &[(usize, VarId)],
    subject: &[u8],
) -> Result<bool, MatchError> {
    let mut captures = std::mem::take(&mut s.values_mut().captures.spare);
    let found = regex.exec(subject, &mut captures);
    s.values_mut().captures.spare = captures;
    // What an earlier expression has captured stays valid without a match.
    if !s.judge_match(found, regex, subject)? {
        return Ok(false);
    }
    let set = &mut s.values_mut().captures;
    std::mem::swap(&mut set.captures, &mut set.spare);
    set.subject.clear();
    set.subject.extend_from_slice(subject);
    for (n, id) in vars {
        let value = s.values().captures.get(*n).unwrap_or_default().to_vec();
        s.store_var(id.0 as usize, Some(&value));
    }
    Ok(true)
}

/// As [`regex_match`], for who has a default to go by where nothing can fail
/// ([`Session::is_answered`]): there it counts as a guess.
///
/// # Errors
///
/// The match was given up. That has been logged.
pub fn regex_match_or_guess<S: Session>(
    s: &mut S,
    regex: &Regex,
    vars: &[(usize, VarId)],
    subject: &[u8],
) -> Result<bool, MatchError> {
    let before = s.values().unknown.now.get();
    regex_match(s, regex, vars, subject).inspect_err(|_| {
        if s.is_answered() {
            s.values().unknown.now.set(before | GUESSED);
        }
    })
}
