//! `listen` and `server_name`, and gathering them into sockets, addresses and names.

use crate::generation::{AddrConf, ListenConf};
use crate::registry::{named_regex, NamedRegex};
use crate::session::Session;
use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use weir_base::addr::{EndpointOptions, Host};
use weir_base::units;
use weir_conf::Position;
use weir_module::{ArgsExt, Cf, ConfResult, Diagnostic, Directive, Span};
use weir_runtime::listen::{parse_endpoint, ListenAddr, ListenOptions};
use weir_script::lookup::HostMap;

/// One `listen`.
#[derive(Clone)]
pub struct Listen {
    /// One of those that a name or a range of ports stands for.
    pub addr: ListenAddr,
    /// Where the address stands in the text.
    pub span: Span,
    /// As far as they were given here.
    pub options: ListenOptions,
    /// Options of the socket itself were given, so it is bound on its own.
    pub bind: bool,
    /// Any socket option was set here.
    pub set: bool,
    /// `default_server`; otherwise it is the first of the address.
    pub default_server: bool,
    /// Holds for all who listen there.
    pub proxy_protocol: bool,
    /// As `proxy_protocol`.
    pub ssl: bool,
    /// As `proxy_protocol`; the directive `http2` is the server's own.
    pub http2: bool,
    /// The address is all of the machine's.
    pub wildcard: bool,
}

/// One argument of `server_name`.
#[derive(Clone)]
pub struct ServerName {
    /// In lower case; an expression as it stands, with its `~`.
    pub name: Vec<u8>,
    /// For a name that begins with `~`.
    pub regex: Option<NamedRegex>,
}

impl ServerName {
    /// Whether it is a name of `host`, which is in lower case.
    pub fn is_name(&self, host: &[u8]) -> bool {
        if let Some((regex, _)) = &self.regex {
            return regex.is_match(host).unwrap_or(false);
        }
        match &self.name[..] {
            b"" => false,
            [b'*', tail @ ..] => host.len() > tail.len() && host.ends_with(tail),
            tail @ [b'.', name @ ..] => host == name || host.ends_with(tail),
            [head @ .., b'*'] => host.len() > head.len() && host.starts_with(head),
            name => host == name,
        }
    }
}

/// What a `server` block says of where it is reached.
#[derive(Default)]
pub struct Reached {
    /// Each address once.
    pub listens: Vec<Listen>,
    /// Their addresses, while the configuration is read.
    listened: HashSet<ListenAddr>,
    /// In the order of the configuration.
    pub names: Vec<ServerName>,
    /// `$server_name` and the log's `server:`.
    pub primary_name: Vec<u8>,
    /// Where the block stands, for errors found after it was read.
    pub at: Option<Position>,
}

impl Reached {
    /// As status pages call the server: by its first name, or its first address where it has none.
    pub fn shown_name(&self) -> Vec<u8> {
        match &self.primary_name[..] {
            b"" | b"_" => {
                self.listens.first().map(|l| l.addr.to_string()).unwrap_or_default().into()
            }
            name => name.to_vec(),
        }
    }

    /// The block has been read.
    pub fn close(&mut self, d: &Directive) {
        self.listened = HashSet::new();
        self.at = Some(d.position());
    }

    /// Adds what a `listen` directive names.
    ///
    /// # Errors
    ///
    /// The block listens there already.
    pub fn add(&mut self, d: &Directive, listen: Listen) -> ConfResult {
        if !self.listened.insert(listen.addr.clone()) {
            return Err(d.fail(format!("a duplicate listen {}", listen.addr)));
        }
        self.listens.push(listen);
        Ok(())
    }
}

/// `*:80` for root, `*:8000` for others.
pub fn default_listen(d: &Directive) -> Listen {
    let port = if weir_runtime::process::is_root() { 80 } else { 8000 };
    let addr = SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port);
    plain(ListenAddr::Ip(addr), d.name.span)
}

fn plain(addr: ListenAddr, span: Span) -> Listen {
    let wildcard = addr.is_wildcard();
    Listen {
        addr,
        span,
        options: ListenOptions::default(),
        bind: false,
        set: false,
        default_server: false,
        proxy_protocol: false,
        ssl: false,
        http2: false,
        wildcard,
    }
}

