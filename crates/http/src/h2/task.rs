//! The connection's task: frames in, requests started, frames out, one timer.

use super::conf::{H2Main, H2Srv};
use super::guard;
use super::link::{Link, FRAMED_MAX_BYTES};
use super::request;
use super::stream::Stream;
use crate::client::Client;
use crate::conf::{CoreLoc, Lingering};
use crate::generation::{Http, Server};
use crate::request::Request;
use crate::server;
use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{ready, Context, Poll};
use weir_core::counters::Counters;
use weir_core::logger::LogLevel;
use weir_runtime::clock;
use weir_runtime::turns::{self, Pause};
use weir_wire::http1::names::HeaderId;
use weir_wire::http2::flow::SendWindow;
use weir_wire::http2::frame;
use weir_wire::http2::hpack::{Fields, HpackLimits};
use weir_wire::http2::priority::{Priority, Tree};
use weir_wire::http2::receive::{Event, Receiver, Settings};
use weir_wire::http2::{
    ErrorCode, Fault, FRAME_TAKEN_MAX_BYTES, WINDOW_DEFAULT_BYTES, WINDOW_MAX_BYTES,
};

/// Nothing is read while this much waits to be written: a client that does not take its answers
/// gets no more of them.
const UNWRITTEN_MAX_BYTES: u64 = 2 * FRAMED_MAX_BYTES;
/// Batches read before other connections have their turn.
const BATCHES_MAX: u32 = 8;
/// Refused streams beyond which the client is not listening.
const REFUSED_MIN: u64 = 100;

/// A stream whose request is to be answered; a status refuses it.
pub(super) struct Job {
    pub stream: Rc<Stream>,
    pub request: Box<Request>,
    pub refused: Option<u16>,
}

/// Runs a stream's request.
pub(crate) trait Starter {
    fn start(&self, cx: &mut Context<'_>, job: Job);
}

/// One per worker: a connection at rest has no buffer.
#[derive(Default)]
struct ReadBuffer(RefCell<Vec<u8>>);

pub(crate) struct Task<S> {
    link: Rc<Link>,
    starter: S,
    receiver: Receiver,
    fields: Fields,
    tree: Tree,
    tree_changed: bool,
    /// What the receiver answers by itself.
    replies: Vec<u8>,
    /// The beginning of a frame that has not come whole.
    rest: Vec<u8>,
    shared: Rc<ReadBuffer>,
    gen: Rc<Http>,
    server: Rc<Server>,
    settings_acked: bool,
    goaway_sent: bool,
    /// No stream is begun any more and nothing read counts: the connection is being given up.
    ending: bool,
    /// The client is gone.
    broken: bool,
    refused: u64,
    /// Streams begun in this batch.
    fresh: u64,
    /// Coarse ms when the connection began to wait for something.
    idle_since: u64,
    partial_since: u64,
    write_deadline: u64,
    waiting: bool,
    started: bool,
    /// Others have their turn.
    pause: Option<Pause>,
}

impl<S: Starter> Task<S> {
    pub(super) fn new(link: Rc<Link>, starter: S, read: Vec<u8>) -> Task<S> {
        let gen = Http::of(&link.conn.generation());
        let server = server::default_of(&link.conn, &gen);
        let now = clock::mono_ms();
        let task = Task {
            receiver: Receiver::new(limits(&server), now),
            fields: Fields::default(),
            tree: Tree::default(),
            tree_changed: false,
            replies: Vec::new(),
            rest: read,
            shared: link.conn.worker.local(),
            gen,
            server,
            settings_acked: false,
            goaway_sent: false,
            ending: false,
            broken: false,
            refused: 0,
            fresh: 0,
            idle_since: link.conn.start_ms,
            partial_since: 0,
            write_deadline: 0,
            waiting: false,
            started: false,
            pause: None,
            link,
            starter,
        };
        task.greet();
        task
    }

    fn greet(&self) {
        let srv = self.server.conf::<H2Srv>();
        self.link.conn.out.borrow_mut().write(|t| {
            let pairs = [
                (frame::SETTING_MAX_CONCURRENT_STREAMS, *srv.max_concurrent_streams as u32),
                (frame::SETTING_INITIAL_WINDOW_SIZE, *srv.body_preread_size as u32),
                (frame::SETTING_MAX_FRAME_SIZE, FRAME_TAKEN_MAX_BYTES),
            ];
            frame::settings(&pairs, t);
            frame::window_update(0, WINDOW_MAX_BYTES - WINDOW_DEFAULT_BYTES, t);
        });
    }

