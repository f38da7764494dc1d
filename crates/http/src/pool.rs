//! What a worker keeps for requests to come: requests with their memory, the text of `Date`.

use crate::h1::runner;
use crate::request::Request;
use std::cell::{Cell, RefCell};
use weir_base::date;
use weir_core::worker::POOL_REST_MAX;
use weir_runtime::clock;

/// Requests kept for reuse; so many of them with buffers of any size in bounds, and the others only
/// while theirs are small: a worker that once had many at the same time does not keep that memory.
const POOL_MAX: usize = 256;
const POOL_LARGE_MAX: usize = 32;
const POOL_SMALL_BYTES: usize = 8 * 1024;
/// A pooled request whose buffers have together grown beyond this is let go.
const POOL_BUFFERS_MAX_BYTES: usize = 64 * 1024;

thread_local! {
    // Boxed, because moving a request costs more than answering a small one.
    #[expect(clippy::vec_box)]
    static POOL: RefCell<Vec<Box<Request>>> = const { RefCell::new(Vec::new()) };
    static DATE: Cell<(i64, [u8; 29])> = const { Cell::new((i64::MIN, [0; 29])) };
}

/// A request without anything in it.
pub fn take() -> Box<Request> {
    POOL.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives one back.
pub fn give(mut r: Box<Request>) {
    r.recycle();
    POOL.with_borrow_mut(|pool| {
        let is_kept = match pool.len() {
            0..POOL_LARGE_MAX => r.kept_bytes() <= POOL_BUFFERS_MAX_BYTES,
            POOL_LARGE_MAX..POOL_MAX => r.kept_bytes() <= POOL_SMALL_BYTES,
            _ => false,
        };
        if is_kept {
            pool.push(r);
        }
    });
}

/// Lets go of what is kept: the worker is about to rest.
pub fn free() {
    POOL.take();
    runner::free();
}

/// Lets go of most of what is kept: nothing is done for a while.
pub fn shrink() {
    POOL.with_borrow_mut(|pool| {
        pool.truncate(POOL_REST_MAX);
        pool.shrink_to_fit();
    });
    runner::shrink();
}

/// The Date header's value, formatted once a second.
pub fn date() -> [u8; 29] {
    let now = clock::wall_secs();
    let (secs, text) = DATE.get();
    if secs == now {
        return text;
    }
    let text = date::http_time(now);
    DATE.set((now, text));
    text
}
