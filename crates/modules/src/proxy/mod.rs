//! nginx's `ngx_http_proxy_module`: requests are passed to HTTP servers.
//!
//! Differences from nginx, each in its directive's row: what a
//! variable brings along can neither end a header line nor the request line; an unasked 101 is a 502.

mod cache;
mod conf;
mod exchange;
mod h2;
mod headers;
mod relay;
mod respond;
mod rewrite;
mod rows;
mod run;
mod ssl_rows;
mod target;
mod tunnel;
mod vars;

use conf::ProxyLoc;
use std::future::Future;
use std::path::PathBuf;
use weir_http::conf::CoreLoc;
use weir_http::generation::Generation;
use weir_http::{Flow, HttpModule, LocalFuture, Request};
use weir_module::{ConfResult, SlotVtable, Slots};

/// Merged like any other, but for what a block without a name has from the one around it.
const SLOT: SlotVtable = SlotVtable { merge: merge_slot, ..SlotVtable::of::<ProxyLoc>() };

fn merge_slot(slots: &mut Slots, parent: &Slots) -> ConfResult {
    let unnamed = slots.find::<CoreLoc>().is_some_and(|c| c.unnamed);
    slots.get_mut::<ProxyLoc>().in_unnamed = unnamed;
    (SlotVtable::of::<ProxyLoc>().merge)(slots, parent)
}

pub const MODULE: HttpModule = HttpModule {
    name: "proxy",
    rows: rows::ROWS,
    slots: &[SLOT],
    variables: vars::VARIABLES,
    build: Some(conf::build),
    ..HttpModule::EMPTY
};

/// The directives for TLS to servers.
pub const SSL: HttpModule =
    HttpModule { name: "proxy_ssl", rows: ssl_rows::ROWS, ..HttpModule::EMPTY };

/// The cache's directives, and what they have in common with those of other modules.
pub const CACHE: HttpModule =
    HttpModule { name: "proxy_cache", rows: cache::ROWS, ..HttpModule::EMPTY };

pub(crate) use conf::next;
pub(crate) use rows::add_bits;

/// Waits for something unless the client goes first.
pub(crate) async fn unless_client_goes<T>(r: &Request, work: impl Future<Output = T>) -> Option<T> {
    weir_http::client_watch::unless_client_goes(r, false, work).await
}

fn handler(r: &mut Request) -> Flow {
    cache::at_once(r).unwrap_or(Flow::Wait(wait))
}

fn wait(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(run::run(r))
}

/// Whether some connections to servers are made from addresses that are not this machine's.
pub fn binds_any_source(gen: &Generation) -> bool {
    let foreign = |c: &ProxyLoc| c.bind.as_ref().is_some_and(|b| b.transparent);
    gen.locations.iter().any(|l| l.slots.find::<ProxyLoc>().is_some_and(foreign))
}

/// The directories for answers that are too large for memory.
pub fn temp_dirs(gen: &Generation) -> Vec<PathBuf> {
    let path = |slots: &weir_module::Slots| {
        slots.find::<conf::ProxyLoc>().map(|c| c.temp_path.path.clone())
    };
    let mut dirs: Vec<PathBuf> = gen.locations.iter().filter_map(|l| path(&l.slots)).collect();
    dirs.sort();
    dirs.dedup();
    dirs
}
