//! `upstream { … }`: its directives, and the groups they become.
//!
//! Differences from nginx: a name that is not found is a warning (see `names`); a `zone` keeps what
//! it knows of the servers over a reload that does not change them, and so does the pool of idle
//! connections of a shared (`keepalive N`) upstream.

use crate::balance::Method;
use crate::group::{Group, KeepAlive};
use crate::least_time::LeastTime;
use crate::live::Live;
use crate::names;
use crate::peers::Peers;
use crate::sticky;
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use weir_base::addr::{parse_endpoint, Endpoint, EndpointOptions, Host};
use weir_base::units;
use weir_conf::Position;
use weir_core::zones::ZoneNames;
use weir_http::build::Build;
use weir_http::module::HttpModule;
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Diagnostic, Directive, Level, Row,
    SlotVtable, Val,
};
use weir_resolve::Resolver;
use weir_script::lookup::StrMap;

/// A `server` row, or the address of an implicit upstream.
#[derive(Clone, Debug)]
pub(crate) struct Server {
    pub name: Vec<u8>,
    pub host: NamedHost,
    pub port: u16,
    pub weight: i64,
    pub max_fails: u32,
    pub fail_timeout_secs: u64,
    pub max_conns: u32,
    pub down: bool,
    pub draining: bool,
    /// What `sticky route` knows it by.
    pub route: Vec<u8>,
    pub backup: bool,
    /// To be asked for again and again.
    pub resolve: bool,
    pub service: Option<String>,
    pub at: Position,
}

#[derive(Clone, Debug)]
pub(crate) enum NamedHost {
    Ip(std::net::IpAddr),
    Name(String),
    Unix(PathBuf),
}

/// An upstream as read.
pub(crate) struct Declared {
    pub name: Vec<u8>,
    port: u16,
    no_port: bool,
    explicit: bool,
    pub at: Position,
    pub servers: Vec<Server>,
    pub method: Option<Method>,
    pub sticky: Option<sticky::Declared>,
    pub zone: Option<Vec<u8>>,
    pub resolver: Val<Arc<Resolver>>,
    pub resolver_timeout: Val<u64>,
    keepalive: Val<usize>,
    local: bool,
    requests: Val<u64>,
    time_ms: Val<u64>,
    timeout_ms: Val<u64>,
}

impl Declared {
    fn new(name: &[u8], port: u16, no_port: bool, explicit: bool, at: Position) -> Declared {
        Declared {
            name: name.to_vec(),
            port,
            no_port,
            explicit,
            at,
            servers: Vec::new(),
            method: None,
            sticky: None,
            zone: None,
            resolver: Val::UNSET,
            resolver_timeout: Val::UNSET,
            keepalive: Val::UNSET,
            local: false,
            requests: Val::UNSET,
            time_ms: Val::UNSET,
            timeout_ms: Val::UNSET,
        }
    }

    /// Without the directive nginx 1.31 keeps 32 connections, each for its own location.
    pub fn keepalive(&self) -> Option<KeepAlive> {
        let max_idle = self.keepalive.as_option().copied().unwrap_or(32);
        (self.explicit && max_idle > 0).then(|| KeepAlive {
            max_idle,
            requests: self.requests.as_option().copied().unwrap_or(1000),
            time_ms: self.time_ms.as_option().copied().unwrap_or(3_600_000),
            timeout_ms: self.timeout_ms.as_option().copied().unwrap_or(60_000),
            local: self.local || !self.keepalive.is_set(),
        })
    }
}

/// Which upstream a directive names; an index into [`UpstreamMain::groups`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UpstreamRef(usize);

/// The upstreams of one name: a block, or addresses that differ in their ports.
struct SameName {
    first: usize,
    by_port: HashMap<u16, usize>,
}

/// All upstreams of an `http` block.
#[derive(Default)]
pub struct UpstreamMain {
    declared: Vec<Declared>,
    known: StrMap<SameName>,
    current: usize,
    groups: Vec<Group>,
}

impl ConfType for UpstreamMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

impl UpstreamMain {
    /// The group behind a reference, once the configuration is built.
    pub fn group(&self, at: UpstreamRef) -> Option<&Group> {
        self.groups.get(at.0)
    }

    /// The upstreams whose servers change.
    pub fn live(&self) -> impl Iterator<Item = &Arc<Live>> {
        self.groups.iter().filter_map(Group::as_live)
    }

