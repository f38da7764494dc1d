//! The request as it goes to an HTTP server: its URI and its head.

use super::conf::{ProxyLoc, SCHEMES};
use crate::ask::{Ask, BodyLength};
use crate::target::{Parts, Pass, Target};
use std::rc::Rc;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_base::line;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::Request;
use weir_runtime::listen::parse_endpoint;

/// The URI that the backend is asked for.
#[inline]
pub(crate) fn write_uri(r: &Request, conf: &ProxyLoc, target: &Target, out: &mut Vec<u8>) {
    let uri = &target.parts().uri;
    if matches!(target, Target::Own(_)) && !uri.is_empty() {
        return out.extend_from_slice(uri);
    }
    if uri.is_empty() {
        return write_own_uri(r, out);
    }
    let mut cut = 0;
    if r.flags.valid_location {
        out.extend_from_slice(uri);
        cut = conf.location.len().min(r.uri.len());
    }
    write_from(r, cut, out);
}

/// The request's own URI, as it was sent where that is still known.
pub(crate) fn write_own_uri(r: &Request, out: &mut Vec<u8>) {
    match r.flags.valid_unparsed_uri {
        true => out.extend_from_slice(r.unparsed_uri()),
        false => write_from(r, 0, out),
    }
}

fn write_from(r: &Request, cut: usize, out: &mut Vec<u8>) {
    let rest = &r.uri[cut..];
    match r.head.quoted_uri || r.flags.internal {
        true => escape_uri(out, rest, EscapeKind::Uri),
        false => out.extend_from_slice(rest),
    }
    if !r.args.is_empty() {
        out.push(b'?');
        out.extend_from_slice(&r.args);
    }
}

/// `proxy_cache_key` where there is none: the server's URL with the request's URI.
pub(crate) fn write_key(r: &mut Request, key: &mut Vec<u8>) {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<ProxyLoc>();
    let target = match &conf.backend.pass {
        None => return,
        Some(Pass::Fixed(fixed)) => {
            key.extend_from_slice(&fixed.key_start);
            Target::Fixed(fixed)
        }
        Some(Pass::Vars(template)) => {
            let url = r.eval(template);
            let schemes = &SCHEMES;
            let (tls, rest) = schemes.split(&url).unwrap_or((false, &url));
            key.extend_from_slice(&url[..url.len() - rest.len()]);
            let usual = schemes.usual_port(tls);
            let parts = parse_endpoint(rest, schemes.url()).map(|u| Parts::new(&u, tls, usual));
            let parts = parts.unwrap_or_default();
            key.extend_from_slice(&parts.host);
            Target::Own(Box::new(parts))
        }
    };
    write_uri(r, conf, &target, key);
}

/// Writes the head (and a body of the configuration's own) into the exchange. Answers whether the
/// method is HEAD, whose answer has no body; an empty URI is an error.
pub(crate) fn write_request(r: &mut Request, head: &Ask) -> Result<bool, u16> {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<ProxyLoc>();
    let mut out = std::mem::take(&mut r.exchange.request);
    out.clear();
    let plan = if head.cached { &conf.cache_plan } else { &conf.plan };
    match &*conf.method {
        _ if head.as_get => out.extend_from_slice(b"GET"),
        Some(t) => r.eval_into(t, &mut out),
        None => out.extend_from_slice(r.method_name()),
    }
    let bodiless = out.eq_ignore_ascii_case(b"HEAD");
    out.push(b' ');
    let start = out.len();
    write_uri(r, conf, head.target, &mut out);
    r.exchange.uri = (start, out.len());
    if out.len() == start {
        r.exchange.request = out;
        r.log(LogLevel::Error, "zero length URI to proxy");
        return Err(500);
    }
    one_line(r, &mut out, "proxy");
    match conf.behind_uri.is_empty() {
        false => out.extend_from_slice(&conf.behind_uri),
        true => {
            out.extend_from_slice(conf.version_text());
            let needed = conf.streams_unmeasured();
            plan.write_host(r, &head.target.parts().host, needed, &mut out);
        }
    }
    let own_body = conf.set_body.as_ref().map(|t| r.eval(t));
    let length = match &own_body {
        Some(body) => BodyLength::Known(body.len() as u64),
        None => head.length,
    };
    plan.write_lines(r, length, &mut out);
    if *conf.backend.pass_request_headers {
        plan.write_client(r, &mut out);
    }
    out.extend_from_slice(b"\r\n");
    if let Some(body) = own_body {
        out.extend_from_slice(&body);
    }
    r.exchange.request = out;
    Ok(bodiless)
}

/// Keeps a request line that variables have made in its line: method and URI, as they stand in `out`.
#[inline]
pub(crate) fn one_line(r: &mut Request, out: &mut Vec<u8>, family: &str) {
    if r.is_computed() && line::has_controls(out) {
        encode_line(r, out, family);
    }
}

#[cold]
fn encode_line(r: &mut Request, out: &mut Vec<u8>, family: &str) {
    let (start, end) = r.exchange.uri;
    let (method, uri) = (&out[..start], &out[start..end]);
    let by = if line::has_controls(method) { "_method" } else { "_pass" };
    let text = format!(
        "a variable in the request line of \"{family}{by}\" held control characters, which were encoded"
    );
    let (method, uri) = (line::encoded(method), line::encoded(uri));
    r.exchange.uri = (method.len(), method.len() + uri.len());
    *out = [method, uri].concat();
    r.log(LogLevel::Error, &text);
}

#[cfg(test)]
mod tests {
    use super::*;
    #[test]
    fn a_request() {
        let mut r = Request::default();
        r.uri = b"/a b/c".to_vec();
        r.args = b"q=1".to_vec();
        r.flags.valid_location = true;
        let fixed = |uri: &str| {
            let parts = Parts { uri: uri.into(), ..Parts::default() };
            Target::Own(Box::new(parts))
        };
        let conf = ProxyLoc { location: b"/a".to_vec(), ..ProxyLoc::default() };
        let mut out = Vec::new();
        write_uri(&r, &conf, &fixed("/whole"), &mut out);
        assert_eq!(out, b"/whole");
        let mut out = Vec::new();
        write_uri(&r, &conf, &fixed(""), &mut out);
        assert_eq!(out, b"/a b/c?q=1");
        r.flags.internal = true;
        let mut out = Vec::new();
        write_uri(&r, &conf, &fixed(""), &mut out);
        assert_eq!(out, b"/a%20b/c?q=1");
    }
}
