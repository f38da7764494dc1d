//! Where a responder is: the URL of a certificate or of the configuration.

use std::net::{SocketAddr, ToSocketAddrs};
use std::sync::Arc;
use weir_base::addr::{EndpointOptions, Host};
use weir_base::base64;
use weir_base::escape::{escape_uri, EscapeKind};
use weir_core::logger::LogLevel;
use weir_resolve::message::error_text;
use weir_resolve::{Failed, Question, Resolver};
use weir_runtime::listen::parse_endpoint;

const PORT: u16 = 80;
const SCHEME: &[u8] = b"http://";

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Responder {
    pub host: String,
    port: u16,
    uri: Vec<u8>,
    /// Known without a resolver: the host is an address, or was looked up with the configuration.
    addrs: Vec<SocketAddr>,
    is_name: bool,
}

impl Responder {
    pub fn parse(url: &str) -> Result<Responder, String> {
        let bytes = url.as_bytes();
        let rest = match bytes.split_at_checked(SCHEME.len()) {
            Some((scheme, rest)) if scheme.eq_ignore_ascii_case(SCHEME) => rest,
            _ => return Err(format!("invalid URL prefix in OCSP responder \"{url}\"")),
        };
        let bad =
            |why: &str| format!("{why} in OCSP responder \"{}\"", String::from_utf8_lossy(rest));
        // What a certificate says goes into a request line.
        if rest.iter().any(|b| *b <= b' ' || *b >= 0x7f) {
            return Err(bad("invalid character"));
        }
        let options = EndpointOptions { uri_part: true, ..EndpointOptions::default() };
        let at = parse_endpoint(rest, options).map_err(bad)?;
        let port = at.port.unwrap_or(PORT);
        let addrs = match at.host {
            Host::V4(ip) => vec![SocketAddr::new(ip.into(), port)],
            Host::V6(ip) => vec![SocketAddr::new(ip.into(), port)],
            Host::Name(_) => Vec::new(),
            Host::Any | Host::Unix(_) => return Err(bad("invalid host")),
        };
        let mut uri = at.uri.to_vec();
        if uri.first() != Some(&b'/') {
            uri.insert(0, b'/');
        }
        Ok(Responder {
            host: String::from_utf8_lossy(at.host_text).into_owned(),
            port,
            uri,
            is_name: addrs.is_empty(),
            addrs,
        })
    }

    /// Looks the host up, when it is a name: for when no resolver does it at run time.
    pub fn look_up(&mut self) -> Result<(), String> {
        if !self.is_name {
            return Ok(());
        }
        let found = (self.host.as_str(), self.port).to_socket_addrs().map(Vec::from_iter);
        match found {
            Ok(found) if !found.is_empty() => self.addrs = found,
            _ => return Err(format!("host not found in OCSP responder \"{}\"", self.host)),
        }
        Ok(())
    }

    /// GET with the question in the path (appendix A.1).
    pub fn request(&self, question: &[u8]) -> Vec<u8> {
        let mut text = b"GET ".to_vec();
        text.extend_from_slice(&self.uri);
        if !self.uri.ends_with(b"/") {
            text.push(b'/');
        }
        let mut encoded = Vec::new();
        base64::encode(&mut encoded, question);
        escape_uri(&mut text, &encoded, EscapeKind::UriComponent);
        text.extend_from_slice(b" HTTP/1.0\r\nHost: ");
        text.extend_from_slice(self.host.as_bytes());
        if self.port != PORT {
            text.extend_from_slice(format!(":{}", self.port).as_bytes());
        }
        text.extend_from_slice(b"\r\n\r\n");
        text
    }

    /// Its addresses, by the resolver if there is one; none after an error, which is logged.
    pub async fn addresses<L: Fn(LogLevel, &str)>(
        &self,
        resolver: Option<&Arc<Resolver>>,
        wait_ms: u64,
        log: &L,
    ) -> Vec<SocketAddr> {
        let host = &self.host;
        if !self.is_name {
            return self.addrs.clone();
        }
        let Some(resolver) = resolver else {
            let level = match self.addrs.is_empty() {
                true => LogLevel::Error,
                false => LogLevel::Warn,
            };
            log(level, &format!("no resolver defined to resolve {host}"));
            return self.addrs.clone();
        };
        match resolver.resolve(Question::Name(host), wait_ms).await {
            Ok(found) => found.targets.iter().map(|t| SocketAddr::new(t.ip, self.port)).collect(),
            Err(Failed { code, .. }) => {
                let why = error_text(code);
                log(LogLevel::Error, &format!("{host} could not be resolved ({code}: {why})"));
                Vec::new()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn urls() {
        let line = |url: &str| {
            let text = Responder::parse(url).unwrap().request(&[0xfb, 0xff, 0xfe]);
            String::from_utf8(text).unwrap().replace("\r\n", "|")
        };
        assert_eq!(line("http://a.test"), "GET /%2B%2F%2F%2B HTTP/1.0|Host: a.test||");
        let long = line("HTTP://[::1]:81/x?y");
        assert_eq!(long, "GET /x?y/%2B%2F%2F%2B HTTP/1.0|Host: [::1]:81||");
        let wrong = |url: &str| Responder::parse(url).unwrap_err();
        assert_eq!(wrong("https://a"), "invalid URL prefix in OCSP responder \"https://a\"");
        assert_eq!(wrong("http://a:x/"), "invalid port in OCSP responder \"a:x/\"");
        assert_eq!(wrong("http://"), "no host in OCSP responder \"\"");
        assert!(wrong("http://a/ HTTP/1.0\r\nX: y").starts_with("invalid character"));
    }
}