    /// The group a name from a variable means: the block of that name, or the same address.
    pub fn find(&self, host: &[u8], port: u16, no_port: bool) -> Option<&Group> {
        let same = self.known.get(host)?;
        if self.declared[same.first].explicit {
            return self.groups.get(same.first).filter(|_| no_port || port == 0);
        }
        let without = same.by_port.get(&0).filter(|_| no_port);
        let at = without.into_iter().chain(same.by_port.get(&port)).min()?;
        self.groups.get(*at)
    }

    fn current(&mut self) -> &mut Declared {
        &mut self.declared[self.current]
    }

    /// The upstream that a URL names: a block, which may also follow, or an implicit one.
    pub fn add(
        &mut self,
        d: &Directive,
        url: &Endpoint,
        default_port: u16,
    ) -> ConfResult<UpstreamRef> {
        let name = url.host_text;
        let unix = matches!(url.host, Host::Unix(_));
        let port = if unix { 0 } else { url.port.unwrap_or(default_port) };
        let no_port = url.port.is_none();
        if let Some(same) = self.known.get(name) {
            let is_block = self.declared[same.first].explicit;
            if is_block && !no_port {
                return Err(may_not_have_port(d, name, port));
            }
            if is_block || port == 0 {
                return Ok(UpstreamRef(same.first));
            }
            let fitting = [0, port].into_iter().filter_map(|p| same.by_port.get(&p));
            if let Some(i) = fitting.min() {
                return Ok(UpstreamRef(*i));
            }
        }
        let mut u = Declared::new(name, port, no_port, false, d.position());
        u.servers.push(Server::implicit(name, url, port, d.position()));
        Ok(UpstreamRef(self.push(u)))
    }

    fn push(&mut self, u: Declared) -> usize {
        let at = self.declared.len();
        match self.known.get_mut(&u.name) {
            Some(same) => drop(same.by_port.entry(u.port).or_insert(at)),
            None => {
                let same = SameName { first: at, by_port: HashMap::from([(u.port, at)]) };
                // The name is new.
                let _ = self.known.insert(&u.name, same);
            }
        }
        self.declared.push(u);
        at
    }

    /// Opens an `upstream` block.
    fn open(&mut self, d: &Directive) -> ConfResult {
        let name = d.arg(0);
        let Some(i) = self.known.get(name).map(|same| same.first) else {
            self.current = self.push(Declared::new(name, 0, true, true, d.position()));
            return Ok(());
        };
        let u = &mut self.declared[i];
        if u.explicit {
            return Err(d.fail(format!("duplicate upstream \"{}\"", lossy(name))));
        }
        if !u.no_port {
            return Err(may_not_have_port(d, name, u.port).at(u.at));
        }
        *u = Declared::new(name, 0, true, true, d.position());
        self.current = i;
        Ok(())
    }
}

fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn may_not_have_port(d: &Directive, name: &[u8], port: u16) -> Diagnostic {
    d.fail(format!("upstream \"{}\" may not have port {port}", lossy(name)))
}

fn host_of(url: &Endpoint) -> NamedHost {
    match url.host {
        Host::V4(a) => NamedHost::Ip(a.into()),
        Host::V6(a) => NamedHost::Ip(a.into()),
        Host::Unix(path) => NamedHost::Unix(weir_runtime::fs::bytes_path(path)),
        Host::Name(name) => NamedHost::Name(lossy(name)),
        Host::Any => NamedHost::Name(lossy(url.host_text)),
    }
}

impl Server {
    fn implicit(name: &[u8], url: &Endpoint, port: u16, at: Position) -> Server {
        Server {
            name: name.to_vec(),
            host: host_of(url),
            port,
            weight: 1,
            max_fails: 1,
            fail_timeout_secs: 10,
            max_conns: 0,
            down: false,
            draining: false,
            route: Vec::new(),
            backup: false,
            resolve: false,
            service: None,
            at,
        }
    }
}

const UPS: Context = Context::UPSTREAM;

pub const MODULE: HttpModule = HttpModule {
    name: "upstream",
    rows: ROWS,
    slots: &[SlotVtable::of::<UpstreamMain>(), SlotVtable::of::<ZoneNames>()],
    variables: crate::vars::VARIABLES,
    build: Some(build),
    start: Some(crate::live::start),
    ..HttpModule::EMPTY
};

