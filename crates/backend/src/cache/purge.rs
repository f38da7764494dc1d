//! `…_cache_purge`: a request that removes what it would have got. An answer that a server has been
//! asked for, and that is still on its way, is passed on and not kept.
//!
//! 204 when something was removed, 404 when there was nothing. A key that ends in `*` removes every
//! entry whose key begins so; that reads all headers, and is done in a thread of its own.

use std::sync::Arc;
use weir_cache::{Key, Store};
use weir_http::Flow;

pub(crate) async fn run(store: Arc<Store>, key_text: Vec<u8>) -> Flow {
    let key = Key::of(&key_text);
    let purge = move || match key_text.strip_suffix(b"*") {
        Some(prefix) => {
            let under_way = store.fills.purge(|text| text.starts_with(prefix));
            store.purge_matching(|text| text.starts_with(prefix)) > 0 || under_way
        }
        None => {
            let under_way = store.fills.purge(|text| text == key_text);
            let kept = match store.varies(&key) {
                true => store.purge_matching(|text| text == key_text) > 0,
                false => store.purge(&key),
            };
            kept || under_way
        }
    };
    match tokio::task::spawn_blocking(purge).await {
        Ok(true) => Flow::Status(204),
        Ok(false) => Flow::Status(404),
        Err(_) => Flow::Status(500),
    }
}
