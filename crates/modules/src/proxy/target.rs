//! `proxy_pass`: where a request goes and under which URI.

use super::conf::ProxyLoc;
use super::exchange;
use super::headers::BodyLength;
use super::rewrite::Rewrite;
use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use weir_base::addr::{parse_endpoint, Endpoint, EndpointOptions, Host};
use weir_base::bytes::starts_with_ignore_case;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_http::logger::LogLevel;
use weir_http::Request;
use weir_resolve::message::error_text;
use weir_resolve::{Failed, Question};
use weir_script::template::Template;
use weir_upstream::group::{self, WorkerGroup};
use weir_upstream::peers::{Peer, PeerAddr};
use weir_upstream::{UpstreamMain, UpstreamRef};

/// Whether a URL is for TLS, and what stands behind its scheme.
pub fn split_scheme(url: &[u8]) -> Option<(bool, &[u8])> {
    [(false, &b"http://"[..]), (true, b"https://")].into_iter().find_map(|(tls, scheme)| {
        starts_with_ignore_case(url, scheme).then(|| (tls, &url[scheme.len()..]))
    })
}

/// The port of a URL that names none.
pub fn usual_port(tls: bool) -> u16 {
    if tls {
        443
    } else {
        80
    }
}

pub const URL: EndpointOptions = EndpointOptions { listen: false, uri_part: true };

/// Where `proxy_pass` sends requests.
#[derive(Clone, Debug)]
pub enum Pass {
    Fixed(Arc<Fixed>),
    Vars(Arc<Template>),
}

#[derive(Debug)]
pub struct Fixed {
    pub upstream: UpstreamRef,
    /// As written.
    pub url: Vec<u8>,
    pub parts: Parts,
}

/// The parts of a URL that a request uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// `$proxy_host`: what the backend is called in `Host`.
    pub host: Vec<u8>,
    pub port: Vec<u8>,
    pub uri: Vec<u8>,
    pub tls: bool,
}

impl Parts {
    pub fn new(url: &Endpoint, tls: bool) -> Parts {
        let uri = url.uri.to_vec();
        if matches!(url.host, Host::Unix(_)) {
            return Parts { host: b"localhost".to_vec(), port: Vec::new(), uri, tls };
        }
        let usual = usual_port(tls);
        match url.port {
            port if port.is_none_or(|p| p == usual) => {
                let port = usual.to_string().into_bytes();
                Parts { host: url.host_text.to_vec(), port, uri, tls }
            }
            _ => {
                let host = [url.host_text, b":", url.port_text].concat();
                Parts { host, port: url.port_text.to_vec(), uri, tls }
            }
        }
    }
}

impl Pass {
    /// Whether requests may go out with TLS.
    pub fn may_be_tls(&self) -> bool {
        match self {
            Pass::Fixed(fixed) => fixed.parts.tls,
            Pass::Vars(_) => true,
        }
    }

    /// `proxy_redirect default`.
    pub fn default_rule(&self, location: &[u8]) -> Option<Rewrite> {
        let Pass::Fixed(fixed) = self else { return None };
        Some(match fixed.parts.uri.is_empty() {
            false => Rewrite::prefix(&fixed.url, location),
            true => Rewrite::prefix(&[&fixed.url, &b"/"[..]].concat(), b"/"),
        })
    }
}

/// One request's destination.
pub enum Target {
    Fixed(Arc<Fixed>),
    Own(Box<Parts>),
}

impl Target {
    pub fn parts(&self) -> &Parts {
        match self {
            Target::Fixed(f) => &f.parts,
            Target::Own(p) => p,
        }
    }
}

/// Finds the destination, or the status to answer with.
pub async fn find(r: &mut Request, pass: &Pass) -> Result<(Target, Rc<WorkerGroup>), u16> {
    match pass {
        Pass::Fixed(fixed) => {
            let main = r.gen().shared.main.get::<UpstreamMain>();
            let Some(group) = main.group(fixed.upstream) else { return Err(500) };
            let group = group.on(&r.conn().worker);
            Ok((Target::Fixed(Arc::clone(fixed)), group))
        }
        Pass::Vars(template) => evaluate(r, template).await,
    }
}

