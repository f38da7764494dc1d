//! The body of an answer on its way from the server to the client.
//!
//! Buffered, it is read ahead of a slow client into memory and then into a temporary file, so
//! that the server is free as soon as possible; nothing is read when both are full. Unbuffered,
//! each piece is sent before the next is read. Either way nothing that has been read is kept from
//! the client while more is waited for.
//!
//! Differences from nginx: the buffers are one amount of memory, not a number of pieces; a body is
//! passed on as it comes also where its length is known or the connection's end is its own, and so
//! is what a filter (gzip) keeps back, and a head without a body, after a short pause.

use crate::ahead::{filtered, is_full, Ahead, PIECE_BYTES};
use crate::conf::BackendLoc;
use crate::decoder;
use crate::fault::{Fault, Reading};
use crate::kept::Keep;
use crate::link::reply::{BadBody, BodyReader};
use crate::link::Link;
use crate::upload::{self, More};
use bytes::Bytes;
use std::future::{poll_fn, Future};
use std::pin::pin;
use std::task::{Context, Poll};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::body::BodyError;
use weir_http::{Buf, Chain, ClientWatch, Request};
use weir_runtime::clock;
use weir_runtime::timer::LazyTimer;
use weir_runtime::turns::{self, Pause};
use weir_upstream::LinkError;

/// For filters and HTTP/2: larger pieces are passed on where they are instead of being copied.
const COPY_MAX_BYTES: usize = 16 * 1024;
/// Read at once from a server with much to say.
const READ_ROOM_BYTES: usize = 64 * 1024;
/// Read before others have their turn.
const TURN_BYTES: usize = 1024 * 1024;

const READING: &str = "reading upstream";

impl From<BadBody> for Fault {
    fn from(e: BadBody) -> Fault {
        Fault::BadBody(match e {
            BadBody::Chunks => "upstream sent invalid chunked response while reading upstream",
            BadBody::Trailers => "upstream sent invalid trailer while reading upstream",
            BadBody::TooLong => {
                "upstream sent response body larger than indicated content length while reading \
                 upstream"
            }
            BadBody::TooShort => "upstream prematurely closed stream while reading upstream",
            BadBody::Cut => "upstream prematurely closed FastCGI stdout while reading upstream",
        })
    }
}

/// So long more is waited for before what a filter keeps back is asked for: answers that come
/// without a pause are compressed as well as they can be.
const PAUSE_MS: u64 = 10;

/// An answer's body on its way, and how far it has come.
pub(crate) struct Body {
    pub(crate) reader: BodyReader,
    pub(crate) keep: Keep,
    /// Some of it has been passed on.
    begun: bool,
    /// It has ended too early.
    cut: bool,
    /// Bytes read so far, for `…_limit_rate`.
    read: u64,
}

impl Body {
    #[inline(always)]
    pub(crate) fn new(reader: BodyReader, keep: Keep) -> Body {
        Body { reader, keep, begun: false, cut: false, read: 0 }
    }

    /// Passes on what came with the head.
    #[inline]
    pub(crate) fn first(
        &mut self,
        r: &mut Request,
        link: &mut Link,
        conf: &BackendLoc,
    ) -> Result<(), Fault> {
        let mut first = std::mem::take(&mut r.exchange.reply);
        let from = r.exchange.head_at + r.exchange.head.head_len;
        hear(r, link, conf);
        link.tell(&mut self.reader);
        let done = match self.take(r, &mut first, from, conf) {
            Ok(()) => self.emit_first(r, &mut first, from),
            Err(e) => Err(e),
        };
        first.truncate(from);
        r.exchange.reply = first;
        done?;
        self.go_on()
    }

    /// It is kept as it has come, if it is kept.
    #[inline]
    pub(crate) fn finish(&mut self, r: &Request) {
        if !self.reader.is_short() {
            self.keep.finish(r);
        }
    }

    /// All of it has been read, and none of it need be waited for.
    #[inline]
    pub(crate) fn is_over(&self) -> bool {
        self.reader.done && self.keep.buffering
    }

