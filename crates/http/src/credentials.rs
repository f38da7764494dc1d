//! What a client shows of who it is, and how it is asked for it: CONNECT is for a proxy, and has fields and a
//! status of its own (RFC 9110, section 11.7).

use crate::request::Request;
use weir_base::bytes::strip_prefix_ignore_case;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Method;

/// Where they stand.
pub fn field(r: &Request) -> HeaderId {
    match r.method {
        Method::Connect => HeaderId::ProxyAuthorization,
        _ => HeaderId::Authorization,
    }
}

/// User and password of an `Authorization: Basic` value; `None` if it is of another kind or broken. An
/// empty name is nobody's, as in nginx.
pub fn basic(value: &[u8]) -> Option<(Vec<u8>, Vec<u8>)> {
    let encoded = strip_prefix_ignore_case(value, b"Basic ")?;
    let start = encoded.iter().position(|b| *b != b' ')?;
    let plain = weir_base::base64::decode(&encoded[start..])?;
    let colon = plain.iter().position(|b| *b == b':').filter(|n| *n > 0)?;
    Some((plain[..colon].to_vec(), plain[colon + 1..].to_vec()))
}

/// How they are asked for: the field with the challenge, and the status.
pub fn challenge(r: &Request) -> (&'static [u8], u16) {
    match r.method {
        Method::Connect => (b"Proxy-Authenticate", 407),
        _ => (b"WWW-Authenticate", 401),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn credentials() {
        let pair = |text: &str| {
            basic(text.as_bytes()).map(|(u, p)| {
                format!("{}|{}", String::from_utf8_lossy(&u), String::from_utf8_lossy(&p))
            })
        };
        assert_eq!(pair("Basic dXNlcjpwYXNz").as_deref(), Some("user|pass"));
        assert_eq!(pair("basic   dXNlcjo=").as_deref(), Some("user|"));
        assert_eq!(pair("Basic dTphOmI="), Some("u|a:b".into()));
        assert_eq!(pair("Basic dXNlcg=="), None);
        assert_eq!(pair("Basic Om5vdXNlcg=="), None);
        assert_eq!(pair("Basic !!!!"), None);
        assert_eq!(pair("Basic "), None);
        assert_eq!(pair("Bearer dXNlcjpwYXNz"), None);
    }
}
