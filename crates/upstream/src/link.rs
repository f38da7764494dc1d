//! A connection to a server: made with a deadline, read and written with lazy timers, and looked
//! over before it is used again.

use crate::decoder::Decoder;
use crate::h2::H2;
use crate::peers::PeerAddr;
use crate::reply::BodyReader;
use crate::tls::Wanted;
use std::future::{poll_fn, Future};
use std::io::{self, IoSlice};
use std::pin::pin;
use std::task::{Context, Poll};
use weir_runtime::clock;
pub use weir_runtime::net::SocketOptions;
use weir_runtime::net::Stream;
use weir_runtime::timer::LazyTimer;
use weir_tls::{Channel, TlsError};
use weir_wire::http1::response::ResponseHead;

/// Why a connection could not be used.
#[derive(Debug)]
pub enum LinkError {
    Timeout,
    Io(io::Error),
    /// What the server sent is wrong; in words for the log.
    Protocol(String),
}

impl From<io::Error> for LinkError {
    fn from(e: io::Error) -> LinkError {
        LinkError::Io(e)
    }
}

/// Why there is no TLS on a connection.
#[derive(Debug)]
pub enum SecureError {
    Timeout,
    Tls(TlsError),
    /// In words for the log.
    Refused(String),
}

/// A connection to a server.
pub struct Link {
    pub stream: Channel,
    timer: LazyTimer,
    /// Requests it has carried.
    pub requests: u64,
    pub start_ms: u64,
    /// Bytes sent for the current request.
    pub sent: u64,
    /// Whose TLS it has; 0 for none. Requests that want another must not use it.
    pub mark: u64,
    /// The current request is not its first.
    pub reused: bool,
    /// It speaks HTTP/2.
    pub h2: Option<Box<H2>>,
    /// Takes the current answer out of what it comes in.
    pub decoder: Option<Decoder>,
}

/// What sets connections with HTTP/2 apart from others, in their marks.
pub const H2_MARK: u64 = 2;

impl Link {
    pub async fn connect(
        addr: &PeerAddr,
        options: &SocketOptions,
        timeout_ms: u64,
    ) -> Result<Box<Link>, LinkError> {
        let mut timer = LazyTimer::new();
        let mut connecting = pin!(open(addr, options));
        let mut deadline = 0;
        let stream = poll_fn(|cx| {
            if let Poll::Ready(done) = connecting.as_mut().poll(cx) {
                return Poll::Ready(done.map_err(LinkError::Io));
            }
            if deadline == 0 {
                deadline = clock::mono_ms() + timeout_ms;
            }
            timer.poll_until(cx, deadline).map(|()| Err(LinkError::Timeout))
        })
        .await?;
        Ok(Box::new(Link {
            stream: stream.into(),
            timer,
            requests: 0,
            start_ms: clock::mono_ms(),
            sent: 0,
            mark: 0,
            reused: false,
            h2: None,
            decoder: None,
        }))
    }

    /// Begins TLS on a fresh connection and judges what the server shows.
    pub async fn secure(&mut self, wanted: &Wanted, timeout_ms: u64) -> Result<(), SecureError> {
        self.stream.start(wanted.session().map_err(SecureError::Refused)?);
        self.mark = wanted.mark;
        let deadline = clock::mono_ms() + timeout_ms;
        poll_fn(|cx| {
            if let Poll::Ready(done) = self.stream.poll_handshake(cx) {
                return Poll::Ready(done.map_err(SecureError::Tls));
            }
            self.timer.poll_until(cx, deadline).map(|()| Err(SecureError::Timeout))
        })
        .await?;
        match self.stream.tls() {
            Some(session) => wanted.judge(session).map_err(SecureError::Refused),
            None => Ok(()),
        }
    }

    /// Speaks HTTP/2 from its first byte on.
    pub fn start_h2(&mut self) {
        // Windows and answers must not wait for the acknowledgement of what was sent before.
        self.stream.set_nodelay(true);
        self.mark ^= H2_MARK;
        self.h2 = Some(Box::default());
    }

    /// What reads the body behind that head.
    pub fn reader(&self, head: &ResponseHead, bodiless: bool) -> BodyReader {
        match (&self.h2, &self.decoder) {
            (Some(h2), _) => BodyReader::of_stream(head, bodiless, h2.has_ended()),
            (_, Some(decoder)) => BodyReader::decoded(head, bodiless, decoder.wrapping.has_ended()),
            _ => BodyReader::new(head, bodiless),
        }
    }

    /// Nothing of the request and its answer is left on the connection, as far as that is known
    /// here.
    pub fn may_go_on(&self) -> bool {
        self.h2.as_ref().is_none_or(|h2| h2.may_go_on())
            && self.decoder.as_ref().is_none_or(|d| d.may_go_on())
    }

