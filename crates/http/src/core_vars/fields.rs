//! Header fields, cookies and query arguments by name.

use crate::flow::VarArg;
use crate::request::Request;
use weir_base::bytes::starts_with_ignore_case;
use weir_wire::http1::names::HeaderId;

/// All fields of that number, joined.
fn known(r: &Request, id: HeaderId, separator: &[u8], out: &mut Vec<u8>) -> bool {
    if !r.head.has(id) {
        return false;
    }
    let mut found = false;
    for field in r.head.get_all(id) {
        if found {
            out.extend_from_slice(separator);
        }
        out.extend_from_slice(r.bytes(field.value));
        found = true;
    }
    found
}

pub(super) fn http_host(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    known(r, HeaderId::Host, b", ", out)
}

pub(super) fn http_user_agent(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    known(r, HeaderId::UserAgent, b", ", out)
}

pub(super) fn http_referer(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    known(r, HeaderId::Referer, b", ", out)
}

pub(crate) fn http_via(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    known(r, HeaderId::Via, b", ", out)
}

pub(crate) fn http_x_forwarded_for(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    known(r, HeaderId::XForwardedFor, b", ", out)
}

pub(crate) fn http_cookie(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    known(r, HeaderId::Cookie, b"; ", out)
}

pub(super) fn content_type(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    known(r, HeaderId::ContentType, b", ", out)
}

pub(crate) fn http_any(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    join(r.headers(), &arg.name, out)
}

/// Joins the fields that a variable's name stands for: `_` there is `-` in the field's name.
pub(super) fn join<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    name: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let mut found = false;
    for (_, value) in fields.filter(|(n, _)| names_match(n, name)) {
        if found {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
        found = true;
    }
    found
}

fn names_match(field: &[u8], name: &[u8]) -> bool {
    let same = |(f, n): (&u8, &u8)| match f {
        b'-' => *n == b'_',
        f => f.to_ascii_lowercase() == *n,
    };
    field.len() == name.len() && field.iter().zip(name).all(same)
}

pub(super) fn cookie(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    if !r.head.has(HeaderId::Cookie) {
        return false;
    }
    let lines = r.head.get_all(HeaderId::Cookie).map(|f| r.bytes(f.value));
    match lines.into_iter().find_map(|line| cookie_value(line, &arg.name)) {
        Some(value) => {
            out.extend_from_slice(value);
            true
        }
        None => false,
    }
}

/// The value of a cookie in one `Cookie` line; the name's case does not count, as in nginx.
pub fn cookie_value<'a>(line: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    line.split(|b| *b == b';').find_map(|part| {
        let part = skip_spaces(part);
        let (head, rest) = part.split_at_checked(name.len())?;
        if !head.eq_ignore_ascii_case(name) {
            return None;
        }
        skip_spaces(rest).strip_prefix(b"=").map(skip_spaces)
    })
}

fn skip_spaces(mut text: &[u8]) -> &[u8] {
    while let Some(rest) = text.strip_prefix(b" ") {
        text = rest;
    }
    text
}

pub(super) fn arg(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    match query_arg(&r.args, &arg.name) {
        Some(value) => {
            out.extend_from_slice(value);
            true
        }
        None => false,
    }
}

/// The first `name=value` of a query string, the name's case not counting, undecoded.
pub fn query_arg<'a>(args: &'a [u8], name: &[u8]) -> Option<&'a [u8]> {
    if name.is_empty() {
        return None;
    }
    args.split(|b| *b == b'&').find_map(|pair| {
        if !starts_with_ignore_case(pair, name) {
            return None;
        }
        pair[name.len()..].strip_prefix(b"=")
    })
}

/// For values that are missing when empty.
pub(super) fn non_empty(out: &mut Vec<u8>, value: Option<&[u8]>) -> bool {
    value.is_some_and(|v| some_if_any(out, v))
}

/// A value that counts as missing when it is empty.
pub(super) fn some_if_any(out: &mut Vec<u8>, value: &[u8]) -> bool {
    out.extend_from_slice(value);
    !value.is_empty()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cookies() {
        let line = b"a=1; Bb = two ;c; d=;a=2";
        assert_eq!(cookie_value(line, b"a"), Some(&b"1"[..]));
        assert_eq!(cookie_value(line, b"bb"), Some(&b"two "[..]));
        assert_eq!(cookie_value(line, b"c"), None);
        assert_eq!(cookie_value(line, b"d"), Some(&b""[..]));
        assert_eq!(cookie_value(line, b"b"), None);
    }

    #[test]
    fn arguments() {
        let args = b"a=1&foo=x%20y&AB=2&a=3&b";
        assert_eq!(query_arg(args, b"a"), Some(&b"1"[..]));
        assert_eq!(query_arg(args, b"ab"), Some(&b"2"[..]));
        assert_eq!(query_arg(args, b"foo"), Some(&b"x%20y"[..]));
        assert_eq!(query_arg(args, b"b"), None);
        assert_eq!(query_arg(args, b""), None);
        assert_eq!(query_arg(b"", b"a"), None);
    }

    #[test]
    fn joined_fields() {
        let fields: [(&[u8], &[u8]); 3] = [(b"X-A", b"1"), (b"x-b", b"2"), (b"x-a", b"3")];
        let mut out = Vec::new();
        assert!(join(fields.into_iter(), b"x_a", &mut out));
        assert_eq!(out, b"1, 3");
        assert!(!join(fields.into_iter(), b"x_c", &mut out));
    }
}
