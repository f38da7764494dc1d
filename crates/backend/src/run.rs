//! One request that is passed on: servers are tried until one answers, and its answer goes to the
//! client.

use crate::ahead::Ahead;
use crate::ask::Ask;
use crate::bits::next;
use crate::cache::lookup::State;
use crate::conf::{conf_of, BackendConf, BackendLoc, ConfOf};
use crate::exchange::Talk;
use crate::fault::Fault;
use crate::kept;
use crate::link::reply::BodyReader;
use crate::link::{Link, H2_MARK};
use crate::sending::Outgoing;
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
    tls: Option<Box<Wanted>>,
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
    /// What is not known yet has values that are none: most requests keep them.
    #[inline]
    fn new(
        loc: &'a Rc<Location>,
        conf: &'a BackendLoc,
        group: Rc<WorkerGroup>,
        body: Body,
    ) -> Run<'a> {
        Run {
            loc,
            conf,
            choice: group.choice(),
            group,
            key: Key::default(),
            client: Client::default(),
            bind: None,
            tls: None,
            body,
            chunked: false,
            bodiless: false,
            at_once: false,
            first: true,
            start_ms: 0,
            asked_ms: 0,
            keeps: false,
            gave_up: None,
        }
    }

    /// Begins to talk with a server.
    #[inline]
    fn talk(&self, r: &mut Request, link: &mut Link) -> Talk<'a> {
        let outgoing = Outgoing::new(r, self.conf, &self.body, self.chunked);
        Talk::begin(r, self.conf, outgoing, link, self.ignores_abort())
    }

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

/// A server that is asked, and the connection to it.
struct Asked {
    link: Link,
    lease: Lease,
}

/// What has more bytes is moved by a call each time, which a request would pay several times.
const _: () = assert!(std::mem::size_of::<Asked>() <= 72);

/// What becomes of a request for which a server was chosen.
enum Chosen {
    /// A connection to it has waited.
    Idle(Asked),
    /// There is none yet.
    Unconnected(Lease),
    /// None has room, and the upstream lets requests wait.
    Full,
    /// No server is left. What follows is a status to answer with, or `None` for the next server.
    Failed(Option<u16>),
}

/// What follows an exchange.
enum End {
    /// The next server is asked.
    Again,
    Done(Flow),
    /// Something that may have to wait.
    Rest(Box<Rest>),
}

/// What of a request may have to wait behind an exchange.
enum Rest {
    /// No server has answered: a stale answer may do.
    Failed(u16),
    /// What is in the cache is better than what has come.
    Kept(kept::Kept),
    /// The server speaks another protocol from now on.
    Switch(Asked),
    /// More of the body is to come, or something is wrong with it; with `…_limit_rate`.
    Body(Asked, relay::Body, Result<(), Fault>, u64),
}

impl Rest {
    fn end(self) -> End {
        End::Rest(Box::new(self))
    }
}

/// Passes requests on where a location says so.
pub(crate) fn handler<T: BackendConf>(r: &mut Request) -> Flow {
    if !conf_of::<T>(r.loc()).cache.is_on() {
        return Flow::Wait(wait::<T>);
    }
    let loc = Rc::clone(r.loc());
    kept::at_once(r, conf_of::<T>(&loc)).unwrap_or(Flow::Wait(wait::<T>))
}

fn wait<T: BackendConf>(r: &mut Request) -> LocalFuture<'_, Flow> {
    // Made where it stays: `Box::pin` would copy all of its room there.
    let waiting = Box::write(Box::new_uninit(), run(r, conf_of::<T>, false));
    Box::into_pin(waiting)
}

