//! Memory for requests that have to wait. A connection that waits for a request has none of it: a runner is
//! taken from the worker when a request first waits, and goes back when that is over.

use super::{After, Stage};
use crate::request::Request;
use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Context, Poll};
use weir_core::worker::POOL_REST_MAX;
use weir_core::{Connection, LocalFuture};

/// Runners kept for the requests to come.
const KEPT_MAX: usize = 1024;

thread_local! {
    static KEPT: RefCell<Vec<Runner>> = const { RefCell::new(Vec::new()) };
}

/// Lets go of what is kept.
pub(crate) fn free() {
    KEPT.take();
}

/// Lets go of most of it.
pub(crate) fn shrink() {
    KEPT.with_borrow_mut(|kept| {
        kept.truncate(POOL_REST_MAX);
        kept.shrink_to_fit();
    });
}

/// Runs one request after another, of any connection: a future that never ends, so that its memory is
/// made once.
pub(crate) struct Runner {
    seat: Rc<Seat>,
    future: LocalFuture<'static, ()>,
}

/// A request that is to go on.
struct Job {
    conn: Rc<Connection>,
    request: Box<Request>,
    stage: Stage,
}

/// Where it finds the next request, and leaves what follows it.
#[derive(Default)]
struct Seat {
    next: Cell<Option<Job>>,
    after: Cell<Option<After>>,
}

async fn run(seat: Rc<Seat>) {
    loop {
        let next = poll_fn(|_| seat.next.take().map_or(Poll::Pending, Poll::Ready));
        let Job { conn, request, stage } = next.await;
        let after = super::go_on(&conn, request, stage).await;
        seat.after.set(Some(after));
    }
}

impl Runner {
    pub(super) fn take() -> Runner {
        KEPT.with_borrow_mut(Vec::pop).unwrap_or_else(|| {
            let seat = Rc::<Seat>::default();
            Runner { future: Box::pin(run(Rc::clone(&seat))), seat }
        })
    }

    pub(super) fn give(self) {
        KEPT.with_borrow_mut(|kept| {
            if kept.len() < KEPT_MAX {
                kept.push(self);
            }
        });
    }

    /// What it is to run next; it has ended the one before.
    pub(super) fn begin(&self, conn: &Rc<Connection>, request: Box<Request>, stage: Stage) {
        let conn = Rc::clone(conn);
        self.seat.next.set(Some(Job { conn, request, stage }));
    }

    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<After> {
        // It waits for a further request at the latest.
        let _ = self.future.as_mut().poll(cx);
        self.seat.after.take().map_or(Poll::Pending, Poll::Ready)
    }
}
