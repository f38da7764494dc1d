//! What `ngx.balancer` asks for.

use crate::crossing::{Answer, Args};
use crate::machine::{code, OpRow, State};
use crate::run::context::ANY;
use std::net::SocketAddr;
use weir_base::addr::{Endpoint, EndpointOptions, Host};
use weir_runtime::listen::parse_endpoint;
use weir_runtime::paths;
use weir_upstream::balancer::{Balancing, Kept, Last};
use weir_upstream::PeerAddr;

pub(super) const OPS: &[OpRow] = &[
    OpRow::any("balancer_peer", ANY, |state, args, answer| {
        with(state, answer, |b, answer| peer(b, args, answer))
    }),
    OpRow::any("balancer_tries", ANY, |state, args, answer| {
        with(state, answer, |b, answer| tries(b, args, answer))
    }),
    OpRow::any("balancer_last", ANY, |state, _, answer| with(state, answer, last)),
    OpRow::any("balancer_waits", ANY, |state, args, answer| {
        with(state, answer, |b, _| waits(b, args))
    }),
    OpRow::any("balancer_keep", ANY, |state, args, answer| {
        with(state, answer, |b, answer| keep(b, args, answer))
    }),
    OpRow::any("balancer_bind", ANY, |state, args, answer| {
        with(state, answer, |b, answer| bind(b, args, answer))
    }),
    OpRow::any("balancer_rewrite", ANY, |state, _, answer| {
        with(state, answer, |b, _| {
            b.rewrite = true;
            code::TRUE
        })
    }),
    OpRow::any("balancer_tls", ANY, |state, args, answer| {
        with(state, answer, |b, _| {
            b.tls = Some(args.i != 0);
            code::TRUE
        })
    }),
];

/// Where there is something to choose.
fn with(
    state: &mut State<'_>,
    answer: &mut Answer,
    f: impl FnOnce(&mut Balancing, &mut Answer) -> i32,
) -> i32 {
    let asked = match (&state.r, &state.s) {
        (Some(r), _) => &r.upstream,
        (None, Some(s)) => &s.upstream,
        (None, None) => return code::NO_REQUEST,
    };
    match &mut state.run.balancing {
        Some(balancing) => f(balancing, answer),
        None if asked.is_empty() => answer.fail("no upstream found"),
        None => answer.fail("API disabled in the current context"),
    }
}

const ADDRESS: EndpointOptions = EndpointOptions { listen: false, uri_part: false };

fn address(endpoint: &Endpoint<'_>, port: u16) -> Option<PeerAddr> {
    let port = endpoint.port.unwrap_or(port);
    Some(match endpoint.host {
        Host::V4(a) => PeerAddr::Ip(SocketAddr::new(a.into(), port)),
        Host::V6(a) => PeerAddr::Ip(SocketAddr::new(a.into(), port)),
        Host::Unix(path) => PeerAddr::Unix(paths::path(path).into_owned()),
        Host::Name(_) | Host::Any => return None,
    })
}

/// Names the server: its address and port, and the name that its connections are for.
fn peer(b: &mut Balancing, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let endpoint = match parse_endpoint(args.a, ADDRESS) {
        Ok(endpoint) => endpoint,
        Err(e) => return answer.fail(e),
    };
    if !(0.0..=65535.0).contains(&args.x) {
        return answer.fail("invalid port");
    }
    let Some(addr) = address(&endpoint, args.x as u16) else {
        return answer.fail("no host allowed");
    };
    b.server = Some((addr, (args.i == 1).then(|| args.b.to_vec())));
    code::TRUE
}

/// So many more tries; answers whether there are to be fewer.
fn tries(b: &mut Balancing, args: &Args<'_>, _: &mut Answer) -> i32 {
    let mut count = args.x.clamp(0.0, f64::from(u32::MAX)) as u64;
    let total = u64::from(b.begun) + u64::from(b.tries) - 1;
    let reduced = b.tries_max > 0 && total + count > b.tries_max;
    if reduced {
        count = b.tries_max.saturating_sub(total);
    }
    b.more_tries = u32::try_from(count).unwrap_or(u32::MAX);
    match reduced {
        true => code::FALSE,
        false => code::TRUE,
    }
}

fn last(b: &mut Balancing, answer: &mut Answer) -> i32 {
    let Some((last, status)) = b.last else { return code::NIL };
    let name: &[u8] = match last {
        Last::Failed => b"failed",
        Last::Next => b"next",
    };
    answer.list().text(name).number(f64::from(status));
    code::LIST
}

/// The wait of that number (to connect, to send, to read), in milliseconds.
fn waits(b: &mut Balancing, args: &Args<'_>) -> i32 {
    let at = usize::try_from(args.i).unwrap_or_default();
    if let Some(place) = b.waits_ms.get_mut(at) {
        *place = Some(args.x.max(1.0) as u64);
    }
    code::TRUE
}

fn keep(b: &mut Balancing, args: &Args<'_>, answer: &mut Answer) -> i32 {
    if b.server.is_none() {
        return answer.fail("no current peer set");
    }
    b.kept = Some(Kept { timeout_ms: args.x as u64, requests: args.y as u64 });
    code::TRUE
}

fn bind(b: &mut Balancing, args: &Args<'_>, answer: &mut Answer) -> i32 {
    let text = String::from_utf8_lossy(args.a);
    let plain = text.parse().map(|ip| SocketAddr::new(ip, 0));
    match plain.or_else(|_| text.parse::<SocketAddr>()) {
        Ok(addr) => {
            b.local = Some(addr);
            code::TRUE
        }
        Err(_) => answer.fail(format!("invalid local address \"{text}\"")),
    }
}
