//! The directives of `upstream { … }`, written once for all protocols.
//!
//! Differences from nginx: a name that is not found is a warning (see `names`); a `zone` keeps what
//! it knows of the servers over a reload that does not change them, and so does the pool of idle
//! connections of a shared (`keepalive N`) upstream; what is above that number is closed a moment
//! later (see `idle`).

use crate::asks::Asks;
use crate::balance::Method;
use crate::conf::{lossy, Server, UpstreamMain};
use crate::least_time::LeastTime;
use crate::live::Fallback;
use crate::names;
use crate::peers::SID_MAX_BYTES;
use crate::queue::Rule;
use std::marker::PhantomData;
use std::sync::Arc;
use weir_base::addr::EndpointOptions;
use weir_base::units;
use weir_core::registry::template;
use weir_core::zones;
use weir_module::{ArgsExt, Arity, Cf, ConfResult, Diagnostic, Directive, Row};
use weir_runtime::listen::parse_endpoint;

/// Of a `queue` that says nothing else.
const QUEUE_TIMEOUT_MS: u64 = 60_000;

/// The rows for a protocol's `upstream` blocks.
pub struct Rows<S>(PhantomData<fn(S)>);

impl<S: Asks> Rows<S> {
    /// Those that every protocol has.
    pub const COMMON: &'static [Row] = &[
        Row::block("upstream", S::BLOCK, Arity::ONE, "A group of servers.", |cf, d| {
            cf.get::<UpstreamMain>().open(d)?;
            cf.walk(S::UPSTREAM, d.children())?;
            let u = cf.get::<UpstreamMain>().current();
            match u.servers.is_empty() && u.state.is_none() && !u.has_balancer() {
                true => {
                    let hint = "write a server, or \"state FILE;\" for those that the api puts, with a zone";
                    Err(d.fail("no servers are inside upstream").hint(hint.to_string()))
                }
                false => Ok(()),
            }
        }),
        Row::new(
            "server",
            S::UPSTREAM,
            Arity::ONE_MORE,
            "",
            "A server of the group.",
            set_server::<S>,
        )
        .note(names::NOTE),
        Row::new("resolver", S::UPSTREAM, Arity::ONE_MORE, "", "Name servers.", |cf, d| {
            let v = weir_core::resolver::parse(d)?;
            cf.get::<UpstreamMain>().current().resolver.once(d, v)
        })
        .note(weir_core::resolver::NOTE),
        Row::new(
            "resolver_timeout",
            S::UPSTREAM,
            Arity::ONE,
            "30s",
            "Longest time for a name.",
            |cf, d| {
                let v = d.msec(0)?;
                cf.get::<UpstreamMain>().current().resolver_timeout.once(d, v)
            },
        ),
        Row::new(
            "zone",
            S::UPSTREAM,
            Arity::ONE_TWO,
            "",
            "Workers share what they know of the servers.",
            set_zone::<S>,
        )
        .note("the size is checked and not used; the servers' state lives on over a reload"),
        Row::new(
            "hash",
            S::UPSTREAM,
            Arity::ONE_TWO,
            "",
            "A text decides the server.",
            set_hash::<S>,
        ),
        Row::new(
            "random",
            S::UPSTREAM,
            Arity::ANY,
            "",
            "Any server, or the better of two: less busy (least_conn), or likely to be done first (least_time=).",
            set_random::<S>,
        )
        .note("least_time= is part of nginx's commercial version."),
        Row::new(
            "state",
            S::UPSTREAM,
            Arity::ONE,
            "",
            "A file with the servers of the group, in lines as \"server ADDRESS parameters;\".",
            crate::state_file::set::<S>,
        )
        .once()
        .note(
            "In nginx it is part of the commercial version. The api writes the file when it changes servers, if the \
             upstream has a zone: its directory is to be the workers' user's. It is read when the configuration is, and \
             one that is not there has no servers yet. One that is put in its place as a whole counts at once, as what \
             another process writes while it takes this one's place; one that is changed in place counts from the next reload. A new one is its owner's alone to read. Servers' numbers stand in it as comments. What cannot be written (a full disk) is tried again until it can be.",
        ),
        Row::new(
            "least_conn",
            S::UPSTREAM,
            Arity::NONE,
            "",
            "The least busy server is asked.",
            |cf, d| set_method(cf, d, Method::LeastConn),
        ),
        Row::new(
            "least_time",
            S::UPSTREAM,
            Arity::ONE_TWO,
            "",
            "The server is asked that is likely to be done first.",
            set_least_time::<S>,
        )
        .once(),
    ];

    /// Those of protocols in which a connection to a server serves one session after another.
    pub const REUSED: &'static [Row] = &[
        Row::new(
            "keepalive",
            S::UPSTREAM,
            Arity::ONE_TWO,
            "32 local",
            "Idle connections kept.",
            set_keepalive,
        )
        .note(crate::idle::NOTE),
        Row::new(
            "keepalive_requests",
            S::UPSTREAM,
            Arity::ONE,
            "1000",
            "Requests a connection carries.",
            |cf, d| {
                let v = d.num(0)?;
                cf.get::<UpstreamMain>().current().requests.once(d, v)
            },
        ),
        Row::new(
            "keepalive_time",
            S::UPSTREAM,
            Arity::ONE,
            "1h",
            "Longest life of a connection.",
            |cf, d| {
                let v = d.msec(0)?;
                cf.get::<UpstreamMain>().current().time_ms.once(d, v)
            },
        ),
        Row::new(
            "keepalive_timeout",
            S::UPSTREAM,
            Arity::ONE,
            "60s",
            "Longest rest of a connection.",
            |cf, d| {
                let v = d.msec(0)?;
                cf.get::<UpstreamMain>().current().timeout_ms.once(d, v)
            },
        ),
        Row::new(
            "queue",
            S::UPSTREAM,
            Arity::ONE_TWO,
            "",
            "So many requests wait, for at most timeout=60s, while no server can be asked.",
            set_queue,
        )
        .note(
            "In nginx it is part of the commercial version. Requests are served in the order in which they came; \
             without a zone each worker has a queue of its own.",
        ),
    ];

    /// What Tengine has besides, and `ntlm`.
    pub const FURTHER: &'static [Row] = &[
        Row::new("ntlm", S::UPSTREAM, Arity::NONE, "", "Each client's connection has its own to a server.", |cf, _| {
            cf.get::<UpstreamMain>().current().binds = true;
            Ok(())
        })
        .once()
        .note(
            "In nginx it is part of the commercial version. A client has a connection of its own from its first request on, not only from the one that brings Authorization; it is closed with the client's.",
        ),
        Row::new("consistent_hash", S::UPSTREAM, Arity::ONE, "", "A text decides the server, as with hash … consistent.", |cf, d| {
            let key = Arc::new(template::<S>(cf, d, 0)?);
            set_method(cf, d, Method::Consistent(key, Arc::default()))
        })
        .note("It is Tengine's, and so is id= of server. The points of the ring are those of nginx's hash … consistent."),
        Row::new("vnswrr", S::UPSTREAM, Arity::NONE_ONE, "", "Round robin that begins anywhere.", |cf, d| {
            set_max_init(d)?;
            set_method(cf, d, Method::Vnswrr)
        })
        .note("It is Tengine's. max_init= is checked and not needed: turns are not counted out ahead."),
        Row::new("iwrr", S::UPSTREAM, Arity::NONE_ONE, "", "Interleaved round robin: rounds of those whose weight is large enough.", |cf, d| {
            set_max_init(d)?;
            set_method(cf, d, Method::Iwrr)
        })
        .note("It is Tengine's. max_init= is checked and not needed: turns are not counted out ahead."),
        Row::new("dynamic_resolve", S::UPSTREAM, Arity::ANY, "", "Names of servers are asked for again and again.", set_dynamic)
        .once()
        .note(
            "It is Tengine's. Names are asked for when their answers run out, not by requests; it takes a resolver. With \
             fallback=stale (the default) the addresses found last go on while nobody finds a name, with fallback=next \
             they go; it is asked for again after fail_timeout, 1s at least.",
        ),
    ];

    /// `ip_hash`
    pub const IP_HASH: &'static [Row] = &[Row::new(
        "ip_hash",
        S::UPSTREAM,
        Arity::NONE,
        "",
        "A client's address decides the server.",
        |cf, d| set_method(cf, d, Method::IpHash),
    )];
}

