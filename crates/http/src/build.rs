//! From the `http` block to a generation: servers and locations are read, merged, joined with
//! their handlers and filters, and their addresses gathered.

use crate::conf::{CoreLoc, CoreMain, CoreSrv};
use crate::generation::{self, HttpConf, LocationConf, ServerConf};
use crate::h2::conf::H2Srv;
use crate::location::{Entry, LocationSet};
use crate::module::{HttpModule, Phase, Reach};
use crate::request::Request;
use crate::vars::named_regex;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use weir_core::common::Common;
use weir_core::generation::{ListenConf, PartConf, Virtual};
use weir_core::listen;
use weir_core::logger::ErrorLog;
use weir_core::registry::NamedRegex;
use weir_module::{ArgsExt, Cf, ConfResult, Context, Diagnostic, Directive, Level, Slots};

/// What kind of location it is, by its modifier.
pub enum Kind {
    Prefix,
    Exact,
    NoRegex,
    Regex(Box<NamedRegex>),
    Named,
    /// `if`, `limit_except`, and a server's outermost.
    Unnamed,
}

/// The kinds of which no two may have a name in common.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub enum Sort {
    Prefix,
    Exact,
    Named,
}

/// A location as read.
pub struct LocBuild {
    pub id: usize,
    pub name: Vec<u8>,
    pub kind: Kind,
    pub slots: Slots,
    pub children: Vec<LocBuild>,
}

/// A server as read.
pub struct ServerBuild {
    pub srv: Slots,
    pub root: LocBuild,
}

/// What a module's build step works on: everything merged, nothing shared yet.
pub struct Build<'a> {
    pub cf: &'a mut Cf,
    /// The `http` block's own location level, which others have inherited from.
    pub outer: &'a Slots,
    pub main: &'a mut Slots,
    pub servers: &'a mut [Slots],
    pub locations: &'a mut [Slots],
}

/// The `http` block.
pub fn set_http(cf: &mut Cf, d: &Directive, modules: &'static [&'static HttpModule]) -> ConfResult {
    if cf.levels.main.find::<CoreMain>().is_some() {
        return Err(d.error("is duplicate"));
    }
    let main = cf.get::<CoreMain>();
    main.modules = modules;
    main.vars.add(Common::<Request>::VARIABLES);
    for m in modules {
        main.vars.add(m.variables);
    }
    for m in modules {
        for v in m.slots.iter() {
            match v.level {
                Level::Global => {}
                Level::Main => (v.create)(&mut cf.levels.main),
                Level::Server => (v.create)(&mut cf.levels.server),
                Level::Location => (v.create)(&mut cf.levels.location),
            }
        }
        if let Some(prepare) = m.prepare {
            prepare(cf)?;
        }
    }
    cf.walk(Context::HTTP, d.children())
}

pub fn next_location_id(cf: &mut Cf) -> usize {
    let main = cf.get::<CoreMain>();
    main.location_count += 1;
    main.location_count - 1
}

/// `server { … }`
pub fn set_server(cf: &mut Cf, d: &Directive) -> ConfResult {
    let id = next_location_id(cf);
    let srv = std::mem::take(&mut cf.levels.server);
    let loc = std::mem::take(&mut cf.levels.location);
    let walked = cf.walk(Context::SERVER, d.children());
    let srv = std::mem::replace(&mut cf.levels.server, srv);
    let mut slots = std::mem::replace(&mut cf.levels.location, loc);
    walked?;
    let core = slots.get_mut::<CoreLoc>();
    core.server_root = Some(id);
    let children = std::mem::take(&mut core.children);
    core.taken = HashSet::new();
    let root = LocBuild { id, name: Vec::new(), kind: Kind::Unnamed, slots, children };
    let mut server = ServerBuild { srv, root };
    let core = server.srv.get_mut::<CoreSrv>();
    if core.reached.listens.is_empty() {
        core.reached.listens.push(listen::default_listen(d));
    }
    core.reached.close(d);
    cf.get::<CoreMain>().servers.push(server);
    Ok(())
}

