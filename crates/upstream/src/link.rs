//! A connection to a server: made with a deadline, read and written with lazy timers, and looked
//! over before it is used again.

use crate::group::close_spare;
use crate::peers::PeerAddr;
use crate::tls::{Chosen, Show, Wanted};
use std::any::Any;
use std::future::{poll_fn, Future};
use std::io::{self, IoSlice};
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use weir_core::counts::Unverified;
use weir_core::logger::LogLevel;
use weir_core::tls::files::Sought;
use weir_core::{socket_errors, Worker};
use weir_runtime::clock;
pub use weir_runtime::net::SocketOptions;
use weir_runtime::net::{is_out_of_descriptors, Stream};
use weir_runtime::timer::LazyTimer;
use weir_tls::rustls::pki_types::CertificateDer;
use weir_tls::rustls::sign::CertifiedKey;
use weir_tls::{Channel, Session, TlsError};

/// Why a connection could not be used.
#[derive(Debug)]
pub enum LinkError {
    /// It took too long.
    Timeout,
    /// What the system says.
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
    /// It took too long.
    Timeout,
    /// What TLS says.
    Tls(TlsError),
    /// In words for the log.
    Refused(String),
    /// The server's certificate is not taken; in words for the log.
    Unverified(Unverified, String),
    /// There is no certificate to be shown, whoever is asked; in words for the log.
    Certificate(String),
}

/// A connection to a server.
pub struct Link {
    /// The socket, with or without TLS.
    pub stream: Channel,
    timer: LazyTimer,
    /// Requests it has carried.
    pub requests: u64,
    /// When it was made, in milliseconds of the monotonic clock.
    pub start_ms: u64,
    /// Bytes sent for the current request.
    pub sent: u64,
    /// Whose TLS it has; 0 for none. Requests that want another must not use it.
    pub mark: u64,
    /// How long its current request's parts may take to be sent and to come, in milliseconds, where that is not
    /// what the configuration says.
    pub waits_ms: (Option<u64>, Option<u64>),
    /// The current request is not its first.
    pub reused: bool,
    /// What its protocol knows of it while it waits for its next request.
    pub kept: Option<Box<dyn Any>>,
    /// The server likely has a process for it alone, which nobody else can use while it is idle.
    pub holds_process: bool,
}

impl Link {
    /// Connects within so many milliseconds. Where descriptors run out, what the worker keeps above
    /// the numbers of its upstreams gives way.
    ///
    /// # Errors
    ///
    /// There is no connection in time.
    pub async fn connect(
        addr: &PeerAddr,
        options: &SocketOptions,
        timeout_ms: u64,
        worker: &Worker,
    ) -> Result<Box<Link>, LinkError> {
        let mut timer = LazyTimer::new();
        let mut connecting = pin!(open(addr, options, worker));
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
        Ok(Box::new(Link::new(stream, timer)))
    }

    fn new(stream: Stream, timer: LazyTimer) -> Link {
        Link {
            stream: stream.into(),
            timer,
            requests: 0,
            start_ms: clock::mono_ms(),
            sent: 0,
            mark: 0,
            waits_ms: (None, None),
            reused: false,
            kept: None,
            holds_process: false,
        }
    }

    /// One that leads to no server.
    #[cfg(test)]
    pub(crate) fn nowhere() -> Box<Link> {
        Box::new(Link::new(Stream::nowhere(), LazyTimer::new()))
    }

    /// Begins TLS on a fresh connection and judges what the server shows.
    ///
    /// # Errors
    ///
    /// There is no session within so many milliseconds, or not with that server.
    pub async fn secure(&mut self, wanted: &Wanted, timeout_ms: u64) -> Result<(), SecureError> {
        self.handshake(wanted, Show::Usual, timeout_ms).await?;
        self.judge(wanted)
    }

    /// The same without a judgement, showing a certificate that somebody has chosen for this one connection: it is
    /// not used for others then.
    ///
    /// # Errors
    ///
    /// As those of [`Link::secure`].
    pub async fn handshake(
        &mut self,
        wanted: &Wanted,
        show: Show,
        timeout_ms: u64,
    ) -> Result<(), SecureError> {
        let deadline = clock::mono_ms() + timeout_ms;
        self.mark = match show {
            Show::Usual => wanted.mark,
            Show::Nothing | Show::This(_) => Wanted::mark_of_none(),
        };
        let show = match (show, &wanted.own) {
            (Show::Usual, Some(own)) => Show::This(self.certificate(own, deadline).await?),
            (show, _) => show,
        };
        let session = wanted.session_of(Chosen { show, handed: None });
        self.stream.start(session.map_err(SecureError::Refused)?);
        poll_fn(|cx| {
            if let Poll::Ready(done) = self.stream.poll_handshake(cx) {
                return Poll::Ready(done.map_err(SecureError::Tls));
            }
            self.timer.poll_until(cx, deadline).map(|()| Err(SecureError::Timeout))
        })
        .await
    }

