//! From the `http` block to a generation: servers and locations are read, merged, joined with
//! their handlers and filters, and their addresses gathered.

use crate::conf::{CoreLoc, CoreMain, CoreSrv};
use crate::counted::Zones;
use crate::generation::{self, HttpConf, LocationConf, ServerConf};
use crate::h2::conf::H2Srv;
use crate::location::set::{Entry, LocationSet};
use crate::module::{HttpModule, Modules};
use crate::plan::make::Plans;
use crate::reading::{Here, Kind, LocBuild, ServerBuild, Sort};
use crate::request::Request;
use crate::status_zone::ZonesMain;
use crate::vars::named_regex;
use std::sync::Arc;
use weir_core::common::Common;
use weir_core::generation::{ListenConf, PartConf, Virtual};
use weir_core::listen;
use weir_core::logger::ErrorLog;
use weir_core::registry::NamedRegex;
use weir_module::{ArgsExt, Cf, ConfResult, Context, Diagnostic, Directive, Heirs, Level, Slots};
use weir_runtime::paths::{caseless, IGNORES_CASE};

pub use crate::module::Build;

/// The location whose block is being read; a server's or `http`'s own level has no name.
pub fn here(cf: &mut Cf) -> &mut Here {
    &mut cf.get::<CoreMain>().here
}

