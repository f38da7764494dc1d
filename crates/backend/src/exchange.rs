//! A request goes out and the head of its answer comes back, over one connection.

use crate::conf::BackendLoc;
use crate::decoder;
use crate::family::Family;
use crate::fault::{Fault, Reading, READING, SENDING};
use crate::h2;
use crate::link::decoder::Decoder;
use crate::link::h2::Rest;
use crate::link::rest::Unsent;
use crate::link::Link;
use crate::sending::Outgoing;
use crate::upload::{self, at_once, More};
use bytes::Bytes;
use std::future::{poll_fn, Future};
use std::io;
use std::pin::pin;
use std::task::{ready, Context, Poll};
use weir_core::logger::LogLevel;
use weir_core::{LocalFuture, Session};
use weir_http::body::{self, BodyError};
use weir_http::early;
use weir_http::Request;
use weir_upstream::LinkError;
use weir_wire::http1::request::Version;
use weir_wire::http1::response::{ResponseError, ResponseParser, ResponseProgress};

/// Read at once, so that a head and a small body come in one piece.
const READ_ROOM_BYTES: usize = 32 * 1024;

/// Interim answers (RFC 9110, section 15.2) that are read before the answer itself.
const INTERIM_ANSWERS_MAX: u32 = 100;

/// RFC 8297
const EARLY_HINTS: u16 = 103;

enum Step {
    Sent(usize),
    Read(usize),
    /// With the talk's fault.
    Failed,
}

/// Who has to do something next.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The server has to take more of the request.
    Sending,
    /// The client has to send more of its body.
    Client,
    /// The server has to answer.
    Server,
}

/// Sends a request and reads the head of its answer, into the request's exchange. What is not sent by then
/// is left to the connection.
pub(crate) struct Talk<'a> {
    conf: &'a BackendLoc,
    parser: ResponseParser,
    outgoing: Outgoing,
    /// The client's going would end it, as far as it can be seen.
    watching: bool,
    /// Until when the server must have taken more of the request; 0 while it need not. What it says
    /// meanwhile moves nothing.
    send_deadline: u64,
    /// Until when the whole head must have come, from the request's end on.
    head_deadline: u64,
    /// Bytes of interim answers so far, and whether some of them wait for the client.
    interim: usize,
    interims: u32,
    hinted: bool,
    /// Why the server takes no more of the request. What it has said before that is still read.
    unsendable: Option<io::Error>,
    /// What a step has failed with.
    fault: Option<Fault>,
}

impl<'a> Talk<'a> {
    /// `watching`: the client's going ends it.
    #[inline(always)]
    pub(crate) fn new(conf: &'a BackendLoc, outgoing: Outgoing, watching: bool) -> Talk<'a> {
        Talk {
            conf,
            parser: ResponseParser::starting(conf.family.start),
            outgoing,
            watching,
            send_deadline: 0,
            head_deadline: 0,
            interim: 0,
            interims: 0,
            hinted: false,
            unsendable: None,
            fault: None,
        }
    }

    /// Begins on a connection.
    #[inline]
    pub(crate) fn begin(&mut self, r: &mut Request, link: &mut Link) {
        r.exchange.reply.clear();
        r.exchange.head_at = 0;
        if let Some(make) = self.family().ways.wrapping {
            link.decoder = Some(Box::new(Decoder::new(make(r, &r.exchange.request))));
        }
        if link.h2.is_some() {
            self.begin_h2(r, link);
        }
    }

    /// Over HTTP/2 the request's head goes ahead as a frame, and only its body is left here.
    #[inline(never)]
    fn begin_h2(&mut self, r: &Request, link: &mut Link) {
        let tls = link.stream.tls().is_some();
        let Some(h2) = &mut link.h2 else { return };
        let text = h2::Text {
            bytes: &r.exchange.request,
            uri: r.exchange.uri,
            tls,
            host_field: (self.family().ways.host_field)(r),
        };
        self.outgoing.skip(text.end());
        h2.begin(self.outgoing.is_done(), self.head_max(), |out| text.write(out));
    }

    fn family(&self) -> &'static Family {
        *self.conf.family
    }