    /// Ready at the connection's end: whether to linger over it.
    pub(super) fn poll(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        self.link.wait(cx);
        self.wait_for_end(cx);
        ready!(self.poll_pause(cx));
        self.link.inline.set(true);
        let end = self.turn(cx);
        self.link.inline.set(false);
        if end.is_ready() {
            self.rest_is_over();
        } else if self.link.turn_is_over() {
            self.pause = Some(Pause::default());
            // It has only begun.
            let _ = self.poll_pause(cx);
        }
        end
    }

    /// Ready unless others have their turn.
    fn poll_pause(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(pause) = &mut self.pause {
            ready!(Pin::new(pause).poll(cx));
            self.pause = None;
            self.link.begin_turn();
        }
        Poll::Ready(())
    }

    fn turn(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.link.conn.worker.closing.get() {
            self.go_away(ErrorCode::NO_ERROR);
        }
        self.keep_up();
        if !std::mem::replace(&mut self.started, true) {
            // What was read before this task began.
            let early = std::mem::take(&mut self.rest);
            self.batch(cx, early);
        }
        loop {
            self.read(cx);
            self.rank_streams();
            self.link.schedule(cx);
            let held_back = self.is_full();
            self.flush(cx);
            if !held_back || self.is_full() || self.broken {
                break;
            }
        }
        if self.broken && self.link.active() == 0 {
            return Poll::Ready(false);
        }
        if !self.broken && self.is_done() {
            return Poll::Ready(self.lingers());
        }
        self.timers(cx)
    }

    /// Whether the worker may end the connection, and who is to be told when it wants to.
    fn wait_for_end(&self, cx: &Context<'_>) {
        let mut ender = self.link.conn.ender.borrow_mut();
        match &mut *ender {
            Some(w) => w.clone_from(cx.waker()),
            None => *ender = Some(cx.waker().clone()),
        }
    }

    fn is_done(&self) -> bool {
        self.goaway_sent && self.link.active() == 0 && self.link.conn.out.borrow().queued() == 0
    }

    fn lingers(&self) -> bool {
        server::default_location(&self.link.conn).core.lingering_close.as_option()
            != Some(&Lingering::Off)
    }

    fn location(&self) -> &CoreLoc {
        &self.gen.location(self.server.location).core
    }

    // --- reading ---

    fn is_full(&self) -> bool {
        self.link.conn.out.borrow().queued() >= UNWRITTEN_MAX_BYTES
    }

    /// Reads until there is nothing more, or too much to write.
    fn read(&mut self, cx: &mut Context<'_>) {
        for batch in 0.. {
            if self.broken || self.is_full() || !self.read_batch(cx) {
                return;
            }
            if batch == BATCHES_MAX {
                return turns::let_others(cx);
            }
        }
    }

    /// One batch of frames; `false` when there is none.
    fn read_batch(&mut self, cx: &mut Context<'_>) -> bool {
        let mut input = std::mem::take(&mut *self.shared.0.borrow_mut());
        input.clear();
        input.append(&mut self.rest);
        let room = self.gen.shared.main.get::<H2Main>().recv_buffer_bytes();
        let got = self.link.conn.poll_read(cx, &mut input, room, u64::MAX);
        match got {
            Poll::Ready(Ok(n)) if n > 0 => {
                self.batch(cx, input);
                true
            }
            Poll::Ready(_) => {
                self.hang_up();
                false
            }
            Poll::Pending => {
                self.keep_rest(&input, 0);
                *self.shared.0.borrow_mut() = input;
                false
            }
        }
    }

    fn keep_rest(&mut self, input: &[u8], from: usize) {
        self.rest.clear();
        self.rest.extend_from_slice(input.get(from..).unwrap_or_default());
    }

    fn hang_up(&mut self) {
        if self.link.active() > 0 || !self.receiver.is_between_frames() {
            self.link.conn.log(LogLevel::Info, b"client prematurely closed connection");
        }
        self.break_off();
    }

    fn break_off(&mut self) {
        self.broken = true;
        self.link.conn.broken.set(true);
        self.link.kill_all();
    }

