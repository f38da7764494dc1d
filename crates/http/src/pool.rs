//! What a worker keeps for requests to come: requests with their memory.

use crate::client::Client;
use crate::generation::{Http, Server};
use crate::request::Request;
use std::cell::RefCell;
use std::rc::Rc;
use weir_core::worker::POOL_REST_MAX;
use weir_core::Connection;

/// Requests kept for reuse; so many of them with buffers of any size in bounds, and the others only
/// while theirs are small: a worker that once had many at the same time does not keep that memory.
const POOL_MAX: usize = 1024;
const POOL_LARGE_MAX: usize = 32;
const POOL_SMALL_BYTES: usize = 8 * 1024;
/// A pooled request whose buffers have together grown beyond this is let go.
const POOL_BUFFERS_MAX_BYTES: usize = 64 * 1024;

thread_local! {
    // Boxed, because moving a request costs more than answering a small one.
    #[expect(clippy::vec_box)]
    static POOL: RefCell<Vec<Box<Request>>> = const { RefCell::new(Vec::new()) };
}

/// A request without anything in it.
pub(crate) fn take() -> Box<Request> {
    POOL.with_borrow_mut(Vec::pop).unwrap_or_default()
}

/// Gives one back.
pub(crate) fn give(mut r: Box<Request>) {
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

/// Lends one for what is to be known of a connection before there is a request on it.
pub fn with<T>(
    conn: &Rc<Connection>,
    gen: Rc<Http>,
    server: Rc<Server>,
    f: impl FnOnce(&mut Request) -> T,
) -> T {
    let mut r = take();
    r.stand(Client::of_h1(Rc::clone(conn)), gen, server);
    let value = f(&mut r);
    give(r);
    value
}

/// Lets go of what is kept: the worker is about to rest.
pub(crate) fn free() {
    POOL.take();
}

/// Lets go of most of what is kept: nothing is done for a while.
pub(crate) fn shrink() {
    POOL.with_borrow_mut(|pool| {
        pool.truncate(POOL_REST_MAX);
        pool.shrink_to_fit();
    });
}