    /// Passes on what is still to come.
    pub(crate) async fn rest(
        &mut self,
        r: &mut Request,
        link: &mut Link,
        ahead: &mut Ahead<'_>,
        conf: &BackendLoc,
    ) -> Result<(), Fault> {
        let mut relay = Relay {
            conf,
            buffering: self.keep.buffering,
            watch: ClientWatch::new(r, self.keep.ignore_abort),
            body: self,
            ahead,
            uploads: link.unsent.is_some()
                || link.h2.is_some() && !r.body.is_none() && !r.body.complete,
            more: More::AtHand,
            upload_pace: LazyTimer::new(),
            upload_deadline: 0,
            body_timeout_ms: *r.loc().core.client_body_timeout,
            turn_bytes: 0,
            start_ms: 0,
            read_after_ms: 0,
            pace: LazyTimer::new(),
            kept_back: true,
            pause: LazyTimer::new(),
            pause_until_ms: 0,
            read_deadline: 0,
            send_deadline: 0,
        };
        relay.rest(r, link).await
    }

    /// Decodes what was read, `buf[from..]`, in place.
    #[inline(always)]
    fn take(
        &mut self,
        r: &mut Request,
        buf: &mut Vec<u8>,
        from: usize,
        conf: &BackendLoc,
    ) -> Result<(), Fault> {
        let came = (buf.len() - from) as u64;
        self.read += came;
        if let Some(state) = r.upstream.last_mut() {
            state.response_length += came;
        }
        let mut bad_trailer = false;
        match self.reader.feed(buf, from) {
            // What came before the end is still passed on.
            Err(BadBody::Cut) => self.cut = true,
            // Nobody asked for it.
            Err(BadBody::Trailers) if !*conf.pass_trailers => {
                self.reader.done = true;
                self.reader.excess = true;
                self.reader.trailers.clear();
                bad_trailer = true;
            }
            fed => fed?,
        }
        self.keep.write(r, &buf[from..]);
        if self.reader.done {
            self.ended(r, conf, bad_trailer);
        }
        Ok(())
    }

    /// All of it has been read.
    #[inline]
    fn ended(&mut self, r: &mut Request, conf: &BackendLoc, bad_trailer: bool) {
        if self.reader.excess && !bad_trailer {
            let text = "upstream sent more data than specified in \"Content-Length\" header \
                        while reading upstream";
            r.log(LogLevel::Warn, text);
        }
        // Trailers, which are made of what leaves now, may show how long it took.
        if let Some(state) = r.upstream.last_mut().filter(|state| state.response_us.is_none()) {
            state.response_us = Some(clock::mono_us().saturating_sub(state.begun_us));
        }
        if !(self.reader.trailers.is_empty() && r.exchange.trailers.is_empty()) {
            r.exchange.trailers = std::mem::take(&mut self.reader.trailers);
            pass_trailers(r, conf);
        }
    }

    fn go_on(&self) -> Result<(), Fault> {
        match self.cut {
            true => Err(BadBody::Cut.into()),
            false => Ok(()),
        }
    }

    /// What came with the head, `buf[from..]`.
    fn emit_first(&mut self, r: &mut Request, buf: &mut Vec<u8>, from: usize) -> Result<(), Fault> {
        let last = self.reader.done;
        let len = buf.len() - from;
        if self.keep.is_quiet(r) {
            return Ok(());
        }
        if len == 0 && !last {
            return match self.keep.buffering {
                true => Ok(()),
                false => filtered(r.output(Chain::one(Buf::flush()))),
            };
        }
        self.begun = true;
        if r.body_is_plain() && (len <= COPY_MAX_BYTES * 2 || r.takes_buffers()) {
            r.send_read(buf, from, last);
            return Ok(());
        }
        self.emit(r, Bytes::copy_from_slice(&buf[from..]), last)
    }

