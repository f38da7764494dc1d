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

pub use cache::MODULE as CACHE;

use weir_http::HttpModule;

/// What the families have in common besides their rows.
pub const ENGINE: HttpModule = HttpModule {
    dirs: Some(families::temp_dirs),
    binds_any_source: Some(families::binds_any_source),
    ..HttpModule::EMPTY
};
