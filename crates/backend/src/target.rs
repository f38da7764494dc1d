//! `…_pass`: where a request goes.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;
use weir_base::addr::{Endpoint, EndpointOptions, Host};
use weir_base::bytes::starts_with_ignore_case;
use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session};
use weir_http::client_watch::unless_client_goes;
use weir_http::Request;
use weir_resolve::message::error_text;
use weir_resolve::{Failed, Question};
use weir_runtime::listen::parse_endpoint;
use weir_script::template::Template;
use weir_upstream::{ad_hoc, Peer, PeerAddr, UpstreamMain, UpstreamRef, WorkerGroup};

/// How the URLs of a family begin.
pub(crate) struct Schemes {
    pub(crate) plain: &'static str,
    pub(crate) tls: Option<&'static str>,
    /// A URL must have one of them.
    pub(crate) required: bool,
    /// The port of a URL that names none, without and with TLS; 0 for none.
    pub(crate) ports: (u16, u16),
    /// A URL may go on with a URI.
    pub(crate) uri: bool,
}

impl Schemes {
    /// Whether a URL is for TLS, and what stands behind its scheme.
    pub(crate) fn split<'a>(&self, url: &'a [u8]) -> Option<(bool, &'a [u8])> {
        let behind = |scheme: &str| {
            starts_with_ignore_case(url, scheme.as_bytes()).then(|| &url[scheme.len()..])
        };
        if let Some(rest) = self.tls.and_then(behind) {
            return Some((true, rest));
        }
        let plain = if self.plain_is_written() { behind(self.plain) } else { None };
        match plain {
            Some(rest) => Some((false, rest)),
            None if self.required => None,
            None => Some((false, url)),
        }
    }

    pub(crate) fn url(&self) -> EndpointOptions {
        EndpointOptions { listen: false, uri_part: self.uri }
    }

    /// A family without TLS shows its scheme in logs only.
    fn plain_is_written(&self) -> bool {
        self.tls.is_some()
    }

    pub(crate) fn usual_port(&self, tls: bool) -> u16 {
        if tls {
            self.ports.1
        } else {
            self.ports.0
        }
    }

    /// As logs show it.
    pub(crate) fn shown(&self, tls: bool) -> &'static str {
        match self.tls {
            Some(text) if tls => text,
            _ => self.plain,
        }
    }
}

/// Where requests are sent.
#[derive(Clone, Debug)]
pub(crate) enum Pass {
    Fixed(Arc<Fixed>),
    Vars(Arc<Template>),
}

#[derive(Debug)]
pub(crate) struct Fixed {
    pub(crate) upstream: UpstreamRef,
    /// As written.
    pub(crate) url: Vec<u8>,
    /// Its scheme, `://` and its parts' host: how keys of answers from there begin.
    pub(crate) key_start: Vec<u8>,
    pub(crate) parts: Parts,
}

impl Fixed {
    pub(crate) fn new(upstream: UpstreamRef, url: &[u8], parts: Parts) -> Fixed {
        let scheme = url.windows(3).position(|w| w == b"://").map_or(0, |i| i + 3);
        let key_start = [&url[..scheme], &parts.host].concat();
        Fixed { upstream, url: url.to_vec(), key_start, parts }
    }
}

/// The parts of a URL that a request uses.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Parts {
    /// `$proxy_host`: what the backend is called in `Host`.
    pub(crate) host: Vec<u8>,
    pub(crate) port: Vec<u8>,
    pub(crate) uri: Vec<u8>,
    pub(crate) tls: bool,
}

impl Parts {
    pub(crate) fn new(url: &Endpoint, tls: bool, usual: u16) -> Parts {
        let uri = url.uri.to_vec();
        if matches!(url.host, Host::Unix(_)) {
            return Parts { host: b"localhost".to_vec(), port: Vec::new(), uri, tls };
        }
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
    pub(crate) fn may_be_tls(&self, schemes: &Schemes) -> bool {
        match self {
            Pass::Fixed(fixed) => fixed.parts.tls,
            Pass::Vars(_) => schemes.tls.is_some(),
        }
    }
}

/// One request's destination.
pub(crate) enum Target<'a> {
    Fixed(&'a Fixed),
    Own(Box<Parts>),
}

impl Target<'_> {
    pub(crate) fn parts(&self) -> &Parts {
        match self {
            Target::Fixed(f) => &f.parts,
            Target::Own(p) => p,
        }
    }
}

/// The servers of a destination that the configuration names, or the status to answer with.
#[inline]
pub(crate) fn fixed(r: &Request, fixed: &Fixed) -> Result<Rc<WorkerGroup>, u16> {
    let main = r.gen().shared.main.get::<UpstreamMain>();
    let group = main.group(fixed.upstream).ok_or(500u16)?;
    Ok(group.on(&r.conn().worker))
}