/// Reads a block into a location of its own below the one being read.
fn nested(
    cf: &mut Cf,
    d: &Directive,
    context: Context,
    name: Vec<u8>,
    kind: Kind,
) -> ConfResult<usize> {
    let id = next_location_id(cf);
    let outer = std::mem::take(&mut cf.levels.location);
    let core = cf.get::<CoreLoc>();
    core.name.clone_from(&name);
    core.is_named = matches!(kind, Kind::Named);
    core.is_regex = matches!(kind, Kind::Regex(_));
    core.is_exact = matches!(kind, Kind::Exact);
    core.in_block = true;
    let walked = cf.walk(context, d.children());
    let mut slots = std::mem::replace(&mut cf.levels.location, outer);
    walked?;
    let core = slots.get_mut::<CoreLoc>();
    core.taken = HashSet::new();
    let children = std::mem::take(&mut core.children);
    let build = LocBuild { id, name, kind, slots, children };
    cf.get::<CoreLoc>().children.push(build);
    Ok(id)
}

/// An `if` or `limit_except` block: a location without a name, entered by its number.
pub fn unnamed_location(cf: &mut Cf, d: &Directive, context: Context) -> ConfResult<usize> {
    let (name, regex, exact) = {
        let core = cf.get::<CoreLoc>();
        (core.name.clone(), core.is_regex, core.is_exact)
    };
    let id = nested(cf, d, context, name.clone(), Kind::Unnamed)?;
    if let Some(child) = cf.get::<CoreLoc>().children.last_mut() {
        let core = child.slots.get_mut::<CoreLoc>();
        core.name = name;
        core.unnamed = true;
        core.is_regex = regex;
        core.is_exact = exact;
    }
    Ok(id)
}

/// `location … { … }`
pub fn set_location(cf: &mut Cf, d: &Directive) -> ConfResult {
    let (kind, name) = location_kind(cf, d)?;
    let in_block = cf.context == Context::LOCATION;
    if in_block {
        check_nesting(cf, d, &kind, &name)?;
    }
    check_duplicate(cf, d, &kind, &name)?;
    nested(cf, d, Context::LOCATION, name, kind).map(|_| ())
}

fn location_kind(cf: &mut Cf, d: &Directive) -> ConfResult<(Kind, Vec<u8>)> {
    if d.args.len() == 2 {
        let name = d.arg(1).to_vec();
        return Ok(match d.arg(0) {
            b"=" => (Kind::Exact, name),
            b"^~" => (Kind::NoRegex, name),
            b"~" => regex_kind(cf, d, 1, false)?,
            b"~*" => regex_kind(cf, d, 1, true)?,
            _ => {
                let shown = String::from_utf8_lossy(d.arg(0)).into_owned();
                let mut e = d.bad(0, format!("invalid location modifier \"{shown}\""));
                e.hint = Some("the modifiers are =, ^~, ~ and ~*".into());
                return Err(e);
            }
        });
    }
    let name = d.arg(0);
    let glued = |prefix: &[u8]| name.strip_prefix(prefix).map(<[u8]>::to_vec);
    Ok(match name.first() {
        Some(b'=') => (Kind::Exact, name[1..].to_vec()),
        Some(b'^') if name.starts_with(b"^~") => (Kind::NoRegex, glued(b"^~").unwrap_or_default()),
        Some(b'~') if name.starts_with(b"~*") => regex_kind_of(cf, d, 0, &name[2..], true)?,
        Some(b'~') => regex_kind_of(cf, d, 0, &name[1..], false)?,
        Some(b'@') => (Kind::Named, name.to_vec()),
        _ => (Kind::Prefix, name.to_vec()),
    })
}

