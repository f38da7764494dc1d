//! Regular expressions on behalf of a request, and what becomes of it when one cannot tell.
//!
//! A match that was given up is no answer: who took it for "no" would pass by a location that denies.
//! So it is noted on the request, which ends with 500: before the next phase or handler, before a
//! backend is asked, or in place of the header that was about to leave. Thereby also those fail that
//! have no result to fail by, the variables above all.
//!
//! Where no 500 can follow, because the header has left or the request is being logged, a `map` gives its
//! default, as in nginx. That is remembered as a guess, for those who had better not rely on one
//! ([`Request::certain`]).

use crate::module::{FilterError, FilterResult, Flow};
use crate::request::Request;
use std::cell::Cell;
use weir_core::logger::LogLevel;
use weir_script::regex::{MatchError, Regex};
use weir_script::template::VarId;

/// A match was given up, and the request is to end for it.
const FAILED: u8 = 1;
/// A match was given up behind the header, and a default was taken in its place.
const GUESSED: u8 = 2;

/// Whether a match of this request was given up.
#[derive(Default)]
pub(crate) struct Unknown {
    now: Cell<u8>,
    /// The request is over and being logged.
    over: Cell<bool>,
    /// The request is being answered with 500 for it: how many redirects it had left then. The
    /// built-in page itself is let through; behind a redirect to a page of the configuration's,
    /// whose location may ask the same expression, a match that is given up counts anew.
    answered: Cell<Option<u8>>,
}

impl Unknown {
    pub(crate) fn clear(&self) {
        self.now.set(0);
        self.over.set(false);
        self.answered.set(None);
    }

    /// No 500 will follow, whatever is given up from now on.
    pub(crate) fn end(&self) {
        self.now.set(0);
        self.over.set(true);
    }

