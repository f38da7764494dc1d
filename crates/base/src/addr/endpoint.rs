//! `host:port` in every form nginx reads, taken apart without a look at DNS.

use std::net::{Ipv4Addr, Ipv6Addr};

use super::ip::{parse_ipv4, parse_ipv6};
use crate::bytes::{split_once, strip_prefix_ignore_case};
use crate::units::parse_int;

/// The longest path Linux takes for a Unix socket, its final zero not counted.
const UNIX_PATH_MAX_BYTES: usize = 107;

/// Where the text comes from, which changes the grammar.
#[derive(Clone, Copy, Default, Debug)]
pub struct EndpointOptions {
    /// For `listen`: a port alone, `*` and a range of ports are allowed, a path is not.
    pub listen: bool,
    /// A path may follow, as in `proxy_pass`: `host:port/path`, `unix:/socket:/path`.
    pub uri_part: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Host<'a> {
    /// No address: a port alone, or `*`.
    Any,
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    Name(&'a [u8]),
    /// The path of a Unix socket.
    Unix(&'a [u8]),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Endpoint<'a> {
    pub host: Host<'a>,
    /// As written, with the brackets of IPv6; empty when only a port was given.
    pub host_text: &'a [u8],
    /// `None` when not given: the directive has its own default.
    pub port: Option<u16>,
    /// The end of a range of ports, itself included.
    pub last_port: Option<u16>,
    pub port_text: &'a [u8],
    /// What follows: begins with `/` or `?`, except after `unix:…:`.
    pub uri: &'a [u8],
}

impl Endpoint<'_> {
    /// Whether this stands for every address of its family.
    pub fn is_wildcard(&self) -> bool {
        match self.host {
            Host::Any => true,
            Host::V4(v4) => v4.is_unspecified(),
            Host::V6(v6) => v6.is_unspecified(),
            Host::Name(_) | Host::Unix(_) => false,
        }
    }
}

/// Takes `text` apart; the error is nginx's word for what is wrong, as in
/// `invalid port in "…" of the "listen" directive`. What a user says goes through `runtime`'s of the same name, which knows
/// what the system has.
pub fn parse_endpoint(text: &[u8], options: EndpointOptions) -> Result<Endpoint<'_>, &'static str> {
    if let Some(rest) = strip_prefix_ignore_case(text, b"unix:") {
        return parse_unix(rest, options);
    }
    if text.first() == Some(&b'[') {
        return parse_bracketed(text, options);
    }
    parse_inet(text, options)
}

fn parse_unix(text: &[u8], options: EndpointOptions) -> Result<Endpoint<'_>, &'static str> {
    let (path, uri) = match split_once(text, b':') {
        Some((path, uri)) if options.uri_part => (path, uri),
        _ => (text, &b""[..]),
    };
    if path.is_empty() {
        return Err("no path in the unix domain socket");
    }
    if path.len() > UNIX_PATH_MAX_BYTES {
        return Err("too long path in the unix domain socket");
    }
    let host = Host::Unix(path);
    Ok(Endpoint { host, host_text: path, port: None, last_port: None, port_text: b"", uri })
}

fn parse_bracketed(text: &[u8], options: EndpointOptions) -> Result<Endpoint<'_>, &'static str> {
    let close = memchr::memchr(b']', text).ok_or("invalid host")?;
    let (rest, uri) = match memchr::memchr(b'/', &text[close + 1..]) {
        Some(_) if options.listen || !options.uri_part => return Err("invalid host"),
        Some(slash) => text[close + 1..].split_at(slash),
        None => (&text[close + 1..], &b""[..]),
    };
    let (port_text, (port, last_port)) = match rest.split_first() {
        None => (&b""[..], (None, None)),
        Some((b':', port_text)) => (port_text, parse_ports(port_text, options)?),
        Some(_) => return Err("invalid host"),
    };
    if close == 1 {
        return Err("no host");
    }
    let host = parse_ipv6(&text[1..close]).map(Host::V6).ok_or("invalid IPv6 address")?;
    Ok(Endpoint { host, host_text: &text[..=close], port, last_port, port_text, uri })
}

fn parse_inet(text: &[u8], options: EndpointOptions) -> Result<Endpoint<'_>, &'static str> {
    let (authority, uri) = match memchr::memchr2(b'/', b'?', text) {
        Some(_) if options.listen || !options.uri_part => return Err("invalid host"),
        Some(at) => text.split_at(at),
        None => (text, &b""[..]),
    };
    let (host_text, port_text, (port, last_port)) = match split_once(authority, b':') {
        Some((host, ports)) => (host, ports, parse_ports(ports, options)?),
        None => {
            if options.listen && is_ports(authority) {
                let (port, last_port) = parse_ports(authority, options)?;
                let (host, port_text) = (Host::Any, authority);
                return Ok(Endpoint { host, host_text: b"", port, last_port, port_text, uri });
            }
            (authority, &b""[..], (None, None))
        }
    };
    if host_text.is_empty() {
        return Err("no host");
    }
    let host = if options.listen && host_text == b"*" {
        Host::Any
    } else {
        parse_ipv4(host_text).map_or(Host::Name(host_text), Host::V4)
    };
    Ok(Endpoint { host, host_text, port, last_port, port_text, uri })
}

/// Whether a text without a colon is a port, or a range of them, rather than a name.
fn is_ports(text: &[u8]) -> bool {
    match split_once(text, b'-') {
        Some((first, last)) => parse_int(first).is_some() && parse_int(last).is_some(),
        None => parse_int(text).is_some(),
    }
}

type Ports = (Option<u16>, Option<u16>);

fn parse_ports(text: &[u8], options: EndpointOptions) -> Result<Ports, &'static str> {
    let (first, last) = match split_once(text, b'-') {
        Some((first, last)) if options.listen => (first, Some(parse_port(last)?)),
        _ => (text, None),
    };
    let first = parse_port(first)?;
    if last.is_some_and(|last| first > last) {
        return Err("invalid port range");
    }
    Ok((Some(first), last))
}

fn parse_port(text: &[u8]) -> Result<u16, &'static str> {
    let port = parse_int(text).and_then(|port| u16::try_from(port).ok());
    port.filter(|&port| port != 0).ok_or("invalid port")
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTEN: EndpointOptions = EndpointOptions { listen: true, uri_part: false };
    const PASS: EndpointOptions = EndpointOptions { listen: false, uri_part: true };
    const SERVER: EndpointOptions = EndpointOptions { listen: false, uri_part: false };

