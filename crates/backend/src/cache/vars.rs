//! `$upstream_cache_*`.

use super::lookup::{status_of, State};
use weir_http::module::{VarArg, Variable};
use weir_http::Request;

pub(crate) static VARIABLES: &[Variable] = &[
    Variable::new("upstream_cache_status", status),
    Variable::new("upstream_cache_last_modified", last_modified),
    Variable::new("upstream_cache_etag", etag),
];

fn status(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let Some(status) = status_of(r) else { return false };
    out.extend_from_slice(status.name().as_bytes());
    true
}

/// When the stale answer was last modified, while its server is asked whether it still holds.
pub(crate) fn last_modified(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let Some(secs) = r.kept::<State>().and_then(|s| s.to_validate()?.meta.last_modified) else {
        return false;
    };
    out.extend_from_slice(&weir_base::date::http_time(secs));
    true
}

pub(crate) fn etag(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let Some(stored) = r.kept::<State>().and_then(|s| s.to_validate()) else { return false };
    out.extend_from_slice(&stored.meta.etag);
    !stored.meta.etag.is_empty()
}

/// The part that a server is asked for.
pub(crate) fn range(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let part = r.kept::<State>().and_then(|s| s.part.as_ref());
    out.extend_from_slice(part.map_or(&[], |part| &part.range));
    part.is_some()
}

/// Only of what its client has.
pub(crate) fn if_range(r: &mut Request, _: &VarArg, out: &mut Vec<u8>) -> bool {
    let part = r.kept::<State>().and_then(|s| s.part.as_ref());
    out.extend_from_slice(part.map_or(&[], |part| &part.if_range));
    part.is_some_and(|part| !part.if_range.is_empty())
}
