//! `…_cache_standard on`: a shared cache as the standards have it (RFC 9111; stale answers by RFC 5861,
//! `CDN-Cache-Control` by RFC 9213, `Cache-Status` by RFC 9211), in the place of nginx's reading of them.
//!
//! Role: what heads and requests say ([`says`], [`judge`]), what of a head is kept ([`head`]), parts of answers
//! ([`parts`]), and what a request has to do with it all ([`Notes`]). The cache asks here at four turns: may this stored answer be used, may that
//! answer be kept, what does a 304 change, what is the client told. It asks nothing where the directive is off.
//!
//! Differences from the standards: answers that set cookies are kept only if `…_ignore_headers` says so;
//! `X-Accel-Expires` goes before all; other URIs that an unsafe method's answer names stay as they are.

mod dictionary;
pub(crate) mod head;
mod judge;
pub(crate) mod parts;
mod says;

use super::fresh::{Fresh, Ignored};
use says::Asks;
use std::sync::Arc;
use weir_base::bytes::fmt_u64;
use weir_cache::{Key, Store, Stored};
use weir_http::Request;
use weir_runtime::clock;
use weir_wire::http1::names::ResponseHeaderId as Id;
use weir_wire::http1::request::Method;

/// What `Cache-Status` calls this cache.
const NAME: &[u8] = b"Weir";

/// What a request has to do with a cache by the standards; kept with it to its end.
#[derive(Default)]
pub(crate) struct Notes {
    asks: Asks,
    /// Why its server is asked.
    forward: Option<&'static str>,
    /// Nothing stale will do, whatever its server says.
    insists: bool,
    /// It has waited for what another request had asked for.
    collapsed: bool,
    /// What is no longer true once its server has done what it asks.
    changes: Option<(Arc<Store>, Vec<u8>)>,
}

fn note(r: &mut Request, change: impl FnOnce(&mut Notes)) {
    if let Some(notes) = r.kept::<Notes>() {
        return change(notes);
    }
    let mut notes = Notes::default();
    change(&mut notes);
    r.keep_state(notes);
}

/// Hears what a request says, before an answer is looked for.
pub(crate) fn hear(r: &mut Request) {
    let (mut asks, mut pragma, mut has_control) = (Asks::default(), false, false);
    for (name, value) in r.headers() {
        if name.eq_ignore_ascii_case(b"Cache-Control") {
            has_control = true;
            asks.hear(value);
        } else if name.eq_ignore_ascii_case(b"Pragma") {
            pragma |= says::items(value).iter().any(|(n, _)| n.eq_ignore_ascii_case(b"no-cache"));
        }
    }
    asks.no_cache |= pragma && !has_control;
    r.keep_state(Notes { asks, ..Notes::default() });
}

/// Says why a server is asked.
pub(crate) fn forwards(r: &mut Request, why: &'static str) {
    note(r, |notes| notes.forward = notes.forward.or(Some(why)));
}

/// It has waited for another request's answer.
pub(crate) fn collapses(r: &mut Request) {
    note(r, |notes| {
        notes.collapsed = true;
        notes.forward = None;
    });
}

/// Its client has said that a server is to be asked.
pub(crate) fn insists(r: &mut Request) -> bool {
    r.kept::<Notes>().is_some_and(|notes| notes.insists)
}

/// Only what is kept will do.
pub(crate) fn wants_kept_only(r: &mut Request) -> bool {
    r.kept::<Notes>().is_some_and(|notes| notes.asks.only_if_cached)
}

/// Nothing of the answer is to be kept.
pub(crate) fn wants_nothing_kept(r: &mut Request) -> bool {
    r.kept::<Notes>().is_some_and(|notes| notes.asks.no_store)
}

/// How a request and what is kept go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Use,
    /// Stale, and to be renewed behind it.
    UseAndRenew,
    /// Its server is to be asked whether it still holds.
    Ask,
}

/// When its server was asked, at the latest: what the way takes counts as age.
pub(crate) fn asked_sec(r: &Request, now: i64) -> i64 {
    now.saturating_sub(i64::try_from(r.elapsed_ms() / 1000).unwrap_or(i64::MAX))
}

/// What the answer's head says about keeping it.
pub(crate) fn judged(r: &mut Request, ignored: Ignored, now: i64) -> Fresh {
    let asks = r.kept::<Notes>().map(|notes| notes.asks.clone()).unwrap_or_default();
    judge::judge(r, &asks, ignored, asked_sec(r, now), now)
}

/// How old a kept answer is.
fn age_secs(stored: &Stored, now: i64) -> i64 {
    let asked = stored.meta.date;
    judge::initial_age_secs(&stored.head, asked).saturating_add(now.saturating_sub(asked)).max(0)
}

