//! One request, whatever protocol it came by.

mod fields;
mod flags;
pub(crate) mod packed;

pub use flags::Flags;

use crate::body::RequestBody;
use crate::client::Client;
use crate::flow::Held;
use crate::generation::{Http, Location, Server};
use crate::headers_out::HeadersOut;
use crate::marks::{Mark, Marks};
use crate::subrequest::desk::Parts;
use crate::timing::Exchange;
use std::any::Any;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::counters::Counters;
use weir_core::forms::Forms;
use weir_core::timing::UpstreamState;
use weir_core::values::Values;
use weir_core::ClientAddr;
use weir_core::Connection;
use weir_runtime::clock;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::{HeaderField, Method, RequestHead, Version};
use weir_wire::Range32;

/// One more than the internal redirects that a request may go through.
pub(crate) const REDIRECTS_MAX: u8 = 11;
/// Where a request stands: its client, and the part of the configuration that serves it.
struct Place {
    client: Client,
    gen: Rc<Http>,
    server: Rc<Server>,
    location: Rc<Location>,
}

/// An entity that is in memory as a whole, and its compressed forms, which are kept with it.
pub struct Whole {
    /// Uncompressed.
    pub text: bytes::Bytes,
    /// Made by who first needs one.
    pub forms: Arc<Forms>,
}

/// A request and its response under construction. Taken from the worker's pool, so that its
/// buffers are allocated once and used by many requests.
#[derive(Default)]
pub struct Request {
    place: Option<Place>,
    /// The head as it was read, and behind it whatever else has arrived.
    pub buf: Vec<u8>,
    /// Places in `buf`.
    pub head: RequestHead,
    /// An error page is made by `GET` unless it is `HEAD`; `head` keeps the client's.
    pub method: Method,
    /// Decoded and normalised path.
    pub uri: Vec<u8>,
    /// What follows the `?`, as it came.
    pub args: Vec<u8>,
    /// Lower-case host without port, from the request line or the Host field.
    pub(crate) host: Vec<u8>,
    /// The response's.
    pub out: HeadersOut,
    /// The request's.
    pub body: RequestBody,
    ctx: Vec<Box<dyn Any>>,
    /// As `ctx`, and kept through internal redirects until the request is over.
    kept: Vec<Box<dyn Any>>,
    /// Variables, and what the last regular expression has captured.
    pub values: Values,
    /// How many more internal redirects are allowed.
    pub(crate) redirects_left: u8,
    /// What it is, and what has been done with it, by a yes or no each.
    pub flags: Flags,
    /// A status that replaces the handler's own: set by `error_page`.
    pub(crate) err_status: u16,
    /// The body is one whole entity in memory, unchanged so far. A filter that changes the body takes
    /// this away.
    pub whole: Option<Whole>,
    pub(crate) request_id: [u8; 16],
    /// Monotonic microseconds.
    pub(crate) start_us: u64,
    /// How many it took, once that is counted.
    pub(crate) took_us: u64,
    /// Bytes of the response that were queued so far, and of those the header's; how many have left
    /// tells [`Request::bytes_sent`].
    pub sent: u64,
    pub(crate) header_size: u64,
    /// Of those, how many would have left in nginx, as far as code has put them out: it keeps back less than
    /// `postpone_output`, which is not sent if the answer then breaks off.
    pub(crate) left: u64,
    /// Bytes of this request as received.
    pub received: u64,
    /// `$limit_rate`, in bytes a second; `None`: it has yet to be asked of the location.
    pub limit_rate: Option<u64>,
    pub(crate) limit_rate_after: Option<u64>,
    /// Until when nothing is sent, by `limit_rate`.
    pub(crate) paced_until_ms: u64,
    /// Which backends were asked, for the `$upstream_*` variables.
    pub upstream: Vec<UpstreamState>,
    /// The client's address and its text, where it is not the connection's (realip).
    client: Option<Box<(ClientAddr, Vec<u8>)>>,
    /// What was said with the last of them.
    pub exchange: Exchange,
    /// The number of this request on its connection.
    pub(crate) number: u32,
    /// What modules have noted.
    pub(crate) marks: Marks,
    /// Filters that keep input until there is room for what they make of it, or until something has come.
    pub(crate) held: Vec<Held>,
    /// What it has to do with subrequests: `None` for most.
    pub(crate) parts: Option<Box<Parts>>,
}

