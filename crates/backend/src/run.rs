//! One request that is passed on: servers are tried until one answers, and its answer goes to the
//! client.

use crate::ahead::Ahead;
use crate::conf::{next, BackendLoc};
use crate::exchange::{self, Fault};
use crate::families::proxy::tunnel;
use crate::family::{ConfOf, Wire};
use crate::kept as cache;
use crate::target::{self, Target};
use crate::{relay, respond};
use std::future::Future;
use std::rc::Rc;
use std::task::Poll;
use weir_core::logger::LogLevel;
use weir_core::temp::TempFile;
use weir_core::Session;
use weir_http::body::{self, BodyError};
use weir_http::client_watch::unless_client_goes;
use weir_http::generation::Location;
use weir_http::timing::UpstreamState;
use weir_http::{Flow, Request};
use weir_runtime::clock;
use weir_tls::TlsError;
use weir_upstream::balance::Key;
use weir_upstream::group::{Lease, WorkerGroup};
use weir_upstream::link::{Link, LinkError, SecureError, SocketOptions, H2_MARK};
use weir_upstream::peers::Choice;
use weir_upstream::reply::BodyReader;
use weir_upstream::tls::Wanted;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Method;

/// The client's body on its way to the server.
pub enum Body {
    None,
    Memory,
    File(Rc<TempFile>),
    /// Passed on as it arrives.
    Stream,
}

/// The length that a request's body has on its way to the backend.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyLength {
    None,
    Known(u64),
    Chunked,
}

/// How a request is to be written.
pub struct Ask<'a> {
    pub target: &'a Target,
    pub length: BodyLength,
    /// The answer may be kept.
    pub cached: bool,
    /// The client's HEAD goes out as GET, so that the whole answer can be kept.
    pub as_get: bool,
}

/// What stays the same while servers are tried.
pub struct Run<'a> {
    loc: &'a Rc<Location>,
    conf: &'a BackendLoc,
    pub group: Rc<WorkerGroup>,
    pub choice: Choice,
    key: Key,
    options: SocketOptions,
    /// TLS to the servers, when they are named with https.
    tls: Option<Wanted>,
    pub body: Body,
    /// The body goes out chunked.
    pub chunked: bool,
    /// The answer will have no body.
    pub bodiless: bool,
    /// The answer came in one piece with its head, and at the same time.
    at_once: bool,
    /// No server was asked yet.
    first: bool,
    start_ms: u64,
    /// When the server that is being asked was chosen.
    asked_ms: u64,
    /// The answer is kept, so it is read to its end even if the client goes.
    keeps: bool,
    /// Why no further server was asked.
    gave_up: Option<u32>,
}

impl<'a> Run<'a> {
    pub fn conf(&self) -> &'a BackendLoc {
        self.conf
    }

    pub fn wire(&self) -> Wire {
        self.conf.family.wire
    }

    /// What reads the body behind the head that has come.
    fn reader(&self, r: &Request, link: &Link) -> BodyReader {
        let head = &r.exchange.head;
        match self.wire() {
            // The length that an answer to HEAD shows is not its own.
            Wire::Cgi if r.method == Method::Head => BodyReader::to_the_end(head),
            _ => link.reader(head, self.bodiless),
        }
    }

    pub fn ignores_abort(&self) -> bool {
        self.keeps || *self.conf().ignore_client_abort
    }

    /// Connections are shared within this location only, where the upstream says so.
    fn tag(&self) -> usize {
        self.loc.id
    }
}

/// A server that has answered.
pub struct Answer {
    pub link: Box<Link>,
    pub lease: Lease,
    /// The whole request has been sent.
    pub request_sent: bool,
}

pub async fn run(r: &mut Request, conf_of: ConfOf) -> Flow {
    let loc = Rc::clone(r.loc());
    let conf = conf_of(&loc);
    let body = match r.body.is_none() {
        true => Ok(Body::None),
        false => take_body(r, conf).await,
    };
    let body = match body {
        Ok(body) => body,
        Err(BodyError::Status(s)) => return Flow::Status(s),
        Err(BodyError::Closed) => return Flow::Status(499),
    };
    let found = match conf.cache.is_on() {
        true => cache::look(r, conf).await,
        false => None,
    };
    match found {
        Some(flow) => flow,
        None => pass(r, &loc, conf, body).await,
    }
}