static ROWS: &[Row] = &[
    Row::block("upstream", Context::HTTP, Arity::ONE, "A group of servers.", |cf, d| {
        cf.get::<UpstreamMain>().open(d)?;
        cf.walk(UPS, d.children())?;
        match cf.get::<UpstreamMain>().current().servers.is_empty() {
            true => Err(d.fail("no servers are inside upstream")),
            false => Ok(()),
        }
    }),
    Row::new("server", UPS, Arity::ONE_MORE, "", "A server of the group.", set_server)
        .note(names::NOTE),
    Row::new("resolver", UPS, Arity::ONE_MORE, "", "Name servers.", |cf, d| {
        let v = weir_core::resolver::parse(d)?;
        cf.get::<UpstreamMain>().current().resolver.once(d, v)
    })
    .note(weir_core::resolver::NOTE),
    Row::new("resolver_timeout", UPS, Arity::ONE, "30s", "Longest time for a name.", |cf, d| {
        let v = d.msec(0)?;
        cf.get::<UpstreamMain>().current().resolver_timeout.once(d, v)
    }),
    Row::new("keepalive", UPS, Arity::ONE_TWO, "32 local", "Idle connections kept.", set_keepalive),
    Row::new(
        "keepalive_requests",
        UPS,
        Arity::ONE,
        "1000",
        "Requests a connection carries.",
        |cf, d| {
            let v = d.num(0)?;
            cf.get::<UpstreamMain>().current().requests.once(d, v)
        },
    ),
    Row::new("keepalive_time", UPS, Arity::ONE, "1h", "Longest life of a connection.", |cf, d| {
        let v = d.msec(0)?;
        cf.get::<UpstreamMain>().current().time_ms.once(d, v)
    }),
    Row::new(
        "keepalive_timeout",
        UPS,
        Arity::ONE,
        "60s",
        "Longest rest of a connection.",
        |cf, d| {
            let v = d.msec(0)?;
            cf.get::<UpstreamMain>().current().timeout_ms.once(d, v)
        },
    ),
    Row::new(
        "zone",
        UPS,
        Arity::ONE_TWO,
        "",
        "Workers share what they know of the servers.",
        set_zone,
    )
    .note("the size is checked and not used; the servers' state lives on over a reload"),
    Row::new("ip_hash", UPS, Arity::NONE, "", "A client's address decides the server.", |cf, d| {
        set_method(cf, d, Method::IpHash)
    }),
    Row::new("hash", UPS, Arity::ONE_TWO, "", "A text decides the server.", set_hash),
    Row::new("random", UPS, Arity::ANY, "", "Any server, or the less busy of two.", set_random),
    Row::new("least_conn", UPS, Arity::NONE, "", "The least busy server is asked.", |cf, d| {
        set_method(cf, d, Method::LeastConn)
    }),
    Row::new(
        "least_time",
        UPS,
        Arity::ONE_TWO,
        "",
        "The server is asked that is likely to be done first.",
        set_least_time,
    ),
    Row::new(
        "sticky",
        UPS,
        Arity::TWO_MORE,
        "",
        "A client comes to the same server again.",
        |cf, d| {
            let sticky = sticky::set(cf, d)?;
            match cf.get::<UpstreamMain>().current().sticky.replace(sticky) {
                Some(_) => Err(d.error("is duplicate")),
                None => Ok(()),
            }
        },
    )
    .note("the balancing method may also follow it"),
];

fn set_least_time(cf: &mut Cf, d: &Directive) -> ConfResult {
    let inflight = match d.args.get(1).map(|w| &*w.text) {
        None => false,
        Some(b"inflight") => true,
        Some(other) => return Err(d.bad(1, format!("invalid parameter \"{}\"", lossy(other)))),
    };
    let last_byte = d.choice(0, &[("header", false), ("last_byte", true)])?;
    set_method(cf, d, Method::LeastTime(LeastTime { last_byte, inflight }))
}

fn set_method(cf: &mut Cf, d: &Directive, method: Method) -> ConfResult {
    let redefined = cf.get::<UpstreamMain>().current().method.replace(method).is_some();
    if redefined {
        cf.warn(d, "load balancing method redefined");
    }
    Ok(())
}

fn set_hash(cf: &mut Cf, d: &Directive) -> ConfResult {
    let key = Arc::new(weir_http::vars::template(cf, d, 0)?);
    match d.args.get(1).map(|w| &*w.text) {
        None => set_method(cf, d, Method::Hash(key)),
        // The ring is made when the servers are known.
        Some(b"consistent") => set_method(cf, d, Method::Consistent(key, Arc::default())),
        Some(other) => Err(d.bad(1, format!("invalid parameter \"{}\"", lossy(other)))),
    }
}

fn set_random(cf: &mut Cf, d: &Directive) -> ConfResult {
    let wrong = |i: usize| d.bad(i, format!("invalid parameter \"{}\"", lossy(d.arg(i))));
    match d.args.len() {
        0 => set_method(cf, d, Method::Random),
        1 | 2 if d.arg(0) != b"two" => Err(wrong(0)),
        2 if d.arg(1) != b"least_conn" => Err(wrong(1)),
        1 | 2 => set_method(cf, d, Method::RandomTwo),
        _ => Err(d.fail("invalid number of arguments in \"random\" directive")),
    }
}