/// Finds the destination that variables name, or the status to answer with.
#[inline(never)]
pub(crate) fn evaluate<'a>(
    r: &'a mut Request,
    schemes: &'a Schemes,
    template: &'a Template,
    ignore_abort: bool,
) -> LocalFuture<'a, Result<(Target<'static>, Rc<WorkerGroup>), u16>> {
    Box::pin(evaluated(r, schemes, template, ignore_abort))
}

async fn evaluated(
    r: &mut Request,
    schemes: &Schemes,
    template: &Template,
    ignore_abort: bool,
) -> Result<(Target<'static>, Rc<WorkerGroup>), u16> {
    let text = r.eval(template);
    let split = schemes.split(&text);
    let Some((tls, rest)) = split.filter(|(_, rest)| !rest.is_empty()) else {
        let mut line = b"invalid URL prefix in \"".to_vec();
        line.extend_from_slice(&text);
        line.push(b'"');
        r.log_bytes(LogLevel::Error, &line);
        return Err(500);
    };
    let url = match parse_endpoint(rest, schemes.url()) {
        Ok(url) => url,
        Err(e) => {
            let shown = String::from_utf8_lossy(rest);
            r.log(LogLevel::Error, &format!("{e} in upstream \"{shown}\""));
            return Err(500);
        }
    };
    let usual = schemes.usual_port(tls);
    let mut parts = Parts::new(&url, tls, usual);
    if parts.uri.first() == Some(&b'?') {
        parts.uri.insert(0, b'/');
    }
    parts.uri = no_spaces(parts.uri);
    let group = group_of(r, &url, usual, ignore_abort).await?;
    Ok((Target::Own(Box::new(parts)), group))
}

/// A variable may bring spaces, at which the URI would end. (For what else it may bring, see
/// `proxy::request`.)
fn no_spaces(uri: Vec<u8>) -> Vec<u8> {
    if memchr::memchr(b' ', &uri).is_none() {
        return uri;
    }
    let pieces: Vec<&[u8]> = uri.split(|b| *b == b' ').collect();
    pieces.join(&b"%20"[..])
}

/// The servers a name from a variable means: an upstream of that name, an address, or what the
/// `resolver` answers.
async fn group_of(
    r: &mut Request,
    url: &Endpoint<'_>,
    usual: u16,
    ignore_abort: bool,
) -> Result<Rc<WorkerGroup>, u16> {
    let port = url.port.unwrap_or(usual);
    if let Some(found) = weir_upstream::dynamic::find(url.host_text) {
        return match found {
            Some(group) => Ok(group.on(&r.conn().worker)),
            None => {
                let shown = String::from_utf8_lossy(url.host_text);
                r.log(LogLevel::Error, &format!("upstream \"{shown}\" has been deleted"));
                Err(502)
            }
        };
    }
    let main = r.gen().shared.main.get::<UpstreamMain>();
    if let Some(group) = main.find(url.host_text, port, url.port.is_none()) {
        return Ok(group.on(&r.conn().worker));
    }
    if port == 0 && !matches!(url.host, Host::Unix(_)) {
        let shown = String::from_utf8_lossy(url.host_text).into_owned();
        r.log(LogLevel::Error, &format!("no port in upstream \"{shown}\""));
        return Err(500);
    }
    let one = |addr: PeerAddr| vec![Peer::new(addr, url.host_text)];
    let peers = match url.host {
        Host::V4(a) => one(PeerAddr::Ip(SocketAddr::new(a.into(), port))),
        Host::V6(a) => one(PeerAddr::Ip(SocketAddr::new(a.into(), port))),
        Host::Unix(path) => one(PeerAddr::Unix(weir_runtime::paths::path(path).into_owned())),
        Host::Name(_) | Host::Any => resolve(r, url.host_text, port, ignore_abort).await?,
    };
    Ok(ad_hoc(url.host_text, peers))
}

async fn resolve(
    r: &mut Request,
    host: &[u8],
    port: u16,
    ignore_abort: bool,
) -> Result<Vec<Peer>, u16> {
    let name = String::from_utf8_lossy(host).into_owned();
    let loc = Rc::clone(r.loc());
    let Some(resolver) = &*loc.core.resolver else {
        r.log(LogLevel::Error, &format!("no resolver defined to resolve {name}"));
        return Err(502);
    };
    weir_core::resolver::log_to(resolver, &loc.error_log);
    let asking = resolver.resolve(Question::Name(&name), *loc.core.resolver_timeout);
    let Some(found) = unless_client_goes(r, ignore_abort, asking).await else {
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

#[cfg(test)]
mod tests {
    use super::*;

    const URL: EndpointOptions = EndpointOptions { listen: false, uri_part: true };

    fn parts(text: &str) -> (String, String, String) {
        let p = Parts::new(&parse_endpoint(text.as_bytes(), URL).unwrap(), false, 80);
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
    fn line_ends_in_a_variable_stay_in_the_uri() {
        assert_eq!(no_spaces(b"/a b?X: y".to_vec()), b"/a%20b?X:%20y");
    }
}
