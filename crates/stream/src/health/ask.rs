//! One question and its answer.

use super::{Check, Expected, HealthMain, Match};
use crate::generation::{Stream, StreamConf};
use crate::proxy::Way;
use crate::Session;
use std::any::Any;
use std::future::poll_fn;
use std::io::{self, IoSlice};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;
use weir_core::generation::WorkerGen;
use weir_core::logger::{ErrorLog, LogLevel};
use weir_core::{ClientAddr, Connection, Worker};
use weir_runtime::datagrams::DATAGRAM_MAX_BYTES;
use weir_runtime::net::Stream as Socket;
use weir_runtime::{clock, timer};
use weir_upstream::health::{begin, Asker, Asking, Ill};
use weir_upstream::{error_text, Link, LinkError, Peer, PeerAddr};

/// What a server is sent by UDP where nothing is said.
const USUAL_DATAGRAM: &[u8] = b"nginx health check";

const CONNECTING: &str = "connecting to upstream";
const SENDING: &str = "sending data to upstream";
const READING: &str = "reading data from upstream";
const CHECKING: &str = "checking data from upstream";

/// A worker's part of the checks begins: of so many workers each has some.
pub(super) fn serves(worker: &Rc<Worker>, workers: usize) {
    let gen = worker.generation();
    let Some(stream) = gen.shared.part::<StreamConf>() else { return };
    let checks = stream.main.get::<HealthMain>().checks.iter().enumerate();
    for (_, check) in checks.filter(|(i, _)| i % workers.max(1) == worker.id) {
        let log = Arc::clone(&stream.servers[check.server].base.error_log);
        let (own, gen) = (Rc::clone(worker), Rc::clone(&gen));
        let asker = Asks { worker: own, gen, check: Arc::clone(check), log: Arc::clone(&log) };
        begin(&check.board, Rc::new(asker), &log, worker);
    }
}

/// Asks in a server block's way.
struct Asks {
    worker: Rc<Worker>,
    gen: Rc<WorkerGen>,
    check: Arc<Check>,
    log: Arc<ErrorLog>,
}

/// What was being done, and what is said of it in the log; nothing of what only did not match.
type Failed = (&'static str, Option<String>);

impl Asker for Asks {
    fn ask<'a>(&'a self, peer: &'a Peer, _: &'a mut Option<Box<dyn Any>>) -> Asking<'a> {
        Box::pin(async move {
            let asked = match self.check.udp {
                true => self.by_datagram(peer).await,
                false => self.by_connection(peer).await,
            };
            asked.map_err(|(doing, text)| {
                if let Some(text) = text {
                    self.tell(peer, doing, &text);
                }
                Ill::while_doing(doing)
            })
        })
    }
}

impl Asks {
    fn tell(&self, peer: &Peer, doing: &str, text: &str) {
        let line = format!(
            "{text} while {doing}, health check \"{}\" of peer {} in upstream \"{}\"",
            self.check.board.title.as_deref().unwrap_or_default(),
            String::from_utf8_lossy(&peer.name),
            String::from_utf8_lossy(self.check.board.upstream()),
        );
        self.log.log(LogLevel::Error, None, line.as_bytes());
    }

    /// A session that stands for a client's, which there is none of; nothing where no socket belongs to the
    /// block.
    fn session(&self) -> Option<Session> {
        let gen = &self.gen.shared;
        let is_ours = |l: &&weir_core::generation::ListenConf| gen.protocol_of(l) == "stream";
        let socket = gen.listens.iter().find(is_ours)?;
        let from = (Rc::clone(&self.gen), gen.listens.place(&socket.addr)?);
        let worker = Rc::clone(&self.worker);
        let conn = Connection::new(worker, Socket::nowhere(), ClientAddr::Unix, from, 0);
        Some(Session::new(Rc::new(conn), Stream::of(&self.gen), self.check.server, 0))
    }

    fn addr(&self, peer: &Peer) -> PeerAddr {
        match (&peer.addr, self.check.port) {
            (PeerAddr::Ip(addr), Some(port)) => PeerAddr::Ip((addr.ip(), port).into()),
            (addr, _) => addr.clone(),
        }
    }

