//! From the `stream` block to its part of a generation.

use crate::conf::{StreamBlock, StreamMain, StreamSrv};
use crate::generation::{ServerConf, Stream, StreamConf};
use crate::module::{Phase, StreamModule};
use crate::status_zone::ZonesMain;
use crate::Session;
use std::sync::Arc;
pub use weir_core::block::Build;
use weir_core::block::{self, Made, Place};
use weir_core::common::Common;
use weir_core::logger::ErrorLog;
use weir_module::{ArgsExt, Cf, ConfResult, Context, Directive, Slots};

/// The `stream` block.
pub fn set_stream(
    cf: &mut Cf,
    d: &Directive,
    modules: &'static [&'static StreamModule],
) -> ConfResult {
    if cf.get::<StreamBlock>().levels.is_some() {
        return Err(d.error("is duplicate"));
    }
    let (levels, walked) = block::read(cf, d, Context::STREAM, modules, |cf| {
        let main = cf.get::<StreamMain>();
        main.modules = modules;
        main.vars.add(Common::<Session>::VARIABLES);
        modules.iter().for_each(|m| main.vars.add(m.variables));
    });
    cf.get::<StreamBlock>().levels = Some(levels);
    walked
}

/// Merges what the configuration said and makes the protocol's part of a generation, with its sockets;
/// nothing without a `stream` block.
pub fn finish(cf: &mut Cf, error_log: &Arc<ErrorLog>) -> ConfResult<Option<Made>> {
    let Some(mut levels) = cf.get::<StreamBlock>().levels.take() else { return Ok(None) };
    let modules = levels.main.get_mut::<StreamMain>().modules;
    let assemble = |mut main: Slots, slots: Vec<Slots>| {
        let vars = main.get_mut::<StreamMain>().vars.resolve()?;
        let zones = main.get_mut::<ZonesMain>();
        let servers: Vec<Arc<ServerConf>> =
            slots.into_iter().map(|s| Arc::new(server(modules, zones, s))).collect();
        let bases = servers.iter().map(|s| Arc::clone(&s.base)).collect();
        Ok((StreamConf { main, servers, vars }, bases))
    };
    let part = ("stream", Stream::make as weir_core::generation::View);
    block::finish(cf, levels, error_log, modules, assemble, part).map(Some)
}

fn server(modules: &[&StreamModule], zones: &mut ZonesMain, mut slots: Slots) -> ServerConf {
    let (zone, handshakes) = zones.of(&slots).unzip();
    slots.get_mut::<Place>().base.handshakes = handshakes;
    let mut phases: [Vec<crate::module::Handler>; Phase::COUNT] = Default::default();
    for h in modules.iter().flat_map(|m| m.phases).filter(|h| (h.active)(&slots)) {
        phases[h.phase as usize].push(h.handler);
    }
    let prereaders = modules.iter().filter_map(|m| m.prereader);
    let prereaders = prereaders.filter(|p| (p.active)(&slots)).collect();
    let core = slots.share::<StreamSrv>();
    let base = block::base_of(slots, *core.tcp_nodelay);
    let content = core.content;
    ServerConf { base, core, phases, prereaders, content, zone }
}