/// Asks the servers, and passes on (or only keeps) what one of them answers.
pub async fn pass(r: &mut Request, loc: &Rc<Location>, conf: &BackendLoc, body: Body) -> Flow {
    let Some(pass) = &conf.pass else { return Flow::Status(500) };
    let (target, group) = match target::find(r, *conf.family, pass, *conf.ignore_client_abort).await
    {
        Ok(found) => found,
        Err(status) => return Flow::Status(status),
    };
    let options = conf.socket_options(r);
    let parts = target.parts();
    let tls = match parts.tls {
        false => None,
        true => match conf.tls.wanted(r, &parts.host) {
            Some(wanted) => Some(wanted),
            None => return Flow::Status(500),
        },
    };
    let chunked = matches!(body, Body::Stream) && r.body.is_chunked();
    let mut run = Run {
        choice: Choice::new(group.peers()),
        key: Key::new(&group.shape, r),
        options,
        tls,
        body,
        chunked,
        bodiless: false,
        at_once: false,
        first: true,
        start_ms: clock::mono_ms(),
        asked_ms: 0,
        group,
        keeps: cache::keeps(r, conf),
        gave_up: None,
        loc,
        conf,
    };
    if let Err(status) = begin(r, &mut run, &target) {
        return Flow::Status(status);
    }
    if r.match_failed() {
        return Flow::Status(500);
    }
    tries(r, &mut run).await
}

/// Writes the request and limits the tries.
fn begin(r: &mut Request, run: &mut Run, target: &Target) -> Result<(), u16> {
    let conf = run.conf;
    r.exchange.clear();
    r.exchange.scheme = conf.family.schemes.shown(run.tls.is_some());
    let length = body_length(r, conf, run.chunked);
    let (cached, as_get) = cache::how_asked(r);
    run.bodiless = (conf.family.write)(r, &Ask { target, length, cached, as_get })?;
    let most = *conf.next_upstream_tries;
    if most > 0 {
        run.choice.tries = run.choice.tries.min(u32::try_from(most).unwrap_or(u32::MAX));
    }
    Ok(())
}

fn body_length(r: &Request, conf: &BackendLoc, chunked: bool) -> BodyLength {
    if r.body.is_none() || !*conf.pass_request_body {
        return BodyLength::None;
    }
    match chunked {
        true => BodyLength::Chunked,
        false => BodyLength::Known(r.body.announced().unwrap_or(r.body.length)),
    }
}

/// Reads the client's body, unless it is to be passed on as it comes.
async fn take_body(r: &mut Request, conf: &BackendLoc) -> Result<Body, BodyError> {
    let own = conf.own_body;
    let streamed =
        !*conf.request_buffering && !own && (conf.streams_unmeasured || !r.body.is_chunked());
    match streamed && !r.body.complete {
        true if !take_what_is_there(r).await? => return Ok(Body::Stream),
        true => {}
        false => body::read_all(r).await?,
    }
    Ok(match &r.body.file {
        _ if own => Body::None,
        Some(file) => Body::File(Rc::clone(file)),
        None if r.body.memory.is_empty() => Body::None,
        None => Body::Memory,
    })
}

/// Takes the part of the body that has already come; whether it is all of it.
async fn take_what_is_there(r: &mut Request) -> Result<bool, BodyError> {
    let loc = Rc::clone(r.loc());
    let most = *loc.core.client_body_buffer_size as usize;
    while r.body.memory.len() < most {
        let Some(piece) = at_once(body::next(r)).await else { return Ok(false) };
        match piece? {
            Some(bytes) => r.body.memory.extend_from_slice(&bytes),
            None => {
                r.body.complete = true;
                return Ok(true);
            }
        }
    }
    Ok(false)
}

/// What a future gives without waiting.
pub async fn at_once<T>(work: impl Future<Output = T>) -> Option<T> {
    let mut work = std::pin::pin!(work);
    std::future::poll_fn(|cx| {
        Poll::Ready(match work.as_mut().poll(cx) {
            Poll::Ready(done) => Some(done),
            Poll::Pending => None,
        })
    })
    .await
}

async fn tries(r: &mut Request, run: &mut Run<'_>) -> Flow {
    loop {
        let flow = match ask(r, run).await {
            Ok(answer) => answered(r, run, answer).await,
            Err(Some(status)) => Some(cache::failed(r, run.conf(), run.gave_up, status).await),
            Err(None) => None,
        };
        if let Some(flow) = flow {
            return flow;
        }
    }
}

