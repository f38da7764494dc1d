//! The directives of the proxy module.

use super::conf::{ignore, next, Bind, BindAddr, HttpVersion, ProxyLoc};
use super::headers::SetHeader;
use super::rewrite::{CookieFlags, CookieName, Rewrite};
use super::target::{parse_local, split_scheme, usual_port, Fixed, Parts, Pass, URL};
use std::sync::Arc;
use weir_base::addr::parse_endpoint;
use weir_http::build::named_regex;
use weir_http::conf::CoreLoc;
use weir_http::core_rows::temp_path;
use weir_http::vars::{template, template_of};
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Context, Directive, Row, Val};
use weir_script::template::Template;
use weir_upstream::UpstreamMain;

const HSL: Context = Context::HSL;
const PASS: Context = Context::LOCATION.or(Context::LIF).or(Context::LMT);

macro_rules! set {
    ($field:ident, $read:expr) => {
        |cf, d| {
            let v = $read(d)?;
            cf.get::<ProxyLoc>().$field.once(d, v)
        }
    };
}

fn flag(d: &Directive) -> ConfResult<bool> {
    d.flag()
}

fn msec(d: &Directive) -> ConfResult<u64> {
    d.msec(0)
}

fn size(d: &Directive) -> ConfResult<u64> {
    d.size(0)
}

fn some_size(d: &Directive) -> ConfResult<Option<u64>> {
    d.size(0).map(Some)
}

fn shared(cf: &mut Cf, d: &Directive) -> ConfResult<Arc<Template>> {
    template(cf, d, 0).map(Arc::new)
}