/// Answers from the cache, where that has an answer.
#[inline(never)]
fn look<'a>(
    r: &'a mut Request,
    conf: &'a BackendLoc,
    conf_of: ConfOf,
) -> LocalFuture<'a, Option<Flow>> {
    Box::pin(async move {
        match kept::look(r, conf).await {
            kept::Found::Ask => None,
            kept::Found::Done(flow) => Some(flow),
            kept::Found::Renew(stored, state) => {
                renew(r, conf_of, *state);
                Some(kept::answer_stale(r, conf, &stored).await)
            }
        }
    })
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
///
/// One place where most requests wait: for the head of the answer. What else may be waited for has a future
/// of its own, made when it is.
async fn run(r: &mut Request, conf_of: ConfOf, renews: bool) -> Flow {
    let loc = &Rc::clone(r.loc());
    let conf = conf_of(loc);
    let mut body = Body::None;
    if !renews && r.body.was_announced() {
        body = match upload::take(r, conf).await {
            Ok(body) => body,
            Err(BodyError::Status(s)) => return Flow::Status(s),
            Err(BodyError::Closed) => return Flow::Status(499),
        };
    }
    if conf.cache.is_on() && !renews {
        if let Some(flow) = look(r, conf, conf_of).await {
            return flow;
        }
    }
    let found = match &conf.pass {
        None => Err(500),
        Some(Pass::Fixed(fixed)) => {
            target::fixed(r, fixed).map(|group| (Target::Fixed(fixed), group))
        }
        Some(Pass::Vars(template)) => {
            let (schemes, ignores) = (&conf.family.schemes, *conf.ignore_client_abort);
            target::evaluate(r, schemes, template, ignores).await
        }
    };
    let (target, group) = match found {
        Ok(found) => found,
        Err(status) => return Flow::Status(status),
    };
    let mut run = Run::new(loc, conf, group, body);
    if let Err(status) = begin(r, &mut run, &target) {
        return Flow::Status(status);
    }
    loop {
        let found = match choose(r, &mut run) {
            Chosen::Idle(asked) => Ok(asked),
            found => connected(r, &mut run, found).await,
        };
        let end = match found {
            Ok(mut asked) => {
                let mut talk = run.talk(r, &mut asked.link);
                let head = loop {
                    if talk.must_wait() {
                        if let Err(fault) = talk.go_on(r, &asked.link).await {
                            break Err(fault);
                        }
                    }
                    match poll_fn(|cx| talk.poll(cx, r, &mut asked.link)).await {
                        Ok(true) => break Ok(()),
                        Ok(false) => {}
                        Err(fault) => break Err(fault),
                    }
                };
                answered(r, &mut run, asked, head)
            }
            Err(failed) => given_up(failed),
        };
        match end {
            End::Again => {}
            End::Done(flow) => return flow,
            End::Rest(rest) => return rest_of(r, &mut run, *rest).await,
        }
    }
}

/// Settles what goes to every server, and writes the request.
fn begin(r: &mut Request, run: &mut Run, target: &Target) -> Result<(), u16> {
    let conf = run.conf;
    let parts = target.parts();
    if conf.bind.is_some() {
        run.bind = conf.bind(r);
    }
    if parts.tls {
        run.tls = Some(Box::new(conf.tls.wanted(r, &parts.host).ok_or(500u16)?));
    }
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        run.client = sticky.client(r);
    }
    if run.group.has_key() {
        run.key = run.group.key(r);
    }
    run.chunked = matches!(run.body, Body::Stream) && r.body.is_chunked();
    run.keeps = kept::keeps(r, conf);
    run.start_ms = clock::mono_ms();
    r.exchange.clear();
    r.exchange.scheme = conf.family.schemes.shown(parts.tls);
    let length = upload::length(r, conf, run.chunked);
    let (cached, as_get) = kept::how_asked(r);
    run.bodiless = (conf.family.write)(r, &Ask { target, length, cached, as_get })?;
    let most = *conf.next_upstream_tries;
    if most > 0 {
        run.choice.tries = run.choice.tries.min(u32::try_from(most).unwrap_or(u32::MAX));
    }
    match r.match_failed() {
        true => Err(500),
        false => Ok(()),
    }
}

/// Chooses a server, and takes a connection to it that waits.
fn choose(r: &mut Request, run: &mut Run<'_>) -> Chosen {
    run.asked_ms = match run.first {
        true => run.start_ms,
        false => clock::mono_ms(),
    };
    let lease = pick(run);
    match lease.is_none() && run.group.lets_wait() {
        true => Chosen::Full,
        false => chosen(r, run, lease),
    }
}