async fn evaluate(r: &mut Request, template: &Template) -> Result<(Target, Rc<WorkerGroup>), u16> {
    let text = r.eval(template);
    let Some((tls, rest)) = split_scheme(&text).filter(|(_, rest)| !rest.is_empty()) else {
        let mut line = b"invalid URL prefix in \"".to_vec();
        line.extend_from_slice(&text);
        line.push(b'"');
        r.log_bytes(LogLevel::Error, &line);
        return Err(500);
    };
    let url = match parse_endpoint(rest, URL) {
        Ok(url) => url,
        Err(e) => {
            let shown = String::from_utf8_lossy(rest);
            r.log(LogLevel::Error, &format!("{e} in upstream \"{shown}\""));
            return Err(500);
        }
    };
    let mut parts = Parts::new(&url, tls);
    if parts.uri.first() == Some(&b'?') {
        parts.uri.insert(0, b'/');
    }
    parts.uri = no_controls(parts.uri);
    let group = group_of(r, &url, tls).await?;
    Ok((Target::Own(Box::new(parts)), group))
}

/// A variable may bring spaces and line ends; they must not end the request line.
fn no_controls(uri: Vec<u8>) -> Vec<u8> {
    let bad = |b: &u8| *b <= b' ' || *b == 0x7f;
    if !uri.iter().any(bad) {
        return uri;
    }
    let mut out = Vec::with_capacity(uri.len() + 16);
    for b in uri {
        match bad(&b) {
            true => out.extend_from_slice(format!("%{b:02X}").as_bytes()),
            false => out.push(b),
        }
    }
    out
}

/// The servers a name from a variable means: an upstream of that name, an address, or what the
/// `resolver` answers.
async fn group_of(r: &mut Request, url: &Endpoint<'_>, tls: bool) -> Result<Rc<WorkerGroup>, u16> {
    let port = url.port.unwrap_or(usual_port(tls));
    let main = r.gen().shared.main.get::<UpstreamMain>();
    if let Some(group) = main.find(url.host_text, port, url.port.is_none()) {
        return Ok(group.on(&r.conn().worker));
    }
    let one = |addr: PeerAddr| vec![Peer::new(addr, url.host_text)];
    let peers = match url.host {
        Host::V4(a) => one(PeerAddr::Ip(SocketAddr::new(a.into(), port))),
        Host::V6(a) => one(PeerAddr::Ip(SocketAddr::new(a.into(), port))),
        Host::Unix(path) => one(PeerAddr::Unix(weir_http::location::bytes_path(path))),
        Host::Name(_) | Host::Any => resolve(r, url.host_text, port).await?,
    };
    Ok(group::ad_hoc(url.host_text, peers))
}

async fn resolve(r: &mut Request, host: &[u8], port: u16) -> Result<Vec<Peer>, u16> {
    let name = String::from_utf8_lossy(host).into_owned();
    let loc = Rc::clone(r.loc());
    let Some(resolver) = &*loc.core.resolver else {
        r.log(LogLevel::Error, &format!("no resolver defined to resolve {name}"));
        return Err(502);
    };
    weir_http::resolver::log_to(resolver, &loc.error_log);
    let asking = resolver.resolve(Question::Name(&name), *loc.core.resolver_timeout);
    let ignore = *loc.conf::<ProxyLoc>().ignore_client_abort;
    let Some(found) = exchange::unless_client_goes(r, ignore, asking).await else {
        return Err(499);
    };
    match found {
        Ok(found) => {
            let peer = |t: weir_resolve::Target| {
                Peer::new(PeerAddr::Ip(SocketAddr::new(t.ip, port)), host)
            };
            Ok(found.targets.into_iter().map(peer).collect())
        }
        Err(Failed { code, .. }) => {
            let text = error_text(code);
            r.log(LogLevel::Error, &format!("{name} could not be resolved ({code}: {text})"));
            Err(502)
        }
    }
}

/// `proxy_bind` with variables; an empty value binds nothing.
pub fn local_address(r: &mut Request, t: &Template) -> Option<SocketAddr> {
    let text = r.eval(t);
    if text.is_empty() {
        return None;
    }
    let addr = parse_local(&text);
    if addr.is_none() {
        let shown = String::from_utf8_lossy(&text).into_owned();
        r.log(LogLevel::Error, &format!("invalid local address \"{shown}\""));
    }
    addr
}

