//! The header of a request as a list of fields with pseudo-fields among them: which of these there must be,
//! where, and what else may stand beside them. HTTP/2 (RFC 9113 section 8) and HTTP/3 (RFC 9114 section 4)
//! have the same rules. They are held with nginx's words for the log, and each breach is a status of 400.

use crate::http1::names::HeaderId;
use crate::http1::request::{Method, RequestHead};
use crate::scan::Range32;

/// What the pseudo-fields of a request said, and where in its text.
#[derive(Default, Debug)]
pub struct Pseudo {
    pub method: Option<Range32>,
    pub scheme: Option<Range32>,
    pub path: Option<Range32>,
    pub authority: Option<Range32>,
    /// A regular field has come: no more of these may.
    over: bool,
}

/// What a field is that keeps to the rules.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// Its value is a method's name.
    Method(Method),
    /// Its value is the scheme of an URI.
    Scheme,
    /// Its value has yet to be read as a path.
    Path,
    /// Its value has yet to be read as a host.
    Authority,
    /// A regular one; an odd one has letters that nginx wants to be allowed (`ignore_invalid_headers`).
    Regular { is_odd: bool },
}

/// Why a request is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Bad {
    Name(Range32),
    Value {
        name: Range32,
        value: Range32,
    },
    OutOfOrder,
    Unknown(Range32),
    Duplicate(Range32),
    Empty(Range32),
    Method(Range32),
    Scheme(Range32),
    Path(Range32),
    Authority,
    Missing(&'static str),
    /// A field of HTTP/1's connections.
    Connection(&'static str),
    Te,
    NoHost,
    Hosts,
}

impl Bad {
    /// nginx's words.
    pub fn write(self, text: &[u8], out: &mut Vec<u8>) {
        let parts: &[&[u8]] = match self {
            Bad::Name(name) => &[b"client sent invalid header name: \"", name.of(text), b"\""],
            Bad::Value { name, value } => &[
                b"client sent header \"",
                name.of(text),
                b"\" with invalid value: \"",
                value.of(text),
                b"\"",
            ],
            Bad::OutOfOrder => &[b"client sent out of order pseudo-headers"],
            Bad::Unknown(name) => &[b"client sent unknown pseudo-header \"", name.of(text), b"\""],
            Bad::Duplicate(name) => &[b"client sent duplicate ", name.of(text), b" header"],
            Bad::Empty(name) => &[b"client sent empty ", name.of(text), b" header"],
            Bad::Method(value) => &[b"client sent invalid method: \"", value.of(text), b"\""],
            Bad::Scheme(value) => {
                &[b"client sent invalid :scheme header: \"", value.of(text), b"\""]
            }
            Bad::Path(value) => &[b"client sent invalid :path header: \"", value.of(text), b"\""],
            Bad::Authority => &[b"client sent invalid \":authority\" header"],
            Bad::Missing(name) => &[b"client sent no ", name.as_bytes(), b" header"],
            Bad::Connection(name) => &[b"client sent \"", name.as_bytes(), b"\" header"],
            Bad::Te => &[b"client sent invalid \"TE\" header"],
            Bad::NoHost => &[b"client sent neither \":authority\" nor \"Host\" header"],
            Bad::Hosts => {
                &[b"client sent \":authority\" and \"Host\" headers with different values"]
            }
        };
        parts.iter().for_each(|part| out.extend_from_slice(part));
    }
}

impl Pseudo {
    /// Takes the next field of the list. With `underscores` these are among the usual letters.
    pub fn take(
        &mut self,
        text: &[u8],
        name: Range32,
        value: Range32,
        underscores: bool,
    ) -> Result<Kind, Bad> {
        let letters = name.of(text);
        let is_pseudo = letters.first() == Some(&b':');
        let mut is_odd = false;
        for b in letters.iter().skip(usize::from(is_pseudo)) {
            match b {
                b'a'..=b'z' | b'0'..=b'9' | b'-' => {}
                b'_' if underscores => {}
                0..=0x20 | 0x7f | b':' | b'A'..=b'Z' => return Err(Bad::Name(name)),
                _ => is_odd = true,
            }
        }
        if memchr::memchr3(0, b'\n', b'\r', value.of(text)).is_some() {
            return Err(Bad::Value { name, value });
        }
        if is_pseudo {
            return self.take_pseudo(text, name, value);
        }
        if !std::mem::replace(&mut self.over, true) {
            self.complete()?;
        }
        Ok(Kind::Regular { is_odd })
    }

    fn take_pseudo(&mut self, text: &[u8], name: Range32, value: Range32) -> Result<Kind, Bad> {
        if self.over {
            return Err(Bad::OutOfOrder);
        }
        let said = value.of(text);
        let (place, kind) = match name.of(text) {
            b":path" => (&mut self.path, Kind::Path),
            b":method" => (&mut self.method, Kind::Method(Method::from_bytes(said))),
            b":scheme" => (&mut self.scheme, Kind::Scheme),
            b":authority" => (&mut self.authority, Kind::Authority),
            _ => return Err(Bad::Unknown(name)),
        };
        if place.replace(value).is_some() {
            return Err(Bad::Duplicate(name));
        }
        match kind {
            Kind::Authority => {}
            _ if said.is_empty() => return Err(Bad::Empty(name)),
            Kind::Method(Method::Other) if !is_method(said) => return Err(Bad::Method(value)),
            Kind::Scheme if !is_scheme(said) => return Err(Bad::Scheme(value)),
            _ => {}
        }
        Ok(kind)
    }

    /// Whether all have come that must.
    pub fn complete(&self) -> Result<(), Bad> {
        match (self.method, self.scheme, self.path) {
            (None, _, _) => Err(Bad::Missing(":method")),
            (_, None, _) => Err(Bad::Missing(":scheme")),
            (_, _, None) => Err(Bad::Missing(":path")),
            _ => Ok(()),
        }
    }

    /// Whether a `Host`, if there is one, says the same.
    pub fn agrees_with(&self, host: Option<&[u8]>, text: &[u8]) -> Result<(), Bad> {
        match (self.authority, host) {
            (Some(authority), Some(host)) if authority.of(text) != host => Err(Bad::Hosts),
            _ => Ok(()),
        }
    }
}

fn is_method(text: &[u8]) -> bool {
    text.iter().all(|b| b.is_ascii_uppercase() || matches!(b, b'_' | b'-'))
}

/// RFC 3986 section 3.1.
fn is_scheme(text: &[u8]) -> bool {
    let more = |b: &u8| b.is_ascii_alphanumeric() || matches!(b, b'+' | b'-' | b'.');
    text.first().is_some_and(u8::is_ascii_alphabetic) && text.iter().all(more)
}

/// Fields that are HTTP/1's connections' (RFC 9113 section 8.2.2, RFC 9114 section 4.2).
pub fn check_connection_fields(head: &RequestHead, text: &[u8]) -> Result<(), Bad> {
    for (id, name) in [
        (HeaderId::Connection, "Connection"),
        (HeaderId::KeepAlive, "Keep-Alive"),
        (HeaderId::ProxyConnection, "Proxy-Connection"),
        (HeaderId::TransferEncoding, "Transfer-Encoding"),
        (HeaderId::Upgrade, "Upgrade"),
    ] {
        if head.has(id) {
            return Err(Bad::Connection(name));
        }
    }
    let mut te = head.get_all(HeaderId::Te).map(|h| h.value.of(text));
    match (te.next(), te.next()) {
        (None, _) => Ok(()),
        (Some(v), None) if v.eq_ignore_ascii_case(b"trailers") => Ok(()),
        _ => Err(Bad::Te),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http1::field::Field;
    use crate::http1::request::Limits;

    const GET: [(&str, &str); 3] = [(":method", "GET"), (":scheme", "https"), (":path", "/")];

    /// What becomes of a list of fields: nginx's words for the first breach, or "".
    fn judged(fields: &[(&str, &str)]) -> String {
        let mut text = Vec::new();
        let mut keep = |part: &str| {
            text.extend_from_slice(part.as_bytes());
            Range32 { start: (text.len() - part.len()) as u32, end: text.len() as u32 }
        };
        let fields: Vec<_> = fields.iter().map(|(n, v)| (keep(n), keep(v))).collect();
        let mut pseudo = Pseudo::default();
        let mut head = RequestHead::default();
        let limits = Limits { underscores_in_headers: true, ..Limits::default() };
        let mut all = || {
            for (name, value) in &fields {
                if let Kind::Regular { is_odd } = pseudo.take(&text, *name, *value, true)? {
                    let field = Field { name: *name, value: *value, invalid: is_odd };
                    head.add_field(&text, field, &limits).unwrap();
                }
            }
            pseudo.complete()?;
            check_connection_fields(&head, &text)?;
            pseudo.agrees_with(head.value(HeaderId::Host, &text), &text)
        };
        let mut said = Vec::new();
        if let Err(bad) = all() {
            bad.write(&text, &mut said);
        }
        String::from_utf8(said).unwrap()
    }

    fn with(more: &[(&'static str, &'static str)]) -> String {
        judged(&[&GET, more].concat())
    }

    #[test]
    fn what_must_be_there() {
        assert_eq!(judged(&GET), "");
        for (left_out, name) in [":method", ":scheme", ":path"].iter().enumerate() {
            let mut fields = GET.to_vec();
            fields.remove(left_out);
            assert_eq!(judged(&fields), format!("client sent no {name} header"));
            // It is told as soon as nothing more may come.
            fields.push(("a", "b"));
            fields.push(("B", "c"));
            assert_eq!(judged(&fields), format!("client sent no {name} header"));
        }
    }

    #[test]
    fn order_and_number() {
        assert_eq!(
            with(&[("a", "b"), (":authority", "x")]),
            "client sent out of order pseudo-headers"
        );
        assert_eq!(with(&[(":path", "/")]), "client sent duplicate :path header");
        assert_eq!(with(&[(":status", "200")]), "client sent unknown pseudo-header \":status\"");
        assert_eq!(judged(&[(":path", "")]), "client sent empty :path header");
        assert_eq!(with(&[(":authority", "")]), "");
    }

    #[test]
    fn letters() {
        assert_eq!(judged(&[(":Path", "/")]), "client sent invalid header name: \":Path\"");
        assert_eq!(with(&[("a b", "c")]), "client sent invalid header name: \"a b\"");
        assert_eq!(with(&[("", "c"), ("a_b", "c"), ("a(b", "c")]), "");
        let split = "client sent header \"a\" with invalid value: \"b\nc\"";
        assert_eq!(with(&[("a", "b\nc")]), split);
        assert_eq!(judged(&[(":method", "get")]), "client sent invalid method: \"get\"");
        assert_eq!(judged(&[(":method", "M-SEARCH")]), "client sent no :scheme header");
        for scheme in ["1http", "ht tp", "https/"] {
            let text = format!("client sent invalid :scheme header: \"{scheme}\"");
            assert_eq!(judged(&[(":scheme", scheme)]), text);
        }
    }

    #[test]
    fn fields_of_connections() {
        for (name, shown) in [
            ("connection", "Connection"),
            ("keep-alive", "Keep-Alive"),
            ("proxy-connection", "Proxy-Connection"),
            ("transfer-encoding", "Transfer-Encoding"),
            ("upgrade", "Upgrade"),
        ] {
            assert_eq!(with(&[(name, "x")]), format!("client sent \"{shown}\" header"));
        }
        assert_eq!(with(&[("te", "Trailers")]), "");
        for te in [&[("te", "gzip")][..], &[("te", "trailers"), ("te", "trailers")]] {
            assert_eq!(with(te), "client sent invalid \"TE\" header");
        }
    }

    #[test]
    fn two_hosts_are_one() {
        assert_eq!(with(&[(":authority", "a"), ("host", "a")]), "");
        assert_eq!(with(&[("host", "a")]), "");
        let text = "client sent \":authority\" and \"Host\" headers with different values";
        assert_eq!(with(&[(":authority", "a"), ("host", "A")]), text);
    }
}
