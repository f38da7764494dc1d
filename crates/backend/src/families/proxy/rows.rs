//! The directives that the proxy alone has.

use super::conf::{HttpVersion, ProxyLoc};
use super::headers::SetHeader;
use super::rewrite::{default_rule, CookieFlags, CookieName, Rewrite};
use crate::rows::{self, push, shared, PASS};
use crate::target::Pass;
use std::sync::Arc;
use weir_http::build::here;
use weir_http::vars::named_regex;
use weir_http::vars::{template, template_of};
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, Val};

const HSL: Context = Context::HSL;

pub(crate) static ROWS: &[Row] = &[
    Row::new("proxy_pass", PASS, Arity::ONE, "", "Passes requests to a server.", set_pass)
        .note("A host that is not found is a warning, and a 502 until it is found. Spaces and control characters that variables bring along into the request line are encoded; nginx sends them. A 204 goes on without the Content-Length that RFC 9110 forbids; nginx leaves it."),
    Row::new(
        "proxy_redirect",
        HSL,
        Arity::ONE_TWO,
        "default",
        "Rewrites Location and Refresh.",
        set_redirect,
    ),
    Row::new(
        "proxy_cookie_domain",
        HSL,
        Arity::ONE_TWO,
        "off",
        "Rewrites a cookie's domain.",
        |cf, d| set_cookie_rule(cf, d, true),
    ),
    Row::new(
        "proxy_cookie_path",
        HSL,
        Arity::ONE_TWO,
        "off",
        "Rewrites a cookie's path.",
        |cf, d| set_cookie_rule(cf, d, false),
    ),
    Row::new(
        "proxy_cookie_flags",
        HSL,
        Arity::ONE_TO_FOUR,
        "off",
        "Sets or removes a cookie's flags.",
        set_cookie_flags,
    ),
    Row::new(
        "proxy_send_lowat",
        HSL,
        Arity::ONE,
        "0",
        "Least free send buffer for the request.",
        |_, d| d.size(0).map(|_| ()),
    ).once()
    .note("Linux has no SO_SNDLOWAT; nginx ignores it there too"),
    Row::new(
        "proxy_set_header",
        HSL,
        Arity::TWO,
        "Host $proxy_host",
        "A header field of the request.",
        |cf, d| {
            let h = SetHeader { name: d.arg(0).to_vec(), value: template(cf, d, 1)? };
            push(&mut cf.get::<ProxyLoc>().set_headers, h);
            Ok(())
        },
    )
    .note("line ends in a value become spaces"),
    Row::new("proxy_headers_hash_max_size", HSL, Arity::ONE, "512", "Not needed here.", |_, d| {
        d.num(0).map(drop)
    }).once()
    .note("accepted: header names need no hash of a fixed size"),
    Row::new(
        "proxy_headers_hash_bucket_size",
        HSL,
        Arity::ONE,
        "64",
        "Not needed here.",
        |_, d| d.num(0).map(drop),
    ).once()
    .note("accepted: header names need no hash of a fixed size"),
    Row::new("proxy_set_body", HSL, Arity::ONE, "", "A body instead of the client's.", |cf, d| {
        let v = shared(cf, d)?;
        cf.get::<ProxyLoc>().set_body.once(d, Some(v))
    }),
    Row::new("proxy_method", HSL, Arity::ONE, "", "A method instead of the client's.", |cf, d| {
        let v = shared(cf, d)?;
        cf.get::<ProxyLoc>().method.once(d, Some(v))
    }),
    Row::new(
        "proxy_pass_trailers",
        HSL,
        Arity::FLAG,
        "off",
        "Passes the fields behind the body.",
        |cf, d| {
            let v = d.flag()?;
            cf.get::<ProxyLoc>().backend.pass_trailers.once(d, v)
        },
    ),
    Row::new("proxy_http_version", HSL, Arity::ONE, "1.1", "HTTP version of requests.", |cf, d| {
        use HttpVersion::{V10, V11, V2};
        let v = d.choice(0, &[("1.0", V10), ("1.1", V11), ("2", V2)])?;
        cf.get::<ProxyLoc>().http_version.once(d, v)
    })
    .note(
        "2: fields that belong to a connection are never sent; what is left of a streamed request \
         body when the answer begins is not sent",
    ),
    Row::new(
        "proxy_cache_convert_head",
        HSL,
        Arity::FLAG,
        "on",
        "Asks by GET for HEAD.",
        |cf, d| {
            let v = d.flag()?;
            cf.get::<ProxyLoc>().backend.cache.convert_head.once(d, v)
        },
    ),
    Row::new(
        "proxy_ssl_key_log",
        HSL,
        Arity::ONE,
        "",
        "Writes the keys of sessions with servers to a file, for analysing traffic.",
        |cf, d| {
            let path = Some(cf.full_path(d.arg(0)));
            cf.get::<ProxyLoc>().backend.tls.key_log.once(d, path)
        },
    ),
];

/// The same for what cannot be copied: while it is read nobody shares it.
fn push_rule<T>(list: &mut Option<Arc<Vec<T>>>, item: T) {
    if let Some(l) = Arc::get_mut(list.get_or_insert_with(Arc::default)) {
        l.push(item);
    }
}

fn push_val<T>(list: &mut Val<Arc<Vec<T>>>, item: T) {
    if !list.is_set() {
        list.set(Arc::default());
    }
    if let Some(l) = list.as_mut().and_then(Arc::get_mut) {
        l.push(item);
    }
}