    fn head_max(&self) -> usize {
        *self.conf.buffer_size as usize
    }

    /// Leaves what is left of the request to the connection, which sends it while the answer is read.
    /// The relay gives it what the client sends meanwhile.
    #[inline]
    fn leave_rest(&mut self, r: &Request, link: &mut Link) {
        if link.h2.is_some() || self.unsendable.is_some() || !self.outgoing.is_done() {
            self.leave_some(r, link);
        }
    }

    #[inline(never)]
    fn leave_some(&mut self, r: &Request, link: &mut Link) {
        if self.unsendable.is_some() {
            link.unsent = Some(Box::new(Unsent::given_up()));
            return;
        }
        let Some(h2) = &mut link.h2 else {
            let unsent = self.outgoing.leave(r, link.send_ms(*self.conf.send_timeout));
            link.unsent = Some(Box::new(unsent));
            return;
        };
        if self.outgoing.is_stream() || !h2.client.is_closed() {
            let more = self.outgoing.is_stream();
            h2.finish_later(Rest { more, ..self.outgoing.take_rest(r) });
        }
    }

    /// Goes on as far as that needs nobody but the server: to the end of the head (`true`), or until
    /// [`Talk::go_on`] is to be waited for.
    pub(crate) fn poll(
        &mut self,
        cx: &mut Context<'_>,
        r: &mut Request,
        link: &mut Link,
    ) -> Poll<Result<bool, Fault>> {
        loop {
            match ready!(self.step(cx, r, link)) {
                Step::Sent(n) => {
                    self.send_deadline = 0;
                    self.outgoing.consume(n);
                    if !self.outgoing.is_done() {
                        // Further writes follow; the last must not wait for the others' acks.
                        link.stream.set_nodelay(true);
                    } else if self.conf.notes_sent.get().is_some() {
                        note_sent(r);
                    }
                }
                Step::Read(0) => {
                    let sending = self.unsendable.take();
                    return Poll::Ready(Err(sending.map_or(Fault::Eof(READING), Fault::Send)));
                }
                Step::Read(n) => {
                    if let Some(state) = r.upstream.last_mut() {
                        state.bytes_received += n as u64;
                    }
                    if self.read_head(r, link)? {
                        self.leave_rest(r, link);
                        return Poll::Ready(Ok(true));
                    }
                }
                Step::Failed => self.failed(link)?,
            }
            if self.must_wait() {
                return Poll::Ready(Ok(false));
            }
        }
    }

    /// What of the answer lies before an error in sending is still read.
    #[cold]
    fn failed(&mut self, link: &mut Link) -> Result<(), Fault> {
        match self.fault.take() {
            None => Ok(()),
            Some(Fault::Send(e)) if may_have_said(link, &e) => {
                self.unsendable = Some(e);
                if let Some(h2) = &mut link.h2 {
                    h2.be_mute();
                }
                Ok(())
            }
            Some(Fault::Read(e, what)) => {
                Err(self.unsendable.take().map_or(Fault::Read(e, what), Fault::Send))
            }
            Some(fault) => Err(fault),
        }
    }

    #[cold]
    fn unsent(&mut self, e: LinkError) -> Poll<Step> {
        self.fail(match e {
            LinkError::Timeout => Fault::Timeout(SENDING),
            LinkError::Io(e) => Fault::Send(e),
            LinkError::Protocol(text) => Fault::Protocol(text),
        })
    }

    #[cold]
    fn unread(&mut self, e: LinkError) -> Poll<Step> {
        self.fail(match e {
            LinkError::Timeout => Fault::Timeout(READING),
            LinkError::Io(e) => Fault::Read(e, Reading::Head),
            LinkError::Protocol(text) => Fault::Protocol(format!("{text} while {READING}")),
        })
    }