    /// Judges what the server has shown.
    ///
    /// # Errors
    ///
    /// It is not to be trusted.
    pub fn judge(&self, wanted: &Wanted) -> Result<(), SecureError> {
        let verdict = self.stream.tls().map_or(Ok(()), |session| wanted.judge(session));
        verdict.map_err(|(why, text)| SecureError::Unverified(why, text))
    }

    /// The same of the name alone.
    ///
    /// # Errors
    ///
    /// The certificate is another host's.
    pub fn judge_name(&self, wanted: &Wanted) -> Result<(), SecureError> {
        let verdict = self.stream.tls().map_or(Ok(()), |session| wanted.judge_name(session));
        verdict.map_err(|(why, text)| SecureError::Unverified(why, text))
    }

    /// What the server has shown, its own certificate first.
    pub fn shown(&self) -> Vec<CertificateDer<'static>> {
        let shown = |session: &Session| {
            session.with(|tls| tls.peer_certificates().map(<[_]>::to_vec).unwrap_or_default())
        };
        self.stream.tls().map(shown).unwrap_or_default()
    }

    /// Waits for a certificate of the request's own.
    async fn certificate(
        &mut self,
        own: &Arc<Sought>,
        deadline: u64,
    ) -> Result<Arc<CertifiedKey>, SecureError> {
        let found = match own.at_once() {
            Some(found) => found,
            None => {
                let mut reading = Box::pin(Arc::clone(own).read());
                poll_fn(|cx| match reading.as_mut().poll(cx) {
                    Poll::Ready(found) => Poll::Ready(found),
                    Poll::Pending => self.timer.poll_until(cx, deadline).map(|()| {
                        let name = String::from_utf8_lossy(&own.names.0);
                        Err(format!("certificate \"{name}\" was not read in time"))
                    }),
                })
                .await
            }
        };
        found.map_err(SecureError::Certificate)
    }

    /// Sends what has to leave in one piece, as the PROXY protocol's header has; `false` when it did not. A
    /// fresh connection has room for it.
    pub fn send_at_once(&self, text: &[u8]) -> bool {
        let sent = self.stream.socket().try_write(&[IoSlice::new(text)], false);
        matches!(sent, Ok(n) if n == text.len())
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
    #[inline]
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
    #[inline(always)]
    pub fn poll_read(
        &mut self,
        cx: &mut Context<'_>,
        buf: &mut Vec<u8>,
        room: usize,
        deadline: &mut u64,
        timeout_ms: u64,
    ) -> Poll<Result<usize, LinkError>> {
        match self.stream.poll_read(cx, buf, room) {
            Poll::Ready(r) => Poll::Ready(r.map_err(LinkError::Io)),
            Poll::Pending => self.poll_deadline(cx, deadline, timeout_ms).map(Err),
        }
    }

    /// Whoever calls must wait: an error at the deadline. One of 0 is set now.
    pub fn poll_deadline(
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

async fn open(addr: &PeerAddr, options: &SocketOptions, worker: &Worker) -> io::Result<Stream> {
    loop {
        let opened = match addr {
            PeerAddr::Ip(addr) => Stream::connect(*addr, options).await,
            PeerAddr::Unix(path) => Stream::connect_path(path).await,
        };
        match opened {
            Err(e) if is_out_of_descriptors(&e) && close_spare(worker) => {}
            other => return other,
        }
    }
}

/// `(111: Connection refused)`: a system error as nginx logs it.
pub fn error_text(e: &io::Error) -> String {
    format!("({})", weir_base::system::error(e))
}

/// What nginx logs of a connection to `peer` that was not made, and its level: with the address where the
/// call itself fails.
pub fn connect_failure(e: &io::Error, peer: Option<&str>) -> (LogLevel, String) {
    use io::ErrorKind as K;
    if is_out_of_descriptors(e) {
        return (LogLevel::Alert, format!("socket() failed {}", error_text(e)));
    }
    let usual = socket_errors::is_usual(e) || e.kind() == K::WouldBlock;
    let to = match (e.kind(), peer) {
        (K::ConnectionRefused, _) | (_, None) => String::new(),
        (_, Some(peer)) => format!(" to {peer}"),
    };
    let level = if usual { LogLevel::Error } else { LogLevel::Crit };
    (level, format!("connect(){to} failed {}", error_text(e)))
}