    fn parts(text: &str, options: EndpointOptions) -> Result<String, &'static str> {
        let e = parse_endpoint(text.as_bytes(), options)?;
        let host = match e.host {
            Host::Any => "any".to_owned(),
            Host::V4(v4) => v4.to_string(),
            Host::V6(v6) => v6.to_string(),
            Host::Name(name) => format!("name {}", String::from_utf8_lossy(name)),
            Host::Unix(path) => format!("unix {}", String::from_utf8_lossy(path)),
        };
        let ports = match (e.port, e.last_port) {
            (None, _) => "-".to_owned(),
            (Some(port), None) => port.to_string(),
            (Some(port), Some(last)) => format!("{port}-{last}"),
        };
        Ok(format!("{host} {ports} {}", String::from_utf8_lossy(e.uri)).trim_end().to_owned())
    }

    #[test]
    fn listening() {
        for (text, expected) in [
            ("80", Ok("any 80")),
            ("*:80", Ok("any 80")),
            ("*", Ok("any -")),
            ("127.0.0.1", Ok("127.0.0.1 -")),
            ("127.0.0.1:8080", Ok("127.0.0.1 8080")),
            ("localhost:80", Ok("name localhost 80")),
            ("localhost", Ok("name localhost -")),
            ("my-host", Ok("name my-host -")),
            ("8000-8010", Ok("any 8000-8010")),
            ("*:8000-8010", Ok("any 8000-8010")),
            ("[::]:8000-8010", Ok(":: 8000-8010")),
            ("[::1]", Ok("::1 -")),
            ("unix:/tmp/s", Ok("unix /tmp/s -")),
            ("UNIX:/tmp/s:/x", Ok("unix /tmp/s:/x -")),
            ("8010-8000", Err("invalid port range")),
            ("0", Err("invalid port")),
            ("65536", Err("invalid port")),
            ("80-65536", Err("invalid port")),
            ("*:0", Err("invalid port")),
            ("*:", Err("invalid port")),
            ("*:80a", Err("invalid port")),
            (":80", Err("no host")),
            ("", Err("no host")),
            ("a/b", Err("invalid host")),
            ("[::1", Err("invalid host")),
            ("[::1]x", Err("invalid host")),
            ("[::1]/x", Err("invalid host")),
            ("[]:80", Err("no host")),
            ("[zz]:80", Err("invalid IPv6 address")),
            ("[::1]:", Err("invalid port")),
            ("unix:", Err("no path in the unix domain socket")),
        ] {
            assert_eq!(parts(text, LISTEN), expected.map(str::to_owned), "{text}");
        }
        let long = format!("unix:/{}", "a".repeat(107));
        assert_eq!(parts(&long, LISTEN), Err("too long path in the unix domain socket"));
    }

    #[test]
    fn passing() {
        for (text, expected) in [
            ("host:81/a:b?c", Ok("name host 81 /a:b?c")),
            ("host/a:b", Ok("name host - /a:b")),
            ("host?a/b", Ok("name host - ?a/b")),
            ("80", Ok("name 80 -")),
            ("*:80", Ok("name * 80")),
            ("[::1]:80/x", Ok("::1 80 /x")),
            ("unix:/s:/x", Ok("unix /s - /x")),
            ("host:80-90", Err("invalid port")),
        ] {
            assert_eq!(parts(text, PASS), expected.map(str::to_owned), "{text}");
        }
        assert_eq!(parts("host:80/x", SERVER), Err("invalid host"));
        assert_eq!(parts("unix:/a:b", SERVER), Ok("unix /a:b -".to_owned()));
    }

    #[test]
    fn wildcards() {
        let wild = |text: &str| parse_endpoint(text.as_bytes(), LISTEN).unwrap().is_wildcard();
        assert!(wild("80") && wild("*:80") && wild("0.0.0.0:80") && wild("[::]:80"));
        assert!(!wild("127.0.0.1:80") && !wild("[::1]:80") && !wild("unix:/s"));
    }
}