    /// Nothing has arrived and nobody has hung up: safe to send the next request on. Asks the
    /// kernel only when the event loop has seen something happen.
    pub fn is_quiet(&self) -> bool {
        matches!(self.stream.peek(), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    /// As [`Link::is_quiet`], but never trusts what the event loop has seen so far.
    pub fn is_surely_quiet(&self) -> bool {
        matches!(self.stream.peek_now(), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    }

    /// Sends some of it, failing at the deadline; a deadline of 0 is set when it must wait.
    pub fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
        deadline: &mut u64,
        timeout_ms: u64,
    ) -> Poll<Result<usize, LinkError>> {
        if let Poll::Ready(r) = self.stream.poll_write(cx, parts, false) {
            if let Ok(n) = r {
                self.sent += n as u64;
            }
            return Poll::Ready(r.map_err(LinkError::Io));
        }
        self.poll_deadline(cx, deadline, timeout_ms).map(Err)
    }

    /// Reads into the buffer; 0 is the end. A deadline of 0 is set when it must wait.
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
        deadline: &mut u64,
        timeout_ms: u64,
    ) -> Poll<Result<usize, LinkError>> {
        let read = match (&self.h2, &self.decoder) {
            (None, None) => self.stream.poll_read(cx, buf, room).map_err(LinkError::Io),
            (None, Some(_)) => self.poll_read_decoded(cx, buf, room),
            (Some(_), _) => self.poll_read_h2(cx, buf, room),
        };
        match read {
            Poll::Ready(r) => Poll::Ready(r),
            Poll::Pending => self.poll_deadline(cx, deadline, timeout_ms).map(Err),
        }
    }

    /// As [`Link::poll_send`] for the body of an HTTP/2 request, as far as windows allow. `last`:
    /// the body ends with these parts.
    pub fn poll_send_body(
        &mut self,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
        last: bool,
        deadline: &mut u64,
        timeout_ms: u64,
    ) -> Poll<Result<usize, LinkError>> {
        let Some(h2) = &mut self.h2 else { return Poll::Pending };
        let was_closed = h2.client.is_closed();
        let mut taken = 0;
        for (i, part) in parts.iter().enumerate() {
            let n = h2.frame(part, last && i + 1 == parts.len());
            taken += n;
            if n < part.len() {
                break;
            }
        }
        let progress = taken > 0 || h2.client.is_closed() != was_closed;
        let before = self.sent;
        if let Poll::Ready(Err(e)) = self.poll_flush(cx) {
            return Poll::Ready(Err(LinkError::Io(e)));
        }
        if progress || self.sent > before {
            return Poll::Ready(Ok(taken));
        }
        self.poll_deadline(cx, deadline, timeout_ms).map(Err)
    }

    /// Sends what HTTP/2 has to say.
    fn poll_flush(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(h2) = &mut self.h2 else { return Poll::Ready(Ok(())) };
        let out = &mut h2.client.out;
        while !out.is_empty() {
            let n = match self.stream.poll_write(cx, &[IoSlice::new(out)], false) {
                Poll::Ready(Ok(n)) => n,
                Poll::Ready(Err(e)) => return Poll::Ready(Err(e)),
                Poll::Pending => return Poll::Pending,
            };
            out.drain(..n);
            self.sent += n as u64;
        }
        Poll::Ready(Ok(()))
    }

    /// Sends meanwhile what can be sent; where that fails, what has come is still read.
    fn converse(&mut self, cx: &mut Context<'_>) {
        if let Some(h2) = &mut self.h2 {
            h2.pump();
        }
        let flushed = self.poll_flush(cx);
        if let (Poll::Ready(Err(_)), Some(h2)) = (flushed, &mut self.h2) {
            h2.be_mute();
        }
    }

    fn poll_read_decoded(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<usize, LinkError>> {
        let Some(decoder) = &mut self.decoder else { return Poll::Pending };
        if let Some(text) = decoder.take_broken() {
            return Poll::Ready(Err(LinkError::Protocol(text)));
        }
        let from = buf.len();
        let n = match self.stream.poll_read(cx, buf, room) {
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(e)) => return Poll::Ready(Err(LinkError::Io(e))),
            Poll::Pending => return Poll::Pending,
        };
        Poll::Ready(decoder.decode(buf, from).map(|()| n).map_err(LinkError::Protocol))
    }

    fn poll_read_h2(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
    ) -> Poll<Result<usize, LinkError>> {
        self.converse(cx);
        let Some(h2) = &mut self.h2 else { return Poll::Pending };
        if let Some(text) = h2.take_broken() {
            return Poll::Ready(Err(LinkError::Protocol(text)));
        }
        let n = match self.stream.poll_read(cx, &mut h2.client.input, room) {
            Poll::Ready(Ok(n)) => n,
            Poll::Ready(Err(e)) => return Poll::Ready(Err(LinkError::Io(e))),
            Poll::Pending => return Poll::Pending,
        };
        if n > 0 {
            if let Err(text) = h2.decode(buf) {
                return Poll::Ready(Err(LinkError::Protocol(text)));
            }
            self.converse(cx);
        }
        Poll::Ready(Ok(n))
    }

    fn poll_deadline(
        &mut self,
        cx: &mut Context<'_>,
        deadline: &mut u64,
        timeout_ms: u64,
    ) -> Poll<LinkError> {
        if *deadline == 0 {
            *deadline = clock::mono_ms() + timeout_ms;
        }
        self.timer.poll_until(cx, *deadline).map(|()| LinkError::Timeout)
    }
}

async fn open(addr: &PeerAddr, options: &SocketOptions) -> io::Result<Stream> {
    match addr {
        PeerAddr::Ip(addr) => Stream::connect(*addr, options).await,
        PeerAddr::Unix(path) => Stream::connect_path(path).await,
    }
}

/// `(111: Connection refused)`: a system error as nginx logs it.
pub fn error_text(e: &io::Error) -> String {
    let text = e.to_string();
    match e.raw_os_error() {
        Some(code) => {
            let text = text.split(" (os error").next().unwrap_or(&text);
            format!("({code}: {text})")
        }
        None => format!("({text})"),
    }
}