    #[inline(never)]
    fn emit(&mut self, r: &mut Request, bytes: Bytes, last: bool) -> Result<(), Fault> {
        let mut buf = Buf::mem(bytes);
        buf.last = last;
        buf.flush = !self.keep.buffering;
        filtered(r.output(Chain::one(buf)))
    }
}

/// Logs what the server has to say besides its answer.
#[inline]
fn hear(r: &Request, link: &mut Link, conf: &BackendLoc) {
    if let Some(decoder) = &mut link.decoder {
        decoder::log_aside(r, *conf.family, decoder, READING);
    }
}

#[inline(never)]
fn pass_trailers(r: &mut Request, conf: &BackendLoc) {
    if !*conf.pass_trailers {
        return;
    }
    for (name, value) in &r.exchange.trailers {
        if !conf.hide.hides_name(name) {
            r.out.trailers.push((name.clone(), value.clone()));
        }
    }
}

/// The rest of a body, as it comes.
struct Relay<'a, 'c> {
    conf: &'a BackendLoc,
    body: &'a mut Body,
    ahead: &'a mut Ahead<'c>,
    buffering: bool,
    watch: ClientWatch,
    /// The request's body is still coming, and goes to the server meanwhile.
    uploads: bool,
    more: More,
    /// Until when the client must have sent more of it; 0 while it need not.
    upload_pace: LazyTimer,
    upload_deadline: u64,
    body_timeout_ms: u64,
    /// Since when it is read, for `…_limit_rate`; nothing is read before then.
    start_ms: u64,
    read_after_ms: u64,
    /// Read since others have had their turn.
    turn_bytes: usize,
    pace: LazyTimer,
    /// Something was passed on that a filter may have kept; asked for after a pause.
    kept_back: bool,
    pause: LazyTimer,
    pause_until_ms: u64,
    /// Until when the server must have sent more, and the client taken more; 0 when none waits.
    read_deadline: u64,
    send_deadline: u64,
}

enum Step {
    Read(usize),
    /// The client has taken something.
    Flushed,
    /// Nothing has come for a while.
    Pause,
}

impl Relay<'_, '_> {
    async fn rest(&mut self, r: &mut Request, link: &mut Link) -> Result<(), Fault> {
        let mut buf = Vec::new();
        let limited = r.limit_rate.map_or(r.loc().core.limit_rate.is_some(), |n| n > 0);
        let rate = self.ahead.rate;
        while !self.body.reader.done {
            let step = self.next_step(r, link, &mut buf, rate, limited).await;
            let step = match step {
                Err(Fault::ClientGone) => {
                    self.body.keep.unless_kept(Err(Fault::ClientGone))?;
                    continue;
                }
                step => step?,
            };
            match step {
                Step::Read(n) if r.flags.filter_needs_memory => {
                    turns::work(|| self.has_read(r, link, &mut buf, n, limited))?;
                }
                Step::Read(n) => self.has_read(r, link, &mut buf, n, limited)?,
                Step::Flushed => {}
                Step::Pause => self.ask_for_all(r)?,
            }
        }
        match self.buffering || self.body.keep.is_quiet(r) {
            true => Ok(()),
            false => self.drain(r, 0).await,
        }
    }

    async fn next_step(
        &mut self,
        r: &mut Request,
        link: &mut Link,
        buf: &mut Vec<u8>,
        rate: u64,
        limited: bool,
    ) -> Result<Step, Fault> {
        let quiet = self.body.keep.is_quiet(r);
        if self.uploads {
            self.take_body(r, link).await?;
        }
        // An upload goes on while the client takes what it is sent, where that can be told apart.
        if !self.buffering && !quiet && (!self.uploads || limited || r.holds() || r.has_parts()) {
            self.drain(r, 0).await?;
            self.read_deadline = 0;
        }
        let room = self.room(rate);
        if !self.uploads {
            self.send_deadline = 0;
            self.read_deadline = 0;
        }
        if r.queued() >= self.conf.buffers_bytes() && r.awaits_turn() {
            // What the client would take at once does not go by way of the temporary file.
            weir_runtime::event_loop::yield_now().await;
        }
        if self.turn_bytes >= TURN_BYTES || turns::is_spent() {
            self.turn_bytes = 0;
            Pause::default().await;
        }
        match !quiet && self.stands_before(r, limited) {
            true => self.step_before(r, link, buf, room).await,
            false => poll_fn(|cx| self.step(cx, r, link, buf, room)).await,
        }
    }

