//! One request, whatever protocol it came by.

use crate::body::RequestBody;
use crate::buf::Chain;
use crate::client::Client;
use crate::generation::{Http, Location, Server};
use crate::headers_out::HeadersOut;
use crate::held::Held;
use crate::module::{FilterResult, Next};
use crate::subrequest::{self, Parts};
use crate::timing::Exchange;
use std::any::Any;
use std::io;
use std::rc::Rc;
use std::task::{Context, Poll};
use weir_core::counters::Counters;
use weir_core::timing::UpstreamState;
use weir_core::values::Values;
use weir_core::ClientAddr;
use weir_core::Session;
use weir_core::{ConnError, Connection};
use weir_runtime::clock;
use weir_script::template::Template;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::{HeaderField, Method, RequestHead, Version};
use weir_wire::Range32;

/// One more than the internal redirects that a request may go through.
pub(crate) const REDIRECTS_MAX: u8 = 11;
/// What leaves at once of an answer that has a rate, without sendfile: nginx's `output_buffers`, but at
/// high rates as much as keeps the pauses longer than the event loop is late.
const TURN_BYTES: u64 = 64 * 1024;
const TURNS_PER_SEC: u64 = 16;
/// So much of being late is made up for.
const LATE_MAX_MS: u64 = 50;

/// Where a request stands: its client, and the part of the configuration that serves it.
struct Place {
    client: Client,
    gen: Rc<Http>,
    server: Rc<Server>,
    location: Rc<Location>,
}

