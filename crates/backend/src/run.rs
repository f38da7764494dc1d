//! One request that is passed on: servers are tried until one answers, and its answer goes to the
//! client.

use crate::ahead::Ahead;
use crate::ask::Ask;
use crate::bits::next;
use crate::cache::lookup::State;
use crate::conf::{conf_of, BackendConf, BackendLoc, ConfOf};
use crate::exchange;
use crate::fault::Fault;
use crate::kept::{self, Found};
use crate::link::reply::BodyReader;
use crate::link::{Link, H2_MARK};
use crate::sending::Sent;
use crate::sticky::{Client, Sticky};
use crate::target::{self, Pass, Target};
use crate::upload::{self, Body};
use crate::{relay, respond, tunnel};
use std::future::{poll_fn, Future};
use std::net::SocketAddr;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use weir_core::logger::LogLevel;
use weir_core::timing::UpstreamState;
use weir_core::{LocalFuture, Session};
use weir_http::body::BodyError;
use weir_http::client_watch::{unless_client_goes, ClientWatch};
use weir_http::detached::Ticket;
use weir_http::generation::Location;
use weir_http::{Flow, Request};
use weir_runtime::clock;
use weir_tls::TlsError;
use weir_upstream::{
    Choice, Key, Lease, Link as Base, LinkError, SecureError, Wanted, WorkerGroup,
};
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Method;

/// What stays the same while servers are tried.
struct Run<'a> {
    loc: &'a Rc<Location>,
    conf: &'a BackendLoc,
    group: Rc<WorkerGroup>,
    choice: Choice,
    key: Key,
    /// What the group's `sticky` knows of the client.
    client: Client,
    /// Where connections come from, if the configuration says so.
    bind: Option<SocketAddr>,
    /// TLS to the servers, when they are named with https.
    tls: Option<Wanted>,
    body: Body,
    /// The body goes out chunked.
    chunked: bool,
    /// The answer will have no body.
    bodiless: bool,
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
    fn conf(&self) -> &'a BackendLoc {
        self.conf
    }

    /// What reads the body behind the head that has come.
    fn reader(&self, r: &Request, link: &Link) -> BodyReader {
        let head = &r.exchange.head;
        match self.conf.family.ways.one_answer && r.method == Method::Head {
            // The length that an answer to HEAD shows is not its own.
            true => BodyReader::to_the_end(head),
            false => link.reader(head, self.bodiless),
        }
    }

    fn ignores_abort(&self) -> bool {
        self.keeps || *self.conf().ignore_client_abort
    }

    /// Connections are shared within this location only, where the upstream says so.
    fn tag(&self) -> usize {
        self.loc.id
    }
}

/// A server that has answered.
struct Answer {
    link: Link,
    lease: Lease,
}

/// What has more bytes is moved by a call each time, which a request would pay six times.
const _: () = assert!(std::mem::size_of::<Answer>() <= 72);

/// Passes requests on where a location says so.
pub(crate) fn handler<T: BackendConf>(r: &mut Request) -> Flow {
    let loc = Rc::clone(r.loc());
    kept::at_once(r, conf_of::<T>(&loc)).unwrap_or(Flow::Wait(wait::<T>))
}

fn wait<T: BackendConf>(r: &mut Request) -> LocalFuture<'_, Flow> {
    // Made where it stays: `Box::pin` would copy all of its room there.
    let waiting = Box::write(Box::new_uninit(), run(r, conf_of::<T>, false));
    Box::into_pin(waiting)
}

/// Answers from the cache, where that has an answer.
async fn look(r: &mut Request, conf: &BackendLoc, conf_of: ConfOf) -> Option<Flow> {
    match kept::look(r, conf).await {
        Found::Ask => None,
        Found::Done(flow) => Some(flow),
        Found::Renew(stored, state) => {
            renew(r, conf_of, *state);
            Some(kept::answer_stale(r, conf, &stored).await)
        }
    }
}

