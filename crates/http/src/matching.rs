//! Requests in which a regular expression could not tell: they end with 500.
//! (What is noted of it, and where, is in `weir_core::unknown`.)

use crate::flow::{FilterError, FilterResult, Flow};
use crate::request::Request;
use weir_core::Session;

impl Request {
    /// Whether a redirect or the built-in page has taken the place of what a match that was given up
    /// would have led to.
    pub fn failed_by_match(&self) -> bool {
        self.match_failed() || self.values.unknown.answered.get().is_some()
    }
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
    if r.flags.header_sent || matches!(flow, Flow::Close) {
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
    if r.values.unknown.answered.get() == Some(r.redirects_left) {
        if r.out.status == 500 {
            return Ok(());
        }
        // Not the page but a redirect to one elsewhere: the page must do.
        r.flags.error_page = true;
    }
    begin_again(r);
    // What the filters have begun for the answer that is kept back.
    r.clear_ctx();
    (r.flags.allow_ranges, r.flags.gzip_vary) = (false, false);
    r.whole = None;
    Err(FilterError::Status(500))
}

fn begin_again(r: &mut Request) {
    r.values.unknown.forgive();
    r.values.unknown.answered.set(Some(r.redirects_left));
    r.flags.own_location = false;
    r.err_status = 0;
    r.out.clear();
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_script::regex::{Regex, RegexOptions};

    #[test]
    fn an_answer_that_depends_on_it_is_kept_back() {
        let mut r = Request::default();
        assert!(check_header(&mut r).is_ok());
        r.fail_again();
        r.out.add(b"X-Secret", b"1");
        assert_eq!(check_header(&mut r), Err(FilterError::Status(500)));
        assert_eq!(r.out.iter().count(), 0);
        assert!(!r.match_failed());
        r.fail_again();
        r.out.status = 302;
        assert!(check_header(&mut r).is_err(), "not the page of the error");
        r.out.status = 500;
        r.fail_again();
        assert!(check_header(&mut r).is_ok(), "the page of the error itself");
        r.redirects_left += 1;
        assert!(check_header(&mut r).is_err(), "behind a redirect");
        r.fail_again();
        assert!(matches!(checked(&mut r, Flow::Ok), Flow::Status(500)));
        let regex = Regex::new(b"a", RegexOptions::default()).unwrap();
        assert_eq!(r.judge_match(Ok(true), &regex, b"a"), Ok(true));
        assert!(!r.match_failed());
    }
}
