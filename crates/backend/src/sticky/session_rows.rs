//! The directives `session_sticky` and `session_sticky_hide_cookie`.

use super::session::{HideLoc, Mode, SessionSticky};
use super::{Kind, Sticky};
use std::sync::Arc;
use weir_base::units;
use weir_http::build::Build;
use weir_http::HttpModule;
use weir_module::{
    distinct, ArgsExt, Arity, Cf, ConfResult, Context, Diagnostic, Directive, Row, SlotVtable,
};
use weir_script::template::Template;
use weir_upstream::{DeclaredSticky, UpstreamMain};

const ROWS: &[Row] = &[
    Row::new(
        "session_sticky",
        Context::UPSTREAM,
        Arity::ANY,
        "",
        "A client comes to the same server again, by a cookie.",
        |cf, d| {
            let declared = Declared(read(cf, d)?);
            cf.get::<UpstreamMain>().set_sticky(d, Box::new(declared))
        },
    )
    .note(
        "It is Tengine's. It takes any balancing method beside it. Domain, Path, Max-Age and Expires are as there; \
         what a cookie with maxidle= says of times need not be.",
    ),
    Row::new(
        "session_sticky_hide_cookie",
        Context::HSL,
        Arity::ONE,
        "",
        "Servers of upstream=NAME do not see the cookie of session_sticky.",
        set_hide,
    )
    .note("It is Tengine's."),
    Row::new(
        "session_sticky_header",
        Context::HSL,
        Arity::ONE,
        "",
        "The old name of session_sticky_hide_cookie.",
        |cf, d| {
            let text = "the \"session_sticky_header\" directive is deprecated, use the \
                        \"session_sticky_hide_cookie\" directive instead";
            cf.warn(d, text);
            set_hide(cf, d)
        },
    )
    .note("It is Tengine's."),
];

/// `session_sticky` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<HideLoc>()],
    build: Some(check),
    ..HttpModule::EMPTY
};

struct Declared(SessionSticky);

impl DeclaredSticky for Declared {
    fn build(&self, upstream: &[u8]) -> ConfResult<weir_upstream::Sticky> {
        let session = SessionSticky { upstream: upstream.to_vec(), ..self.0.clone() };
        Ok(Arc::new(Sticky { lookup: Vec::new(), kind: Kind::Session(Box::new(session)) }))
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn read(cf: &mut Cf, d: &Directive) -> ConfResult<SessionSticky> {
    let mut s = SessionSticky {
        upstream: Vec::new(),
        lookup: Template::constant(b""),
        name: b"route".to_vec(),
        domain: Vec::new(),
        path: b"/".to_vec(),
        maxage_secs: None,
        maxidle_secs: None,
        maxlife_secs: None,
        mode: Mode::Insert,
        indirect: false,
        fallback: true,
        plain: false,
    };
    for i in 0..d.args.len() {
        set_parameter(&mut s, d, i)?;
    }
    if s.maxlife_secs.is_some() && s.maxidle_secs.is_none() {
        let hint = "add maxidle=: without it the cookie has no times".to_string();
        return Err(d.error("has \"maxlife\" without \"maxidle\"").hint(hint));
    }
    if s.maxidle_secs.is_some() && s.mode != Mode::Insert {
        let hint = "remove maxidle=: only a cookie that is inserted has times".to_string();
        return Err(d.error("has \"maxidle\" without \"mode=insert\"").hint(hint));
    }
    let id = weir_http::vars::registry(cf).number(&[b"cookie_", &s.name[..]].concat());
    s.lookup = Template::variable(id);
    Ok(s)
}

fn set_parameter(s: &mut SessionSticky, d: &Directive, i: usize) -> ConfResult {
    let bad = || d.bad(i, format!("invalid argument \"{}\"", lossy(d.arg(i))));
    let text = |v: &[u8]| match v.is_empty() || v.iter().any(|b| *b < b' ' || *b == b';') {
        true => Err(bad()),
        false => Ok(v.to_vec()),
    };
    let secs = |v: &[u8]| units::parse_sec(v).map(Some).ok_or_else(bad);
    let one_of = |v: &[u8], words: [&str; 2]| {
        let at = words.iter().position(|w| w.as_bytes() == v);
        at.map(|at| at == 0).ok_or_else(bad)
    };
    if let Some(v) = d.keyed(i, "cookie") {
        s.name = text(v)?;
    } else if let Some(v) = d.keyed(i, "domain") {
        s.domain = text(v)?;
    } else if let Some(v) = d.keyed(i, "path") {
        s.path = text(v)?;
    } else if let Some(v) = d.keyed(i, "maxage") {
        s.maxage_secs = secs(v)?;
    } else if let Some(v) = d.keyed(i, "maxidle") {
        s.maxidle_secs = secs(v)?;
    } else if let Some(v) = d.keyed(i, "maxlife") {
        s.maxlife_secs = secs(v)?;
    } else if let Some(v) = d.keyed(i, "mode") {
        s.mode = match v {
            b"insert" => Mode::Insert,
            b"prefix" => Mode::Prefix,
            b"rewrite" => Mode::Rewrite,
            _ => return Err(bad()),
        };
    } else if let Some(v) = d.keyed(i, "option") {
        s.indirect = one_of(v, ["indirect", "direct"])?;
    } else if let Some(v) = d.keyed(i, "fallback") {
        s.fallback = one_of(v, ["on", "off"])?;
    } else if let Some(v) = d.keyed(i, "hash") {
        s.plain = one_of(v, ["plain", "md5"])?;
    } else {
        return Err(bad());
    }
    Ok(())
}

fn set_hide(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.keyed(0, "upstream").filter(|name| !name.is_empty());
    let bad = || {
        let e = d.bad(0, format!("invalid argument \"{}\"", lossy(d.arg(0))));
        e.hint("write upstream=NAME".to_string())
    };
    let name = Arc::new(name.ok_or_else(bad)?.to_vec());
    cf.get::<HideLoc>().upstream.once(d, Some(name))
}

/// Whose cookie is hidden is to be there.
fn check(b: &mut Build) -> ConfResult {
    let upstreams = b.main.get::<UpstreamMain>();
    for conf in distinct::<HideLoc>(b.locations) {
        let Some(name) = conf.upstream.as_ref() else { continue };
        if upstreams.find(name, 0, true).is_none() {
            let shown = lossy(name);
            let text =
                format!("upstream \"{shown}\" of \"session_sticky_hide_cookie\" is not found");
            let hint = format!("define upstream {shown} {{ … }} with session_sticky");
            return Err(Diagnostic::emerg(text).hint(hint));
        }
    }
    Ok(())
}
