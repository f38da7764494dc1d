//! A request goes out and the head of its answer comes back, over one connection.

use crate::conf::next;
use crate::decoder;
use crate::family::Wire;
use crate::h2;
use crate::hide::HideList;
use crate::run::{Body, Run};
use bytes::Bytes;
use std::future::{poll_fn, Future};
use std::io::{self, IoSlice};
use std::pin::pin;
use std::rc::Rc;
use std::task::{ready, Context, Poll};
use weir_core::logger::LogLevel;
use weir_core::socket_errors;
use weir_core::temp::TempFile;
use weir_core::Session;
use weir_http::body::{self, BodyError};
use weir_http::early;
use weir_http::{ClientWatch, Request};
use weir_upstream::h2::Rest;
use weir_upstream::link::{error_text, Link, LinkError};
use weir_wire::fastcgi;
use weir_wire::http1::chunked;
use weir_wire::http1::request::Version;
use weir_wire::http1::response::{ResponseError, ResponseParser, ResponseProgress};

/// Read at once, so that a head and a small body come in one piece.
const READ_ROOM_BYTES: usize = 32 * 1024;
/// Read at once from a body in a file.
const FILE_PIECE_BYTES: usize = 64 * 1024;

/// Interim answers (RFC 9110, section 15.2) that are read before the answer itself.
const INTERIM_ANSWERS_MAX: u32 = 100;

/// RFC 8297
const EARLY_HINTS: u16 = 103;

const SENDING: &str = "sending request to upstream";
const READING: &str = "reading response header from upstream";

/// What was being read of an answer.
#[derive(Clone, Copy, Debug)]
pub enum Reading {
    Head,
    Body,
    /// The same, into buffers.
    Ahead,
}

