//! One file per nginx HTTP module; this list is nginx's order.

mod access;
mod headers;
mod log;
mod map;
mod rewrite;
mod split_clients;
mod util;

use weir_http::HttpModule;

pub const MODULES: &[&HttpModule] = &[
    &log::MODULE,
    &rewrite::MODULE,
    &access::MODULE,
    &map::MODULE,
    &split_clients::MODULE,
    &headers::MODULE,
    &headers::TRAILERS,
];