/// Asks one server. An error is a status to answer with, or `None` for the next server.
async fn ask(r: &mut Request, run: &mut Run<'_>) -> Result<Answer, Option<u16>> {
    run.asked_ms = match run.first {
        true => run.start_ms,
        false => clock::mono_ms(),
    };
    let new_group = std::mem::take(&mut run.first) && !r.upstream.is_empty();
    let lease = run.group.pick(&mut run.choice, &mut run.key);
    let peer = match &lease {
        Some(lease) => run.group.name_of(lease.peer),
        None => Rc::clone(&run.group.shown_name),
    };
    r.upstream.push(UpstreamState { peer, new_group, ..UpstreamState::default() });
    let Some(lease) = lease else {
        r.log(LogLevel::Error, "no live upstreams while connecting to upstream");
        return Err(failed(r, run, None, None, next::NO_LIVE));
    };
    if let Some(sticky) = &run.group.shape.sticky {
        sticky.chosen(r, &mut run.key.client, &lease);
    }
    let version = if run.conf.h2 { H2_MARK } else { 0 };
    let mark = run.tls.as_ref().map_or(0, |t| t.mark) ^ version;
    let risky = matches!(r.method, Method::Post | Method::Lock | Method::Patch);
    let idle = run
        .group
        .take_idle(lease.peer, run.tag(), mark)
        .filter(|link| !risky || link.is_surely_quiet());
    let mut link = match idle {
        Some(mut link) => {
            link.reused = true;
            link
        }
        None => match connect(r, run, &lease).await {
            Ok(mut link) => {
                if run.conf.h2 {
                    link.start_h2();
                }
                link
            }
            Err(fault) => return Err(give_up(r, run, lease, None, fault)),
        },
    };
    link.requests += 1;
    let connect_ms = match link.reused {
        true => 0,
        false => clock::mono_ms().saturating_sub(run.asked_ms),
    };
    if let Some(state) = r.upstream.last_mut() {
        state.connect_ms = Some(connect_ms);
    }
    match exchange::run(r, run, &mut link).await {
        Ok(request_sent) => {
            let took = clock::mono_ms().saturating_sub(run.asked_ms);
            if let Some(state) = r.upstream.last_mut() {
                state.header_ms = Some(took);
            }
            Ok(Answer { link, lease, request_sent })
        }
        Err(fault) => Err(give_up(r, run, lease, Some(link), fault)),
    }
}

async fn connect(r: &mut Request, run: &Run<'_>, lease: &Lease) -> Result<Box<Link>, Fault> {
    let conf = run.conf();
    let addr = &lease.config().addr;
    let timeout = *conf.connect_timeout;
    let connecting = Link::connect(addr, &run.options, timeout);
    match unless_client_goes(r, run.ignores_abort(), connecting).await {
        None => Err(Fault::ClientGone),
        Some(Ok(link)) => secure(r, run, link).await,
        Some(Err(LinkError::Timeout)) => Err(Fault::Timeout("connecting to upstream")),
        Some(Err(LinkError::Io(e))) => Err(Fault::Connect(e)),
        Some(Err(LinkError::Protocol(text))) => Err(Fault::Protocol(text)),
    }
}

/// Puts TLS on a fresh connection, where it is wanted.
async fn secure(r: &mut Request, run: &Run<'_>, mut link: Box<Link>) -> Result<Box<Link>, Fault> {
    let Some(wanted) = &run.tls else { return Ok(link) };
    const DOING: &str = "SSL handshaking to upstream";
    let conf = run.conf();
    let handshake = link.secure(wanted, *conf.connect_timeout);
    match unless_client_goes(r, *conf.ignore_client_abort, handshake).await {
        None => Err(Fault::ClientGone),
        Some(Ok(())) => Ok(link),
        Some(Err(SecureError::Timeout)) => Err(Fault::Timeout(DOING)),
        Some(Err(SecureError::Refused(text))) => Err(Fault::Tls(format!("{text} while {DOING}"))),
        Some(Err(SecureError::Tls(TlsError::Closed))) => {
            Err(Fault::Tls(format!("peer closed connection in SSL handshake while {DOING}")))
        }
        Some(Err(SecureError::Tls(e))) => {
            Err(Fault::Tls(format!("SSL_do_handshake() failed (SSL: {e}) while {DOING}")))
        }
    }
}

/// Logs a fault and decides what follows it.
fn give_up(
    r: &mut Request,
    run: &mut Run,
    lease: Lease,
    link: Option<Box<Link>>,
    fault: Fault,
) -> Option<u16> {
    let name = run.group.name_of(lease.peer);
    fault.log(r, &name);
    match fault.next_bit() {
        Ok(bit) => failed(r, run, Some(lease), link, bit),
        Err(status) => {
            finish_state(r, run, link.as_deref());
            Some(status)
        }
    }
}

