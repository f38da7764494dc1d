//! nginx's HTTP modules, one file each. This is the one ordered list.

pub mod proxy;

use weir_http::generation::Generation;
use weir_http::HttpModule;
use std::path::PathBuf;

/// Every module. Handlers of a phase and filters run in this order.
pub const MODULES: &[&HttpModule] = &[
    &weir_http::core_rows::MODULE,
    &weir_upstream::MODULE,
    &proxy::MODULE,
];

/// What `weir -V` lists, in nginx's words.
pub const CONFIGURE_ARGUMENTS: &[&str] = &["--with-threads"];

/// Directories for temporary files besides the core's.
pub fn temp_dirs(gen: &Generation) -> Vec<PathBuf> {
    proxy::temp_dirs(gen)
}
