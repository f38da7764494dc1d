//! One request that is passed on: servers are tried until one answers, and its answer goes to the
//! client.

use crate::ahead::Ahead;
use crate::ask::Ask;
use crate::attempt::{bit_of, done, failed, give_up, may_repeat, Asked, Run};
use crate::cache::lookup::State;
use crate::conf::{conf_of, BackendConf, BackendLoc, ConfOf};
use crate::fault::Fault;
use crate::kept::{self, Keep};
use crate::reach::{choose, connected, Chosen};
use crate::sticky::Sticky;
use crate::target::{self, Pass, Target};
use crate::upload::{self, Body};
use crate::{relay, respond, tunnel};
use std::future::poll_fn;
use std::rc::Rc;
use weir_core::logger::LogLevel;
use weir_core::relay::Waits;
use weir_core::{LocalFuture, Session};
use weir_http::body::BodyError;
use weir_http::detached::Ticket;
use weir_http::{Flow, Request};
use weir_runtime::clock;
use weir_wire::http1::names::HeaderId;

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
        let mut asked = match choose(r, &mut run) {
            Chosen::Idle(asked) => asked,
            found => match connected(r, &mut run, found).await {
                Ok(asked) => asked,
                Err(None) => continue,
                Err(Some(status)) => return rest_of(r, &mut run, Rest::Failed(status)).await,
            },
        };
        if run.balancing.as_ref().is_some_and(|b| b.rewrite) {
            if let Err(status) = rewrite(r, &mut run, &target) {
                return Flow::Status(status);
            }
        }
        let mut talk = run.talk(r);
        talk.begin(r, &mut asked.link);
        let end = loop {
            if talk.must_wait() {
                if let Err(fault) = talk.go_on(r, &asked.link).await {
                    break broken(r, &mut run, asked, fault);
                }
            }
            match poll_fn(|cx| talk.poll(cx, r, &mut asked.link)).await {
                Ok(true) => break answered(r, &mut run, asked),
                Ok(false) => {}
                Err(fault) => break broken(r, &mut run, asked, fault),
            }
        };
        match end {
            End::Again => {}
            End::Done(flow) => return flow,
            End::Rest(rest) => return rest_of(r, &mut run, *rest).await,
        }
    }
}

/// Settles what goes to every server, and writes the request.
pub(crate) fn begin(r: &mut Request, run: &mut Run, target: &Target) -> Result<(), u16> {
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
    if run.group.binds() {
        run.bound = bound(r);
    }
    if run.group.has_key() {
        run.key = run.group.key(r);
    }
    run.chunked = matches!(run.body, Body::Stream) && r.body.is_chunked();
    run.keeps = kept::keeps(r, conf);
    run.start_us = clock::mono_us();
    r.exchange.clear();
    r.exchange.scheme = Some(conf.family.schemes.shown(parts.tls));
    write(r, run, target)?;
    let most = *conf.next_upstream_tries;
    if most > 0 {
        run.choice.tries = run.choice.tries.min(u32::try_from(most).unwrap_or(u32::MAX));
    }
    match r.match_failed() {
        true => Err(500),
        false => Ok(()),
    }
}

/// Writes the request anew, as code asks for it.
#[cold]
fn rewrite(r: &mut Request, run: &mut Run, target: &Target) -> Result<(), u16> {
    if let Some(balancing) = &mut run.balancing {
        balancing.rewrite = false;
    }
    r.exchange.request.clear();
    write(r, run, target)
}

/// Writes the request.
#[inline(always)]
fn write(r: &mut Request, run: &mut Run, target: &Target) -> Result<(), u16> {
    let conf = run.conf;
    let length = upload::length(r, conf, run.chunked);
    let (cached, as_get) = match conf.cache.is_on() {
        true => kept::how_asked(r),
        false => (false, false),
    };
    run.bodiless = (conf.family.write)(r, &Ask { target, length, cached, as_get })?;
    Ok(())
}

/// What tells the connections of this client's from others': never 0, and unlike for each.
#[cold]
fn bound(r: &Request) -> u64 {
    // The lowest bits are the marks' own.
    r.conn().serial.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15) & !7 | 4
}

/// An exchange has ended with a fault.
#[cold]
fn broken(r: &mut Request, run: &mut Run<'_>, asked: Asked, fault: Fault) -> End {
    let Asked { link, lease } = asked;
    match give_up(r, run, lease, Some(link), fault) {
        None => End::Again,
        Some(status) => Rest::Failed(status).end(),
    }
}

/// A complete head has come.
fn answered(r: &mut Request, run: &mut Run<'_>, mut asked: Asked) -> End {
    let status = r.exchange.head.status;
    if let Some(state) = r.upstream.last_mut() {
        state.header_us = Some(clock::mono_us().saturating_sub(run.asked_us));
        state.status = status;
    }
    if status >= 300 {
        asked = match instead(r, run, asked, status) {
            Ok(asked) => asked,
            Err(end) => return end,
        };
    }
    pass_on(r, run, asked)
}

