//! A server is chosen for a request, and a connection to it found or made.

use crate::attempt::{failed, give_up, Asked, Run};
use crate::balanced::{self, Answer};
use crate::bits::next;
use crate::conf::PROXY;
use crate::fault::Fault;
use crate::link::{Link, H2_MARK};
use crate::sticky::Sticky;
use crate::toward;
use std::future::{poll_fn, Future};
use std::io::ErrorKind;
use std::pin::pin;
use std::rc::Rc;
use std::task::Poll;
use weir_core::logger::LogLevel;
use weir_core::timing::UpstreamState;
use weir_core::{LocalFuture, Session};
use weir_http::client_watch::{unless_client_goes, ClientWatch};
use weir_http::Request;
use weir_runtime::clock;
use weir_tls::TlsError;
use weir_upstream::{Lease, Link as Base, LinkError, NotWaited, SecureError};
use weir_wire::http1::request::Method;

/// What becomes of a request for which a server was chosen.
pub(crate) enum Chosen {
    /// A connection to it has waited.
    Idle(Asked),
    /// There is none yet.
    Unconnected(Lease),
    /// None has room, and the upstream lets requests wait.
    Full,
    /// No server is left. What follows is a status to answer with, or `None` for the next server.
    Failed(Option<u16>),
}

/// Chooses a server, and takes a connection to it that waits.
pub(crate) fn choose(r: &mut Request, run: &mut Run<'_>) -> Chosen {
    run.asked_us = match run.first {
        true => run.start_us,
        false => clock::mono_us(),
    };
    if let Some(balancer) = balanced::balancer(run) {
        return match balanced::choose(r, run, &balancer) {
            Answer::Server(lease) => chosen(r, run, lease.ok_or(NO_LIVE)),
            Answer::Status(status) => {
                tried_none(r, run);
                Chosen::Failed(Some(status))
            }
            Answer::Next => {
                tried_none(r, run);
                // No server is given back, so that nothing else would count it.
                run.choice.tries = run.choice.tries.saturating_sub(1);
                Chosen::Failed(failed(r, run, None, None, next::ERROR))
            }
        };
    }
    let lease = pick(r, run);
    match lease.is_none() && run.group.lets_wait() {
        true => Chosen::Full,
        false => chosen(r, run, lease.ok_or(NO_LIVE)),
    }
}

/// What the error log says of requests for which there is no server.
const NO_LIVE: &str = "no live upstreams while connecting to upstream";
const QUEUE_FULL: &str = "queue of upstream is full while connecting to upstream";
const QUEUE_LATE: &str = "timed out in queue of upstream while connecting to upstream";

#[inline(always)]
fn chosen(r: &mut Request, run: &mut Run<'_>, lease: Result<Lease, &'static str>) -> Chosen {
    let new_group = std::mem::take(&mut run.first) && !r.upstream.is_empty();
    let lease = match lease {
        Ok(lease) => lease,
        Err(why) => return nobody(r, run, new_group, why),
    };
    lease.chosen(run.asked_us);
    let state = UpstreamState::new(lease.group().name_of(lease.peer), new_group);
    r.upstream.push(UpstreamState { begun_us: run.asked_us, ..state });
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        sticky.chosen(r, &mut run.client, &lease);
    }
    let mark = mark(run);
    let risky = matches!(r.method, Method::Post | Method::Lock | Method::Patch);
    let idle = lease.group().take_idle(lease.peer, run.tag(), mark);
    match idle.filter(|link| !risky || link.is_surely_quiet()) {
        None => Chosen::Unconnected(lease),
        Some(base) => {
            let mut link = Link::from(base);
            link.reused = true;
            link.requests += 1;
            balanced::on_link(run, &mut link);
            if let Some(state) = r.upstream.last_mut() {
                state.connect_us = Some(0);
            }
            Chosen::Idle(Asked { link, lease })
        }
    }
}

/// Which connections a request may have.
#[inline]
fn mark(run: &Run<'_>) -> u64 {
    let version = if run.conf.h2 { H2_MARK } else { 0 };
    run.tls.as_ref().map_or(0, |t| t.mark) ^ version ^ run.bound
}

/// A try that has come to no server: as in nginx `$upstream_addr` is empty for it.
#[cold]
fn tried_none(r: &mut Request, run: &mut Run<'_>) {
    let new_group = std::mem::take(&mut run.first) && !r.upstream.is_empty();
    let state = UpstreamState::new(Rc::default(), new_group);
    let response_us = Some(clock::mono_us().saturating_sub(run.asked_us));
    r.upstream.push(UpstreamState { begun_us: run.asked_us, response_us, ..state });
}

#[cold]
fn nobody(r: &mut Request, run: &mut Run<'_>, new_group: bool, why: &str) -> Chosen {
    // Code that chooses has named nobody, and nothing of the name is shown.
    let name = match balanced::balancer(run) {
        Some(_) => Rc::default(),
        None => Rc::clone(&run.group.shown_name),
    };
    let state = UpstreamState::new(name, new_group);
    r.upstream.push(UpstreamState { begun_us: clock::now_us(), ..state });
    r.log(LogLevel::Error, why);
    Chosen::Failed(failed(r, run, None, None, next::NO_LIVE))
}