    /// What is read ahead waits in front of the filters, or of what limits the rate.
    fn stands_before(&self, r: &Request, limited: bool) -> bool {
        r.has_parts() || self.buffering && (limited || r.flags.filter_needs_memory)
    }

    fn has_read(
        &mut self,
        r: &mut Request,
        link: &mut Link,
        buf: &mut Vec<u8>,
        n: usize,
        limited: bool,
    ) -> Result<(), Fault> {
        self.read_deadline = 0;
        self.turn_bytes += n;
        if let Some(state) = r.upstream.last_mut() {
            state.bytes_received += n as u64;
        }
        if n == 0 {
            if !self.body.reader.ends_with_connection() {
                return Err(Fault::Eof(READING));
            }
            self.body.reader.done = true;
        }
        hear(r, link, self.conf);
        link.tell(&mut self.body.reader);
        self.body.take(r, buf, 0, self.conf)?;
        if !buf.is_empty() || self.body.reader.done {
            self.put(r, buf, limited)?;
        }
        buf.clear();
        self.body.go_on()
    }

    /// More is not coming for now: what the filters have kept is to be seen, and the head.
    fn ask_for_all(&mut self, r: &mut Request) -> Result<(), Fault> {
        self.kept_back = false;
        self.body.begun = true;
        match r.body_is_plain() {
            true => Ok(()),
            false => filtered(r.output(Chain::one(Buf::flush()))),
        }
    }

    /// Gives the server what has come of the request's body, once it has taken what came before.
    async fn take_body(&mut self, r: &mut Request, link: &mut Link) -> Result<(), Fault> {
        if !link.wants_more() {
            return Ok(());
        }
        let mut bytes = Vec::new();
        self.more = upload::gather(r, &mut bytes).await.map_err(Fault::Client)?;
        let ended = self.more == More::None;
        if ended || !bytes.is_empty() {
            link.take_over(bytes, ended);
        }
        if ended {
            // It has looked away from what came of the body.
            self.watch = ClientWatch::new(r, self.body.keep.ignore_abort);
        }
        // What is left of it then, HTTP/2 sends while it is read.
        self.uploads = !(ended && link.h2.is_some());
        Ok(())
    }

    /// Sends what the server takes of the request's body; ready when more of that has come from the
    /// client.
    fn poll_upload(&mut self, cx: &mut Context<'_>, link: &mut Link) -> Poll<Result<Step, Fault>> {
        self.uploads = link.upload(cx);
        let waits = self.uploads && link.wants_more();
        let heard = waits && (self.more == More::AtHand || self.watch.has_body(cx));
        if heard || !waits {
            self.upload_deadline = 0;
        } else if self.upload_deadline == 0 {
            self.upload_deadline = clock::mono_ms() + self.body_timeout_ms;
        }
        if heard || !self.uploads {
            return Poll::Ready(Ok(Step::Flushed));
        }
        if !waits {
            return Poll::Pending;
        }
        let late = self.upload_pace.poll_until(cx, self.upload_deadline);
        late.map(|()| Err(Fault::Client(BodyError::Status(408))))
    }

    async fn drain(&self, r: &mut Request, leave: u64) -> Result<(), Fault> {
        r.drain(leave).await.map_err(|_| Fault::ClientGone)
    }

