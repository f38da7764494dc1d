//! The names of servers when the configuration is built: those that are found become addresses,
//! the others, and all with `resolve`, hosts of a live upstream.
//!
//! Difference from nginx: a name that is not found is a warning, and its servers come as soon as
//! it is. The `resolver` of the upstream, of the `http` block or of the location that passes there
//! is asked for it, and where there is none the system.

use crate::asks::Asks;
use crate::conf::{Declared, NamedHost, Server};
use crate::group::Plan;
use crate::live::{Asked, Host};
use crate::peers::{self, Peer, PeerAddr};
use crate::queue::Queue;
use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, ToSocketAddrs};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use weir_core::resolver::look_up;
use weir_module::{ArgsExt, ConfResult, Diagnostic, Directive};
use weir_resolve::{Resolver, Target};

/// nginx's `resolver_timeout`.
const TIMEOUT_MS: u64 = 30_000;

/// Names that the system's resolver is asked for at the same time.
const THREADS_MAX: usize = 16;

/// What the row of `server` says of names.
pub(crate) const NOTE: &str =
    "A name that is not found is a warning and not an error: it is asked for \
    again, of the resolver or of the system, and until it is found there is no such server. \
    `fail_timeout` passes whatever the system's date is set to.";

/// What is set around upstreams.
#[derive(Clone, Default)]
pub struct Outer {
    /// Who is asked for names where an upstream names nobody.
    pub resolver: Option<Arc<Resolver>>,
    /// How long; without it, nginx's 30 s.
    pub timeout_ms: Option<u64>,
}

impl Outer {
    /// Who is asked for an upstream's names, and how long.
    pub(crate) fn of(&self, u: &Declared) -> Option<Asked> {
        let resolver = u.resolver.as_option().or(self.resolver.as_ref())?;
        let own = u.resolver_timeout.as_option().copied();
        Some((Arc::clone(resolver), own.or(self.timeout_ms).unwrap_or(TIMEOUT_MS)))
    }
}

/// What `resolve` and `service=` ask of a server, and its port.
pub(crate) fn check_server<S: Asks>(s: &mut Server, d: &Directive, no_port: bool) -> ConfResult {
    let is_name = matches!(s.host, NamedHost::Name(_));
    let is_unix = matches!(s.host, NamedHost::Unix(_));
    let shown = String::from_utf8_lossy(&s.name);
    if S::USUAL_PORT.is_none() && no_port && !is_unix && s.service.is_none() {
        return Err(d.bad(0, format!("no port in upstream \"{shown}\"")));
    }
    if s.service.is_some() {
        let fail = |text: &str| Err(d.bad(0, format!("service upstream \"{shown}\" {text}")));
        if !s.resolve {
            return fail("requires \"resolve\" parameter");
        }
        if !no_port {
            return fail("may not have port");
        }
        if !is_name {
            return fail("requires domain name");
        }
    }
    s.resolve &= is_name;
    Ok(())
}

/// An upstream's servers: those that are known, with whether they are backups, and the names of
/// the rest.
pub(crate) struct Servers {
    pub fixed: Vec<(Peer, bool)>,
    pub hosts: Vec<Host>,
    /// What is known of some of these from the beginning.
    pub found: Vec<(String, Vec<Target>)>,
}

/// What the system knows of each name, IPv4 first.
pub(crate) type Known = BTreeMap<String, Vec<IpAddr>>;

/// Asks the system for every name at once, or a start without name servers would take its patience
/// times the number of names.
pub(crate) fn look_up_all(declared: &[Declared]) -> Known {
    let servers = declared.iter().flat_map(|u| &u.servers).filter(|s| !s.resolve);
    let known: Known = servers
        .filter_map(|s| match &s.host {
            NamedHost::Name(name) => Some((name.clone(), Vec::new())),
            _ => None,
        })
        .collect();
    let names: Vec<String> = known.keys().cloned().collect();
    let (next, known) = (AtomicUsize::new(0), Mutex::new(known));
    let work = || {
        while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
            let found = addresses(name);
            known.lock().unwrap_or_else(|e| e.into_inner()).insert(name.clone(), found);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..names.len().min(THREADS_MAX) {
            // What cannot be started is done by the others.
            let _ = std::thread::Builder::new().spawn_scoped(scope, work);
        }
        work();
    });
    known.into_inner().unwrap_or_else(|e| e.into_inner())
}