fn chosen(r: &mut Request, run: &mut Run<'_>, lease: Option<Lease>) -> Chosen {
    let new_group = std::mem::take(&mut run.first) && !r.upstream.is_empty();
    let peer = match &lease {
        Some(lease) => run.group.name_of(lease.peer),
        None => Rc::clone(&run.group.shown_name),
    };
    r.upstream.push(UpstreamState::new(peer, new_group));
    let Some(lease) = lease else {
        r.log(LogLevel::Error, "no live upstreams while connecting to upstream");
        return Chosen::Failed(failed(r, run, None, None, next::NO_LIVE));
    };
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        sticky.chosen(r, &mut run.client, &lease);
    }
    let version = if run.conf.h2 { H2_MARK } else { 0 };
    let mark = run.tls.as_ref().map_or(0, |t| t.mark) ^ version;
    let risky = matches!(r.method, Method::Post | Method::Lock | Method::Patch);
    let idle = run.group.take_idle(lease.peer, run.tag(), mark);
    match idle.filter(|link| !risky || link.is_surely_quiet()) {
        None => Chosen::Unconnected(lease),
        Some(base) => {
            let mut link = Link::from(base);
            link.reused = true;
            link.requests += 1;
            if let Some(state) = r.upstream.last_mut() {
                state.connect_ms = Some(0);
            }
            Chosen::Idle(Asked { link, lease })
        }
    }
}

/// Waits for what there is not yet: a server that has room, a connection. An error is a status to answer
/// with, or `None` for the next server.
#[inline(never)]
fn connected<'a>(
    r: &'a mut Request,
    run: &'a mut Run<'_>,
    mut found: Chosen,
) -> LocalFuture<'a, Result<Asked, Option<u16>>> {
    Box::pin(async move {
        if matches!(found, Chosen::Full) {
            let lease = wait_for_server(r, run).await?;
            found = chosen(r, run, lease);
        }
        let lease = match found {
            Chosen::Idle(asked) => return Ok(asked),
            Chosen::Unconnected(lease) => lease,
            Chosen::Failed(failed) => return Err(failed),
            // Who has waited is told of a server, or that there is none.
            Chosen::Full => return Err(Some(502)),
        };
        let mut link = match connect(r, run, &lease).await {
            Ok(link) => link,
            Err(fault) => return Err(give_up(r, run, lease, None, fault)),
        };
        if run.conf.h2 {
            link.start_h2();
        }
        link.requests += 1;
        if let Some(state) = r.upstream.last_mut() {
            state.connect_ms = Some(clock::mono_ms().saturating_sub(run.asked_ms));
        }
        Ok(Asked { link, lease })
    })
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