fn set_pass(cf: &mut Cf, d: &Directive) -> ConfResult {
    rows::set_pass::<ProxyLoc>(cf, d)?;
    let here = here(cf);
    let name = here.name.clone();
    let no_uri = here.is_named || here.is_regex;
    let unnamed = cf.context != Context::LOCATION;
    let conf = cf.get::<ProxyLoc>();
    let Some(Pass::Fixed(fixed)) = &conf.backend.pass else { return Ok(()) };
    if (no_uri || unnamed) && !fixed.parts.uri.is_empty() {
        return Err(d.fail(
            "\"proxy_pass\" cannot have URI part in location given by regular expression, \
             or inside named location, or inside \"if\" statement, or inside \
             \"limit_except\" block",
        ));
    }
    conf.location = if no_uri || unnamed { Vec::new() } else { name };
    Ok(())
}

fn set_redirect(cf: &mut Cf, d: &Directive) -> ConfResult {
    let conf = cf.get::<ProxyLoc>();
    if conf.redirect.as_option() == Some(&false) {
        return Err(d.error("is duplicate"));
    }
    if d.args.len() == 1 && d.arg(0) == b"off" {
        if conf.redirects.is_some() {
            return Err(d.error("is duplicate"));
        }
        conf.redirect.set(false);
        return Ok(());
    }
    conf.redirect.set(true);
    if d.args.len() == 1 {
        let rule = default_redirect(conf, d)?;
        push_rule(&mut conf.redirects, rule);
        return Ok(());
    }
    let rule = rewrite(cf, d, false)?;
    push_rule(&mut cf.get::<ProxyLoc>().redirects, rule);
    Ok(())
}

fn default_redirect(conf: &ProxyLoc, d: &Directive) -> ConfResult<Rewrite> {
    if d.arg(0) != b"default" {
        let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
        return Err(d.bad(0, format!("invalid parameter \"{shown}\"")));
    }
    match &conf.backend.pass {
        None => Err(d.fail(
            "\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive",
        )),
        Some(pass) => default_rule(pass, &conf.location).ok_or_else(|| {
            d.fail(
                "\"proxy_redirect default\" cannot be used with \"proxy_pass\" directive \
                 with variables",
            )
        }),
    }
}

/// `~regex`, `~*regex` or a prefix, and what takes its place.
fn rewrite(cf: &mut Cf, d: &Directive, always_caseless: bool) -> ConfResult<Rewrite> {
    let to = template(cf, d, 1)?;
    let from = d.arg(0);
    let Some(pattern) = from.strip_prefix(b"~") else {
        return Ok(Rewrite::with_prefix(template(cf, d, 0)?, to));
    };
    let (pattern, caseless) = match pattern.strip_prefix(b"*") {
        Some(p) if !always_caseless => (p, true),
        _ => (pattern, always_caseless),
    };
    Ok(Rewrite::regex(named_regex(cf, d, 0, pattern, caseless)?, to))
}

/// The dot before a domain says nothing.
fn undotted(text: &[u8]) -> &[u8] {
    text.strip_prefix(b".").unwrap_or(text)
}

fn set_cookie_rule(cf: &mut Cf, d: &Directive, domain: bool) -> ConfResult {
    fn list(cf: &mut Cf, domain: bool) -> &mut Val<Arc<Vec<Rewrite>>> {
        let conf = cf.get::<ProxyLoc>();
        match domain {
            true => &mut conf.cookie_domains,
            false => &mut conf.cookie_paths,
        }
    }
    if d.args.len() == 1 {
        return cookies_off(list(cf, domain), d);
    }
    check_not_off(list(cf, domain), d)?;
    let rule = match domain && d.arg(0).first() != Some(&b'~') {
        true => {
            let from = template_of(cf, d, 0, undotted(d.arg(0)))?;
            Rewrite::domain(from, template_of(cf, d, 1, undotted(d.arg(1)))?)
        }
        false => rewrite(cf, d, domain)?,
    };
    push_val(list(cf, domain), rule);
    Ok(())
}

/// `off`: an empty list that nothing may follow.
fn cookies_off<T>(list: &mut Val<Arc<Vec<T>>>, d: &Directive) -> ConfResult {
    if d.arg(0) != b"off" {
        let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
        return Err(d.bad(0, format!("invalid parameter \"{shown}\"")));
    }
    list.once(d, Arc::default())
}

fn check_not_off<T>(list: &Val<Arc<Vec<T>>>, d: &Directive) -> ConfResult {
    match list.as_option().is_some_and(|l| l.is_empty()) {
        true => Err(d.error("is duplicate")),
        false => Ok(()),
    }
}

fn set_cookie_flags(cf: &mut Cf, d: &Directive) -> ConfResult {
    if d.args.len() == 1 {
        return cookies_off(&mut cf.get::<ProxyLoc>().cookie_flags, d);
    }
    check_not_off(&cf.get::<ProxyLoc>().cookie_flags, d)?;
    let cookie = match d.arg(0).strip_prefix(b"~") {
        Some(p) => CookieName::Regex(Box::new(named_regex(cf, d, 0, p, true)?)),
        None => CookieName::Exact(template(cf, d, 0)?),
    };
    let flags: ConfResult<Vec<_>> = (1..d.args.len()).map(|i| template(cf, d, i)).collect();
    push_val(&mut cf.get::<ProxyLoc>().cookie_flags, CookieFlags { cookie, flags: flags? });
    Ok(())
}
