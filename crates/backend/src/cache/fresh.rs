//! Whether an answer may be kept, and for how long it is fresh: nginx's reading of RFC 9111.

use super::conf::CacheConf;
use weir_base::date::parse_http_time;
use weir_base::units::parse_int;
use weir_cache::entry::VARY_MAX_BYTES;
use weir_wire::http1::names::ResponseHeaderId as Id;
use weir_wire::http1::response::ResponseHead;

/// Fields that are not listened to.
#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct Ignored {
    pub(crate) accel_expires: bool,
    pub(crate) expires: bool,
    pub(crate) cache_control: bool,
    pub(crate) set_cookie: bool,
    pub(crate) vary: bool,
}

/// What an answer's head says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Fresh {
    /// Until when, in Unix seconds; 0: it does not say.
    pub(crate) valid_sec: i64,
    pub(crate) updating_sec: i64,
    pub(crate) error_sec: i64,
    pub(crate) cacheable: bool,
    pub(crate) vary: Vec<u8>,
    /// Fields that are not kept with it.
    pub(crate) unkept: Vec<Vec<u8>>,
    pub(super) no_cache: bool,
    pub(super) expired: bool,
    pub(super) accel: bool,
}

impl Fresh {
    pub(crate) fn of(head: &ResponseHead, bytes: &[u8], ignored: Ignored, now: i64) -> Fresh {
        let mut fresh = Fresh { cacheable: true, ..Fresh::default() };
        for f in head.headers.iter().filter(|f| !f.repeated) {
            let value = f.value.of(bytes);
            match f.id {
                Id::XAccelExpires => {
                    fresh.accel = true;
                    if !ignored.accel_expires {
                        fresh.accel_expires(value, now);
                    }
                }
                Id::CacheControl if !ignored.cache_control => fresh.cache_control(value, now),
                Id::Expires if !ignored.expires && fresh.valid_sec == 0 => {
                    match parse_http_time(value).filter(|t| *t >= now) {
                        Some(t) => fresh.valid_sec = t,
                        None => fresh.expired = true,
                    }
                }
                Id::SetCookie if !ignored.set_cookie => fresh.cacheable = false,
                Id::Vary if !ignored.vary => fresh.vary(value),
                _ => {}
            }
        }
        if fresh.no_cache || fresh.expired || head.head_len == 0 {
            fresh.cacheable = false;
        }
        fresh
    }

    /// Until when it is fresh, the configuration asked where it does not say itself; 0: not at all.
    pub(crate) fn until(&self, conf: &CacheConf, status: u16, now: i64) -> i64 {
        match (self.valid_sec, conf.valid_secs(status)) {
            (0, 0) => 0,
            (0, secs) => now.saturating_add(secs),
            (until, _) => until,
        }
    }

    fn accel_expires(&mut self, value: &[u8], now: i64) {
        let number = |text: &[u8]| parse_int(text).and_then(|n| i64::try_from(n).ok());
        let until = match value.strip_prefix(b"@") {
            Some(at) => number(at),
            None => match number(value) {
                Some(0) => {
                    self.cacheable = false;
                    None
                }
                secs => secs.map(|n| now.saturating_add(n)),
            },
        };
        if let Some(until) = until {
            self.valid_sec = until;
            self.no_cache = false;
            self.expired = false;
        }
    }

    fn cache_control(&mut self, value: &[u8], now: i64) {
        let find = |word: &[u8]| weir_base::bytes::find_ignore_case(value, word);
        // X-Accel-Expires counts for more.
        if !(self.valid_sec != 0 && self.accel) {
            if [&b"no-cache"[..], b"no-store", b"private"].iter().any(|w| find(w).is_some()) {
                self.no_cache = true;
                return;
            }
            let at = find(b"s-maxage=").map(|i| i + 9).or(find(b"max-age=").map(|i| i + 8));
            match at.map(|at| delta_seconds(&value[at..])) {
                Some(None) => {
                    self.cacheable = false;
                    return;
                }
                Some(Some(0)) => {
                    self.no_cache = true;
                    return;
                }
                Some(Some(secs)) => {
                    self.valid_sec = now.saturating_add(secs);
                    self.expired = false;
                }
                None => {}
            }
        }
        if let Some(at) = find(b"stale-while-revalidate=") {
            let Some(secs) = delta_seconds(&value[at + 23..]) else {
                self.cacheable = false;
                return;
            };
            self.updating_sec = secs;
            self.error_sec = secs;
        }
        if let Some(at) = find(b"stale-if-error=") {
            match delta_seconds(&value[at + 15..]) {
                Some(secs) => self.error_sec = secs,
                None => self.cacheable = false,
            }
        }
    }

    fn vary(&mut self, value: &[u8]) {
        if value == b"*" {
            self.cacheable = false;
            return;
        }
        if !self.vary.is_empty() {
            self.vary.extend_from_slice(b", ");
        }
        self.vary.extend_from_slice(value);
        if self.vary.len() > VARY_MAX_BYTES {
            self.cacheable = false;
        }
    }
}

/// Seconds up to a comma, semicolon or space; what does not fit is forever.
fn delta_seconds(text: &[u8]) -> Option<i64> {
    let digits = text.split(|b| matches!(b, b',' | b';' | b' ')).next().unwrap_or_default();
    let mut n = 0i64;
    for b in digits {
        if !b.is_ascii_digit() {
            return None;
        }
        n = n.saturating_mul(10).saturating_add(i64::from(b - b'0'));
    }
    Some(n)
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_wire::http1::response::ResponseParser;

    const NOW: i64 = 1_000_000_000;

    fn of(fields: &str) -> Fresh {
        let text = format!("HTTP/1.1 200 OK\r\n{fields}\r\n\r\n");
        let mut head = ResponseHead::default();
        ResponseParser::new().parse(text.as_bytes(), 4096, &mut head).unwrap();
        Fresh::of(&head, text.as_bytes(), Ignored::default(), NOW)
    }

    #[test]
    fn what_heads_say() {
        for (fields, cacheable, until) in [
            ("Cache-Control: max-age=60", true, NOW + 60),
            ("Cache-Control: max-age=60, s-maxage=10", true, NOW + 10),
            ("Cache-Control: max-age=9223372036854775808", true, i64::MAX),
            ("Cache-Control: max-age=x", false, 0),
            ("Cache-Control: no-cache\r\nX-Accel-Expires: 5", true, NOW + 5),
            ("X-Accel-Expires: 5\r\nCache-Control: no-cache", true, NOW + 5),
            ("X-Accel-Expires: 0\r\nCache-Control: max-age=60", false, NOW + 60),
            ("X-Accel-Expires: @60", true, 60),
            ("Expires: Thu, 01 Jan 1970 00:00:01 GMT\r\nCache-Control: max-age=9", true, NOW + 9),
            ("Cache-Control: max-age=9\r\nSet-Cookie: a", false, NOW + 9),
            ("Vary: *", false, 0),
            ("X: y", true, 0),
        ] {
            let fresh = of(fields);
            assert_eq!((fresh.cacheable, fresh.valid_sec), (cacheable, until), "{fields}");
        }
        let fresh = of("Cache-Control: max-age=1, stale-while-revalidate=7, stale-if-error=3");
        assert_eq!((fresh.updating_sec, fresh.error_sec), (7, 3));
        assert_eq!(of("Vary: a\r\nVary: b").vary, b"a, b");
    }
}