impl Request {
    /// Readies a pooled request for a new head, and counts it.
    pub(crate) fn begin(&mut self, client: Client, gen: Rc<Http>, server: Rc<Server>) {
        let conn = client.conn();
        self.number = conn.requests.get() + 1;
        conn.requests.set(self.number);
        Counters::add(&conn.worker.counters.requests, 1);
        self.stand(client, gen, server);
    }

    /// Gives a pooled request its place.
    pub(crate) fn stand(&mut self, client: Client, gen: Rc<Http>, server: Rc<Server>) {
        let location = Rc::clone(gen.location(server.location));
        self.place = Some(Place { client, gen, server, location });
        self.start_us = clock::mono_us();
        self.redirects_left = REDIRECTS_MAX;
        self.flags.valid_unparsed_uri = true;
        self.flags.valid_location = true;
    }

    /// Gives back room for more than there is: nothing will be asked of it for long.
    fn shrink(&mut self) {
        let own = [&mut self.buf, &mut self.uri, &mut self.args, &mut self.host];
        own.into_iter().for_each(Vec::shrink_to_fit);
        self.exchange.request.shrink_to_fit();
        self.exchange.reply.shrink_to_fit();
        self.values.shrink();
        self.upstream.shrink_to_fit();
    }

    /// Forgets the request and keeps the memory. Every field is named, so that none is forgotten;
    /// cleared in place, because moving a request costs more than answering a small one.
    pub(crate) fn recycle(&mut self) {
        let Request {
            place,
            buf,
            head,
            method,
            uri,
            args,
            host,
            out,
            body,
            ctx,
            kept,
            values,
            redirects_left,
            flags,
            err_status,
            whole,
            request_id,
            start_us,
            // Written before anybody reads it.
            took_us: _,
            sent,
            header_size,
            left,
            received,
            limit_rate,
            limit_rate_after,
            paced_until_ms,
            upstream,
            client,
            exchange,
            number,
            marks,
            held,
            parts,
        } = self;
        *place = None;
        buf.clear();
        head.clear();
        *method = Method::default();
        uri.clear();
        args.clear();
        host.clear();
        out.clear();
        body.recycle();
        // Where there is none, there is nobody to be called.
        if !ctx.is_empty() || !kept.is_empty() {
            ctx.clear();
            kept.clear();
        }
        values.clear();
        *redirects_left = 0;
        *flags = Flags::default();
        *err_status = 0;
        *whole = None;
        *request_id = [0; 16];
        *start_us = 0;
        *sent = 0;
        *header_size = 0;
        *left = 0;
        *received = 0;
        *limit_rate = None;
        *limit_rate_after = None;
        *paced_until_ms = 0;
        upstream.clear();
        *client = None;
        exchange.clear();
        *number = 0;
        *marks = Marks::default();
        held.clear();
        *parts = None;
    }

    /// How much memory a request that was recycled would keep, as far as a client or a server
    /// decides on it.
    pub(crate) fn kept_bytes(&self) -> usize {
        let exchange = self.exchange.request.capacity() + self.exchange.reply.capacity();
        let bodies = self.body.kept_bytes() + exchange;
        bodies
            + self.buf.capacity()
            + self.uri.capacity()
            + self.args.capacity()
            + self.host.capacity()
            + self.values.kept_bytes()
            + self.head.headers.capacity() * size_of::<HeaderField>()
            + self.head.ignored.capacity() * size_of::<Range32>()
            + self.out.kept_bytes()
    }

    /// Gives a copy its place in the configuration, and the variables that were set here.
    pub(crate) fn copy_place_to(&self, copy: &mut Request, client: Client) {
        let place = self.place();
        copy.place = Some(Place {
            client,
            gen: Rc::clone(&place.gen),
            server: Rc::clone(&place.server),
            location: Rc::clone(&place.location),
        });
        copy.client.clone_from(&self.client);
        copy.values.copy_from(&self.values);
    }

    fn place(&self) -> &Place {
        self.place.as_ref().expect("a request in use has its place")
    }