/// Whether a kept answer may be used for a request (RFC 9111, section 4).
pub(crate) fn verdict(r: &mut Request, stored: &Stored, now: i64) -> Verdict {
    let asks = r.kept::<Notes>().map(|notes| notes.asks.clone()).unwrap_or_default();
    let secs = |n: u64| i64::try_from(n).unwrap_or(i64::MAX);
    let age = age_secs(stored, now);
    let fresh_for = stored.meta.valid_sec.saturating_sub(now);
    let too_old = asks.max_age_secs.is_some_and(|n| age > secs(n));
    let too_soon = asks.min_fresh_secs.is_some_and(|n| fresh_for < secs(n));
    if asks.no_cache || too_old || too_soon && fresh_for >= 0 {
        note(r, |notes| notes.insists = true);
        forwards(r, "request");
        return Verdict::Ask;
    }
    if fresh_for >= 0 {
        return Verdict::Use;
    }
    let may_be_stale = stored.meta.error_sec >= 0 || stored.meta.updating_sec > 0;
    if may_be_stale && asks.max_stale_secs.is_some_and(|n| -fresh_for <= secs(n)) {
        return Verdict::Use;
    }
    if stored.meta.stale_updating(now) && !too_soon {
        return if asks.no_store { Verdict::Use } else { Verdict::UseAndRenew };
    }
    forwards(r, "stale");
    Verdict::Ask
}

/// Whether a stale answer will do where its server has failed; `configured`: so the configuration says.
pub(crate) fn may_fail(r: &mut Request, stored: &Stored, now: i64, configured: bool) -> bool {
    let (asks, insists) =
        r.kept::<Notes>().map(|notes| (notes.asks.clone(), notes.insists)).unwrap_or_default();
    let stale_for = now.saturating_sub(stored.meta.valid_sec);
    let asked_for = |n: u64| stale_for <= i64::try_from(n).unwrap_or(i64::MAX);
    let allowed = stored.meta.error_sec >= 0;
    let by_asking = configured || asks.if_error_secs.is_some_and(asked_for);
    !insists && (stored.meta.stale_error(now) || allowed && by_asking)
}

/// A method that is not safe: what is kept of its URI may be untrue behind it.
pub(crate) fn may_change(r: &mut Request, store: Arc<Store>, key_text: Vec<u8>) {
    let is_safe = matches!(
        r.method,
        Method::Get | Method::Head | Method::Options | Method::Trace | Method::Propfind
    );
    if !is_safe {
        note(r, |notes| notes.changes = Some((store, key_text)));
    }
}

/// Adds `Age` and `Cache-Status` to an answer that was kept. `confirmed`: just now, by its server.
pub(crate) fn tell_of_kept(r: &mut Request, stored: &Stored, confirmed: bool) {
    let now = clock::wall_secs();
    let mut age = Vec::with_capacity(10);
    fmt_u64(&mut age, u64::try_from(age_secs(stored, now)).unwrap_or(0));
    r.out.set(b"Age", &age);
    let date = head::value_of(&stored.head, b"Date");
    pass_date(r, date.map(<[u8]>::to_vec));
    if confirmed {
        return tell(r, Some(304), true);
    }
    if r.kept::<Notes>().is_some_and(|notes| notes.forward.is_some()) {
        // Its server has failed.
        return tell(r, None, false);
    }
    let ttl = stored.meta.valid_sec.saturating_sub(now);
    let collapsed = r.kept::<Notes>().is_some_and(|n| n.collapsed);
    let collapsed = if collapsed { "; collapsed" } else { "" };
    let text = format!("; hit; ttl={ttl}{collapsed}");
    r.out.add(b"Cache-Status", &[NAME, text.as_bytes()].concat());
}

/// Adds `Cache-Status` to an answer that a server has made, and forgets what that has changed.
pub(crate) fn tell_of_passed(r: &mut Request, status: u16, stored: bool) {
    let changes = r.kept::<Notes>().and_then(|notes| notes.changes.take());
    if let Some((store, key_text)) = changes.filter(|_| (200..400).contains(&status)) {
        forget(store, key_text);
    }
    let date = r.exchange.head.value(Id::Date, r.exchange.head_bytes()).map(<[u8]>::to_vec);
    pass_date(r, date);
    tell(r, Some(status), stored);
}

/// An answer is as old as it is: its date is not this server's.
fn pass_date(r: &mut Request, date: Option<Vec<u8>>) {
    if let Some(date) = date {
        r.out.has_date = true;
        r.out.set(b"Date", &date);
    }
}

fn tell(r: &mut Request, status: Option<u16>, stored: bool) {
    let (why, collapsed) = match r.kept::<Notes>() {
        Some(notes) => (notes.forward.unwrap_or("miss"), notes.collapsed),
        None => return,
    };
    let mut text = format!("; fwd={why}");
    if let Some(status) = status {
        text.push_str(&format!("; fwd-status={status}"));
    }
    if stored {
        text.push_str("; stored");
    }
    if collapsed {
        text.push_str("; collapsed");
    }
    r.out.add(b"Cache-Status", &[NAME, text.as_bytes()].concat());
}

/// What is kept of a URI that was changed is removed, and what is on its way is not kept.
fn forget(store: Arc<Store>, key_text: Vec<u8>) {
    store.fills.purge(|text| text == key_text);
    let key = Key::of(&key_text);
    let varies = store.varies(&key);
    store.purge(&key);
    if varies {
        store.forget(&key_text);
    }
}