fn regex_kind(cf: &mut Cf, d: &Directive, i: usize, caseless: bool) -> ConfResult<(Kind, Vec<u8>)> {
    let pattern = d.arg(i).to_vec();
    regex_kind_of(cf, d, i, &pattern, caseless)
}

fn regex_kind_of(
    cf: &mut Cf,
    d: &Directive,
    i: usize,
    pattern: &[u8],
    caseless: bool,
) -> ConfResult<(Kind, Vec<u8>)> {
    let regex = named_regex(cf, d, i, pattern, caseless)?;
    Ok((Kind::Regex(Box::new(regex)), pattern.to_vec()))
}

fn check_nesting(cf: &mut Cf, d: &Directive, kind: &Kind, name: &[u8]) -> ConfResult {
    let core = cf.get::<CoreLoc>();
    let shown = String::from_utf8_lossy(name).into_owned();
    let outer = String::from_utf8_lossy(&core.name).into_owned();
    if core.is_exact {
        return Err(d.fail(format!(
            "location \"{shown}\" cannot be inside the exact location \"{outer}\""
        )));
    }
    if core.is_named {
        return Err(d.fail(format!(
            "location \"{shown}\" cannot be inside the named location \"{outer}\""
        )));
    }
    if matches!(kind, Kind::Named) {
        return Err(d.fail(format!("named location \"{shown}\" can be on the server level only")));
    }
    let regex = matches!(kind, Kind::Regex(_));
    if !regex && !core.is_regex && !name.starts_with(&core.name) {
        return Err(d.fail(format!("location \"{shown}\" is outside location \"{outer}\"")));
    }
    Ok(())
}

fn check_duplicate(cf: &mut Cf, d: &Directive, kind: &Kind, name: &[u8]) -> ConfResult {
    let sort = match kind {
        Kind::Prefix | Kind::NoRegex => Sort::Prefix,
        Kind::Exact => Sort::Exact,
        Kind::Named => Sort::Named,
        Kind::Regex(_) | Kind::Unnamed => return Ok(()),
    };
    if !cf.get::<CoreLoc>().taken.insert((sort, name.to_vec())) {
        let shown = String::from_utf8_lossy(name).into_owned();
        return Err(d.fail(format!("duplicate location \"{shown}\"")));
    }
    Ok(())
}

/// Everything of one level after the merge, before it is shared.
struct Merged {
    names: Vec<Vec<u8>>,
    /// exact, no_regex, named
    flags: Vec<(bool, bool, bool)>,
    sets: Vec<Vec<Entry>>,
}

/// Merges what the configuration said and makes the protocol's part of a generation, with its sockets;
/// nothing without an `http` block.
pub fn finish(cf: &mut Cf, error_log: &Arc<ErrorLog>) -> ConfResult<Option<Made>> {
    let mut main = std::mem::take(&mut cf.levels.main);
    if main.find::<CoreMain>().is_none() {
        return Ok(None);
    }
    let modules = main.get::<CoreMain>().modules;
    let http_srv = std::mem::take(&mut cf.levels.server);
    let mut http_loc = std::mem::take(&mut cf.levels.location);
    let outer_log = http_loc.get_mut::<CoreLoc>();
    if !outer_log.error_log.is_set() {
        outer_log.error_log.set(Arc::clone(error_log));
    }
    let core = main.get_mut::<CoreMain>();
    let count = core.location_count;
    let builds = std::mem::take(&mut core.servers);
    let mut merged = Merged {
        names: vec![Vec::new(); count],
        flags: vec![(false, false, false); count],
        sets: (0..count).map(|_| Vec::new()).collect(),
    };
    let mut locations: Vec<Slots> = (0..count).map(|_| Slots::default()).collect();
    let mut servers = Vec::new();
    let mut roots = Vec::new();
    for mut b in builds {
        cf.go_on()?;
        let at = b.srv.get_mut::<CoreSrv>().reached.at;
        let place = |e: Diagnostic| match (e.at, at) {
            (None, Some(at)) => e.at(at),
            _ => e,
        };
        merge_level(modules, Level::Server, &mut b.srv, &http_srv).map_err(place)?;
        roots.push(b.root.id);
        merge_location(modules, b.root, &http_loc, &mut locations, &mut merged).map_err(place)?;
        servers.push(b.srv);
    }
    cf.levels.main = main;
    for m in modules {
        if let Some(build) = m.build {
            cf.go_on_after_long()?;
            let mut main = std::mem::take(&mut cf.levels.main);
            let done = build(&mut Build {
                cf,
                outer: &http_loc,
                main: &mut main,
                servers: &mut servers,
                locations: &mut locations,
            });
            cf.levels.main = main;
            done?;
        }
    }
    let parts = Parts { servers, roots, locations, merged };
    assemble(cf, modules, parts).map(Some)
}

