//! Backends: requests are passed on to other servers, by one of several protocols, and what they
//! answer may be kept.

mod ahead;
#[macro_use]
mod cache;
mod conf;
mod decoder;
mod exchange;
mod family;
mod h2;
mod hide;
mod kept;
mod outgoing;
mod params;
mod relay;
mod respond;
#[macro_use]
mod rows;
mod run;
#[macro_use]
mod ssl_rows;
mod target;
// Behind the macros that make rows.
pub mod families;

pub use cache::{serve, MODULE as CACHE};
pub use families::binds_any_source;

use std::path::PathBuf;
use weir_http::generation::Generation;

/// The directories that belong to the workers' user, but for the core's.
pub fn temp_dirs(gen: &Generation) -> Vec<PathBuf> {
    let mut dirs = families::temp_dirs(gen);
    dirs.extend(cache::dirs(gen));
    dirs
}