fn set_least_time<S: Asks>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let inflight = match d.args.get(1).map(|w| &*w.text) {
        None => false,
        Some(b"inflight") => true,
        Some(other) => return Err(d.bad(1, format!("invalid parameter \"{}\"", lossy(other)))),
    };
    let until = d.choice(0, S::TIMES)?;
    set_method(cf, d, Method::LeastTime(LeastTime { until, inflight, heads: S::HEADS }))
}

fn set_method(cf: &mut Cf, d: &Directive, method: Method) -> ConfResult {
    let redefined = cf.get::<UpstreamMain>().current().method.replace(method).is_some();
    if redefined {
        cf.warn(d, "load balancing method redefined");
    }
    Ok(())
}

fn set_hash<S: Asks>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let key = Arc::new(template::<S>(cf, d, 0)?);
    match d.args.get(1).map(|w| &*w.text) {
        None => set_method(cf, d, Method::Hash(key)),
        // The ring is made when the servers are known.
        Some(b"consistent") => set_method(cf, d, Method::Consistent(key, Arc::default())),
        Some(other) => Err(d.bad(1, format!("invalid parameter \"{}\"", lossy(other)))),
    }
}

fn set_random<S: Asks>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let wrong = |i: usize| d.bad(i, format!("invalid parameter \"{}\"", lossy(d.arg(i))));
    match d.args.len() {
        0 => set_method(cf, d, Method::Random),
        1 | 2 if d.arg(0) != b"two" => Err(wrong(0)),
        1 => set_method(cf, d, Method::RandomTwo(None)),
        2 if d.arg(1) == b"least_conn" => set_method(cf, d, Method::RandomTwo(None)),
        2 => {
            let word = d.keyed(1, "least_time").ok_or_else(|| wrong(1))?;
            let found = S::TIMES.iter().find(|(name, _)| name.as_bytes() == word);
            let until = found.map(|(_, until)| *until).ok_or_else(|| wrong(1))?;
            let how = LeastTime { until, inflight: false, heads: S::HEADS };
            set_method(cf, d, Method::RandomTwo(Some(how)))
        }
        _ => Err(d.fail("invalid number of arguments in \"random\" directive")),
    }
}

