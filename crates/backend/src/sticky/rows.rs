//! The directive `sticky`, read and built.

use super::sessions::NODE_BYTES;
use super::{is_samesite, Cookie, Expires, Kind, Learn, Sessions, Sticky};
use std::sync::Arc;
use weir_base::units;
use weir_core::figures::{Figures, Report, Served};
use weir_core::zones::{self, Chunks};
use weir_http::vars::template_of;
use weir_http::HttpModule;
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Context, Diagnostic, Directive, Row, Slots};
use weir_script::template::Template;
use weir_upstream::{DeclaredSticky, UpstreamMain};

const ZONE_KIND: &str = "sticky";
const ZONE_MIN_BYTES: u64 = 8 * 4096;
const TIMEOUT_MS: u64 = 600_000;

/// `sticky`, for `upstream` blocks of `http`.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    reports: &[Report { path: "/slabs", put: report }],
    ..HttpModule::EMPTY
};

/// The zones of sessions.
fn report(_: &Served, _: &Slots, figures: &mut Figures) {
    for (name, sessions) in zones::named::<Sessions>(ZONE_KIND) {
        let mut chunks = Chunks::default();
        chunks.add(NODE_BYTES, sessions.len());
        chunks.put(sessions.size_bytes, figures.entry(&name));
    }
}

const ROWS: &[Row] = &[Row::new(
    "sticky",
    Context::UPSTREAM,
    Arity::TWO_MORE,
    "",
    "A client comes to the same server again.",
    |cf, d| {
        let sticky = set(cf, d)?;
        cf.get::<UpstreamMain>().set_sticky(d, Box::new(sticky))
    },
)
.note("the balancing method may also follow it")];

/// `sticky` as read.
struct Declared {
    lookup: Vec<Template>,
    kind: DeclaredKind,
}

enum DeclaredKind {
    Route,
    Cookie(Cookie),
    Learn { create: Vec<Template>, zone: (Vec<u8>, u64), timeout_ms: u64, at_header: bool },
}

impl DeclaredSticky for Declared {
    /// A zone of sessions lives on as long as its upstream has it.
    fn build(&self, upstream: &[u8]) -> ConfResult<weir_upstream::Sticky> {
        let kind = match &self.kind {
            DeclaredKind::Route => Kind::Route,
            DeclaredKind::Cookie(cookie) => Kind::Cookie(Box::new(cookie.clone())),
            DeclaredKind::Learn { create, zone: (name, size), timeout_ms, at_header } => {
                let make = || Sessions::new(name, upstream, *size, *timeout_ms);
                let check = |old: &Sessions| same_upstream(old, name, upstream);
                let sessions = zones::attach(ZONE_KIND, name, *size, check, make)?;
                sessions.set_timeout(*timeout_ms);
                Kind::Learn(Learn { create: create.clone(), at_header: *at_header, sessions })
            }
        };
        Ok(Arc::new(Sticky { lookup: self.lookup.clone(), kind }))
    }
}

