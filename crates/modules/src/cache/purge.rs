//! `…_cache_purge`: a request that removes what it would have got.
//!
//! 204 when something was removed, 404 when there was nothing. A key that ends in `*` removes every
//! entry whose key begins so; that reads all headers, and is done in a thread of its own.

use std::sync::Arc;
use weir_cache::{Key, Store};
use weir_http::Flow;

pub async fn run(store: Arc<Store>, key_text: Vec<u8>) -> Flow {
    let key = Key::of(&key_text);
    let purge = move || match key_text.strip_suffix(b"*") {
        Some(prefix) => store.purge_matching(|text| text.starts_with(prefix)) > 0,
        None if store.varies(&key) => store.purge_matching(|text| text == key_text) > 0,
        None => store.purge(&key),
    };
    match tokio::task::spawn_blocking(purge).await {
        Ok(true) => Flow::Status(204),
        Ok(false) => Flow::Status(404),
        Err(_) => Flow::Status(500),
    }
}
