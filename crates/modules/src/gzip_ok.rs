//! Whether a client may be sent a compressed answer: `Accept-Encoding`, `gzip_http_version`,
//! `gzip_proxied`, `gzip_disable`. Used by `gzip` and `gzip_static`.

use std::rc::Rc;
use std::sync::Arc;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::marks::Mark;
use weir_http::module::HttpModule;
use weir_http::vars::named_regex;
use weir_http::Request;
use weir_module::{
    merge_values, slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row,
    SlotVtable, Val,
};
use weir_script::regex::Regex;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Version;

const OFF: u32 = 1;
const EXPIRED: u32 = 1 << 1;
const NO_CACHE: u32 = 1 << 2;
const NO_STORE: u32 = 1 << 3;
const PRIVATE: u32 = 1 << 4;
const NO_LAST_MODIFIED: u32 = 1 << 5;
const NO_ETAG: u32 = 1 << 6;
const AUTH: u32 = 1 << 7;
const ANY: u32 = 1 << 8;

#[derive(Clone, Default)]
struct Disable {
    msie6: bool,
    regexes: Vec<Arc<Regex>>,
}

#[derive(Default)]
pub struct Conf {
    http_version: Val<Version>,
    proxied: Val<u32>,
    disable: Val<Arc<Disable>>,
}

impl ConfType for Conf {
    const LEVEL: Level = Level::Location;
    slot!();
    fn merge(&mut self, parent: &Conf) -> ConfResult {
        merge_values!(self, parent;
            http_version = Version::HTTP_11,
            proxied = OFF,
            disable = Arc::default(),
        );
        Ok(())
    }
}

pub const MODULE: HttpModule = HttpModule {
    rows: &[
        Row::new(
            "gzip_http_version",
            Context::HSL,
            Arity::ONE,
            "1.1",
            "Least HTTP version to compress for.",
            |cf, d| {
                let v = d.choice(0, &[("1.0", Version::HTTP_10), ("1.1", Version::HTTP_11)])?;
                cf.get::<Conf>().http_version.once(d, v)
            },
        ),
        Row::new(
            "gzip_proxied",
            Context::HSL,
            Arity::ONE_MORE,
            "off",
            "Which answers to proxied requests are compressed.",
            |cf, d| {
                const WORDS: [(&str, u32); 9] = [
                    ("off", OFF),
                    ("expired", EXPIRED),
                    ("no-cache", NO_CACHE),
                    ("no-store", NO_STORE),
                    ("private", PRIVATE),
                    ("no_last_modified", NO_LAST_MODIFIED),
                    ("no_etag", NO_ETAG),
                    ("auth", AUTH),
                    ("any", ANY),
                ];
                let mut bits = cf.get::<Conf>().proxied.as_option().copied().unwrap_or(0);
                for i in 0..d.args.len() {
                    let bit = d.choice(i, &WORDS)?;
                    if bits & bit != 0 {
                        cf.warn_duplicate_value(d, i);
                    }
                    bits |= bit;
                }
                cf.get::<Conf>().proxied.set(bits);
                Ok(())
            },
        ),
        Row::new(
            "gzip_disable",
            Context::HSL,
            Arity::ONE_MORE,
            "",
            "User-Agents that get no compressed answers.",
            set_disable,
        ),
    ],
    slots: &[SlotVtable::of::<Conf>()],
    ..HttpModule::EMPTY
};

fn set_disable(cf: &mut Cf, d: &Directive) -> ConfResult {
    let known = cf.get::<Conf>().disable.as_option();
    let mut list = known.map(|known| Disable::clone(known)).unwrap_or_default();
    for i in 0..d.args.len() {
        if d.arg(i) == b"msie6" {
            list.msie6 = true;
            continue;
        }
        let pattern = d.arg(i).to_vec();
        let (regex, _) = named_regex(cf, d, i, &pattern, true)?;
        list.regexes.push(regex);
    }
    cf.get::<Conf>().disable.set(Arc::new(list));
    Ok(())
}

/// Decided once per request.
pub fn gzip_ok(r: &mut Request) -> bool {
    static TESTED: Mark = Mark::new();
    static OK: Mark = Mark::new();
    if !r.has_mark(&TESTED) {
        r.mark(&TESTED);
        if decide(r) {
            r.mark(&OK);
        }
    }
    r.has_mark(&OK)
}

fn decide(r: &mut Request) -> bool {
    // What becomes part of another answer must be plain.
    if r.is_part() {
        return false;
    }
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<Conf>();
    let Some(accepted) = r.header(HeaderId::AcceptEncoding) else { return false };
    let plain = accepted.starts_with(b"gzip,") || accepted == b"gzip";
    if !plain && !accepts_gzip(accepted) {
        return false;
    }
    if r.version() < *conf.http_version {
        return false;
    }
    if r.header(HeaderId::Via).is_some() && !proxied(r, *conf.proxied) {
        return false;
    }
    if let Some(agent) = r.header(HeaderId::UserAgent) {
        if conf.disable.msie6 && is_msie6(agent) {
            return false;
        }
        let disables = |x: &Arc<Regex>| match x.is_match(agent) {
            Ok(hit) => hit,
            // Who knows whether it can read it gets it plain, as from nginx.
            Err(e) => {
                r.log(LogLevel::Alert, &e.to_string());
                true
            }
        };
        if conf.disable.regexes.iter().any(disables) {
            return false;
        }
    }
    true
}

fn is_msie6(agent: &[u8]) -> bool {
    let Some(at) = memchr::memmem::find(agent, b"MSIE ") else { return false };
    match agent.get(at + 5) {
        Some(b'4' | b'5') => true,
        Some(b'6') => memchr::memmem::find(&agent[at..], b"SV1").is_none(),
        _ => false,
    }
}

/// `gzip` with a quality above zero; RFC 9110 section 12.5.3. As in nginx `*` is not enough.
fn accepts_gzip(value: &[u8]) -> bool {
    for item in value.split(|b| *b == b',') {
        let mut parts = item.split(|b| *b == b';');
        let name = parts.next().unwrap_or_default().trim_ascii();
        let zero = parts.any(|p| {
            let p = p.trim_ascii();
            let q = p.strip_prefix(b"q=").or_else(|| p.strip_prefix(b"Q="));
            q.is_some_and(|q| !q.is_empty() && q.iter().all(|b| matches!(b, b'0' | b'.')))
        });
        if name.eq_ignore_ascii_case(b"gzip") {
            return !zero;
        }
    }
    false
}

/// nginx's rules for requests that came through a proxy.
fn proxied(r: &mut Request, p: u32) -> bool {
    if p & OFF != 0 {
        return false;
    }
    if p & ANY != 0 {
        return true;
    }
    if r.header(HeaderId::Authorization).is_some() && p & AUTH != 0 {
        return true;
    }
    if let Some(expires) = r.out.get(b"Expires") {
        if p & EXPIRED == 0 {
            return false;
        }
        let now = weir_runtime::clock::wall_secs();
        return weir_base::date::parse_http_time(expires).is_some_and(|t| t < now);
    }
    if let Some(cc) = r.out.get(b"Cache-Control") {
        let has = |word: &[u8]| weir_base::bytes::find_ignore_case(cc, word).is_some();
        return p & NO_CACHE != 0 && has(b"no-cache")
            || p & NO_STORE != 0 && has(b"no-store")
            || p & PRIVATE != 0 && has(b"private");
    }
    if p & NO_LAST_MODIFIED != 0 && r.out.changed().is_none() {
        return true;
    }
    p & NO_ETAG != 0 && r.out.get(b"ETag").is_none()
}