pub(crate) fn resolve<S: Asks>(
    u: &Declared,
    outer: &Outer,
    known: &Known,
    warnings: &mut Vec<Diagnostic>,
) -> ConfResult<Servers> {
    let resolver = outer.of(u);
    if let Some((resolver, _)) = &resolver {
        look_up(resolver)?;
    }
    if u.servers.iter().any(|s| s.resolve) || u.dynamic.is_some() {
        check_upstream::<S>(u, resolver.is_some())?;
    }
    let mut servers = Servers { fixed: Vec::new(), hosts: Vec::new(), found: Vec::new() };
    for s in &u.servers {
        let name = match &s.host {
            NamedHost::Ip(ip) => {
                let addr = PeerAddr::Ip(SocketAddr::new(*ip, s.port));
                servers.fixed.push((peer(s, addr), s.backup));
                continue;
            }
            NamedHost::Unix(path) => {
                servers.fixed.push((peer(s, PeerAddr::Unix(path.clone())), s.backup));
                continue;
            }
            NamedHost::Name(name) => name,
        };
        let found = match s.resolve {
            true => &[][..],
            false => known.get(name).map_or(&[][..], Vec::as_slice),
        };
        if let Some(fallback) = u.dynamic.filter(|_| !s.resolve) {
            let target = |ip: &IpAddr| Target {
                ip: *ip,
                port: 0,
                priority: 0,
                weight: 0,
                name: String::new(),
            };
            let host = host(s, name);
            servers.found.push((host.name.clone(), found.iter().map(target).collect()));
            servers.hosts.push(Host { resolve: true, fallback: Some(fallback), ..host });
            continue;
        }
        if found.is_empty() {
            if !s.resolve {
                warnings.push(not_found::<S>(s));
            }
            servers.hosts.push(host(s, name));
        }
        let at = |ip: &IpAddr| PeerAddr::Ip(SocketAddr::new(*ip, s.port));
        servers.fixed.extend(found.iter().map(|ip| (peer(s, at(ip)), s.backup)));
    }
    Ok(servers)
}

fn check_upstream<S: Asks>(u: &Declared, has_resolver: bool) -> ConfResult {
    let name = String::from_utf8_lossy(&u.name);
    let asks = u.dynamic.is_none() || u.servers.iter().any(|s| s.resolve);
    let text = match (&u.zone, has_resolver) {
        (None, _) if asks => {
            format!(
                "resolving names at run time requires upstream \"{name}\" to be in shared memory"
            )
        }
        (_, false) => {
            format!("no resolver defined to resolve names at run time in upstream \"{name}\"")
        }
        _ => return Ok(()),
    };
    let hint = match u.zone {
        None if asks => "add zone NAME SIZE; to the upstream".to_string(),
        _ => {
            let block = S::BLOCK.names().join(" ");
            format!("add resolver ADDRESS; to the upstream or to {block}")
        }
    };
    Err(Diagnostic::emerg(text).at(u.at).hint(hint))
}

fn not_found<S: Asks>(s: &Server) -> Diagnostic {
    let text = format!("host not found in upstream \"{}\"", String::from_utf8_lossy(&s.name));
    let hint = format!(
        "the server starts without it; it is asked for again, and {} until it is found",
        S::WITHOUT_SERVER
    );
    Diagnostic::warn(text).at(s.at).hint(hint)
}

pub(crate) fn peer(s: &Server, addr: PeerAddr) -> Peer {
    Peer {
        sid: peers::sid(&s.route, &addr.text()),
        draining: s.draining,
        weight: s.weight,
        max_fails: s.max_fails,
        fail_timeout_secs: s.fail_timeout_secs,
        max_conns: s.max_conns,
        slow_start_secs: s.slow_start_secs,
        down: s.down,
        ..Peer::new(addr, s.id.as_deref().unwrap_or(&s.name))
    }
}

pub(crate) fn host(s: &Server, name: &str) -> Host {
    let nowhere = PeerAddr::Ip((IpAddr::V4(Ipv4Addr::UNSPECIFIED), s.port).into());
    Host {
        name: name.to_ascii_lowercase(),
        service: s.service.clone(),
        port: s.port,
        template: peer(s, nowhere),
        route: s.route.clone(),
        backup: s.backup,
        resolve: s.resolve,
        fallback: None,
        is_put: false,
    }
}

pub(crate) fn plan<S: Asks>(u: &Declared) -> ConfResult<Plan> {
    Ok(Plan {
        block: S::BLOCK,
        name: u.name.clone(),
        shown_name: u.shown_name(),
        // One without a name is nobody else's.
        zone: u.zone.clone().or_else(|| u.shares.then(Vec::new)),
        method: u.method.clone().unwrap_or_default(),
        keepalive: u.keepalive().filter(|_| S::REUSES),
        sticky: u.sticky.as_ref().map(|s| s.build(&u.name)).transpose()?,
        binds: u.binds,
        queue: u.queue.as_option().copied().map(Queue::new),
    })
}

/// A name's addresses by the system's resolver, IPv4 first, each once.
fn addresses(name: &str) -> Vec<IpAddr> {
    let mut all: Vec<IpAddr> = Vec::new();
    for addr in (name, 0).to_socket_addrs().into_iter().flatten() {
        if !all.contains(&addr.ip()) {
            all.push(addr.ip());
        }
    }
    all.sort_by_key(IpAddr::is_ipv6);
    all
}
