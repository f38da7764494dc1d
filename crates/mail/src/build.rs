//! From the `mail` block to its part of a generation.

use crate::conf::{MailBlock, MailMain, MailSrv};
use crate::generation::{Mail, MailConf, ServerConf};
use crate::module::{Handler, MailModule};
use std::sync::Arc;
use weir_core::block::{self, Build, Made, Place};
use weir_core::logger::ErrorLog;
use weir_module::{ArgsExt, Cf, ConfResult, Context, Diagnostic, Directive, Slots};
use weir_wire::mail::Protocol;

/// The `mail` block.
pub fn set_mail(cf: &mut Cf, d: &Directive, modules: &'static [&'static MailModule]) -> ConfResult {
    if cf.get::<MailBlock>().levels.is_some() {
        return Err(d.error("is duplicate"));
    }
    let (levels, walked) = block::read(cf, d, Context::MAIL, modules, |cf| {
        let main = cf.get::<MailMain>();
        main.modules = modules;
        modules.iter().for_each(|m| main.vars.add(m.variables));
    });
    cf.get::<MailBlock>().levels = Some(levels);
    walked
}

/// Merges what the configuration said and makes the protocol's part of a generation, with its sockets;
/// nothing without a `mail` block.
pub fn finish(cf: &mut Cf, error_log: &Arc<ErrorLog>) -> ConfResult<Option<Made>> {
    let Some(mut levels) = cf.get::<MailBlock>().levels.take() else { return Ok(None) };
    let modules = levels.main.get_mut::<MailMain>().modules;
    let assemble = |mut main: Slots, slots: Vec<Slots>| {
        let vars = main.get_mut::<MailMain>().vars.resolve()?;
        let servers: Vec<Arc<ServerConf>> = slots
            .into_iter()
            .map(|s| server(modules, s).map(Arc::new))
            .collect::<ConfResult<_>>()?;
        let bases = servers.iter().map(|s| Arc::clone(&s.base)).collect();
        Ok((MailConf { main, servers, vars }, bases))
    };
    let part = ("mail", Mail::make as weir_core::generation::View);
    block::finish(cf, levels, error_log, modules, assemble, part).map(Some)
}

fn server(modules: &[&MailModule], slots: Slots) -> ConfResult<ServerConf> {
    let active = |handlers: &mut dyn Iterator<Item = Handler>| {
        handlers.filter(|h| (h.active)(&slots)).collect::<Vec<Handler>>()
    };
    let accepted = active(&mut modules.iter().filter_map(|m| m.accepted));
    let logged = active(&mut modules.iter().filter_map(|m| m.logged));
    let core = slots.share::<MailSrv>();
    let settings = Arc::new(core.settings(protocol_of(&slots)?));
    // What is said in a session waits for an answer: nothing is to lie in the system meanwhile.
    let base = block::base_of(slots, true);
    Ok(ServerConf { base, core, settings, accepted, logged })
}

/// The protocol that a server speaks.
///
/// # Errors
///
/// Neither `protocol` nor a port says so, in nginx's words.
pub(crate) fn protocol_of(server: &Slots) -> ConfResult<Protocol> {
    server.get::<MailSrv>().protocol.ok_or_else(|| {
        let mut e = Diagnostic::emerg("unknown mail protocol for server".to_string());
        e.hint = Some("write \"protocol imap\", \"protocol pop3\" or \"protocol smtp\"".into());
        match server.get::<Place>().reached.at {
            Some(at) => e.at(at),
            None => e,
        }
    })
}

/// Checks what the core module says of servers and looks up its name servers.
pub(crate) fn build(b: &mut Build) -> ConfResult {
    b.servers.iter().try_for_each(|server| protocol_of(server).map(|_| ()))?;
    block::look_up_resolvers(b)
}
