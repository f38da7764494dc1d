//! nginx's `ngx_http_proxy_module`: requests are passed to HTTP servers.
//!
//! Differences from nginx, each in its directive's row: what a
//! variable brings along can neither end a header line nor the request line; an unasked 101 is a 502.

mod conf;
pub mod headers;
pub mod request;
mod respond;
mod rewrite;
mod rows;
pub mod tunnel;
mod vars;

use crate::family::{self, conf_of, Family, Wire};
use crate::rows::{IGNORE, NEXT_HTTP};
use crate::target::Schemes;
pub use conf::ProxyLoc;
pub use respond::copy_rewritten;
use weir_http::HttpModule;

pub static FAMILY: Family = Family {
    name: "proxy",
    ssl: "proxy_ssl",
    wire: Wire::Http,
    schemes: Schemes {
        plain: "http://",
        tls: Some("https://"),
        required: true,
        ports: (80, 443),
        uri: true,
    },
    hidden: &[
        b"Date",
        b"Server",
        b"X-Pad",
        b"X-Accel-Expires",
        b"X-Accel-Redirect",
        b"X-Accel-Limit-Rate",
        b"X-Accel-Buffering",
        b"X-Accel-Charset",
    ],
    buffers: true,
    conf: conf_of::<ProxyLoc>,
    write: request::write_request,
    key: request::write_key,
};

pub const MODULE: HttpModule = HttpModule {
    name: "proxy",
    rows: rows::ROWS,
    slots: &[family::slot::<ProxyLoc>()],
    variables: vars::VARIABLES,
    build: Some(crate::conf::build::<ProxyLoc>),
    ..HttpModule::EMPTY
};

/// What it has in common with other backends.
pub const COMMON: [HttpModule; 5] = [
    family::rows_of("proxy", peer_rows!(ProxyLoc, "proxy_", NEXT_HTTP)),
    family::rows_of("proxy", header_rows!(ProxyLoc, "proxy_", IGNORE)),
    family::rows_of("proxy", buffer_rows!(ProxyLoc, "proxy_")),
    family::rows_of(
        "proxy_cache",
        cache_rows!(ProxyLoc, "proxy_", "$scheme$proxy_host$request_uri"),
    ),
    family::rows_of("proxy_ssl", ssl_rows!(ProxyLoc, "proxy_", "$proxy_host")),
];
