//! `$upstream_*`: what was asked of which server, and what it answered.

use weir_base::bytes::fmt_u64;
use weir_http::module::{VarArg, Variable};
use weir_http::timing::UpstreamState;
use weir_http::Request;

pub static VARIABLES: &[Variable] = &[
    Variable::new("upstream_addr", |r, _, out| {
        each(r, out, |s, out| out.extend_from_slice(&s.peer))
    }),
    Variable::new("upstream_status", |r, _, out| {
        each(r, out, |s, out| match s.status {
            0 => out.push(b'-'),
            n => fmt_u64(out, u64::from(n)),
        })
    }),
    Variable::new("upstream_connect_time", |r, _, out| {
        each(r, out, |s, out| time(s.connect_ms, out))
    }),
    Variable::new("upstream_header_time", |r, _, out| {
        each(r, out, |s, out| time(s.header_ms, out))
    }),
    Variable::new("upstream_response_time", |r, _, out| {
        each(r, out, |s, out| time(s.response_ms, out))
    }),
    Variable::new("upstream_response_length", |r, _, out| {
        each(r, out, |s, out| fmt_u64(out, s.response_length))
    }),
    Variable::new("upstream_bytes_received", |r, _, out| {
        each(r, out, |s, out| fmt_u64(out, s.bytes_received))
    }),
    Variable::new("upstream_bytes_sent", |r, _, out| {
        each(r, out, |s, out| fmt_u64(out, s.bytes_sent))
    }),
    Variable::prefixed("upstream_http_", header),
    Variable::prefixed("upstream_trailer_", trailer),
    Variable::prefixed("upstream_cookie_", cookie),
];

/// Values of one group of tries are joined by `", "`, groups by `" : "`.
fn each(r: &Request, out: &mut Vec<u8>, f: impl Fn(&UpstreamState, &mut Vec<u8>)) -> bool {
    for (i, state) in r.upstream.iter().enumerate() {
        if i > 0 {
            out.extend_from_slice(if state.new_group { b" : " } else { b", " });
        }
        f(state, out);
    }
    !r.upstream.is_empty()
}

fn time(ms: Option<u64>, out: &mut Vec<u8>) {
    let Some(ms) = ms else { return out.push(b'-') };
    fmt_u64(out, ms / 1000);
    out.push(b'.');
    let rest = ms % 1000;
    out.extend([rest / 100, rest / 10 % 10, rest % 10].map(|d| b'0' + d as u8));
}

/// Whether a field's name is the variable's: letters in either case, `-` for `_`.
fn names(field: &[u8], variable: &[u8]) -> bool {
    let same = |(f, v): (&u8, &u8)| match f {
        b'-' => *v == b'_',
        f => f.to_ascii_lowercase() == *v,
    };
    field.len() == variable.len() && field.iter().zip(variable).all(same)
}

fn join<'a>(
    fields: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    name: &[u8],
    out: &mut Vec<u8>,
) -> bool {
    let mut found = false;
    for (_, value) in fields.filter(|(n, _)| names(n, name)) {
        if found {
            out.extend_from_slice(b", ");
        }
        out.extend_from_slice(value);
        found = true;
    }
    found
}

fn header(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    r.exchange.answered && join(r.exchange.fields(), &arg.name, out)
}

fn trailer(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    let fields = r.exchange.trailers.iter().map(|(n, v)| (n.as_slice(), v.as_slice()));
    join(fields, &arg.name, out)
}

/// The value that a `Set-Cookie` of the answer gives the cookie.
fn cookie(r: &mut Request, arg: &VarArg, out: &mut Vec<u8>) -> bool {
    if !r.exchange.answered {
        return false;
    }
    let set = r.exchange.fields().filter(|(n, _)| n.eq_ignore_ascii_case(b"Set-Cookie"));
    for (_, value) in set {
        let pair = value.split(|b| *b == b';').next().unwrap_or_default();
        let Some((name, value)) = weir_base::bytes::split_once(pair, b'=') else { continue };
        if trim(name).eq_ignore_ascii_case(&arg.name) {
            out.extend_from_slice(trim(value));
            return true;
        }
    }
    false
}

fn trim(text: &[u8]) -> &[u8] {
    weir_base::bytes::trim_with(text, |b| b == b' ')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_times() {
        assert!(names(b"X-Foo-Bar", b"x_foo_bar"));
        assert!(!names(b"X-Foo", b"x_foo_bar") && !names(b"X+Foo", b"x_foo"));
        let mut out = Vec::new();
        time(Some(12_034), &mut out);
        time(None, &mut out);
        assert_eq!(out, b"12.034-");
    }
}
