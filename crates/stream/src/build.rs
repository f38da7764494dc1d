//! From the `stream` block to its part of a generation.

use crate::conf::{StreamBlock, StreamMain, StreamSrv};
use crate::generation::{self, ServerConf, StreamConf};
use crate::module::{Phase, StreamModule};
use crate::Session;
use std::sync::Arc;
use weir_core::common::Common;
use weir_core::generation::{ListenConf, PartConf, Virtual};
use weir_core::listen;
use weir_core::logger::ErrorLog;
use weir_module::{
    ArgsExt, Cf, ConfResult, Context, Diagnostic, Directive, Heirs, Level, Levels, Slots,
};

/// What a module's build step works on: everything merged. Slots that servers say nothing about are shared:
/// what is made of one is put into it by a `OnceLock`. `StreamSrv` alone is each server's own.
pub struct Build<'a> {
    /// For paths, files that are read, warnings, and whether this is a test.
    pub cf: &'a mut Cf,
    /// The `stream` block's own server level, which servers have inherited from.
    pub outer: &'a Slots,
    /// The main level's slots.
    pub main: &'a mut Slots,
    /// Each server's own slots and those that it has inherited.
    pub servers: &'a mut [Slots],
}

/// The `stream` block. The levels of other protocols' blocks are put aside while it is read.
pub fn set_stream(
    cf: &mut Cf,
    d: &Directive,
    modules: &'static [&'static StreamModule],
) -> ConfResult {
    if cf.get::<StreamBlock>().levels.is_some() {
        return Err(d.error("is duplicate"));
    }
    let outer = take_levels(cf);
    let main = cf.get::<StreamMain>();
    main.modules = modules;
    main.vars.add(Common::<Session>::VARIABLES);
    for m in modules {
        cf.get::<StreamMain>().vars.add(m.variables);
        for v in m.slots {
            match v.level {
                Level::Global => (v.create)(&mut cf.levels.global),
                Level::Main => (v.create)(&mut cf.levels.main),
                Level::Server => (v.create)(&mut cf.levels.server),
                Level::Location => (v.create)(&mut cf.levels.location),
            }
        }
    }
    let walked = cf.walk(Context::STREAM, d.children());
    let read = take_levels(cf);
    put_levels(cf, outer);
    cf.get::<StreamBlock>().levels = Some(read);
    walked
}

fn take_levels(cf: &mut Cf) -> Levels {
    Levels {
        global: Slots::default(),
        main: std::mem::take(&mut cf.levels.main),
        server: std::mem::take(&mut cf.levels.server),
        location: std::mem::take(&mut cf.levels.location),
    }
}

fn put_levels(cf: &mut Cf, levels: Levels) {
    cf.levels.main = levels.main;
    cf.levels.server = levels.server;
    cf.levels.location = levels.location;
}

/// `server { … }`. What modules keep by location in `http` is the server's here: the slots of both levels
/// are joined.
pub(crate) fn set_server(cf: &mut Cf, d: &Directive) -> ConfResult {
    let outer = take_levels(cf);
    cf.levels.main = outer.main;
    let walked = cf.walk(Context::STREAM_SERVER, d.children());
    let mut slots = std::mem::replace(&mut cf.levels.server, outer.server);
    slots.join(std::mem::replace(&mut cf.levels.location, outer.location));
    walked?;
    let core = slots.get_mut::<StreamSrv>();
    core.reached.close(d);
    if core.reached.listens.is_empty() {
        return Err(d.fail("no \"listen\" is defined for server"));
    }
    cf.get::<StreamMain>().servers.push(slots);
    Ok(())
}

/// A protocol's part and the sockets that it listens on.
pub(crate) type Made = (PartConf, Vec<ListenConf>);

/// Merges what the configuration said and makes the protocol's part of a generation, with its sockets;
/// nothing without a `stream` block.
pub fn finish(cf: &mut Cf, error_log: &Arc<ErrorLog>) -> ConfResult<Option<Made>> {
    let Some(levels) = cf.get::<StreamBlock>().levels.take() else { return Ok(None) };
    let outer = take_levels(cf);
    put_levels(cf, levels);
    let made = make(cf, error_log);
    put_levels(cf, outer);
    made.map(Some)
}

fn make(cf: &mut Cf, error_log: &Arc<ErrorLog>) -> ConfResult<Made> {
    let mut outer = std::mem::take(&mut cf.levels.server);
    outer.join(std::mem::take(&mut cf.levels.location));
    let core = outer.get_mut::<StreamSrv>();
    if !core.error_log.is_set() {
        core.error_log.set(Arc::clone(error_log));
    }
    let main = cf.get::<StreamMain>();
    let modules = main.modules;
    let mut servers = std::mem::take(&mut main.servers);
    let mut heirs =
        Heirs::new(&[Level::Server, Level::Location], modules.iter().flat_map(|m| m.slots));
    for slots in &mut servers {
        cf.go_on()?;
        let at = slots.get::<StreamSrv>().reached.at;
        let place = |e: Diagnostic| match (e.at, at) {
            (None, Some(at)) => e.at(at),
            _ => e,
        };
        heirs.fill(slots, &outer, false).map_err(place)?;
    }
    for build in modules.iter().filter_map(|m| m.build) {
        cf.go_on_after_long()?;
        let mut main = std::mem::take(&mut cf.levels.main);
        let done = build(&mut Build { cf, outer: &outer, main: &mut main, servers: &mut servers });
        cf.levels.main = main;
        done?;
    }
    assemble(cf, modules, servers)
}

fn assemble(
    cf: &mut Cf,
    modules: &'static [&'static StreamModule],
    slots: Vec<Slots>,
) -> ConfResult<Made> {
    let mut main = std::mem::take(&mut cf.levels.main);
    let vars = main.get_mut::<StreamMain>().vars.resolve()?;
    let servers: Vec<Arc<ServerConf>> =
        slots.into_iter().enumerate().map(|(id, s)| Arc::new(server(modules, id, s))).collect();
    let reached: Vec<_> = servers.iter().map(|s| &s.core.reached).collect();
    let sockets = listen::gather(cf, &reached)?;
    let bases = servers.iter().map(|s| Arc::clone(&s.base)).collect();
    let shared = Arc::new(StreamConf { main, servers, vars });
    Ok((PartConf { protocol: "stream", servers: bases, shared, view: generation::view }, sockets))
}

fn server(modules: &[&StreamModule], id: usize, mut slots: Slots) -> ServerConf {
    let mut phases: [Vec<crate::module::Handler>; Phase::COUNT] = Default::default();
    for h in modules.iter().flat_map(|m| m.phases).filter(|h| (h.active)(&slots)) {
        phases[h.phase as usize].push(h.handler);
    }
    let prereaders = modules.iter().filter_map(|m| m.prereader);
    let prereaders = prereaders.filter(|p| (p.active)(&slots)).collect();
    let core = slots.get_mut::<StreamSrv>();
    let content = core.content;
    let base = Virtual {
        tcp_nodelay: *core.tcp_nodelay,
        error_log: Arc::clone(&core.error_log),
        resolver: (*core.resolver).clone(),
        resolver_timeout_ms: *core.resolver_timeout,
        ..std::mem::take(&mut core.base)
    };
    let core = slots.share::<StreamSrv>();
    let base = Arc::new(Virtual { slots, ..base });
    ServerConf { id, base, core, phases, prereaders, content }
}