/// A protocol's part and the sockets that it listens on.
pub type Made = (PartConf, Vec<ListenConf>);

/// What the merge has left, to be made into a part of a generation.
struct Parts {
    servers: Vec<Slots>,
    /// Each server's outermost location.
    roots: Vec<usize>,
    locations: Vec<Slots>,
    merged: Merged,
}

fn merge_level(
    modules: &[&HttpModule],
    level: Level,
    child: &mut Slots,
    parent: &Slots,
) -> ConfResult {
    for v in modules.iter().flat_map(|m| m.slots.iter()).filter(|v| v.level == level) {
        (v.merge)(child, parent)?;
    }
    Ok(())
}

fn merge_location(
    modules: &[&HttpModule],
    build: LocBuild,
    parent: &Slots,
    out: &mut [Slots],
    merged: &mut Merged,
) -> ConfResult {
    let LocBuild { id, name, kind, mut slots, children } = build;
    merge_level(modules, Level::Location, &mut slots, parent)?;
    merged.names[id] = name;
    merged.flags[id] =
        (matches!(kind, Kind::Exact), matches!(kind, Kind::NoRegex), matches!(kind, Kind::Named));
    for child in children {
        let entry = entry_of(&child);
        let child_id = child.id;
        let child_kind = merge_child(modules, child, &slots, out, merged)?;
        if let Some(mut e) = entry {
            e.regex = child_kind.map(|r| *r);
            e.auto_redirect = out[child_id].get::<CoreLoc>().auto_redirect;
            merged.sets[id].push(e);
        }
    }
    out[id] = slots;
    Ok(())
}

fn merge_child(
    modules: &[&HttpModule],
    mut child: LocBuild,
    parent: &Slots,
    out: &mut [Slots],
    merged: &mut Merged,
) -> ConfResult<Option<Box<NamedRegex>>> {
    let regex = match std::mem::replace(&mut child.kind, Kind::Unnamed) {
        Kind::Regex(r) => Some(r),
        other => {
            child.kind = other;
            None
        }
    };
    merge_location(modules, child, parent, out, merged)?;
    Ok(regex)
}

fn entry_of(child: &LocBuild) -> Option<Entry> {
    let exact = matches!(child.kind, Kind::Exact);
    match child.kind {
        Kind::Named | Kind::Unnamed => None,
        _ => Some(Entry {
            name: child.name.clone(),
            id: child.id,
            exact,
            auto_redirect: false,
            regex: None,
        }),
    }
}