    fn batch(&mut self, cx: &mut Context<'_>, input: Vec<u8>) {
        self.fresh = 0;
        self.receiver.budget.received(input.len() as u64);
        self.settle_accounts();
        let mut at = 0;
        let fault = loop {
            if self.ending {
                break None;
            }
            match self.frame(cx, &input[at..]) {
                Ok(0) => break self.receiver.budget.check_flood().err(),
                Ok(used) => at += used,
                Err(fault) => break Some(fault),
            }
        };
        match fault {
            Some(fault) => self.fail(fault),
            None if self.ending => {}
            None => self.keep_rest(&input, at),
        }
        *self.shared.0.borrow_mut() = input;
        if self.link.active() > 0 {
            self.idle_since = clock::mono_ms();
        }
    }

    /// What the streams have earned and spent since the last time.
    fn settle_accounts(&mut self) {
        let budget = &mut self.receiver.budget;
        budget.tick(clock::mono_ms(), guard::is_under_attack());
        budget.sent(self.link.data_sent.take());
        for _ in 0..self.link.completed.take() {
            budget.stream_completed();
        }
    }

    /// One frame, or a piece of one; 0 when more is needed.
    fn frame(&mut self, cx: &mut Context<'_>, input: &[u8]) -> Result<usize, Fault> {
        let (used, event) = self.receiver.next(input, &mut self.fields, &mut self.replies)?;
        if !self.replies.is_empty() {
            let Task { link, replies, .. } = self;
            link.conn.out.borrow_mut().write(|t| t.append(replies));
        }
        if let Some(event) = event {
            self.event(cx, event)?;
        }
        Ok(used)
    }

    fn event(&mut self, cx: &mut Context<'_>, event: Event) -> Result<(), Fault> {
        match event {
            Event::Headers { stream, end, fresh: false, .. } => self.trailers(stream, end),
            Event::Headers { stream, len, end, dependency, .. } => {
                if let Some(d) = dependency {
                    self.tree.set(stream, d);
                }
                self.headers(cx, stream, len, end)
            }
            Event::Data { stream, bytes, flow, end } => self.data(stream, bytes, flow, end),
            Event::Reset { stream, code } => self.reset_by_client(stream, code),
            Event::Settings(s) => self.settings(s),
            Event::SettingsAck => {
                self.settings_acked = true;
                Ok(())
            }
            Event::WindowUpdate { stream, bytes } => self.widen(stream, bytes),
            Event::Priority { stream, dependency } => {
                self.tree.set(stream, dependency);
                self.tree_changed = true;
                Ok(())
            }
            Event::GoAway => Ok(()),
            Event::PriorityUpdate { stream, value } => {
                if let Some(s) = self.link.find(stream) {
                    s.send.borrow_mut().priority = Priority::parse(value);
                }
                Ok(())
            }
        }
    }

    /// The tree has changed in this batch: who stands where now.
    fn rank_streams(&mut self) {
        if std::mem::replace(&mut self.tree_changed, false) {
            for stream in self.link.streams.borrow().iter() {
                stream.send.borrow_mut().rank = self.tree.rank(stream.id);
            }
        }
    }

    // --- streams begin ---

    fn headers(
        &mut self,
        cx: &mut Context<'_>,
        id: u32,
        len: usize,
        end: bool,
    ) -> Result<(), Fault> {
        if self.goaway_sent {
            return Ok(());
        }
        self.newest_generation();
        let srv = self.server.conf::<H2Srv>();
        let most = *srv.max_concurrent_streams;
        let preread = *srv.body_preread_size as u32;
        if let Some(why) = self.why_refused(end, most, preread) {
            return self.refuse(id, why, most);
        }
        self.fresh += 1;
        self.receiver.budget.stream_opened();
        self.receiver.budget.payload(len as u64);
        let window = SendWindow::new(self.link.initial_window.get());
        let stream = Rc::new(Stream::new(id, Rc::clone(&self.link), window, end, preread));
        self.link.streams.borrow_mut().push(Rc::clone(&stream));
        let conn = Rc::clone(&self.link.conn);
        let mut request = crate::pool::take();
        let client = Client::of_h2(Rc::clone(&conn), Rc::clone(&stream));
        request.begin(client, Rc::clone(&self.gen), Rc::clone(&self.server));
        request.received = len as u64;
        let refused = request::fill(&mut request, &conn, &mut self.fields, end).err();
        if let Some(value) = request.header(HeaderId::Priority) {
            stream.send.borrow_mut().priority = Priority::parse(value);
        }
        self.tree_changed |= !self.tree.is_empty();
        self.limit_keepalive();
        self.starter.start(cx, Job { stream, request, refused });
        Ok(())
    }