    #[cold]
    fn fail(&mut self, fault: Fault) -> Poll<Step> {
        self.fault = Some(fault);
        Poll::Ready(Step::Failed)
    }

    /// Somebody besides the server is to be waited for: [`Talk::go_on`].
    #[inline]
    pub(crate) fn must_wait(&self) -> bool {
        self.hinted || self.unsendable.is_none() && self.outgoing.waits()
    }

    /// Waits for the client: to take hints, and to send more of its body.
    #[inline(never)]
    pub(crate) fn go_on<'b>(
        &'b mut self,
        r: &'b mut Request,
        link: &'b Link,
    ) -> LocalFuture<'b, Result<(), Fault>> {
        Box::pin(async move {
            if std::mem::take(&mut self.hinted) {
                // What the client does not take now goes with the answer.
                at_once(r.drain(0)).await;
            }
            match self.must_wait() {
                true => self.next_piece(r, link).await,
                false => Ok(()),
            }
        })
    }

    /// Gets more to send when there is nothing left of what was there.
    async fn next_piece(&mut self, r: &mut Request, link: &Link) -> Result<(), Fault> {
        while !self.outgoing.has_bytes() && self.outgoing.has_file() {
            self.outgoing.refill().map_err(Fault::File)?;
        }
        let unsent = link.h2.as_ref().is_some_and(|h2| h2.has_output());
        while !self.outgoing.has_bytes() && self.outgoing.is_stream() && !unsent {
            let Some(first) = next_from_client(r, link).await else {
                // The server answers early, or has gone: that is read first.
                return Ok(());
            };
            let Some(first) = first.map_err(Fault::Client)? else {
                self.outgoing.put_piece(b"", true);
                continue;
            };
            let mut bytes = first.to_vec();
            let more = upload::gather(r, &mut bytes).await.map_err(Fault::Client)?;
            self.outgoing.put_piece(&bytes, more == More::None);
        }
        Ok(())
    }

    #[inline]
    fn step(&mut self, cx: &mut Context<'_>, r: &mut Request, link: &mut Link) -> Poll<Step> {
        if link.h2.is_none() && self.outgoing.is_done() {
            return self.read_or_leave(cx, r, link, Turn::Server);
        }
        if link.sent > 0 && !self.outgoing.is_done() {
            // A whole answer ends the sending.
            if let Poll::Ready(step) = self.read_early(cx, r, link) {
                return Poll::Ready(step);
            }
        }
        let sending = match &link.h2 {
            _ if self.unsendable.is_some() => false,
            None => self.outgoing.has_bytes(),
            Some(h2) => h2.has_output() || !h2.client.is_closed() && !self.outgoing.waits(),
        };
        if sending {
            if let Poll::Ready(step) = self.send(cx, r, link) {
                return Poll::Ready(step);
            }
        }
        let turn = match sending {
            true => Turn::Sending,
            false if self.outgoing.waits() && self.unsendable.is_none() => Turn::Client,
            false => Turn::Server,
        };
        self.read_or_leave(cx, r, link, turn)
    }

    #[inline(always)]
    fn send(&mut self, cx: &mut Context<'_>, r: &Request, link: &mut Link) -> Poll<Step> {
        let (parts, used) = self.outgoing.parts(r);
        let (parts, wait) = (&parts[..used], link.send_ms(*self.conf.send_timeout));
        let sent = match link.h2 {
            None => link.poll_send(cx, parts, &mut self.send_deadline, wait),
            Some(_) => {
                let last = !self.outgoing.has_more();
                link.poll_send_body(cx, parts, last, &mut self.send_deadline, wait)
            }
        };
        match ready!(sent) {
            Ok(n) => Poll::Ready(Step::Sent(n)),
            Err(e) => self.unsent(e),
        }
    }

    /// Reads some of the answer, as long as the client is there.
    #[inline(always)]
    fn read_or_leave(
        &mut self,
        cx: &mut Context<'_>,
        r: &mut Request,
        link: &mut Link,
        turn: Turn,
    ) -> Poll<Step> {
        match self.read(cx, r, link, turn) {
            Poll::Ready(step) => Poll::Ready(step),
            // It was no answer yet: the client has its turn again.
            Poll::Pending if turn == Turn::Client => Poll::Ready(Step::Sent(0)),
            Poll::Pending if r.is_client_gone(cx, &mut self.watching) => {
                self.fail(Fault::ClientGone)
            }
            Poll::Pending => Poll::Pending,
        }
    }

    /// Reads what the server says while it still has to take more of the request.
    #[inline(never)]
    fn read_early(&mut self, cx: &mut Context<'_>, r: &mut Request, link: &mut Link) -> Poll<Step> {
        match server_speaks(link, cx) {
            true => self.read(cx, r, link, Turn::Client),
            false => Poll::Pending,
        }
    }

    /// Reads some of the answer.
    #[inline(always)]
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        r: &mut Request,
        link: &mut Link,
        turn: Turn,
    ) -> Poll<Step> {
        let mut unlimited = 0;
        let (deadline, wait) = match turn {
            Turn::Sending => (&mut self.send_deadline, link.send_ms(*self.conf.send_timeout)),
            Turn::Client => (&mut unlimited, link.read_ms(*self.conf.read_timeout)),
            Turn::Server => (&mut self.head_deadline, link.read_ms(*self.conf.read_timeout)),
        };
        let size = *self.conf.buffer_size as usize;
        let room = if *self.conf.buffering { READ_ROOM_BYTES.max(size) } else { size };
        let reply = &mut r.exchange.reply;
        match ready!(link.poll_read(cx, reply, room, deadline, wait)) {
            Ok(n) => Poll::Ready(Step::Read(n)),
            Err(e) => self.unread(e),
        }
    }

    /// Whether the head is complete. What a decoder has found besides is logged, and may be the end.
    #[inline]
    fn read_head(&mut self, r: &mut Request, link: &mut Link) -> Result<bool, Fault> {
        if link.decoder.is_some() {
            return self.read_decoded(r, link);
        }
        let complete = self.parse(r, link)?;
        if let Some(hear) = self.family().ways.head_came.filter(|_| complete) {
            hear(r, link);
        }
        Ok(complete)
    }

    #[inline(never)]
    fn read_decoded(&mut self, r: &mut Request, link: &mut Link) -> Result<bool, Fault> {
        let Some(decoder) = &mut link.decoder else { return Ok(false) };
        let aside = decoder::log_aside(r, self.family(), decoder, READING);
        let complete = self.parse(r, link)?;
        let Some(decoder) = &link.decoder else { return Ok(false) };
        let head_len = if complete { r.exchange.head.head_len } else { usize::MAX };
        decoder::judge_aside(r, self.family(), &aside, head_len)?;
        match complete {
            true => {
                r.exchange.head.connection_close = !decoder.wrapping.keeps();
                if let Some(hear) = self.family().ways.head_came {
                    hear(r, link);
                }
                Ok(true)
            }
            false => match decoder.wrapping.ended_early() {
                Some(text) => Err(Fault::Protocol(format!("{text} while {READING}"))),
                None => Ok(false),
            },
        }
    }

    /// Whether the head is complete; interim answers are passed over.
    #[inline(always)]
    fn parse(&mut self, r: &mut Request, link: &Link) -> Result<bool, Fault> {
        // An HTTP/2 head has been measured already.
        let max = if link.h2.is_some() { usize::MAX } else { self.head_max() };
        let ways = &self.family().ways;
        loop {
            let x = &mut r.exchange;
            match self.parser.parse(&x.reply[x.head_at..], max, &mut x.head) {
                Ok(ResponseProgress::NeedMore) => return Ok(false),
                Ok(ResponseProgress::Http09) => {
                    take_headless(r);
                    return Ok(true);
                }
                Ok(ResponseProgress::Complete) => {
                    let status = x.head.status;
                    if ways.interim && (100..200).contains(&status) && status != 101 {
                        self.interim(r)?;
                        continue;
                    }
                    if ways.one_answer {
                        x.head.connection_close = true;
                    }
                    x.answered = true;
                    return Ok(true);
                }
                Err(e) => {
                    log_bad_head(r, &e, r.exchange.head_bytes());
                    return Err(Fault::Invalid);
                }
            }
        }
    }

    /// Passes hints on, and makes room for what follows an interim answer.
    #[inline(never)]
    fn interim(&mut self, r: &mut Request) -> Result<(), Fault> {
        let len = r.exchange.head.head_len;
        self.interims += 1;
        if self.interims > INTERIM_ANSWERS_MAX {
            return Err(Fault::Protocol("upstream sent too many interim responses".to_string()));
        }
        if r.exchange.head.status == EARLY_HINTS && early::wants_hints(r) {
            self.interim += len;
            match self.interim <= self.head_max() {
                true => {
                    let (reply, hide) = (&r.exchange.reply, &self.conf.hide);
                    let mut fields = Vec::new();
                    let shown = r.exchange.head.headers.iter();
                    for f in shown.filter(|f| !hide.hides(f, reply)) {
                        fields.extend_from_slice(f.name.of(reply));
                        fields.extend_from_slice(b": ");
                        fields.extend_from_slice(f.value.of(reply));
                        fields.extend_from_slice(b"\r\n");
                    }
                    early::send_hints(r, &fields);
                    self.hinted = true;
                }
                false => {
                    r.log(LogLevel::Info, "upstream sent too big early hints");
                }
            }
        }
        r.exchange.reply.drain(..len);
        self.parser.reset();
        Ok(())
    }
}