/// What follows when a server has failed: a status to answer with, or else the next server.
fn given_up(failed: Option<u16>) -> End {
    match failed {
        None => End::Again,
        Some(status) => Rest::Failed(status).end(),
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

/// An exchange is over: with a complete head, or with a fault.
fn answered(r: &mut Request, run: &mut Run<'_>, asked: Asked, head: Result<(), Fault>) -> End {
    if let Err(fault) = head {
        let Asked { link, lease } = asked;
        return given_up(give_up(r, run, lease, Some(link), fault));
    }
    let status = r.exchange.head.status;
    if let Some(state) = r.upstream.last_mut() {
        state.header_ms = Some(clock::mono_ms().saturating_sub(run.asked_ms));
        state.status = status;
    }
    if status >= 300 {
        if let Some(bit) = bit_of(status) {
            if run.choice.tries > 1 && may_repeat(r, run, bit, true) {
                let Asked { link, lease } = asked;
                return match failed(r, run, Some(lease), Some(link), bit) {
                    None => End::Again,
                    Some(status) => End::Done(Flow::Status(status)),
                };
            }
        }
        let kept = kept::kept_instead(r, run.conf(), bit_of(status));
        if kept.is_some() || respond::intercepts(r, run.conf()) {
            let reader = run.reader(r, &asked.link);
            done(r, run, asked, &reader);
            return match kept {
                Some(kept) => Rest::Kept(kept).end(),
                None => End::Done(kept::intercepted(r, run.conf(), status)),
            };
        }
    }
    pass_on(r, run, asked)
}

fn pass_on(r: &mut Request, run: &mut Run<'_>, mut asked: Asked) -> End {
    asked.lease.header_came(r.upstream.last().and_then(|s| s.header_ms));
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        sticky.answered(r, &run.client, &asked.lease);
    }
    let conf = run.conf;
    let fresh = kept::judge(r, conf);
    let redirected = if kept::is_silent(r) { None } else { respond::accel_redirect(r, conf) };
    if let Some(flow) = redirected {
        kept::give_up(r);
        let reader = run.reader(r, &asked.link);
        done(r, run, asked, &reader);
        return End::Done(flow);
    }
    let buffering = respond::head(r, conf);
    let mut keep = kept::begin(r, conf, fresh.as_ref(), buffering);
    keep.ignore_abort = run.ignores_abort();
    // Asked for now: behind the header what cannot be told would be no limit.
    let rate = conf.limit_rate.as_ref().map_or(0, |t| r.eval_size(t));
    // Also what only goes into the cache, where no header is sent.
    if r.match_failed() {
        return End::Done(Flow::Status(500));
    }
    if r.out.status == 101 {
        if r.header(HeaderId::Upgrade).is_none() || r.is_part() || !asked.link.is_bare() {
            r.log(LogLevel::Error, "upstream switched protocols unasked");
            r.out.clear();
            return End::Done(Flow::Status(502));
        }
        return Rest::Switch(asked).end();
    }
    let reader = run.reader(r, &asked.link);
    let sent = if keep.silent { Ok(()) } else { r.send_header() };
    match sent {
        Ok(()) => {}
        Err(weir_http::module::FilterError::Status(s)) if !r.flags.header_sent => {
            return End::Done(Flow::Status(s));
        }
        Err(_) => return End::Done(Flow::Close),
    }
    if r.flags.header_only && keep.fill.is_none() {
        done(r, run, asked, &reader);
        return End::Done(Flow::Ok);
    }
    let mut body = relay::Body::new(reader, keep);
    let came = body.first(r, &mut asked.link, conf);
    if came.is_err() || !body.is_over() {
        return Rest::Body(asked, body, came, rate).end();
    }
    run.at_once = true;
    done(r, run, asked, &body.reader);
    body.finish(r);
    End::Done(Flow::Ok)
}

/// What may have to wait behind an exchange.
#[inline(never)]
fn rest_of<'a>(r: &'a mut Request, run: &'a mut Run<'_>, rest: Rest) -> LocalFuture<'a, Flow> {
    Box::pin(async move {
        match rest {
            Rest::Failed(status) => kept::failed(r, run.conf, run.gave_up, status).await,
            Rest::Kept(kept) => kept::answer_kept(r, run.conf, kept).await,
            Rest::Switch(asked) => switch(r, run, asked).await,
            Rest::Body(asked, body, came, rate) => {
                relay_rest(r, run, asked, body, came, rate).await
            }
        }
    })
}

/// Passes on what is still to come of a body, of which the beginning has been passed on if all was well.
async fn relay_rest(
    r: &mut Request,
    run: &mut Run<'_>,
    mut asked: Asked,
    mut body: relay::Body,
    came: Result<(), Fault>,
    rate: u64,
) -> Flow {
    let reads = r.upstream.last().map_or(0, |s| s.bytes_received);
    let mut ahead = Ahead::new(run.conf);
    ahead.rate = if body.keep.buffering { rate } else { 0 };
    let relayed = match came {
        Ok(()) => body.rest(r, &mut asked.link, &mut ahead, run.conf).await,
        Err(fault) => Err(fault),
    };
    let came_at_once = r.upstream.last().is_some_and(|s| s.bytes_received == reads);
    run.at_once = relayed.is_ok() && came_at_once;
    done(r, run, asked, &body.reader);
    if relayed.is_ok() {
        body.finish(r);
    }
    let client_gone = body.keep.client_gone;
    finish(r, relayed, &mut ahead, client_gone).await
}

/// The server speaks another protocol from now on.
async fn switch(r: &mut Request, run: &mut Run<'_>, asked: Asked) -> Flow {
    let Asked { link, lease } = asked;
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
fn done(r: &mut Request, run: &mut Run, asked: Asked, reader: &BodyReader) {
    finish_state(r, run, Some(&asked.link));
    let keep = asked.link.may_go_on()
        && reader.done
        && !reader.excess
        && !r.exchange.head.connection_close;
    let Asked { link, mut lease } = asked;
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
