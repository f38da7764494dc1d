//! The dialects of `…_cache_purge`, told apart by how many words there are and what they look like.

use crate::cache::conf::{ByMethod, CacheConf, CacheMain, Named, Purge, StoreTo, Use};
use crate::conf::BackendConf;
use crate::rows::pick;
use std::sync::Arc;
use weir_base::addr::Cidr;
use weir_http::conf::CoreLoc;
use weir_http::vars::template;
use weir_module::{name, ArgsExt, Cf, ConfResult, Context, Directive};

pub(crate) fn set_purge<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let has_variable = |i: usize| memchr::memchr(b'$', d.arg(i)).is_some();
    let is_list = matches!(d.arg(1), b"from" | b"purge_all");
    match d.args.len() {
        1 if d.arg(0) == b"off" => say(&mut pick::<T>(cf).cache, d, Purge::Off),
        2 if !has_variable(0) && !is_list => set_entry::<T>(cf, d),
        _ if !is_list && (0..d.args.len()).any(has_variable) => set_strings::<T>(cf, d),
        _ => {
            let by = by_method(cf, d)?;
            say(&mut pick::<T>(cf).cache, d, Purge::ByMethod(by))
        }
    }
}

fn say(conf: &mut CacheConf, d: &Directive, purge: Purge) -> ConfResult {
    conf.purge.once(d, Arc::new(purge))
}

/// NGINX Plus's: strings, in as many directives as one likes.
fn set_strings<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let more = (0..d.args.len()).map(|i| template(cf, d, i)).collect::<ConfResult<Vec<_>>>()?;
    let purge = &mut pick::<T>(cf).cache.purge;
    let all = match purge.as_option().map(|p| &**p) {
        Some(Purge::If(list)) => list.iter().cloned().chain(more).collect(),
        Some(_) => return Err(d.error("is duplicate")),
        None => more,
    };
    purge.set(Arc::new(Purge::If(all)));
    Ok(())
}

/// `on|METHOD [purge_all] [from all|NETWORK…]`
fn by_method(cf: &mut Cf, d: &Directive) -> ConfResult<ByMethod> {
    let method = match d.arg(0) {
        b"on" => b"PURGE".to_vec(),
        method => method.to_vec(),
    };
    let all = d.arg(1) == b"purge_all";
    let at = if all { 2 } else { 1 };
    if d.args.len() == 1 {
        return Ok(ByMethod { method, all, from: None });
    }
    let shown = |i: usize| String::from_utf8_lossy(d.arg(i)).into_owned();
    if d.arg(at) != b"from" {
        let i = at.min(d.args.len() - 1);
        return Err(
            d.bad(i, format!("invalid parameter \"{}\", expected \"from\" keyword", shown(i)))
        );
    }
    if d.args.len() == at + 1 {
        let e = d.bad(at, "no address follows \"from\"");
        return Err(e.hint("write \"from all\", or networks that may purge".into()));
    }
    if d.arg(at + 1) == b"all" && d.args.len() == at + 2 {
        return Ok(ByMethod { method, all, from: None });
    }
    let mut from = Vec::new();
    for i in at + 1..d.args.len() {
        let Some((net, low_bits)) = Cidr::parse(d.arg(i)) else {
            return Err(d.bad(i, format!("invalid parameter \"{}\"", shown(i))));
        };
        if low_bits {
            cf.warn(d, format!("low address bits of {} are meaningless", shown(i)));
        }
        from.push(net);
    }
    Ok(ByMethod { method, all, from: Some(from) })
}

/// `ZONE KEY`: a location that does nothing else.
fn set_entry<T: BackendConf>(cf: &mut Cf, d: &Directive) -> ConfResult {
    if cf.context != Context::LOCATION {
        return Err(d.error("(separate location syntax) is not allowed here"));
    }
    let conf = pick::<T>(cf);
    let is_cached = conf.cache.cache.as_option().is_some_and(|c| !matches!(c, Use::Off));
    let is_stored = conf.cache.store.as_option().is_some_and(|s| !matches!(s, StoreTo::Off));
    let other = match () {
        () if is_cached => Some(name!("cache")),
        () if conf.pass.is_some() => Some(name!("pass")),
        () if is_stored => Some(name!("store")),
        () => None,
    };
    if let Some(other) = other {
        return Err(d.error(&format!("is incompatible with \"{other}\"")));
    }
    let named = Arc::new(Named::new(name!("cache_purge"), d.arg(0).to_vec()));
    cf.get::<CacheMain>().named.push(Arc::clone(&named));
    let key = template(cf, d, 1)?;
    say(&mut pick::<T>(cf).cache, d, Purge::Entry { zone: Use::Zone(named), key })?;
    cf.get::<CoreLoc>().handler = Some(super::handler::<T>);
    Ok(())
}
