//! `session_sticky` (Tengine's): a client's server is known by a cookie that is inserted into answers, put before
//! the value of a cookie of the server's, or in its place.

use std::sync::Arc;
use weir_base::bytes::{fmt_u64, split_once, trim_ows};
use weir_base::{date, units};
use weir_core::Session as _;
use weir_http::Request;
use weir_module::{merge_values, slot, ConfResult, ConfType, Level, Val};
use weir_runtime::clock;
use weir_script::template::Template;
use weir_upstream::{sid, Lease};

/// Between a server and the times, in a cookie that has them.
const BETWEEN: u8 = b'|';
/// Between a server and the value of its own cookie.
const BEHIND_PREFIX: u8 = b'~';

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Mode {
    Insert,
    Prefix,
    Rewrite,
}

/// The directive.
#[derive(Clone)]
pub(super) struct SessionSticky {
    pub upstream: Vec<u8>,
    pub lookup: Template,
    pub name: Vec<u8>,
    pub domain: Vec<u8>,
    pub path: Vec<u8>,
    pub maxage_secs: Option<u64>,
    pub maxidle_secs: Option<u64>,
    pub maxlife_secs: Option<u64>,
    pub mode: Mode,
    /// Servers do not see the cookie.
    pub indirect: bool,
    /// Another server does too, where the client's own cannot.
    pub fallback: bool,
    /// The cookie has the server's address as it is.
    pub plain: bool,
}

/// `session_sticky_hide_cookie`
#[derive(Default)]
pub(super) struct HideLoc {
    pub upstream: Val<Option<Arc<Vec<u8>>>>,
}

impl ConfType for HideLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &HideLoc) -> ConfResult {
        merge_values!(self, parent; upstream = None);
        Ok(())
    }
}

impl SessionSticky {
    fn hides(&self, r: &Request) -> bool {
        let named = r.loc().conf::<HideLoc>().upstream.as_ref();
        named.is_some_and(|upstream| **upstream == self.upstream)
    }

    /// The server that the client names, and since when (seconds since 1970) it is known; takes the cookie
    /// out of what is passed on, where that is so configured.
    pub(super) fn client(&self, r: &mut Request) -> (Vec<u8>, u64) {
        let value = r.eval(&self.lookup);
        if value.is_empty() {
            return Default::default();
        }
        let now = u64::try_from(clock::wall_secs()).unwrap_or(0);
        let found = self.read(&value, now);
        let own = self.mode != Mode::Rewrite && self.hides(r);
        match self.mode {
            Mode::Prefix if own => {
                let rest = split_once(&value, BEHIND_PREFIX).map(|(_, rest)| rest.to_vec());
                rest.into_iter().for_each(|rest| self.replace_cookie(r, Some(&rest)));
            }
            Mode::Insert if own && self.indirect => self.replace_cookie(r, None),
            _ => {}
        }
        found.unwrap_or_default()
    }

    /// Takes a cookie's value apart.
    fn read(&self, value: &[u8], now: u64) -> Option<(Vec<u8>, u64)> {
        let (id, first) = match (self.mode, self.maxidle_secs) {
            (Mode::Prefix, _) => (split_once(value, BEHIND_PREFIX)?.0, 0),
            (Mode::Insert, Some(idle)) => {
                let (id, times) = split_once(value, BETWEEN)?;
                let (last, first) = split_once(times, BETWEEN)?;
                let (last, first) = (units::parse_int(last)?, units::parse_int(first)?);
                let life = self.maxlife_secs.unwrap_or(u64::MAX);
                let is_known = last <= now && first <= now && now - last <= idle;
                (is_known && now - first <= life).then_some((id, first))?
            }
            _ => (value, 0),
        };
        let id = if self.plain { sid(b"", id).to_vec() } else { id.to_vec() };
        Some((id, first))
    }

    /// Gives the client's cookie another value on its way to the server, or takes it away.
    fn replace_cookie(&self, r: &mut Request, value: Option<&[u8]>) {
        let fields = r.headers().filter(|(name, _)| name.eq_ignore_ascii_case(b"Cookie"));
        let mut pairs: Vec<Vec<u8>> = Vec::new();
        for (_, cookies) in fields {
            for pair in cookies.split(|b| *b == b';') {
                let is_ours = split_once(pair, b'=').is_some_and(|(n, _)| trim_ows(n) == self.name);
                match (is_ours, value) {
                    (false, _) => pairs.push(trim_ows(pair).to_vec()),
                    (true, Some(value)) => pairs.push([&self.name, &b"="[..], value].concat()),
                    (true, None) => {}
                }
            }
        }
        pairs.retain(|pair| !pair.is_empty());
        match pairs.is_empty() {
            true => r.remove_fields_in(|name| name.eq_ignore_ascii_case(b"Cookie")),
            false => drop(r.set_field_in(b"Cookie", &pairs.join(&b"; "[..]), true)),
        }
    }

    /// Whether a server may answer a client that names one.
    pub(super) fn accepts(&self, id: &[u8], lease: &Lease) -> bool {
        self.fallback || id.is_empty() || *lease.config().sid == *id
    }