/// A request and its response under construction. Taken from the worker's pool, so that its
/// buffers are allocated once and used by many requests.
#[derive(Default)]
pub struct Request {
    place: Option<Place>,
    /// The head as it was read, and behind it whatever else has arrived.
    pub buf: Vec<u8>,
    pub head: RequestHead,
    pub method: Method,
    /// Decoded and normalised path.
    pub uri: Vec<u8>,
    pub args: Vec<u8>,
    /// Lower-case host without port, from the request line or the Host field.
    pub host: Vec<u8>,
    pub out: HeadersOut,
    pub body: RequestBody,
    ctx: Vec<Box<dyn Any>>,
    /// As `ctx`, and kept through internal redirects until the request is over.
    kept: Vec<Box<dyn Any>>,
    /// Variables, and what the last regular expression has captured.
    pub values: Values,
    /// Set by the rewrite module's code and `try_files`; a changed URI finds its location again.
    pub uri_changed: bool,
    /// Trailer fields follow the body, so it is chunked whatever its length.
    pub expect_trailers: bool,
    /// `Location` was set by this server, not by an upstream.
    pub own_location: bool,
    /// In a regex location with an alias: `try_files` has chosen what follows the alias.
    pub add_uri_to_alias: bool,
    /// How many more internal redirects are allowed.
    pub redirects_left: u8,
    /// The URI is the one the client sent, so `$request_uri`'s path may be passed on unchanged.
    pub valid_unparsed_uri: bool,
    /// The URI still begins with its location's name: false after `rewrite … break`.
    pub valid_location: bool,
    /// It came while the request before it was being answered.
    pub pipelined: bool,
    pub internal: bool,
    pub keepalive: bool,
    pub chunked: bool,
    /// The connection becomes a tunnel after the header (101).
    pub upgraded: bool,
    pub header_only: bool,
    pub header_sent: bool,
    /// The whole response has been sent: `$request_completion`.
    pub complete: bool,
    /// A status that replaces the handler's own: set by `error_page`.
    pub err_status: u16,
    /// An error page is being produced.
    pub error_page: bool,
    /// The client may still be sending: read on for a while after the answer.
    pub lingering: bool,
    pub discard_body: bool,
    /// `return 444`, or the peer has gone.
    pub aborted: bool,
    pub allow_ranges: bool,
    /// Conditions and ranges were judged elsewhere (an upstream that answered them itself).
    pub ignore_conditions: bool,
    pub single_range: bool,
    /// Which byte of the whole entity the body begins with (slices).
    pub body_offset: u64,
    pub filter_needs_memory: bool,
    /// Vary: Accept-Encoding is to be sent; this request may be answered compressed.
    pub gzip_vary: bool,
    /// The body is one whole entity in memory, unchanged so far; its compressed forms are kept
    /// here. A filter that changes the body takes this away.
    pub forms: Option<std::sync::Arc<weir_core::forms::Forms>>,
    /// The entity's text, while `forms` is there.
    pub whole_body: Option<bytes::Bytes>,
    pub gzip_tested: bool,
    pub gzip_ok: bool,
    pub request_id: [u8; 16],
    /// Monotonic ms.
    pub start_ms: u64,
    /// Bytes of the response that were queued so far, and of those the header's; how many have left
    /// tells [`Request::bytes_sent`].
    pub sent: u64,
    pub header_size: u64,
    /// Bytes of this request as received.
    pub received: u64,
    pub limit_rate: Option<u64>,
    pub limit_rate_after: Option<u64>,
    /// Until when nothing is sent, by `limit_rate`.
    paced_until_ms: u64,
    /// Which backends were asked, for the `$upstream_*` variables.
    pub upstream: Vec<UpstreamState>,
    /// The client's address and its text, where it is not the connection's (realip).
    client: Option<Box<(ClientAddr, Vec<u8>)>>,
    /// What was said with the last of them.
    pub exchange: Exchange,
    /// The number of this request on its connection.
    pub number: u32,
    /// It has been answered, and does what is to be done then: `post_action`.
    pub post_action: bool,
    /// Modules whose limits have been applied, by a bit each: once for a request and its parts.
    pub limits_applied: u8,
    /// Filters that keep input until there is room for what they make of it.
    pub(crate) held: Vec<Held>,
    /// The client did not take what was to make room for them.
    pub(crate) unsent: bool,
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
        conn.take_queue();
        self.stand(client, gen, server);
    }

    /// Gives a pooled request its place.
    pub(crate) fn stand(&mut self, client: Client, gen: Rc<Http>, server: Rc<Server>) {
        let location = Rc::clone(gen.location(server.location));
        self.place = Some(Place { client, gen, server, location });
        self.start_ms = clock::mono_ms();
        self.redirects_left = REDIRECTS_MAX;
        self.valid_unparsed_uri = true;
        self.valid_location = true;
    }

    /// Gives back room for more text than there is: nothing will be asked of it for long.
    pub fn shrink(&mut self) {
        let own = [&mut self.buf, &mut self.uri, &mut self.args, &mut self.host];
        own.into_iter().for_each(Vec::shrink_to_fit);
        self.exchange.request.shrink_to_fit();
        self.exchange.reply.shrink_to_fit();
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
            uri_changed,
            expect_trailers,
            own_location,
            add_uri_to_alias,
            redirects_left,
            valid_unparsed_uri,
            valid_location,
            pipelined,
            internal,
            keepalive,
            chunked,
            upgraded,
            header_only,
            header_sent,
            complete,
            err_status,
            error_page,
            lingering,
            discard_body,
            aborted,
            allow_ranges,
            ignore_conditions,
            single_range,
            body_offset,
            filter_needs_memory,
            gzip_vary,
            forms,
            whole_body,
            gzip_tested,
            gzip_ok,
            request_id,
            start_ms,
            sent,
            header_size,
            received,
            limit_rate,
            limit_rate_after,
            paced_until_ms,
            upstream,
            client,
            exchange,
            number,
            post_action,
            limits_applied,
            held,
            unsent,
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
        ctx.clear();
        kept.clear();
        values.clear();
        *uri_changed = false;
        *expect_trailers = false;
        *own_location = false;
        *add_uri_to_alias = false;
        *redirects_left = 0;
        *valid_unparsed_uri = false;
        *valid_location = false;
        *pipelined = false;
        *internal = false;
        *keepalive = false;
        *chunked = false;
        *upgraded = false;
        *header_only = false;
        *header_sent = false;
        *complete = false;
        *err_status = 0;
        *error_page = false;
        *lingering = false;
        *discard_body = false;
        *aborted = false;
        *allow_ranges = false;
        *ignore_conditions = false;
        *single_range = false;
        *body_offset = 0;
        *filter_needs_memory = false;
        *gzip_vary = false;
        *forms = None;
        *whole_body = None;
        *gzip_tested = false;
        *gzip_ok = false;
        *request_id = [0; 16];
        *start_ms = 0;
        *sent = 0;
        *header_size = 0;
        *received = 0;
        *limit_rate = None;
        *limit_rate_after = None;
        *paced_until_ms = 0;
        upstream.clear();
        *client = None;
        exchange.clear();
        *number = 0;
        *post_action = false;
        *limits_applied = 0;
        held.clear();
        *unsent = false;
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
        self.client.as_ref().map_or(self.conn().client, |c| c.0)
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

    pub fn gen(&self) -> &Rc<Http> {
        &self.place().gen
    }

    pub fn server(&self) -> &Rc<Server> {
        &self.place().server
    }

    /// The location that serves this request now.
    pub fn loc(&self) -> &Rc<Location> {
        &self.place().location
    }

    pub fn set_server(&mut self, server: Rc<Server>) {
        let place = self.place.as_mut().expect("a request in use has its place");
        place.location = Rc::clone(place.gen.location(server.location));
        place.server = server;
    }

    pub fn set_location(&mut self, id: usize) {
        let place = self.place.as_mut().expect("a request in use has its place");
        place.location = Rc::clone(place.gen.location(id));
        self.valid_location = true;
    }

    // --- the request's header ---

    pub fn bytes(&self, range: Range32) -> &[u8] {
        range.of(&self.buf)
    }

    /// The first field with that id.
    pub fn header(&self, id: HeaderId) -> Option<&[u8]> {
        self.head.value(id, &self.buf)
    }

    /// The first field of that name.
    pub fn header_named(&self, name: &[u8]) -> Option<&[u8]> {
        self.headers().find(|(n, _)| n.eq_ignore_ascii_case(name)).map(|(_, v)| v)
    }

    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.head.headers.iter().map(|h| (h.name.of(&self.buf), h.value.of(&self.buf)))
    }

    /// Adds a field to the request, as a module or Lua may.
    pub fn add_header_in(&mut self, name: &[u8], value: &[u8]) {
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

    pub fn method_name(&self) -> &[u8] {
        if self.method == self.head.method {
            return self.bytes(self.head.method_span);
        }
        crate::names::method(self.method)
    }

    pub fn version(&self) -> Version {
        self.head.version
    }

    /// The path's extension, without the dot.
    pub fn exten(&self) -> Option<&[u8]> {
        weir_wire::http1::uri::exten(&self.uri)
    }

    pub fn request_line(&self) -> &[u8] {
        self.bytes(self.head.request_line)
    }

    /// `$request_uri`: path and arguments as the client wrote them.
    pub fn unparsed_uri(&self) -> &[u8] {
        self.bytes(self.head.target)
    }

    // --- per-module state ---

    pub fn ctx<T: Any>(&mut self) -> Option<&mut T> {
        self.ctx.iter_mut().find_map(|c| c.downcast_mut())
    }

    pub fn has_ctx<T: Any>(&self) -> bool {
        self.ctx.iter().any(|c| c.is::<T>())
    }

    pub fn set_ctx<T: Any>(&mut self, value: T) {
        match self.ctx::<T>() {
            Some(old) => *old = value,
            None => self.ctx.push(Box::new(value)),
        }
    }

    pub fn take_ctx<T: Any>(&mut self) -> Option<Box<T>> {
        let at = self.ctx.iter().position(|c| c.is::<T>())?;
        self.ctx.swap_remove(at).downcast().ok()
    }

    /// State that outlives internal redirects, such as what a limit holds for this request.
    pub fn kept<T: Any>(&mut self) -> Option<&mut T> {
        self.kept.iter_mut().find_map(|c| c.downcast_mut())
    }

    pub fn keep_state<T: Any>(&mut self, value: T) {
        match self.kept::<T>() {
            Some(old) => *old = value,
            None => self.kept.push(Box::new(value)),
        }
    }

    /// An internal redirect starts the modules afresh.
    pub fn clear_ctx(&mut self) {
        self.ctx.clear();
        self.held.clear();
    }

    // --- the response ---

    /// Runs the header filters and puts the header into the output queue.
    pub fn send_header(&mut self) -> FilterResult {
        if self.header_sent {
            return Ok(());
        }
        if self.err_status != 0 {
            self.out.status = self.err_status;
            self.out.clear_status_line();
        }
        Next(0).header(self)
    }

    /// Whether no body filter has anything to do with this response.
    pub fn body_is_plain(&self) -> bool {
        self.ctx.is_empty() && self.loc().plan.body_on_demand && self.parts.is_none()
    }

    /// Runs the body filters and puts the result into the output queue.
    pub fn output(&mut self, chain: Chain) -> FilterResult {
        Next(0).body(self, chain)
    }

    /// Bytes of the response that are not on their way yet.
    pub fn queued(&self) -> u64 {
        if self.is_part() {
            return subrequest::queued(self);
        }
        self.to_client().queued()
    }

    /// Bytes of the response that the client's socket has taken; over HTTP/2, its stream.
    pub fn bytes_sent(&self) -> u64 {
        self.left() + self.to_client().overhead()
    }

    /// As [`Request::bytes_sent`], of the body alone.
    pub fn body_bytes_sent(&self) -> u64 {
        self.left().saturating_sub(self.header_size)
    }

    /// An answer is sent to its end before the next one is queued, so what has not left is this one's.
    fn left(&self) -> u64 {
        self.sent.saturating_sub(match self.is_part() {
            true => 0,
            false => self.to_client().unsent(),
        })
    }

    /// Breaks the request off. The status is what it is logged with, unless an answer is on its way.
    pub fn abort(&mut self, status: u16) {
        self.aborted = true;
        if self.err_status == 0 && (self.out.status == 0 || self.bytes_sent() == 0) {
            self.err_status = status;
        }
    }

    /// Sends what can be sent now; answers how much that was.
    pub fn poll_flush(&self, cx: &mut Context<'_>) -> Poll<io::Result<u64>> {
        if self.is_part() {
            return subrequest::poll_flush(self, cx);
        }
        self.to_client().poll_flush(cx)
    }

    /// Whether more leaves as soon as the connection's own task has its turn: over HTTP/2 only that
    /// may wait for the socket.
    pub fn awaits_turn(&self) -> bool {
        !self.is_part() && self.to_client().awaits_turn()
    }

    /// Ready once the deadline for sending has passed.
    pub fn poll_send_timeout(&self, cx: &mut Context<'_>, deadline: u64) -> Poll<()> {
        if self.is_part() {
            return Poll::Pending;
        }
        self.to_client().poll_send_timeout(cx, deadline)
    }

    /// Sends what is queued until at most `leave` bytes are left, no faster than `limit_rate`.
    pub async fn drain(&mut self, leave: u64) -> Result<(), ConnError> {
        if self.holds() {
            Box::pin(self.let_go(leave)).await?;
        }
        if self.parts.is_some() && Box::pin(self.make_room(leave)).await? {
            return Ok(());
        }
        self.drain_own(leave).await
    }

    /// Waits until no filter keeps input.
    async fn let_go(&mut self, leave: u64) -> Result<(), ConnError> {
        while self.holds() {
            let leave = self.held_leave(leave);
            if self.parts.is_none() || !self.make_room(leave).await? {
                self.drain_own(leave).await?;
            }
            self.resume_held()?;
        }
        Ok(())
    }

    /// Waits for the parts of a page; whether that is all there is to do, as in a part.
    async fn make_room(&mut self, leave: u64) -> Result<bool, ConnError> {
        subrequest::make_room(self, leave).await?;
        Ok(self.is_part())
    }

    /// As `drain`; where there are parts and nothing is to be left, it goes on with them until it is
    /// dropped.
    pub async fn drain_on(&mut self, leave: u64) -> Result<(), ConnError> {
        match leave == 0 && self.parts.is_some() && !self.holds() {
            true => Box::pin(subrequest::go_on(self)).await,
            false => self.drain(leave).await,
        }
    }

    /// Whether sending may have to be held to a rate.
    pub fn is_limited(&self) -> bool {
        self.limit_rate.is_some() || self.loc().core.limit_rate.is_some()
    }

    /// As `drain`, of what is queued already.
    pub(crate) async fn drain_own(&mut self, leave: u64) -> Result<(), ConnError> {
        let core = &self.loc().core;
        let (timeout, turn) = (*core.send_timeout, *core.sendfile_max_chunk);
        let rate = if self.is_limited() { self.rate() } else { 0 };
        match rate {
            0 => self.to_client().drain(leave, turn, timeout).await,
            _ => self.drain_slowly(leave, rate, timeout).await,
        }
    }

    async fn drain_slowly(&mut self, leave: u64, rate: u64, timeout: u64) -> Result<(), ConnError> {
        let after = self.rate_after();
        while self.queued() > leave {
            let pause = self.paced_until_ms.saturating_sub(clock::mono_ms());
            if pause > 0 {
                self.sleep_while_open(pause).await?;
                continue;
            }
            let done = self.sent - self.queued();
            let seconds = self.elapsed_ms() / 1000 + 1;
            let allowed = (rate * seconds + after).saturating_sub(done);
            if allowed == 0 {
                let over = done.saturating_sub(rate * seconds + after) + 1;
                let wait = (over * 1000).div_ceil(rate) + 1;
                self.sleep_while_open(wait.min(1000)).await?;
                continue;
            }
            let turn = self.turn(allowed, rate);
            let begun = self.to_client().drain_some(turn, timeout).await?;
            let counts = |bytes: u64| bytes.saturating_sub(after);
            let paid = counts(self.sent - self.queued()) - counts(done);
            let late = clock::mono_ms().saturating_sub(LATE_MAX_MS).min(begun);
            let from = self.paced_until_ms.max(late);
            self.paced_until_ms = from + paid * 1000 / rate;
        }
        match leave {
            0 => self.to_client().drain_end(timeout).await,
            _ => Ok(()),
        }
    }

    /// How much of what the rate allows is sent at once. As in nginx the kernel is given a second's
    /// worth, to the end of a page of the file; what goes through buffers leaves in their size.
    fn turn(&self, allowed: u64, rate: u64) -> u64 {
        if !*self.loc().core.sendfile || self.conn().is_tls() {
            return allowed.min(TURN_BYTES.max(rate / TURNS_PER_SEC));
        }
        self.to_client().to_page_end(allowed)
    }

    /// Waits, but no longer than the client is there.
    pub async fn sleep_while_open(&self, ms: u64) -> Result<(), ConnError> {
        if self.is_part() {
            weir_runtime::timer::sleep_ms(ms).await;
            return Ok(());
        }
        self.to_client().sleep_while_open(ms).await
    }

    /// Bytes a second this response may take; 0 for no limit.
    fn rate(&mut self) -> u64 {
        if let Some(rate) = self.limit_rate {
            return rate;
        }
        let loc = Rc::clone(self.loc());
        let rate = loc.core.limit_rate.as_ref().map_or(0, |t| self.eval_size(t));
        self.limit_rate = Some(rate);
        rate
    }

    fn rate_after(&mut self) -> u64 {
        if let Some(after) = self.limit_rate_after {
            return after;
        }
        let loc = Rc::clone(self.loc());
        let after = loc.core.limit_rate_after.as_ref().map_or(0, |t| self.eval_size(t));
        self.limit_rate_after = Some(after);
        after
    }

    /// Evaluates the limits of `limit_rate` that have variables, while a match that is given up in them
    /// can still end the request.
    #[cold]
    pub(crate) fn settle_rate(&mut self) {
        let core = &self.loc().core;
        let is_fixed = |t: &Option<_>| {
            t.as_ref().is_none_or(|t: &std::sync::Arc<Template>| t.as_constant().is_some())
        };
        if self.is_part() || is_fixed(&core.limit_rate) && is_fixed(&core.limit_rate_after) {
            return;
        }
        let before = (self.limit_rate, self.limit_rate_after);
        if self.rate() > 0 {
            self.rate_after();
        }
        if self.match_failed() {
            (self.limit_rate, self.limit_rate_after) = before;
        }
    }

    /// Milliseconds since the request began.
    pub fn elapsed_ms(&self) -> u64 {
        clock::mono_ms().saturating_sub(self.start_ms)
    }
}