fn assemble(
    cf: &mut Cf,
    modules: &'static [&'static HttpModule],
    parts: Parts,
) -> ConfResult<Made> {
    cf.go_on_after_long()?;
    let Parts { servers, roots, locations, merged } = parts;
    let mut main = std::mem::take(&mut cf.levels.main);
    let vars = main.get_mut::<CoreMain>().vars.resolve()?;
    let Merged { names, flags, sets } = merged;
    let mut confs = Vec::with_capacity(locations.len());
    let parts = locations.into_iter().zip(names).zip(flags.iter().zip(sets));
    for (id, ((slots, name), (flags, entries))) in parts.enumerate() {
        confs.push(Arc::new(location_conf(modules, id, slots, name, *flags, entries)));
    }
    let mut named: HashMap<usize, Vec<(Vec<u8>, usize)>> = HashMap::new();
    for c in confs.iter().filter(|c| c.named) {
        if let Some(root) = c.core.server_root {
            named.entry(root).or_default().push((c.name.clone(), c.id));
        }
    }
    let mut out = Vec::with_capacity(servers.len());
    for (id, (mut slots, root)) in servers.into_iter().zip(roots).enumerate() {
        let base = base_of(&mut slots, &confs[root]);
        let core = slots.share::<CoreSrv>();
        let named = named.remove(&root).unwrap_or_default();
        let base = Arc::new(Virtual { slots, ..base });
        out.push(Arc::new(ServerConf { id, base, core, location: root, named }));
    }
    let reached: Vec<_> = out.iter().map(|s| &s.core.reached).collect();
    let mut sockets = listen::gather(cf, &reached)?;
    for addr in sockets.iter_mut().flat_map(|s| &mut s.addrs) {
        addr.preface = addr.http2 || out[addr.default].base.http2;
    }
    let servers = out.iter().map(|s| Arc::clone(&s.base)).collect();
    let http = HttpConf { main, servers: out, locations: confs, vars };
    Ok((
        PartConf { protocol: "http", servers, shared: Arc::new(http), view: generation::view },
        sockets,
    ))
}

/// What of a server is needed before it is known what a client asks.
fn base_of(slots: &mut Slots, location: &LocationConf) -> Virtual {
    let http2 = *slots.get::<H2Srv>().enable;
    let core = slots.get_mut::<CoreSrv>();
    Virtual {
        handshake_timeout_ms: *core.client_header_timeout,
        http2,
        tcp_nodelay: *location.core.tcp_nodelay,
        error_log: Arc::clone(&location.error_log),
        resolver: (*location.core.resolver).clone(),
        resolver_timeout_ms: *location.core.resolver_timeout,
        ..std::mem::take(&mut core.base)
    }
}

fn location_conf(
    modules: &[&HttpModule],
    id: usize,
    slots: Slots,
    name: Vec<u8>,
    flags: (bool, bool, bool),
    entries: Vec<Entry>,
) -> LocationConf {
    let core = slots.share::<CoreLoc>();
    let mut phases: [Vec<crate::module::Handler>; Phase::COUNT] = Default::default();
    for h in modules.iter().flat_map(|m| m.phases.iter()) {
        if (h.active)(&slots) {
            phases[h.phase as usize].push(h.handler);
        }
    }
    let body_on_demand = modules.iter().all(|m| match &m.filter {
        Some(f) if f.body.is_some() => m.body_on_demand || !(f.active)(&slots),
        _ => true,
    });
    let filters: Vec<_> =
        modules.iter().filter_map(|m| m.filter.as_ref()).filter(|f| (f.active)(&slots)).collect();
    let of_parts = || filters.iter().filter(|f| f.reach == Reach::Part);
    let before = filters.iter().take_while(|f| f.reach != Reach::Whole);
    LocationConf {
        id,
        name,
        phases,
        header_filters: filters.iter().filter_map(|f| f.header).collect(),
        body_filters: filters.iter().filter_map(|f| f.body).collect(),
        part_header_filters: of_parts().filter_map(|f| f.header).collect(),
        part_body_filters: of_parts().filter_map(|f| f.body).collect(),
        postpone_at: before.filter(|f| f.body.is_some()).count(),
        body_on_demand,
        nested: LocationSet::new(entries),
        exact: flags.0,
        no_regex: flags.1,
        named: flags.2,
        limit_except: core.limit_except,
        error_log: Arc::clone(&core.error_log),
        core,
        slots,
    }
}
