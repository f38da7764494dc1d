//! `status_zone` and what is counted of stream's servers (NGINX Plus's directive and figures).
//!
//! As in `http` every server is counted, under its name or its first address where it says nothing; each worker
//! counts into its own part. A session is counted by the status that it ends with, and as discarded when it ended
//! before anything was to be done with its bytes.

use crate::generation::ServerConf;
use crate::module::StreamModule;
use crate::Session;
use std::collections::BTreeMap;
use std::sync::Arc;
use weir_core::block::Place;
use weir_core::counts::{Count, Fields, Handshakes, Histogram, Near, OfTls, Part};
use weir_core::figures::{Figures, Report, Served};
use weir_module::{
    slot, ArgsExt, Arity, Cf, ConfResult, ConfType, Context, Directive, Level, Row, SlotVtable,
    Slots,
};
use weir_runtime::clock;

const ROWS: &[Row] = &[Row::new(
    "status_zone",
    Context::STREAM_SERVER,
    Arity::ONE,
    "",
    "Under which name the server is counted for the status pages.",
    set_zone,
)
.note(
    "NGINX Plus's. A server without it is counted too, under its first name, or its first address where it has no \
     name; \"off\" (our own) counts nothing. Several with one name are counted together.",
)];

/// The directive, what it counts in, and its figures.
pub const MODULE: StreamModule = StreamModule {
    rows: ROWS,
    slots: &[SlotVtable::of::<ZonesMain>(), SlotVtable::of::<ZoneSrv>()],
    reports: &[Report { path: "server_zones", put: report }],
    ..StreamModule::EMPTY
};

/// How a session may end.
const STATUSES: [(u16, &str); 6] =
    [(200, "200"), (400, "400"), (403, "403"), (500, "500"), (502, "502"), (503, "503")];
/// Where 500 stands; what has another status counts as that.
const INTERNAL_ERROR: usize = 3;

/// What is counted of sessions.
#[derive(Default)]
pub(crate) struct Sessions {
    begun: Count,
    ended: Count,
    /// By their statuses, as [`STATUSES`] has them.
    statuses: [Count; STATUSES.len()],
    discarded: Count,
    received: Count,
    sent: Count,
    took: Histogram,
}

impl Part for Sessions {
    fn each(&self, fields: &mut Fields<'_>) {
        fields.count("begun", &self.begun);
        fields.count("ended", &self.ended);
        fields.counts("statuses", &self.statuses);
        fields.count("discarded", &self.discarded);
        fields.count("received", &self.received);
        fields.count("sent", &self.sent);
        fields.times("session_time", &self.took);
    }
}

/// A server's, or that of several of one name.
pub(crate) type Zone = Arc<Near<Sessions>>;

#[derive(Default)]
struct ZoneSrv(Option<Vec<u8>>);

impl ConfType for ZoneSrv {
    const LEVEL: Level = Level::Server;
    slot!();
}

/// All that is counted, by names.
#[derive(Default)]
pub(crate) struct ZonesMain(BTreeMap<Vec<u8>, (Zone, Arc<Near<OfTls>>)>);

impl ConfType for ZonesMain {
    const LEVEL: Level = Level::Main;
    slot!();
}

fn set_zone(cf: &mut Cf, d: &Directive) -> ConfResult {
    if d.arg(0).is_empty() {
        return Err(d.bad(0, "a zone needs a name".to_string()));
    }
    match cf.get::<ZoneSrv>().0.replace(d.arg(0).to_vec()) {
        Some(_) => Err(d.error("is duplicate")),
        None => Ok(()),
    }
}

impl ZonesMain {
    /// What a server is counted in, and its handshakes.
    pub(crate) fn of(&mut self, slots: &Slots) -> Option<(Zone, Arc<Near<OfTls>>)> {
        let name = match &slots.get::<ZoneSrv>().0 {
            Some(name) if name == b"off" => return None,
            Some(name) => name.clone(),
            None => slots.get::<Place>().reached.shown_name(),
        };
        let zones = self.0.entry(name).or_insert_with_key(|name| {
            let tls = Near::named("stream server zone tls", name);
            (Arc::new(Near::named("stream server zone", name)), Arc::new(tls))
        });
        Some(zones.clone())
    }
}

fn part<'a>(server: &'a ServerConf, s: &Session) -> Option<&'a Sessions> {
    server.zone.as_ref()?.part(&s.conn().worker)
}

/// A session is about to be served.
pub(crate) fn begins(s: &mut Session) {
    s.begun_us = clock::mono_us();
    if let Some(zone) = part(s.server(), s) {
        zone.begun.add(1);
    }
}

/// Its server is another one than it began with.
pub(crate) fn moves(s: &Session, to: &ServerConf) {
    if s.begun_us == 0 {
        return;
    }
    if let Some(zone) = part(s.server(), s) {
        zone.begun.sub(1);
    }
    if let Some(zone) = part(to, s) {
        zone.begun.add(1);
    }
}

/// It is over with that status.
pub(crate) fn ends(s: &Session, status: u16) {
    let Some(zone) = part(s.server(), s) else { return };
    zone.ended.add(1);
    zone.received.add(s.received);
    zone.sent.add(s.sent);
    match status / 100 {
        2 if !s.is_served => zone.discarded.add(1),
        _ => {
            let known = STATUSES.iter().position(|(known, _)| *known == status);
            zone.statuses[known.unwrap_or(INTERNAL_ERROR)].add(1);
        }
    }
    zone.took.add(clock::mono_us().saturating_sub(s.begun_us));
}

fn report(_: &Served, main: &Slots, figures: &mut Figures) {
    for (name, (zone, tls)) in &main.get::<ZonesMain>().0 {
        let (figures, all) = (figures.entry(name), zone.all());
        figures.put("processing", all.now(|z| z.begun.get(), |z| z.ended.get()));
        figures.put("connections", all.sum(|z| z.begun.get()));
        let sessions = figures.group("sessions");
        let of = |n: usize| all.sum(|z| z.statuses[n].get());
        for (name, class) in [("2xx", 2), ("4xx", 4), ("5xx", 5)] {
            let those = STATUSES.iter().enumerate().filter(|(_, (s, _))| s / 100 == class);
            sessions.put(name, those.map(|(n, _)| of(n)).sum::<u64>());
        }
        sessions.put("total", (0..STATUSES.len()).map(of).sum::<u64>());
        let codes = sessions.group("codes");
        for (n, (_, name)) in STATUSES.iter().enumerate().filter(|(n, _)| of(*n) > 0) {
            codes.put(*name, of(n));
        }
        figures.put("discarded", all.sum(|z| z.discarded.get()));
        figures.put("received", all.sum(|z| z.received.get()));
        figures.put("sent", all.sum(|z| z.sent.get()));
        Handshakes::put_if_any(tls.all(), |t| &t.0, figures, "ssl");
        figures.put("session_time", all.times(|z| &z.took));
    }
}
