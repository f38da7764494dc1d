//! The protocols that requests are passed on by, each a family.

pub mod fastcgi;
pub mod grpc;
pub mod memcached;
pub mod proxy;
pub mod scgi;
pub mod uwsgi;

use crate::conf::BackendLoc;
use crate::family::Family;
use std::path::PathBuf;
use weir_http::generation::HttpConf;

/// Every family.
static FAMILIES: &[&Family] = &[
    &proxy::FAMILY,
    &fastcgi::FAMILY,
    &uwsgi::FAMILY,
    &scgi::FAMILY,
    &grpc::FAMILY,
    &memcached::FAMILY,
];

/// Whether some connections to servers are made from addresses that are not this machine's.
pub fn binds_any_source(http: &HttpConf) -> bool {
    let is_any = |b: &BackendLoc| b.bind.as_ref().is_some_and(|b| b.transparent);
    http.locations.iter().any(|l| FAMILIES.iter().any(|f| is_any((f.conf)(l))))
}

/// The directories for answers that are too large for memory.
pub fn temp_dirs(http: &HttpConf) -> Vec<PathBuf> {
    let mut dirs = Vec::new();
    for family in FAMILIES.iter().filter(|f| f.buffers) {
        dirs.extend(http.locations.iter().map(|l| (family.conf)(l).temp_path.path.clone()));
    }
    dirs.sort();
    dirs.dedup();
    dirs
}