    /// Between streams an old generation is not kept; where the newest does not listen on this
    /// address as before, the connection takes no more streams.
    fn keep_up(&mut self) {
        if Arc::ptr_eq(&self.link.conn.worker.generation().shared, &self.gen.core) {
            return;
        }
        if self.link.conn.is_left_behind() {
            self.go_away(ErrorCode::NO_ERROR);
        } else if self.link.active() == 0 {
            self.newest_generation();
        }
    }

    fn newest_generation(&mut self) {
        self.link.conn.keep_up();
        let newest = self.link.conn.generation();
        if !Arc::ptr_eq(&newest.shared, &self.gen.core) {
            let gen = Http::of(&newest);
            self.server = server::default_of(&self.link.conn, &gen);
            self.gen = gen;
            self.receiver.limits = limits(&self.server);
        }
    }

    fn why_refused(&self, end: bool, most: u64, preread: u32) -> Option<&'static str> {
        if self.link.active() as u64 >= most {
            return Some("concurrent streams exceeded");
        }
        if self.fresh >= 2 * most {
            return Some("client sent too many streams at once");
        }
        if !self.settings_acked && !end && preread < WINDOW_DEFAULT_BYTES {
            return Some("client sent stream with data before settings were acknowledged");
        }
        (!end && guard::is_full()).then_some("too much of request bodies is unread")
    }

    fn refuse(&mut self, id: u32, why: &'static str, most: u64) -> Result<(), Fault> {
        self.link.conn.log(LogLevel::Info, why.as_bytes());
        self.refused += 1;
        if self.refused > most.max(REFUSED_MIN) {
            return Err(Fault::new(ErrorCode::NO_ERROR, "client sent too many refused streams"));
        }
        self.link.reset(id, ErrorCode::REFUSED_STREAM);
        Ok(())
    }

    /// The last stream that this connection is to have.
    fn limit_keepalive(&mut self) {
        let core = self.location();
        let age = clock::mono_ms().saturating_sub(self.link.conn.start_ms);
        let over = *core.keepalive_timeout == 0
            || u64::from(self.link.conn.requests.get()) >= *core.keepalive_requests
            || age > *core.keepalive_time;
        if over {
            self.go_away(ErrorCode::NO_ERROR);
        }
    }

    // --- streams go on ---

    /// A further header block of a stream: its trailers, which end it and say nothing of the request
    /// (RFC 9113 section 8.1).
    fn trailers(&mut self, id: u32, end: bool) -> Result<(), Fault> {
        let malformed = !end || self.fields.iter().any(|(name, _)| name.first() == Some(&b':'));
        let Some(stream) = self.link.find(id) else {
            return match self.link.has_reset(id) {
                true if malformed => self.reset_again(id, ErrorCode::PROTOCOL_ERROR),
                true => Ok(()),
                false => Err(incorrect("client sent HEADERS frame with incorrect identifier")),
            };
        };
        if stream.reset_received.get() {
            return self.reset_again(id, ErrorCode::STREAM_CLOSED);
        }
        if stream.receive.borrow().ended {
            return self.terminate(&stream, ErrorCode::STREAM_CLOSED);
        }
        if malformed {
            return self.terminate(&stream, ErrorCode::PROTOCOL_ERROR);
        }
        stream.receive.borrow_mut().ended = true;
        stream.wake();
        Ok(())
    }

    fn data(&mut self, id: u32, bytes: &[u8], flow: u32, end: bool) -> Result<(), Fault> {
        let begins = flow > 0 || bytes.is_empty();
        let Some(stream) = self.link.find(id).filter(|s| !s.reset_received.get()) else {
            return if begins { self.stray_data(id) } else { Ok(()) };
        };
        let mut r = stream.receive.borrow_mut();
        let code = match r.window.take(flow) {
            Err(_) => Some(ErrorCode::FLOW_CONTROL_ERROR),
            Ok(()) if r.ended && !stream.reset_sent.get() => Some(ErrorCode::STREAM_CLOSED),
            Ok(()) => None,
        };
        if let Some(code) = code {
            drop(r);
            return self.terminate(&stream, code);
        }
        r.ended |= end;
        if r.skip || stream.dead.get() {
            return Ok(());
        }
        guard::unread_grew(bytes.len() as u64);
        r.bytes.extend_from_slice(bytes);
        drop(r);
        if end || !bytes.is_empty() {
            stream.wake();
        }
        Ok(())
    }

