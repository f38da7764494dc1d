//! One question and its answer.

use super::{grpc, matching, Check, HealthMain, Question, BODY_MAX_BYTES};
use crate::ask::{Ask, BodyLength};
use crate::conf::BackendLoc;
use crate::exchange::Talk;
use crate::fault::{Fault, Reading, READING, SENDING};
use crate::link::reply::BodyReader;
use crate::link::Link;
use crate::sending::Outgoing;
use crate::target::{Parts, Target};
use crate::upload::Body;
use std::any::Any;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;
use weir_core::generation::WorkerGen;
use weir_core::timing::UpstreamState;
use weir_core::Worker;
use weir_http::generation::HttpConf;
use weir_http::Request;
use weir_runtime::clock;
use weir_tls::TlsError;
use weir_upstream::health::{begin, Asker, Asking, Ill};
use weir_upstream::{error_text, Link as Base, LinkError, Peer, PeerAddr, SecureError};

const CONNECTING: &str = "connecting to upstream";
const SECURING: &str = "SSL handshaking to upstream";
const READING_BODY: &str = "reading upstream";
/// Read at once.
const ROOM_BYTES: usize = 16 * 1024;

/// A worker's part of the checks begins: of so many workers each has some.
pub(super) fn serves(worker: &Rc<Worker>, workers: usize) {
    let gen = worker.generation();
    let Some(http) = gen.shared.part::<HttpConf>() else { return };
    let checks = http.main.get::<HealthMain>().checks.iter().enumerate();
    for (_, check) in checks.filter(|(i, _)| i % workers.max(1) == worker.id) {
        let log = &http.locations[check.location].error_log;
        let (own, gen) = (Rc::clone(worker), Rc::clone(&gen));
        let asker = Http { worker: own, gen, check: Arc::clone(check) };
        begin(&check.board, Rc::new(asker), log, worker);
    }
}

/// Asks in a location's way.
struct Http {
    worker: Rc<Worker>,
    gen: Rc<WorkerGen>,
    check: Arc<Check>,
}

/// What an answer was judged to be, and by what.
type Verdict = Result<&'static str, &'static str>;

impl Asker for Http {
    fn ask<'a>(&'a self, peer: &'a Peer, kept: &'a mut Option<Box<dyn Any>>) -> Asking<'a> {
        Box::pin(self.ask_in_full(peer, kept))
    }
}

