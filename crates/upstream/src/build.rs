//! The upstreams of a protocol's block become groups, when the configuration is built.

use crate::asks::Asks;
use crate::balance::Method;
use crate::conf::{lossy, Declared, NamedHost, Server, UpstreamMain};
use crate::group::Group;
use crate::live::{Live, StateFile};
use crate::names::{self, Outer};
use crate::peers::Peers;
use std::sync::Arc;
use weir_core::{state_places, zones};
use weir_module::{Cf, ConfResult, Diagnostic, Slots};

/// Looks up every server and makes the groups of the block whose main level `main` is; `outer` is
/// what is set around them. Its name servers have been looked up.
///
/// # Errors
///
/// An upstream cannot be used as it is written.
pub fn build<S: Asks>(cf: &mut Cf, main: &mut Slots, outer: &Outer) -> ConfResult {
    let main = main.get_mut::<UpstreamMain>();
    main.declared.iter().try_for_each(check_port)?;
    let known = names::look_up_all(&main.declared);
    let mut groups = Vec::with_capacity(main.declared.len());
    for u in &main.declared {
        groups.push(Arc::new(build_group::<S>(u, outer, &known, &mut cf.warnings)?));
    }
    let mut zones = main.declared.iter().filter_map(|u| u.zone.as_ref());
    if let Some(zone) = zones.find(|zone| zones::lacks_size(cf, zone)) {
        return Err(zones::undeclared(zone));
    }
    for u in &mut main.declared {
        if let (Some(path), Some(_)) = (&u.state, &u.zone) {
            state_places::declare(cf, u.at, path)?;
        }
        u.zone_bytes = u.zone.as_ref().map_or(0, |zone| zones::size_of(cf, zone));
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

fn check_slow_start(u: &Declared) -> ConfResult {
    let refuses = u.method.as_ref().is_some_and(Method::refuses_slow_start);
    match u.servers.iter().find(|s| refuses && s.slow_start_secs > 0) {
        None => Ok(()),
        Some(s) => {
            let text = "balancing method does not support parameter \"slow_start\"";
            let hint = "remove the parameter, or use round robin, least_conn or least_time";
            Err(Diagnostic::emerg(text.to_string()).at(s.at).hint(hint.to_string()))
        }
    }
}

fn build_group<S: Asks>(
    u: &Declared,
    outer: &Outer,
    known: &names::Known,
    warnings: &mut Vec<Diagnostic>,
) -> ConfResult<Group> {
    check_slow_start(u)?;
    let names::Servers { fixed, hosts, found } = names::resolve::<S>(u, outer, known, warnings)?;
    let may_be_empty = u.state.is_some() || !hosts.is_empty() || u.has_balancer();
    if !may_be_empty && fixed.iter().all(|(_, is_backup)| *is_backup) {
        let text = format!("no servers in upstream \"{}\"", lossy(&u.name));
        let hint = "a server that is no backup is to be in it: take \"backup\" away from one";
        return Err(Diagnostic::emerg(text).at(u.at).hint(hint.to_string()));
    }
    // One with a zone may be changed while it serves.
    if !hosts.is_empty() || u.explicit && u.zone.is_some() {
        let state = u.state.clone().map(StateFile::new::<S>);
        let asked = (outer.of(u), u.dynamic);
        let live = Live::new(names::plan::<S>(u)?, fixed, hosts, state, asked);
        for (name, targets) in found.iter().filter(|(_, targets)| !targets.is_empty()) {
            live.known(name, targets);
        }
        return Ok(Group::live(live));
    }
    let of = |backup: bool| {
        fixed.iter().filter(|(_, b)| *b == backup).map(|(p, _)| p.clone()).collect::<Vec<_>>()
    };
    let (primary, backup) = (of(false), of(true));
    let peers = Peers::new(primary, backup);
    Ok(Group::new(&names::plan::<S>(u)?, peers))
}
