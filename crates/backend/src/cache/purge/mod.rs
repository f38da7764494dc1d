//! `…_cache_purge`: a request that removes what it would have got, or what a key in a location of its own
//! says. An answer that a server has been asked for, and that is still on its way, is passed on and not kept.
//!
//! There are two dialects. In NGINX Plus's strings decide, and the answer is 204 when something was removed
//! and 404 when there was nothing. In ngx_cache_purge's a method decides, of clients from some networks, and
//! the answer is a page, or 412. A key that ends in `*` removes every entry whose key begins so; that reads
//! all headers, and is done in a thread of its own.

mod page;
mod rows;

pub(crate) use page::{PurgeLoc, ROWS};
pub(crate) use rows::set_purge;

use super::conf::{ByMethod, CacheMain, Purge};
use super::lookup::{any_true, store_named};
use crate::conf::{conf_of, BackendConf};
use std::rc::Rc;
use std::sync::Arc;
use weir_cache::{Key, Store};
use weir_core::logger::LogLevel;
use weir_core::{ClientAddr, LocalFuture, Session};
use weir_http::{body, Flow, Request};

/// How much is removed, and how that is answered.
#[derive(Clone, Copy, Debug)]
pub(crate) struct How {
    all: bool,
    has_page: bool,
}

impl Purge {
    /// Whether this request might be a purge, as far as is known without evaluating anything.
    #[inline]
    pub(crate) fn may_be(&self, r: &Request) -> bool {
        match self {
            Purge::Off => false,
            Purge::ByMethod(by) => by.method == r.method_name(),
            Purge::If(_) | Purge::Entry { .. } => true,
        }
    }

    /// Whether this request is one. `Err`: it is not allowed to.
    pub(crate) fn wanted(&self, r: &mut Request) -> Result<Option<How>, Flow> {
        match self {
            Purge::Off | Purge::Entry { .. } => Ok(None),
            Purge::If(list) => Ok(any_true(r, list).then_some(How { all: false, has_page: false })),
            Purge::ByMethod(by) if by.method == r.method_name() => match by.lets_in(r) {
                true => Ok(Some(How { all: by.all, has_page: true })),
                false => {
                    r.log(LogLevel::Warn, "a purge of the cache is denied");
                    Err(Flow::Status(403))
                }
            },
            Purge::ByMethod(_) => Ok(None),
        }
    }
}

impl ByMethod {
    fn lets_in(&self, r: &Request) -> bool {
        let Some(from) = &self.from else { return true };
        match r.client() {
            ClientAddr::Ip(addr) => from.iter().any(|net| net.matches(addr.ip())),
            ClientAddr::Unix => false,
        }
    }
}

/// Removes what the key says, and answers.
pub(crate) async fn run(r: &mut Request, store: Arc<Store>, key_text: Vec<u8>, how: How) -> Flow {
    let shown = if how.has_page { key_text.clone() } else { Vec::new() };
    let main = r.gen().shared.main.get::<CacheMain>();
    let variants = *main.purge_vary_aware || !how.has_page;
    let missing = if *main.purge_legacy_status { 412 } else { 404 };
    let purging =
        tokio::task::spawn_blocking(move || remove(&store, &key_text, how.all, variants)).await;
    match (purging, how.has_page) {
        (Ok(true), true) => page::answer(r, &shown),
        (Ok(true), false) => Flow::Status(204),
        (Ok(false), true) if how.all => page::answer(r, &shown),
        (Ok(false), true) => Flow::Status(missing),
        (Ok(false), false) => Flow::Status(404),
        (Err(_), _) => Flow::Status(500),
    }
}

/// Whether there was anything to remove.
fn remove(store: &Arc<Store>, key_text: &[u8], all: bool, variants: bool) -> bool {
    let prefix = if all { Some(&b""[..]) } else { key_text.strip_suffix(b"*") };
    let Some(prefix) = prefix else {
        let key = Key::of(key_text);
        let under_way = store.fills.purge(|text| text == key_text);
        let kept = match variants && store.varies(&key) {
            true => store.purge_matching(|text| text == key_text) > 0,
            false => store.purge(&key),
        };
        return kept || under_way;
    };
    let under_way = store.fills.purge(|text| text.starts_with(prefix));
    if store.params().purger.is_some_and(|pace| store.purge_slowly(prefix, pace)) {
        return true;
    }
    let removed = match all {
        true => store.purge_all(),
        false => store.purge_matching(|text| text.starts_with(prefix)),
    };
    removed > 0 || under_way
}

/// A location whose requests purge what its directive says.
fn handler<T: BackendConf>(_: &mut Request) -> Flow {
    Flow::Wait(wait::<T>)
}

fn wait<T: BackendConf>(r: &mut Request) -> LocalFuture<'_, Flow> {
    Box::pin(async move {
        if let Err(flow) = body::discard(r) {
            return flow;
        }
        let loc = Rc::clone(r.loc());
        let Purge::Entry { zone, key } = &**conf_of::<T>(&loc).cache.purge else {
            return Flow::Status(404);
        };
        let store = match store_named(r, zone) {
            Ok(Some(store)) => store,
            Ok(None) | Err(()) => return Flow::Status(500),
        };
        let key_text = r.eval(key).to_vec();
        if r.match_failed() {
            return Flow::Status(500);
        }
        run(r, store, key_text, How { all: false, has_page: true }).await
    })
}
