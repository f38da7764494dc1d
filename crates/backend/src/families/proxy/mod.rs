//! nginx's `ngx_http_proxy_module`: requests are passed to HTTP servers.
//!
//! Differences from nginx, each in its directive's row: what a
//! variable brings along can neither end a header line nor the request line; an unasked 101 is a 502.

pub(crate) mod conf;
pub(crate) mod headers;
pub(crate) mod request;
mod respond;
mod rewrite;
mod rows;
mod vars;

use crate::conf::{module, BackendConf, BackendLoc, Words};
use crate::family::{Family, Ways};
use crate::rows::Rows;
use crate::rows::NEXT_HTTP;
use conf::{ProxyLoc, SCHEMES};
use weir_http::HttpModule;
use weir_module::{joined_rows, slot, ConfResult, ConfType, Level};
use weir_wire::http1::response::Start;

/// How it is passed on.
static FAMILY: Family = Family {
    name: "proxy",
    ssl: "proxy_ssl",
    schemes: SCHEMES,
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
    write: request::write_request,
    start: Start::Http,
    key: Some(request::write_key),
    ways: Ways {
        interim: true,
        passes_want: true,
        rewrite: Some(respond::copy_rewritten),
        converts_head: true,
        ..Ways::PLAIN
    },
};

/// `proxy_pass` and what belongs to it.
pub const MODULE: HttpModule = HttpModule {
    rows: joined_rows!(
        rows::ROWS,
        Rows::<ProxyLoc>::PEER,
        Rows::<ProxyLoc>::TENGINE,
        Rows::<ProxyLoc>::SOCKET,
        Rows::<ProxyLoc>::HEADER,
        Rows::<ProxyLoc>::BUFFER,
        Rows::<ProxyLoc>::CACHE,
        Rows::<ProxyLoc>::SSL,
    ),
    variables: vars::VARIABLES,
    ..module::<ProxyLoc>()
};

impl BackendConf for ProxyLoc {
    const FAMILY: &'static Family = &FAMILY;
    const PREFIX: &'static str = "proxy_";
    const NEXT: &'static Words = NEXT_HTTP;
    const KEY: &'static str = "$scheme$proxy_host$request_uri";
    const TLS_NAME: &'static str = "$proxy_host";

    fn backend(&self) -> &BackendLoc {
        &self.backend
    }

    fn backend_mut(&mut self) -> &mut BackendLoc {
        &mut self.backend
    }
}

impl ConfType for ProxyLoc {
    const LEVEL: Level = Level::Location;
    slot!();

    fn merge(&mut self, parent: &ProxyLoc) -> ConfResult {
        self.merge_own(parent);
        self.backend.merge(&parent.backend, &FAMILY)?;
        self.settle(parent);
        Ok(())
    }
}