pub static ROWS: &[Row] = &[
    Row::new("proxy_pass", PASS, Arity::ONE, "", "Passes requests to a server.", set_pass)
        .note("a host that is not found is a warning, and a 502 until it is found"),
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
        "proxy_buffering",
        HSL,
        Arity::FLAG,
        "on",
        "Reads an answer ahead of a slow client.",
        set!(buffering, flag),
    ),
    Row::new(
        "proxy_request_buffering",
        HSL,
        Arity::FLAG,
        "on",
        "Reads a whole request before passing it.",
        set!(request_buffering, flag),
    ),
    Row::new(
        "proxy_ignore_client_abort",
        HSL,
        Arity::FLAG,
        "off",
        "Lets the server finish when the client goes.",
        set!(ignore_client_abort, flag),
    ),
    Row::new(
        "proxy_send_lowat",
        HSL,
        Arity::ONE,
        "0",
        "Least free send buffer for the request.",
        |_, d| d.size(0).map(|_| ()),
    )
    .note("Linux has no SO_SNDLOWAT; nginx ignores it there too"),
    Row::new("proxy_bind", HSL, Arity::ONE_TWO, "", "The local address of connections.", set_bind)
        .note(
            "transparent under another user than root takes a restart, where a reload is the \
            first to bring it",
        ),
    Row::new(
        "proxy_socket_keepalive",
        HSL,
        Arity::FLAG,
        "off",
        "TCP keepalive to the server.",
        set!(socket_keepalive, flag),
    ),
    Row::new(
        "proxy_socket_rcvbuf",
        HSL,
        Arity::ONE,
        "0",
        "Receive buffer of the socket.",
        set!(socket_rcvbuf, size),
    ),
    Row::new(
        "proxy_socket_sndbuf",
        HSL,
        Arity::ONE,
        "0",
        "Send buffer of the socket.",
        set!(socket_sndbuf, size),
    ),
    Row::new(
        "proxy_connect_timeout",
        HSL,
        Arity::ONE,
        "60s",
        "Longest time to connect.",
        set!(connect_timeout, msec),
    ),
    Row::new(
        "proxy_send_timeout",
        HSL,
        Arity::ONE,
        "60s",
        "Longest time between two writes.",
        set!(send_timeout, msec),
    ),
    Row::new(
        "proxy_read_timeout",
        HSL,
        Arity::ONE,
        "60s",
        "Longest time between two reads.",
        set!(read_timeout, msec),
    ),
    Row::new(
        "proxy_intercept_errors",
        HSL,
        Arity::FLAG,
        "off",
        "error_page for the server's errors.",
        set!(intercept_errors, flag),
    ),
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
    })
    .note("accepted: header names need no hash of a fixed size"),
    Row::new(
        "proxy_headers_hash_bucket_size",
        HSL,
        Arity::ONE,
        "64",
        "Not needed here.",
        |_, d| d.num(0).map(drop),
    )
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
        "proxy_pass_request_headers",
        HSL,
        Arity::FLAG,
        "on",
        "Passes the client's header.",
        set!(pass_request_headers, flag),
    ),
    Row::new(
        "proxy_pass_request_body",
        HSL,
        Arity::FLAG,
        "on",
        "Passes the client's body.",
        set!(pass_request_body, flag),
    )
    .note("off: no Content-Length is sent for the body that is not"),
    Row::new(
        "proxy_pass_trailers",
        HSL,
        Arity::FLAG,
        "off",
        "Passes the fields behind the body.",
        set!(pass_trailers, flag),
    ),
    Row::new(
        "proxy_buffer_size",
        HSL,
        Arity::ONE,
        "4k|8k",
        "The longest header of an answer.",
        set!(buffer_size, size),
    ),
    Row::new(
        "proxy_buffers",
        HSL,
        Arity::TWO,
        "8 4k|8k",
        "Memory for an answer the client is slow to take.",
        |cf, d| {
            let num = d.num(0)?;
            let each = d.size(1)?;
            if num == 0 || each == 0 {
                return Err(d.invalid(0));
            }
            cf.get::<ProxyLoc>().buffers.once(d, (num, each))
        },
    ),
    Row::new(
        "proxy_busy_buffers_size",
        HSL,
        Arity::ONE,
        "8k|16k",
        "Part of the buffers being sent.",
        set!(busy_buffers_size, some_size),
    )
    .note("checked; all that is read may be sent at once here"),
    Row::new(
        "proxy_force_ranges",
        HSL,
        Arity::FLAG,
        "off",
        "Byte ranges whatever the server says.",
        set!(force_ranges, flag),
    ),
    Row::new(
        "proxy_limit_rate",
        HSL,
        Arity::ONE,
        "0",
        "Bytes a second read from the server.",
        |cf, d| {
            let v = shared(cf, d)?;
            if let Some(text) = v.as_constant() {
                weir_base::units::parse_size(text).ok_or_else(|| d.invalid(0))?;
            }
            cf.get::<ProxyLoc>().limit_rate.once(d, Some(v))
        },
    ),
    Row::new(
        "proxy_temp_path",
        HSL,
        Arity::ONE_TO_FOUR,
        "proxy_temp",
        "Directory for answers too large for memory.",
        |cf, d| {
            let v = temp_path(cf, d)?;
            cf.get::<ProxyLoc>().temp_path.once(d, v)
        },
    ),
    Row::new(
        "proxy_max_temp_file_size",
        HSL,
        Arity::ONE,
        "1024m",
        "The largest temporary file.",
        set!(max_temp_file_size, some_size),
    ),
    Row::new(
        "proxy_temp_file_write_size",
        HSL,
        Arity::ONE,
        "8k|16k",
        "Most written to it at once.",
        set!(temp_file_write_size, some_size),
    ),
    Row::new(
        "proxy_next_upstream",
        HSL,
        Arity::ONE_MORE,
        "error timeout",
        "When the next server is asked.",
        set_next_upstream,
    ),
    Row::new(
        "proxy_next_upstream_tries",
        HSL,
        Arity::ONE,
        "0",
        "Most servers asked for one request.",
        |cf, d| {
            let v = d.num(0)?;
            cf.get::<ProxyLoc>().next_upstream_tries.once(d, v)
        },
    ),
    Row::new(
        "proxy_next_upstream_timeout",
        HSL,
        Arity::ONE,
        "0",
        "Longest time for asking servers.",
        set!(next_upstream_timeout, msec),
    ),
    Row::new(
        "proxy_pass_header",
        HSL,
        Arity::ONE,
        "",
        "A hidden field that is passed.",
        |cf, d| {
            push(&mut cf.get::<ProxyLoc>().pass_headers, d.arg(0).to_vec());
            Ok(())
        },
    ),
    Row::new("proxy_hide_header", HSL, Arity::ONE, "", "A field that is not passed.", |cf, d| {
        push(&mut cf.get::<ProxyLoc>().hide_headers, d.arg(0).to_vec());
        Ok(())
    }),
    Row::new(
        "proxy_ignore_headers",
        HSL,
        Arity::ONE_MORE,
        "",
        "Fields of the server that do nothing here.",
        set_ignore_headers,
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
];

