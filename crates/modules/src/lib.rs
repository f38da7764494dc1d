//! nginx's HTTP modules, one file each. This is the one ordered list.

mod access;
mod headers;
mod limit_conn;
mod limit_req;
mod log;
mod lru;
mod map;
mod rewrite;
mod split_clients;
mod util;
mod zones;

use std::path::PathBuf;
use weir_http::generation::Generation;
use weir_http::HttpModule;

/// Every module. Handlers of a phase and filters run in this order.
pub const MODULES: &[&HttpModule] = &[
    &weir_http::core_rows::MODULE,
    &log::MODULE,
    &rewrite::MODULE,
    &access::MODULE,
    &limit_conn::MODULE,
    &limit_req::MODULE,
    &map::MODULE,
    &split_clients::MODULE,
    &headers::MODULE,
    &headers::TRAILERS,
];

/// What `weir -V` lists, in nginx's words.
pub const CONFIGURE_ARGUMENTS: &[&str] = &["--with-threads"];

/// Directories for temporary files besides the core's.
pub fn temp_dirs(_gen: &Generation) -> Vec<PathBuf> {
    Vec::new()
}
