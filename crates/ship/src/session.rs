//! `ship_access` in `stream` and `mail`: a session that is over becomes an event, as a request does.

use crate::access::{stamp, upstream, Agreed};
use crate::places::{self, ShipLoc};
use crate::running::Plan;
use std::io::Write as _;
use std::rc::Rc;
use weir_core::eval::with_scratch;
use weir_core::timing::UpstreamState;
use weir_core::Session;
use weir_mail::{Came, MailModule};
use weir_module::SlotVtable;
use weir_runtime::clock;
use weir_shipping::ecs::{self, Went};
use weir_shipping::event::{Kind, Severity};
use weir_stream::{Flow, Phase, PhaseHandler, StreamModule};

const SLOTS: &[SlotVtable] = &[SlotVtable::of::<ShipLoc>()];

pub const STREAM: StreamModule = StreamModule {
    rows: places::STREAM,
    slots: SLOTS,
    phases: &[PhaseHandler { phase: Phase::Log, handler: of_stream, active: places::active }],
    build: Some(|b| places::build(b.cf, [std::slice::from_ref(b.outer), b.servers])),
    ..StreamModule::EMPTY
};

pub const MAIL: MailModule = MailModule {
    rows: places::MAIL,
    slots: SLOTS,
    logged: Some(weir_mail::Handler { handler: of_mail, active: places::active }),
    build: Some(|b| places::build(b.cf, [std::slice::from_ref(b.outer), b.servers])),
    ..MailModule::EMPTY
};

fn of_stream(s: &mut weir_stream::Session) -> Flow {
    places::each(s, |s, plan| {
        let status = s.status;
        let (went, severity) = match status {
            500.. => (Went::Badly, Severity::Error),
            400.. => (Went::Badly, Severity::Warning),
            _ => (Went::Well, Severity::Info),
        };
        with_scratch(|text| {
            // Writing into a vector cannot fail.
            let _ = write!(text, "{status:03}");
            let session = ecs::Session {
                duration_us: clock::mono_us().saturating_sub(s.begun_us()),
                block: "stream",
                transport: if s.conn().is_udp() { "udp" } else { "tcp" },
                status: text,
                went,
                bytes_received: s.received,
                bytes_sent: s.sent,
                server_name: s.server_name(),
                ..ecs::Session::default()
            };
            push(s, plan, session, s.upstream.last(), s.upstream.len(), severity);
        });
    });
    Flow::Declined
}

fn of_mail(s: &mut weir_mail::Session) {
    places::each(s, |s, plan| {
        let (went, severity) = match s.came() {
            Came::Proxied => (Went::Well, Severity::Info),
            Came::Ended => (Went::Unknown, Severity::Info),
            Came::Refused | Came::TlsFailed | Came::TimedOut => (Went::Badly, Severity::Warning),
            Came::Failed => (Went::Badly, Severity::Error),
        };
        let (bytes_received, bytes_sent) = s.bytes();
        let session = ecs::Session {
            duration_us: clock::mono_us().saturating_sub(s.begun_us()),
            block: "mail",
            transport: "tcp",
            protocol: s.protocol(),
            status: s.came().name().as_bytes(),
            went,
            bytes_received,
            bytes_sent,
            user: s.login(),
            server_name: s.server_name(),
            ..ecs::Session::default()
        };
        push(s, plan, session, s.upstream(), 1, severity);
    });
}

/// Adds what all sessions have, and writes the event.
fn push<S: Session>(
    s: &S,
    plan: &Plan,
    session: ecs::Session<'_>,
    asked: Option<&UpstreamState>,
    tries: usize,
    severity: Severity,
) {
    let Some(queue) = plan.queue() else { return };
    let conn = Rc::clone(s.conn());
    let (stamp, time_ms) = stamp();
    let agreed = Agreed::of(&conn);
    let local = conn.local_addr();
    with_scratch(|address| {
        if let Some(local) = local {
            // As above.
            let _ = write!(address, "{}", local.ip());
        }
        with_scratch(|out| {
            ecs::Session {
                stamp: &stamp,
                client: s.client_text(),
                client_port: s.client().port().unwrap_or(0),
                local: address,
                local_port: local.map_or(0, |local| local.port()),
                tls: agreed.as_ref().map(Agreed::shown),
                upstreams: asked.map(|state| (upstream(state), tries)),
                connection: conn.serial,
                ..session
            }
            .push(out);
            plan.session_tail.push(out);
            queue.push(out, time_ms, Kind::Session, severity);
        });
    });
}