/// A `server` as it is written.
pub(crate) fn read_server<S: Asks>(d: &Directive) -> ConfResult<Server> {
    let name = d.arg(0);
    let url = parse_endpoint(name, EndpointOptions::default())
        .map_err(|e| d.bad(0, format!("{e} in upstream \"{}\"", lossy(name))))?;
    let mut s = Server::implicit(name, &url, url.port.or(S::USUAL_PORT).unwrap_or(0), d.position());
    for i in 1..d.args.len() {
        set_parameter::<S>(&mut s, d, i)?;
    }
    names::check_server::<S>(&mut s, d, url.port.is_none())?;
    Ok(s)
}

/// Servers stand in the block or in its file.
pub(crate) fn with_state(d: &Directive) -> Diagnostic {
    let e = d.fail("\"state\" may not be used with \"server\"");
    e.hint("move the servers into the file".to_string())
}

fn set_server<S: Asks>(cf: &mut Cf, d: &Directive) -> ConfResult {
    match cf.get::<UpstreamMain>().current().state {
        Some(_) => Err(with_state(d)),
        None => put_server::<S>(cf, d),
    }
}

pub(crate) fn put_server<S: Asks>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let s = read_server::<S>(d)?;
    let u = cf.get::<UpstreamMain>().current();
    if s.backup && u.method.as_ref().is_some_and(Method::refuses_backup) {
        let text = "balancing method does not support parameter \"backup\"";
        return Err(d.fail(text));
    }
    u.servers.push(s);
    Ok(())
}