    /// DATA for a stream that is not open (RFC 9113 section 5.1). What this side has reset may still
    /// have been on its way, as may what belongs to streams behind a GOAWAY.
    fn stray_data(&mut self, id: u32) -> Result<(), Fault> {
        if self.receiver.is_idle(id) {
            return Err(incorrect("client sent DATA frame for an idle stream"));
        }
        match self.link.has_reset(id) || self.goaway_sent {
            true => self.receiver.budget.spend_control(1),
            false => self.reset_again(id, ErrorCode::STREAM_CLOSED),
        }
    }

    /// Says once more that a stream is closed.
    fn reset_again(&mut self, id: u32, code: ErrorCode) -> Result<(), Fault> {
        self.link.conn.log(LogLevel::Info, b"client sent a frame for a closed stream");
        self.link.reset(id, code);
        self.count_reset()
    }

    /// This side ends a stream because of what the client did.
    fn terminate(&mut self, stream: &Stream, code: ErrorCode) -> Result<(), Fault> {
        if stream.reset_sent.replace(true) {
            return Ok(());
        }
        self.link.conn.log(LogLevel::Info, b"client violated the rules of its stream");
        self.link.reset(stream.id, code);
        stream.receive.borrow_mut().skip = true;
        stream.kill();
        self.count_reset()
    }

    fn reset_by_client(&mut self, id: u32, code: ErrorCode) -> Result<(), Fault> {
        let Some(stream) = self.link.find(id) else {
            if self.receiver.is_idle(id) {
                return Err(incorrect("client sent RST_STREAM frame for an idle stream"));
            }
            // Its answer was complete, or is on its way. The client knows of the stream's end now.
            self.link.forget_reset(id);
            return Ok(());
        };
        let text = match code {
            ErrorCode::CANCEL => format!("client canceled stream {id}"),
            ErrorCode::INTERNAL_ERROR => {
                format!("client terminated stream {id} due to internal error")
            }
            _ => format!("client terminated stream {id} with status {}", code.0),
        };
        self.link.conn.log(LogLevel::Info, text.as_bytes());
        stream.reset_sent.set(true);
        stream.reset_received.set(true);
        stream.receive.borrow_mut().skip = true;
        stream.kill();
        self.count_reset()
    }

    fn count_reset(&mut self) -> Result<(), Fault> {
        guard::count_reset();
        self.receiver.budget.spend_reset()
    }

    fn settings(&mut self, s: Settings) -> Result<(), Fault> {
        if let Some(n) = s.max_frame {
            self.link.frame_max.set(n as usize);
        }
        if s.header_table {
            self.link.table_update.set(true);
        }
        self.link.conn.out.borrow_mut().write(frame::settings_ack);
        let Some(n) = s.initial_window else { return Ok(()) };
        let delta = i64::from(n) - i64::from(self.link.initial_window.replace(n));
        let streams = self.link.streams.borrow().clone();
        self.receiver.budget.spend_control(streams.len() as u32 / 8)?;
        for stream in streams {
            let widened = stream.send.borrow_mut().window.widen(delta);
            // Of the connection, not of the stream (RFC 9113 section 6.9.2).
            widened.map_err(|_| {
                let text = "client sent SETTINGS frame that makes a window too large";
                Fault::new(ErrorCode::FLOW_CONTROL_ERROR, text)
            })?;
            self.link.list(&stream);
        }
        Ok(())
    }

    fn widen(&mut self, id: u32, bytes: u32) -> Result<(), Fault> {
        if id == 0 {
            let mut window = self.link.window.get();
            window.widen(i64::from(bytes)).map_err(|_| {
                let text = "client violated connection flow control";
                Fault::new(ErrorCode::FLOW_CONTROL_ERROR, text)
            })?;
            self.link.window.set(window);
            return Ok(());
        }
        let Some(stream) = self.link.find(id) else {
            return match self.receiver.is_idle(id) {
                true => Err(incorrect("client sent WINDOW_UPDATE frame for an idle stream")),
                false => Ok(()),
            };
        };
        let widened = stream.send.borrow_mut().window.widen(i64::from(bytes));
        match widened {
            Ok(()) => self.link.list(&stream),
            Err(_) => self.terminate(&stream, ErrorCode::FLOW_CONTROL_ERROR)?,
        }
        Ok(())
    }

    // --- the end ---

    fn go_away(&mut self, code: ErrorCode) {
        if !std::mem::replace(&mut self.goaway_sent, true) {
            let last = self.receiver.last_stream();
            self.link.conn.out.borrow_mut().write(|t| frame::goaway(last, code, t));
        }
    }