/// Appends to a list of this level.
fn push<T: Clone>(list: &mut Val<Arc<Vec<T>>>, item: T) {
    if !list.is_set() {
        list.set(Arc::default());
    }
    if let Some(l) = list.as_mut() {
        Arc::make_mut(l).push(item);
    }
}

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
    if cf.get::<ProxyLoc>().pass.is_some() {
        return Err(d.error("is duplicate"));
    }
    let core = cf.get::<CoreLoc>();
    core.handler = Some(super::handler);
    if core.name.last() == Some(&b'/') {
        core.auto_redirect = true;
    }
    let name = core.name.clone();
    let no_uri = core.is_named || core.is_regex;
    let unnamed = cf.context != Context::LOCATION;
    let url = d.arg(0);
    if memchr::memchr(b'$', url).is_some() {
        let t = shared(cf, d)?;
        cf.get::<ProxyLoc>().pass = Some(Pass::Vars(t));
        return Ok(());
    }
    let Some((tls, rest)) = split_scheme(url) else {
        return Err(d.bad(0, "invalid URL prefix"));
    };
    let endpoint = parse_endpoint(rest, URL)
        .map_err(|e| d.bad(0, format!("{e} in upstream \"{}\"", String::from_utf8_lossy(rest))))?;
    let upstream = cf.get::<UpstreamMain>().add(d, &endpoint, usual_port(tls))?;
    let parts = Parts::new(&endpoint, tls);
    if (no_uri || unnamed) && !parts.uri.is_empty() {
        return Err(d.fail(
            "\"proxy_pass\" cannot have URI part in location given by regular expression, \
             or inside named location, or inside \"if\" statement, or inside \
             \"limit_except\" block",
        ));
    }
    let conf = cf.get::<ProxyLoc>();
    conf.location = if no_uri || unnamed { Vec::new() } else { name };
    conf.pass = Some(Pass::Fixed(Arc::new(Fixed { upstream, url: url.to_vec(), parts })));
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
    match &conf.pass {
        None => Err(d.fail(
            "\"proxy_redirect default\" should be placed after the \"proxy_pass\" directive",
        )),
        Some(pass) => pass.default_rule(&conf.location).ok_or_else(|| {
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

fn set_bind(cf: &mut Cf, d: &Directive) -> ConfResult {
    let transparent = match d.args.get(1).map(|w| &*w.text) {
        None => false,
        Some(b"transparent") => true,
        Some(other) => {
            let shown = String::from_utf8_lossy(other);
            return Err(d.bad(1, format!("invalid parameter \"{shown}\"")));
        }
    };
    let bind = match d.arg(0) {
        b"off" => None,
        text if memchr::memchr(b'$', text).is_some() => Some(BindAddr::Vars(shared(cf, d)?)),
        text => {
            let shown = String::from_utf8_lossy(text);
            let addr = parse_local(text)
                .ok_or_else(|| d.bad(0, format!("invalid address \"{shown}\"")))?;
            Some(BindAddr::Addr(addr))
        }
    };
    let bind = bind.map(|from| Bind { from, transparent });
    cf.get::<ProxyLoc>().bind.once(d, bind)
}

const NEXT: &[(&str, u32)] = &[
    ("error", next::ERROR),
    ("timeout", next::TIMEOUT),
    ("invalid_header", next::INVALID_HEADER),
    ("non_idempotent", next::NON_IDEMPOTENT),
    ("http_500", next::HTTP_500),
    ("http_502", next::HTTP_502),
    ("http_503", next::HTTP_503),
    ("http_504", next::HTTP_504),
    ("http_403", next::HTTP_403),
    ("http_404", next::HTTP_404),
    ("http_429", next::HTTP_429),
    ("updating", next::UPDATING),
    ("off", next::OFF),
];

fn set_next_upstream(cf: &mut Cf, d: &Directive) -> ConfResult {
    let bits = bits(cf, d, NEXT)?;
    add_bits(&mut cf.get::<ProxyLoc>().next_upstream, bits);
    Ok(())
}

const IGNORE: &[(&str, u32)] = &[
    ("X-Accel-Redirect", ignore::REDIRECT),
    ("X-Accel-Expires", ignore::EXPIRES),
    ("X-Accel-Limit-Rate", ignore::LIMIT_RATE),
    ("X-Accel-Buffering", ignore::BUFFERING),
    ("X-Accel-Charset", ignore::CHARSET),
    ("Expires", ignore::EXPIRES_FIELD),
    ("Cache-Control", ignore::CACHE_CONTROL),
    ("Set-Cookie", ignore::SET_COOKIE),
    ("Vary", ignore::VARY),
];

fn set_ignore_headers(cf: &mut Cf, d: &Directive) -> ConfResult {
    let bits = bits(cf, d, IGNORE)?;
    add_bits(&mut cf.get::<ProxyLoc>().ignore_headers, bits);
    Ok(())
}

/// As in nginx, a set may be given in several directives.
pub fn add_bits(set: &mut Val<u32>, bits: u32) {
    set.set(set.as_option().copied().unwrap_or(0) | bits);
}

/// A set of words; one given twice is only worth a warning.
fn bits(cf: &mut Cf, d: &Directive, words: &[(&str, u32)]) -> ConfResult<u32> {
    let mut seen = Vec::new();
    let mut bits = 0;
    for i in 0..d.args.len() {
        let word = d.arg(i);
        let known = words.iter().find(|(w, _)| w.as_bytes().eq_ignore_ascii_case(word));
        let (name, bit) = known.ok_or_else(|| d.invalid(i))?;
        if seen.contains(name) {
            cf.warn(d, format!("duplicate value \"{name}\""));
        }
        seen.push(name);
        bits |= bit;
    }
    Ok(bits)
}