    /// Takes what is noted, so that what comes now is told apart from it.
    pub(crate) fn take(&self) -> u8 {
        self.now.take()
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

impl Request {
    /// Whether a match was given up and the request has not been ended for it yet.
    #[inline]
    pub fn match_failed(&self) -> bool {
        self.unknown.now.get() & FAILED != 0
    }

    /// Whether no 500 can follow any more.
    pub fn is_answered(&self) -> bool {
        self.header_sent || self.unknown.over.get()
    }

    /// Whether a redirect or the built-in page has taken the place of what a match that was given up
    /// would have led to.
    pub fn failed_by_match(&self) -> bool {
        self.match_failed() || self.unknown.answered.get().is_some()
    }

    /// Notes that a value could not be told: asked for again, or made in another request.
    #[cold]
    pub fn fail_again(&self) {
        self.note(FAILED);
    }

    /// A default was made of a match that was given up.
    #[cold]
    pub(crate) fn guess_again(&self) {
        self.note(GUESSED);
    }

    fn note(&self, what: u8) {
        self.unknown.now.set(self.unknown.now.get() | what);
    }

    /// What `f` makes, and whether it could be told: neither was a match given up, nor a default
    /// taken in place of one. What was given up is noted no further: that is the caller's now.
    pub fn certain<T>(&mut self, f: impl FnOnce(&mut Request) -> T) -> (T, bool) {
        let before = self.unknown.take();
        let value = f(self);
        (value, self.unknown.now.replace(before) == 0)
    }

    /// The result of a match; that it was given up is logged and noted.
    ///
    /// # Errors
    ///
    /// As `found`.
    pub fn judge_match(
        &self,
        found: Result<bool, MatchError>,
        regex: &Regex,
        subject: &[u8],
    ) -> Result<bool, MatchError> {
        found.inspect_err(|e| self.fail_match(&e.to_string(), regex, subject))
    }

    #[cold]
    fn fail_match(&self, why: &str, regex: &Regex, subject: &[u8]) {
        self.note(FAILED);
        // The log cuts long lines, and the pattern is what to look for.
        let shown = &subject[..subject.len().min(SUBJECT_SHOWN_BYTES)];
        let more: &[u8] = if shown.len() < subject.len() { b"..." } else { b"" };
        let parts =
            [why.as_bytes(), b" on \"", shown, more, b"\" using \"", regex.pattern(), b"\""];
        self.log_bytes(LogLevel::Alert, &parts.concat());
    }
}

const SUBJECT_SHOWN_BYTES: usize = 1024;

/// Runs a regex; a match sets `$1…` and the named captures' variables.
///
/// # Errors
///
/// The match was given up. That has been logged, and the request ends with 500.
pub fn regex_match(
    r: &mut Request,
    regex: &Regex,
    vars: &[(usize, VarId)],
    subject: &[u8],
) -> Result<bool, MatchError> {
    let mut captures = std::mem::take(&mut r.captures.spare);
    let found = regex.exec(subject, &mut captures);
    r.captures.spare = captures;
    // What an earlier expression has captured stays valid without a match.
    if !r.judge_match(found, regex, subject)? {
        return Ok(false);
    }
    let set = &mut r.captures;
    std::mem::swap(&mut set.captures, &mut set.spare);
    set.subject.clear();
    set.subject.extend_from_slice(subject);
    for (n, id) in vars {
        let value = r.captures.get(*n).unwrap_or_default().to_vec();
        r.store_var(id.0 as usize, Some(&value));
    }
    Ok(true)
}

/// As [`regex_match`], for who has a default to go by where no 500 can follow ([`Request::is_answered`]):
/// there it counts as a guess.
///
/// # Errors
///
/// The match was given up. That has been logged.
pub fn regex_match_or_guess(
    r: &mut Request,
    regex: &Regex,
    vars: &[(usize, VarId)],
    subject: &[u8],
) -> Result<bool, MatchError> {
    let before = r.unknown.now.get();
    regex_match(r, regex, vars, subject).inspect_err(|_| {
        if r.is_answered() {
            r.unknown.now.set(before | GUESSED);
        }
    })
}

/// What a phase or handler has come to, unless a match was given up in it.
#[inline]
pub(crate) fn checked(r: &mut Request, flow: Flow) -> Flow {
    match r.match_failed() {
        false => flow,
        true => ended(r, flow),
    }
}

#[cold]
fn ended(r: &mut Request, flow: Flow) -> Flow {
    if r.header_sent || matches!(flow, Flow::Close) {
        return flow;
    }
    begin_again(r);
    Flow::Status(500)
}

/// Keeps back a header in whose making a match was given up.
#[inline]
pub(crate) fn check_header(r: &mut Request) -> FilterResult {
    match r.match_failed() {
        false => Ok(()),
        true => keep_back(r),
    }
}

#[cold]
fn keep_back(r: &mut Request) -> FilterResult {
    if r.unknown.answered.get() == Some(r.redirects_left) {
        if r.out.status == 500 {
            return Ok(());
        }
        // Not the page but a redirect to one elsewhere: the page must do.
        r.error_page = true;
    }
    begin_again(r);
    // What the filters have begun for the answer that is kept back.
    r.clear_ctx();
    (r.allow_ranges, r.gzip_vary, r.expect_trailers) = (false, false, false);
    (r.forms, r.whole_body) = (None, None);
    Err(FilterError::Status(500))
}

fn begin_again(r: &mut Request) {
    r.unknown.now.set(0);
    r.unknown.answered.set(Some(r.redirects_left));
    r.own_location = false;
    r.err_status = 0;
    r.out.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_script::regex::RegexOptions;

    #[test]
    fn an_answer_that_depends_on_it_is_kept_back() {
        let mut r = Request::default();
        assert!(check_header(&mut r).is_ok());
        r.note(FAILED);
        r.out.add(b"X-Secret", b"1");
        assert_eq!(check_header(&mut r), Err(FilterError::Status(500)));
        assert_eq!(r.out.iter().count(), 0);
        assert!(!r.match_failed());
        r.note(FAILED);
        r.out.status = 302;
        assert!(check_header(&mut r).is_err(), "not the page of the error");
        r.out.status = 500;
        r.note(FAILED);
        assert!(check_header(&mut r).is_ok(), "the page of the error itself");
        r.redirects_left += 1;
        assert!(check_header(&mut r).is_err(), "behind a redirect");
        r.note(FAILED);
        assert!(matches!(checked(&mut r, Flow::Ok), Flow::Status(500)));
        let regex = Regex::new(b"a", RegexOptions::default()).unwrap();
        assert_eq!(r.judge_match(Ok(true), &regex, b"a"), Ok(true));
        assert!(!r.match_failed());
    }
}