fn set_server(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.arg(0);
    let url = parse_endpoint(name, EndpointOptions::default())
        .map_err(|e| d.bad(0, format!("{e} in upstream \"{}\"", lossy(name))))?;
    let mut s = Server::implicit(name, &url, url.port.unwrap_or(80), d.position());
    for i in 1..d.args.len() {
        set_parameter(&mut s, d, i)?;
    }
    names::check_server(&mut s, d, url.port.is_none())?;
    let u = cf.get::<UpstreamMain>().current();
    if s.backup && u.method.as_ref().is_some_and(Method::refuses_backup) {
        let text = "balancing method does not support parameter \"backup\"";
        return Err(d.fail(text));
    }
    u.servers.push(s);
    Ok(())
}

fn set_parameter(s: &mut Server, d: &Directive, i: usize) -> ConfResult {
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
    } else if let Some(v) = d.keyed(i, "service") {
        if v.is_empty() {
            return Err(d.bad(i, "service is empty"));
        }
        s.service = Some(lossy(v));
    } else if let Some(v) = d.keyed(i, "route") {
        if v.is_empty() {
            return Err(d.bad(i, "route is empty"));
        }
        if v.len() > sticky::SID_MAX_BYTES {
            return Err(d.bad(i, format!("route is longer than {}", sticky::SID_MAX_BYTES)));
        }
        s.route = v.to_vec();
    } else {
        match d.arg(i) {
            b"backup" => s.backup = true,
            // As in nginx the later of the two counts.
            b"down" => (s.down, s.draining) = (true, false),
            b"drain" => (s.down, s.draining) = (true, true),
            b"resolve" => s.resolve = true,
            _ => return Err(bad()),
        }
    }
    Ok(())
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

fn set_zone(cf: &mut Cf, d: &Directive) -> ConfResult {
    let name = d.arg(0);
    if name.is_empty() {
        return Err(d.bad(0, "invalid zone name \"\""));
    }
    if d.args.len() > 1 {
        let size = units::parse_size(d.arg(1))
            .ok_or_else(|| d.bad(1, format!("invalid zone size \"{}\"", lossy(d.arg(1)))))?;
        if size < 8 * 4096 {
            return Err(d.bad(1, format!("zone \"{}\" is too small", lossy(name))));
        }
    }
    cf.get::<UpstreamMain>().current().zone = Some(name.to_vec());
    Ok(())
}

/// Resolves every server and makes the groups.
fn build(b: &mut Build) -> ConfResult {
    let outer = names::Outer::build(b)?;
    let main = b.main.get_mut::<UpstreamMain>();
    main.declared.iter().try_for_each(check_port)?;
    let known = names::look_up_all(&main.declared);
    let mut groups = Vec::with_capacity(main.declared.len());
    for u in &main.declared {
        groups.push(build_group(u, &outer, &known, &mut b.cf.warnings)?);
    }
    main.groups = groups;
    Ok(())
}

/// An address that no directive gives a port can never be connected to.
fn check_port(u: &Declared) -> ConfResult {
    let needs = |s: &Server| s.port == 0 && !matches!(s.host, NamedHost::Unix(_));
    if u.explicit || !u.servers.iter().any(needs) {
        return Ok(());
    }
    let name = lossy(&u.name);
    let hint = format!("write \"{name}:PORT\", or define upstream {name} {{ … }}");
    Err(Diagnostic::emerg(format!("no port in upstream \"{name}\"")).at(u.at).hint(hint))
}

fn build_group(
    u: &Declared,
    outer: &names::Outer,
    known: &names::Known,
    warnings: &mut Vec<Diagnostic>,
) -> ConfResult<Group> {
    let names::Servers { fixed, hosts } = names::resolve(u, outer, known, warnings)?;
    if !hosts.is_empty() {
        let live = Live::new(names::plan(u)?, fixed, hosts);
        return Ok(Group::live(&u.name, u.port, !u.explicit, live));
    }
    let of = |backup: bool| {
        fixed.iter().filter(|(_, b)| *b == backup).map(|(p, _)| p.clone()).collect::<Vec<_>>()
    };
    let (primary, backup) = (of(false), of(true));
    if primary.is_empty() {
        let text = format!("no servers in upstream \"{}\"", lossy(&u.name));
        return Err(Diagnostic::emerg(text).at(u.at));
    }
    let peers = Peers::new(primary, backup);
    Ok(Group::new(&names::plan(u)?, u.port, !u.explicit, peers))
}
