//! nginx's HTTP modules, one file each. This is the one ordered list.

mod access;
mod files;
mod gzip;
mod gzip_ok;
mod gzip_static;
mod headers;
mod index;
mod log;
mod map;
mod not_modified;
mod proxy;
mod range;
mod rewrite;
mod split_clients;
mod static_files;
mod try_files;
mod util;

use std::path::PathBuf;
use weir_http::generation::Generation;
use weir_http::HttpModule;

/// Every module. Handlers of a phase and filters run in this order.
pub const MODULES: &[&HttpModule] = &[
    &weir_http::core_rows::MODULE,
    &weir_upstream::MODULE,
    &log::MODULE,
    &gzip_ok::MODULE,
    &rewrite::MODULE,
    &access::MODULE,
    &map::MODULE,
    &split_clients::MODULE,
    &try_files::MODULE,
    &proxy::MODULE,
    // Content, in the order it is tried.
    &gzip_static::MODULE,
    &index::MODULE,
    &static_files::MODULE,
    // Filters, from the first that sees a response to the last.
    &not_modified::MODULE,
    &headers::MODULE,
    &gzip::MODULE,
    &headers::TRAILERS,
    &range::MODULE,
];

/// What `weir -V` lists, in nginx's words.
pub const CONFIGURE_ARGUMENTS: &[&str] = &["--with-threads"];

/// Directories for temporary files besides the core's.
pub fn temp_dirs(gen: &Generation) -> Vec<PathBuf> {
    proxy::temp_dirs(gen)
}