/// The `http` block.
pub fn set_http(cf: &mut Cf, d: &Directive, modules: &'static [&'static HttpModule]) -> ConfResult {
    if cf.levels.main.find::<CoreMain>().is_some() {
        return Err(d.error("is duplicate"));
    }
    cf.get::<Modules>().0 = modules;
    let main = cf.get::<CoreMain>();
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

pub(crate) fn next_location_id(cf: &mut Cf) -> usize {
    let main = cf.get::<CoreMain>();
    main.location_count += 1;
    main.location_count - 1
}

/// `server { … }`
pub(crate) fn set_server(cf: &mut Cf, d: &Directive) -> ConfResult {
    let id = next_location_id(cf);
    let srv = std::mem::take(&mut cf.levels.server);
    let loc = std::mem::take(&mut cf.levels.location);
    let walked = cf.walk(Context::SERVER, d.children());
    let srv = std::mem::replace(&mut cf.levels.server, srv);
    let slots = std::mem::replace(&mut cf.levels.location, loc);
    let children = std::mem::take(here(cf)).children;
    walked?;
    let kind = Kind::Unnamed;
    let root = LocBuild { id, name: Vec::new(), kind, unnamed: false, slots, children };
    let mut server = ServerBuild { srv, root };
    let core = server.srv.get_mut::<CoreSrv>();
    if core.reached.listens.is_empty() && core.left_out {
        let e = d
            .fail("the server listens by QUIC alone, which this version of Weir does not have yet");
        return Err(e.hint("write \"listen 443 ssl;\" beside it".to_string()));
    }
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
    let inner = Here {
        name: name.clone(),
        is_named: matches!(kind, Kind::Named),
        is_regex: matches!(kind, Kind::Regex(_)),
        is_exact: matches!(kind, Kind::Exact),
        ..Here::default()
    };
    let around = std::mem::replace(here(cf), inner);
    let walked = cf.walk(context, d.children());
    let slots = std::mem::replace(&mut cf.levels.location, outer);
    let children = std::mem::replace(here(cf), around).children;
    walked?;
    let unnamed = matches!(kind, Kind::Unnamed);
    here(cf).children.push(LocBuild { id, name, kind, unnamed, slots, children });
    Ok(id)
}

/// An `if` or `limit_except` block: a location without a name, entered by its number.
pub fn unnamed_location(cf: &mut Cf, d: &Directive, context: Context) -> ConfResult<usize> {
    let name = here(cf).name.clone();
    nested(cf, d, context, name, Kind::Unnamed)
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
            b"~" => regex_kind(cf, d, 1, IGNORES_CASE)?,
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
        Some(b'~') => regex_kind_of(cf, d, 0, &name[1..], IGNORES_CASE)?,
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
    let around = here(cf);
    let shown = String::from_utf8_lossy(name).into_owned();
    let outer = String::from_utf8_lossy(&around.name).into_owned();
    if around.is_exact {
        return Err(d.fail(format!(
            "location \"{shown}\" cannot be inside the exact location \"{outer}\""
        )));
    }
    if around.is_named {
        return Err(d.fail(format!(
            "location \"{shown}\" cannot be inside the named location \"{outer}\""
        )));
    }
    if matches!(kind, Kind::Named) {
        return Err(d.fail(format!("named location \"{shown}\" can be on the server level only")));
    }
    let regex = matches!(kind, Kind::Regex(_));
    if !regex && !around.is_regex && !caseless(name).starts_with(&caseless(&around.name)) {
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
    let one = match IGNORES_CASE && sort != Sort::Named {
        true => caseless(name),
        false => name.to_vec(),
    };
    if !here(cf).taken.insert((sort, one)) {
        let shown = String::from_utf8_lossy(name).into_owned();
        return Err(d.fail(format!("duplicate location \"{shown}\"")));
    }
    Ok(())
}

/// A location as it is merged, but for its slots.
#[derive(Default)]
struct Merged {
    name: Vec<u8>,
    exact: bool,
    no_regex: bool,
    named: bool,
    entries: Vec<Entry>,
}

/// A server's outermost location, and its named ones.
struct Root {
    location: usize,
    named: Vec<(Vec<u8>, usize)>,
}

/// What the merge makes of all servers, to be made into a generation.
struct Parts {
    servers: Vec<Slots>,
    roots: Vec<Root>,
    /// By the locations' numbers, as are those behind.
    locations: Vec<Slots>,
    merged: Vec<Merged>,
}

/// Merges what the configuration said and makes the protocol's part of a generation, with its sockets;
/// nothing without an `http` block.
pub fn finish(cf: &mut Cf, error_log: &Arc<ErrorLog>) -> ConfResult<Option<Made>> {
    let mut main = std::mem::take(&mut cf.levels.main);
    if main.find::<CoreMain>().is_none() {
        return Ok(None);
    }
    let modules = main.get::<Modules>().0;
    let http_srv = std::mem::take(&mut cf.levels.server);
    let mut http_loc = std::mem::take(&mut cf.levels.location);
    http_loc.get_mut::<CoreLoc>().complete(&cf.prefix, error_log);
    let core = main.get_mut::<CoreMain>();
    let count = core.location_count;
    let builds = std::mem::take(&mut core.servers);
    let mut parts = merge_all(cf, modules, builds, count, (&http_srv, &http_loc))?;
    cf.levels.main = main;
    for m in modules {
        if let Some(build) = m.build {
            cf.go_on_after_long()?;
            let mut main = std::mem::take(&mut cf.levels.main);
            let done = build(&mut Build {
                cf,
                outer: &http_loc,
                main: &mut main,
                servers: &mut parts.servers,
                locations: &parts.locations,
            });
            cf.levels.main = main;
            done?;
        }
    }
    assemble(cf, modules, parts).map(Some)
}

/// A protocol's part and the sockets that it listens on.
pub type Made = (PartConf, Vec<ListenConf>);

/// Merges servers and their locations with the `http` block's levels.
fn merge_all(
    cf: &mut Cf,
    modules: &[&'static HttpModule],
    builds: Vec<ServerBuild>,
    count: usize,
    outer: (&Slots, &Slots),
) -> ConfResult<Parts> {
    let vtables = || modules.iter().flat_map(|m| m.slots);
    let mut heirs = Heirs::new(&[Level::Server], vtables());
    let mut locations = Locations {
        heirs: Heirs::new(&[Level::Location], vtables()),
        slots: vec![Slots::default(); count],
        merged: (0..count).map(|_| Merged::default()).collect(),
    };
    let mut servers = Vec::with_capacity(builds.len());
    let mut roots = Vec::with_capacity(builds.len());
    for mut b in builds {
        cf.go_on()?;
        let at = b.srv.get_mut::<CoreSrv>().reached.at;
        let place = |e: Diagnostic| match (e.at, at) {
            (None, Some(at)) => e.at(at),
            _ => e,
        };
        heirs.fill(&mut b.srv, outer.0, false).map_err(place)?;
        let named = b.root.children.iter().filter(|c| matches!(c.kind, Kind::Named));
        let named = named.map(|c| (c.name.clone(), c.id)).collect();
        roots.push(Root { location: b.root.id, named });
        locations.merge(b.root, outer.1).map_err(place)?;
        servers.push(b.srv);
    }
    Ok(Parts { servers, roots, locations: locations.slots, merged: locations.merged })
}

/// All locations, as far as they have been merged.
struct Locations {
    heirs: Heirs,
    slots: Vec<Slots>,
    merged: Vec<Merged>,
}

impl Locations {
    /// Merges a location and what is inside; answers its expression, if it has one.
    fn merge(&mut self, build: LocBuild, outer: &Slots) -> ConfResult<Option<NamedRegex>> {
        let LocBuild { id, name, kind, unnamed, mut slots, children } = build;
        self.heirs.fill(&mut slots, outer, unnamed)?;
        let mut entries = Vec::with_capacity(children.len());
        for child in children {
            let is_found = !matches!(child.kind, Kind::Named | Kind::Unnamed);
            let child_id = child.id;
            let regex = self.merge(child, &slots)?;
            if is_found {
                let merged = &self.merged[child_id];
                let auto_redirect = self.slots[child_id].get::<CoreLoc>().auto_redirect;
                let (name, exact) = (merged.name.clone(), merged.exact);
                let said = None;
                entries.push(Entry { name, said, id: child_id, exact, auto_redirect, regex });
            }
        }
        self.merged[id] = Merged {
            name,
            exact: matches!(kind, Kind::Exact),
            no_regex: matches!(kind, Kind::NoRegex),
            named: matches!(kind, Kind::Named),
            entries,
        };
        self.slots[id] = slots;
        Ok(match kind {
            Kind::Regex(regex) => Some(*regex),
            _ => None,
        })
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
    let mut plans = Plans::new(modules);
    let parts = locations.into_iter().zip(merged).enumerate();
    let zones = main.get_mut::<ZonesMain>();
    let confs = parts.map(|(id, (slots, m))| {
        Arc::new(location_conf(&mut plans, zones.of_location(&slots), id, slots, m))
    });
    let confs: Vec<_> = confs.collect();
    let mut out = Vec::with_capacity(servers.len());
    for (id, (mut slots, Root { location, named })) in servers.into_iter().zip(roots).enumerate() {
        let base = base_of(&mut slots, &confs[location]);
        let core = slots.share::<CoreSrv>();
        let all = main.get_mut::<ZonesMain>();
        let zones = all.of_server(&slots, &core.reached);
        let handshakes = zones.as_ref().map(|zones| all.handshakes(zones));
        let base = Arc::new(Virtual { slots, handshakes, ..base });
        out.push(Arc::new(ServerConf { id, base, core, location, named, zones }));
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
    plans: &mut Plans,
    zones: Option<Zones>,
    id: usize,
    slots: Slots,
    merged: Merged,
) -> LocationConf {
    let core = slots.share::<CoreLoc>();
    LocationConf {
        id,
        name: merged.name,
        plan: plans.of(&slots),
        nested: LocationSet::new(merged.entries),
        exact: merged.exact,
        no_regex: merged.no_regex,
        named: merged.named,
        limit_except: core.limit_except,
        error_log: Arc::clone(&core.error_log),
        core,
        slots,
        zones,
    }
}
