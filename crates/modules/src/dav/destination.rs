//! What COPY, MOVE and DELETE say in their headers.

use weir_base::bytes::starts_with_ignore_case;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::Request;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Method;
use weir_wire::http1::uri;

/// `Depth` (RFC 4918, section 10.2).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Depth {
    Zero,
    One,
    Infinity,
}

/// What the client says, or else `usual`; what it may not say is logged.
pub(super) fn depth(r: &Request, usual: Depth) -> Option<Depth> {
    match r.header(HeaderId::Depth) {
        None => Some(usual),
        Some(b"0") => Some(Depth::Zero),
        Some(b"1") => Some(Depth::One),
        Some(b"infinity") => Some(Depth::Infinity),
        Some(value) => {
            let shown = String::from_utf8_lossy(value);
            r.log(LogLevel::Error, &format!("client sent invalid \"Depth\" header: \"{shown}\""));
            None
        }
    }
}

/// Where something goes.
pub(super) struct Target {
    /// Decoded.
    pub(super) uri: Vec<u8>,
    /// What is there may be replaced.
    pub(super) overwrite: bool,
    pub(super) depth: Depth,
}

/// The status to answer with, and why.
type Refusal = (u16, String);

impl Target {
    pub(super) fn of(r: &Request) -> Result<Target, Refusal> {
        let Some(field) = r.header(HeaderId::Destination) else {
            return Err((400, "client sent no \"Destination\" header".into()));
        };
        let shown = String::from_utf8_lossy(field);
        let invalid = || (400, format!("client sent invalid \"Destination\" header: \"{shown}\""));
        let sent = match field.first() {
            Some(b'/') => field,
            _ => path_here(r, field, &shown)?.ok_or_else(invalid)?,
        };
        let mut uri = Vec::new();
        uri::unsafe_uri(sent, &mut uri).map_err(|_| invalid())?;
        if (r.uri.last() == Some(&b'/')) != (sent.last() == Some(&b'/')) {
            let own = String::from_utf8_lossy(&r.uri);
            let text = format!(
                "both URI \"{own}\" and \"Destination\" URI \"{shown}\" should be either \
                 collections or non-collections"
            );
            return Err((409, text));
        }
        if is_above_alias(r, &uri) {
            return Err(invalid());
        }
        let depth = depth(r, Depth::Infinity).ok_or((400, "no such depth".into()))?;
        let may = match r.method {
            Method::Copy => "0 or infinity",
            _ => "infinity",
        };
        if depth == Depth::One || depth == Depth::Zero && r.method != Method::Copy {
            return Err((400, format!("\"Depth\" header must be {may}")));
        }
        Ok(Target { uri, overwrite: overwrite(r)?, depth })
    }
}

/// The path of a URL of this server; `None`: it is none.
fn path_here<'a>(r: &Request, url: &'a [u8], shown: &str) -> Result<Option<&'a [u8]>, Refusal> {
    if r.host().is_empty() {
        return Err((400, "client sent no \"Host\" header".into()));
    }
    let scheme: &[u8] = if r.conn().is_tls() { b"https://" } else { b"http://" };
    if !starts_with_ignore_case(url, scheme) {
        return Ok(None);
    }
    let rest = &url[scheme.len()..];
    let at = rest.iter().position(|b| *b == b'/');
    let authority = &rest[..at.unwrap_or(rest.len())];
    let port_at = authority.iter().rposition(|b| *b == b':').filter(|_| !authority.ends_with(b"]"));
    let name = &authority[..port_at.unwrap_or(authority.len())];
    if !name.eq_ignore_ascii_case(r.host()) {
        let text = format!(
            "\"Destination\" URI \"{shown}\" is handled by different repository than the source URI"
        );
        return Err((400, text));
    }
    Ok(at.map(|at| &rest[at..]))
}

/// Shorter than the part of a URI that `alias` takes the place of.
fn is_above_alias(r: &Request, uri: &[u8]) -> bool {
    let core = &r.loc().core;
    let name = core.alias_name.as_deref().unwrap_or(&r.loc().name);
    *core.alias && !core.alias_is_whole && uri.len() < name.len()
}

fn overwrite(r: &Request) -> Result<bool, Refusal> {
    match r.header(HeaderId::Overwrite) {
        None | Some(b"T" | b"t") => Ok(true),
        Some(b"F" | b"f") => Ok(false),
        Some(value) => {
            let shown = String::from_utf8_lossy(value);
            Err((400, format!("client sent invalid \"Overwrite\" header: \"{shown}\"")))
        }
    }
}

/// The path of a URL, or of what is a path already.
pub(crate) fn path_of(url: &[u8]) -> Option<&[u8]> {
    if url.first() == Some(&b'/') {
        return Some(url);
    }
    let at = url.windows(3).position(|w| w == b"://")? + 3;
    let slash = url[at..].iter().position(|b| *b == b'/')?;
    Some(&url[at + slash..])
}

/// The same, decoded.
pub(crate) fn uri_of(url: &[u8]) -> Option<Vec<u8>> {
    let mut uri = Vec::new();
    uri::unsafe_uri(path_of(url)?, &mut uri).ok()?;
    Some(uri)
}
