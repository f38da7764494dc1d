//! `ship_access`: a request that is over becomes an event in the queues of its location's receivers.
//!
//! Hot: run once per request where it is on. The document is made in a buffer of the thread and copied into the
//! worker's segment; no system call, no lock, no waiting.

use crate::otel;
use crate::places;
use crate::running::Plan;
use std::cell::RefCell;
use std::rc::Rc;
use weir_base::date::format_iso8601;
use weir_core::eval::with_scratch;
use weir_core::timing::UpstreamState;
use weir_core::tls::Secure;
use weir_core::Connection;
use weir_http::core_vars::shown_status;
use weir_http::credentials::{basic, field};
use weir_http::module::Flow;
use weir_http::Request;
use weir_runtime::clock;
use weir_shipping::ecs::{Access, Tls, Upstream};
use weir_shipping::event::{Kind, Severity};
use weir_tls::ciphers;
use weir_tls::rustls::ProtocolVersion;
use weir_wire::http1::names::HeaderId;
use weir_wire::http1::request::Version;

/// `2026-01-31T23:59:59.123Z`
pub const STAMP_BYTES: usize = 24;

thread_local! {
    /// The last second and its text.
    static SECOND: RefCell<(i64, [u8; STAMP_BYTES])> = const { RefCell::new((i64::MIN, [0; STAMP_BYTES])) };
}

/// Now, and in milliseconds.
pub fn stamp() -> ([u8; STAMP_BYTES], u64) {
    let (secs, ms) = clock::wall();
    let mut text = SECOND.with_borrow_mut(|(second, text)| {
        if *second != secs {
            let whole = format_iso8601(secs, 0);
            text[..19].copy_from_slice(&whole[..19]);
            text[19..].copy_from_slice(b".000Z");
            *second = secs;
        }
        *text
    });
    let digit = |n: u32| b'0' + (n % 10) as u8;
    (text[20], text[21], text[22]) = (digit(ms / 100), digit(ms / 10), digit(ms));
    (text, secs as u64 * 1000 + u64::from(ms))
}

pub fn handler(r: &mut Request) -> Flow {
    places::each(r, ship);
    Flow::Declined
}

fn ship(r: &mut Request, plan: &Plan) {
    let Some(queue) = plan.queue() else { return };
    let (stamp, time_ms) = stamp();
    let trace = otel::trace_of(r);
    with_scratch(|out| {
        push(r, &stamp, trace, out);
        plan.access_tail.push(out);
        let severity = match shown_status(r) {
            500.. => Severity::Error,
            400.. => Severity::Warning,
            _ => Severity::Info,
        };
        queue.push(out, time_ms, Kind::Access, severity);
    });
}

fn push(r: &Request, stamp: &[u8], trace: Option<otel::Ids>, out: &mut Vec<u8>) {
    let conn = Rc::clone(r.conn());
    let user = r.header(field(r)).and_then(basic).map(|(name, _)| name);
    let agreed = Agreed::of(&conn);
    let header = |id| r.header(id).unwrap_or_default();
    let upstreams = r.upstream.last().map(|last| (upstream(last), r.upstream.len()));
    Access {
        stamp,
        duration_us: clock::mono_us().saturating_sub(r.started_us()),
        method: r.method_name(),
        uri: r.unparsed_uri(),
        version: version(r.version()),
        host: r.host(),
        status: shown_status(r),
        bytes_sent: r.bytes_sent(),
        body_bytes_sent: r.body_bytes_sent(),
        bytes_received: r.received,
        request_body_bytes: r.body.length,
        referrer: header(HeaderId::Referer),
        user_agent: header(HeaderId::UserAgent),
        content_type: r.out.content_type_parts().map_or(&[], |parts| parts[0]),
        client: r.client_text(),
        client_port: r.client().port().unwrap_or(0),
        user: user.as_deref().unwrap_or_default(),
        forwarded: header(HeaderId::XForwardedFor),
        server_name: &r.server().core.reached.primary_name,
        tls: agreed.as_ref().map(Agreed::shown),
        upstreams,
        connection: (conn.serial, u64::from(r.serial_number())),
        trace,
    }
    .push(out);
}

/// What TLS has agreed upon.
pub struct Agreed<'a> {
    session: Option<(&'static str, String)>,
    secure: Option<&'a Secure>,
}

impl<'a> Agreed<'a> {
    /// Nothing of a connection without TLS.
    pub fn of(conn: &'a Connection) -> Option<Agreed<'a>> {
        if !conn.is_tls() {
            return None;
        }
        let session = conn.stream.tls().and_then(|tls| {
            tls.with(|tls| {
                let version = match tls.protocol_version()? {
                    ProtocolVersion::TLSv1_3 => "1.3",
                    _ => "1.2",
                };
                Some((version, ciphers::name(tls.negotiated_cipher_suite()?.suite()).to_string()))
            })
        });
        Some(Agreed { session, secure: conn.secure.get().map(|s| &**s) })
    }

    pub fn shown(&self) -> Tls<'_> {
        Tls {
            version: self.session.as_ref().map_or("", |(version, _)| version),
            cipher: self.session.as_ref().map_or("", |(_, cipher)| cipher),
            server_name: self.secure.and_then(|s| s.name.as_deref()).unwrap_or_default(),
        }
    }
}

pub fn upstream(state: &UpstreamState) -> Upstream<'_> {
    Upstream {
        address: &state.peer,
        status: state.status,
        connect_us: state.connect_us,
        header_us: state.header_us,
        response_us: state.response_us,
        bytes_sent: state.bytes_sent,
        bytes_received: state.bytes_received,
    }
}

fn version(version: Version) -> &'static [u8] {
    match version {
        Version::HTTP_09 => b"0.9",
        Version::HTTP_10 => b"1.0",
        Version::HTTP_11 => b"1.1",
        Version::HTTP_20 => b"2.0",
        _ => b"",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stamp_has_milliseconds() {
        let (text, ms) = stamp();
        let text = std::str::from_utf8(&text).unwrap();
        assert_eq!((text.len(), &text[10..11], &text[19..20], &text[23..]), (24, "T", ".", "Z"));
        assert_eq!(text[20..23].parse::<u64>().unwrap(), ms % 1000);
    }
}
