//! A request goes out and the head of its answer comes back, over one connection.

use crate::decoder;
use crate::family::Family;
use crate::fault::{Fault, Reading, READING, SENDING};
use crate::h2;
use crate::hide::HideList;
use crate::link::decoder::Decoder;
use crate::link::h2::Rest;
use crate::link::rest::Unsent;
use crate::link::Link;
use crate::sending::{Outgoing, Sent};
use crate::upload::{self, at_once};
use bytes::Bytes;
use std::future::{poll_fn, Future};
use std::io;
use std::pin::pin;
use std::task::{ready, Context, Poll};
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::body::{self, BodyError};
use weir_http::early;
use weir_http::{ClientWatch, Request};
use weir_upstream::LinkError;
use weir_wire::http1::request::Version;
use weir_wire::http1::response::{ResponseError, ResponseParser, ResponseProgress};

/// Read at once, so that a head and a small body come in one piece.
const READ_ROOM_BYTES: usize = 32 * 1024;

/// Interim answers (RFC 9110, section 15.2) that are read before the answer itself.
const INTERIM_ANSWERS_MAX: u32 = 100;

/// RFC 8297
const EARLY_HINTS: u16 = 103;

/// Sends the request and reads the answer's head. What is not sent by then is left to the connection.
pub(crate) async fn run(r: &mut Request, sent: &Sent<'_>, link: &mut Link) -> Result<(), Fault> {
    let request = std::mem::take(&mut r.exchange.request);
    let memory = std::mem::take(&mut r.body.memory);
    let mut reply = std::mem::take(&mut r.exchange.reply);
    reply.clear();
    r.exchange.head_at = 0;
    let conf = sent.conf;
    let family: &'static Family = *conf.family;
    let mut talk = Talk {
        conf_send_ms: *conf.send_timeout,
        conf_read_ms: *conf.read_timeout,
        head_max: *conf.buffer_size as usize,
        room: match *conf.buffering {
            true => READ_ROOM_BYTES.max(*conf.buffer_size as usize),
            false => *conf.buffer_size as usize,
        },
        watch: ClientWatch::new(r, sent.ignores_abort),
        parser: ResponseParser::starting(family.start),
        family,
        outgoing: Outgoing::new(sent, &request, &memory),
        request: &request,
        send_deadline: 0,
        head_deadline: 0,
        interim: 0,
        interims: 0,
        hinted: false,
        hide: &conf.hide,
        h2: link.h2.is_some(),
        unsendable: None,
    };
    link.decoder = family.ways.wrapping.map(|make| Box::new(Decoder::new(make(r, &request))));
    talk.begin(r, link, &request);
    let result = talk.run(r, link, &mut reply).await;
    r.exchange.request = request;
    r.exchange.reply = reply;
    r.body.memory = memory;
    result
}

enum Step {
    Sent(usize),
    Read(usize),
    Failed(Fault),
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

struct Talk<'a> {
    conf_send_ms: u64,
    conf_read_ms: u64,
    head_max: usize,
    room: usize,
    watch: ClientWatch,
    parser: ResponseParser,
    family: &'static Family,
    outgoing: Outgoing<'a>,
    request: &'a [u8],
    /// Until when the server must have taken more of the request; 0 while it need not. What it says
    /// meanwhile moves nothing.
    send_deadline: u64,
    /// Until when the whole head must have come, from the request's end on.
    head_deadline: u64,
    /// Bytes of interim answers so far, and whether some of them wait for the client.
    interim: usize,
    interims: u32,
    hinted: bool,
    hide: &'a HideList,
    h2: bool,
    /// Why the server takes no more of the request. What it has said before that is still read.
    unsendable: Option<io::Error>,
}

impl<'a> Talk<'a> {
    /// Over HTTP/2 the request's head goes ahead as a frame, and only its body is left here.
    fn begin(&mut self, r: &Request, link: &mut Link, request: &'a [u8]) {
        if link.h2.is_none() {
            return;
        }
        let tls = link.stream.tls().is_some();
        let Some(h2) = &mut link.h2 else { return };
        let text = h2::Text {
            bytes: request,
            uri: r.exchange.uri,
            tls,
            host_field: (self.family.ways.host_field)(r),
        };
        self.outgoing.first = &request[text.end()..];
        h2.begin(self.outgoing.is_done(), self.head_max, |out| text.write(out));
    }

