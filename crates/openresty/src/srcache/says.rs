//! What `Cache-Control`, `Pragma` and `Expires` say.

use super::SrcacheLoc;
use weir_base::date::parse_http_time;
use weir_base::units::parse_int;
use weir_http::Request;
use weir_runtime::clock;

/// The directives of lists such as `Cache-Control`, with what follows `=`.
fn directives(value: &[u8]) -> impl Iterator<Item = (&[u8], &[u8])> {
    value.split(|b| *b == b',').map(|item| {
        let item = item.trim_ascii();
        let at = item.iter().position(|b| *b == b'=');
        match at {
            Some(at) => (item[..at].trim_ascii(), item[at + 1..].trim_ascii()),
            None => (item, &b""[..]),
        }
    })
}

fn has(value: &[u8], name: &[u8]) -> bool {
    directives(value).any(|(n, _)| n.eq_ignore_ascii_case(name))
}

/// Whether a request wants nothing that is kept, and nothing to be kept.
pub(super) fn request(r: &Request) -> (bool, bool) {
    let mut said = (false, false);
    for (name, value) in r.headers() {
        if name.eq_ignore_ascii_case(b"Cache-Control") {
            said.0 |= has(value, b"no-cache");
            said.1 |= has(value, b"no-store");
        } else if name.eq_ignore_ascii_case(b"Pragma") {
            said.0 |= has(value, b"no-cache");
        }
    }
    said
}

fn all<'r>(r: &'r Request, name: &'static [u8]) -> impl Iterator<Item = &'r [u8]> {
    r.out.iter().filter(move |(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, value)| value)
}

fn max_age(r: &Request) -> Option<u64> {
    let mut ages = all(r, b"Cache-Control").flat_map(directives);
    let age = ages.find(|(name, _)| name.eq_ignore_ascii_case(b"max-age"))?;
    parse_int(age.1)
}

/// Whether an answer says that it is not to be kept.
pub(super) fn forbids(r: &Request, conf: &SrcacheLoc) -> bool {
    let forbidden = [
        (&b"private"[..], *conf.store_private),
        (b"no-store", *conf.store_no_store),
        (b"no-cache", *conf.store_no_cache),
    ];
    let says = |name: &[u8]| all(r, b"Cache-Control").any(|value| has(value, name));
    if forbidden.iter().any(|(name, even_so)| !even_so && says(name)) || max_age(r) == Some(0) {
        return true;
    }
    let now = clock::wall_secs();
    all(r, b"Expires").any(|value| parse_http_time(value).is_none_or(|time| time <= now))
}

/// For how long an answer says that it is good.
pub(super) fn expire_secs(r: &Request) -> Option<u64> {
    max_age(r).or_else(|| {
        let time = all(r, b"Expires").find_map(parse_http_time)?;
        Some(u64::try_from(time - clock::wall_secs()).unwrap_or(0))
    })
}
