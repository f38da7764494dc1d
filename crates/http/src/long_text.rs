//! Texts about thousands of things, as pages of figures are: a thread makes them, so that no other request of the worker
//! waits for that, one at a time, so that what it takes to make one is there once. What of them clients have not read
//! has a bound in bytes for the process; beyond it a client is told to come again (503).

use crate::buf::Buf;
use crate::client_watch::unless_client_goes;
use crate::request::Request;
use bytes::Bytes;
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::sync::Semaphore;
use weir_runtime::threads::in_thread;

/// A single one may be longer.
const UNREAD_MAX_BYTES: usize = 64 * 1024 * 1024;

static UNREAD_BYTES: AtomicUsize = AtomicUsize::new(0);
static TURN: Semaphore = Semaphore::const_new(1);

/// Counted as long as anybody has it.
struct Counted(Vec<u8>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        UNREAD_BYTES.fetch_sub(self.0.len(), Ordering::Relaxed);
    }
}

fn counted(text: Vec<u8>) -> Bytes {
    UNREAD_BYTES.fetch_add(text.len(), Ordering::Relaxed);
    Bytes::from_owner(Counted(text))
}

/// Has a thread make a text, or say why there is none. `Err`: the status to answer with.
///
/// # Errors
///
/// The client has gone (499), or must come again; or the work panicked.
pub async fn made<E: Send + 'static>(
    r: &Request,
    make: impl FnOnce() -> Result<Vec<u8>, E> + Send + 'static,
) -> Result<Result<Bytes, E>, u16> {
    if UNREAD_BYTES.load(Ordering::Relaxed) >= UNREAD_MAX_BYTES {
        return Err(503);
    }
    let making = async {
        let turn = TURN.acquire().await.map_err(|_| 500_u16)?;
        // Who waited for its turn may come behind many who do not read.
        if UNREAD_BYTES.load(Ordering::Relaxed) >= UNREAD_MAX_BYTES {
            return Err(503);
        }
        let work = in_thread(move || {
            // It ends with the work, whoever has gone.
            let _turn = turn;
            make().map(counted)
        });
        work.await.map_err(|_| 500)
    };
    unless_client_goes(r, false, making).await.unwrap_or(Err(499))
}

/// All of an answer's body.
pub fn whole(r: &mut Request, text: Bytes) -> Buf {
    r.out.content_length = Some(text.len() as u64);
    Buf::mem(text).and_last()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_unread_is_counted_while_anybody_has_it() {
        let text = counted(vec![b'x'; 1000]);
        let part = text.slice(10..20);
        assert_eq!(UNREAD_BYTES.load(Ordering::Relaxed), 1000);
        drop(text);
        assert_eq!((UNREAD_BYTES.load(Ordering::Relaxed), &part[..2]), (1000, &b"xx"[..]));
        drop(part);
        assert_eq!(UNREAD_BYTES.load(Ordering::Relaxed), 0);
    }
}
