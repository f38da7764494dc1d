//! `$proxy_*`.

use super::conf::{ProxyLoc, SCHEMES};
use crate::target::{Parts, Pass};
use std::rc::Rc;
use weir_base::bytes::fmt_u64;
use weir_core::Session;
use weir_http::module::{VarArg, Variable};
use weir_http::Request;
use weir_runtime::listen::parse_endpoint;
use weir_wire::http1::names::HeaderId;

pub(crate) static VARIABLES: &[Variable] = &[
    Variable::new("proxy_host", |r, _, out| part(r, out, |p| &p.host)),
    Variable::new("proxy_port", |r, _, out| part(r, out, |p| &p.port)),
    Variable::new("proxy_add_x_forwarded_for", add_x_forwarded_for),
    Variable::new("proxy_internal_body_length", body_length),
    Variable::new("proxy_internal_chunked", |r, _, out| {
        let chunked = streams_chunked(r);
        if chunked {
            out.extend_from_slice(b"chunked");
        }
        chunked
    }),
];

/// A part of where `proxy_pass` leads here.
fn part(r: &mut Request, out: &mut Vec<u8>, pick: fn(&Parts) -> &Vec<u8>) -> bool {
    let loc = Rc::clone(r.loc());
    match &loc.conf::<ProxyLoc>().backend.pass {
        None => false,
        Some(Pass::Fixed(f)) => {
            out.extend_from_slice(pick(&f.parts));
            true
        }
        Some(Pass::Vars(t)) => {
            let url = r.eval(t);
            let schemes = &SCHEMES;
            let Some((tls, rest)) = schemes.split(&url) else { return false };
            let Ok(endpoint) = parse_endpoint(rest, schemes.url()) else { return false };
            out.extend_from_slice(pick(&Parts::new(&endpoint, tls, schemes.usual_port(tls))));
            true
        }
    }
}

fn add_x_forwarded_for(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    for h in r.head.get_all(HeaderId::XForwardedFor) {
        out.extend_from_slice(h.value.of(&r.buf));
        out.extend_from_slice(b", ");
    }
    out.extend_from_slice(r.client_text());
    true
}

/// The client's body goes out as it comes, of a length not known before.
fn streams_chunked(r: &Request) -> bool {
    let conf = &r.loc().conf::<ProxyLoc>().backend;
    r.body.is_chunked() && !r.body.complete && !*conf.request_buffering && conf.streams_unmeasured
}

fn body_length(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<ProxyLoc>();
    if let Some(t) = &*conf.set_body {
        let length = r.eval(t).len();
        fmt_u64(out, length as u64);
        return true;
    }
    if r.body.is_none() || streams_chunked(r) {
        return false;
    }
    fmt_u64(out, r.body.announced().unwrap_or(r.body.length));
    true
}
