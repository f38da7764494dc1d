//! nginx's HTTP modules, one file each. This is the one ordered list.

mod files;
pub mod gzip;
pub mod gzip_ok;
pub mod gzip_static;
pub mod index;
pub mod not_modified;
pub mod range;
pub mod static_files;
pub mod try_files;

use weir_http::generation::Generation;
use weir_http::HttpModule;
use std::path::PathBuf;

/// Every module. Handlers of a phase and filters run in this order.
pub const MODULES: &[&HttpModule] = &[
    &weir_http::core_rows::MODULE,
    &gzip_ok::MODULE,
    &try_files::MODULE,
    &gzip_static::MODULE,
    &index::MODULE,
    &static_files::MODULE,
    // Filters, from the first that sees a response to the last.
    &not_modified::MODULE,
    &gzip::MODULE,
    &range::MODULE,
];

/// What `weir -V` lists, in nginx's words.
pub const CONFIGURE_ARGUMENTS: &[&str] = &["--with-threads"];

/// Directories for temporary files besides the core's.
pub fn temp_dirs(_gen: &Generation) -> Vec<PathBuf> {
    Vec::new()
}