/// Why an exchange failed.
#[derive(Debug)]
pub enum Fault {
    Connect(io::Error),
    /// In words for the log.
    Tls(String),
    Send(io::Error),
    Read(io::Error, Reading),
    Eof(&'static str),
    /// While doing what.
    Timeout(&'static str),
    /// What the server sent is no answer; already logged.
    Invalid,
    /// The server's HTTP/2 is wrong; in words for the log.
    Protocol(String),
    /// The body is cut off or framed wrongly.
    BadBody(&'static str),
    ClientGone,
    Client(BodyError),
    /// A temporary file could not be read or written.
    File(io::Error),
    /// A filter could not go on.
    Filter,
}

impl Fault {
    /// The bit of `…_next_upstream`, or the status that ends the request.
    pub fn next_bit(&self) -> Result<u32, u16> {
        match self {
            Fault::Connect(_)
            | Fault::Tls(_)
            | Fault::Send(_)
            | Fault::Read(..)
            | Fault::Eof(_) => Ok(next::ERROR),
            Fault::Timeout(_) => Ok(next::TIMEOUT),
            Fault::Invalid | Fault::Protocol(_) => Ok(next::INVALID_HEADER),
            Fault::ClientGone | Fault::Client(BodyError::Closed) => Err(499),
            Fault::Client(BodyError::Status(s)) => Err(*s),
            Fault::BadBody(_) => Err(502),
            Fault::File(_) | Fault::Filter => Err(500),
        }
    }

    /// Logs it in nginx's words.
    pub fn log(&self, r: &Request, peer: &[u8]) {
        match self {
            Fault::Connect(e) => log_connect(r, e, peer),
            Fault::Tls(text) | Fault::Protocol(text) => r.log(LogLevel::Error, text),
            Fault::Send(e) => {
                let text = format!("writev() failed {} while {SENDING}", error_text(e));
                r.log(socket_errors::level(e, LogLevel::Error), &text);
            }
            Fault::Read(e, what) => {
                let (call, doing) = match what {
                    Reading::Head => ("recv()", READING),
                    Reading::Body => ("recv()", "reading upstream"),
                    Reading::Ahead => ("readv()", "reading upstream"),
                };
                let text = format!("{call} failed {} while {doing}", error_text(e));
                r.log(socket_errors::level(e, LogLevel::Error), &text);
            }
            Fault::Eof(doing) => {
                let text = format!("upstream prematurely closed connection while {doing}");
                r.log(LogLevel::Error, &text);
            }
            Fault::Timeout(doing) => {
                let text = format!("upstream timed out (110: Connection timed out) while {doing}");
                r.log(LogLevel::Error, &text);
            }
            Fault::BadBody(text) => r.log(LogLevel::Error, text),
            Fault::ClientGone => {
                let doing = if r.header_sent { "reading upstream" } else { SENDING };
                let text = format!(
                    "client prematurely closed connection, so upstream connection is closed too \
                     while {doing}"
                );
                r.log(LogLevel::Info, &text);
            }
            Fault::File(e) => {
                r.log(LogLevel::Crit, &format!("a temporary file failed {}", error_text(e)));
            }
            Fault::Invalid | Fault::Client(_) | Fault::Filter => {}
        }
    }
}

fn log_connect(r: &Request, e: &io::Error, peer: &[u8]) {
    use io::ErrorKind as K;
    // A listening Unix socket whose queue is full says EAGAIN.
    let usual = socket_errors::is_usual(e) || matches!(e.kind(), K::WouldBlock);
    // nginx names the address when the call itself fails, not when the answer does.
    let at_once = peer.starts_with(b"unix:") || !matches!(e.kind(), K::ConnectionRefused);
    let to = match at_once {
        true => format!(" to {}", String::from_utf8_lossy(peer)),
        false => String::new(),
    };
    let text = format!("connect(){to} failed {} while connecting to upstream", error_text(e));
    r.log(if usual { LogLevel::Error } else { LogLevel::Crit }, &text);
}

/// Sends the request and reads the answer's head; answers whether all of the request was sent.
pub async fn run(r: &mut Request, run: &Run<'_>, link: &mut Link) -> Result<bool, Fault> {
    let request = std::mem::take(&mut r.exchange.request);
    let memory = std::mem::take(&mut r.body.memory);
    let mut reply = std::mem::take(&mut r.exchange.reply);
    reply.clear();
    r.exchange.head_at = 0;
    let mut talk = Talk {
        conf_send_ms: *run.conf().send_timeout,
        conf_read_ms: *run.conf().read_timeout,
        head_max: *run.conf().buffer_size as usize,
        room: match *run.conf().buffering {
            true => READ_ROOM_BYTES.max(*run.conf().buffer_size as usize),
            false => *run.conf().buffer_size as usize,
        },
        watch: ClientWatch::new(r, run.ignores_abort()),
        parser: run.wire().parser(),
        wire: run.wire(),
        outgoing: Outgoing::new(run, &request, &memory),
        request: &request,
        send_deadline: 0,
        head_deadline: 0,
        interim: 0,
        interims: 0,
        hinted: false,
        hide: &run.conf().hide,
        h2: link.h2.is_some(),
        unsendable: None,
    };
    link.decoder = decoder::of(r, run.wire(), &request);
    talk.begin(r, link, &request);
    let result = talk.run(r, link, &mut reply).await;
    r.exchange.request = request;
    r.exchange.reply = reply;
    r.body.memory = memory;
    result
}

/// What is put around a body's bytes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Framing {
    Plain,
    Chunked,
    /// Records of FastCGI's standard input.
    Records,
}

impl Framing {
    fn of(run: &Run) -> Framing {
        match run.wire() {
            Wire::Fastcgi => Framing::Records,
            _ if run.chunked && !run.conf().h2 => Framing::Chunked,
            _ => Framing::Plain,
        }
    }
}

/// What is still to be sent.
struct Outgoing<'a> {
    first: &'a [u8],
    second: &'a [u8],
    file: Option<(Rc<TempFile>, u64)>,
    stream: bool,
    framing: Framing,
    /// The piece of a file or stream being sent, and how much of it is.
    piece: Vec<u8>,
    at: usize,
}

impl<'a> Outgoing<'a> {
    fn new(run: &Run, request: &'a [u8], memory: &'a [u8]) -> Outgoing<'a> {
        let file = match &run.body {
            Body::File(f) => Some((Rc::clone(f), 0)),
            _ => None,
        };
        let mut out = Outgoing {
            first: request,
            second: if matches!(run.body, Body::Memory) { memory } else { b"" },
            file,
            stream: matches!(run.body, Body::Stream),
            framing: Framing::of(run),
            piece: Vec::new(),
            at: 0,
        };
        if out.stream {
            // The part of the body that had come before a server was chosen.
            out.put_piece(memory, false);
        } else if out.framing == Framing::Records && out.file.is_none() {
            let body = std::mem::take(&mut out.second);
            out.put_piece(body, true);
        }
        out
    }