    /// How much may be read at once; holds reading to `…_limit_rate`.
    fn room(&mut self, rate: u64) -> usize {
        let room = match self.buffering {
            true => READ_ROOM_BYTES,
            false => *self.conf.buffer_size as usize,
        };
        if rate == 0 {
            return room;
        }
        let now = clock::mono_ms();
        if self.start_ms == 0 {
            self.start_ms = now;
        }
        let secs = now.saturating_sub(self.start_ms) / 1000 + 1;
        let allowed = (rate * secs).saturating_sub(self.body.read);
        self.read_after_ms = match allowed {
            0 => now + (self.body.read - rate * secs + 1) * 1000 / rate + 1,
            _ => 0,
        };
        room.min(allowed.max(1) as usize)
    }

    fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut Link,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<Step, Fault>> {
        if self.read_after_ms > 0 {
            // More may be read from then on.
            return self.pace.poll_until(cx, self.read_after_ms).map(|()| Ok(Step::Flushed));
        }
        let wait = link.read_ms(*self.conf.read_timeout);
        let read = link.poll_read(cx, buf, room, &mut self.read_deadline, wait);
        read.map(|read| read.map(Step::Read).map_err(|e| read_fault(e, self.buffering)))
    }

    /// Sends and reads where what is sent is what was read.
    fn step(
        &mut self,
        cx: &mut Context<'_>,
        r: &Request,
        link: &mut Link,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<Step, Fault>> {
        if self.uploads {
            if let Poll::Ready(step) = self.poll_upload(cx, link) {
                return Poll::Ready(step);
            }
        }
        let queued = r.queued();
        let sends = (self.buffering || self.uploads) && !self.body.keep.is_quiet(r);
        let most = if self.buffering { self.conf.buffers_bytes() } else { 1 };
        // Small pieces wait for more while there is more; a full buffer goes out.
        let large = sends && queued >= most.min(*self.conf.buffer_size);
        if large {
            if let Poll::Ready(sent) = self.poll_send(cx, r) {
                return Poll::Ready(sent.map(|()| Step::Flushed));
            }
        }
        let full = sends && queued >= most;
        // What goes into the file is written as it was read.
        let room = if full { room.min(self.conf.temp_write_bytes()) } else { room };
        if !full || self.may_spill() {
            if let Poll::Ready(step) = self.poll_read(cx, link, buf, room) {
                return Poll::Ready(step);
            }
        } else {
            // Nothing may be read, however long that takes.
            self.read_deadline = 0;
        }
        if sends && !large && queued > 0 {
            if self.body.begun {
                while r.queued() > 0 {
                    match self.poll_send(cx, r) {
                        Poll::Ready(Ok(())) => {}
                        Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                        Poll::Pending => break,
                    }
                }
            } else if self.poll_pause(cx).is_ready() {
                return Poll::Ready(Ok(Step::Pause));
            }
        }
        match self.watch.is_gone(cx) {
            true => Poll::Ready(Err(Fault::ClientGone)),
            false => Poll::Pending,
        }
    }

    /// Sends some of what is queued.
    fn poll_send(&mut self, cx: &mut Context<'_>, r: &Request) -> Poll<Result<(), Fault>> {
        if let Poll::Ready(sent) = r.poll_flush(cx) {
            self.send_deadline = 0;
            return Poll::Ready(sent.map(|_| ()).map_err(|_| Fault::ClientGone));
        }
        if self.send_deadline == 0 {
            self.send_deadline = clock::mono_ms() + *r.loc().core.send_timeout;
        }
        r.poll_send_timeout(cx, self.send_deadline).map(|()| Err(Fault::ClientGone))
    }

    /// Sends and reads where filters, or a rate, stand between the two.
    async fn step_before(
        &mut self,
        r: &mut Request,
        link: &mut Link,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Result<Step, Fault> {
        self.ahead.feed(r, false)?;
        let full = self.buffering && is_full(r, self.conf.buffers_bytes());
        let behind = full || !self.ahead.is_empty();
        let room = if behind { room.min(self.conf.temp_write_bytes()) } else { room };
        let reads = !behind || self.may_spill();
        if !reads {
            self.read_deadline = 0;
        }
        let leave = if behind { self.ahead.leave() } else { 0 };
        let kept_back = self.kept_back && !behind;
        let mut sending = pin!(r.drain_on(leave));
        let mut sends = true;
        poll_fn(|cx| {
            if self.uploads {
                if let Poll::Ready(step) = self.poll_upload(cx, link) {
                    return Poll::Ready(step);
                }
            }
            if sends {
                match sending.as_mut().poll(cx) {
                    Poll::Ready(Err(_)) => return Poll::Ready(Err(Fault::ClientGone)),
                    Poll::Ready(Ok(())) if behind => return Poll::Ready(Ok(Step::Flushed)),
                    Poll::Ready(Ok(())) => sends = false,
                    Poll::Pending => {}
                }
            }
            if reads {
                if let Poll::Ready(step) = self.poll_read(cx, link, buf, room) {
                    return Poll::Ready(step);
                }
            }
            if kept_back && self.poll_pause(cx).is_ready() {
                return Poll::Ready(Ok(Step::Pause));
            }
            match self.watch.is_gone(cx) {
                true => Poll::Ready(Err(Fault::ClientGone)),
                false => Poll::Pending,
            }
        })
        .await
    }

    /// Ready when nothing has come for a while.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if self.pause_until_ms == 0 {
            self.pause_until_ms = clock::mono_ms() + PAUSE_MS;
        }
        self.pause.poll_until(cx, self.pause_until_ms)
    }