/// Renews an entry behind its stale answer; without a place for that it stays stale.
fn renew(r: &Request, conf_of: ConfOf, state: State) {
    let Some(ticket) = Ticket::take(r) else { return };
    let mut copy = r.detach();
    copy.keep_state(state);
    // As in nginx, a connection that is to be closed is closed once the update has ended: a client
    // that waits for the end sees the new answer next.
    let until_then = (!r.flags.keepalive).then(|| Rc::clone(r.conn()));
    ticket.spawn(async move {
        let _until_then = until_then;
        // Whatever it ends with, nobody waits for it; the state gives the entry back.
        let renewing: LocalFuture<'_, Flow> = Box::pin(run(&mut copy, conf_of, true));
        let _ = renewing.await;
        if copy.match_failed() {
            copy.log(LogLevel::Error, "a stale answer was not renewed: a match was given up");
        }
    });
}

/// Asks the servers, and passes on (or only keeps) what one of them answers. `renews`: behind a stale answer
/// and for the cache alone.
async fn run(r: &mut Request, conf_of: ConfOf, renews: bool) -> Flow {
    let loc = &Rc::clone(r.loc());
    let conf = conf_of(loc);
    let body = match renews || r.body.is_none() {
        true => Body::None,
        false => match upload::take(r, conf).await {
            Ok(body) => body,
            Err(BodyError::Status(s)) => return Flow::Status(s),
            Err(BodyError::Closed) => return Flow::Status(499),
        },
    };
    if conf.cache.is_on() && !renews {
        if let Some(flow) = Box::pin(look(r, conf, conf_of)).await {
            return flow;
        }
    }
    let (target, group) = match &conf.pass {
        None => return Flow::Status(500),
        Some(Pass::Fixed(fixed)) => match target::fixed(r, fixed) {
            Ok(group) => (Target::Fixed(fixed), group),
            Err(status) => return Flow::Status(status),
        },
        Some(Pass::Vars(template)) => {
            let (schemes, ignores) = (&conf.family.schemes, *conf.ignore_client_abort);
            match Box::pin(target::evaluate(r, schemes, template, ignores)).await {
                Ok(found) => found,
                Err(status) => return Flow::Status(status),
            }
        }
    };
    let bind = conf.bind(r);
    let parts = target.parts();
    let tls = if parts.tls { conf.tls.wanted(r, &parts.host) } else { None };
    if parts.tls && tls.is_none() {
        return Flow::Status(500);
    }
    let chunked = matches!(body, Body::Stream) && r.body.is_chunked();
    let client = group.sticky::<Sticky>().map(|sticky| sticky.client(r)).unwrap_or_default();
    let mut run = Run {
        choice: group.choice(),
        key: group.key(r),
        client,
        bind,
        tls,
        body,
        chunked,
        bodiless: false,
        at_once: false,
        first: true,
        start_ms: clock::mono_ms(),
        asked_ms: 0,
        group,
        keeps: kept::keeps(r, conf),
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
    let length = upload::length(r, conf, run.chunked);
    let (cached, as_get) = kept::how_asked(r);
    run.bodiless = (conf.family.write)(r, &Ask { target, length, cached, as_get })?;
    let most = *conf.next_upstream_tries;
    if most > 0 {
        run.choice.tries = run.choice.tries.min(u32::try_from(most).unwrap_or(u32::MAX));
    }
    Ok(())
}

async fn tries(r: &mut Request, run: &mut Run<'_>) -> Flow {
    loop {
        let flow = match ask(r, run).await {
            Ok(answer) => answered(r, run, answer).await,
            Err(Some(status)) => Some(kept::failed(r, run.conf(), run.gave_up, status).await),
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
    let mut lease = pick(run);
    if lease.is_none() && run.group.lets_wait() {
        lease = Box::pin(wait_for_server(r, run)).await?;
    }
    let peer = match &lease {
        Some(lease) => run.group.name_of(lease.peer),
        None => Rc::clone(&run.group.shown_name),
    };
    r.upstream.push(UpstreamState::new(peer, new_group));
    let Some(lease) = lease else {
        r.log(LogLevel::Error, "no live upstreams while connecting to upstream");
        return Err(failed(r, run, None, None, next::NO_LIVE));
    };
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        sticky.chosen(r, &mut run.client, &lease);
    }
    let version = if run.conf.h2 { H2_MARK } else { 0 };
    let mark = run.tls.as_ref().map_or(0, |t| t.mark) ^ version;
    let risky = matches!(r.method, Method::Post | Method::Lock | Method::Patch);
    let idle = run
        .group
        .take_idle(lease.peer, run.tag(), mark)
        .filter(|link| !risky || link.is_surely_quiet());
    let mut link = match idle.map(Link::from) {
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
    let sent = Sent {
        conf: run.conf,
        body: &run.body,
        chunked: run.chunked,
        ignores_abort: run.ignores_abort(),
    };
    match exchange::run(r, &sent, &mut link).await {
        Ok(()) => {
            let took = clock::mono_ms().saturating_sub(run.asked_ms);
            if let Some(state) = r.upstream.last_mut() {
                state.header_ms = Some(took);
            }
            Ok(Answer { link, lease })
        }
        Err(fault) => Err(give_up(r, run, lease, Some(link), fault)),
    }
}

#[inline]
fn pick(run: &mut Run<'_>) -> Option<Lease> {
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        sticky.ask(&run.client, &mut run.choice);
    }
    run.group.pick(&mut run.choice, &mut run.key)
}

/// Waits for a server that has room, as long as the upstream lets requests wait; an error as of [`ask`].
async fn wait_for_server(r: &Request, run: &mut Run<'_>) -> Result<Option<Lease>, Option<u16>> {
    let ignores_abort = run.ignores_abort();
    let mut waiting = pin!(run.group.wait(&mut run.choice, &mut run.key));
    let mut watch = ClientWatch::new(r, ignores_abort);
    // The client comes first: of many that went together, each would have its turn and connect for nobody.
    let waited = poll_fn(|cx| match watch.is_gone(cx) {
        true => Poll::Ready(None),
        false => waiting.as_mut().poll(cx).map(Some),
    })
    .await;
    if waited.is_none() {
        r.log(LogLevel::Info, "client closed connection while waiting for an upstream server");
    }
    waited.ok_or(Some(499))
}

async fn connect(r: &mut Request, run: &Run<'_>, lease: &Lease) -> Result<Link, Fault> {
    let conf = run.conf();
    let addr = &lease.config().addr;
    let timeout = *conf.connect_timeout;
    let worker = Rc::clone(&r.conn().worker);
    let options = conf.socket_options(run.bind);
    let connecting = Base::connect(addr, &options, timeout, &worker);
    match unless_client_goes(r, run.ignores_abort(), connecting).await {
        None => Err(Fault::ClientGone),
        Some(Ok(link)) => secure(r, run, link.into()).await,
        Some(Err(LinkError::Timeout)) => Err(Fault::Timeout("connecting to upstream")),
        Some(Err(LinkError::Io(e))) => Err(Fault::Connect(e)),
        Some(Err(LinkError::Protocol(text))) => Err(Fault::Protocol(text)),
    }
}

/// Puts TLS on a fresh connection, where it is wanted.
async fn secure(r: &mut Request, run: &Run<'_>, mut link: Link) -> Result<Link, Fault> {
    let Some(wanted) = &run.tls else { return Ok(link) };
    const DOING: &str = "SSL handshaking to upstream";
    let conf = run.conf();
    let handshake = link.secure(wanted, *conf.connect_timeout);
    match unless_client_goes(r, *conf.ignore_client_abort, handshake).await {
        None => Err(Fault::ClientGone),
        Some(Ok(())) => Ok(link),
        Some(Err(SecureError::Timeout)) => Err(Fault::Timeout(DOING)),
        Some(Err(SecureError::Certificate(text))) => Err(Fault::Certificate(text)),
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
    link: Option<Link>,
    fault: Fault,
) -> Option<u16> {
    let name = run.group.name_of(lease.peer);
    fault.log(r, &name);
    match fault.next_bit() {
        Ok(bit) => failed(r, run, Some(lease), link, bit),
        Err(status) => {
            finish_state(r, run, link.as_ref());
            Some(status)
        }
    }
}

/// nginx's bookkeeping after a try that failed: `None` when another server is to be asked.
fn failed(
    r: &mut Request,
    run: &mut Run,
    lease: Option<Lease>,
    link: Option<Link>,
    bit: u32,
) -> Option<u16> {
    finish_state(r, run, link.as_ref());
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
                let Answer { link, lease } = answer;
                return failed(r, run, Some(lease), Some(link), bit).map(Flow::Status);
            }
        }
        let kept = kept::kept_instead(r, run.conf(), bit_of(status));
        if kept.is_some() || respond::intercepts(r, run.conf()) {
            let reader = run.reader(r, &answer.link);
            done(r, run, answer, &reader);
            let conf = run.conf();
            return Some(match kept {
                Some(kept) => kept::answer_kept(r, conf, kept).await,
                None => kept::intercepted(r, conf, status),
            });
        }
    }
    Some(pass_on(r, run, answer).await)
}