/// Waits for what there is not yet: a server that has room, a connection. An error is a status to answer
/// with, or `None` for the next server.
#[inline(never)]
pub(crate) fn connected<'a>(
    r: &'a mut Request,
    run: &'a mut Run<'_>,
    mut found: Chosen,
) -> LocalFuture<'a, Result<Asked, Option<u16>>> {
    Box::pin(async move {
        if matches!(found, Chosen::Full) {
            let begun_us = clock::mono_us();
            let (lease, has_waited) = wait_for_server(r, run).await?;
            let waited_ms = clock::mono_us().saturating_sub(begun_us).div_ceil(1000);
            let lease = lease.map_err(|why| match why {
                NotWaited::Full => QUEUE_FULL,
                NotWaited::Late => QUEUE_LATE,
            });
            found = chosen(r, run, lease);
            if let Some(state) = r.upstream.last_mut().filter(|_| has_waited) {
                state.queue_ms = u32::try_from(waited_ms).unwrap_or(u32::MAX).max(1);
            }
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
        link.mark ^= run.bound;
        link.requests += 1;
        balanced::on_link(run, &mut link);
        let took_us = clock::mono_us().saturating_sub(run.asked_us);
        lease.made(took_us);
        if let Some(state) = r.upstream.last_mut() {
            state.connect_us = Some(took_us);
        }
        Ok(Asked { link, lease })
    })
}

#[inline]
fn pick(r: &Request, run: &mut Run<'_>) -> Option<Lease> {
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        sticky.ask(&run.client, &mut run.choice);
    }
    if run.bound != 0 {
        let mark = mark(run);
        run.group.bind(r.conn(), mark);
        if let Some(lease) = run.group.pick_bound(&mut run.choice, mark) {
            return Some(lease);
        }
    }
    let lease = run.group.pick(&mut run.choice, &mut run.key)?;
    match run.group.sticky::<Sticky>() {
        Some(sticky) if !sticky.accepts(&run.client, &lease) => {
            lease.end(false);
            None
        }
        _ => Some(lease),
    }
}

/// Waits for a server that has room, as long as the upstream lets requests wait; an error as of [`ask`].
/// And whether it has waited at all: a queue that is full says so at once.
async fn wait_for_server(
    r: &Request,
    run: &mut Run<'_>,
) -> Result<(Result<Lease, NotWaited>, bool), Option<u16>> {
    let ignores_abort = run.ignores_abort();
    let mut waiting = pin!(run.group.wait(&mut run.choice, &mut run.key));
    let mut watch = ClientWatch::new(r, ignores_abort);
    // The client comes first: of many that went together, each would have its turn and connect for nobody.
    let mut has_waited = false;
    let waited = poll_fn(|cx| match watch.is_gone(cx) {
        true => Poll::Ready(None),
        false => {
            let found = waiting.as_mut().poll(cx);
            has_waited |= found.is_pending();
            found.map(Some)
        }
    })
    .await;
    if waited.is_none() {
        r.log(LogLevel::Info, "client closed connection while waiting for an upstream server");
    }
    waited.map(|lease| (lease, has_waited)).ok_or(Some(499))
}

async fn connect(r: &mut Request, run: &Run<'_>, lease: &Lease) -> Result<Link, Fault> {
    let conf = run.conf();
    let addr = &lease.config().addr;
    let timeout = match (&run.balancing, run.waits) {
        (Some(balancing), _) => balancing.waits_ms[0].unwrap_or(*conf.connect_timeout),
        (None, Some((connect_ms, _))) => connect_ms,
        (None, None) => *conf.connect_timeout,
    };
    let worker = Rc::clone(&r.conn().worker);
    let local = run.balancing.as_ref().and_then(|b| b.local);
    let bind = local.or(run.bind);
    let options = conf.socket_options(bind);
    let connecting = Base::connect(addr, &options, timeout, &worker);
    match unless_client_goes(r, run.ignores_abort(), connecting).await {
        None => Err(Fault::ClientGone),
        Some(Ok(link)) => secure(r, run, lease, link.into()).await,
        Some(Err(LinkError::Timeout)) => Err(Fault::Timeout("connecting to upstream")),
        Some(Err(LinkError::Io(e))) => match bind {
            Some(bind) if e.kind() == ErrorKind::AddrNotAvailable => Err(Fault::Bind(bind.ip(), e)),
            _ => Err(Fault::Connect(e)),
        },
        Some(Err(LinkError::Protocol(text))) => Err(Fault::Protocol(text)),
    }
}

/// Puts TLS on a fresh connection, where it is wanted.
async fn secure(
    r: &mut Request,
    run: &Run<'_>,
    lease: &Lease,
    mut link: Link,
) -> Result<Link, Fault> {
    let Some(wanted) = &run.tls else { return Ok(link) };
    const DOING: &str = "SSL handshaking to upstream";
    let conf = run.conf();
    let begun_us = clock::mono_us();
    let by_code = toward::of(r).filter(|_| conf.family.name == PROXY);
    let done = match by_code {
        Some(code) => toward::secure(r, run, &mut link, wanted, code).await?,
        None => {
            let handshake = link.secure(wanted, *conf.connect_timeout);
            unless_client_goes(r, *conf.ignore_client_abort, handshake).await
        }
    };
    lease.secured(&link, done.as_ref(), begun_us);
    match done {
        None => Err(Fault::ClientGone),
        Some(Ok(())) => Ok(link),
        Some(Err(SecureError::Timeout)) => Err(Fault::Timeout(DOING)),
        Some(Err(SecureError::Certificate(text))) => Err(Fault::Certificate(text)),
        Some(Err(SecureError::Refused(text) | SecureError::Unverified(_, text))) => {
            Err(Fault::Tls(format!("{text} while {DOING}")))
        }
        Some(Err(SecureError::Tls(TlsError::Closed))) => {
            Err(Fault::Tls(format!("peer closed connection in SSL handshake while {DOING}")))
        }
        Some(Err(SecureError::Tls(e))) => {
            Err(Fault::Tls(format!("SSL_do_handshake() failed (SSL: {e}) while {DOING}")))
        }
    }
}