impl Http {
    async fn ask_in_full(
        &self,
        peer: &Peer,
        kept: &mut Option<Box<dyn Any>>,
    ) -> Result<&'static str, Ill> {
        let check = &self.check;
        let (before, after) = &check.titles;
        let title = format!("{before}{}{after}", String::from_utf8_lossy(&peer.name));
        let head = check.question.head();
        let own = Request::own(&self.worker, &self.gen, check.location, &head, &title);
        let Some(mut r) = own else { return Err(Ill::while_doing("preparing request")) };
        match self.exchange(&mut r, peer, kept).await {
            Ok(verdict) => verdict.map_err(Ill::while_doing),
            Err(fault) => {
                fault.log(&r, &peer.name);
                Err(Ill::while_doing(doing(&fault)))
            }
        }
    }

    async fn exchange(
        &self,
        r: &mut Request,
        peer: &Peer,
        kept: &mut Option<Box<dyn Any>>,
    ) -> Result<Verdict, Fault> {
        let loc = Rc::clone(r.loc());
        let conf = (self.check.conf_of)(&loc);
        let bodiless = self.write(r, conf, peer)?;
        let mut link = self.link(r, conf, peer, kept.take()).await?;
        link.requests += 1;
        let body = if r.body.memory.is_empty() { Body::None } else { Body::Memory };
        let mut talk = Talk::new(conf, Outgoing::new(r, conf, &body, false), false);
        talk.begin(r, &mut link);
        loop {
            if talk.must_wait() {
                talk.go_on(r, &link).await?;
            }
            if poll_fn(|cx| talk.poll(cx, r, &mut link)).await? {
                break;
            }
        }
        if let Some(state) = r.upstream.last_mut() {
            state.status = r.exchange.head.status;
        }
        let mut reader = link.reader(&r.exchange.head, bodiless);
        let body = match self.check.reads_body() {
            true => read_body(r, &mut link, &mut reader, *conf.read_timeout).await?,
            false => Vec::new(),
        };
        let verdict = self.judge(r, &reader, &body);
        let whole = reader.done && !reader.excess && link.may_go_on();
        if self.check.question.keepalive_ms > 0 && whole && !r.exchange.head.connection_close {
            *kept = Some(Box::new(link.into_base()));
        }
        Ok(verdict)
    }

    /// Writes the request; whether an answer to it has no body.
    fn write(&self, r: &mut Request, conf: &BackendLoc, peer: &Peer) -> Result<bool, Fault> {
        // The URI is that of the check, as it is.
        let parts = Parts { uri: Vec::new(), ..self.check.pass.parts.clone() };
        r.exchange.scheme = Some(conf.family.schemes.shown(parts.tls));
        r.upstream.push(UpstreamState::new(Rc::from(&*peer.name), false));
        let length = match &self.check.question.grpc {
            None => BodyLength::None,
            Some(asked) => {
                r.body.memory = grpc::question(&asked.service);
                BodyLength::Known(r.body.memory.len() as u64)
            }
        };
        let target = Target::Own(Box::new(parts));
        let ask = Ask { target: &target, length, cached: false, as_get: false };
        let text = || Fault::Protocol("health check request could not be written".to_string());
        (conf.family.write)(r, &ask).map_err(|_| text())
    }

    /// The connection of the question before, or a fresh one.
    async fn link(
        &self,
        r: &mut Request,
        conf: &BackendLoc,
        peer: &Peer,
        kept: Option<Box<dyn Any>>,
    ) -> Result<Link, Fault> {
        let question = &self.check.question;
        if let Some(base) = kept.and_then(|kept| kept.downcast::<Box<Base>>().ok()) {
            let age_ms = clock::mono_ms().saturating_sub(base.start_ms);
            if age_ms < question.keepalive_ms && base.is_surely_quiet() {
                return Ok(Link::from(*base));
            }
        }
        let addr = match (&peer.addr, question.port) {
            (PeerAddr::Ip(addr), Some(port)) => PeerAddr::Ip((addr.ip(), port).into()),
            (addr, _) => addr.clone(),
        };
        let options = conf.socket_options(conf.bind(r));
        let timeout_ms = *conf.connect_timeout;
        let connected = Base::connect(&addr, &options, timeout_ms, &self.worker).await;
        let mut link = Link::from(connected.map_err(|e| match e {
            LinkError::Timeout => Fault::Timeout(CONNECTING),
            LinkError::Io(e) => Fault::Connect(e),
            LinkError::Protocol(text) => Fault::Protocol(text),
        })?);
        self.secure(r, conf, &mut link).await?;
        if conf.h2 {
            link.start_h2();
        }
        Ok(link)
    }

    async fn secure(
        &self,
        r: &mut Request,
        conf: &BackendLoc,
        link: &mut Link,
    ) -> Result<(), Fault> {
        let parts = &self.check.pass.parts;
        if !parts.tls {
            return Ok(());
        }
        let none = || Fault::Tls("there is no TLS for it".to_string());
        let wanted = conf.tls.wanted(r, &parts.host).ok_or_else(none)?;
        let text = match link.secure(&wanted, *conf.connect_timeout).await {
            Ok(()) => return Ok(()),
            Err(SecureError::Timeout) => return Err(Fault::Timeout(SECURING)),
            Err(SecureError::Certificate(text)) => return Err(Fault::Certificate(text)),
            Err(SecureError::Refused(text) | SecureError::Unverified(_, text)) => text,
            Err(SecureError::Tls(TlsError::Closed)) => {
                "peer closed connection in SSL handshake".to_string()
            }
            Err(SecureError::Tls(TlsError::Io(e))) => {
                format!("SSL_do_handshake() failed {}", error_text(&e))
            }
            Err(SecureError::Tls(e)) => format!("SSL_do_handshake() failed (SSL: {e})"),
        };
        Err(Fault::Tls(format!("{text} while {SECURING}")))
    }

    fn judge(&self, r: &mut Request, reader: &BodyReader, body: &[u8]) -> Verdict {
        if let Some(asked) = &self.check.question.grpc {
            let fields = r.exchange.fields();
            let behind = reader.trailers.iter().map(|(n, v)| (n.as_slice(), v.as_slice()));
            let mut all = fields.chain(behind);
            let status = all.find(|(n, _)| n.eq_ignore_ascii_case(b"grpc-status")).map(|(_, v)| v);
            grpc::judge(asked, body, status)?;
        }
        match &self.check.wanted {
            Some(wanted) => wanted.judge(r, body),
            None => matching::usual(r),
        }
    }
}