/// `listen ADDRESS[:PORT] [option …]`: each address with the options that it has everywhere; those of
/// a protocol alone are `own`'s, which says whether an argument is one.
pub fn parse(
    d: &Directive,
    own: impl Fn(&Directive, usize, &mut Listen) -> ConfResult<bool>,
) -> ConfResult<Vec<Listen>> {
    let mut listens = Vec::new();
    for addr in addresses(d)? {
        let mut listen = plain(addr, d.arg_span(0));
        for i in 1..d.args.len() {
            if !own(d, i, &mut listen)? {
                option(d, i, &mut listen)?;
            }
        }
        listens.push(listen);
    }
    Ok(listens)
}

/// Refuses an address without a port, where a protocol has no usual one. (nginx has the system choose a port,
/// which nobody knows.)
///
/// # Errors
///
/// There is none.
pub fn needs_port(d: &Directive) -> ConfResult {
    let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
    match parse_endpoint(d.arg(0), EndpointOptions { listen: true, uri_part: false }) {
        Ok(e) if e.port.is_none() && !matches!(e.host, Host::Unix(_)) => {
            let text = format!("no port in \"{shown}\" of the \"listen\" directive");
            Err(d.bad(0, text))
        }
        // What else is wrong with it is found by `parse`.
        _ => Ok(()),
    }
}

fn addresses(d: &Directive) -> ConfResult<Vec<ListenAddr>> {
    let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
    let options = EndpointOptions { listen: true, uri_part: false };
    let bad = |e: &str| d.bad(0, format!("{e} in \"{shown}\" of the \"listen\" directive"));
    let e = parse_endpoint(d.arg(0), options).map_err(bad)?;
    if let Host::Unix(path) = e.host {
        return Ok(vec![ListenAddr::Unix(weir_runtime::paths::path(path).into_owned())]);
    }
    let first = e.port.unwrap_or(80);
    let last = e.last_port.unwrap_or(first);
    let ips: Vec<IpAddr> = match e.host {
        Host::Any => vec![IpAddr::V4(Ipv4Addr::UNSPECIFIED)],
        Host::V4(a) => vec![IpAddr::V4(a)],
        Host::V6(a) => vec![IpAddr::V6(a)],
        Host::Name(_) => resolve(e.host_text).map_err(|why| bad(&why))?,
        Host::Unix(_) => Vec::new(),
    };
    let ports = first..=last;
    Ok(ports
        .flat_map(|p| ips.iter().map(move |ip| ListenAddr::Ip(SocketAddr::new(*ip, p))))
        .collect())
}

fn resolve(name: &[u8]) -> Result<Vec<IpAddr>, String> {
    use std::net::ToSocketAddrs;
    let name = String::from_utf8_lossy(name).into_owned();
    match (name.as_str(), 0u16).to_socket_addrs() {
        Ok(found) => {
            let mut ips: Vec<IpAddr> = found.map(|a| a.ip()).collect();
            ips.dedup();
            Ok(ips)
        }
        Err(_) => Err("host not found".into()),
    }
}

fn option(d: &Directive, i: usize, l: &mut Listen) -> ConfResult {
    match d.arg(i) {
        b"default_server" | b"default" => {
            l.default_server = true;
            return Ok(());
        }
        b"proxy_protocol" => {
            l.proxy_protocol = true;
            return Ok(());
        }
        b"bind" => {}
        b"deferred" => l.options.deferred = true,
        b"reuseport" => l.options.reuseport = true,
        b"multipath" => return Err(later(d, i, "multipath TCP")),
        b"ssl" => {
            l.ssl = true;
            return Ok(());
        }
        _ => return valued_option(d, i, l),
    }
    l.set = true;
    l.bind = true;
    Ok(())
}

/// The error for a parameter that needs what is not built yet (`what`).
pub fn later(d: &Directive, i: usize, what: &str) -> Diagnostic {
    let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
    let mut e = d.bad(i, format!("the \"{shown}\" parameter requires {what}"));
    e.hint = Some(format!("this version of Weir has no {what} yet; remove the parameter"));
    e
}