    fn fail(&mut self, fault: Fault) {
        self.link.conn.log(LogLevel::Info, fault.text.as_bytes());
        self.go_away(fault.code);
        self.ending = true;
        self.link.kill_all();
    }

    fn flush(&mut self, cx: &mut Context<'_>) {
        if self.broken {
            return;
        }
        loop {
            match self.link.conn.poll_flush(cx, u64::MAX) {
                Poll::Ready(Err(_)) => return self.break_off(),
                Poll::Ready(Ok(_)) => self.write_deadline = 0,
                Poll::Pending => {}
            }
            if self.link.conn.out.borrow().queued() > 0 {
                break;
            }
            if self.link.refuse_rest() {
                continue;
            }
            if self.link.turn_is_over() {
                self.write_deadline = 0;
                return;
            }
            // There is room again: for those that were held back.
            self.link.schedule(cx);
            if self.link.conn.out.borrow().queued() == 0 {
                self.write_deadline = 0;
                return;
            }
        }
        if self.write_deadline == 0 {
            self.write_deadline = clock::mono_ms() + *self.location().send_timeout;
        }
    }

    fn timers(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.write_deadline != 0 && !self.broken {
            let deadline = self.write_deadline;
            if self.link.conn.poll_write_timeout(cx, deadline).is_ready() {
                self.link.conn.log(LogLevel::Info, b"client timed out (110: Connection timed out)");
                self.break_off();
                return match self.link.active() {
                    0 => Poll::Ready(false),
                    _ => Poll::Pending,
                };
            }
        }
        if self.broken || self.ending {
            return Poll::Pending;
        }
        if self.receiver.partial_headers().is_some() {
            self.wait_for_headers(cx);
        } else {
            self.partial_since = 0;
        }
        self.rest_if_idle(cx)
    }

    /// A header block must come whole in its time; otherwise its stream is given up.
    fn wait_for_headers(&mut self, cx: &mut Context<'_>) {
        let now = clock::mono_ms();
        if self.partial_since == 0 {
            self.partial_since = now;
        }
        let deadline = self.partial_since + *self.server.core.client_header_timeout;
        if self.link.conn.poll_timeout(cx, deadline).is_pending() {
            return;
        }
        self.link.conn.log(LogLevel::Info, b"client timed out (110: Connection timed out)");
        if let Some(id) = self.receiver.partial_headers() {
            self.link.reset(id, ErrorCode::PROTOCOL_ERROR);
        }
        self.receiver.give_up_partial();
        self.partial_since = 0;
        cx.waker().wake_by_ref();
    }

    fn rest_if_idle(&mut self, cx: &mut Context<'_>) -> Poll<bool> {
        if self.link.active() > 0 || self.partial_since != 0 {
            self.rest_is_over();
            return Poll::Pending;
        }
        if !self.waiting {
            self.waiting = true;
            let conn = &self.link.conn;
            conn.idle.set(true);
            conn.waiting.set(true);
            Counters::add(&conn.worker.counters.waiting, 1);
            if self.receiver.last_stream() > 0 {
                self.idle_since = clock::mono_ms();
            }
        }
        let fresh = self.receiver.last_stream() == 0;
        let wait = match fresh {
            true => *self.server.core.client_header_timeout,
            false => *self.location().keepalive_timeout,
        };
        let deadline = self.idle_since + wait;
        self.link.conn.keepalive_deadline.set(deadline);
        if self.link.conn.poll_timeout(cx, deadline).is_pending() {
            return Poll::Pending;
        }
        self.go_away(ErrorCode::NO_ERROR);
        self.flush(cx);
        match self.broken || self.is_done() {
            true => Poll::Ready(!self.broken && self.lingers()),
            false => Poll::Pending,
        }
    }

    fn rest_is_over(&mut self) {
        if std::mem::replace(&mut self.waiting, false) {
            let conn = &self.link.conn;
            conn.idle.set(false);
            conn.waiting.set(false);
            Counters::add(&conn.worker.counters.waiting, -1);
        }
    }
}

const fn incorrect(text: &'static str) -> Fault {
    Fault::new(ErrorCode::PROTOCOL_ERROR, text)
}

fn limits(server: &Server) -> HpackLimits {
    let core = &server.core.limits;
    HpackLimits {
        string_max_bytes: core.large_buffer_bytes,
        block_max_bytes: core.large_buffer_bytes.saturating_mul(core.large_buffers as usize),
    }
}