    /// Leaves what is left of the request to the connection, which sends it while the answer is read.
    /// The relay gives it what the client sends meanwhile.
    #[inline]
    fn leave_rest(&mut self, link: &mut Link) {
        if link.h2.is_some() || self.unsendable.is_some() || !self.outgoing.is_done() {
            self.leave_some(link);
        }
    }

    #[inline(never)]
    fn leave_some(&mut self, link: &mut Link) {
        if self.unsendable.is_some() {
            link.unsent = Some(Box::new(Unsent::given_up()));
            return;
        }
        let Some(h2) = &mut link.h2 else {
            link.unsent = Some(Box::new(self.outgoing.leave(self.conf_send_ms)));
            return;
        };
        if self.outgoing.stream || !h2.client.is_closed() {
            let more = self.outgoing.stream;
            h2.finish_later(Rest { more, ..self.outgoing.take_rest() });
        }
    }

    /// Lets what is logged now show where the request went to: the exchange has lent its text.
    fn show_uri(&self, r: &mut Request) {
        if r.exchange.request.is_empty() {
            r.exchange.request.extend_from_slice(&self.request[..r.exchange.uri.1]);
        }
    }

    async fn run(
        &mut self,
        r: &mut Request,
        link: &mut Link,
        reply: &mut Vec<u8>,
    ) -> Result<(), Fault> {
        loop {
            if self.unsendable.is_none() && self.outgoing.has_more() {
                self.next_piece(r, link).await?;
            }
            let step = poll_fn(|cx| self.step(cx, link, reply)).await;
            match step {
                Step::Sent(n) => {
                    self.send_deadline = 0;
                    self.outgoing.consume(n);
                    if !self.outgoing.is_done() {
                        // Further writes follow; the last must not wait for the others' acks.
                        link.stream.set_nodelay(true);
                    }
                }
                Step::Read(0) => {
                    return Err(self.unsendable.take().map_or(Fault::Eof(READING), Fault::Send));
                }
                Step::Read(n) => {
                    if let Some(state) = r.upstream.last_mut() {
                        state.bytes_received += n as u64;
                    }
                    if self.read_head(r, link, reply)? {
                        self.leave_rest(link);
                        return Ok(());
                    }
                    if std::mem::take(&mut self.hinted) {
                        // What the client does not take now goes with the answer.
                        at_once(r.drain(0)).await;
                    }
                }
                Step::Failed(Fault::Send(e)) if may_have_said(link, &e) => {
                    self.unsendable = Some(e);
                    if let Some(h2) = &mut link.h2 {
                        h2.be_mute();
                    }
                }
                Step::Failed(Fault::Read(e, what)) => {
                    return Err(self.unsendable.take().map_or(Fault::Read(e, what), Fault::Send));
                }
                Step::Failed(fault) => return Err(fault),
            }
        }
    }

    /// Gets more to send when there is nothing left of what was there.
    async fn next_piece(&mut self, r: &mut Request, link: &Link) -> Result<(), Fault> {
        while !self.outgoing.has_bytes() && self.outgoing.file.is_some() {
            self.outgoing.refill().map_err(Fault::File)?;
        }
        if self.outgoing.stream {
            self.show_uri(r);
        }
        let unsent = link.h2.as_ref().is_some_and(|h2| h2.has_output());
        while !self.outgoing.has_bytes() && self.outgoing.stream && !unsent {
            let Some(first) = next_from_client(r, link).await else {
                // The server answers early, or has gone: that is read first.
                return Ok(());
            };
            let Some(first) = first.map_err(Fault::Client)? else {
                self.outgoing.put_piece(b"", true);
                continue;
            };
            let mut bytes = first.to_vec();
            let ended = upload::gather(r, &mut bytes).await.map_err(Fault::Client)?;
            self.outgoing.put_piece(&bytes, ended);
        }
        Ok(())
    }