fn valued_option(d: &Directive, i: usize, l: &mut Listen) -> ConfResult {
    let shown = String::from_utf8_lossy(d.arg(i)).into_owned();
    let Some((key, value)) = shown.split_once('=') else {
        return Err(d.bad(i, format!("invalid parameter \"{shown}\"")));
    };
    let bytes = value.as_bytes();
    let bad = |what: &str| d.bad(i, format!("invalid {what} \"{value}\""));
    l.set = true;
    l.bind = true;
    let o = &mut l.options;
    match key {
        "backlog" => {
            let n = units::parse_int(bytes).filter(|n| *n > 0 && *n <= i32::MAX as u64);
            o.backlog = n.ok_or_else(|| bad("backlog"))? as i32;
        }
        "rcvbuf" => {
            o.rcvbuf = Some(units::parse_size(bytes).ok_or_else(|| bad("rcvbuf"))? as usize)
        }
        "sndbuf" => {
            o.sndbuf = Some(units::parse_size(bytes).ok_or_else(|| bad("sndbuf"))? as usize)
        }
        "fastopen" => {
            let n = units::parse_int(bytes).ok_or_else(|| bad("fastopen"))?;
            o.fastopen = Some(n as u32);
        }
        "ipv6only" => {
            o.ipv6only = match value {
                "on" => true,
                "off" => false,
                _ => return Err(bad("ipv6only flags")),
            }
        }
        "so_keepalive" => keepalive(value, o).ok_or_else(|| bad("so_keepalive value:"))?,
        "setfib" | "accept_filter" => {
            return Err(d.bad(i, format!("{key} is not supported on this platform, ignored")))
        }
        _ => return Err(d.bad(i, format!("invalid parameter \"{shown}\""))),
    }
    Ok(())
}

fn keepalive(value: &str, o: &mut ListenOptions) -> Option<()> {
    match value {
        "on" => o.keepalive.on = Some(true),
        "off" => o.keepalive.on = Some(false),
        _ => {
            let mut parts = value.splitn(3, ':').map(str::as_bytes);
            let mut next = |parse: fn(&[u8]) -> Option<u64>| match parts.next() {
                None | Some(b"") => Some(0),
                Some(text) => parse(text),
            };
            o.keepalive.idle_secs = next(units::parse_sec)? as u32;
            o.keepalive.interval_secs = next(units::parse_sec)? as u32;
            o.keepalive.count = next(units::parse_int)? as u32;
            let k = &o.keepalive;
            if k.idle_secs == 0 && k.interval_secs == 0 && k.count == 0 {
                return None;
            }
            o.keepalive.on = Some(true);
        }
    }
    Some(())
}

/// `server_name NAME …`; `reached` finds the block being read.
pub fn set_server_name<S: Session>(
    cf: &mut Cf,
    d: &Directive,
    reached: fn(&mut Cf) -> &mut Reached,
) -> ConfResult {
    for i in 0..d.args.len() {
        let text = d.arg(i).to_vec();
        let shown = String::from_utf8_lossy(&text).into_owned();
        if text.first() == Some(&b'~') {
            if text.len() == 1 {
                return Err(d.bad(i, format!("empty regex in server name \"{shown}\"")));
            }
            let regex = named_regex::<S>(cf, d, i, &text[1..], true)?;
            reached(cf).names.push(ServerName { name: text, regex: Some(regex) });
            continue;
        }
        let mut name = text;
        if name == b"$hostname" {
            name = weir_runtime::process::hostname().into_bytes();
        }
        if name.contains(&b'/') {
            cf.warn(d, format!("server name \"{shown}\" has suspicious symbols"));
        }
        if name.contains(&0) || (name.is_empty() && d.args.is_empty()) {
            return Err(d.bad(i, format!("server name \"{shown}\" is invalid")));
        }
        name.make_ascii_lowercase();
        reached(cf).names.push(ServerName { name, regex: None });
    }
    let core = reached(cf);
    if let Some(first) = core.names.first() {
        let first = &first.name;
        core.primary_name = first.strip_prefix(b".").unwrap_or(first).to_vec();
    }
    Ok(())
}

/// An address being gathered over the servers that name it.
struct Gathered {
    listen: Listen,
    addr: AddrConf,
    has_default: bool,
    has_options: bool,
    servers: usize,
}

/// Joins the servers' addresses into sockets. Specific addresses share the wildcard's socket on
/// the same port unless they asked for one of their own.
pub fn gather(cf: &mut Cf, servers: &[&Reached]) -> ConfResult<Vec<ListenConf>> {
    let mut all: Vec<Gathered> = Vec::new();
    let mut places: HashMap<ListenAddr, usize> = HashMap::new();
    for (id, server) in servers.iter().enumerate() {
        for l in &server.listens {
            let at = *places.entry(l.addr.clone()).or_insert_with(|| {
                all.push(fresh(l, id));
                all.len() - 1
            });
            join(&mut all[at], l, id, server)?;
            add_names(cf, &mut all[at].addr, id, server, l)?;
        }
    }
    for g in &mut all {
        // The only server of an address is it under any name, also where a client that is verified
        // asks for another name in its request than in its hello. (A regular expression may capture.)
        if g.servers == 1 && g.addr.regexes.is_empty() {
            g.addr.names = HostMap::new();
        }
    }
    Ok(sockets(all))
}