    /// What is there to send, without the empty parts before it.
    fn parts(&self) -> ([IoSlice<'_>; 2], usize) {
        let parts = [self.first, self.second, &self.piece[self.at..]];
        let mut filled = parts.iter().filter(|p| !p.is_empty());
        let first = filled.next().map_or(IoSlice::new(b""), |p| IoSlice::new(p));
        match filled.next() {
            Some(second) => ([first, IoSlice::new(second)], 2),
            None => ([first, IoSlice::new(b"")], 1),
        }
    }

    fn has_bytes(&self) -> bool {
        !(self.first.is_empty() && self.second.is_empty() && self.at == self.piece.len())
    }

    fn is_done(&self) -> bool {
        !self.has_bytes() && !self.has_more()
    }

    /// There is more of it than the bytes at hand.
    fn has_more(&self) -> bool {
        self.file.is_some() || self.stream
    }

    fn consume(&mut self, mut n: usize) {
        for part in [&mut self.first, &mut self.second] {
            let here = n.min(part.len());
            *part = &part[here..];
            n -= here;
        }
        self.at += n;
    }

    /// There is nothing to send now, but there will be.
    fn waits(&self) -> bool {
        !self.has_bytes() && !self.is_done()
    }

    /// Reads the next piece of the file.
    fn refill(&mut self) -> io::Result<()> {
        let Some((temp, at)) = &mut self.file else { return Ok(()) };
        self.piece.clear();
        self.at = 0;
        let last = h2::read_piece(temp, at, FILE_PIECE_BYTES, &mut self.piece)?;
        if last {
            self.file = None;
        }
        if self.framing == Framing::Records {
            let bytes = std::mem::take(&mut self.piece);
            self.put_piece(&bytes, last);
        }
        Ok(())
    }

    /// All that is left, of a body that is not a stream.
    fn take_rest(&mut self) -> Rest {
        let bytes = [self.first, self.second, &self.piece[self.at..]].concat();
        let file = self.file.take();
        let source = file.map(|(temp, at)| h2::file_source(temp, at, FILE_PIECE_BYTES));
        Rest { bytes, source, more: false }
    }

    /// Takes a part of a body and puts around it what the protocol wants.
    fn put_piece(&mut self, bytes: &[u8], ended: bool) {
        self.piece.clear();
        self.at = 0;
        if ended {
            self.stream = false;
        }
        match self.framing {
            Framing::Plain => self.piece.extend_from_slice(bytes),
            Framing::Chunked => {
                if !bytes.is_empty() {
                    chunked::write_chunk_header(bytes.len() as u64, &mut self.piece);
                    self.piece.extend_from_slice(bytes);
                    self.piece.extend_from_slice(b"\r\n");
                }
                if ended {
                    chunked::write_last_chunk(&mut self.piece);
                }
            }
            Framing::Records => {
                fastcgi::write_stdin(bytes, &mut self.piece);
                if ended {
                    fastcgi::write_stdin_end(&mut self.piece);
                }
            }
        }
    }
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
    wire: Wire,
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
        let Some(h2) = &mut link.h2 else { return };
        let tls = r.exchange.scheme == "https://";
        let text = h2::Text {
            bytes: request,
            uri: r.exchange.uri,
            tls,
            host_field: self.wire == Wire::Grpc && crate::families::grpc::sets_host(r),
        };
        self.outgoing.first = &request[text.end()..];
        h2.begin(self.outgoing.is_done(), self.head_max, |out| text.write(out));
    }