fn set_parameter<S: Asks>(s: &mut Server, d: &Directive, i: usize) -> ConfResult {
    let bad = || d.bad(i, format!("invalid parameter \"{}\"", lossy(d.arg(i))));
    let int = |text: &[u8]| units::parse_int(text).ok_or_else(bad);
    if let Some(v) = d.keyed(i, "weight") {
        s.weight = int(v)? as i64;
        if s.weight == 0 {
            return Err(bad());
        }
    } else if let Some(v) = d.keyed(i, "max_conns") {
        s.max_conns = u32::try_from(int(v)?).map_err(|_| bad())?;
    } else if let Some(v) = d.keyed(i, "max_fails") {
        s.max_fails = u32::try_from(int(v)?).map_err(|_| bad())?;
    } else if let Some(v) = d.keyed(i, "fail_timeout") {
        s.fail_timeout_secs = units::parse_sec(v).ok_or_else(bad)?;
    } else if let Some(v) = d.keyed(i, "slow_start") {
        s.slow_start_secs = units::parse_sec(v).ok_or_else(bad)?;
    } else if let Some(v) = d.keyed(i, "id").filter(|v| S::STICKY && !v.is_empty()) {
        s.id = Some(v.to_vec());
    } else if let Some(v) = d.keyed(i, "service") {
        if v.is_empty() {
            return Err(d.bad(i, "service is empty"));
        }
        s.service = Some(lossy(v));
    } else if let Some(v) = d.keyed(i, "route").filter(|_| S::STICKY) {
        if v.is_empty() {
            return Err(d.bad(i, "route is empty"));
        }
        if v.len() > SID_MAX_BYTES {
            return Err(d.bad(i, format!("route is longer than {}", SID_MAX_BYTES)));
        }
        s.route = v.to_vec();
    } else if d.keyed(i, "sid").is_some() && S::STICKY {
        return Err(bad().hint("write route=, which is what sid= is called in nginx".to_string()));
    } else {
        match d.arg(i) {
            b"backup" => s.backup = true,
            // As in nginx the later of the two counts.
            b"down" => (s.down, s.draining) = (true, false),
            b"drain" if S::STICKY => (s.down, s.draining) = (true, true),
            b"resolve" => s.resolve = true,
            _ => return Err(bad()),
        }
    }
    Ok(())
}

fn set_dynamic(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut fallback = Fallback { stale: true, fail_timeout_ms: 0 };
    for i in 0..d.args.len() {
        let bad = || d.bad(i, format!("invalid parameter \"{}\"", lossy(d.arg(i))));
        if let Some(v) = d.keyed(i, "fail_timeout") {
            fallback.fail_timeout_ms = units::parse_msec(v).ok_or_else(bad)?;
            continue;
        }
        fallback.stale = match d.arg(i) {
            b"fallback=stale" => true,
            b"fallback=next" => false,
            b"fallback=shutdown" => {
                let hint = "write fallback=next: requests for which no server is left get 502";
                return Err(bad().hint(hint.to_string()));
            }
            _ => return Err(bad()),
        };
    }
    cf.get::<UpstreamMain>().current().dynamic = Some(fallback);
    Ok(())
}

fn set_max_init(d: &Directive) -> ConfResult {
    if d.args.is_empty() {
        return Ok(());
    }
    let number = d.keyed(0, "max_init").and_then(units::parse_int);
    let bad = || d.bad(0, format!("invalid parameter \"{}\"", lossy(d.arg(0))));
    number.map(drop).ok_or_else(bad)
}

fn set_keepalive(cf: &mut Cf, d: &Directive) -> ConfResult {
    let n = units::parse_int(d.arg(0)).ok_or_else(|| {
        d.bad(0, format!("invalid value \"{}\" in \"keepalive\" directive", lossy(d.arg(0))))
    })?;
    let local = match d.args.get(1).map(|w| &*w.text) {
        None => false,
        Some(b"local") => true,
        Some(other) => return Err(d.bad(1, format!("invalid parameter \"{}\"", lossy(other)))),
    };
    let u = cf.get::<UpstreamMain>().current();
    u.keepalive.once(d, n as usize)?;
    u.local = local;
    Ok(())
}

fn set_queue(cf: &mut Cf, d: &Directive) -> ConfResult {
    let bad = |i: usize| d.bad(i, format!("invalid parameter \"{}\"", lossy(d.arg(i))));
    let max = units::parse_int(d.arg(0)).filter(|n| *n > 0).ok_or_else(|| bad(0))? as usize;
    let timeout_ms = match d.args.len() {
        1 => QUEUE_TIMEOUT_MS,
        _ => d.keyed(1, "timeout").and_then(units::parse_msec).ok_or_else(|| bad(1))?,
    };
    cf.get::<UpstreamMain>().current().queue.once(d, Rule { max, timeout_ms })
}

fn set_zone<S: Asks>(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.arg(0);
    if name.is_empty() {
        return Err(d.bad(0, "invalid zone name \"\""));
    }
    let mut size = 0;
    if d.args.len() > 1 {
        size = units::parse_size(d.arg(1))
            .ok_or_else(|| d.bad(1, format!("invalid zone size \"{}\"", lossy(d.arg(1)))))?;
        if size < 8 * 4096 {
            return Err(d.bad(1, format!("zone \"{}\" is too small", lossy(name))));
        }
    }
    zones::declare(cf, d, 0, name, S::ZONE, size)?;
    cf.get::<UpstreamMain>().current().zone = Some(name.to_vec());
    Ok(())
}
