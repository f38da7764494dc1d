//! Whether an answer may be kept, for whom, and for how long (RFC 9111, sections 3 and 4.2).

use super::head::value_of;
use super::says::{Asks, Says};
use crate::cache::fresh::{Fresh, Ignored};
use weir_base::date::parse_http_time;
use weir_base::units::parse_int;
use weir_cache::entry::VARY_MAX_BYTES;
use weir_http::Request;
use weir_wire::http1::names::{HeaderId, ResponseHeaderId as Id};
use weir_wire::http1::response::ResponseHead;

/// Whose meaning is known here, for `must-understand`.
const UNDERSTOOD: [u16; 17] =
    [200, 203, 204, 300, 301, 302, 303, 307, 308, 400, 403, 404, 405, 410, 414, 421, 501];

/// Marks an answer that is never used when it is stale; as how long it may be.
const NEVER_SEC: i64 = -1;

/// Times and directives of a head.
#[derive(Default)]
struct Head<'a> {
    says: Says,
    expires: Option<&'a [u8]>,
    date_sec: Option<i64>,
    age_sec: i64,
    has_validator: bool,
    sets_cookie: bool,
    vary: Vec<Vec<u8>>,
}

impl<'a> Head<'a> {
    fn of(head: &ResponseHead, bytes: &'a [u8], ignored: Ignored) -> Head<'a> {
        let mut all = Head::default();
        let mut targeted: Vec<&[u8]> = Vec::new();
        for f in head.headers.iter().filter(|f| !f.repeated) {
            let (name, value) = (f.name.of(bytes), f.value.of(bytes));
            match f.id {
                Id::CacheControl if !ignored.cache_control => all.says.hear(value),
                Id::Expires if !ignored.expires => all.expires = Some(value),
                Id::Date => all.date_sec = parse_http_time(value),
                Id::ETag | Id::LastModified => all.has_validator |= !value.is_empty(),
                Id::SetCookie => all.sets_cookie |= !ignored.set_cookie,
                Id::Vary if !ignored.vary => {
                    let names = value.split(|b| matches!(b, b',' | b' ' | b'\t'));
                    all.vary
                        .extend(names.filter(|n| !n.is_empty()).map(<[u8]>::to_ascii_lowercase));
                }
                _ if name.eq_ignore_ascii_case(b"Age") => all.age_sec = age_of(value),
                _ if name.eq_ignore_ascii_case(b"CDN-Cache-Control") && !ignored.cache_control => {
                    targeted.push(value.trim_ascii());
                }
                _ => {}
            }
        }
        // One for caches like this one takes the place of what all are told.
        let targeted = targeted.join(&b", "[..]);
        match Says::targeted(&targeted) {
            Some(says) => {
                all.says = says;
                all.expires = None;
            }
            // It does not count, but what it might forbid is not done.
            None => all.says.find_forbidden(&targeted),
        }
        all.vary.sort();
        all.vary.dedup();
        all
    }

    /// How long it is fresh from when its server made it, if it says.
    fn lifetime_secs(&self, now: i64) -> Option<i64> {
        let said = self.says.s_maxage_secs.or(self.says.max_age_secs);
        if let Some(secs) = said {
            return i64::try_from(secs).ok();
        }
        let expires = self.expires?;
        // What is no date has passed.
        let until = parse_http_time(expires).unwrap_or(0);
        Some(until.saturating_sub(self.date_sec.unwrap_or(now)).max(0))
    }
}

fn age_of(value: &[u8]) -> i64 {
    let first = value.split(|b| *b == b',').next().unwrap_or_default().trim_ascii();
    parse_int(first).and_then(|n| i64::try_from(n).ok()).unwrap_or(0).min(i64::from(i32::MAX))
}

/// How old a kept answer was when it was asked for (section 4.2.3), which stands for when it came: what
/// the way took counts as age.
pub(super) fn initial_age_secs(head: &[u8], asked_sec: i64) -> i64 {
    let date_sec = value_of(head, b"Date").and_then(parse_http_time);
    initial_age(date_sec, value_of(head, b"Age").map_or(0, age_of), asked_sec)
}

fn initial_age(date_sec: Option<i64>, age_sec: i64, asked_sec: i64) -> i64 {
    let apparent = date_sec.map_or(0, |date| asked_sec.saturating_sub(date));
    apparent.max(age_sec).max(0)
}

/// What the answer's head says about keeping it. `asked_sec`: when its server was asked.
pub(super) fn judge(r: &Request, asks: &Asks, ignored: Ignored, asked_sec: i64, now: i64) -> Fresh {
    let (head, bytes) = (&r.exchange.head, r.exchange.head_bytes());
    if head.has(Id::XAccelExpires) && !ignored.accel_expires {
        // This server's own way to be told goes before all standards.
        return Fresh::of(head, bytes, ignored, now);
    }
    let status = head.status;
    let all = Head::of(head, bytes, ignored);
    let is_authorized = r.header(HeaderId::Authorization).is_some();
    let mut fresh =
        Fresh { cacheable: may_keep(&all, asks, status, is_authorized), ..Fresh::default() };
    fresh.cacheable &= head.head_len > 0;
    fresh.vary = all.vary.join(&b", "[..]);
    fresh.cacheable &= fresh.vary.len() <= VARY_MAX_BYTES && !all.vary.iter().any(|n| n == b"*");
    fresh.unkept = [&all.says.no_cache.fields[..], &all.says.private.fields].concat();
    if let Some(secs) = all.lifetime_secs(now) {
        let until = asked_sec.saturating_add(secs).saturating_sub(initial_age(
            all.date_sec,
            all.age_sec,
            asked_sec,
        ));
        // Zero would be as if it had said nothing.
        fresh.valid_sec = until.max(1);
    }
    if all.says.no_cache.whole {
        fresh.valid_sec = now - 1;
    }
    if fresh.valid_sec != 0 && fresh.valid_sec <= now && !all.has_validator {
        // Good for nothing but to be asked about.
        let serves_stale = all.says.while_revalidate_secs.or(all.says.if_error_secs).is_some();
        fresh.cacheable &= serves_stale && !all.says.no_cache.whole;
    }
    stale(&all.says, &mut fresh);
    fresh
}

fn may_keep(head: &Head, asks: &Asks, status: u16, is_authorized: bool) -> bool {
    let says = &head.says;
    let understood = UNDERSTOOD.contains(&status);
    let forbidden = match says.must_understand {
        true => !understood,
        false => says.no_store,
    };
    let for_all = says.public || says.must_revalidate || says.s_maxage_secs.is_some();
    !(forbidden
        || says.private.whole
        || asks.no_store
        || head.sets_cookie
        || is_authorized && !for_all)
}

/// For how long it may be used when it is stale (RFC 5861).
fn stale(says: &Says, fresh: &mut Fresh) {
    let or_never = |secs: Option<u64>, never: bool| match secs {
        Some(secs) if !says.must_revalidate && !says.no_cache.whole => {
            i64::try_from(secs).unwrap_or(i64::MAX)
        }
        _ if never => NEVER_SEC,
        _ => 0,
    };
    let never = says.must_revalidate || says.no_cache.whole || says.s_maxage_secs.is_some();
    fresh.updating_sec = or_never(says.while_revalidate_secs, never);
    fresh.error_sec = or_never(says.if_error_secs, never);
}