/// An address with or without a port.
pub fn parse_local(text: &[u8]) -> Option<SocketAddr> {
    let text = std::str::from_utf8(text).ok()?;
    if let Ok(addr) = text.parse::<SocketAddr>() {
        return Some(addr);
    }
    let bare = text.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<std::net::IpAddr>().ok().map(|ip| SocketAddr::new(ip, 0))
}

/// The URI that the backend is asked for.
pub fn write_uri(r: &Request, conf: &ProxyLoc, target: &Target, out: &mut Vec<u8>) {
    let uri = &target.parts().uri;
    if matches!(target, Target::Own(_)) && !uri.is_empty() {
        return out.extend_from_slice(uri);
    }
    if uri.is_empty() && r.valid_unparsed_uri {
        return out.extend_from_slice(r.unparsed_uri());
    }
    let mut cut = 0;
    if r.valid_location && !uri.is_empty() {
        out.extend_from_slice(uri);
        cut = conf.location.len().min(r.uri.len());
    }
    let rest = &r.uri[cut..];
    match r.head.quoted_uri || r.internal {
        true => escape_uri(out, rest, EscapeKind::Uri),
        false => out.extend_from_slice(rest),
    }
    if !r.args.is_empty() {
        out.push(b'?');
        out.extend_from_slice(&r.args);
    }
}

/// How a request's head is to be written.
pub struct Head<'a> {
    pub conf: &'a ProxyLoc,
    pub target: &'a Target,
    pub length: BodyLength,
    /// The answer may be kept.
    pub cached: bool,
    /// The client's HEAD goes out as GET, so that the whole answer can be kept.
    pub as_get: bool,
}

/// Writes the head (and a body of the configuration's own) into the exchange. Answers whether the
/// method is HEAD, whose answer has no body; an empty URI is an error.
pub fn write_request(r: &mut Request, head: &Head) -> Result<bool, u16> {
    let conf = head.conf;
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
    let v11 = conf.streams_unmeasured();
    out.extend_from_slice(if v11 { b" HTTP/1.1\r\n" } else { b" HTTP/1.0\r\n" });
    plan.write_host(r, &head.target.parts().host, v11, &mut out);
    let own_body = conf.set_body.as_ref().map(|t| r.eval(t));
    let length = match &own_body {
        Some(body) => BodyLength::Known(body.len() as u64),
        None => head.length,
    };
    plan.write_lines(r, length, &mut out);
    if *conf.pass_request_headers {
        plan.write_client(r, &mut out);
    }
    out.extend_from_slice(b"\r\n");
    if let Some(body) = own_body {
        out.extend_from_slice(&body);
    }
    r.exchange.request = out;
    Ok(bodiless)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts(text: &str) -> (String, String, String) {
        let p = Parts::new(&parse_endpoint(text.as_bytes(), URL).unwrap(), false);
        let s = |v: Vec<u8>| String::from_utf8(v).unwrap();
        (s(p.host), s(p.port), s(p.uri))
    }

    #[test]
    fn what_a_url_says() {
        let of = |a: &str, b: &str, c: &str| (a.to_string(), b.to_string(), c.to_string());
        assert_eq!(parts("app"), of("app", "80", ""));
        assert_eq!(parts("app:80/x"), of("app", "80", "/x"));
        assert_eq!(parts("app:8080/x?y"), of("app:8080", "8080", "/x?y"));
        assert_eq!(parts("[::1]:81"), of("[::1]:81", "81", ""));
        assert_eq!(parts("unix:/s:/x"), of("localhost", "", "/x"));
    }

    #[test]
    fn a_request() {
        let mut r = Request::default();
        r.uri = b"/a b/c".to_vec();
        r.args = b"q=1".to_vec();
        r.valid_location = true;
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
        r.internal = true;
        let mut out = Vec::new();
        write_uri(&r, &conf, &fixed(""), &mut out);
        assert_eq!(out, b"/a%20b/c?q=1");
    }

    #[test]
    fn line_ends_in_a_variable_stay_in_the_uri() {
        assert_eq!(no_controls(b"/a b\r\nX: y".to_vec()), b"/a%20b%0D%0AX:%20y");
    }

    #[test]
    fn local_addresses() {
        assert_eq!(parse_local(b"127.0.0.2"), Some(([127, 0, 0, 2], 0).into()));
        assert_eq!(parse_local(b"127.0.0.2:99"), Some(([127, 0, 0, 2], 99).into()));
        assert!(parse_local(b"[::1]").is_some() && parse_local(b"localhost").is_none());
    }
}