    fn step(&mut self, cx: &mut Context<'_>, link: &mut Link, reply: &mut Vec<u8>) -> Poll<Step> {
        if link.sent > 0 && !self.outgoing.is_done() {
            // A whole answer ends the sending.
            if let Poll::Ready(step) = self.read_early(cx, link, reply) {
                return Poll::Ready(step);
            }
        }
        let sending = match &link.h2 {
            _ if self.unsendable.is_some() => false,
            None => self.outgoing.has_bytes(),
            Some(h2) => h2.has_output() || !h2.client.is_closed() && !self.outgoing.waits(),
        };
        if sending {
            let (parts, used) = self.outgoing.parts();
            let (parts, wait) = (&parts[..used], self.conf_send_ms);
            let sent = match self.h2 {
                false => link.poll_send(cx, parts, &mut self.send_deadline, wait),
                true => {
                    let last = self.outgoing.file.is_none() && !self.outgoing.stream;
                    link.poll_send_body(cx, parts, last, &mut self.send_deadline, wait)
                }
            };
            match sent {
                Poll::Ready(Ok(n)) => return Poll::Ready(Step::Sent(n)),
                Poll::Ready(Err(LinkError::Timeout)) => {
                    return Poll::Ready(Step::Failed(Fault::Timeout(SENDING)))
                }
                Poll::Ready(Err(LinkError::Io(e))) => {
                    return Poll::Ready(Step::Failed(Fault::Send(e)))
                }
                Poll::Ready(Err(LinkError::Protocol(text))) => {
                    return Poll::Ready(Step::Failed(Fault::Protocol(text)))
                }
                Poll::Pending => {}
            }
        }
        let turn = match sending {
            true => Turn::Sending,
            false if self.outgoing.waits() && self.unsendable.is_none() => Turn::Client,
            false => Turn::Server,
        };
        match self.read(cx, link, reply, turn) {
            Poll::Ready(step) => Poll::Ready(step),
            // It was no answer yet: the client has its turn again.
            Poll::Pending if turn == Turn::Client => Poll::Ready(Step::Sent(0)),
            Poll::Pending if self.watch.is_gone(cx) => Poll::Ready(Step::Failed(Fault::ClientGone)),
            Poll::Pending => Poll::Pending,
        }
    }

    /// Reads what the server says while it still has to take more of the request.
    #[inline(never)]
    fn read_early(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut Link,
        reply: &mut Vec<u8>,
    ) -> Poll<Step> {
        match server_speaks(link, cx) {
            true => self.read(cx, link, reply, Turn::Client),
            false => Poll::Pending,
        }
    }

    /// Reads some of the answer.
    #[inline(always)]
    fn read(
        &mut self,
        cx: &mut Context<'_>,
        link: &mut Link,
        reply: &mut Vec<u8>,
        turn: Turn,
    ) -> Poll<Step> {
        let mut unlimited = 0;
        let (deadline, wait) = match turn {
            Turn::Sending => (&mut self.send_deadline, self.conf_send_ms),
            Turn::Client => (&mut unlimited, self.conf_read_ms),
            Turn::Server => (&mut self.head_deadline, self.conf_read_ms),
        };
        let fault = match ready!(link.poll_read(cx, reply, self.room, deadline, wait)) {
            Ok(n) => return Poll::Ready(Step::Read(n)),
            Err(LinkError::Timeout) => Fault::Timeout(READING),
            Err(LinkError::Io(e)) => Fault::Read(e, Reading::Head),
            Err(LinkError::Protocol(text)) => Fault::Protocol(format!("{text} while {READING}")),
        };
        Poll::Ready(Step::Failed(fault))
    }

    /// Whether the head is complete. What a decoder has found besides is logged, and may be the end.
    #[inline]
    fn read_head(
        &mut self,
        r: &mut Request,
        link: &mut Link,
        reply: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        if link.decoder.is_some() {
            return self.read_decoded(r, link, reply);
        }
        let complete = self.parse(r, reply)?;
        if let Some(hear) = self.family.ways.head_came.filter(|_| complete) {
            hear(r, link, reply);
        }
        Ok(complete)
    }