async fn pass_on(r: &mut Request, run: &mut Run<'_>, mut answer: Answer) -> Flow {
    answer.lease.header_came(r.upstream.last().and_then(|s| s.header_ms));
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        sticky.answered(r, &run.client, &answer.lease);
    }
    let conf = run.conf;
    let fresh = kept::judge(r, conf);
    let redirected = if kept::is_silent(r) { None } else { respond::accel_redirect(r, conf) };
    if let Some(flow) = redirected {
        kept::give_up(r);
        let reader = run.reader(r, &answer.link);
        done(r, run, answer, &reader);
        return flow;
    }
    let buffering = respond::head(r, conf);
    let mut keep = kept::begin(r, conf, fresh.as_ref(), buffering);
    keep.ignore_abort = run.ignores_abort();
    // Asked for now: behind the header what cannot be told would be no limit.
    let rate = conf.limit_rate.as_ref().map_or(0, |t| r.eval_size(t));
    // Also what only goes into the cache, where no header is sent.
    if r.match_failed() {
        return Flow::Status(500);
    }
    if r.out.status == 101 {
        if r.header(HeaderId::Upgrade).is_none() || r.is_part() || !answer.link.is_bare() {
            r.log(LogLevel::Error, "upstream switched protocols unasked");
            r.out.clear();
            return Flow::Status(502);
        }
        return switch(r, run, answer).await;
    }
    let mut reader = run.reader(r, &answer.link);
    let sent = if keep.silent { Ok(()) } else { r.send_header() };
    match sent {
        Ok(()) => {}
        Err(weir_http::module::FilterError::Status(s)) if !r.flags.header_sent => {
            return Flow::Status(s);
        }
        Err(_) => return Flow::Close,
    }
    if r.flags.header_only && keep.fill.is_none() {
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

/// The server speaks another protocol from now on.
async fn switch(r: &mut Request, run: &mut Run<'_>, answer: Answer) -> Flow {
    let Answer { link, lease } = answer;
    let (group, client) = (Rc::clone(&run.group), std::mem::take(&mut run.client));
    let from = tunnel::From { link, lease, group, client, asked_ms: run.asked_ms };
    match tunnel::begin(r, run.conf, from).await {
        Ok(()) => Flow::Ok,
        Err(_) => Flow::Close,
    }
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
    r.flags.keepalive = false;
    r.flags.complete = r.drain(0).await.is_ok() && !own_fault;
    Flow::Close
}

/// The exchange is over: the connection is kept when it can carry another request.
fn done(r: &mut Request, run: &mut Run, answer: Answer, reader: &BodyReader) {
    finish_state(r, run, Some(&answer.link));
    let keep = answer.link.may_go_on()
        && reader.done
        && !reader.excess
        && !r.exchange.head.connection_close;
    let Answer { link, mut lease } = answer;
    if let Some(state) = r.upstream.last() {
        lease.took(state.header_ms, state.response_ms);
    }
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        sticky.ended(r, &run.client, &lease);
    }
    if keep {
        run.group.put_idle(link.into_base(), lease.peer, run.tag(), &r.conn().worker);
    }
    lease.release(&mut run.choice, false);
}