    /// The answer's fields are there: the client is told of its server.
    pub(super) fn tell(&self, r: &mut Request, id: &[u8], first: u64, lease: &Lease) {
        let needs_hiding = self.mode == Mode::Prefix || self.indirect;
        if r.out.status >= 400 || needs_hiding && self.mode != Mode::Rewrite && !self.hides(r) {
            return;
        }
        let peer = lease.config();
        let server = if self.plain { peer.name.to_vec() } else { peer.sid.to_vec() };
        let is_new = *peer.sid != *id;
        if self.mode == Mode::Insert {
            if is_new || self.maxidle_secs.is_some() {
                let cookie = self.cookie(&server, if is_new { 0 } else { first });
                let unwanted = |value: &[u8]| self.indirect && self.is_ours(value);
                self.change(r, |value| (!unwanted(value)).then(|| value.to_vec()));
                r.out.add(b"Set-Cookie", &cookie);
            }
            return;
        }
        self.change(r, |value| Some(self.marked(value, &server).unwrap_or_else(|| value.to_vec())));
    }

    /// Changes the server's cookies, or takes some away.
    fn change(&self, r: &mut Request, mut f: impl FnMut(&[u8]) -> Option<Vec<u8>>) {
        let all = r.out.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"Set-Cookie"));
        let all: Vec<Vec<u8>> = all.map(|(_, value)| value.to_vec()).collect();
        if all.iter().any(|value| self.is_ours(value)) {
            r.out.remove(b"Set-Cookie");
            for value in all.iter().filter_map(|value| f(value)) {
                r.out.add(b"Set-Cookie", &value);
            }
        }
    }

    fn is_ours(&self, set: &[u8]) -> bool {
        let name = split_once(set, b'=').map(|(name, _)| trim_ows(name));
        name.is_some_and(|name| name.eq_ignore_ascii_case(&self.name))
    }

    /// A server's own cookie with its server in it.
    fn marked(&self, set: &[u8], server: &[u8]) -> Option<Vec<u8>> {
        let (name, rest) = split_once(set, b'=').filter(|_| self.is_ours(set))?;
        let value_len = rest.iter().position(|b| *b == b';').unwrap_or(rest.len());
        let (value, attributes) = rest.split_at(value_len);
        Some(match self.mode {
            Mode::Prefix => [name, b"=", server, &[BEHIND_PREFIX], value, attributes].concat(),
            _ => [name, b"=", server, attributes].concat(),
        })
    }

    fn cookie(&self, server: &[u8], first: u64) -> Vec<u8> {
        let now = u64::try_from(clock::wall_secs()).unwrap_or(0);
        let mut out = [&self.name[..], b"=", server].concat();
        if self.maxidle_secs.is_some() {
            for time in [now, if first == 0 { now } else { first }] {
                out.push(BETWEEN);
                fmt_u64(&mut out, time);
            }
        }
        if !self.domain.is_empty() {
            out.extend_from_slice(b"; Domain=");
            out.extend_from_slice(&self.domain);
        }
        out.extend_from_slice(b"; Path=");
        out.extend_from_slice(&self.path);
        if let Some(secs) = self.maxage_secs.filter(|_| self.maxidle_secs.is_none()) {
            out.extend_from_slice(b"; Max-Age=");
            fmt_u64(&mut out, secs);
            out.extend_from_slice(b"; Expires=");
            let end =
                clock::wall_secs().saturating_add(i64::try_from(secs).unwrap_or(i64::MAX / 2));
            date::cookie_time(&mut out, end);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sticky(mode: Mode, maxidle_secs: Option<u64>) -> SessionSticky {
        SessionSticky {
            upstream: b"u".to_vec(),
            lookup: Template::constant(b""),
            name: b"route".to_vec(),
            domain: Vec::new(),
            path: b"/".to_vec(),
            maxage_secs: None,
            maxidle_secs,
            maxlife_secs: Some(100),
            mode,
            indirect: false,
            fallback: true,
            plain: false,
        }
    }

    #[test]
    fn values_are_read_as_long_as_they_hold() {
        let s = sticky(Mode::Insert, Some(10));
        let known = |value: &str| s.read(value.as_bytes(), 1000).map(|(_, first)| first);
        assert_eq!(known("abc|995|950"), Some(950));
        for bad in ["abc", "abc|995", "abc|989|950", "abc|995|899", "abc|1001|950", "abc|x|950"] {
            assert_eq!(known(bad), None, "{bad}");
        }
        let prefix = sticky(Mode::Prefix, None);
        assert_eq!(prefix.read(b"abc~own~1", 1), Some((b"abc".to_vec(), 0)));
        assert_eq!(prefix.read(b"own", 1), None);
    }

    #[test]
    fn cookies_of_servers_are_marked() {
        let marked = |mode, set: &str| {
            let made = sticky(mode, None).marked(set.as_bytes(), b"SRV");
            made.map(|made| String::from_utf8(made).unwrap())
        };
        assert_eq!(
            marked(Mode::Prefix, "route=1; Path=/x").as_deref(),
            Some("route=SRV~1; Path=/x")
        );
        assert_eq!(
            marked(Mode::Rewrite, "Route=1; Path=/x").as_deref(),
            Some("Route=SRV; Path=/x")
        );
        assert_eq!(marked(Mode::Rewrite, "routes=1"), None);
    }
}