    fn is_http(&self) -> bool {
        matches!(self.wire, Wire::Http | Wire::Grpc)
    }

    /// Leaves what is left of the request to the connection, which sends it while the answer is
    /// read; whether that is all of it.
    fn leave_rest(&mut self, link: &mut Link) -> bool {
        if self.unsendable.is_some() {
            return false;
        }
        let Some(h2) = &mut link.h2 else { return self.outgoing.is_done() };
        if self.outgoing.stream {
            if self.wire != Wire::Grpc {
                return false;
            }
            // The relay sends the rest of it as it comes.
            h2.finish_later(Rest { more: true, ..self.outgoing.take_rest() });
            return true;
        }
        if !h2.client.is_closed() {
            h2.finish_later(self.outgoing.take_rest());
        }
        true
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
    ) -> Result<bool, Fault> {
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
                        return Ok(self.leave_rest(link));
                    }
                    if std::mem::take(&mut self.hinted) {
                        // What the client does not take now goes with the answer.
                        crate::run::at_once(r.drain(0)).await;
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
            let mut ended = false;
            while bytes.len() < FILE_PIECE_BYTES && !ended {
                match crate::run::at_once(body::next(r)).await {
                    None => break,
                    Some(more) => match more.map_err(Fault::Client)? {
                        Some(more) => bytes.extend_from_slice(&more),
                        None => ended = true,
                    },
                }
            }
            self.outgoing.put_piece(&bytes, ended);
        }
        Ok(())
    }

    fn step(&mut self, cx: &mut Context<'_>, link: &mut Link, reply: &mut Vec<u8>) -> Poll<Step> {
        if link.sent > 0 && !self.outgoing.is_done() && server_speaks(link, cx) {
            // A whole answer ends the sending.
            if let Poll::Ready(step) = self.read(cx, link, reply, Turn::Client) {
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

    /// Reads some of the answer.
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
    fn read_head(
        &mut self,
        r: &mut Request,
        link: &mut Link,
        reply: &mut Vec<u8>,
    ) -> Result<bool, Fault> {
        let Some(decoder) = &mut link.decoder else {
            let complete = self.parse(r, reply)?;
            if complete && self.wire == Wire::Grpc {
                note_empty_answer(r, link, reply);
            }
            return Ok(complete);
        };
        self.show_uri(r);
        let aside = decoder::log_aside(r, decoder, READING);
        let complete = self.parse(r, reply)?;
        let head_len = if complete { r.exchange.head.head_len } else { usize::MAX };
        decoder::judge_aside(r, &aside, head_len)?;
        match complete {
            true => {
                r.exchange.head.connection_close = !decoder.keeps();
                Ok(true)
            }
            false => match decoder.ended_early() {
                Some(text) => Err(Fault::Protocol(format!("{text} while {READING}"))),
                None => Ok(false),
            },
        }
    }

    /// Whether the head is complete; interim answers are passed over.
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
                    r.keepalive = false;
                    r.exchange.answered = true;
                    return Ok(true);
                }
                Ok(ResponseProgress::Complete) => {
                    let status = r.exchange.head.status;
                    if self.is_http() && (100..200).contains(&status) && status != 101 {
                        self.interim(r, reply)?;
                        continue;
                    }
                    if self.wire == Wire::Cgi {
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

/// An answer that is a head alone is passed on as one: its length is known.
fn note_empty_answer(r: &mut Request, link: &Link, reply: &[u8]) {
    let head = &mut r.exchange.head;
    let alone = reply.len() == r.exchange.head_at + head.head_len;
    let ended = link.h2.as_ref().is_some_and(|h2| h2.has_ended() && h2.trailers.is_empty());
    if alone && ended && head.content_length.is_none() {
        head.content_length = Some(0);
    }
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
