//! Where a dashboard finds the API of its server, and what of that the page is told.

use crate::api::ApiSrv;
use crate::machines::PeersLoc;
use std::sync::Arc;
use weir_base::units;
use weir_conf::Position;
use weir_core::figures::Figures;
use weir_http::module::Build;
use weir_http::Request;
use weir_module::{
    merged, slot, ArgsExt, Cf, ConfResult, ConfType, Diagnostic, Directive, Level, SlotVtable,
};

/// `api=`, of the dashboards of a server.
#[derive(Default)]
pub(super) struct DashboardSrv(Vec<(Arc<Place>, Position)>);

impl ConfType for DashboardSrv {
    const LEVEL: Level = Level::Server;
    slot!();
}

/// `api=` of one.
#[derive(Debug)]
struct Place {
    uri: String,
    /// Whether servers are changed there; known when all of the server has been read.
    writes: std::sync::OnceLock<bool>,
}

#[derive(Default)]
pub(super) struct DashboardLoc(Option<Arc<Place>>);

impl ConfType for DashboardLoc {
    const LEVEL: Level = Level::Location;
    slot!();
}

impl DashboardLoc {
    /// As with all handlers, only an `if` or `limit_except` block has its location's.
    pub(super) const VTABLE: SlotVtable = SlotVtable {
        merge: |own, outer, unnamed| {
            merged(own, outer, |own: &mut DashboardLoc, outer: &DashboardLoc| {
                if own.0.is_none() && unnamed {
                    own.0.clone_from(&outer.0);
                }
                Ok(())
            })
        },
        ..SlotVtable::of::<DashboardLoc>()
    };
}

/// Reads the directive's argument.
pub(super) fn set(cf: &mut Cf, d: &Directive) -> ConfResult {
    let mut uri = None;
    for n in 0..d.args.len() {
        let shown = String::from_utf8_lossy(d.arg(n)).into_owned();
        let slow_ms =
            shown.strip_prefix("slow=").and_then(|time| units::parse_msec(time.as_bytes()));
        match (shown.strip_prefix("api=").filter(|uri| uri.starts_with('/')), slow_ms) {
            (Some(told), _) if uri.is_none() => uri = Some(told.to_string()),
            (None, Some(ms)) if ms > 0 => {
                let main = cf.get::<super::DashboardMain>();
                main.slow_ms = Some(main.slow_ms.map_or(ms, |other| other.min(ms)));
            }
            _ => {
                let e = d.bad(n, format!("invalid parameter \"{shown}\""));
                let hint = "write \"dashboard;\", or \"dashboard api=/api/ slow=2s;\"";
                return Err(e.hint(hint.to_string()));
            }
        }
    }
    let Some(uri) = uri else { return Ok(()) };
    let place = Arc::new(Place { uri, writes: Default::default() });
    cf.get::<DashboardSrv>().0.push((Arc::clone(&place), d.position()));
    cf.get::<DashboardLoc>().0 = Some(place);
    Ok(())
}

/// Refuses a dashboard whose server has no API where it says.
pub(super) fn check(b: &mut Build) -> ConfResult {
    for server in b.servers.iter() {
        for (place, at) in &server.get::<DashboardSrv>().0 {
            let Some(writes) = server.get::<ApiSrv>().writes_at(place.uri.as_bytes()) else {
                let text = format!("no location \"{}\" with \"api\" in this server", place.uri);
                let hint = format!("write \"location {} {{ api; }}\" beside it", place.uri);
                return Err(Diagnostic::emerg(text).at(*at).hint(hint));
            };
            let _ = place.writes.set(writes);
        }
    }
    Ok(())
}

/// What the page asks once: where the API is, and whether it writes.
pub(super) fn about(r: &Request) -> Vec<u8> {
    let mut about = Figures::default();
    if let Some(place) = &r.loc().conf::<DashboardLoc>().0 {
        about.put("api", place.uri.as_str());
        about.put("writes", place.writes.get().is_some_and(|writes| *writes));
    }
    about.put("slow_ms", r.gen().shared.main.get::<super::DashboardMain>().slow_ms());
    about.put("limits", super::system::limits());
    if r.loc().conf::<PeersLoc>().machines().is_some() {
        about.put("machines", true);
    }
    let mut out = Vec::new();
    about.write_json(&mut out);
    out
}