    /// The client's. A detached request has one that leads nowhere.
    pub fn conn(&self) -> &Rc<Connection> {
        self.place().client.conn()
    }

    /// Whom it is answered.
    #[inline]
    pub(crate) fn to_client(&self) -> &Client {
        &self.place().client
    }

    /// The client's address as the request sees it.
    pub fn client(&self) -> ClientAddr {
        self.client.as_ref().map_or_else(|| self.conn().client(), |c| c.0)
    }

    /// `$remote_addr`
    pub fn client_text(&self) -> &[u8] {
        match &self.client {
            Some(c) => &c.1,
            None => self.conn().client_text(),
        }
    }

    /// Another address than the connection's, for this request.
    pub fn set_client(&mut self, client: ClientAddr) {
        let mut text = Vec::new();
        client.write(&mut text);
        self.client = Some(Box::new((client, text)));
    }

    /// The configuration that it began with.
    pub fn gen(&self) -> &Rc<Http> {
        &self.place().gen
    }

    /// Lower-case, without port, from the request line or `Host`; empty: the client has named none.
    pub fn host(&self) -> &[u8] {
        &self.host
    }

    /// Found by address and name.
    pub fn server(&self) -> &Rc<Server> {
        &self.place().server
    }

    /// The location that serves this request now.
    pub fn loc(&self) -> &Rc<Location> {
        &self.place().location
    }

    pub(crate) fn set_server(&mut self, server: Rc<Server>) {
        let place = self.place.as_mut().expect("a request in use has its place");
        place.location = Rc::clone(place.gen.location(server.location));
        place.server = server;
    }

    /// By its number.
    pub fn set_location(&mut self, id: usize) {
        let place = self.place.as_mut().expect("a request in use has its place");
        place.location = Rc::clone(place.gen.location(id));
        self.flags.valid_location = true;
    }

    // --- the request's header ---

    /// Of what the head says.
    pub fn bytes(&self, range: Range32) -> &[u8] {
        range.of(&self.buf)
    }

    /// The first field with that id.
    pub fn header(&self, id: HeaderId) -> Option<&[u8]> {
        self.head.value(id, &self.buf)
    }

