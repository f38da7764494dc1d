//! Servers that code of a module chooses (`balancer_by_lua`): it is asked before each try.

use crate::attempt::Run;
use crate::link::Link;
use crate::target::Pass;
use std::sync::atomic::Ordering;
use weir_core::logger::LogLevel;
use weir_core::Session;
use weir_http::Request;
use weir_upstream::balancer::{Balancer, Balancing, Verdict};
use weir_upstream::{Choice, Key, Lease, Peer};

/// The code of an upstream.
#[derive(Clone, Copy)]
pub(crate) struct Code {
    choose: fn(&mut Request, u32, &mut Balancing) -> Verdict,
    number: u32,
    idle_max: usize,
}

/// The code that chooses, if it is one that does.
#[inline]
pub(crate) fn balancer(run: &Run<'_>) -> Option<Code> {
    let balancer = run.group.sticky::<Balancer<Request>>()?;
    let idle_max = balancer.idle_max.load(Ordering::Relaxed);
    Some(Code { choose: balancer.choose, number: balancer.code, idle_max })
}

const NO_PEER: &str = "lua balancer: no peer set while connecting to upstream";

/// What has come of asking the code.
pub(crate) enum Answer {
    /// Nothing, if no server is left.
    Server(Option<Lease>),
    /// The request is answered with that status.
    Status(u16),
    /// The next server is to be asked.
    Next,
}

/// Asks the code for a server.
#[cold]
pub(crate) fn choose(r: &mut Request, run: &mut Run<'_>, code: &Code) -> Answer {
    let mut balancing = run.balancing.take().unwrap_or_default();
    if balancing.begun == 0 {
        // Where the configuration has no server the code names one.
        run.choice.tries = run.choice.tries.max(1);
        balancing.tries_max = *run.conf.next_upstream_tries;
    }
    if let (Some(last), Some(state)) = (&mut balancing.last, r.upstream.last()) {
        last.1 = state.status;
    }
    balancing.begin(run.choice.tries);
    let verdict = (code.choose)(r, code.number, &mut balancing);
    let server = balancing.server.take();
    let (more, tls) = (balancing.more_tries, balancing.tls);
    let kept = balancing.kept;
    run.balancing = Some(balancing);
    match verdict {
        Verdict::Status(status) => return Answer::Status(status),
        Verdict::NoServer => return Answer::Server(None),
        Verdict::Next => return Answer::Next,
        Verdict::Choose => {}
    }
    if let Some(on) = tls {
        if let Err(status) = speak(r, run, on) {
            return Answer::Status(status);
        }
    }
    Answer::Server(match server {
        Some((addr, host)) => {
            run.choice.tries = run.choice.tries.saturating_add(more);
            let (server, host) = (Peer::new(addr, b""), host.unwrap_or_default());
            let worker = &r.conn().worker;
            let group = run.group.named(server, &host, kept, code.idle_max, worker);
            group.pick(&mut Choice::default(), &mut Key::default())
        }
        None if !run.group.has_servers() => {
            r.log(LogLevel::Error, NO_PEER);
            return Answer::Status(500);
        }
        None => run.group.pick(&mut run.choice, &mut run.key),
    })
}

/// The server is spoken to with TLS or without, whatever the configuration says.
fn speak(r: &mut Request, run: &mut Run<'_>, on: bool) -> Result<(), u16> {
    r.exchange.scheme = Some(run.conf.family.schemes.shown(on));
    if !on {
        run.tls = None;
    } else if run.tls.is_none() {
        let host = host_of(run);
        let Some(wanted) = run.conf.tls.wanted(r, &host) else {
            let text = "there is no TLS for a server that is passed to without: pass to https://";
            r.log(LogLevel::Error, text);
            return Err(500);
        };
        run.tls = Some(Box::new(wanted));
    }
    Ok(())
}

/// What the servers are called by the configuration.
fn host_of(run: &Run<'_>) -> Vec<u8> {
    match &run.conf.pass {
        Some(Pass::Fixed(fixed)) => fixed.parts.host.clone(),
        _ => run.group.shown_name.to_vec(),
    }
}

/// A connection is used by the times that the code has said.
#[inline]
pub(crate) fn on_link(run: &Run<'_>, link: &mut Link) {
    if let Some(balancing) = &run.balancing {
        link.waits_ms = (balancing.waits_ms[1], balancing.waits_ms[2]);
    }
}