    #[inline(never)]
    fn read_decoded(
        &mut self,
        r: &mut Request,
        link: &mut Link,
        reply: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        let Some(decoder) = &mut link.decoder else { return Ok(false) };
        self.show_uri(r);
        let aside = decoder::log_aside(r, self.family, decoder, READING);
        let complete = self.parse(r, reply)?;
        let head_len = if complete { r.exchange.head.head_len } else { usize::MAX };
        decoder::judge_aside(r, self.family, &aside, head_len)?;
        match complete {
            true => {
                r.exchange.head.connection_close = !decoder.wrapping.keeps();
                Ok(true)
            }
            false => match decoder.wrapping.ended_early() {
                Some(text) => Err(Fault::Protocol(format!("{text} while {READING}"))),
                None => Ok(false),
            },
        }
    }

    /// Whether the head is complete; interim answers are passed over.
    #[inline]
    fn parse(&mut self, r: &mut Request, reply: &mut Vec<u8>) -> Result<bool, Fault> {
        loop {
            let at = r.exchange.head_at;
            // An HTTP/2 head has been measured already.
            let max = if self.h2 { usize::MAX } else { self.head_max };
            let parsed = self.parser.parse(&reply[at..], max, &mut r.exchange.head);
            match parsed {
                Ok(ResponseProgress::NeedMore) => return Ok(false),
                Ok(ResponseProgress::Http09) => {
                    self.show_uri(r);
                    r.log(
                        LogLevel::Error,
                        "upstream sent no valid HTTP/1.0 header while \
                        reading response header from upstream",
                    );
                    r.exchange.head.status = 200;
                    r.head.version = Version::HTTP_09;
                    r.flags.keepalive = false;
                    r.exchange.answered = true;
                    return Ok(true);
                }
                Ok(ResponseProgress::Complete) => {
                    let status = r.exchange.head.status;
                    if self.family.ways.interim && (100..200).contains(&status) && status != 101 {
                        self.interim(r, reply)?;
                        continue;
                    }
                    if self.family.ways.one_answer {
                        r.exchange.head.connection_close = true;
                    }
                    r.exchange.answered = true;
                    return Ok(true);
                }
                Err(e) => {
                    self.show_uri(r);
                    log_bad_head(r, &e, &reply[at..]);
                    return Err(Fault::Invalid);
                }
            }
        }
    }

    /// Passes hints on, and makes room for what follows an interim answer.
    fn interim(&mut self, r: &mut Request, reply: &mut Vec<u8>) -> Result<(), Fault> {
        let len = r.exchange.head.head_len;
        self.interims += 1;
        if self.interims > INTERIM_ANSWERS_MAX {
            return Err(Fault::Protocol("upstream sent too many interim responses".to_string()));
        }
        if r.exchange.head.status == EARLY_HINTS && early::wants_hints(r) {
            self.interim += len;
            match self.interim <= self.head_max {
                true => {
                    let mut fields = Vec::new();
                    let shown = r.exchange.head.headers.iter();
                    for f in shown.filter(|f| !self.hide.hides(f, reply)) {
                        fields.extend_from_slice(f.name.of(reply));
                        fields.extend_from_slice(b": ");
                        fields.extend_from_slice(f.value.of(reply));
                        fields.extend_from_slice(b"\r\n");
                    }
                    early::send_hints(r, &fields);
                    self.hinted = true;
                }
                false => {
                    self.show_uri(r);
                    r.log(LogLevel::Info, "upstream sent too big early hints");
                }
            }
        }
        reply.drain(..len);
        self.parser.reset();
        Ok(())
    }
}

/// Whether an answer may lie before the error that sending has met: a server that has seen enough
/// answers and closes, and what it left unread resets the connection. What lies on a kept
/// connection that has taken nothing is no answer to this request.
fn may_have_said(link: &Link, e: &io::Error) -> bool {
    use io::ErrorKind as K;
    (link.sent > 0 || !link.reused) && matches!(e.kind(), K::BrokenPipe | K::ConnectionReset)
}

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
    let mut next = pin!(body::next(r));
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