    async fn by_connection(&self, peer: &Peer) -> Result<&'static str, Failed> {
        let none = || (CONNECTING, Some("no session could be made".to_string()));
        let mut s = self.session().ok_or_else(none)?;
        let way = Way::of(&mut s, self.check.board.upstream());
        let worker = &self.worker;
        let mut link = way.connect(&self.addr(peer), worker).await.map_err(|e| {
            let text = match e {
                LinkError::Timeout => "upstream timed out (110: Connection timed out)".to_string(),
                LinkError::Io(e) => format!("connect() failed {}", error_text(&e)),
                LinkError::Protocol(text) => text,
            };
            (CONNECTING, Some(text))
        })?;
        match &self.check.wanted {
            None => Ok(CONNECTING),
            Some(wanted) => {
                self.send(&mut link, &wanted.send).await?;
                self.expect(&mut link, wanted, way.buffer_size).await
            }
        }
    }

    async fn send(&self, link: &mut Link, text: &[u8]) -> Result<(), Failed> {
        let (mut sent, mut deadline) = (0, 0);
        while sent < text.len() {
            let left = [IoSlice::new(&text[sent..])];
            let timeout_ms = self.check.timeout_ms;
            let some = poll_fn(|cx| link.poll_send(cx, &left, &mut deadline, timeout_ms)).await;
            sent += some.map_err(|e| (SENDING, Some(why(e))))?;
        }
        Ok(())
    }

    /// Reads until what is expected has come, `most` bytes have, or the time is over.
    async fn expect(
        &self,
        link: &mut Link,
        wanted: &Match,
        most: usize,
    ) -> Result<&'static str, Failed> {
        let Some(expected) = &wanted.expect else { return Ok(SENDING) };
        let mut deadline = clock::mono_ms() + self.check.timeout_ms;
        let mut got = Vec::new();
        while got.len() < most && !expected.is_excluded(&got) {
            let room = most - got.len();
            let read = poll_fn(|cx| link.poll_read(cx, &mut got, room, &mut deadline, 0)).await;
            if read.map_err(|e| (READING, Some(why(e))))? == 0 {
                break;
            }
            if expected.is_in(&got) {
                return Ok(CHECKING);
            }
            if clock::mono_ms() >= deadline {
                return Err((READING, Some(why(LinkError::Timeout))));
            }
        }
        Err((CHECKING, None))
    }

    async fn by_datagram(&self, peer: &Peer) -> Result<&'static str, Failed> {
        let none = || (CONNECTING, Some("no session could be made".to_string()));
        let mut s = self.session().ok_or_else(none)?;
        let way = Way::of(&mut s, self.check.board.upstream());
        let failed = |doing, call: &str, e: &io::Error| {
            (doing, Some(format!("{call} failed {}", error_text(e))))
        };
        let socket = way.connect_udp(&self.addr(peer), &self.worker);
        let socket = socket.map_err(|e| failed(CONNECTING, "connect()", &e))?;
        let wanted = self.check.wanted.as_deref();
        let text = wanted.map_or(USUAL_DATAGRAM, |m| &m.send);
        let sending = poll_fn(|cx| socket.poll_write(cx, &[IoSlice::new(text)], false));
        sending.await.map_err(|e| failed(SENDING, "send()", &e))?;
        let mut got = Vec::new();
        let reading = poll_fn(|cx| match socket.poll_datagram(cx, &mut got, DATAGRAM_MAX_BYTES) {
            Poll::Ready(Ok(_)) => Poll::Ready(Ok(())),
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => Poll::Pending,
        });
        let came = timer::within_ms(self.check.timeout_ms, reading).await;
        match (came, wanted.and_then(|m| m.expect.as_ref())) {
            (Some(Err(e)), _) => Err(failed(READING, "recv()", &e)),
            // Where nothing is expected, it is enough that nobody says that nobody is there.
            (_, None) => Ok(READING),
            (None, Some(_)) => Err((READING, Some(why(LinkError::Timeout)))),
            (Some(Ok(())), Some(expected)) => match expected.is_in(&got) {
                true => Ok(CHECKING),
                false => Err((CHECKING, None)),
            },
        }
    }
}

fn why(e: LinkError) -> String {
    match e {
        LinkError::Timeout => "upstream timed out (110: Connection timed out)".to_string(),
        LinkError::Io(e) => format!("recv() or send() failed {}", error_text(&e)),
        LinkError::Protocol(text) => text,
    }
}

impl Expected {
    fn is_in(&self, got: &[u8]) -> bool {
        match self {
            Expected::Bytes(bytes) => got.starts_with(bytes),
            Expected::Like(regex) => matches!(regex.is_match(got), Ok(true)),
        }
    }

    /// Whatever comes now, it is not what was expected.
    fn is_excluded(&self, got: &[u8]) -> bool {
        match self {
            Expected::Bytes(bytes) => {
                let len = got.len().min(bytes.len());
                got[..len] != bytes[..len]
            }
            Expected::Like(_) => false,
        }
    }
}