fn fresh(l: &Listen, id: usize) -> Gathered {
    Gathered {
        addr: AddrConf {
            addr: l.addr.clone(),
            default: id,
            names: HostMap::new(),
            regexes: Vec::new(),
            proxy_protocol: false,
            ssl: false,
            http2: false,
            preface: false,
        },
        listen: l.clone(),
        has_default: false,
        has_options: false,
        servers: 0,
    }
}

fn join(g: &mut Gathered, l: &Listen, id: usize, server: &Reached) -> ConfResult {
    let fail = |text: String| {
        let e = Diagnostic::emerg(text).point(l.span);
        Err(match server.at {
            Some(at) => e.at(at),
            None => e,
        })
    };
    g.servers += 1;
    if l.set {
        if g.has_options && g.servers > 1 {
            return fail(format!("duplicate listen options for {}", l.addr));
        }
        g.listen.options = l.options.clone();
        g.listen.bind |= l.bind;
        g.has_options = true;
    }
    if l.default_server {
        if g.has_default {
            return fail(format!("a duplicate default server for {}", l.addr));
        }
        g.has_default = true;
        g.addr.default = id;
    }
    g.addr.proxy_protocol |= l.proxy_protocol;
    g.addr.ssl |= l.ssl;
    g.addr.http2 |= l.http2;
    Ok(())
}

fn add_names(
    cf: &mut Cf,
    addr: &mut AddrConf,
    id: usize,
    server: &Reached,
    l: &Listen,
) -> ConfResult {
    let unnamed = [ServerName { name: Vec::new(), regex: None }];
    let names: &[ServerName] = match server.names.is_empty() {
        true => &unnamed,
        false => &server.names,
    };
    for n in names {
        if let Some((regex, vars)) = &n.regex {
            addr.regexes.push((regex.clone(), id, vars.clone()));
            continue;
        }
        let shown = String::from_utf8_lossy(&n.name).into_owned();
        match addr.names.insert(&n.name, id) {
            Ok(()) => {}
            Err(weir_script::lookup::InsertError::Conflict(_)) => {
                let text = format!("conflicting server name \"{shown}\" on {}, ignored", l.addr);
                cf.warnings.push(Diagnostic::warn(text).point(l.span));
            }
            Err(weir_script::lookup::InsertError::Invalid) => {
                let text = format!("invalid server name or wildcard \"{shown}\" on {}", l.addr);
                let e = Diagnostic::emerg(text).point(l.span);
                return Err(match server.at {
                    Some(at) => e.at(at),
                    None => e,
                });
            }
        }
    }
    Ok(())
}

fn sockets(all: Vec<Gathered>) -> Vec<ListenConf> {
    let mut out: Vec<ListenConf> = Vec::new();
    let mut wildcards: HashMap<ListenAddr, usize> = HashMap::new();
    let (wild, rest): (Vec<Gathered>, Vec<Gathered>) =
        all.into_iter().partition(|g| g.listen.wildcard);
    for g in wild {
        wildcards.insert(g.listen.addr.clone(), out.len());
        out.push(ListenConf {
            addr: g.listen.addr.clone(),
            options: g.listen.options,
            addrs: vec![g.addr],
            part: 0,
            span: g.listen.span,
        });
    }
    for g in rest {
        let host = match g.listen.bind {
            true => None,
            false => wildcards.get(&g.listen.addr.wildcard()),
        };
        match host {
            Some(at) => out[*at].addrs.push(g.addr),
            None => out.push(ListenConf {
                addr: g.listen.addr.clone(),
                options: g.listen.options,
                addrs: vec![g.addr],
                part: 0,
                span: g.listen.span,
            }),
        }
    }
    // The socket's own stays the first; the others are looked up by address.
    out.iter_mut().for_each(|l| l.addrs[1..].sort_by(|a, b| a.addr.cmp(&b.addr)));
    out
}