/// All has been sent.
#[cold]
fn note_sent(r: &mut Request) {
    if let Some(state) = r.upstream.last_mut() {
        state.sent_us = Some(weir_runtime::clock::mono_us().saturating_sub(state.begun_us));
    }
}

/// What has come is a body without a head.
#[cold]
fn take_headless(r: &mut Request) {
    r.log(
        LogLevel::Error,
        "upstream sent no valid HTTP/1.0 header while \
        reading response header from upstream",
    );
    r.exchange.head.status = 200;
    r.head.version = Version::HTTP_09;
    r.flags.keepalive = false;
    r.exchange.answered = true;
}

/// Whether an answer may lie before the error that sending has met: a server that has seen enough
/// answers and closes, and what it left unread resets the connection. What lies on a kept
/// connection that has taken nothing is no answer to this request.
fn may_have_said(link: &Link, e: &io::Error) -> bool {
    use io::ErrorKind as K;
    (link.sent > 0 || !link.reused) && matches!(e.kind(), K::BrokenPipe | K::ConnectionReset)
}

#[cold]
fn log_bad_head(r: &Request, e: &ResponseError, bytes: &[u8]) {
    let mut text = Vec::new();
    e.write_log(&r.exchange.head, bytes, &mut text);
    text.extend_from_slice(b" while ");
    text.extend_from_slice(READING.as_bytes());
    r.log_bytes(LogLevel::Error, &text);
}

/// The next part of the client's body; `None` when the server speaks first.
async fn next_from_client(
    r: &mut Request,
    link: &Link,
) -> Option<Result<Option<Bytes>, BodyError>> {
    let mut next = pin!(body::next_to_pass_on(r));
    poll_fn(|cx| {
        if let Poll::Ready(piece) = next.as_mut().poll(cx) {
            return Poll::Ready(Some(piece));
        }
        match server_speaks(link, cx) {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    })
    .await
}

/// Something waits to be read from the server, be it the end.
fn server_speaks(link: &Link, cx: &mut Context<'_>) -> bool {
    loop {
        if link.stream.poll_readable(cx).is_pending() {
            return false;
        }
        match link.stream.peek() {
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
            _ => return true,
        }
    }
}
