//! What a server says of itself in its answer's header, in the client's terms.

use super::conf::ProxyLoc;
use super::rewrite::{self, CookieRules};
use std::rc::Rc;
use weir_http::Request;
use weir_wire::http1::names::ResponseHeaderId as Id;
use weir_wire::http1::response::ResponseField;

/// Copies `Location`, `Refresh` or `Set-Cookie` the way the directives say.
pub(crate) fn copy_rewritten(r: &mut Request, f: &ResponseField) {
    let loc = Rc::clone(r.loc());
    let conf = loc.conf::<ProxyLoc>();
    match f.id {
        Id::Location | Id::Refresh if *conf.redirect => redirect(r, conf, f),
        Id::SetCookie if conf.rewrites_cookies() => set_cookie(r, conf, f),
        _ => untouched(r, f),
    }
}

fn untouched(r: &mut Request, f: &ResponseField) {
    let bytes = r.exchange.head_bytes();
    let value = f.value.of(bytes);
    let full = f.id == Id::Location && !value.starts_with(b"/");
    r.out.add(f.name.of(bytes), value);
    r.flags.own_location |= full;
}

fn redirect(r: &mut Request, conf: &ProxyLoc, f: &ResponseField) {
    let rules = match &conf.redirects {
        Some(rules) if !rules.is_empty() => rules,
        _ => return untouched(r, f),
    };
    let bytes = r.exchange.head_bytes();
    let (name, value) = (f.name.of(bytes).to_vec(), f.value.of(bytes).to_vec());
    let fresh = match f.id {
        Id::Location => rewrite::location(r, rules, &value),
        _ => rewrite::refresh(r, rules, &value),
    };
    r.out.add(&name, fresh.as_deref().unwrap_or(&value));
    if fresh.is_some() && f.id == Id::Location {
        r.flags.own_location = true;
    }
}

fn set_cookie(r: &mut Request, conf: &ProxyLoc, f: &ResponseField) {
    let bytes = r.exchange.head_bytes();
    let (name, value) = (f.name.of(bytes).to_vec(), f.value.of(bytes).to_vec());
    let rules = CookieRules {
        domains: &conf.cookie_domains,
        paths: &conf.cookie_paths,
        flags: &conf.cookie_flags,
    };
    let fresh = rewrite::cookie(r, &rules, &value);
    r.out.add(&name, fresh.as_deref().unwrap_or(&value));
}