/// nginx's bookkeeping after a try that failed: `None` when another server is to be asked.
fn failed(
    r: &mut Request,
    run: &mut Run,
    lease: Option<Lease>,
    link: Option<Box<Link>>,
    bit: u32,
) -> Option<u16> {
    finish_state(r, run, link.as_deref());
    let harmless = bit & (next::HTTP_403 | next::HTTP_404) != 0;
    if let Some(lease) = lease {
        if lease.release(&mut run.choice, !harmless) {
            let doing = match &link {
                None => "connecting to upstream",
                Some(_) => "reading response header from upstream",
            };
            let text = format!("upstream server temporarily disabled while {doing}");
            r.log(LogLevel::Warn, &text);
        }
    }
    let stale = link.as_ref().is_some_and(|l| l.reused);
    if stale && bit == next::ERROR {
        run.choice.tries += 1;
    }
    let status = match bit {
        next::TIMEOUT | next::HTTP_504 => 504,
        next::HTTP_500 => 500,
        next::HTTP_503 => 503,
        next::HTTP_403 => 403,
        next::HTTP_404 => 404,
        next::HTTP_429 => 429,
        _ => 502,
    };
    if let Some(state) = r.upstream.last_mut() {
        state.status = status;
    }
    let sent = link.is_some_and(|l| l.sent > 0);
    let again = run.choice.tries > 0 && may_repeat(r, run, bit, sent);
    if !again {
        run.gave_up = Some(bit);
        return Some(status);
    }
    r.exchange.reply.clear();
    r.exchange.head.clear();
    r.exchange.answered = false;
    None
}

/// Whether `…_next_upstream` allows another server after this.
fn may_repeat(r: &Request, run: &Run, bit: u32, sent: bool) -> bool {
    let conf = run.conf();
    let mut wanted = bit;
    if sent && matches!(r.method, Method::Post | Method::Lock | Method::Patch) {
        wanted |= next::NON_IDEMPOTENT;
    }
    let timeout = *conf.next_upstream_timeout;
    let late = timeout > 0 && clock::mono_ms().saturating_sub(run.start_ms) >= timeout;
    let gone = sent && matches!(run.body, Body::Stream);
    *conf.next_upstream & wanted == wanted && !gone && !late
}

/// Completes what `$upstream_*` shows of the current try.
fn finish_state(r: &mut Request, run: &Run, link: Option<&Link>) {
    let whole = run.at_once.then(|| r.upstream.last().and_then(|s| s.header_ms)).flatten();
    let took = whole.unwrap_or_else(|| clock::mono_ms().saturating_sub(run.asked_ms));
    if let Some(state) = r.upstream.last_mut() {
        state.response_ms = Some(took);
        state.bytes_sent = link.map_or(0, |l| l.sent);
    }
}

/// The statuses after which another server may be asked.
fn bit_of(status: u16) -> Option<u32> {
    Some(match status {
        500 => next::HTTP_500,
        502 => next::HTTP_502,
        503 => next::HTTP_503,
        504 => next::HTTP_504,
        403 => next::HTTP_403,
        404 => next::HTTP_404,
        429 => next::HTTP_429,
        _ => return None,
    })
}

/// A complete head has come. `None`: another server is to be asked instead.
async fn answered(r: &mut Request, run: &mut Run<'_>, answer: Answer) -> Option<Flow> {
    let status = r.exchange.head.status;
    if let Some(state) = r.upstream.last_mut() {
        state.status = status;
    }
    if status >= 300 {
        if let Some(bit) = bit_of(status) {
            if run.choice.tries > 1 && may_repeat(r, run, bit, true) {
                let Answer { link, lease, .. } = answer;
                return failed(r, run, Some(lease), Some(link), bit).map(Flow::Status);
            }
        }
        let kept = cache::kept_instead(r, run.conf(), bit_of(status));
        if kept.is_some() || respond::intercepts(r, run.conf()) {
            let reader = run.reader(r, &answer.link);
            done(r, run, answer, &reader);
            let conf = run.conf();
            return Some(match kept {
                Some(kept) => cache::answer_kept(r, conf, kept).await,
                None => cache::intercepted(r, conf, status),
            });
        }
    }
    Some(pass_on(r, run, answer).await)
}