fn same_upstream(old: &Sessions, zone: &[u8], upstream: &[u8]) -> ConfResult {
    if old.upstream == upstream {
        return Ok(());
    }
    let shown = String::from_utf8_lossy;
    Err(Diagnostic::emerg(format!(
        "sticky zone \"{}\" is used in upstream \"{}\" while previously it was used in upstream \
         \"{}\"",
        shown(zone),
        shown(upstream),
        shown(&old.upstream)
    )))
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

const COOKIE: &str =
    "write \"sticky cookie NAME\", with expires=, domain=, path=, httponly and secure behind it as they were";

fn unknown(d: &Directive, i: usize) -> Diagnostic {
    d.bad(i, format!("unknown parameter \"{}\"", lossy(d.arg(i))))
}

/// Reads the directive.
fn set(cf: &mut Cf, d: &Directive) -> ConfResult<Declared> {
    match d.arg(0) {
        b"cookie" => cookie(cf, d),
        b"route" => {
            let lookup = (1..d.args.len()).map(|i| match d.arg(i).first() {
                Some(b'$') => variable(cf, d, i, d.arg(i)),
                _ => Err(d.bad(i, format!("invalid variable name \"{}\"", lossy(d.arg(i))))),
            });
            Ok(Declared { lookup: lookup.collect::<ConfResult<_>>()?, kind: DeclaredKind::Route })
        }
        b"learn" => learn(cf, d),
        // Of the module of that name that others make.
        b"no_fallback" | b"secure" | b"httponly" => Err(unknown(d, 0).hint(COOKIE.to_string())),
        other => {
            let names: [&[u8]; 6] =
                [b"name=", b"expires=", b"domain=", b"path=", b"hash=", b"hmac="];
            let is_theirs = names.iter().any(|name| other.starts_with(name));
            Err(unknown(d, 0)).map_err(|e| if is_theirs { e.hint(COOKIE.to_string()) } else { e })
        }
    }
}

/// One variable and nothing else.
fn variable(cf: &mut Cf, d: &Directive, i: usize, text: &[u8]) -> ConfResult<Template> {
    let t = template_of(cf, d, i, text)?;
    match t.single_var() {
        Some(_) => Ok(t),
        None => Err(d.bad(i, format!("unknown \"{}\" variable", lossy(&text[1..])))),
    }
}

fn cookie(cf: &mut Cf, d: &Directive) -> ConfResult<Declared> {
    let name = d.arg(1);
    if name.is_empty() {
        return Err(d.error("empty cookie name"));
    }
    let mut c = Cookie {
        name: name.to_vec(),
        domain: None,
        path: None,
        expires: Expires::Session,
        httponly: false,
        secure: false,
        samesite: None,
    };
    for i in 2..d.args.len() {
        let repeated = !cookie_parameter(cf, d, i, &mut c)?;
        if repeated {
            let key = d.arg(i).split(|b| *b == b'=').next().unwrap_or_default();
            return Err(d.error(&format!("parameter \"{}\" is duplicate", lossy(key))));
        }
    }
    // The cookie's name may have any bytes, which a variable's in a text cannot.
    let id = weir_http::vars::registry(cf).number(&[b"cookie_", name].concat());
    Ok(Declared { lookup: vec![Template::variable(id)], kind: DeclaredKind::Cookie(c) })
}

/// Takes one parameter; whether it is there for the first time.
fn cookie_parameter(cf: &mut Cf, d: &Directive, i: usize, c: &mut Cookie) -> ConfResult<bool> {
    let value = |key: &str| match d.keyed(i, key) {
        Some(b"") => Err(d.error(&format!("no value for \"{key}\""))),
        other => Ok(other),
    };
    if let Some(text) = value("domain")? {
        Ok(c.domain.replace(template_of(cf, d, i, text)?).is_none())
    } else if let Some(text) = value("path")? {
        Ok(c.path.replace(text.to_vec()).is_none())
    } else if let Some(text) = d.keyed(i, "expires") {
        let first = c.expires == Expires::Session;
        c.expires = match text {
            b"max" => Expires::Max,
            _ => Expires::Secs(
                units::parse_sec(text)
                    .ok_or_else(|| d.error("invalid \"expires\" parameter value"))?,
            ),
        };
        Ok(first)
    } else if let Some(text) = d.keyed(i, "samesite") {
        let t = template_of(cf, d, i, text)?;
        if t.as_constant().is_some() && !is_samesite(text) {
            return Err(d.error("invalid \"samesite\" parameter value"));
        }
        Ok(c.samesite.replace(t).is_none())
    } else {
        match d.arg(i) {
            b"httponly" => Ok(!std::mem::replace(&mut c.httponly, true)),
            b"secure" => Ok(!std::mem::replace(&mut c.secure, true)),
            _ => Err(unknown(d, i)),
        }
    }
}

fn learn(cf: &mut Cf, d: &Directive) -> ConfResult<Declared> {
    let (mut lookup, mut create) = (Vec::new(), Vec::new());
    let (mut zone, mut timeout_ms, mut at_header) = (None, None, false);
    for i in 1..d.args.len() {
        if let Some(text) = d.keyed(i, "zone") {
            if zone.replace(learn_zone(cf, d, i, text)?).is_some() {
                return Err(d.error("duplicate zone"));
            }
        } else if let Some(text) = d.keyed(i, "timeout") {
            let ms = units::parse_msec(text).filter(|ms| *ms > 0);
            let ms = ms.ok_or_else(|| d.error("invalid timeout"))?;
            if timeout_ms.replace(ms).is_some() {
                return Err(d.error("duplicate timeout"));
            }
        } else if let Some(text) = d.keyed(i, "create") {
            create.push(named(cf, d, i, text, "create")?);
        } else if let Some(text) = d.keyed(i, "lookup") {
            lookup.push(named(cf, d, i, text, "lookup")?);
        } else if d.arg(i) == b"header" {
            at_header = true;
        } else {
            return Err(unknown(d, i));
        }
    }
    let missing = |what: &str| d.error(&format!("\"{what}\" parameter is not specified"));
    if lookup.is_empty() {
        return Err(missing("lookup"));
    }
    if create.is_empty() {
        return Err(missing("create"));
    }
    let zone = zone.ok_or_else(|| missing("zone"))?;
    let timeout_ms = timeout_ms.unwrap_or(TIMEOUT_MS);
    Ok(Declared { lookup, kind: DeclaredKind::Learn { create, zone, timeout_ms, at_header } })
}

fn named(cf: &mut Cf, d: &Directive, i: usize, text: &[u8], key: &str) -> ConfResult<Template> {
    match text.first() {
        Some(b'$') => variable(cf, d, i, text),
        _ => Err(d.error(&format!("missing variable in the \"{key}\" parameter"))),
    }
}

fn learn_zone(cf: &mut Cf, d: &Directive, i: usize, text: &[u8]) -> ConfResult<(Vec<u8>, u64)> {
    let at = text.iter().position(|b| *b == b':');
    let at = at.ok_or_else(|| d.error("zone size is not specified"))?;
    if at == 0 {
        return Err(d.error("zone name is not specified"));
    }
    let size = units::parse_size(&text[at + 1..]).ok_or_else(|| d.error("invalid zone size"))?;
    if size < ZONE_MIN_BYTES {
        return Err(d.error("zone is too small"));
    }
    let name = text[..at].to_vec();
    if zones::is_declared(cf, &name, ZONE_KIND) {
        let text = format!("sticky zone \"{}\" is already used in another upstream", lossy(&name));
        return Err(d.bad(i, text));
    }
    zones::declare(cf, d, i, &name, ZONE_KIND, size)?;
    Ok((name, size))
}
