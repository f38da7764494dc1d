//! Detached requests: work that goes on behind an answer, such as renewing a cached one.
//!
//! A detached request is a copy of a client's on a connection of its own that leads nowhere, so that
//! neither waits for the other and the client's connection may close. Whoever runs it sends neither
//! header nor body; it is not logged. A worker that is quitting waits for it as for a connection.

use crate::conn::Connection;
use crate::request::{Request, REDIRECTS_MAX};
use crate::worker::Worker;
use std::future::Future;
use std::io;
use std::rc::Rc;
use weir_runtime::net::Stream;
use weir_wire::http1::request::Method;

impl Request {
    /// A connection like the client's that leads nowhere.
    pub(crate) fn nowhere(&self) -> io::Result<Rc<Connection>> {
        let conn = self.conn();
        let (nowhere, _) = std::os::unix::net::UnixStream::pair()?;
        nowhere.set_nonblocking(true)?;
        let own = Connection::new(
            Rc::clone(&conn.worker),
            Stream::from(nowhere),
            conn.client,
            conn.listen.get(),
            conn.serial,
        );
        own.local.set(conn.local_addr());
        own.requests.set(conn.requests.get());
        own.proxied.borrow_mut().clone_from(&conn.proxied.borrow());
        Ok(Rc::new(own))
    }

    /// A copy without its body, its answer and the modules' state.
    pub fn detach(&self) -> io::Result<Box<Request>> {
        let mut copy = Box::<Request>::default();
        self.copy_head_to(&mut copy, self.nowhere()?);
        copy.method = self.method;
        copy.uri.clone_from(&self.uri);
        copy.args.clone_from(&self.args);
        copy.captures.subject.clone_from(&self.captures.subject);
        copy.captures.captures.clone_from(&self.captures.captures);
        copy.add_uri_to_alias = self.add_uri_to_alias;
        copy.redirects_left = self.redirects_left;
        copy.valid_unparsed_uri = self.valid_unparsed_uri;
        copy.valid_location = self.valid_location;
        copy.internal = self.internal;
        copy.header_only = true;
        Ok(copy)
    }

    /// What a request that is made from this one has of it in any case.
    fn copy_head_to(&self, copy: &mut Request, conn: Rc<Connection>) {
        copy.buf.clone_from(&self.buf);
        copy.head.clone_from(&self.head);
        copy.host.clone_from(&self.host);
        copy.request_id = self.request_id;
        copy.start_ms = weir_runtime::clock::mono_ms();
        copy.number = self.number;
        // Its URI, arguments and variables may have been.
        copy.computed = true;
        self.copy_place_to(copy, conn);
    }

    /// Begins a subrequest: a GET with this request's header, and its body as far as it was read.
    pub(crate) fn copy_to_part(&self, part: &mut Request, conn: Rc<Connection>) {
        self.copy_head_to(part, conn);
        let server = part.server().location;
        part.set_location(server);
        part.method = Method::Get;
        part.internal = true;
        part.redirects_left = REDIRECTS_MAX;
        part.limits_applied = self.limits_applied;
        part.filter_needs_memory = self.filter_needs_memory;
        part.body = self.body.shared();
    }
}

/// Runs something behind an answer; counted among the worker's connections until it ends.
pub fn spawn(worker: &Rc<Worker>, work: impl Future<Output = ()> + 'static) {
    worker.connections.set(worker.connections.get() + 1);
    let guard = Counted(Rc::clone(worker));
    tokio::task::spawn_local(async move {
        let _guard = guard;
        work.await;
    });
}

struct Counted(Rc<Worker>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.set(self.0.connections.get() - 1);
        if self.0.closing.get() {
            self.0.one_ended.notify_one();
        }
    }
}