    fn may_spill(&self) -> bool {
        self.buffering && (self.ahead.has_room() || self.body.keep.fill.is_some())
    }

    /// Hands a piece to the filters, by way of the temporary file when memory is full.
    fn put(&mut self, r: &mut Request, buf: &mut Vec<u8>, limited: bool) -> Result<(), Fault> {
        if self.body.keep.is_quiet(r) {
            return Ok(());
        }
        let max = self.conf.buffers_bytes();
        if self.body.begun && *r.loc().core.tcp_nodelay {
            // A piece must not wait for the acknowledgement of the one before it.
            r.conn().set_nodelay();
        }
        self.body.begun = true;
        self.kept_back = true;
        self.pause_until_ms = 0;
        let before = self.buffering && self.stands_before(r, limited);
        let spills = self.may_spill() && !buf.is_empty();
        if before && !self.ahead.is_empty() {
            return self.ahead.put(r, buf);
        }
        if spills && is_full(r, max) {
            self.ahead.put(r, buf)?;
            return match before {
                true => Ok(()),
                false => self.ahead.pass(r, self.body.reader.done),
            };
        }
        if before && spills && buf.len() > PIECE_BYTES {
            return self.put_pieces(r, buf, max);
        }
        if r.body_is_plain() && (buf.len() <= COPY_MAX_BYTES || r.takes_buffers()) {
            r.send_read(buf, 0, self.body.reader.done);
            return Ok(());
        }
        let last = self.body.reader.done;
        self.body.emit(r, Bytes::from(std::mem::take(buf)), last)
    }

    /// As long as the filters do not make too much of it.
    fn put_pieces(&mut self, r: &mut Request, buf: &mut Vec<u8>, max: u64) -> Result<(), Fault> {
        let mut rest = Bytes::from(std::mem::take(buf));
        while !rest.is_empty() && !is_full(r, max) {
            let piece = rest.split_to(rest.len().min(PIECE_BYTES));
            let last = self.body.reader.done && rest.is_empty();
            self.body.emit(r, piece, last)?;
        }
        match rest.is_empty() {
            true => Ok(()),
            false => self.ahead.put(r, &rest),
        }
    }
}

fn read_fault(e: LinkError, buffering: bool) -> Fault {
    match e {
        LinkError::Timeout => Fault::Timeout(READING),
        LinkError::Io(e) if buffering => Fault::Read(e, Reading::Ahead),
        LinkError::Io(e) => Fault::Read(e, Reading::Body),
        LinkError::Protocol(text) => Fault::Protocol(format!("{text} while {READING}")),
    }
}