    /// Names and values as they came, in order.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.head.headers.iter().map(|h| (h.name.of(&self.buf), h.value.of(&self.buf)))
    }

    /// Adds a field to the request, as a module or Lua may.
    pub(crate) fn add_header_in(&mut self, name: &[u8], value: &[u8]) {
        let id = HeaderId::of(name);
        let (name, value) = (self.keep(name), self.keep(value));
        self.head.headers.push(HeaderField { name, value, id });
        self.head.seen |= id.bit();
    }

    fn keep(&mut self, bytes: &[u8]) -> Range32 {
        let start = self.buf.len() as u32;
        self.buf.extend_from_slice(bytes);
        Range32 { start, end: self.buf.len() as u32 }
    }

    /// As the client wrote it, while it is still that one.
    pub fn method_name(&self) -> &[u8] {
        if self.method == self.head.method {
            return self.bytes(self.head.method_span);
        }
        crate::names::method(self.method)
    }

    /// The client's.
    pub fn version(&self) -> Version {
        self.head.version
    }

    /// The path's extension, without the dot.
    pub(crate) fn exten(&self) -> Option<&[u8]> {
        weir_wire::http1::uri::exten(&self.uri)
    }

    /// Of HTTP/2 as HTTP/1.1 would have it.
    pub fn request_line(&self) -> &[u8] {
        self.bytes(self.head.request_line)
    }

    /// Line and fields as the client wrote them, with the blank line. Over HTTP/2 there is no such text, and of a head
    /// that was refused not all of it.
    pub fn raw_head(&self) -> Option<&[u8]> {
        let (line, end) = (self.head.request_line, self.head.head_len);
        let is_whole = self.version() < Version::HTTP_20 && end >= line.end as usize;
        self.buf.get(line.start as usize..end).filter(|_| is_whole)
    }

    /// `$request_uri`: path and arguments as the client wrote them.
    pub fn unparsed_uri(&self) -> &[u8] {
        self.bytes(self.head.target)
    }

    // --- per-module state ---

    /// What a module has put there; an internal redirect clears it.
    pub fn ctx<T: Any>(&mut self) -> Option<&mut T> {
        self.ctx.iter_mut().find_map(|c| c.downcast_mut())
    }

    /// The same, without a hold on the request.
    pub fn has_ctx<T: Any>(&self) -> bool {
        self.ctx.iter().any(|c| c.is::<T>())
    }

    #[inline]
    pub(crate) fn has_any_ctx(&self) -> bool {
        !self.ctx.is_empty()
    }

    /// The value, to be looked at only.
    pub fn ctx_ref<T: Any>(&self) -> Option<&T> {
        self.ctx.iter().find_map(|c| c.downcast_ref())
    }

    /// Replaces what there was of that type.
    pub fn set_ctx<T: Any>(&mut self, value: T) {
        match self.ctx::<T>() {
            Some(old) => *old = value,
            None => self.ctx.push(Box::new(value)),
        }
    }

    /// Takes it away.
    pub fn take_ctx<T: Any>(&mut self) -> Option<Box<T>> {
        let at = self.ctx.iter().position(|c| c.is::<T>())?;
        self.ctx.swap_remove(at).downcast().ok()
    }

    /// Puts back what was taken away.
    pub fn put_ctx<T: Any>(&mut self, value: Box<T>) {
        self.ctx.push(value);
    }

    /// Whether a module has noted this, and kept it through internal redirects.
    #[inline]
    pub fn has_mark(&self, mark: &Mark) -> bool {
        self.marks.has(mark)
    }

    /// For good: no mark is taken back.
    pub fn mark(&mut self, mark: &Mark) {
        self.marks.add(mark);
    }

    /// State that outlives internal redirects, such as what a limit holds for this request.
    pub fn kept<T: Any>(&mut self) -> Option<&mut T> {
        self.kept.iter_mut().find_map(|c| c.downcast_mut())
    }

    /// The same, without a hold on the request.
    pub(crate) fn kept_ref<T: Any>(&self) -> Option<&T> {
        self.kept.iter().find_map(|c| c.downcast_ref())
    }

    /// Replaces what there was of that type.
    pub fn keep_state<T: Any>(&mut self, value: T) {
        match self.kept::<T>() {
            Some(old) => *old = value,
            None => self.kept.push(Box::new(value)),
        }
    }

    /// Takes such state away.
    pub(crate) fn take_kept<T: Any>(&mut self) -> Option<Box<T>> {
        let at = self.kept.iter().position(|c| c.is::<T>())?;
        self.kept.swap_remove(at).downcast().ok()
    }

    /// An internal redirect starts the modules afresh.
    pub(crate) fn clear_ctx(&mut self) {
        self.ctx.clear();
        self.held.clear();
    }

    /// It was answered, and how long that took says something: what became a tunnel is over when its ends want.
    pub fn is_timed(&self) -> bool {
        self.flags.header_sent && !self.flags.upgraded && !self.flags.endless
    }

    /// The status that an answer has instead of its handler's own, by `error_page`; 0: none.
    pub fn error_status(&self) -> u16 {
        self.err_status
    }

    /// Gives the answer that status, also in the place of one by `error_page`.
    pub fn set_status(&mut self, status: u16) {
        self.err_status = 0;
        self.out.status = status;
        self.out.clear_status_line();
    }

    /// Whether its body is thrown away.
    pub fn discards_body(&self) -> bool {
        self.flags.discard_body
    }

    /// The name by which its server is counted and logged.
    pub fn server_name(&self) -> &[u8] {
        &self.server().core.reached.primary_name
    }

    /// Whether the client has asked for one of the server's names.
    pub fn is_named(&self) -> bool {
        self.server().core.reached.names.iter().any(|name| name.is_name(&self.host))
    }

    /// Of the monotonic clock, in microseconds.
    pub fn started_us(&self) -> u64 {
        self.start_us
    }

    /// The number of this request on its connection.
    pub fn serial_number(&self) -> u32 {
        self.number
    }

    /// Milliseconds since the request began.
    pub fn elapsed_ms(&self) -> u64 {
        clock::mono_ms().saturating_sub(self.start_us / 1000)
    }
}
