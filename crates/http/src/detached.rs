//! Detached requests: work that goes on behind an answer, such as renewing a cached one.
//!
//! A detached request is a copy of a client's on a connection of its own that leads nowhere, so that
//! neither waits for the other and the client's connection may close. Whoever runs it sends neither
//! header nor body; it is not logged. A worker that is quitting waits for it as for a connection.
//!
//! How many a worker runs at a time is bounded by half of its `worker_connections`; beyond that
//! none is made, for there is nobody who could be asked to wait.

use crate::client::Client;
use crate::generation::Http;
use crate::head;
use crate::request::{Request, REDIRECTS_MAX};
use crate::trace;
use std::any::Any;
use std::future::Future;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::{ListenConf, WorkerGen};
use weir_core::logger::LogLevel;
use weir_core::ClientAddr;
use weir_core::Connection;
use weir_core::Session;
use weir_core::Worker;
use weir_runtime::net::Stream;
use weir_wire::http1::request::{Method, Parser, Progress};

/// What the error log says of a request that is no client's.
pub(crate) struct Titled(pub Box<str>);

/// What a module keeps of a request for all that is made of it, too: parts and copies. There is one such value.
#[derive(Clone)]
pub struct ForCopies(pub Rc<dyn Any>);

impl Request {
    /// A connection like the client's that leads nowhere; it takes no descriptor.
    pub(crate) fn nowhere(&self) -> Rc<Connection> {
        let conn = self.conn();
        let (worker, from) = (Rc::clone(&conn.worker), conn.came_by());
        let own = Connection::new(worker, Stream::nowhere(), conn.client(), from, conn.serial);
        own.local.set(conn.local_addr());
        own.requests.set(conn.requests.get());
        own.like_tls.set(conn.is_tls());
        own.proxied.borrow_mut().clone_from(&conn.proxied.borrow());
        Rc::new(own)
    }

    /// A copy without its body, its answer and the modules' state.
    pub fn detach(&self) -> Box<Request> {
        let mut copy = Box::<Request>::default();
        self.copy_head_to(&mut copy, Client::of_h1(self.nowhere()));
        copy.method = self.method;
        copy.uri.clone_from(&self.uri);
        copy.args.clone_from(&self.args);
        copy.values.captures.copy_from(&self.values.captures);
        copy.flags.add_uri_to_alias = self.flags.add_uri_to_alias;
        copy.redirects_left = self.redirects_left;
        copy.flags.valid_unparsed_uri = self.flags.valid_unparsed_uri;
        copy.flags.valid_location = self.flags.valid_location;
        copy.flags.internal = self.flags.internal;
        copy.flags.header_only = true;
        copy
    }

    /// A request of this server's own to a location, by its number, on a connection that leads nowhere; `head` is
    /// its text, and `title` what the error log says of it. Nothing if that is no head.
    pub fn own(
        worker: &Rc<Worker>,
        gen: &Rc<WorkerGen>,
        location: usize,
        head: &[u8],
        title: &str,
    ) -> Option<Box<Request>> {
        let http = Http::of(gen);
        let servers = http.shared.servers.iter().filter(|s| s.location <= location);
        let server = Rc::clone(http.server(servers.max_by_key(|s| s.location)?.id));
        let of_http = |l: &&ListenConf| gen.shared.protocol_of(l) == "http";
        let is_its = |l: &&ListenConf| l.addrs.iter().any(|a| a.default == server.id);
        let sockets = || gen.shared.listens.iter().filter(of_http);
        let socket = sockets().find(is_its).or_else(|| sockets().next())?;
        let listen = gen.shared.listens.place(&socket.addr)?;
        let from = (Rc::clone(gen), listen);
        let conn = Connection::new(Rc::clone(worker), Stream::nowhere(), ClientAddr::Unix, from, 0);
        let mut r = Box::<Request>::default();
        r.buf.extend_from_slice(head);
        let parsed = Parser::new().parse(&r.buf, &server.core.limits, &mut r.head);
        let is_whole = matches!(parsed, Ok(Progress::Complete));
        let core = Arc::clone(&server.core);
        r.stand(Client::of_h1(Rc::new(conn)), http, server);
        r.set_location(location);
        r.method = r.head.method;
        r.flags.header_only = true;
        r.keep_state(Titled(title.into()));
        (is_whole && head::take_uri(&mut r, &core)).then_some(r)
    }

    /// What a request that is made from this one has of it in any case.
    fn copy_head_to(&self, copy: &mut Request, client: Client) {
        copy.buf.clone_from(&self.buf);
        copy.head.clone_from(&self.head);
        copy.host.clone_from(&self.host);
        copy.request_id = self.request_id;
        copy.start_us = weir_runtime::clock::mono_us();
        copy.number = self.number;
        // Its URI, arguments and variables may have been.
        copy.values.is_computed = true;
        self.copy_place_to(copy, client);
        if self.flags.traced {
            trace::copy(self, copy);
        }
        if let Some(kept) = self.kept_ref::<ForCopies>() {
            copy.keep_state(kept.clone());
        }
    }

    /// Begins a subrequest: a GET with this request's header, and its body as far as it was read.
    pub(crate) fn copy_to_part(&self, part: &mut Request, client: Client) {
        self.copy_head_to(part, client);
        let server = part.server().location;
        part.set_location(server);
        part.method = Method::Get;
        part.flags.internal = true;
        part.redirects_left = REDIRECTS_MAX;
        part.marks = self.marks.for_parts();
        part.flags.filter_needs_memory = self.flags.filter_needs_memory;
        part.body = self.body.shared();
    }
}

/// The right to run one request behind an answer; it counts until it is dropped.
pub struct Ticket(Rc<Worker>);

impl Ticket {
    /// `None` when as many run as may; that is logged, at most once a second.
    pub fn take(r: &Request) -> Option<Ticket> {
        let worker = &r.conn().worker;
        let (running, max) = (worker.detached.get(), worker.detached_max());
        if running < max {
            worker.detached.set(running + 1);
            return Some(Ticket(Rc::clone(worker)));
        }
        if let Some(dropped) = worker.not_detached.one_more() {
            let text = format!(
                "{running} requests run behind answers, half of worker_connections: {dropped} more \
                 were not made"
            );
            r.log(LogLevel::Error, &text);
        }
        None
    }

    /// Runs something behind an answer; the worker does not quit before it has ended.
    pub fn spawn(self, work: impl Future<Output = ()> + 'static) {
        weir_runtime::event_loop::spawn(async move {
            let _ticket = self;
            work.await;
        });
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.0.detached.set(self.0.detached.get() - 1);
        if self.0.closing.get() {
            self.0.one_ended.notify_one();
        }
    }
}