async fn pass_on(r: &mut Request, run: &mut Run<'_>, mut answer: Answer) -> Flow {
    answer.lease.header_came(r.upstream.last().and_then(|s| s.header_ms));
    if let Some(sticky) = &run.group.shape.sticky {
        sticky.answered(r, &run.key.client, &answer.lease);
    }
    let conf = run.conf;
    let fresh = cache::judge(r, conf);
    let redirected = if cache::is_silent(r) { None } else { respond::accel_redirect(r, conf) };
    if let Some(flow) = redirected {
        cache::give_up(r);
        let reader = run.reader(r, &answer.link);
        done(r, run, answer, &reader);
        return flow;
    }
    let buffering = respond::head(r, conf);
    let mut keep = cache::begin(r, conf, fresh.as_ref(), buffering);
    keep.ignore_abort = run.ignores_abort();
    // Asked for now: behind the header what cannot be told would be no limit.
    let rate = conf.limit_rate.as_ref().map_or(0, |t| r.eval_size(t));
    // Also what only goes into the cache, where no header is sent.
    if r.match_failed() {
        return Flow::Status(500);
    }
    if r.out.status == 101 {
        if r.header(HeaderId::Upgrade).is_none() || r.is_part() {
            r.log(LogLevel::Error, "upstream switched protocols unasked");
            r.out.clear();
            return Flow::Status(502);
        }
        return tunnel::run(r, run, answer).await;
    }
    let mut reader = run.reader(r, &answer.link);
    let sent = if keep.silent { Ok(()) } else { r.send_header() };
    match sent {
        Ok(()) => {}
        Err(weir_http::module::FilterError::Status(s)) if !r.header_sent => {
            return Flow::Status(s);
        }
        Err(_) => return Flow::Close,
    }
    if r.header_only && keep.fill.is_none() {
        done(r, run, answer, &reader);
        return Flow::Ok;
    }
    let reads = r.upstream.last().map_or(0, |s| s.bytes_received);
    let mut ahead = Ahead::new(conf);
    ahead.rate = if keep.buffering { rate } else { 0 };
    let relayed = relay::run(r, &mut answer.link, &mut reader, &mut keep, &mut ahead, conf).await;
    let came_at_once = r.upstream.last().is_some_and(|s| s.bytes_received == reads);
    run.at_once = relayed.is_ok() && came_at_once;
    done(r, run, answer, &reader);
    if relayed.is_ok() && !reader.is_short() {
        keep.finish(r);
    }
    let client_gone = keep.client_gone;
    finish(r, relayed, &mut ahead, client_gone).await
}

/// Sends the rest of an answer whose server has said all.
async fn finish(
    r: &mut Request,
    relayed: Result<(), Fault>,
    ahead: &mut Ahead<'_>,
    client_gone: bool,
) -> Flow {
    let ended = relayed.is_ok();
    let gone = client_gone || matches!(relayed, Err(Fault::ClientGone));
    let mut own_fault = matches!(relayed, Err(Fault::File(_)));
    if let Err(fault) = relayed {
        fault.log(r, b"");
    }
    let sent = match gone {
        true => Err(Fault::ClientGone),
        false => ahead.finish(r, ended).await,
    };
    match sent {
        Ok(()) if ended => return Flow::Ok,
        Ok(()) => {}
        Err(Fault::ClientGone) => {
            r.abort(499);
            return Flow::Close;
        }
        Err(fault) => {
            own_fault |= matches!(fault, Fault::File(_));
            fault.log(r, b"");
        }
    }
    // What came is still sent; that it is cut short shows in the missing end, and nginx logs it as
    // complete where it was cut by the server.
    r.keepalive = false;
    r.complete = r.drain(0).await.is_ok() && !own_fault;
    Flow::Close
}

/// The exchange is over: the connection is kept when it can carry another request.
pub fn done(r: &mut Request, run: &mut Run, answer: Answer, reader: &BodyReader) {
    finish_state(r, run, Some(&answer.link));
    let keep = answer.request_sent
        && answer.link.may_go_on()
        && reader.done
        && !reader.excess
        && !r.exchange.head.connection_close
        && r.exchange.head.status != 101;
    let Answer { link, mut lease, .. } = answer;
    if let Some(state) = r.upstream.last() {
        lease.took(state.header_ms, state.response_ms);
    }
    if let Some(sticky) = &run.group.shape.sticky {
        sticky.ended(r, &run.key.client, &lease);
    }
    if keep {
        let closing = r.conn().worker.closing.get();
        run.group.put_idle(link, lease.peer, run.tag(), closing);
    }
    lease.release(&mut run.choice, false);
}