/// What takes the place of an answer that is no success, as an error: another server, what is in the cache,
/// a page of ours.
#[inline(never)]
fn instead(r: &mut Request, run: &mut Run<'_>, asked: Asked, status: u16) -> Result<Asked, End> {
    if let Some(bit) = bit_of(status) {
        if run.choice.tries > 1 && may_repeat(r, run, bit, true) {
            let Asked { link, lease } = asked;
            return Err(match failed(r, run, Some(lease), Some(link), bit) {
                None => End::Again,
                Some(status) => End::Done(Flow::Status(status)),
            });
        }
    }
    let kept = kept::kept_instead(r, run.conf(), bit_of(status));
    if kept.is_none() && !respond::intercepts(r, run.conf()) {
        return Ok(asked);
    }
    let reader = run.reader(r, &asked.link);
    done(r, run, asked, &reader);
    Err(match kept {
        Some(kept) => Rest::Kept(kept).end(),
        None => End::Done(kept::intercepted(r, run.conf(), status)),
    })
}

fn pass_on(r: &mut Request, run: &mut Run<'_>, mut asked: Asked) -> End {
    asked.lease.header_came(r.upstream.last().and_then(|s| s.header_us));
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        sticky.answered(r, &run.client, &asked.lease);
    }
    let conf = run.conf;
    let fresh = kept::judge(r, conf);
    let silent = kept::is_silent(r);
    let redirected = if silent { None } else { respond::accel_redirect(r, conf) };
    if let Some(flow) = redirected {
        kept::give_up(r);
        let reader = run.reader(r, &asked.link);
        done(r, run, asked, &reader);
        return End::Done(flow);
    }
    let buffering = respond::head(r, conf);
    if let Some(sticky) = run.group.sticky::<Sticky>() {
        sticky.head_is_made(r, &run.client, &asked.lease);
    }
    let ignore_abort = run.ignores_abort();
    let mut keep = Keep { silent, ignore_abort, ..Keep::new(buffering) };
    kept::before_header(r, conf, fresh.as_deref(), &mut keep);
    // Asked for now: behind the header what cannot be told would be no limit.
    let rate = conf.limit_rate.as_ref().map_or(0, |t| r.eval_size(t));
    // Also what only goes into the cache, where no header is sent.
    if r.match_failed() {
        return End::Done(Flow::Status(500));
    }
    if r.out.status == 101 {
        return switched(r, asked);
    }
    let mut body = relay::Body::new(run.reader(r, &asked.link), keep);
    let sent = if body.keep.silent { Ok(()) } else { r.send_header() };
    match sent {
        Ok(()) => {}
        Err(weir_http::module::FilterError::Status(s)) if !r.flags.header_sent => {
            return End::Done(Flow::Status(s));
        }
        Err(_) => return End::Done(Flow::Close),
    }
    kept::begin(r, conf, fresh.as_deref(), &mut body.keep);
    if body.keep.silent && r.match_failed() {
        return End::Done(Flow::Status(500));
    }
    if r.flags.header_only && body.keep.fill.is_none() {
        done(r, run, asked, &body.reader);
        return End::Done(Flow::Ok);
    }
    let came = body.first(r, &mut asked.link, conf);
    if came.is_err() || !body.is_over() {
        return Rest::Body(asked, body, came, rate).end();
    }
    run.at_once = true;
    done(r, run, asked, &body.reader);
    body.finish(r);
    End::Done(Flow::Ok)
}

#[cold]
fn switched(r: &mut Request, asked: Asked) -> End {
    if r.header(HeaderId::Upgrade).is_none() || r.is_part() || !asked.link.is_bare() {
        r.log(LogLevel::Error, "upstream switched protocols unasked");
        r.out.clear();
        return End::Done(Flow::Status(502));
    }
    Rest::Switch(asked).end()
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
    match &relayed {
        Ok(()) => body.finish(r),
        // What it says is wrong is not believed as far as it goes.
        Err(Fault::Eof(_) | Fault::Timeout(_) | Fault::Read(..) | Fault::ClientGone) => {
            body.keep.cut(r);
        }
        Err(_) => {}
    }
    let client_gone = body.keep.client_gone;
    finish(r, relayed, &mut ahead, client_gone).await
}

/// The server speaks another protocol from now on.
pub(crate) async fn switch(r: &mut Request, run: &mut Run<'_>, asked: Asked) -> Flow {
    let Asked { link, lease } = asked;
    let (group, client) = (Rc::clone(&run.group), std::mem::take(&mut run.client));
    let waits = match run.waits {
        // One time for all that goes through, as in Tengine.
        Some((_, quiet_ms)) => Waits::all(quiet_ms),
        None => Waits {
            quiet_ms: link.read_ms(*run.conf.read_timeout),
            client_ms: *r.loc().core.send_timeout,
            server_ms: link.send_ms(*run.conf.send_timeout),
        },
    };
    let from = tunnel::From { link, lease, group, client, asked_us: run.asked_us, waits };
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
    if matches!(relayed, Err(Fault::Filter)) && !r.holds() {
        r.flags.keepalive = false;
        return Flow::Close;
    }
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
    let is_out = r.drain(0).await.is_ok();
    r.flags.complete = is_out && !own_fault && !r.is_part();
    Flow::Close
}