impl Check {
    /// Somebody wants to know what stands behind the head.
    fn reads_body(&self) -> bool {
        let question = &self.question;
        let looks = self.wanted.as_ref().is_some_and(|m| m.looks_at_body());
        looks || question.grpc.is_some() || question.keepalive_ms > 0
    }
}

/// What was being done when it failed.
fn doing(fault: &Fault) -> &'static str {
    match fault {
        Fault::Connect(_) => CONNECTING,
        Fault::Tls(_) | Fault::Certificate(_) => SECURING,
        Fault::Send(_) => SENDING,
        Fault::Eof(doing) | Fault::Timeout(doing) => doing,
        Fault::Read(_, Reading::Body | Reading::Ahead) | Fault::BadBody(_) => READING_BODY,
        _ => READING,
    }
}

/// Reads the body as far as it is looked at, within a time for all of it.
async fn read_body(
    r: &mut Request,
    link: &mut Link,
    reader: &mut BodyReader,
    timeout_ms: u64,
) -> Result<Vec<u8>, Fault> {
    const BAD: Fault = Fault::BadBody("upstream sent an invalid body while reading upstream");
    let from = r.exchange.head_at + r.exchange.head.head_len;
    let mut body = r.exchange.reply.split_off(from.min(r.exchange.reply.len()));
    link.tell(reader);
    reader.feed(&mut body, 0).map_err(|_| BAD)?;
    let mut deadline = clock::mono_ms() + timeout_ms;
    while !reader.done && body.len() < BODY_MAX_BYTES {
        let from = body.len();
        let reading = |e| match e {
            LinkError::Timeout => Fault::Timeout(READING_BODY),
            LinkError::Io(e) => Fault::Read(e, Reading::Body),
            LinkError::Protocol(text) => Fault::Protocol(format!("{text} while {READING_BODY}")),
        };
        let read = poll_fn(|cx| link.poll_read(cx, &mut body, ROOM_BYTES, &mut deadline, 0));
        if read.await.map_err(reading)? == 0 {
            match reader.ends_with_connection() {
                true => break,
                false => return Err(Fault::Eof(READING_BODY)),
            }
        }
        link.tell(reader);
        reader.feed(&mut body, from).map_err(|_| BAD)?;
        // A server that always has more to say must not keep others from theirs.
        if clock::mono_ms() >= deadline {
            return Err(Fault::Timeout(READING_BODY));
        }
    }
    body.truncate(BODY_MAX_BYTES);
    Ok(body)
}

impl Question {
    /// The request's text.
    fn head(&self) -> Vec<u8> {
        match self.grpc {
            Some(_) => grpc::HEAD.to_vec(),
            None => [b"GET ", &self.uri[..], b" HTTP/1.0\r\n\r\n"].concat(),
        }
    }
}
